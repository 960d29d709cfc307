import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.analysis.cost import count_parameters, flops_per_example
from regard.models import MODELS


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
