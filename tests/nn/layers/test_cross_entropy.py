import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn.layers import cross_entropy, vocabulary
from regard.nn.layers.cross_entropy import vocabulary_cross_entropy


def make(rows: int = 11, words: int = 7, width: int = 5, *, bias: bool = True):
    states = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(words, width, dtype=torch.float64, requires_grad=True)
    offsets = torch.randn(words, dtype=torch.float64, requires_grad=True) if bias else None
    return states, weight, offsets, torch.randint(0, words, (rows,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [4, 11, 512])
@pytest.mark.parametrize("many", [1, 1024])
def test_equals_torch_and_so_do_its_gradients(monkeypatch, many, chunk, bias, smoothing):
    monkeypatch.setattr(cross_entropy, "CHUNK", 7 * chunk)
    monkeypatch.setattr(vocabulary, "MANY", many)  # from how many words on rows are aligned
    states, weight, offsets, wanted = make(bias=bias)
    of = [x for x in (states, weight, offsets) if x is not None]
    ours = vocabulary_cross_entropy(states, weight, offsets, wanted, smoothing)
    theirs = F.cross_entropy(F.linear(states, weight, offsets), wanted, label_smoothing=smoothing)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(3 * ours, of), torch.autograd.grad(3 * theirs, of))
    with torch.no_grad():
        assert_close(vocabulary_cross_entropy(states, weight, offsets, wanted, smoothing), theirs)


def test_a_word_without_a_chance_costs_what_it_costs():
    """Its share is 0 in float32; its logarithm is not."""
    states, weight = torch.tensor([[100.0]]), torch.tensor([[3.0], [0.0], [-3.0]])
    loss = vocabulary_cross_entropy(states, weight, None, torch.tensor([2]))
    assert loss.item() == 600


def test_autocast_multiplies_in_bf16_and_sums_in_float32():
    states, weight, offsets, wanted = (x.float() if x.is_floating_point() else x for x in make(300))
    of = [x.detach().requires_grad_() for x in (states, weight, offsets)]
    with torch.autocast("cpu", torch.bfloat16):
        ours = vocabulary_cross_entropy(*of, wanted, 0.1)
    theirs = F.cross_entropy(F.linear(*of), wanted, label_smoothing=0.1)
    assert ours.dtype == torch.float32
    assert ours.item() == pytest.approx(theirs.item(), rel=5e-3)
    assert ours.item() != theirs.item()
    for a, b in zip(torch.autograd.grad(ours, of), torch.autograd.grad(theirs, of), strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.01 * b.norm()


def test_no_rows_cost_nothing():
    states, weight, offsets, _ = make()
    loss = vocabulary_cross_entropy(states[:0], weight, offsets, torch.zeros(0).long(), 0.1)
    loss.backward()
    assert loss == 0
    assert not weight.grad.any()
