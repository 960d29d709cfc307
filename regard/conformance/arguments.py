"""Laws of a mechanism's arguments: memory, positions, packing, key_value_heads and dropout."""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Packing, dense, others, window
from regard.conformance.adapters import Layer
from regard.conformance.law import (
    CLOSE,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    gradients,
    near,
    worst,
)
from regard.conformance.subjects import nudge

N = 9
#: Positions of words with gaps between them.
APART = (0, 2, 3, 7, 8, 12, 13, 21, 30)
DROPOUT = 0.25


def build(layer: Layer, dropout: float = 0.0, **settings: Any) -> nn.Module:
    """Return a module with these settings, in evaluation mode, with the same weights each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = layer.variant(**settings) if settings else layer.build(dropout)
        module = module.to(layer.dtype).eval()
        nudge(module)
    return module


def tokens(layer: Layer, batch: int, n: int = N, width: int = 0) -> Tensor:
    """Return random inputs (batch, n, width)."""
    return torch.randn(batch, n, width or layer.width, dtype=layer.dtype)


def memory(layer: Layer) -> Measurement:
    """Check that a query of cross-attention reads only itself and the memory."""
    module, gaps = build(layer), []
    for m in (N, 5, 12):
        x, keys = tokens(layer, 2), tokens(layer, 2, m)
        plain = layer.across(module, x, keys, None)
        if torch.equal(layer.across(module, x, tokens(layer, 2, m), None), plain):
            raise BrokenError(f"a memory of {m} words has no effect on {N} queries")
        gaps += padded_memory(layer, module, x, keys)
        if not (layer.one_attention or layer.mechanism):
            continue  # its queries may attend to each other
        changed = x.clone()
        changed[:, 4:] = torch.randn_like(changed[:, 4:])
        after = layer.across(module, changed, keys, None)[:, :4]
        what = "with a memory, other queries changed the output of a query"
        gaps.append(near(what, after, plain[:, :4], CLOSE))
    return worst(gaps, CLOSE)


def padded_memory(layer: Layer, module: nn.Module, x: Tensor, keys: Tensor) -> list[float]:
    """Return how much words of a memory that are padding change outputs; none if unsupported."""
    m = keys.shape[1]
    other, valid = keys.clone(), torch.tensor([m - 2, m])
    other[0, m - 2 :] = torch.randn_like(other[0, m - 2 :])
    with contextlib.suppress(InapplicableError):  # it takes no mask of a memory
        plain, changed = (layer.across(module, x, words, valid) for words in (keys, other))
        return [near("padding of the memory changed an output", changed, plain, CLOSE)]
    return []


def mask(layer: Layer, n: int = N, words: Sequence[int] = range(N)) -> Measurement:
    """Check that a word hidden from a query by a mask of pairs does not change its output."""
    module, x, gaps, rows = build(layer), tokens(layer, 1, n), [], torch.arange(n)
    layer.pairs(module, x, window(2))
    if layer.ordered or not equivariant(layer, module, x):
        raise InapplicableError("words are read in the order of their rows")
    some = (torch.rand(n, n) < 0.6) | torch.eye(n, dtype=torch.bool)
    for name, pairs in (("window(2)", window(2)), ("others()", others()), ("dense", dense(some))):
        plain = layer.pairs(module, x, pairs)
        hidden = ~pairs.allows(rows, rows)
        for j in words:
            changed = x.clone()
            changed[:, j] = 3 * torch.randn_like(changed[:, j])
            rest = hidden[:, j] & (rows != j)
            what = (
                f"word {j + 1} of {n} changed the output of a word that mask={name} hides it from"
            )
            gaps.append(
                near(what, layer.pairs(module, changed, pairs)[:, rest], plain[:, rest], CLOSE)
            )
    return worst(gaps, CLOSE)


def positions(layer: Layer) -> Measurement:
    if not layer.takes("positions"):
        raise InapplicableError("it takes no positions=")
    module, x, apart = build(layer), tokens(layer, 2), torch.tensor(APART)
    if layer.modes == (True,):
        return worst([positions_of_steps(layer, module, x, apart)], CLOSE)
    plain, order = layer.call(module, x), torch.arange(N)
    what = "positions=0 … n − 1 differ from no positions"
    gaps = [near(what, layer.call(module, x, positions=order), plain, CLOSE)]
    reads_rows = not equivariant(layer, module, x)
    if not moves(layer, module, x, plain, apart):
        queries_by_position(layer, module, x)
        rotary = with_rotary(layer, x, plain, apart)
        if rotary is None and reads_rows and layer.foreign:
            raise BrokenError("positions have no effect, although the order of the words has")
        if rotary is None and reads_rows:
            raise InapplicableError("words are in the order of their rows, and have no positions")
        if rotary is None:
            return Measurement("it does not use positions")
        module = rotary
    elif reads_rows and not layer.ordered:
        raise BrokenError(
            "words and positions in another order changed the output of a word: something counts "
            "rows; read positions=, or declare ordered = True if it reads row after row"
        )
    with contextlib.suppress(InapplicableError):  # it has no cache
        gaps.append(positions_of_steps(layer, module, x, apart))
    return worst(gaps, CLOSE)


def positions_of_steps(layer: Layer, module: nn.Module, x: Tensor, apart: Tensor) -> float:
    """Return how much steps with a cache differ from a single pass, with positions and without."""
    gaps = []
    for what, at in (("a cache", None), ("a cache and positions=", apart)):
        steps = layer.steps(module, x, positions=at)
        full = layer.call(module, x, future=False, positions=at)
        gaps.append(near(f"steps with {what} differ from a single pass", steps, full, CLOSE))
    return max(gaps)


def moves(layer: Layer, module: nn.Module, x: Tensor, plain: Tensor, apart: Tensor) -> bool:
    """Return whether words at larger distances have another output."""
    return not torch.equal(layer.call(module, x, positions=apart), plain)


def with_rotary(layer: Layer, x: Tensor, plain: Tensor, apart: Tensor) -> nn.Module | None:
    """Return the layer with rotary positions; None if they are unsupported or change nothing.

    Raises: rotary positions have an effect, but positions= has none.
    """
    try:
        module = build(layer, position="rotary")
    except InapplicableError:
        return None
    rotary = layer.call(module, x)
    if torch.equal(rotary, plain):
        return None
    if not moves(layer, module, x, rotary, apart):
        raise BrokenError(
            "position=rotary changes the output, but positions= has no effect; pass positions on"
        )
    return module


def equivariant(layer: Layer, module: nn.Module, x: Tensor) -> bool:
    """Return whether reordering words with their positions keeps the outputs."""
    permutation = torch.randperm(x.shape[1])
    given: dict[str, Any] = {"positions": permutation} if layer.takes("positions") else {}
    moved, plain = layer.call(module, x[:, permutation], **given), layer.call(module, x)
    gap = (moved - plain[:, permutation]).abs().max()
    return bool(gap <= 1e3 * CLOSE * max(1.0, float(plain.abs().max())))


def queries_by_position(layer: Layer, module: nn.Module, x: Tensor) -> None:
    """Raise a BrokenError if the order of cross-attention queries matters, not only positions."""
    keys, permutation = tokens(layer, 2, 5), torch.randperm(N)
    try:
        plain = layer.across(module, x, keys, None, positions=torch.arange(N))
        moved = layer.across(module, x[:, permutation], keys, None, positions=permutation)
    except Exception:  # it has no cross-attention, or the law "memory" reports the error
        return
    what = "queries of a memory and their positions in another order changed the output of a query"
    near(what, moved, plain[:, permutation], CLOSE)


def packing(layer: Layer) -> Measurement:
    if not layer.takes("packing"):
        raise InapplicableError("it takes no packing=")
    module, valid, gaps = build(layer), torch.tensor([N, 4, 1, 6]), []
    x = tokens(layer, len(valid)).requires_grad_()
    how = Packing(valid, N)
    for is_causal in layer.modes:
        plain = how.pack(layer.call(module, x, valid, future=not is_causal))
        packed = layer.call(module, how.pack(x), valid, future=not is_causal, packing=how)
        gaps.append(near("packing= changed the output of a word", packed, plain, CLOSE))
        inputs = [x, *module.parameters()]
        for a, b in zip(gradients(packed, inputs), gradients(plain, inputs), strict=True):
            gaps.append(near("packing= changed a gradient", a, b, CLOSE))
    with contextlib.suppress(InapplicableError):  # it has no cross-attention
        sizes = torch.tensor([5, 1, 3, 2])
        keys, other = tokens(layer, len(sizes), 5), Packing(sizes, 5)
        plain = how.pack(layer.across(module, x, keys, sizes))
        packed = layer.across(module, how.pack(x), other.pack(keys), sizes, packing=(how, other))
        gaps.append(near("packing= changed the output over a memory", packed, plain, CLOSE))
    return worst(gaps, CLOSE)


def key_value_heads(layer: Layer) -> Measurement:
    """Check four heads with two key heads: fewer parameters, and equal with and without cache."""
    sizes: dict[str, int] = {"width": 16, "heads": 4}
    built = {}
    for groups in (1, 2, 4):
        try:
            built[groups] = build(layer, **sizes, key_value_heads=groups)
        except InapplicableError as reason:
            refused = reason
    if not built:
        raise refused
    counts = {groups: sum(p.numel() for p in module.parameters()) for groups, module in
              built.items()}  # fmt: skip
    if len(set(counts.values())) < len(counts):
        raise BrokenError(
            f"key_value_heads={min(counts)} gives {counts[min(counts)]:,} parameters, as many as "
            f"key_value_heads={max(counts)}: it is ignored; build keys and values of this many "
            "heads, or raise an error"
        )
    gaps, valid = [], torch.tensor([N, 4, 1])
    texts = tokens(layer, 3, width=16)
    for groups, module in built.items():
        what = f"with key_value_heads={groups},"
        whole = layer.call(module, texts, valid)
        for i, size in enumerate(valid.tolist()):
            alone = layer.call(module, texts[i : i + 1, :size])
            padded = whole[i : i + 1, :size]
            gaps.append(near(f"{what} padding changed an output", padded, alone, CLOSE))
        with contextlib.suppress(InapplicableError):  # it has no cache
            for sizes_of_steps in ((4, 1, 4), (30, 1, 39)):
                x = tokens(layer, 2, sum(sizes_of_steps), 16)
                full = layer.call(module, x, future=False)
                steps = layer.steps(module, x, sizes_of_steps)
                text = f"{what} steps with a cache differ from a single pass"
                gaps.append(near(text, steps, full, CLOSE))
    return worst(gaps, CLOSE)


def dropout(layer: Layer) -> Measurement:
    """Check that dropout is applied in training alone, and keeps the mean.

    In a text of one repeated word, every weighted mean of values is the same value, and weights
    after dropout sum to about 1, so that later layers change the mean little.
    """
    layer.must_take_dropout()
    module, x, repeats, n = build(layer, DROPOUT), tokens(layer, 1), 48, 64
    with torch.no_grad():
        plain = layer.call(build(layer), x)
        what = f"dropout={DROPOUT} changed the output in evaluation mode"
        near(what, layer.call(module, x), plain, CLOSE)
        if torch.equal(layer.call(module.train(), x), plain):
            raise BrokenError(f"dropout={DROPOUT} has no effect")
        word = tokens(layer, 1, 1)
        plain = layer.call(module.eval(), word.expand(1, n, -1))
        dropped = layer.call(module.train(), word.expand(repeats, n, -1))
    error = dropped.flatten(0, 1).std(0) / (repeats * n) ** 0.5
    off = (dropped.mean((0, 1)) - plain.mean((0, 1))).abs()
    allowed = 5 * error + 0.5 * DROPOUT * plain.abs().max()
    if not bool((off <= allowed).all()):
        share = (off.max() / plain.abs().max()).item()
        raise BrokenError(
            f"dropout={DROPOUT} changed the mean of the output by {share:.0%}; divide the kept "
            "weights by 1 − dropout",
            off=share,
        )
    return Measurement(f"the mean changed by {(off / error).max():.1f} standard errors")


ARGUMENT_LAWS: dict[str, Law[Layer]] = {
    "mask": Law("a mask of pairs hides words from each query", mask),
    "memory": Law("with a memory, a query reads only itself and all of the memory", memory),
    "positions": Law("only positions= determines where words are, with a cache too", positions),
    "packing": Law("packed rows have the outputs and gradients of padded ones", packing),
    "key_value_heads": Law("key_value_heads= is applied or refused", key_value_heads),
    "dropout": Law("dropout acts only in training, and keeps the mean", dropout),
}
