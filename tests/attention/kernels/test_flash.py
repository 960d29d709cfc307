"""Torch's kernel in strips of rows beside the definition: masks, biases with gradients, sinks."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    NORMALIZERS,
    attend,
    causal,
    dense,
    documents,
    explain,
    global_tokens,
    make_score,
    use,
    window,
)
from regard.attention.kernels import flash
from regard.attention.kernels.choose import Constants, using
from regard.attention.scores.wrapper import Wrapper
from regard.core.errors import RegardError
from tests.attention.parts import HEADS, MASKS, inputs, score_of, shifted

#: Strips of 16 rows at 40 keys, and masks of pairs as tables of strips.
SMALL = Constants(exact_pairs=0, fused_pairs=0, strip_numbers=HEADS * 8 * 40, strip_rows=1)

pytestmark = pytest.mark.usefixtures("for_long_texts")


def results(given, score, mask, normalizer):
    of = [*given, *(p for p in (*score.parameters(), *normalizer.parameters()) if p.requires_grad)]
    output = attend(*given, score, mask, normalize=normalizer).output
    parts = torch.autograd.grad(output.cos().sum(), of, allow_unused=True)
    return [output, *(x for x in parts if x is not None)]


def agree(given, score, mask, normalizer):
    """Compare outputs and gradients in strips with those of the definition."""
    with using(SMALL):
        found = results(given, score, mask, normalizer)
    with use("exact"):
        exact = results(given, score, mask, normalizer)
    assert_close(found, exact, atol=1e-11, rtol=1e-11)


class OnGpu:
    """What torch's two kernels for a GPU compute, and what they demand of their inputs."""

    @staticmethod
    def weights(q, k, bias, causal, scale, logs=None):
        scores = scale * q @ k.mT
        if bias is not None:
            between, m = bias._base, k.shape[-2]
            assert bias.shape == scores.shape
            assert all(x % 16 == 0 for x in bias.stride()[:-1])
            assert bias.storage_offset() == 0
            assert not between[..., m:].any()
            scores = scores + bias
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        logs = scores.logsumexp(-1) if logs is None else logs
        return (scores - logs.unsqueeze(-1)).exp(), logs

    def _scaled_dot_product_efficient_attention(self, q, k, v, bias, _, p, causal, *, scale):
        weights, logs = self.weights(q, k, bias, causal, scale)
        return weights @ v, torch.nn.functional.pad(logs, (0, -logs.shape[-1] % 32)), None, None

    def _scaled_dot_product_efficient_attention_backward(
        self, g, q, k, v, bias, output, logs, seed, offset, p, wanted, causal, *, scale
    ):
        assert logs.shape[-1] % 32 == 0
        logs = logs[..., : q.shape[-2]]
        weights, _ = self.weights(q, k, bias, causal, scale, logs)
        of = weights * (g @ v.mT - (g * output).sum(-1, keepdim=True))
        return scale * of @ k, scale * of.mT @ q, weights.mT @ g, of if wanted[3] else None

    def _scaled_dot_product_flash_attention(self, q, k, v, p, causal, *, scale):
        weights, logs = self.weights(q, k, None, causal, scale)
        return weights @ v, logs, None, None, q.shape[-2], k.shape[-2], None, None, None

    def _scaled_dot_product_flash_attention_backward(
        self, g, q, k, v, output, logs, of_q, of_k, n, m, p, causal, seed, offset, *, scale
    ):
        assert (n, m, q.shape[-1] % 8) == (q.shape[-2], k.shape[-2], 0)
        logs = torch.nn.functional.pad(logs, (0, -n % 32))
        more = (None, output, logs, seed, offset, p, [True] * 4, causal)
        return self._scaled_dot_product_efficient_attention_backward(
            g, q, k, v, *more, scale=scale
        )[:3]


@pytest.fixture(params=["cpu", "gpu", "gpu, flash"])
def kernels(request, monkeypatch):
    """Compute by the kernel of a CPU, or as on a GPU."""
    if request.param != "cpu":
        monkeypatch.setattr(flash, "on_gpu", lambda x: True)
        monkeypatch.setattr(flash, "aten", OnGpu())
        monkeypatch.setattr(flash, "flash_serves", lambda q: request.param == "gpu, flash")


def learned(name):
    return shifted(NORMALIZERS[name](HEADS).double())


@pytest.mark.parametrize("mask", [*MASKS, "window", "documents"])
@pytest.mark.parametrize(
    "position", ["none", "alibi", "kerple", "t5-bias", "relative-keys", "fire"]
)
@pytest.mark.parametrize("normalize", ["softmax", "sink", "softmax-plus-one"])
def test_the_definition(position, mask, normalize, kernels):
    more = {"window": window(3), "documents": documents(torch.arange(40) // 9) & causal()}
    allowed = more[mask] if mask in more else MASKS[mask](40, 40)
    given, score = inputs(40, 40), score_of("scaled-dot", position)
    normalizer = learned(normalize)
    if position == "fire":  # of the distance alone in the first strip, or everywhere
        score.threshold.data.fill_(50 if mask == "none" else 20)
    with using(SMALL):
        plan = explain(*given, score, allowed, normalize=normalizer)
        whole = position == "none" and normalize == "softmax"
        assert plan.kernel == "fused"
        assert plan.by_strips == (not whole or mask not in ("none", "causal", "lengths"))
    agree(given, score, allowed, normalizer)


class Broadcast(Wrapper):
    """A bias for each head, or for each query."""

    def __init__(self, inner, of_queries):
        super().__init__(inner)
        self.bias, self.of_queries = torch.nn.Parameter(torch.randn(HEADS, 1, 1)), of_queries

    def added(self, queries, keys, positions):
        return self.bias * queries.sum(-1, keepdim=True) if self.of_queries else self.bias


@pytest.mark.parametrize("of_queries", [False, True])
@pytest.mark.parametrize("mask", [None, causal(), window(9)])
def test_a_bias_that_is_broadcast(mask, of_queries, kernels):
    score = Broadcast(score_of("scaled-dot", "none"), of_queries).double()
    agree(inputs(40, 40), score, mask, learned("softmax"))


@pytest.mark.parametrize("mask", [None, window(9)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 1, 3)])
def test_batches_of_any_shape_and_fewer_heads_of_keys(batch, mask, kernels):
    given = [torch.randn(*batch, HEADS, 40, 6, dtype=torch.float64, requires_grad=True)]
    given += [
        torch.randn(*batch, 1, 50, width, dtype=torch.float64, requires_grad=True)
        for width in (6, 5)
    ]
    score, normalizer = score_of("general", "t5-bias"), learned("sink")
    with using(SMALL):
        assert explain(*given, score, mask, normalize=normalizer).by_strips
    agree(given, score, mask, normalizer)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("normalize", ["softmax", "sink"])
@pytest.mark.parametrize("mask", [None, window(9)])
@pytest.mark.parametrize("expanded", [False, True])
def test_columns_that_are_not_neighbours_in_memory(place, normalize, mask, expanded):
    given = [torch.randn(2, HEADS, 40, 16, dtype=torch.float64) for _ in range(3)]
    given[place] = given[place][..., :1].expand(2, HEADS, 40, 16) if expanded else (
        torch.randn(2, HEADS, 16, 40, dtype=torch.float64).mT
    )  # fmt: skip
    assert given[place].stride(-1) != 1
    score = make_score("scaled-dot", "alibi", 16, 16, heads=HEADS).double()
    agree([x.requires_grad_() for x in given], score, mask, learned(normalize))


@pytest.mark.parametrize("score", ["scaled-dot", "additive"])
def test_gradients_of_many_strips_add_up_in_bfloat16(score):
    """Each of 600 strips adds a quarter to the gradient of each value."""
    queries, keys = torch.zeros(1, 600, 16), torch.zeros(1, 4, 16)
    values = torch.zeros(1, 4, 16, dtype=torch.bfloat16, requires_grad=True)
    made = make_score(score, "none", 16, 16, heads=1).bfloat16()
    with using(replace(SMALL, strip_numbers=4, plain_bfloat16_keys=0)):
        given = queries.bfloat16(), keys.bfloat16(), values
        plan = explain(*given, made, dense(torch.ones(600, 4, dtype=torch.bool)))
        assert plan.by_strips or plan.kernel == "tiled"
        mask = dense(torch.ones(600, 4, dtype=torch.bool))
        attend(*given, made, mask).output.sum().backward()
    assert_close(values.grad.float(), torch.full((1, 4, 16), 150.0), rtol=0.01, atol=0)


def test_gradients_beside_a_bias_that_is_frozen(monkeypatch):
    given, score, normalizer = inputs(40, 40), score_of("scaled-dot", "t5-bias"), learned("sink")
    score.bias.requires_grad_(False)
    monkeypatch.setattr(flash, "explicit", None)  # torch's kernel needs no gradient of scores
    agree(given, score, None, normalizer)


def test_a_bias_over_columns_that_are_not_neighbours():
    given, score = inputs(260, 260), score_of("scaled-dot", "t5-bias")
    allowed, normalizer = window(5) | global_tokens(2), learned("softmax")
    with using(SMALL):
        assert explain(*given, score, allowed).by_strips
    agree(given, score, allowed, normalizer)


def test_a_bias_of_distance_is_not_copied_for_each_pair(monkeypatch):
    made, forward = [], flash.Strips.forward

    def watched(self, q, k, v, table):
        made.append(table)
        return forward(self, q, k, v, table)

    monkeypatch.setattr(flash.Strips, "forward", watched)
    score = score_of("scaled-dot", "t5-bias")
    with using(SMALL):
        attend(*inputs(40, 50), score)
    rows = [x.shape[-2] for x in made]
    assert sum(rows) == 40
    assert len(rows) > 2
    assert [x.untyped_storage().size() for x in made] == [8 * HEADS * (n + 50 - 1) for n in rows]


def test_a_bias_of_scattered_positions_and_one_without_a_gradient():
    given = [x.detach() for x in inputs(40, 40)]
    places = {"query_positions": torch.randperm(40), "key_positions": torch.randperm(40)}
    for position in ("kerple", "t5-bias", "fire"):
        score = score_of("scaled-dot", position)
        with using(SMALL), torch.no_grad():
            ours = attend(*given, score, causal(), **places).output
        with use("exact"):
            assert_close(ours, attend(*given, score, causal(), **places).output.detach())


def test_a_second_derivative_is_refused():
    given, score = inputs(40, 40), score_of("scaled-dot", "kerple")
    with using(SMALL):
        output = attend(*given, score).output
        with pytest.raises(RegardError, match="differentiable once"):
            torch.autograd.grad(output.sum(), given, create_graph=True)


@pytest.mark.parametrize("name", ["scalable-softmax", "adaptive-entmax"])
@pytest.mark.parametrize("mask", ["none", "causal", "lengths", "causal & lengths", "nothing"])
def test_a_factor_per_row_is_in_the_queries(name, mask):
    given, score, normalizer = inputs(40, 40), score_of("scaled-dot"), learned(name)
    allowed = MASKS[mask](40, 40)
    plan = explain(*given, score, allowed, normalize=normalizer)
    assert (plan.kernel == "fused") == (name == "scalable-softmax")
    found = results(given, score, allowed, normalizer)
    scores = given[0] @ given[1].mT * given[0].shape[-1] ** -0.5
    if allowed is not None:
        places = torch.arange(40)
        scores = scores.masked_fill(~allowed.over_heads().allows(places, places), -torch.inf)
    output = normalizer(scores) @ given[2]
    of = [*given, *normalizer.parameters()]
    exact = [output, *torch.autograd.grad(output.cos().sum(), of)]
    assert_close(found, exact, atol=1e-11, rtol=1e-11)
