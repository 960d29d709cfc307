import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.analysis.cost import count_parameters, flops_per_example, operations
from regard.attention import Attention, make_score, use, window
from regard.lab.tasks.models import MODELS


class Reader(nn.Module):
    """A stand-in for a classifier around one layer."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.width = layer, width

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.layer(tokens[..., None].float().expand(-1, -1, self.width))


class Fused(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Linear(6, 5), 2 * 7 * 6 * 5),
        (nn.LSTM(6, 5, batch_first=True), 2 * 7 * 4 * 5 * (6 + 5)),
        (Fused(), 2 * 7 * 7 * (6 + 6)),
    ],
    ids=["linear", "lstm", "fused attention"],
)
def test_operations_by_hand(layer: nn.Module, expected: int) -> None:
    assert flops_per_example(Reader(layer, 6), length=7) == expected


def test_products_with_a_vector_are_counted() -> None:
    matrix, vector = torch.ones(4, 5), torch.ones(5)
    assert operations(lambda: matrix @ vector) == 2 * 4 * 5
    assert operations(lambda: torch.addmv(torch.ones(4), matrix, vector)) == 2 * 4 * 5


def test_the_model_keeps_its_mode() -> None:
    model = Reader(nn.Dropout(), 2).train()
    flops_per_example(model, 3)
    assert model.training


def test_parameters_shared_are_counted_once() -> None:
    first, second = nn.Linear(3, 4), nn.Linear(3, 4)
    second.weight = first.weight
    second.bias.requires_grad_(False)
    assert count_parameters(nn.Sequential(first, second)) == 16


def test_a_rung_counts_its_table_and_its_products() -> None:
    entry = MODELS["mean"]
    model = entry.build(entry.configure({"width": 6}), vocabulary=11, labels=3)
    assert count_parameters(model) == 11 * 6 + 6 * 3 + 3
    assert flops_per_example(model, 7) == 2 * 7 * 6 + 2 * 6 * 3  # the mean is a product too


def test_operations_of_gradients_by_hand() -> None:
    n, d, kernel = 7, 5, 3
    convolution = nn.Conv1d(d, d, kernel, padding=1)
    x = torch.ones(1, d, n, requires_grad=True)
    once = 2 * kernel * n * d * d
    assert operations(lambda: convolution(x)) == once
    assert operations(lambda: convolution(x).sum().backward()) == 3 * once
    rnn = nn.RNN(d, 4, batch_first=True)
    y = torch.ones(1, n, d, requires_grad=True)
    assert operations(lambda: rnn(y)) == 2 * n * 4 * (d + 4)
    q = torch.ones(1, 2, n, 16, requires_grad=True)
    fused = 2 * 2 * n * n * 16  # one product of two heads

    def attention() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q)

    assert operations(attention) == 2 * fused
    assert operations(lambda: attention().sum().backward()) == 7 * fused, "2, and 5 back"


def test_operations_of_gradients_in_strips_are_those_of_the_fused_kernel() -> None:
    n, d = 256, 16
    x = torch.ones(1, 1, n, d, requires_grad=True)
    attention, once = Attention(make_score("scaled-dot")), 2 * n * n * d

    def found(kernel: str) -> int:
        with use(kernel):
            return operations(lambda: attention(x, x, x).output.sum().backward())

    assert found("fused") == 7 * once
    assert 7 * once <= found("tiled") < 7.1 * once


@pytest.mark.parametrize("grad", [False, True])
def test_blocks_that_a_window_hides_are_not_counted(grad: bool) -> None:
    """Strips of 128 queries and 64 keys to each side, by blocks of 64: 256 keys, 192 at the ends.

    With gradients one pair more is scored, to see that what needs one is a parameter.
    """
    n, d, strips = 1024, 16, 8
    x = torch.ones(1, 1, n, d, requires_grad=grad)
    attention = Attention(make_score("scaled-dot"))
    pairs = 128 * (256 * (strips - 2) + 192 * 2)
    more = 2 * d if grad else 0
    with use("tiled"), torch.set_grad_enabled(grad):
        found = operations(lambda: attention(x, x, x, window(64)).output)
    assert found == 2 * 2 * pairs * d + more
    with use("exact"):
        assert operations(lambda: attention(x, x, x, window(64)).output) == 2 * 2 * n * n * d
