"""Five layers from (batch, n, d) to the same, each what its formula says."""

import json

import pytest
import torch
from torch.nn import functional as F

from regard.core.errors import RegardError
from regard.lab.labs.complexity import layers as sequence_layers
from regard.lab.labs.complexity.layers import (
    ATTENTIONS,
    LAYERS,
    Convolution,
    Size,
    make,
    skips_blocks,
    work,
)

SMALL = Size(n=11, d=6, kernel=4, window=2, rank=3, heads=2, batch=5)


@pytest.mark.parametrize("projections", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_as_many_vectors_as_came(name: str, projections: bool) -> None:
    x = torch.randn(5, 11, 6)
    assert make(name, SMALL, projections=projections)(x).shape == (5, 11, 6)
    output, *gradients = work(name, SMALL, projections=projections, backward=True)()
    assert output.shape == gradients[0].shape == (5, 11, 6)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert len(work(name, SMALL, projections=projections)()) == 1


def test_attention_alone_by_its_formula() -> None:
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    weights = torch.softmax(x @ x.mT / 2, -1)
    size = Size(7, 4, window=2, rank=3, batch=2)
    found = make("self-attention", size, projections=False)(x)
    torch.testing.assert_close(found, weights @ x)
    place = torch.arange(7)
    far = (place[:, None] - place).abs() > 2
    weights = torch.softmax((x @ x.mT / 2).masked_fill(far, -torch.inf), -1)
    torch.testing.assert_close(make("window", size, projections=False)(x), weights @ x)
    layer = make("linformer", size, projections=False).double()
    (mix,) = layer.parameters()
    weights = torch.softmax(x @ (mix @ x).mT / 2, -1)
    torch.testing.assert_close(layer(x), weights @ (mix @ x))


def test_a_causal_convolution_looks_at_no_later_place() -> None:
    layer, x = Convolution(3, 3, 2, causal=True), torch.randn(1, 9, 3)
    before = layer(x)
    x[:, 5:] += 1
    torch.testing.assert_close(layer(x)[:, :5], before[:, :5])
    even = Convolution(3, 4)
    expected = even.convolve(F.pad(x.mT, (2, 1))).mT
    torch.testing.assert_close(even(x), expected)


def test_a_long_window_is_computed_in_strips() -> None:
    assert not skips_blocks(Size(256, 16))
    assert skips_blocks(Size(512, 16))


def test_memory_of_each_layer(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"lengths": [32], "d": 16, "projections": True, "backward": True}
    sequence_layers.main(json.dumps(asked))
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(LAYERS)
    assert all(len(row) == 1 and row[0] >= 0 for row in found.values())


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(RegardError, match="is not divisible by heads=4"):
        make(ATTENTIONS[0], Size(5, 6, heads=4))
