"""Attention by a trained indexer (DSA) against a loop over pairs, and how the indexer learns."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.attention import (
    KeyValueCache,
    Mask,
    MultiHeadAttention,
    Packing,
    causal,
    lengths,
    named_mechanism,
    use,
    window,
)
from regard.attention.mechanisms import moba
from regard.attention.mechanisms.indexed import IndexedAttention
from regard.attention.positions.rotary import Rotary, rotate
from regard.core.errors import RegardError
from tests.attention.parts import drawn, redrawn

SIZES = (1, 63, 64, 65, 129)


def made(**settings: object) -> IndexedAttention:
    torch.manual_seed(0)
    return redrawn(IndexedAttention(12, 3, **{"keys": 3, **settings}).double().eval())


def loop(layer: IndexedAttention, x: Tensor, memory: Tensor, visible: Tensor) -> tuple[Tensor, ...]:
    """The heads (batch, heads, n, width) and −Σ p ln softmax(I) of each query (batch, n)."""
    (q,), (k, v) = layer._project(x, 0, 1), layer._project(memory, 1, 3)
    inner, shared = layer.attention, 3 // k.shape[1]
    flat_q, flat_k = (y.detach().transpose(1, 2).flatten(2) for y in (q, k))
    a, w, b = inner.ask(flat_q).unflatten(-1, (3, 4)), inner.weigh(flat_q), inner.hold(flat_k)
    if isinstance(inner.product, Rotary):
        at = torch.arange(x.shape[1])
        q, k, a, b = rotate(q, at), rotate(k, at), rotate(a.transpose(1, 2), at), rotate(b, at)
        a = a.transpose(1, 2)
    heads, losses = torch.zeros_like(q), []
    for text in range(len(x)):
        for i in range(x.shape[1]):
            seen = [j for j in range(memory.shape[1]) if visible[text, i, j]]
            index = [
                sum(w[text, i, h] * (a[text, i, h] @ b[text, j]).relu() for h in range(3))
                / 4**0.5 / 3**0.5
                for j in seen
            ]  # fmt: skip
            least = sorted(number.item() for number in index)[-3:][:1]
            best = [at for at, number in enumerate(index) if [number.item()] >= least]
            if not best:
                losses.append((index and index[0]) or x.new_zeros(()))
                continue
            p = 0
            for h in range(3):
                keys = k[text, h // shared]
                weights = torch.stack([q[text, h, i] @ keys[seen[at]] / 2 for at in best])
                weights = weights.softmax(0)
                p = p + weights.detach() / 3
                heads[text, h, i] = weights @ v[text, h // shared][[seen[at] for at in best]]
            logs = torch.stack([index[at] for at in best]).log_softmax(0)
            losses.append(-(p * logs).sum())
    return heads, torch.stack(losses).view(x.shape[:2])


def joined(layer: IndexedAttention, heads: Tensor) -> Tensor:
    return layer.output(heads.transpose(1, 2).flatten(2))


def seen_by(mask: Mask | None, n: int, m: int) -> Tensor:
    at = torch.arange(m)
    every = torch.ones(2, n, m, dtype=torch.bool)
    return every if mask is None else mask.allows(at[m - n :], at).expand(2, n, m)


MASKS = {
    "encoder": None,
    "causal": causal(),
    "padded": lengths([9, 4]),
    "causal, padded": causal() & lengths([9, 4]),
    "window": causal() & window(4),
    "nothing": lengths([9, 0]),
}


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("settings", [{}, {"key_value_heads": 1, "position": "rotary"}])
def test_it_is_the_loop(kind: str, settings: dict[str, object], kernel: str) -> None:
    """Outputs and gradients; in training those of the indexer are those of the loss beside it."""
    layer, x, mask = made(**settings), drawn(2, 9, 12).requires_grad_(), MASKS[kind]
    slope, taught = drawn(2, 9, 12, seed=1), dict(layer.attention.named_parameters())
    heads, losses = loop(layer, x, x, seen_by(mask, 9, 9))
    expected = joined(layer, heads)
    rest = [x, *layer.project.parameters(), *layer.output.parameters()]
    slopes = torch.autograd.grad(expected, rest, slope, retain_graph=True)
    (of_heads,) = torch.autograd.grad(joined(layer, given := heads.detach().requires_grad_()),
                                      [given], slope)  # fmt: skip
    sizes = of_heads.square().sum((1, 3)).sqrt()
    of_index = torch.autograd.grad((sizes * losses).sum(), [*taught.values()])
    for training in (False, True):
        layer.train(training)
        with use(kernel):
            found = layer(x, mask=mask)
        assert_close(found, expected)
        wanted = [*rest, *taught.values()]
        grads = torch.autograd.grad(found, wanted, slope, allow_unused=True)
        assert_close(grads[: len(rest)], slopes)
        if training:
            assert_close(grads[len(rest) :], of_index)
        else:
            assert grads[len(rest) :] == (None,) * len(taught)


@pytest.mark.parametrize("n", SIZES)
def test_lengths_steps_and_packed_rows_are_the_loop(n: int) -> None:
    layer, x = made(), drawn(2, n, 12)
    with torch.no_grad():
        expected = joined(layer, loop(layer, x, x, seen_by(causal(), n, n))[0])
        assert_close(layer(x, mask=causal()), expected)
        cache = KeyValueCache()
        steps = [layer(one, mask=causal(), cache=cache) for one in x.split(1, 1)]
        assert_close(torch.cat(steps, 1), expected)
        sizes = torch.tensor([n, max(1, n // 2)])
        packing = Packing(sizes, n)
        rows = layer(packing.pack(x), mask=causal() & lengths(sizes), packing=packing)
        assert_close(rows, packing.pack(expected))


def test_a_memory_is_read_once() -> None:
    layer, x, memory, mask = made(), drawn(2, 4, 12), drawn(2, 9, 12, seed=1), lengths([9, 5])
    visible = (torch.arange(9) < torch.tensor([9, 5])[:, None])[:, None].expand(2, 4, 9)
    expected = joined(layer, loop(layer, x, memory, visible)[0])
    assert_close(layer(x, memory, mask), expected)
    cache = KeyValueCache(fixed=True)
    steps = [layer(one, memory, mask, cache=cache) for one in x.split(1, 1)]
    assert_close(torch.cat(steps, 1), expected)


def test_equal_keys_are_chosen_together_whatever_their_rounding() -> None:
    layer = made(keys=2)
    index = torch.tensor([[[[4.0, 1.0, 3 + 1e-15, 3.0, 3 - 1e-15, -9.0]]]], dtype=torch.float64)
    sees = None, torch.arange(1), torch.arange(6)
    chosen = layer.attention.chosen(index, sees, slice(0, 1))
    assert chosen.flatten().tolist() == [True, False, True, True, True, False]
    index[..., 0], index[..., 1] = torch.inf, torch.nan
    assert (
        layer.attention.chosen(index, sees, slice(0, 1)).flatten().tolist()
        == [True, True] + [False] * 4
    )


def test_heads_choose_together_where_their_masks_differ() -> None:
    """The first head sees even keys, and reads those of them that are chosen for all heads."""
    layer, x, maps = made(), drawn(2, 9, 12), []
    even = torch.ones(3, 1, 9, dtype=torch.bool)
    even[0] = torch.arange(9) % 2 == 0
    mask = Mask(lambda rows, columns: even[..., columns].expand(3, len(rows), -1), over_heads=True)
    layer.attention.register_forward_hook(lambda *call: maps.append(call[2].weights > 0))
    with torch.no_grad():
        layer(x), layer(x, mask=mask)
    assert torch.equal(maps[1], maps[0] & even)
    assert (maps[0] & ~even).any()


def test_strips_are_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, slope = made().train(), drawn(2, 9, 12), drawn(2, 9, 12, seed=1)
    results = []
    for most in (2**22, 1):
        monkeypatch.setattr(moba, "AT_ONCE", most)
        y = layer(x, mask=causal() & lengths([9, 6]))
        results.append([y, *torch.autograd.grad(y, list(layer.parameters()), slope)])
    assert_close(*results)


def test_padding_teaches_nothing() -> None:
    """A text with NaN behind it teaches as it does alone."""
    layer, x, sizes = made().train(), drawn(2, 9, 12), torch.tensor([9, 5])
    x[1, 5:] = torch.nan
    parameters = list(layer.parameters())
    both = layer(x, mask=lengths(sizes))
    loss = both[0].square().sum() + both[1, :5].square().sum()
    alone = layer(x[:1]).square().sum() + layer(x[1:, :5]).square().sum()
    assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(alone, parameters))


def test_as_many_keys_as_there_are_is_full_attention() -> None:
    layer, x, full = made(keys=9), drawn(2, 9, 12), MultiHeadAttention(12, 3).double()
    full.load_state_dict(layer.state_dict(), strict=False)
    assert_close(layer(x, mask=causal()), full(x, mask=causal()))
    assert not torch.allclose(made(keys=8)(x)[0], full(x)[0])


def kept(layer: IndexedAttention, full: MultiHeadAttention, x: Tensor) -> tuple[float, float]:
    """The share of full attention's weights on the keys that are chosen, and the largest share."""
    maps: list[Tensor] = []
    with torch.no_grad():
        for part in (layer, full):
            hook = part.attention.register_forward_hook(lambda *call: maps.append(call[2].weights))
            part(x)
            hook.remove()
    mean = maps[1].mean(1)
    chosen = (mean * (maps[0] > 0).any(1)).sum(-1)
    return float(chosen.mean()), float(mean.topk(layer.keys, -1).values.sum(-1).mean())


def test_the_indexer_learns_where_attention_looks() -> None:
    """It keeps more of the weights of full attention than at first, with 8 keys of 64."""
    layer, full = made(keys=8).train(), MultiHeadAttention(12, 3).double()
    full.load_state_dict(layer.state_dict(), strict=False)
    optimizer = torch.optim.Adam(layer.attention.parameters(), lr=0.01)
    before, most = kept(layer, full, drawn(4, 64, 12))
    for step in range(200):
        optimizer.zero_grad()
        layer(drawn(4, 64, 12, seed=step)).square().mean().backward()
        optimizer.step()
    after, _ = kept(layer, full, drawn(4, 64, 12))
    assert before < 0.3 * most < 0.4 * most < after, (before, after, most)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: named_mechanism("dsa-0")(8, 2), "an integer of at least 1, not 0"),
        (lambda: named_mechanism("dsa-2.5")(8, 2), "an integer of at least 1, not 2.5"),
        (lambda: made(compress="linformer-4", length=9), "dsa chooses single keys"),
    ],
)
def test_wrong_numbers(make: object, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        make()
