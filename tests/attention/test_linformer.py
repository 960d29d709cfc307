"""Linformer against its formula, and what cannot be said of mixed keys."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    SCORES,
    Attention,
    KeyValueCache,
    Linformer,
    Mask,
    MultiHeadAttention,
    attend,
    causal,
    dense,
    documents,
    lengths,
    lengths_per_query,
    make_score,
    named_compress,
    window,
)
from regard.attention.positions.rotary import rotate
from regard.core.errors import RegardError
from tests.attention.parts import KEYLESS, gradients

CONTENT = [name for name in SCORES if name not in KEYLESS]


def given(*, groups=2, keys=7):
    """Queries (3, 2, 5, 6), keys (3, groups, m, 6), values (…, 4), with gradients."""
    made = (
        torch.randn(3, 2, 5, 6, dtype=torch.float64),
        torch.randn(3, groups, keys, 6, dtype=torch.float64),
        torch.randn(3, groups, keys, 4, dtype=torch.float64),
    )
    return tuple(x.requires_grad_() for x in made)


def layer(compress, score="scaled-dot", **options):
    made = make_score(score, "none", 6, 6, heads=2)
    return Attention(made, heads=2, compress=compress, **options).double()


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_formula(share, heads, groups):
    """softmax(Q (E K)ᵀ / √d) F V, a head and an example at a time."""
    compress = Linformer(3, 9, heads=heads, share=share)
    made, (queries, keys, values) = layer(compress), given(groups=groups)
    rows = []
    for i in range(3):
        for head in range(2):
            E = compress.key_projection[head] if heads else compress.key_projection
            F = E
            if not share:
                F = compress.value_projection[head] if heads else compress.value_projection
            group = head if groups == 2 else 0
            few = E[:, :7] @ keys[i, group], F[:, :7] @ values[i, group]
            rows.append((queries[i, head] @ few[0].T / 6**0.5).softmax(-1) @ few[1])
    expected = torch.stack(rows).view(3, 2, 5, 4)
    attended = made(queries, keys, values)
    assert attended.weights.shape == (3, 2, 5, 3)
    assert_close(attended.output, expected, atol=1e-12, rtol=1e-12)
    of = (queries, keys, values, *compress.parameters())
    assert_close(gradients(attended.output, *of), gradients(expected, *of), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("score", CONTENT)
def test_every_score_of_contents(score):
    compress, (queries, keys, values) = Linformer(3, 7, share=False), given()
    made = layer(compress, score)
    expected = attend(queries, *compress(keys, values), made.score)
    attended = made(queries, keys, values)
    assert_close(attended.output, expected.output)
    assert_close(attended.weights, expected.weights)


@pytest.mark.parametrize("junk", [1e3, torch.nan, torch.inf])
def test_padding_changes_nothing(junk):
    compress = Linformer(3, 9, share=False)
    made, (queries, keys, values) = layer(compress), given(keys=9)
    sizes = torch.tensor([7, 2, 5])
    for x in (keys, values):
        for i, size in enumerate(sizes):
            x.data[i, :, size:] = junk
    output = made(queries, keys, values, lengths(sizes)).output
    found = gradients(output, queries, keys, values, *compress.parameters())
    total = [torch.zeros_like(p) for p in compress.parameters()]
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    for i, size in enumerate(sizes):
        # the text alone, cut where it ends
        parts = (queries[i], keys[i, :, :size], values[i, :, :size])
        alone = made(*parts).output
        assert_close(output[i], alone, atol=1e-12, rtol=1e-12)
        more = torch.autograd.grad((alone * weights[i]).sum(), (*parts, *compress.parameters()))
        assert_close(found[0][i], more[0])
        for side in (1, 2):
            assert_close(found[side][i, :, :size], more[side])
            assert (found[side][i, :, size:] == 0).all()
        total = [a + b for a, b in zip(total, more[3:], strict=True)]
    assert_close(found[3:], total)


def test_a_text_without_words_is_zero_and_harmless():
    compress = Linformer(3, 7)
    for normalize in ("softmax", "sigmoid"):
        made, (queries, keys, values) = layer(compress, normalize=normalize), given()
        attended = made(queries, keys, values, lengths([7, 0, 2]))
        assert (attended.output[1] == 0).all()
        assert (attended.weights[1] == 0).all()
        assert attended.weights[0].any()
        found = gradients(attended.output, queries, keys, values, *compress.parameters())
        assert all(gradient.isfinite().all() for gradient in found)
        assert all((gradient[1] == 0).all() for gradient in found[:3])


def test_masks_of_every_form_that_hides_keys_alone():
    compress = Linformer(3, 7)
    made, (queries, keys, values) = layer(compress), given(groups=1)
    hidden = torch.tensor([4, 6])
    expected = keys.detach().clone(), values.detach().clone()
    for x in expected:
        x[..., hidden, :] = 0
    expected = made(queries, *expected).output
    seen = torch.ones(7, dtype=torch.bool).index_fill(0, hidden, False)
    for mask in (
        dense(seen[None]),
        dense(seen[None].expand(3, 1, 7)),
        Mask(lambda rows, columns: seen[columns][..., None, :], kind="keys"),
        ~dense(~seen[None]) & lengths([7, 7, 7]),
        Mask(lambda r, c: seen[c][..., None, :].expand(2, 1, 7), kind="keys", over_heads=True),
    ):
        assert_close(made(queries, keys, values, mask).output, expected)
    # each head its own, where the heads share keys
    each = torch.stack([seen, ~seen])[:, None]
    mask = Mask(lambda rows, columns: each[..., columns], kind="keys", over_heads=True)
    output = made(queries, keys, values, mask).output
    assert_close(output[:, 0], expected[:, 0])
    assert not torch.allclose(output[:, 1], expected[:, 1])


def test_rotary_turns_keys_before_they_are_mixed():
    compress, (queries, keys, values) = Linformer(3, 9), given()
    score = make_score("scaled-dot", "rotary", 6, 6, heads=2)
    made = Attention(score, compress=compress).double()
    few = compress(rotate(keys, torch.arange(7)), values)
    for rows in (None, torch.tensor([4, 0, 2, 1, 3])):
        positions = torch.arange(2, 7) if rows is None else rows
        expected = attend(rotate(queries, positions), *few, score.inner).output
        assert_close(made(queries, keys, values, query_positions=rows).output, expected)


@pytest.mark.parametrize("compress", ["linformer-3", Linformer(3, 8, heads=4, share=False)])
def test_in_a_layer_of_many_heads(compress):
    made = MultiHeadAttention(12, 4, compress=compress, length=8, key_value_heads=2).double()
    x = torch.randn(3, 6, 12, dtype=torch.float64)
    whole = made(x, mask=lengths([6, 4, 1]))
    assert whole.shape == x.shape
    assert_close(whole[1], made(x[1], x[1, :4]))
    bad = x.clone()
    bad[1, 4:] = torch.nan
    made(bad, mask=lengths([6, 4, 1]))[1, :4].sum().backward()
    assert all(p.grad.isfinite().all() for p in made.parameters())
    assert made.attention.compress.key_projection.grad.any()


def test_dropout_in_training_alone():
    made, inputs = layer(Linformer(3, 7), dropout=0.5), given()
    assert not torch.equal(made(*inputs).output, made(*inputs).output)
    made.eval()
    assert torch.equal(made(*inputs).output, made(*inputs).output)


def test_memory_grows_with_the_length_and_not_with_its_square():
    def kept(n):
        made = MultiHeadAttention(8, 2, compress="linformer-4", length=n)
        sizes = []

        def pack(x):
            sizes.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            made(torch.randn(1, n, 8), mask=lengths([n - 1]))
        return max(sizes)

    assert kept(4000) <= 2 * kept(2000) <= 100 * 4000


def test_by_name():
    assert named_compress("none") is None
    assert named_compress("linformer", 400).rows == 64
    assert named_compress("linformer-5", 400).key_projection.shape == (5, 400)
    assert named_compress("linformer", 9).value_projection is None
    with pytest.raises(
        RegardError, match="no compress is called 'lonformer-5'; did you mean linfor"
    ):
        named_compress("lonformer-5", 9)
    with pytest.raises(RegardError, match="compress='linformer' needs length="):
        MultiHeadAttention(12, 3, compress="linformer")
    with pytest.raises(RegardError, match="to=0 and length=9 must be at least 1"):
        named_compress("linformer-0", 9)


def test_what_mixed_keys_cannot_do_is_refused():
    made, inputs = layer(Linformer(3, 7)), given()
    whole = torch.arange(5 * 7).view(5, 7) % 3 > 0
    for mask in (
        causal(),
        causal() & lengths(5),
        window(2),
        documents(torch.zeros(5).long(), torch.zeros(7).long()),
        lengths_per_query(torch.ones(3, 5).long()),
        dense(whole),
    ):
        with pytest.raises(RegardError, match="compress mixes all keys, including future ones"):
            made(*inputs, mask)
    with pytest.raises(RegardError, match="takes no cache; omit it"):
        made(*inputs, cache=KeyValueCache())
    with pytest.raises(RegardError, match="takes no key_positions; omit it"):
        made(*inputs, key_positions=torch.arange(7))
    with pytest.raises(RegardError, match="has length=7, but the input has 8 keys"):
        made(*given(keys=8))
    for position, name in (
        ("alibi", "Alibi"),
        ("t5-bias", "RelativeBias"),
        ("relative-keys", "RelativeKeys"),
    ):
        with pytest.raises(RegardError, match=f"{name} depends on the position of a key"):
            MultiHeadAttention(12, 3, position=position, compress="linformer", length=9)
    for score in KEYLESS:
        for position in ("none", "rotary"):
            with pytest.raises(RegardError, match="Synthesizer depends on the position of a key"):
                MultiHeadAttention(
                    12, 3, score=score, position=position, compress="linformer", length=9
                )
