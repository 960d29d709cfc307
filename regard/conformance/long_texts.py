"""Laws of layers in texts of 65, 130 and 300 words, which reveal errors of blocks and limits.

A text is compared with a prefix alone, without padding, in steps with a cache, in another order
and at other positions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from regard.conformance.adapters import Layer
from regard.conformance.arguments import build, equivariant, mask, tokens
from regard.conformance.law import (
    CLOSE,
    LONG,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    compare_slopes,
    cut_texts,
    near,
    worst,
)

#: Lengths of prefixes: around the ends of blocks of 16 to 256 words, and between.
CUTS = (1, 15, 17, 32, 50, 63, 64, 65, 66, 100, 127, 128, 129, 140, 200, 255, 256, 257, 299)
#: Words of the steps with a cache: many, few, and one by one.
STEPS = (20, *[1] * 46, 30, 1, 1, 2, 60, 1, 1, 100, 1, 17, 20)
#: Words of a padded table, and of its texts.
TABLES = ((65, (65, 50)), (129, (129, 64)), (300, (300, 129, 65, 20)))
#: Offsets of all positions: multiples of common block sizes, of 16, 32, 48, 64, 96, 128, and of 20,
#: 25, 40, 50, 80, 100.
SHIFTS = (384, 400)


def most(layer: Layer) -> int:
    """Return the number of words of the longest text, at most 300."""
    longest = min(max(LONG), layer.longest or max(LONG))
    if longest <= min(LONG):
        raise InapplicableError(f"the layer takes texts of {longest} words")
    return longest


def lengths_of(layer: Layer) -> list[int]:
    """Return the lengths that the layer takes, the longest last."""
    return [n for n in LONG if n < most(layer)] + [most(layer)]


def prefixes(layer: Layer) -> Measurement:
    """Check with a causal mask that later words do not change the output of any word."""
    if True not in layer.modes:
        raise InapplicableError("the layer has no causal mask")
    module, n = build(layer), most(layer)
    x, cuts, gaps = tokens(layer, 1, n), [cut for cut in CUTS if cut < n], []
    with torch.no_grad():
        plain = layer.call(module, x, future=False)
        for cut, output in zip(cuts, layer.call(module, cut_texts(x, cuts), future=False),
                               strict=True):  # fmt: skip
            what = f"words from the {cut + 1}th on changed the output of an earlier word"
            gaps.append(near(what, output[:cut], plain[0, :cut], CLOSE))
        for cut in [cut for cut in cuts if cut > 15]:
            alone = layer.call(module, x[:, :cut], future=False)
            what = f"the first {cut} words have other outputs in a text of {n}"
            gaps.append(near(what, plain[:, :cut], alone, CLOSE))
    return worst(gaps, CLOSE)


def padding(layer: Layer) -> Measurement:
    """Check outputs and gradients of texts with and without padding, in every mode."""
    module, gaps = build(layer), []
    for n, sizes in TABLES:
        if n > most(layer):
            break
        x, valid = tokens(layer, len(sizes), n), torch.tensor(sizes)
        real = (torch.arange(n) < valid[:, None])[..., None]
        x = torch.where(real, x, 1e3).requires_grad_()
        for is_causal in layer.modes:
            whole = layer.call(module, x, valid, future=not is_causal)
            upstream = torch.randn_like(whole) * real
            (of_x,) = torch.autograd.grad(whole, x, upstream)
            for i, size in enumerate(sizes):
                one = x.detach()[i : i + 1, :size].requires_grad_()
                alone = layer.call(module, one, future=not is_causal)
                (of_one,) = torch.autograd.grad(alone, one, upstream[i : i + 1, :size])
                what = f"padding of a text of {size} words to {n} changed"
                gaps.append(near(f"{what} an output", whole[i : i + 1, :size], alone, CLOSE))
                gaps.append(near(f"{what} a gradient", of_x[i : i + 1, :size], of_one, 10 * CLOSE))
    return worst(gaps, CLOSE)


def masked(layer: Layer) -> Measurement:
    measured = [mask(layer, n, (0, n // 2, n - 2)).numbers for n in lengths_of(layer)[:2]]
    return worst([numbers["difference"] for numbers in measured], CLOSE)


def cache(layer: Layer) -> Measurement:
    module, n = build(layer), most(layer)
    x = tokens(layer, 1, n)
    sizes, left = [], n
    for size in STEPS:
        sizes += [min(size, left)] if left else []
        left -= min(size, left)
    with torch.no_grad():
        steps, full = layer.steps(module, x, sizes), layer.call(module, x, future=False)
    gaps, start = [], 0
    for size in sizes:
        at = slice(start, start := start + size)
        what = f"a step of {size} words after {at.start} in the cache differs from a single pass"
        gaps.append(near(what, steps[:, at], full[:, at], CLOSE))
    return worst(gaps, CLOSE)


def order(layer: Layer) -> Measurement:
    """Check that, if 33 words may be reordered with their positions, many words may too.

    Order also matters if words see only their block or their neighbours by row. Then every word
    must at least be read by another.
    """
    module, few = build(layer), tokens(layer, 1, 33)
    reason = "the order of words matters, not only their positions"
    with torch.no_grad():
        if False not in layer.modes or layer.ordered or not equivariant(layer, module, few):
            raise InapplicableError(reason)
        for n in lengths_of(layer):
            if equivariant(layer, module, tokens(layer, 1, n)):
                continue
            for word in unread(layer, module, n):
                raise BrokenError(
                    f"word {word + 1} of {n} has no effect on any other word, and the order of {n} "
                    "words matters where that of 33 does not"
                )
            many_keys(layer, module)
            raise InapplicableError(f"{reason} in texts of {n} words")
        many_keys(layer, module)
    return Measurement("the order of words does not matter, only their positions")


def unread(layer: Layer, module: nn.Module, n: int) -> list[int]:
    """Return the words, among a sample, that change no other word's output."""
    x, words = tokens(layer, 1, n), [i for i in (2, 40, 70, 100, 135, 150, 200, 299) if i < n]
    plain, unread_words = layer.call(module, x), []
    for i in words:
        changed = x.clone()
        changed[:, i] = -changed[:, i]
        other = layer.call(module, changed)
        if torch.equal(other[:, :i], plain[:, :i]) and torch.equal(
            other[:, i + 1 :], plain[:, i + 1 :]
        ):
            unread_words.append(i)
    return unread_words


def many_keys(layer: Layer, module: nn.Module) -> None:
    """Raise a BrokenError if the order of a long memory matters where that of 33 words does not."""

    def off(m: int) -> float:
        x, keys, permutation = tokens(layer, 1, 5), tokens(layer, 1, m), torch.randperm(m)
        given = [{"positions": (torch.arange(5), places)} if layer.takes("positions") else {}
                 for places in (torch.arange(m), permutation)]  # fmt: skip
        plain = layer.across(module, x, keys, None, **given[0])
        moved = layer.across(module, x, keys[:, permutation], None, **given[1])
        return float((moved - plain).abs().max() / plain.abs().max().clamp(min=1))

    try:
        few = off(33)
    except Exception:  # it has no cross-attention, or takes no memory positions
        return
    for m in lengths_of(layer):
        if few < 1e3 * CLOSE < off(m):
            raise BrokenError(
                f"another order of a memory of {m} words with their positions changed the output, "
                "and of 33 words it does not"
            )


def shifts(layer: Layer) -> Measurement:
    """Check that, if only distances matter for small positions, so it is for large ones.

    For blocks of positions, the offset must be a multiple of their size.
    """
    if not layer.takes("positions"):
        raise InapplicableError("it takes no positions=")
    module, x = build(layer), tokens(layer, 1, 12)

    def moved(by: int) -> Tensor:
        return layer.call(module, x, positions=torch.arange(12) * 2 + by)

    with torch.no_grad():
        return one_shift(moved)


def one_shift(moved: Callable[[int], Tensor]) -> Measurement:
    """Raise a BrokenError if every offset of `SHIFTS` changes the output, and 3 does not."""
    plain = moved(0)
    if not same_nearly(moved(3), plain):
        raise InapplicableError("not only the distances of positions matter")
    outputs = [moved(by) for by in SHIFTS]
    if any(same_nearly(output, plain) for output in outputs):
        return Measurement(f"adding {SHIFTS[0]} or {SHIFTS[1]} changes nothing, as adding 3")
    what = f"adding {SHIFTS[0]} to all positions changed the output, and adding 3 does not"
    return worst([near(what, outputs[0], plain, 10 * CLOSE)], 10 * CLOSE)


def same_nearly(x: Tensor, y: Tensor) -> bool:
    """Return whether two tensors differ only by rounding."""
    return bool((x - y).abs().max() <= 10 * CLOSE * max(1.0, float(y.abs().max())))


def slope(layer: Layer) -> Measurement:
    if layer.dtype != torch.float64:
        raise InapplicableError("the layer does not compute in float64 throughout")
    module, gaps = build(layer), 0.0
    for n in lengths_of(layer)[::2]:
        for is_causal in layer.modes:
            call = partial(layer.call, module, future=not is_causal)
            x = tokens(layer, 1, n).requires_grad_()
            measured = compare_slopes(call, {"the input": x})
            gaps = max(gaps, measured.numbers["difference"])
    return worst([gaps], 1e-5)


LONG_LAWS: dict[str, Law[Layer]] = {
    "long prefixes": Law(
        "with a causal mask, later words do not change any of 300 words", prefixes, long=True
    ),
    "long mask": Law("a mask of pairs hides words in texts of 65 and 130 words", masked, long=True),
    "long padding": Law("padding changes nothing in texts of up to 300 words", padding, long=True),
    "long cache": Law("300 words in steps with a cache equal a single pass", cache, long=True),
    "long order": Law("the order of 300 words matters like the order of 33", order, long=True),
    "long positions": Law("large positions act like small ones", shifts, long=True),
    "long gradients": Law(
        "gradients of 65 and 300 words match finite differences", slope, long=True
    ),
}
