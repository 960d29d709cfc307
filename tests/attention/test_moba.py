"""Block-routed attention (MoBA) against a loop over pairs, and what it reads, keeps and skips."""

import pickle

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.record import record
from regard.attention import (
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    Packing,
    attend,
    causal,
    dense,
    documents,
    lengths,
    named_mechanism,
    prefix,
    use,
    window,
)
from regard.attention.kernels.strips import Sizes, strips_of
from regard.attention.mask_context import MaskContext
from regard.attention.mechanisms.moba import BlockAttention, Choice, chosen_blocks
from regard.attention.positions.rotary import rotate
from regard.core.errors import RegardError
from regard.nn.layers.beam_ancestry import BeamAncestry
from regard.nn.models.settings import T5Settings
from regard.nn.models.t5 import T5
from tests.attention.parts import drawn, redrawn


def made(**settings: object) -> BlockAttention:
    torch.manual_seed(0)
    return redrawn(BlockAttention(12, 3, **{"blocks": (3, 2), **settings}).double().eval())


def loop(q, k, v, visible, at, size, top, own):
    """Compute the heads (batch, heads, n, width), one query after another."""
    shared, rows = q.shape[1] // k.shape[1], []
    asked, held = (x.div(size, rounding_mode="floor").tolist() for x in at)
    for b, h, i in torch.cartesian_prod(*(torch.arange(x) for x in q.shape[:3])).tolist():
        keys, values = k[b, h // shared], v[b, h // shared]
        seen = [j for j in range(len(keys)) if visible[b, i, j]]
        affinity = {}
        for block in {held[j] for j in seen}:
            mean = sum(keys[j] for j in seen if held[j] == block) / sum(
                held[j] == block for j in seen
            )
            affinity[block] = float((q[b, h, i] @ mean).detach())
        if own and asked[i] in affinity:
            affinity[asked[i]] = torch.inf
        best = sorted(affinity, key=affinity.__getitem__, reverse=True)[:top]
        reads = [j for j in seen if held[j] in best]
        if not reads:
            rows.append(torch.zeros(v.shape[-1], dtype=v.dtype))
            continue
        scores = torch.stack([q[b, h, i] @ keys[j] / len(q[b, h, i]) ** 0.5 for j in reads])
        rows.append(scores.softmax(0) @ torch.stack([values[j] for j in reads]))
    return torch.stack(rows).unflatten(0, q.shape[:3])


MASKS = {
    "encoder": None,
    "causal": causal(),
    "padded": lengths([11, 4]),
    "causal, padded": causal() & lengths([11, 4]),
    "window": causal() & window(4),
    "prefix": causal() | prefix(5),
    "documents": documents(torch.tensor([0] * 5 + [1] * 6)),
    "nothing": lengths([11, 0]),
}


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("settings", [{}, {"key_value_heads": 1, "position": "rotary"}])
def test_it_is_the_loop(kind: str, settings: dict[str, object], kernel: str) -> None:
    layer, x, mask = made(**settings), drawn(2, 11, 12).requires_grad_(), MASKS[kind]
    at = torch.arange(11)
    visible = torch.ones(2, 11, 11, dtype=torch.bool)
    if mask is not None:
        visible = mask.allows(at, at).expand(2, 11, 11)
    with use(kernel):
        found = layer(x, mask=mask)
    q, k, v = layer._project(x, 0, 3)
    if "position" in settings:
        q, k = rotate(q, at), rotate(k, at)
    heads = loop(q, k, v, visible, (at, at), 3, 2, own=True)
    expected = layer.output(heads.transpose(1, 2).flatten(2))
    assert_close(found, expected)
    of, slope = [x, *layer.parameters()], drawn(2, 11, 12, seed=1)
    assert_close(torch.autograd.grad(found, of, slope), torch.autograd.grad(expected, of, slope))


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_a_memory_has_no_block_of_the_query(kernel: str) -> None:
    layer, x, memory = made(), drawn(2, 5, 12).requires_grad_(), drawn(2, 10, 12, seed=1)
    at = torch.arange(5, 10), torch.arange(10)
    with use(kernel):
        found = layer(x, memory, lengths([10, 7]))
    (q,), (k, v) = layer._project(x, 0, 1), layer._project(memory, 1, 3)
    visible = (torch.arange(10) < torch.tensor([10, 7])[:, None])[:, None].expand(2, 5, 10)
    heads = loop(q, k, v, visible, at, 3, 2, own=False)
    expected = layer.output(heads.transpose(1, 2).flatten(2))
    assert_close(found, expected)
    of, slope = [x, *layer.parameters()], drawn(2, 5, 12, seed=2)
    assert_close(torch.autograd.grad(found, of, slope), torch.autograd.grad(expected, of, slope))
    cache = KeyValueCache(fixed=True)
    steps = [layer(part, memory, lengths([10, 7]), cache=cache) for part in x.split(1, 1)]
    assert_close(torch.cat(steps, 1), expected)


@pytest.mark.parametrize("score", ["additive", "gaussian", "soft-cap-5", "synthesizer", "cosine"])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_every_score_in_strips_is_the_table(score: str, normalize: str) -> None:
    layer = made(score=score, normalize=normalize, length=40, dropout=0.3).train()
    x = drawn(2, 40, 12).requires_grad_()
    results = []
    for kernel in ("exact", "tiled"):
        torch.manual_seed(3)
        with use(kernel):
            y = layer(x, mask=causal() & lengths([40, 13]))
        slope = drawn(2, 40, 12, seed=1)
        of = [x, *layer.parameters()]
        results.append([y, *torch.autograd.grad(y, of, slope, allow_unused=True)])
    assert_close(*results)
    assert not torch.allclose(results[0][0], layer.eval()(x, mask=causal()))


@pytest.mark.parametrize("mask", [None, causal(), causal() & lengths([8, 5])])
def test_as_many_blocks_as_there_are_is_full_attention(mask: Mask | None) -> None:
    layer, x = made(blocks=(3, 3)), drawn(2, 8, 12)
    full = MultiHeadAttention(12, 3).double()
    full.load_state_dict(layer.state_dict())
    assert_close(layer(x, mask=mask), full(x, mask=mask))
    fewer = made(blocks=(3, 2))
    assert not torch.allclose(fewer(x, mask=mask)[0], full(x, mask=mask)[0])


@pytest.mark.parametrize("position", ["none", "rotary", "alibi", "t5-bias"])
@pytest.mark.parametrize("score", ["scaled-dot", "gaussian", "additive", "soft-cap-5"])
def test_a_cache_is_the_full_pass(position: str, score: str) -> None:
    layer, x, cache = made(position=position, score=score), drawn(2, 13, 12), KeyValueCache()
    with torch.no_grad():
        steps = [layer(part, mask=causal(), cache=cache) for part in x.split([4, 1, 3, 1, 4], 1)]
        assert_close(torch.cat(steps, 1), layer(x, mask=causal()))
        last = layer(x[:, :1], cache=cache)
        cache.keep(torch.tensor([1]))
        assert_close(last[1:], layer(torch.cat([x, x[:, :1]], 1)[1:], mask=causal())[:, -1:])
        more = layer(x[1:, 1:2], mask=causal(), cache=cache)
        whole = torch.cat([x, x[:, :2]], 1)[1:]
        assert_close(more, layer(whole, mask=causal())[:, -1:])


def test_padding_on_either_side_changes_nothing() -> None:
    layer, x = made(position="rotary"), drawn(1, 10, 12)
    alone = layer(x, mask=causal())
    bad = torch.full((1, 5, 12), torch.nan, dtype=torch.float64)
    for left in (0, 2, 5):
        wide = torch.cat([bad[:, :left], x, bad[:, left:]], 1)
        at = (torch.arange(15) - left)[None]
        mask = causal() & lengths([10])
        found = layer(wide, mask=mask, positions=at)
        assert_close(found[:, left : left + 10], alone)
        cache = KeyValueCache()
        first = left + 3
        steps = [
            layer(wide[:, i:j], mask=mask, positions=at[:, i:j], cache=cache)
            for i, j in ((0, first), (first, first + 6), (first + 6, 15))
        ]
        assert_close(torch.cat(steps, 1)[:, left : left + 10], alone)


def test_texts_of_one_batch_stand_at_their_own_positions() -> None:
    layer, x = made(position="rotary"), drawn(2, 10, 12)
    at = torch.stack([torch.arange(10) - 2, torch.arange(10) + 40])
    found = layer(x, mask=causal(), positions=at)
    for row in range(2):
        assert_close(found[row], layer(x[row], mask=causal(), positions=at[row]))
    assert not torch.allclose(found[0], layer(x, mask=causal())[0])


def test_a_hidden_key_has_no_influence_and_a_visible_nan_is_not_left_out() -> None:
    layer, x = made(), drawn(1, 12, 12).requires_grad_()
    hidden = torch.ones(12, dtype=torch.bool)
    hidden[[1, 6, 7, 8]] = False  # block 2 has no visible key
    mask = dense(hidden[None])
    expected = layer(x, mask=mask)
    changed = x.detach().clone()
    changed[:, ~hidden] = torch.nan
    found = layer(changed.requires_grad_(), mask=mask)
    assert_close(found[:, hidden], expected[:, hidden])
    found[:, hidden].sum().backward()
    assert changed.grad is not None
    assert changed.grad.isfinite().all()
    with torch.no_grad():
        changed[:, 4] = torch.nan
        reached = layer(changed, mask=causal() & mask)[0].isnan().any(-1)
    assert torch.equal(reached, torch.arange(12) >= 4)


def test_rows_without_padding() -> None:
    layer, x, sizes = made(position="rotary"), drawn(2, 10, 12), torch.tensor([10, 5])
    rows = Packing(sizes, 10)
    found = layer(rows.pack(x), mask=causal() & lengths(sizes), packing=rows)
    assert_close(found, rows.pack(layer(x, mask=causal() & lengths(sizes))))


def test_t5_writes_step_by_step_what_it_reads_at_once() -> None:
    torch.manual_seed(0)
    settings = T5Settings(width=12, heads=3, layers=1, feedforward=16, attention="moba-2-2",
                          dropout=0.0)  # fmt: skip
    model = redrawn(T5(settings, 11).double().eval())
    source, sizes = torch.randint(1, 11, (2, 9)), torch.tensor([9, 4])
    target = torch.randint(1, 11, (2, 8))
    whole = model.to_logits(model(source, sizes, target))
    writing = model.start(source, sizes)
    steps = [writing.step(target[:, i : i + 1]) for i in range(8)]
    assert_close(torch.cat(steps, 1), whole)
    full = T5(T5Settings(**{**settings.model_dump(), "attention": "multi-head"}), 11)
    full.double().eval().load_state_dict(model.state_dict())
    assert not torch.allclose(whole, full.to_logits(full(source, sizes, target)))


def test_documents_in_one_row_are_each_alone() -> None:
    layer, x = made(position="rotary"), drawn(1, 17, 12)
    ids = torch.tensor([0] * 7 + [1] * 10)
    at = torch.cat([torch.arange(7), torch.arange(10)])
    found = layer(x, mask=causal() & documents(ids), positions=at)
    for part in (x[:, :7], x[:, 7:]):
        first = 0 if part.shape[1] == 7 else 7
        assert_close(found[:, first : first + part.shape[1]], layer(part, mask=causal()))


def test_beams_choose_by_the_means_of_their_ancestors() -> None:
    layer, read, cache = made(blocks=(2, 2)), drawn(1, 5, 12), KeyValueCache()
    layer(read, mask=causal(), positions=torch.arange(5)[None], cache=cache)
    ancestry = BeamAncestry(torch.ones(1, 5, dtype=torch.bool))
    parents = [None, [[1, 0, 0]], [[2, 2, 1]], [[0, 1, 2]]]
    paths = [read[0].clone() for _ in range(3)]
    for step, parent in enumerate(parents):
        rows = drawn(1, 3, 12, seed=step + 1)
        of = None if parent is None else torch.tensor(parent)
        mask = ancestry.step(torch.zeros(1, 3, dtype=torch.long), of)
        at = torch.full((1, 3), 5 + step)
        found = layer(rows, mask=mask, positions=at, cache=cache)
        old = paths if parent is None else [paths[i] for i in parent[0]]
        paths = [torch.cat([path, rows[0, i : i + 1]]) for i, path in enumerate(old)]
        for i, path in enumerate(paths):
            assert_close(found[0, i], layer(path, mask=causal())[-1])


def test_recordings_show_the_weights_in_effect() -> None:
    layer, x = made(blocks=(2, 2)), drawn(1, 12, 12)
    with torch.no_grad(), record(layer) as recording:
        layer(x, mask=causal())
    ((_, attended),) = recording.layers
    weights = attended.weights
    assert_close(weights.sum(-1), torch.ones(1, 3, 12, dtype=torch.float64))
    blocks = weights.unflatten(-1, (6, 2)).sum(-1) > 0
    own = torch.arange(12) // 2
    assert blocks[..., torch.arange(12), own].all()
    assert torch.equal(blocks.sum(-1), (own + 1).clamp(max=2).expand(1, 3, 12))
    assert torch.equal(pickle.loads(pickle.dumps(attended)).weights, weights)
    top = attended.summary(4)
    assert_close(top.dense(), weights, check_dtype=False)


def test_equal_blocks_are_chosen_together() -> None:
    layer, x = made(blocks=(2, 2)), torch.zeros(1, 8, 12, dtype=torch.float64)
    with torch.no_grad(), record(layer) as recording:
        layer(x)
    assert torch.equal(
        recording.layers[0][1].weights, torch.full((1, 3, 8, 8), 1 / 8, dtype=torch.float64)
    )


def test_half_precision_chooses_in_single() -> None:
    q, k, at = (
        drawn(2, 3, 60, 8).bfloat16(),
        drawn(2, 3, 60, 8, seed=1).bfloat16(),
        torch.arange(60),
    )
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (
            Choice.of(x, y, (at, at), causal(), 4, True).best(3).allows(at, at)
            for x, y in ((q, k), (q.double(), k.double()))
        )
    assert torch.equal(found, expected)
    layer, x = made().float(), drawn(2, 40, 12).float()
    exact = layer(x, mask=causal())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x, mask=causal())
    assert (rounded - exact).abs().median() < 0.02 * exact.abs().median()


def test_blocks_that_no_query_chose_are_not_computed() -> None:
    n, size = 1024, 64
    table = torch.zeros(2, 2, n, n // size, dtype=torch.bool)
    own = torch.arange(n) // size
    table[:, :, torch.arange(n), own] = True
    table[1, 0, 512:640, 1] = True  # one head of one text also chose block 1
    mask = chosen_blocks(table, own)
    at = torch.arange(n)
    for joined in (mask, mask & causal()):
        context = MaskContext(joined, "pairs", at, at, 2, torch.Size([2, 2, n, n]))
        read = {}
        for strip in strips_of(context, Sizes(rows=128, columns=64)):
            columns = torch.arange(n)[strip.tile.columns]
            read.setdefault(strip.tile.rows.start // 128, set()).update(columns.tolist())
        expected = {i: set(range(128 * i, 128 * (i + 1))) for i in range(8)}
        expected[4] |= set(range(64, 128))
        assert read == expected
    x = drawn(2, 2, n, 4)
    with use("tiled"):
        tiled = attend(x, x, x, mask=mask, heads=2).output
    with use("exact"):
        assert_close(tiled, attend(x, x, x, mask=mask, heads=2).output)


def test_places_of_each_text() -> None:
    table = torch.tensor([[[[True, False]]], [[[False, True]]]])
    places = torch.tensor([[0, 0, 1], [1, 0, 1]])
    mask = chosen_blocks(table, places)
    allowed = mask.allows(torch.arange(1), torch.arange(3))
    assert allowed[:, 0, 0].int().tolist() == [[1, 1, 0], [1, 0, 1]]
    assert pickle.loads(pickle.dumps(mask)).allows(torch.arange(1), torch.arange(3)).equal(allowed)


@pytest.mark.parametrize("mask", [None, causal() & lengths([7]), window(2)])
def test_transforms_and_the_meta_device(mask: Mask | None) -> None:
    layer, x = made(position="rotary"), drawn(2, 11, 12)
    slopes = torch.func.vmap(torch.func.grad(lambda y: layer(y[None], mask=mask).sum()))(x)
    y = x.clone().requires_grad_()
    layer(y, mask=mask).sum().backward()
    assert_close(slopes, y.grad)
    with torch.device("meta"):
        assert BlockAttention(12, 3)(torch.zeros(2, 40, 12), mask=mask).shape == (2, 40, 12)


def test_names_with_numbers() -> None:
    assert named_mechanism("moba")(8, 2).blocks == (16, 3)
    assert named_mechanism("moba-64-5")(8, 2).blocks == (64, 5)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("moba-16", {}, "has other numbers than its part takes"),
        ("moba-0-3", {}, "integers of at least 1, not 0 and 3"),
        ("moba-2.5-3", {}, "not 2.5 and 3"),
        ("moba", {"compress": "linformer", "length": 9}, "which compress mixes; remove compress"),
        ("latent-3", {}, "it takes none"),
    ],
)
def test_what_it_does_not_take(name: str, settings: dict[str, object], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        named_mechanism(name)(8, 2, **settings)
