"""The laws of masks."""

import contextlib

import torch

from regard.attention import SCORES, Mask, causal
from regard.attention.mask import Blocks, Tile
from regard.conformance.law import (
    CLOSE,
    EXACT,
    BrokenError,
    InapplicableError,
    Law,
    Measured,
    gradients,
    near,
    silence,
    worst,
    zero,
)
from regard.conformance.subjects import MaskSubject, ScoreSubject
from regard.plugins import one_line


def answers(subject: MaskSubject) -> Measured:
    found = subject.mask.allows(*subject.places)  # refuses what is no bool tensor
    wanted = (subject.batch, subject.queries, subject.keys)
    pairs = zip(reversed(found.shape), reversed(wanted), strict=False)
    if found.ndim > 3 + subject.mask.has_heads or any(x not in (1, size) for x, size in pairs):
        raise BrokenError(
            f"answers of shape {tuple(found.shape)} do not broadcast to {wanted}: (texts, queries, "
            "keys)"
        )
    share = subject.allowed().float().mean().item()
    return Measured(f"bools; {share:.0%} of the pairs may be seen", {"allowed": share})


def tiles(subject: MaskSubject) -> Measured:
    (rows, columns), whole = subject.places, subject.allowed()
    n, m = len(rows), len(columns)
    picked = torch.tensor([0, *range(2, m, 3)])
    cuts: list[tuple[slice, slice | torch.Tensor]] = [
        (slice(0, 1), slice(0, 1)),
        (slice(n // 2, n), slice(m // 3, m)),
        (slice(n - 1, n), slice(m - 1, m)),
        (slice(0, n), picked),
    ]
    mask = subject.mask.over_heads()
    for of, at in cuts:
        wanted = whole[..., of, :][..., at]
        found = mask.allows(rows, columns, Tile(of, at)).expand(wanted.shape)
        if not torch.equal(found, wanted):
            wrong = int((found != wanted).sum())
            raise BrokenError(
                f"in a tile of {wanted.shape[-2]} × {wanted.shape[-1]}, {wrong} answers are not "
                "those of the whole",
                wrong=wrong,
            )
    return Measured("the same answers")


def reach(subject: MaskSubject) -> Measured:
    skipped = whole = blocks = 0
    for mask, allowed in variants(subject):
        for size in ((1, 1), (2, 3), (4, 4), (64, 64)):
            found = mask.reach(
                *(Blocks.of(x, k) for x, k in zip(subject.places, size, strict=True))
            )
            for i, of in enumerate(torch.arange(subject.queries).split(size[0])):
                for j, at in enumerate(torch.arange(subject.keys).split(size[1])):
                    part = allowed[..., of, :][..., at]
                    may, must = bool(found.may[i, j]), bool(found.must[i, j])
                    block = f"block {i}, {j} of {size[0]} × {size[1]}"
                    if bool(part.any()) and not may:
                        raise BrokenError(f"reach says that nothing is seen in {block}, and it is")
                    if must and not bool(part.all()):
                        raise BrokenError(f"reach says that all is seen in {block}, and it is not")
                    skipped, whole, blocks = skipped + (not may), whole + must, blocks + 1
    return Measured(
        f"of {blocks} blocks it skips {skipped} and knows {whole} whole",
        {"blocks": blocks, "skipped": skipped, "whole": whole},
    )


def variants(subject: MaskSubject) -> list[tuple[Mask, torch.Tensor]]:
    """The mask, its inverse, and it joined with a causal one; with the answers they should give."""
    rows, columns = subject.places
    past = causal().allows(rows, columns)
    mask, allowed = subject.mask, subject.allowed()
    return [(mask, allowed), (~mask, ~allowed), (mask & causal(), allowed & past),
            (mask | causal(), allowed | past)]  # fmt: skip


def joined(subject: MaskSubject) -> Measured:
    names = ("it", "~", "& causal()", "| causal()")
    for name, (mask, wanted) in zip(names, variants(subject), strict=True):
        found = mask.over_heads().allows(*subject.places).expand(wanted.shape)
        if not torch.equal(found, wanted):
            raise BrokenError(f"joined by {name} it gives other answers than its own, joined")
    return Measured("& | ~ are those of its answers")


def over_heads(subject: MaskSubject) -> Measured:
    plain, headed = subject.mask.allows(*subject.places), subject.mask.over_heads()
    found = headed.allows(*subject.places)
    if subject.mask.has_heads:
        raise InapplicableError("it has a head axis already")
    wanted = plain.unsqueeze(-3) if plain.ndim > 2 else plain
    if found.shape != wanted.shape or not torch.equal(found, wanted):
        raise BrokenError(f"over_heads() answers {tuple(found.shape)}, not {tuple(wanted.shape)}")
    if headed.over_heads() is not headed:
        raise BrokenError("over_heads() twice puts in two axes")
    return Measured("an axis at −3, once")


def batched_positions(subject: MaskSubject) -> Measured:
    if subject.mask.has_heads:
        raise InapplicableError("it has a head axis already")
    (rows, columns), wanted = subject.places, subject.allowed()[:, 0]
    rows, columns = (x.expand(subject.batch, -1) for x in (rows, columns))
    what = f"positions {tuple(rows.shape)} and {tuple(columns.shape)}, one row a text,"
    remedy = "write rows[..., :, None] and columns[..., None, :]"
    try:
        found = subject.mask.allows(rows, columns).expand(wanted.shape)
    except Exception as error:  # whatever a user's code raises
        raise BrokenError(f"{what} raised {one_line(error)}: {remedy}") from None
    if not torch.equal(found, wanted):
        raise BrokenError(f"{what} got other answers than one row for all: {remedy}")
    return Measured("the same answers")


def kind(subject: MaskSubject) -> Measured:
    (rows, columns), allowed, declared = subject.places, subject.allowed(), subject.mask.kind
    if declared == "keys" and not torch.equal(allowed, allowed[..., :1, :].expand_as(allowed)):
        raise BrokenError("kind='keys' is declared, and queries see different keys")
    past = causal().allows(rows, columns)
    if declared == "causal" and not torch.equal(allowed, past.expand_as(allowed)):
        raise BrokenError("kind='causal' is declared, and the answers are not causal()'s")
    return Measured(f"kind = {declared!r}")


def kernels(subject: MaskSubject) -> Measured:
    scores, gaps = ScoreSubject.of(SCORES["dot"]), []
    score, given = scores.score(), scores.inputs(subject.queries, subject.keys)
    if subject.batch != 3:
        given = scores.inputs(subject.queries, subject.keys, batch=(subject.batch,))
    found = []
    for kernel in ("exact", "tiled", "plain", "fused"):
        seen = scores.look(given, score, subject.mask, kernel=kernel)
        found.append([seen.output, *gradients(seen.output, given)])
        zero("the weight of a hidden key", seen.weights[~subject.allowed().expand_as(seen.weights)])
        gaps += [
            near(f"{kernel} is off the exact kernel", x, exact, EXACT if i == 0 else CLOSE)
            for i, (x, exact) in enumerate(zip(found[-1], found[0], strict=True))
        ]
    return worst(gaps, CLOSE)


def twice(subject: MaskSubject) -> Measured:
    first = subject.allowed()
    with contextlib.suppress(Exception):  # a mask by place in the call knows one size
        subject.mask.allows(torch.arange(3), torch.arange(4))
    if not torch.equal(first, subject.allowed()):
        raise BrokenError("the same positions got other answers the second time")
    return Measured("the same answers")


def quiet(subject: MaskSubject) -> Measured:
    with silence():
        subject.allowed()
        subject.mask.reach(*(Blocks.of(x, 2) for x in subject.places))
    return Measured("no warning")


MASK_LAWS: dict[str, Law[MaskSubject]] = {
    "answers": Law("it answers with bools that broadcast to (texts, queries, keys)", answers),
    "tiles": Law("its answers for a tile are that part of the whole", tiles),
    "reach": Law("what reach skips holds nothing, what it calls whole hides nothing", reach),
    "joined": Law("& | ~ are those of its answers", joined),
    "heads": Law("over_heads() puts one axis at −3", over_heads),
    "positions": Law("positions for each text give the same answers", batched_positions),
    "kind": Law("the kind that it declares is true", kind),
    "kernels": Law("every kernel hides the same, forward and backward", kernels),
    "twice": Law("the same positions twice give the same answers", twice),
    "quiet": Law("no warnings", quiet),
}
