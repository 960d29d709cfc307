"""The cache itself: room, tuples, what it refuses."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    MECHANISMS,
    SCORES,
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    attend,
    causal,
    lengths,
    make_score,
    window,
)
from regard.core.errors import RegardError


def test_room_doubles_and_rows_stay():
    cache, seen, rooms = KeyValueCache(), [], set()
    for i in range(20):
        keys = torch.full((2, 1, 3), float(i), requires_grad=True)
        held = cache.append((keys, -keys), 2 * keys, torch.tensor([i]))
        seen.append(held)
        rooms.add(held[0][0].untyped_storage().data_ptr())
    assert len(cache) == 20
    assert len(rooms) == 6  # 1, 2, 4, 8, 16, 32
    for i, ((keys, minus), values, positions) in enumerate(seen):
        assert keys[1, :, 2].tolist() == list(range(i + 1))
        assert torch.equal(minus, -keys)
        assert torch.equal(values, 2 * keys)
        assert positions.tolist() == list(range(i + 1))
        assert not keys.requires_grad


def test_made_in_inference_mode_used_outside():
    cache = KeyValueCache()
    with torch.inference_mode():
        for i in range(3):  # room for a fourth
            cache.append(torch.ones(1, 1, 3), torch.ones(1, 1, 2), torch.tensor([i]))
    keys, values, _ = cache.append(torch.ones(1, 1, 3), torch.ones(1, 1, 2), torch.tensor([3]))
    assert keys.shape == (1, 4, 3)
    assert values.sum() == 8


def test_another_batch_is_refused():
    cache = KeyValueCache()
    cache.append(torch.ones(2, 1, 3), torch.ones(2, 1, 3), torch.tensor([0]))
    with pytest.raises(RegardError, match=r"has rows of shape \(2, n, 3\), not \(4, n, 3\)"):
        cache.append(torch.ones(4, 1, 3), torch.ones(4, 1, 3), torch.tensor([1]))
    assert len(cache) == 1


def test_finished_rows_leave():
    cache = KeyValueCache()
    for i in range(3):
        keys = torch.tensor([10.0, 20.0, 30.0]).view(3, 1, 1) + i
        shared = torch.full((1, 1, 2), float(i))
        cache.append((keys, shared), -keys, torch.tensor([i]))
    cache.keep(torch.tensor([2, 0]))
    keys = torch.tensor([33.0, 13.0]).view(2, 1, 1)
    (kept, shared), values, positions = cache.append(
        (keys, torch.full((1, 1, 2), 3.0)), -keys, torch.tensor([3])
    )
    assert kept[..., 0].tolist() == [[30, 31, 32, 33], [10, 11, 12, 13]]
    assert shared[0, :, 1].tolist() == [0, 1, 2, 3]
    assert torch.equal(values, -kept)
    assert positions.tolist() == [0, 1, 2, 3]


def test_a_fixed_cache_passes_gradients_to_its_first_keys_and_takes_no_others():
    cache = KeyValueCache(fixed=True)
    first = torch.ones(1, 2, 3, requires_grad=True)
    cache.append(2 * first, 3 * first, torch.arange(2))
    none = torch.empty(1, 0, 3)
    keys, values, positions = cache.append(none, none, torch.arange(0))
    (keys.sum() + values.sum()).backward()
    assert first.grad.unique().tolist() == [5]
    assert positions.tolist() == [0, 1]
    assert len(cache) == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in MECHANISMS),
        *(
            ("multi-head", {"position": name})
            for name in ("rotary", "xpos", "pope", "alibi-signed")
        ),
        *(("multi-head", {"score": f"synthesizer{end}"}) for end in ("", "-factorised-random")),
    ],
)
def test_a_filled_fixed_cache_may_be_given_its_positions_again(name, options):
    torch.manual_seed(0)
    length = {"length": 32} if options else {}
    layer = MECHANISMS[name](8, 2, **length, **options).eval().double()
    queries, memory = (torch.randn(2, n, 8, dtype=torch.float64) for n in (5, 7))
    mask, cache = lengths(torch.tensor([7, 3])), KeyValueCache(fixed=True)
    both = torch.arange(5) + 3, torch.arange(7) * 2
    expected = layer(queries, memory, mask, positions=both)
    for positions in (both, both, (both[0], None)):
        assert_close(layer(queries, memory, mask, positions=positions, cache=cache), expected)


def test_a_fixed_cache_says_the_same_again_whatever_it_is_given():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 7, 8, dtype=torch.float64) for _ in range(3))
    for score, mask in (("rotary", None), ("none", causal()), ("none", window(3))):
        cache = KeyValueCache(fixed=True)
        once = attend(q, k, v, make_score("dot", score), mask, cache=cache)
        again = attend(q, k, v, make_score("dot", score), mask, cache=cache)
        assert_close(again.output, once.output)
        assert_close(again.summary(3).mass, once.summary(3).mass)


@pytest.mark.parametrize("hidden", [torch.inf, torch.nan])
@pytest.mark.parametrize("name", ["additive", "gaussian", "general", "scaled-dot", "layer"])
def test_padding_of_a_fixed_cache_reaches_no_gradient(name: str, hidden: float) -> None:
    """The memory of a translator is projected once, padding included."""
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3, 8), torch.randn(2, 7, 8)
    mask, grads = lengths(torch.tensor([6, 7])), []
    module = MultiHeadAttention(8, 2) if name == "layer" else SCORES[name](8, 8)
    for padding in (0.0, hidden):
        memory = keys.clone()
        memory[0, -1] = padding
        memory.requires_grad_()
        cache = KeyValueCache(fixed=True)
        if name == "layer":
            first = module(queries, memory, mask, cache=cache)
            second = module(2 * queries, memory, mask, cache=cache)
        else:
            first = attend(queries, memory, memory, module, mask, cache=cache).output
            none = memory[:, :0]
            second = attend(2 * queries, none, none, module, mask, cache=cache).output
        module.zero_grad()
        (first.square().sum() + second.square().sum()).backward()
        grads.append([memory.grad, *(p.grad for p in module.parameters())])
    assert_close(*grads)


@pytest.mark.parametrize("name", ["additive", "layer"])
def test_a_nan_of_a_fixed_cache_reaches_a_later_call_that_sees_it(name: str) -> None:
    queries, memory = torch.randn(1, 3, 8), torch.randn(1, 7, 8)
    memory[0, 5] = torch.nan
    module = MultiHeadAttention(8, 2) if name == "layer" else SCORES[name](8, 8)
    cache, outputs = KeyValueCache(fixed=True), []
    for seen in (5, 7):
        mask = lengths(torch.tensor([seen]))
        if name == "layer":
            outputs.append(module(queries, memory, mask, cache=cache))
        else:
            keys = memory if seen == 5 else memory[:, :0]
            outputs.append(attend(queries, keys, keys, module, mask, cache=cache).output)
    assert outputs[0].isfinite().all()
    assert outputs[1].isnan().all()


@pytest.mark.parametrize(("position", "groups"), [("tree-keys", 2), ("disentangled", 1)])
def test_a_nan_of_keys_with_several_parts(position: str, groups: int) -> None:
    score = make_score("scaled-dot", position, 4, 4, heads=2)
    queries, keys, values = torch.randn(1, 2, 3, 4), *torch.randn(2, 1, groups, 3, 4)
    hidden = keys.clone()
    keys[0, 0, 1], hidden[0, 0, 2] = torch.nan, torch.nan
    found = attend(queries, keys, values, score, causal(), heads=2, cache=KeyValueCache()).output
    assert_close(
        found, attend(queries, keys, values, score, causal(), heads=2).output, equal_nan=True
    )
    mask, cache = lengths(torch.tensor([2])), KeyValueCache(fixed=True)
    fixed = attend(queries, hidden, values, score, mask, heads=2, cache=cache).output
    assert_close(fixed, attend(queries, hidden, values, score, mask, heads=2).output)


@pytest.mark.parametrize("hidden", [1e8, torch.inf, torch.nan])
@pytest.mark.parametrize("heads", [None, 2])
def test_padding_before_a_text_is_no_origin_of_gaussian_scores(
    hidden: float, heads: int | None
) -> None:
    """The first keys of a cache may be padding, which holds any number."""
    shape = (2, heads, 6, 4) if heads else (2, 6, 4)
    queries, keys, values = (torch.randn(shape) for _ in range(3))
    made = SCORES["gaussian"](4, 4, heads=heads)
    mask = causal() & Mask(lambda rows, columns: (columns >= 2)[..., None, :])
    wanted = attend(queries, keys, values, made, mask=mask).output
    keys[..., :2, :] = hidden
    cache = KeyValueCache()
    found = [
        attend(
            queries[..., part, :], keys[..., part, :], values[..., part, :], made, mask=mask,
            cache=cache,
        ).output
        for part in (slice(0, 4), slice(4, 5), slice(5, 6))
    ]  # fmt: skip
    assert_close(torch.cat(found, -2), wanted, atol=1e-5, rtol=1e-5)


def test_grouped_keys_with_a_mask_of_each_head_have_an_origin():
    made = SCORES["gaussian"](4, 4, heads=4)
    mask = Mask(lambda rows, columns: torch.ones(4, 3, 3, dtype=torch.bool), over_heads=True)
    queries, keys = torch.randn(1, 4, 3, 4), torch.randn(1, 2, 3, 4)
    wanted = attend(queries, keys, keys, made, mask).output
    found = attend(queries, keys, keys, made, mask, cache=KeyValueCache()).output
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
