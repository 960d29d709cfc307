"""Splits of text pairs into three parts without common source texts."""

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal

from regard.core.errors import RegardError
from regard.lab.data.pairs import Pair, PairCorpus
from regard.lab.data.sources import leaves
from regard.lab.data.spelling import likeness
from regard.lab.data.titles import listed

Side = Literal["train", "validation", "test"]
Parts = dict[Side, Sequence[Pair]]
FEW = 20  # minimum pairs per distinct text of a side that looks like labels
LAST_FIRST: Final[tuple[Side, ...]] = ("test", "validation", "train")


def side_of(unit: str, *, test: float, validation: float, seed: int = 0) -> Side:
    """Return the split of all pairs with this source text (or other unit).

    >>> [side_of(text, test=0.3, validation=0.3) for text in ("a dog", "A  Dog", "a cat")]
    ['train', 'train', 'validation']
    """
    key = likeness(unit)
    if leaves(key, test, f"test {seed}"):
        return "test"
    return "validation" if leaves(key, validation, f"validation {seed}") else "train"


def in_three(
    name: str,
    parts: Parts,
    notes: list[str],
    shares: tuple[float, float],
    seed: int,
    *,
    by_target: bool,
) -> Parts:
    """Split off missing parts, then drop pairs whose source occurs in a later split."""
    test = 0.0 if "test" in parts else shares[0]
    validation = 0.0 if "validation" in parts else shares[1]
    split: dict[Side, list[Pair]] = {"train": [], "validation": [], "test": []}
    for pair in parts["train"]:
        unit = pair.target if by_target else pair.source
        split[side_of(unit, test=test, validation=validation, seed=seed)].append(pair)
    for side in ("validation", "test"):
        if side in parts:
            split[side] = list(parts[side])
        elif split[side]:
            what = "target" if by_target else "source"
            notes.append(f"{len(split[side]):,} pairs split off as {side}, by a hash of the {what}")
    later: set[str] = set()
    for side in LAST_FIRST:
        kept = [pair for pair in split[side] if likeness(pair.source) not in later]
        if len(kept) < len(split[side]):
            notes.append(dropped(len(split[side]) - len(kept), side))
        split[side] = kept
        later.update(likeness(pair.source) for pair in kept)
    for side, pairs in split.items():
        if not pairs:
            raise RegardError(
                f"{name}: no pairs for {side}; {len(parts['train']):,} are too few to split, or "
                "all occur in a later split; add pairs, or give a test file with test=FILE"
            )
    return dict(split)


def labels_in(pairs: Sequence[Pair], name: str) -> list[str]:
    """Return a warning if one side of many pairs has few distinct texts, like labels."""
    sides = {likeness(pair.source): pair for pair in pairs}, {likeness(x.target): x for x in pairs}
    few, many = sorted(sides, key=len)
    if len(many) < FEW or FEW * len(few) > len(many):
        return []
    which = "target" if few is sides[1] else "source"
    shown = [getattr(pair, which) for pair in islice(few.values(), 3)]
    return [
        f"{len(pairs):,} pairs have only {len(few):,} distinct {which} texts ({listed(shown)}, "
        f"first {pairs[0].place}); for texts with labels use "
        f"regard train classification --data {name}"
    ]


def dropped(count: int, side: Side) -> str:
    """Return the note about pairs whose source occurs in a later split."""
    later = "validation or test" if side == "train" else "test"
    pairs = f"{count:,} pair" + ("s" if count != 1 else "")
    return f"{pairs} of {side} dropped: source also in {later}"


def corpus_of(name: str, parts: Parts, notes: list[str], names: tuple[str, str]) -> PairCorpus:
    """Return the splits as a corpus, with a digest of all texts."""
    digest = hashlib.sha256()
    for side in ("train", "validation", "test"):
        digest.update(f"{len(parts[side])}\n".encode())
        for pair in parts[side]:
            source, target = pair.source.encode(), pair.target.encode()
            digest.update(b"%d %d\n%b%b" % (len(source), len(target), source, target))
    return PairCorpus(
        name,
        parts["train"],
        parts["validation"],
        parts["test"],
        digest.hexdigest(),
        tuple(notes),
        names,
    )
