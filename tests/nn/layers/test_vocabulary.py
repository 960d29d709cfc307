import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.nn.layers.vocabulary import WordLogits


class Output(nn.Module):
    """The end of a model: states and an output matrix."""

    def __init__(self, words: int, bias: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, words, bias=bias)

    def logit_parts(self, states):
        return states, self.layer.weight, self.layer.bias


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("words", "rows"), [(1025, 20), (1025, 3), (1040, 20), (50, 20)])
@torch.no_grad()
def test_logits_are_those_of_the_matrix_at_every_step(words, rows, bias):
    model = Output(words, bias)
    logits = WordLogits(model)
    for _ in range(2):
        states = torch.randn(rows // 2, 2, 8)
        found = logits(states)
        assert found.shape == (rows // 2, 2, words)
        assert_close(found, F.linear(states, model.layer.weight, model.layer.bias))


@torch.no_grad()
def test_only_a_large_odd_vocabulary_with_many_rows_is_copied():
    def kept(words: int, rows: int):
        logits = WordLogits(model := Output(words, bias=False))
        logits(torch.randn(rows, 8))
        return None if logits.kept is None else logits.kept[0] is model.layer.weight

    assert kept(1025, 20) is False
    assert kept(1040, 20) is True
    assert kept(1025, 3) is None


@torch.no_grad()
def test_under_autocast_the_copy_has_its_dtype():
    logits = WordLogits(Output(1025, bias=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert logits(torch.randn(20, 8)).dtype == torch.bfloat16
    assert logits.kept[0].dtype == logits.kept[1].dtype == torch.bfloat16
