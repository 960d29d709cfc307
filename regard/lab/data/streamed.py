"""Text pairs from files too large for memory: the training pairs stay on the disk.

One pass over the files loads validation and test into memory, and counts the rest. Training then
reads tokens that were written to the disk once (`regard.lab.data.stored`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from regard.core.errors import RegardError
from regard.lab.data.pair_files import PairStream
from regard.lab.data.pairs import Pair, PairCorpus, StreamedPairs
from regard.lab.data.stored import fingerprint_of

LARGE = 200_000_000  # bytes of text above which train is not kept in memory
HELD = 5_000  # approximate pairs of validation and of test
BYTES = 100  # approximate bytes of a pair

Split = Callable[[str], str]


def share_of(size: int, usual: float) -> float:
    """Return the fraction to hold out: `usual`, or for a large file about `HELD` pairs.

    >>> share_of(1_000_000, 0.05), share_of(1_000_000_000, 0.05)
    (0.05, 0.0005)
    """
    return min(usual, HELD * BYTES / max(size, 1))


def stream_corpus(
    name: str,
    stream: PairStream,
    paths: Sequence[Path],
    *,
    side_of: Callable[[str], str],
    key: Callable[[str], str],
    given: Mapping[str, Sequence[Pair]],
    notes: Iterable[str],
    examples: int,
    seed: int,
    says: str,
    languages: tuple[str, str],
) -> PairCorpus:
    """Return a corpus whose training pairs stay on the disk.

    `side_of` returns the split of a source text; `key` is the same for equivalent sources. `given`
    are the pairs of validation and test files, with their `notes`: they are dropped from train, and
    test pairs also from validation. `says` has the settings that enter the fingerprint in addition
    to the files. Raises: a split without pairs.
    """
    tested = {key(pair.source) for pair in given.get("test", ())}
    checked = [pair for pair in given.get("validation", ()) if key(pair.source) not in tested]
    later = tested | {key(pair.source) for pair in checked}
    held: dict[str, list[Pair]] = {"validation": checked, "test": list(given.get("test", ()))}
    count = dropped = 0
    for pair in stream:
        side = side_of(pair.source)
        if later and key(pair.source) in later:
            dropped += 1
        elif side == "train":
            count += 1
        else:
            held[side].append(pair)
    for side, pairs_count in (
        ("train", count),
        *((side, len(some)) for side, some in held.items()),
    ):
        if not pairs_count:
            raise RegardError(
                f"{name}: no pairs for {side}; "
                + ("set a larger fraction, validation=0.1" if side == "validation" else "")
                + ("give a test file with test=FILE" if side == "test" else "")
                + ("add pairs" if side == "train" else "")
            )
    chosen = _chosen(count, examples, seed)

    def read() -> Iterator[Pair]:
        place = 0
        wanted = iter(chosen if chosen is not None else ())
        next_ = next(wanted, None)
        for pair in stream:
            if side_of(pair.source) != "train" or (later and key(pair.source) in later):
                continue
            if chosen is None:
                yield pair
            elif place == next_:
                yield pair
                next_ = next(wanted, None)
                if next_ is None:
                    return
            place += 1

    digest = hashlib.sha256(f"{fingerprint_of(*paths)} {says} {examples} {seed}".encode())
    for side, pairs in given.items():
        digest.update(f"{side} {len(pairs)}".encode())
        for pair in pairs:
            digest.update(repr((pair.source, pair.target)).encode())
    used = len(chosen) if chosen is not None else count
    all_notes = [
        *stream.notes,
        *notes,
        f"{used:,} pairs of train are streamed from the disk",
    ]
    all_notes += [
        f"{len(some):,} pairs split off as {side}, by a hash of the source"
        for side, some in held.items()
        if side not in given
    ]
    if dropped:
        others = " or ".join(given)
        all_notes.append(f"{dropped:,} pairs of train dropped: source also in {others}")
    if many := len(given.get("validation", ())) - len(checked):
        all_notes.append(f"{many:,} pairs of validation dropped: source also in test")
    return PairCorpus(
        name,
        StreamedPairs(used, digest.hexdigest(), read),
        held["validation"],
        held["test"],
        digest.hexdigest(),
        tuple(all_notes),
        languages,
    )


def _chosen(
    count: int, examples: int, seed: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """Return the indexes of the selected pairs, in order; None for all."""
    if not 0 < examples < count:
        return None
    random = np.random.Generator(np.random.PCG64(seed))
    return np.sort(random.permutation(count)[:examples])
