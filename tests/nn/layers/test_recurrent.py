import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from regard.nn.layers.recurrent import Bidirectional, reverse

LENGTHS = torch.tensor([7, 2, 1, 5])


def packed(ours: Bidirectional, width: int, layers: int) -> nn.LSTM:
    """torch's own bidirectional LSTM with the same weights."""
    theirs = nn.LSTM(width, ours.width // 2, layers, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer in range(layers):
            for suffix, side in (("", ours.forwards), ("_reverse", ours.backwards)):
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    own = getattr(side[layer], f"{part}_l0")
                    getattr(theirs, f"{part}_l{layer}{suffix}").copy_(own)
    return theirs


@pytest.mark.parametrize("layers", [1, 2])
def test_equals_torchs_packed_lstm(layers: int) -> None:
    torch.manual_seed(0)
    ours = Bidirectional(6, 3, layers)
    theirs = packed(ours, 6, layers)
    x = torch.randn(4, 7, 6)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    states, _ = theirs(pack_padded_sequence(other, LENGTHS, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(states, batch_first=True)
    found = ours(mine, LENGTHS)
    assert_close(found, expected, atol=1e-6, rtol=1e-5)
    weights = torch.randn_like(expected)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    assert_close(mine.grad, other.grad, atol=1e-6, rtol=1e-5)
    assert_close(
        ours.backwards[0].weight_hh_l0.grad,
        theirs.weight_hh_l0_reverse.grad,
        atol=1e-6,
        rtol=1e-5,
    )


def test_padding_may_hold_anything() -> None:
    torch.manual_seed(1)
    lstm = Bidirectional(6, 3, 2)
    x = torch.randn(4, 7, 6)
    before = lstm(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        x[row, length:] = 100
    assert_close(lstm(x, LENGTHS), before)
    assert before[1, 2:].count_nonzero() == 0


def test_turning_twice_changes_nothing() -> None:
    x = torch.randn(4, 7, 6)
    assert not torch.equal(reverse(x, LENGTHS), x)
    assert torch.equal(reverse(reverse(x, LENGTHS), LENGTHS), x)
