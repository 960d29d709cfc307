"""Laws over the whole tables: every score × position × mask × kernel × dtype."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    Attention,
    KeyValueCache,
    MultiHeadAttention,
    attend,
    causal,
    lengths,
    make_score,
)
from regard.attention.kernels.choose import use
from tests.attention.parts import (
    EVERY_PAIR,
    EVERY_SCORE,
    FLAT,
    KEYLESS,
    LENGTH,
    MASKS,
    QUERYLESS,
    WIDTH,
    gradients,
    inputs,
    score_of,
)

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}
every_score = pytest.mark.parametrize("score", EVERY_SCORE)
every_pair = pytest.mark.parametrize(("score", "position"), EVERY_PAIR)
scores_of_keys = pytest.mark.parametrize(  # a synthesizer scores places, not what stands there
    "score", [score for score in EVERY_SCORE if score not in KEYLESS]
)
relative_pairs = pytest.mark.parametrize(  # turned sides leave j − i only in a product of q and k
    ("score", "position"),
    [
        (score, position)
        for score, position in EVERY_PAIR
        if score not in KEYLESS and not (position == "rotary" and score in ("general", "additive"))
    ],
)
every_mask = pytest.mark.parametrize("mask", MASKS)


@every_pair
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_kernels_agree_with_the_exact_path(score, position, dtype):
    made = score_of(score, position, dtype)
    # What is no inner product goes by tiles for "plain" as for "fused".
    kernels = ["exact", "plain", "fused"] if made.acceleration.inner_product else ["exact", "fused"]
    for mask in MASKS.values():
        for n, m in ((5, 7), (6, 6)):
            given = inputs(n, m, dtype, groups=1 if n == 5 else 2)
            of = (*given, *made.parameters())
            seen = []
            for name in kernels:
                with use(name):
                    output = attend(*given, made, mask(n, m)).output
                seen.append([output, *gradients(output, *of)])
            for found in seen[1:]:
                assert_close(found, seen[0], atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@every_pair
def test_gradients_in_float64(score, position):
    made = score_of(score, position)
    of = [x[:2].detach().requires_grad_() for x in inputs(3, 4, groups=1)]

    def f(queries, keys, values, *parameters):
        named = dict(zip(dict(made.named_parameters()), parameters, strict=True))
        layer = Attention(made)
        call = {f"score.{name}": value for name, value in named.items()}
        return torch.func.functional_call(
            layer, call, (queries, keys, values, causal() & lengths([4, 1]))
        ).output

    assert torch.autograd.gradcheck(f, (*of, *made.parameters()), fast_mode=True)


@every_score
@every_mask
def test_weights_are_a_mean_over_what_may_be_seen(score, mask):
    given, made = inputs(5, 7), score_of(score)
    attended = attend(*given, made, MASKS[mask](5, 7))
    weights = attended.weights
    assert weights.shape == (3, 2, 5, 7)
    assert (weights >= 0).all()
    allowed = torch.ones(3, 1, 5, 7, dtype=torch.bool)
    if mask != "none":
        seen = MASKS[mask](5, 7).over_heads().allows(torch.arange(2, 7), torch.arange(7))
        allowed = seen.expand(3, 1, 5, 7)
    assert (weights[~allowed.expand_as(weights)] == 0).all()
    total = allowed.any(-1).expand(3, 2, 5).double()
    assert_close(weights.sum(-1), total)
    assert_close(attended.output, weights @ given[2])


@every_pair
def test_padding_changes_nothing(score, position):
    made, sizes = score_of(score, position), torch.tensor([7, 3, 1])
    queries, keys, values = inputs(5, 7)
    rows = torch.arange(5)
    for junk in (1e3, torch.nan, torch.inf):
        longer = [
            torch.cat([x.detach(), torch.full_like(x[:, :, :2], junk)], -2).requires_grad_()
            for x in (keys, values)
        ]
        for i, size in enumerate(sizes):
            longer[0].data[i, :, size:], longer[1].data[i, :, size:] = junk, -junk
        padded = attend(queries, *longer, made, lengths(sizes), query_positions=rows)
        plain = attend(queries, keys, values, made, lengths(sizes), query_positions=rows)
        assert_close(padded.output, plain.output, atol=1e-12, rtol=1e-12)
        ours = gradients(padded.output, queries, *longer, *made.parameters())
        theirs = gradients(plain.output, queries, keys, values, *made.parameters())
        assert (ours[1][:, :, 7:] == 0).all()
        assert (ours[2][:, :, 7:] == 0).all()
        ours[1:3] = ours[1][:, :, :7], ours[2][:, :, :7]
        assert_close(ours, theirs, atol=1e-11, rtol=1e-11)


@every_pair
@pytest.mark.parametrize("kernel", ["exact", "plain", "fused", "tiled"])
@pytest.mark.parametrize("n", [9, 65])
def test_the_future_does_not_leak(score, position, kernel, n):
    made = score_of(score, position, torch.float32)
    x = torch.randn(3, 2, n, WIDTH)
    changed = x.clone()
    changed[:, :, n // 2 :] = torch.randn_like(changed[:, :, n // 2 :]) * 50
    with use(kernel):
        before = attend(x, x, x, made, causal()).output[:, :, : n // 2]
        after = attend(changed, changed, changed, made, causal()).output[:, :, : n // 2]
    assert torch.equal(before, after)


@every_pair
@pytest.mark.parametrize("key_value_heads", [4, 2, 1])
def test_a_cache_equals_the_full_pass(score, position, key_value_heads):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        layer = MultiHeadAttention(
            12, 4, score=score, position=position, key_value_heads=key_value_heads, length=11
        ).to(dtype)
        x = torch.randn(3, 11, 12, dtype=dtype)
        mask = causal() & lengths([11, 8, 5])
        full, cache = layer(x, mask=mask), KeyValueCache()
        steps = [layer(part, mask=mask, cache=cache) for part in x.split([4, 1, 1, 2, 1, 1, 1], 1)]
        assert len(cache) == 11
        assert_close(torch.cat(steps, 1), full, atol=tolerance, rtol=tolerance)


@scores_of_keys
def test_the_order_of_keys_is_nothing_to_a_score_without_positions(score):
    queries, keys, values = inputs(5, 7)
    made, order = score_of(score), torch.randperm(7)
    shuffled = attend(queries, keys[:, :, order], values[:, :, order], made)
    plain = attend(queries, keys, values, made)
    assert_close(shuffled.output, plain.output)
    assert_close(shuffled.weights, plain.weights[..., order])
    turned = torch.randperm(5)
    assert_close(
        attend(queries[:, :, turned], keys, values, made).output, plain.output[:, :, turned]
    )


@relative_pairs
def test_moving_all_positions_changes_nothing(score, position):
    made, given = score_of(score, position), inputs(5, 7)
    moved = attend(
        *given, made, query_positions=torch.arange(2, 7) + 90, key_positions=torch.arange(7) + 90
    )
    assert_close(moved.output, attend(*given, made).output, atol=1e-9, rtol=1e-9)


@every_score
@pytest.mark.parametrize("kernel", ["exact", "plain", "fused", "tiled"])
def test_rows_that_see_nothing_are_zero_and_harmless(score, kernel):
    made, given = score_of(score), inputs(5, 7)
    with use(kernel):
        attended = attend(*given, made, lengths([7, 0, 2]))
    assert (attended.output[1] == 0).all()
    assert (attended.weights[1] == 0).all()
    unread = {0: score in (*QUERYLESS, *FLAT), 1: score in (*KEYLESS, *FLAT)}
    for i, gradient in enumerate(gradients(attended.output, *given, *made.parameters())):
        assert gradient.isfinite().all()
        if i < 3:
            assert (gradient[1] == 0).all()
            assert gradient[0].any() != unread.get(i, False)


@every_pair
def test_lengths_of_every_kind(score, position):
    made = score_of(score, position, torch.float32)
    sizes = [1, 2, 3, 7, 63, 65, 127, 129]
    for n in [*sizes, 1025] if score == "scaled-dot" else sizes:
        x = torch.randn(1, 2, n, WIDTH, requires_grad=n < 100)
        found = []
        for kernel in ("exact", "fused", "tiled"):
            with use(kernel):
                output = attend(x, x, x, made, causal()).output
            found.append([output, *(gradients(output, x) if n < 100 else ())])
        for other in found[1:]:
            assert_close(other, found[0], atol=1e-4, rtol=1e-4)


@every_pair
def test_state_makes_the_round_trip(score, position):
    one, two = (make_score(score, position, WIDTH, WIDTH, heads=2, length=LENGTH) for _ in range(2))
    two.load_state_dict(one.state_dict())
    given = inputs(5, 7, torch.float32)
    assert torch.equal(attend(*given, one).output, attend(*given, two).output)


@every_score
@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_dropout_keeps_the_mean(score, kernel):
    made, (queries, keys, values) = (
        score_of(score, dtype=torch.float32),
        inputs(2, 5, torch.float32),
    )
    many = [x.detach().repeat(800, 1, 1, 1) for x in (queries, keys, values)]
    with use(kernel):
        dropped = attend(*many, made, dropout=0.25).output.view(800, 3, 2, 2, 5)
    whole = attend(queries, keys, values, made)
    spread = dropped.std(0) / 800**0.5
    assert spread.min() > 0
    assert ((dropped.mean(0) - whole.output).abs() < 5 * spread).all()


@every_score
def test_dropout_leaves_the_weights_whole(score):
    layer = Attention(score_of(score), dropout=0.5)
    given = inputs(5, 7)
    attended = layer(*given)
    assert_close(attended.weights.sum(-1), torch.ones(3, 2, 5, dtype=torch.float64))
    assert not torch.equal(attended.output, attended.weights @ given[2])
    layer.eval()
    assert_close(layer(*given).output, attended.weights @ given[2])


@every_pair
@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_keys_are_keys_repeated(score, position, groups):
    made = make_score(score, position, WIDTH, WIDTH, heads=4, length=7).double()
    queries = torch.randn(3, 4, 5, WIDTH, dtype=torch.float64)
    keys = torch.randn(3, groups, 7, WIDTH, dtype=torch.float64)
    values = torch.randn(3, groups, 7, 5, dtype=torch.float64)
    whole = [x.repeat_interleave(4 // groups, 1) for x in (keys, values)]
    for kernel in ("exact", "plain", "fused", "tiled"):
        with use(kernel):
            ours = attend(queries, keys, values, made, causal())
            theirs = attend(queries, *whole, made, causal())
        assert_close(ours.output, theirs.output)
        assert_close(ours.weights, theirs.weights)


@every_score
def test_mask_batch_is_not_the_heads(score):
    # batch == heads, where a mask on the wrong axis broadcasts without a word
    made = make_score(score, "none", WIDTH, WIDTH, heads=3, length=5).double()
    x = torch.randn(3, 3, 5, WIDTH, dtype=torch.float64)
    sizes = torch.tensor([5, 1, 3])
    whole = attend(x, x, x, made, lengths(sizes) & causal()).output
    for i, size in enumerate(sizes):
        alone = attend(x[i : i + 1], x[i : i + 1], x[i : i + 1], made, lengths(size) & causal())
        assert_close(whole[i : i + 1], alone.output)
