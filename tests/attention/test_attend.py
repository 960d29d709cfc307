"""The call itself: shapes, NaN, what is refused, what is lazy."""

import math
import subprocess
import sys
import warnings

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import (
    SCORES,
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    Score,
    attend,
    causal,
    dense,
    lengths,
    make_score,
    window,
)
from regard.attention import attended as attended_module
from regard.attention.kernels.choose import KernelNotTaken, use
from regard.core.errors import RegardError
from tests.attention.parts import gradients


def test_any_widths_and_no_batch():
    score = SCORES["additive"](5, 3)
    attended = attend(torch.randn(4, 5), torch.randn(6, 3), torch.randn(6, 2), score)
    assert attended.output.shape == (4, 2)
    assert attended.weights.shape == (4, 6)


@pytest.mark.parametrize("size", [4, 700])
def test_a_mask_of_queries_alone_with_nan(size):
    x = torch.randn(size, 4)
    values = torch.randn(size, 4)
    values[0, 0] = float("nan")
    asking = torch.arange(size)[:, None] % 3 > 0
    found = attend(x, x, values, "dot", dense(asking)).output
    assert found[asking[:, 0], 0].isnan().all()
    assert found[:, 1:].isfinite().all()
    assert not found[~asking[:, 0]].any()


@pytest.mark.parametrize("mask", [None, causal()])
@pytest.mark.parametrize("scale", [1, 300])
def test_weights_have_the_dtype_of_the_output(mask, scale):
    x = scale * torch.randn(2, 9, 4)
    attended = attend(x, x, x, make_score("gaussian", query_width=4, key_width=4), mask)
    assert attended.weights.dtype == attended.output.dtype == torch.float32


@pytest.mark.parametrize("kernel", ["exact", "plain", "fused"])
@pytest.mark.parametrize("value_width", [2, 9])
def test_batch_axes_broadcast(kernel, value_width):
    queries, keys = torch.randn(4, 1, 5, 3), torch.randn(2, 6, 3)
    values, score = torch.randn(7, 1, 1, 6, value_width), SCORES["dot"]()
    mask = lengths([4, 6])
    with use(kernel):
        output = attend(queries, keys, values, score, mask).output
        assert output.shape == (7, 4, 2, 5, value_width)
        one = attend(queries[3, 0], keys[0], values[5, 0, 0], score, lengths(4)).output
    assert_close(output[5, 3, 0], one)


@pytest.mark.parametrize("kernel", ["exact", "plain", "fused"])
def test_no_keys_at_all(kernel):
    with use(kernel):
        output = attend(
            torch.ones(2, 3, 4), torch.ones(2, 0, 4), torch.ones(2, 0, 5), SCORES["dot"]()
        ).output
    assert torch.equal(output, torch.zeros(2, 3, 5))


@pytest.mark.parametrize("kernel", ["exact", "plain", "fused"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("side", ["queries", "keys", "values"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_fault_stays_with_the_queries_that_may_see_it(score, side, bad, kernel):
    made = SCORES[score](3, 3, length=5).double()
    given = {
        "queries": torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True),
        "keys": torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True),
        "values": torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True),
    }
    clean = attend(*given.values(), made, causal()).output[0, :3]
    expected = gradients(clean, *given.values(), *made.parameters())
    with torch.no_grad():
        given[side][0, 3, 0] = bad
    with use(kernel):
        attended = attend(*given.values(), made, causal())
    output = attended.output
    assert_close(output[0, :3], clean)
    found = gradients(output[0, :3], *given.values(), *made.parameters())
    assert_close(found, expected)
    if side == "values":
        assert output[0, 3:, 0].isnan().all()
        assert output[0, 3:, 1].isfinite().all()
    else:
        assert output[0, 3].isnan().all()
        assert attended.weights[0, 3, :4].isnan().all()
        assert attended.weights[0, 3, 4] == 0, "hidden, whatever the others are"
        mass = attended.weights.detach().sum(-2)
        assert_close(attended.summary(2).mass, mass, equal_nan=True)
        assert mass[0, 4].isnan() == (side == "keys")
        assert output[0, 4].isnan().all() == (side == "keys")
    assert output[1].isfinite().all()


@pytest.mark.parametrize("kernel", ["exact", "plain", "fused", "tiled"])
@pytest.mark.parametrize("keys", [1, 7, 15, 16, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_query_or_a_key_of_nan_makes_nan_however_few_the_keys(kernel, keys, dtype):
    queries = torch.full((2, 3, 8), 9_000.0, dtype=dtype)
    queries[0, 1] = torch.nan
    given = torch.rand(2, keys, 8, dtype=dtype) / 10  # whose scores fit into float16
    with use(kernel):
        output = attend(queries, given, given, SCORES["dot"](8, 8)).output
    wanted = torch.zeros(2, 3, 8, dtype=torch.bool)
    wanted[0, 1] = True
    assert torch.equal(output.isnan(), wanted)
    bad = given.clone()
    bad[0, -1] = torch.nan
    with use(kernel):
        output = attend(queries, bad, given, SCORES["dot"](8, 8)).output
    assert output[0].isnan().all()
    assert output[1].isfinite().all()


@pytest.mark.parametrize("kernel", ["exact", "plain", "fused"])
def test_hidden_keys_may_hold_anything(kernel):
    x = torch.randn(2, 5, 3)
    y = x.clone()
    y[0, 2], y[1, 2] = torch.nan, torch.inf
    y.requires_grad_()
    mask = Mask(lambda rows, columns: columns[..., None, :] != 2)
    with use(kernel):
        clean = attend(x, x, x, SCORES["dot"](), mask).output
        output = attend(x, y, y, SCORES["dot"](), mask).output
    assert_close(output, clean)
    assert gradients(output, y)[0].isfinite().all()


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_weights_are_lazy_and_differentiable(kernel, monkeypatch):
    from regard.attention.kernels import exact

    calls = []
    weigh = exact.weights
    monkeypatch.setattr(exact, "weights", lambda *given: calls.append(1) or weigh(*given))
    x = torch.randn(2, 5, 3, requires_grad=True)
    with use(kernel):
        attended = attend(x, x, x, SCORES["dot"]())
    assert not calls
    first = attended.weights
    assert attended.weights is first
    assert len(calls) == 1
    assert_close(first, torch.softmax(x @ x.mT, -1))
    assert gradients(first, x)[0].any()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("changed", ["queries", "keys", "parameters"])
def test_weights_are_refused_after_a_change(score, changed):
    made = SCORES[score](3, 3, length=6)
    queries, keys, values = torch.randn(5, 3), torch.randn(6, 3), torch.randn(6, 2)
    attended = attend(queries, keys, values, made)
    with torch.no_grad():
        for x in {"queries": [queries], "keys": [keys]}.get(changed, made.parameters()):
            x += 1
    if changed == "parameters" and not list(made.parameters()):
        assert attended.weights.shape == (5, 6)
        return
    with pytest.raises(RegardError, match=r"read \.weights before the next step"):
        _ = attended.weights


@pytest.mark.parametrize("changed", ["query_positions", "key_positions", "buffer"])
def test_weights_are_refused_after_a_change_of_positions_or_buffers(changed):
    class Shifted(SCORES["scaled-dot"]):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.ones(()))

    x, score = torch.randn(5, 3), Shifted()
    positions = {"query_positions": torch.arange(5), "key_positions": torch.arange(5)}
    attended = attend(x, x, x, score, causal(), **positions)
    {**positions, "buffer": score.shift}[changed].add_(1)
    with pytest.raises(RegardError, match=r"read \.weights before the next step"):
        _ = attended.weights


def test_what_is_done_to_the_tensors_of_a_mask_later_does_not_change_a_call():
    x, valid, table = torch.randn(2, 4, 3), torch.tensor([4, 2]), torch.ones(4, 4).tril().bool()
    for mask, tensor in ((lengths(valid), valid), (dense(table), table)):
        attended = attend(x, x, x, SCORES["dot"](), mask)
        tensor.fill_(1)
        assert_close(attended.weights @ x, attended.output)


def test_weights_read_before_a_change_stay():
    x = torch.randn(5, 3)
    attended = attend(x, x, x, SCORES["dot"]())
    before = attended.weights.clone()
    x += 1
    assert torch.equal(attended.weights, before)


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(2, 5, 3)
        attended = attend(x, x, x, SCORES["dot"](), causal())
        assert_close(attended.weights @ x, attended.output)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("score", ["scaled-dot", "additive", "gaussian"])
def test_a_cache_may_hold_anything_where_no_query_looks(score, fixed):
    queries, keys, values = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    mask, made = lengths([5, 3]), SCORES[score](4, 4)
    wanted = attend(queries, keys, values, made, mask).output
    keys[1, 3:], values[1, 3:] = math.nan, math.inf
    cache = KeyValueCache(fixed=fixed)
    found = attend(queries, keys, values, made, mask, cache=cache)
    assert_close(found.output, wanted)
    assert_close(found.weights.sum(-1).float(), torch.ones(2, 3))
    none = keys[:, :0], values[:, :0]
    assert_close(attend(queries[:, :1], *none, made, mask, cache=cache).output, wanted[:, :1])


def test_a_nan_in_a_cache_reaches_those_who_see_it_alone():
    x, cache = torch.randn(1, 6, 4), KeyValueCache()
    x[0, 3] = math.nan
    score = SCORES["scaled-dot"]()
    near = window(1) & causal()
    steps = [
        attend(part, part, part, score, near, cache=cache).output
        for part in x.split([2, 1, 2, 1], 1)
    ]
    seen = torch.cat(steps, 1).isnan().any(-1)
    assert seen.tolist() == [[False, False, False, True, True, False]]


@pytest.mark.parametrize("far", [0.0, 100.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_of_gaussian_scores_is_the_full_pass_far_from_zero(far, dtype):
    x = (torch.randn(1, 6, 4) + far).to(dtype)
    score, cache = SCORES["gaussian"](), KeyValueCache()
    whole = attend(x, x, x - far, score, causal()).output
    parts = x.split([2, 1, 3], 1)
    steps = [attend(p, p, p - far, score, causal(), cache=cache).output for p in parts]
    assert_close(torch.cat(steps, 1), whole)
    assert all(step.dtype == dtype for step in steps)


def test_autocast_does_not_round_differences_of_squares():
    x = torch.randn(2, 40, 8)
    score = SCORES["gaussian"](inverse_width=3.0)
    wanted = attend(x, x, x, score).output
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(x, x, x, score).output
        rounded = attend(x, x, x, SCORES["dot"]()).output
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert (rounded - attend(x, x, x, SCORES["dot"]()).output).abs().max() > 1e-4, "others are"


@pytest.mark.parametrize("score", SCORES)
def test_weights_can_be_asked_for_after_autocast(score):
    x, made = torch.randn(5, 4), SCORES[score](4, 4, length=5)
    with torch.autocast("cpu", torch.bfloat16):
        inside = attend(x, x, x, made).weights
        attended = attend(x, x, x, made)
    assert_close(attended.weights, inside)
    assert attended.summary(2).indices.shape == (5, 2)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda x: attend(x, x, x, SCORES["dot"](), normalize=None), "the name of one, not None"),
        (lambda x: attend(x[0], x, x, SCORES["dot"]()), r"\(\*batch, rows, width\), not \(3,\)"),
        (lambda x: dense(torch.tensor([True, False])), r"not \(2,\); add \[None\]"),
        (lambda x: MultiHeadAttention(8, 0), "at least 1, not width=8 and heads=0"),
    ],
)
def test_mistakes_in_a_call_are_told_in_a_line(asked, says):
    with pytest.raises(RegardError, match=says):
        asked(torch.randn(5, 3))


def test_a_kernel_that_is_asked_for_and_not_taken_is_told():
    x = torch.randn(5, 3)
    with use("fused"), pytest.warns(KernelNotTaken, match="the score is not an inner"):
        attend(x, x, x, SCORES["additive"](3, 3))
    with use("fused"), warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(x, x, x, SCORES["dot"]())
        attend(x[:0], x, x, SCORES["additive"](3, 3))


def test_a_cache_gives_what_the_full_pass_gives():
    queries, keys, values = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    score, cache = SCORES["dot"](), KeyValueCache()
    first = attend(queries[:, :2], keys[:, :2], values[:, :2], score, causal(), cache=cache)
    before = first.weights
    last = attend(queries[:, 2:], keys[:, 2:], values[:, 2:], score, causal(), cache=cache)
    full = attend(queries, keys, values, score, causal())
    assert_close(torch.cat([first.output, last.output], 1), full.output)
    assert_close(last.weights, full.weights[:, 2:])
    assert before.shape == (2, 2, 2)


def test_a_step_behind_leaves_earlier_weights_readable():
    x, cache = torch.randn(1, 4, 3), KeyValueCache()
    steps = [
        attend(x[:, i : i + 1], *[x[:, i : i + 1]] * 2, SCORES["dot"](), cache=cache)
        for i in range(4)
    ]
    full = attend(x, x, x, SCORES["dot"](), causal()).weights
    for i, step in enumerate(steps):
        assert_close(step.weights[0, 0], full[0, i, : i + 1])


def test_second_derivatives():
    x = torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)
    score = SCORES["additive"](2, 2).double()
    assert torch.autograd.gradgradcheck(lambda x: attend(x, x, x, score, causal()).output, x)


@pytest.mark.parametrize("score", SCORES)
def test_sixteen_bits(score):
    given = torch.randn(2, 2, 9, 4).bfloat16()
    made = SCORES[score](4, 4, length=9).bfloat16()
    output = attend(given, given, given, made, causal()).output
    assert output.dtype == torch.bfloat16
    double = attend(*[given.double()] * 3, made.double(), causal()).output
    assert_close(output.double(), double, atol=0.05, rtol=0.05)


def test_errors():
    x, score = torch.ones(2, 3, 4), SCORES["dot"]()
    with pytest.raises(RegardError, match="no normalizer is called 'sofmax'; did you mean softmax"):
        attend(x, x, x, score, normalize="sofmax")
    with pytest.raises(RegardError, match="dropout must be at least 0 and below 1, not 1"):
        attend(x, x, x, score, dropout=1.0)
    with pytest.raises(RegardError, match="do not broadcast"):
        attend(x, torch.ones(3, 5, 4), torch.ones(3, 5, 4), score)
    with pytest.raises(
        RegardError, match=r"with 3 heads, queries must be \(\*batch, 3, n, width\)"
    ):
        attend(x, x, x, SCORES["dot"](heads=3))
    three = torch.ones(1, 3, 5, 4)
    with pytest.raises(RegardError, match="3 query heads cannot share 2 key heads"):
        attend(three, three[:, :2], three[:, :2], SCORES["dot"](heads=3))


def test_a_mask_per_head_with_grouped_keys():
    allowed = torch.ones(2, 4, 3, 5, dtype=torch.bool)
    allowed[..., 4] = False
    allowed[0, 1, :, 2] = False
    mask = Mask(dense(allowed).predicate, over_heads=True)
    queries, keys = torch.randn(2, 4, 3, 6), torch.randn(2, 2, 5, 6)
    clean = attend(queries, keys, keys, SCORES["dot"](heads=4), mask).output
    bad = keys.clone()
    bad[..., 4, :] = torch.nan
    bad[0, 0, 2] = torch.nan  # seen by head 0, hidden from head 1 of the same group
    output = attend(queries, bad, bad, SCORES["dot"](heads=4), mask).output
    assert output[0, 0].isnan().all()
    output[0, 0] = clean[0, 0]
    assert_close(output, clean)


def test_dense_mask_over_heads_hides_from_one_head_alone():
    x = torch.randn(2, 3, 4, 5)
    allowed = torch.ones(2, 3, 4, 4, dtype=torch.bool)
    allowed[1, 2, :, 3] = False
    mask = Mask(dense(allowed).predicate, over_heads=True)
    weights = attend(x, x, x, SCORES["dot"](heads=3), mask).weights
    assert (weights[1, 2, :, 3] == 0).all()
    assert (weights[1, :2, :, 3] > 0).all()


@pytest.mark.parametrize("score", ["gaussian", "epanechnikov"])
def test_a_nan_in_one_text_is_not_in_another_where_differences_matter_alone(score):
    x, values = torch.randn(2, 5, 3), torch.ones(2, 5, 1)
    expected = attend(x, x, values, SCORES[score](3, 3)).output[1]
    bad = x.clone()
    bad[0, 0] = torch.nan
    output = attend(bad, bad, values, SCORES[score](3, 3)).output
    assert_close(output[1], expected)
    assert output[0].isnan().all()


class FromPlaces(Score):
    """A score that looks at positions alone, one table for every text."""

    def compare(self, queries, keys, positions):
        rows, columns = positions
        return -(columns[..., None, :] - rows[..., :, None]).abs().double() / 3


def test_a_score_of_positions_alone_is_each_texts_own():
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    found = {}
    for kernel in ("exact", "tiled"):
        torch.manual_seed(5)
        with use(kernel):
            attended = attend(x, x, x, FromPlaces(), dropout=0.5)
        found[kernel] = attended.output
        assert attended.weights.shape == (3, 7, 7)
    assert_close(found["exact"], found["tiled"])


@pytest.mark.parametrize("kernel", ["exact", "tiled", "fused"])
def test_weights_are_refused_after_a_step_of_a_fused_optimizer(kernel):
    """Such a step counts no version of a parameter."""
    made, x = SCORES["general"](4, 4), torch.randn(1, 5, 4)
    with use(kernel):
        given = attend(x, x, x, made)
    given.output.sum().backward()
    torch.optim.AdamW(made.parameters(), lr=0.1, fused=True).step()
    with pytest.raises(RegardError, match="have changed since"):
        _ = given.weights


def test_a_checksum_finds_changes_of_a_large_parameter_that_cancel():
    table = torch.randn(40_000)
    before = attended_module.bits_of(table)
    for first, second in ((5, 6), (5, 4101), (5, 4102), (39_998, 39_999)):  # of a row, a column
        changed = table.clone()
        changed[[first, second]] = changed[[second, first]]
        assert not torch.equal(attended_module.bits_of(changed), before)
    assert torch.equal(attended_module.bits_of(table.clone()), before)


def test_inputs_that_need_gradients_cost_no_more_than_others(monkeypatch):
    """A checksum of queries, keys and values takes longer than attention among 128 words."""
    summed = []
    given = attended_module.bits_of
    monkeypatch.setattr(attended_module, "bits_of", lambda x: summed.append(x.shape) or given(x))
    x, score = torch.randn(2, 5, 4, requires_grad=True), SCORES["general"](4, 4)
    attend(x, x, x, score)
    assert summed == [each.shape for each in score.parameters()]


@pytest.mark.parametrize("kernel", ["exact", "tiled", "fused"])
def test_weights_that_were_looked_at_without_gradient_have_one_later(kernel):
    x = torch.randn(1, 5, 4, requires_grad=True)
    with use(kernel):
        given = attend(x, x, x, SCORES["dot"]())
    with torch.no_grad():
        seen = given.weights
    assert_close(given.weights.detach(), seen.detach())
    (found,) = torch.autograd.grad(given.weights.square().sum(), [x])
    assert found.abs().sum() > 0


def test_a_score_of_other_heads_is_refused():
    x = torch.randn(1, 4, 5, 4)
    with pytest.raises(RegardError, match="has heads=2, but the call has heads=4"):
        attend(x, x, x, SCORES["general"](4, 4, heads=2), heads=4)
    with pytest.raises(RegardError, match="cannot share 0 key heads"):
        attend(x, x[:, :0], x[:, :0], SCORES["general"](4, 4, heads=4))


@pytest.mark.parametrize("score", SCORES)
def test_floating_point_operations_are_counted_by_tiles(score):
    made, x = SCORES[score](4, 4, length=50), torch.randn(1, 50, 4, requires_grad=True)
    with FlopCounterMode(display=False) as counter, use("tiled"):
        attend(x, x, x, made).output.sum().backward()
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("name", ["dot", "scaled-dot", "cosine"])
def test_a_score_without_parameters_goes_by_its_name(name):
    queries, keys, values = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    wanted = attend(queries, keys, values, SCORES[name](4, 4)).output
    assert_close(attend(queries, keys, values, name).output, wanted)
    if name == "scaled-dot":
        assert_close(attend(queries, keys, values).output, wanted)


@pytest.mark.parametrize(
    ("score", "says"),
    [
        ("general", r"has parameters.*make_score\('general', query_width=4, key_width=4\)"),
        ("gaussian", "has parameters"),
        ("scaled_dot", "did you mean scaled-dot"),
    ],
)
def test_a_score_that_no_name_stands_for(score, says):
    x = torch.randn(2, 3, 4)
    with pytest.raises(RegardError, match=says):
        attend(x, x, x, score)


def test_what_is_no_tensor_is_told_with_the_remedy():
    """In a process of its own: here types are checked at every call."""
    code = """
import torch, regard
x = torch.zeros(2, 3, 4)
for given in ((x.tolist(), x, x), (x, x, x.numpy()), (x, x, x, None)):
    try:
        regard.attend(*given)
    except regard.RegardError as error:
        print(error)
layer = regard.MultiHeadAttention(4, 2)
for call in (
    lambda: regard.attend(x, x, x, query_positions=[0, 1, 2]),
    lambda: layer(x.tolist()),
    lambda: layer(x, x.numpy()),
    lambda: layer(None),
):
    try:
        call()
    except regard.RegardError as error:
        print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [
        "queries must be a tensor, not a list; pass torch.as_tensor(queries)",
        "values must be a tensor, not a ndarray; pass torch.as_tensor(values)",
        "score must be a name or a Score, as in make_score('dot'), not None",
        "query_positions must be a tensor, not a list; pass torch.as_tensor(query_positions)",
        "queries must be a tensor, not a list; pass torch.as_tensor(queries)",
        "memory must be a tensor, not a ndarray; pass torch.as_tensor(memory)",
        "queries must be a tensor, not None",
    ]


def test_weights_of_a_call_whose_values_alone_are_learned_are_computed_once():
    x, values = torch.randn(1, 5, 4), torch.nn.Parameter(torch.randn(1, 5, 4))
    given = attend(x, x, values, "dot")
    first = given.weights
    with torch.no_grad():
        values.add_(1)
    assert given.weights is first


def test_a_step_that_leaves_a_sum_alone_is_seen_and_one_after_a_call_without_gradient():
    made = SCORES["general"](2, 2)
    x = torch.randn(1, 3, 2)
    for context in (torch.enable_grad, torch.no_grad):
        with context():
            given = attend(x, x, x, made)
        with torch.no_grad():
            made.weight.fill_(1.5)
            step = torch.tensor([[0.25, -0.25], [0.0, 0.0]])
            given = attend(x, x, x, made)
        made.weight.data += step
        with pytest.raises(RegardError, match="have changed since"):
            _ = given.weights


@pytest.mark.parametrize("name", ["dot", "cosine"])
def test_vectors_of_no_numbers_are_all_alike(name):
    values = torch.randn(1, 3, 2)
    found = attend(torch.randn(1, 2, 0), torch.randn(1, 3, 0), values, name).output
    assert_close(found, values.mean(-2, keepdim=True).expand(1, 2, 2))


def test_numbers_without_axes_are_refused():
    with pytest.raises(RegardError, match=r"must be \(\*batch, rows, width\), not \(\)"):
        attend(torch.tensor(1.0), torch.zeros(2, 2), torch.zeros(2, 2))
