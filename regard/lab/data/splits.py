"""Splits into train, validation and test by a hash of each text, and texts in two splits."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar

import numpy as np
from jaxtyping import Int64

from regard.lab.data.examples import Example, texts_of
from regard.lab.data.spelling import counted, likeness

Side = Literal["train", "validation", "test"]
SIDES: Final[tuple[Side, ...]] = ("train", "validation", "test")
Row = TypeVar("Row")


def leaves(unit: str, fraction: float, salt: str) -> bool:
    """Return whether a unit is split off, by a hash with the salt."""
    digest = hashlib.sha256(f"{salt}\n{unit}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8]) < fraction * 2**64


def side_of(text: str, *, test: float, validation: float, seed: int = 0) -> Side:
    """Return the split of all rows with this text, by a hash that ignores case and whitespace.

    >>> [side_of(text, test=0.3, validation=0.3) for text in ("a dog", "A  Dog", "a cat")]
    ['train', 'train', 'validation']
    """
    unit = likeness(text)
    if leaves(unit, test, f"test {seed}"):
        return "test"
    return "validation" if leaves(unit, validation, f"validation {seed}") else "train"


def in_three(
    rows: Iterable[Row], text: Callable[[Row], str], *, test: float, validation: float, seed: int
) -> dict[Side, list[Row]]:
    """Return the rows in three splits by the hash of their text."""
    parts: dict[Side, list[Row]] = {side: [] for side in SIDES}
    for row in rows:
        parts[side_of(text(row), test=test, validation=validation, seed=seed)].append(row)
    return parts


def split_by_hash(
    examples: Sequence[Example], fraction: float, salt: str
) -> tuple[list[Example], list[Example]]:
    """Split examples into the kept and the split-off part, by a hash of the group or the text.

    Of two texts, the first counts: the hypotheses on one premise stay together.
    """
    stay: list[Example] = []
    leave: list[Example] = []
    for example in examples:
        unit = example.group or likeness(texts_of(example.text)[0])
        (leave if leaves(unit, fraction, salt) else stay).append(example)
    return stay, leave


def hold_out(
    examples: Sequence[Example], fraction: float = 0.1, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split examples into (train, validation) by a hash of the group, or else of the text.

    Texts of one group stay together, and so do duplicates, ignoring case and whitespace. Whether a
    text is held out depends only on that and the seed, not on other texts. A duplicate of a
    held-out text in another group is in neither part.
    """
    train, held = split_by_hash(examples, fraction, f"validation {seed}")
    if any(example.group for example in examples):
        known = {likeness(example.text) for example in held}
        train = [example for example in train if likeness(example.text) not in known]
    return train, held


def without_later(
    parts: Mapping[Side, Sequence[Row]],
    text: Callable[[Row], str],
    *,
    row: str = "row",
    what: str = "text",
    keep: bool = False,
) -> tuple[dict[Side, list[Row]], list[str]]:
    """Return the splits without rows whose text is in a later split, and notes about them.

    With `keep` the rows are kept and noted. `row` and `what` name a row and its text.
    """
    kept: dict[Side, list[Row]] = {}
    later: dict[Side, set[str]] = {}
    notes = []
    for side in ("test", "validation", "train"):
        if side not in parts:
            continue
        keys = [likeness(text(each)) for each in parts[side]]
        known = set().union(*later.values())
        rest = [each for each, key in zip(parts[side], keys, strict=True) if key not in known]
        if count := len(keys) - len(rest):
            notes.append(moved(count, side, later, row, what, keep=keep))
        kept[side] = list(parts[side]) if keep else rest
        later[side] = {*keys}
    return {side: kept[side] for side in SIDES if side in kept}, notes


def moved(
    count: int, side: Side, later: Iterable[Side], row: str, what: str, *, keep: bool = False
) -> str:
    """Return the note about rows whose text is in a later split.

    >>> moved(2, "train", ["test"], "pair", "source")
    '2 pairs of train dropped: source also in test'
    """
    others = " or ".join(side for side in SIDES if side in {*later})
    done = "kept" if keep else "dropped"
    return f"{counted(count, row)} of {side} {done}: {what} also in {others}"


def chosen(count: int, among: int, seed: int) -> Int64[np.ndarray, " chosen"] | None:
    """Return `count` indexes below `among` in order, chosen by the seed; None for all."""
    if not 0 < count < among:
        return None
    random = np.random.Generator(np.random.PCG64(seed))
    return np.sort(random.permutation(among)[:count])


def fingerprint(*parts: Sequence[tuple[str, str, str]]) -> str:
    """Return a sha256 over both texts of all rows, in order, and what else a row has."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n".encode())
        for first, second, more in part:
            text, answer = first.encode(), second.encode()
            digest.update(b"%d %d\n%b%b%b" % (len(text), len(answer), text, answer, more.encode()))
    return digest.hexdigest()
