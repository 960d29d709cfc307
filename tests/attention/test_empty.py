"""Nothing to attend from, or to: empty batches, no queries, no keys."""

from contextlib import nullcontext

import pytest
import torch

from regard.attention import (
    MECHANISMS,
    POSITIONS,
    SCORES,
    KeyValueCache,
    MultiHeadAttention,
    attend,
    causal,
    explain,
    lengths,
    make_score,
    use,
    window,
)
from regard.core.errors import RegardError
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


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_of_nothing(name):
    """Empty batches and texts, forward and backward; and steps of no words between others."""
    layer = MECHANISMS[name](8, 2).double()
    for batch, n in ((1, 0), (0, 3), (0, 0)):
        x = torch.zeros(batch, n, 8, dtype=torch.float64, requires_grad=True)
        for mask in (None, causal(), lengths(torch.zeros(batch, dtype=torch.long))):
            output = layer(x, mask=mask)
            assert output.shape == x.shape
            output.sum().backward()
            assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())
    x, cache = torch.randn(2, 3, 8).double(), KeyValueCache()
    parts = [layer(part, mask=causal(), cache=cache) for part in x.split([0, 2, 0, 1, 0], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), layer(x, mask=causal()))


@pytest.mark.parametrize("name", SCORES)
def test_no_keys_for_any_score(name):
    score = make_score(name, "none", 6, 6, heads=2, length=8)
    q, none = torch.randn(2, 2, 3, 6, requires_grad=True), torch.zeros(2, 2, 0, 6)
    for kernel in ("exact", "tiled"):
        with use(kernel):
            output = attend(q, none, none, score, heads=2).output
        assert torch.equal(output, torch.zeros(2, 2, 3, 6))
        if name != "boxcar":  # its weights have no slope
            output.sum().backward()


def test_heads_that_share_keys_are_named_if_heads_is_missing():
    q, k = torch.randn(2, 4, 5, 6), torch.randn(2, 2, 5, 6)
    with pytest.raises(RegardError, match="4 heads that share 2 keys, pass heads=4"):
        attend(q, k, k)
    with pytest.raises(RegardError, match=r"values \(2, 3, 5, 6\) do not broadcast$"):
        attend(q, q, torch.randn(2, 3, 5, 6))
    assert attend(q, k, k, heads=4).output.shape == q.shape
