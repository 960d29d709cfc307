"""Laws of masks."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from regard.attention import SCORES, Mask, causal
from regard.attention.mask import Blocks, Tile
from regard.conformance.law import (
    CLOSE,
    EXACT,
    LONG,
    BrokenError,
    InapplicableError,
    Law,
    Measurement,
    gradients,
    near,
    no_warnings,
    worst,
    zero,
)
from regard.conformance.subjects import MaskSubject, ScoreSubject
from regard.core.plugins import one_line


def answers(subject: MaskSubject) -> Measurement:
    allowed = subject.mask.allows(*subject.positions)  # rejects all but bool tensors
    shape = (subject.batch, subject.queries, subject.keys)
    pairs = zip(reversed(allowed.shape), reversed(shape), strict=False)
    if allowed.ndim > 3 + subject.mask.has_heads or any(x not in (1, size) for x, size in pairs):
        raise BrokenError(
            f"answers of shape {tuple(allowed.shape)} do not broadcast to (texts, queries, keys) = "
            f"{shape}"
        )
    share = subject.allowed().float().mean().item()
    return Measurement(f"bool; {share:.0%} of the pairs are allowed", {"allowed": share})


def tiles(subject: MaskSubject) -> Measurement:
    (rows, columns), whole = subject.positions, subject.allowed()
    n, m = len(rows), len(columns)
    selected = torch.tensor([0, *range(2, m, 3)])
    cuts: list[tuple[slice, slice | Tensor]] = [
        (slice(0, 1), slice(0, 1)),
        (slice(n // 2, n), slice(m // 3, m)),
        (slice(n - 1, n), slice(m - 1, m)),
        (slice(0, n), selected),
    ]
    mask = subject.mask.over_heads()
    for row_slice, column_slice in cuts:
        part = whole[..., row_slice, :][..., column_slice]
        tile = mask.allows(rows, columns, Tile(row_slice, column_slice)).expand(part.shape)
        if not torch.equal(tile, part):
            wrong = int((tile != part).sum())
            raise BrokenError(
                f"in a tile of {part.shape[-2]} × {part.shape[-1]}, {wrong} answers differ from "
                "those of the whole mask",
                wrong=wrong,
            )
    return Measurement("identical answers")


def reach(
    subject: MaskSubject, sizes: Sequence[tuple[int, int]] = ((1, 1), (2, 3), (4, 4), (64, 64))
) -> Measurement:
    skipped = whole = blocks = 0
    for mask, allowed in variants(subject):
        for size in sizes:
            reach = mask.reach(
                *(Blocks.of(x, k) for x, k in zip(subject.positions, size, strict=True))
            )
            for i, row_block in enumerate(torch.arange(subject.queries).split(size[0])):
                for j, column_block in enumerate(torch.arange(subject.keys).split(size[1])):
                    part = allowed[..., row_block, :][..., column_block]
                    may, must = bool(reach.may[i, j]), bool(reach.must[i, j])
                    block = f"block {i}, {j} of {size[0]} × {size[1]}"
                    if bool(part.any()) and not may:
                        raise BrokenError(f"reach skips {block}, which has allowed pairs")
                    if must and not bool(part.all()):
                        raise BrokenError(f"reach allows all of {block}, which has hidden pairs")
                    skipped, whole, blocks = skipped + (not may), whole + must, blocks + 1
    return Measurement(
        f"{blocks} blocks: {skipped} skipped, {whole} allowed as a whole",
        {"blocks": blocks, "skipped": skipped, "whole": whole},
    )


def variants(subject: MaskSubject) -> list[tuple[Mask, Tensor]]:
    """Return the mask, its inverse and its combinations with causal(), with expected answers."""
    rows, columns = subject.positions
    causal_pairs = causal().allows(rows, columns)
    mask, allowed = subject.mask, subject.allowed()
    return [(mask, allowed), (~mask, ~allowed), (mask & causal(), allowed & causal_pairs),
            (mask | causal(), allowed | causal_pairs)]  # fmt: skip


def joined(subject: MaskSubject) -> Measurement:
    names = ("mask", "~mask", "mask & causal()", "mask | causal()")
    for name, (mask, expected) in zip(names, variants(subject), strict=True):
        result = mask.over_heads().allows(*subject.positions).expand(expected.shape)
        if not torch.equal(result, expected):
            raise BrokenError(f"{name} differs from the same operation on the answers")
    return Measurement("& | ~ equal those of the answers")


def over_heads(subject: MaskSubject) -> Measurement:
    plain, headed = subject.mask.allows(*subject.positions), subject.mask.over_heads()
    result = headed.allows(*subject.positions)
    if subject.mask.has_heads:
        raise InapplicableError("the mask has a head axis already")
    expected = plain.unsqueeze(-3) if plain.ndim > 2 else plain
    if result.shape != expected.shape or not torch.equal(result, expected):
        raise BrokenError(f"over_heads() gives {tuple(result.shape)}, not {tuple(expected.shape)}")
    if headed.over_heads() is not headed:
        raise BrokenError("calling over_heads() twice adds two axes")
    return Measurement("one axis at −3")


def batched_positions(subject: MaskSubject) -> Measurement:
    if subject.mask.has_heads:
        raise InapplicableError("the mask has a head axis already")
    (rows, columns), expected = subject.positions, subject.allowed()[:, 0]
    rows, columns = (x.expand(subject.batch, -1) for x in (rows, columns))
    what = f"positions {tuple(rows.shape)} and {tuple(columns.shape)}, one row for each text,"
    remedy = "write rows[..., :, None] and columns[..., None, :]"
    try:
        result = subject.mask.allows(rows, columns).expand(expected.shape)
    except Exception as error:  # whatever a user's code raises
        raise BrokenError(f"{what} raised {one_line(error)}: {remedy}") from None
    if not torch.equal(result, expected):
        raise BrokenError(f"{what} gave other answers than one row for all: {remedy}")
    return Measurement("identical answers")


def kind(subject: MaskSubject) -> Measurement:
    (rows, columns), allowed, declared = subject.positions, subject.allowed(), subject.mask.kind
    if declared == "keys" and not torch.equal(allowed, allowed[..., :1, :].expand_as(allowed)):
        raise BrokenError("kind='keys' is declared, but queries have different keys")
    causal_pairs = causal().allows(rows, columns)
    if declared == "causal" and not torch.equal(allowed, causal_pairs.expand_as(allowed)):
        raise BrokenError("kind='causal' is declared, but the answers differ from causal()")
    return Measurement(f"kind = {declared!r}")


def kernels(subject: MaskSubject) -> Measurement:
    dot, gaps = ScoreSubject.of(SCORES["dot"]), []
    score, results = dot.score(), list[list[Tensor]]()
    inputs = dot.inputs(subject.queries, subject.keys, batch=(subject.batch,))
    for kernel in ("exact", "tiled", "plain", "fused"):
        attended = dot.attend(inputs, score, subject.mask, kernel=kernel)
        results.append([attended.output, *gradients(attended.output, inputs)])
        zero(
            "the weight of a hidden key",
            attended.weights[~subject.allowed().expand_as(attended.weights)],
        )
        gaps += [
            near(f"{kernel} differs from the exact kernel", x, exact, EXACT if i == 0 else CLOSE)
            for i, (x, exact) in enumerate(zip(results[-1], results[0], strict=True))
        ]
    return worst(gaps, CLOSE)


def twice(subject: MaskSubject) -> Measurement:
    first = subject.allowed()
    with contextlib.suppress(Exception):  # a mask with a fixed size rejects others
        subject.mask.allows(torch.arange(3), torch.arange(4))
    if not torch.equal(first, subject.allowed()):
        raise BrokenError("repeating the call with the same positions changed the answers")
    return Measurement("identical answers")


def quiet(subject: MaskSubject) -> Measurement:
    with no_warnings():
        subject.allowed()
        subject.mask.reach(*(Blocks.of(x, 2) for x in subject.positions))
    return Measurement("no warnings")


def long_texts(subject: MaskSubject) -> Measurement:
    """Check the laws of a mask for 150 queries and 300 keys, if it can answer for them."""
    long = replace(subject, queries=max(LONG) // 2, keys=max(LONG))
    try:
        allowed = long.allowed()
    except Exception as error:  # whatever a user's code raises
        raise InapplicableError(f"it has a fixed size: {one_line(error)}") from None
    blocks = partial(reach, sizes=((16, 32), (64, 64), (128, 128)))
    for check in (tiles, blocks, joined, over_heads, batched_positions, kind):
        with contextlib.suppress(InapplicableError):
            check(long)
    rows, columns = subject.positions
    short, past = subject.allowed(), columns <= rows[:, None]
    ahead = allowed & (long.positions[1] > long.positions[0][:, None])
    if not bool((short & ~past).any()) and bool(ahead.any()):
        i, j = (int(x) for x in ahead.nonzero()[0][-2:])
        raise BrokenError(
            f"the query at {i + long.keys - long.queries} may see the key at {j}, but "
            f"among {subject.keys} words none sees a later one"
        )
    return Measurement("tiles, blocks and positions hold")


MASK_LAWS: dict[str, Law[MaskSubject]] = {
    "answers": Law("answers are bool and broadcast to (texts, queries, keys)", answers),
    "tiles": Law("answers for a tile equal that part of the whole", tiles),
    "reach": Law("skipped blocks have no allowed pair, whole blocks no hidden pair", reach),
    "joined": Law("& | ~ of masks equal & | ~ of their answers", joined),
    "heads": Law("over_heads() adds one axis at −3", over_heads),
    "positions": Law("positions for each text give the same answers", batched_positions),
    "kind": Law("the declared kind is true", kind),
    "kernels": Law("all kernels agree, forward and backward", kernels),
    "twice": Law("repeating a call gives the same answers", twice),
    "quiet": Law("no warnings", quiet),
    "long texts": Law("the laws hold for 150 queries and 300 keys", long_texts, long=True),
}
