"""Nothing to attend from, or to: empty batches, no queries, no keys."""

from contextlib import nullcontext

import pytest
import torch

from regard.attention import (
    POSITIONS,
    MultiHeadAttention,
    attend,
    causal,
    explain,
    lengths,
    make_score,
    use,
    window,
)
from tests.attention.parts import gradients

EMPTY = [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("kernel", [None, "exact", "plain", "fused", "tiled"])
@pytest.mark.parametrize(("batch", "n", "m"), EMPTY)
def test_nothing_to_attend_from_or_to(kernel, batch, n, m):
    for score, position in (("scaled-dot", "none"), ("additive", "t5-bias"), ("dot", "tree-keys")):
        made = make_score(score, position, 4, 4, heads=2)
        q, k, v = (torch.randn(batch, 2, rows, 4, requires_grad=True) for rows in (n, m, m))
        for mask in (None, lengths([m // 2] * batch), causal() & lengths([m] * batch), window(1)):
            with use(kernel) if kernel else nullcontext():
                given = attend(q, k, v, made, mask)
            assert given.output.shape == (batch, 2, n, 4)
            assert given.weights.shape == (batch, 2, n, m)
            summary = given.summary(3)
            assert summary.indices.shape == (batch, 2, n, min(3, m))
            assert summary.entropy.shape == (batch, 2, n)
            assert torch.equal(summary.mass, torch.zeros(batch, 2, m))
            for slope in gradients(given.output, q, k, v):
                assert slope.count_nonzero() == 0


@pytest.mark.parametrize("position", POSITIONS)
def test_layers_of_nothing(position):
    layer = MultiHeadAttention(8, 4, key_value_heads=2, position=position, length=9)
    for batch, n in ((0, 5), (2, 0), (0, 0)):
        x = torch.randn(batch, n, 8, requires_grad=True)
        for mask in (None, causal() & lengths([n] * batch), window(2)):
            output = layer(x, mask=mask)
            assert output.shape == (batch, n, 8)
            output.sum().backward()
            assert explain(x, x, x).kernel == ("exact" if not n else "fused")
