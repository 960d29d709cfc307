"""Text pairs for translation, and corpora of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Bool
from numpy import ndarray

from regard.lab.data.examples import Example


@dataclass(frozen=True, slots=True)
class Pair:
    """A source text, its target text, and their location: ``train.de:12``."""

    source: str
    target: str
    place: str

    @property
    def example(self) -> Example:
        """Return the source as a text, with the target as its label."""
        return Example(self.source, self.target, self.place)

    def alignment(self) -> Bool[ndarray, "target source"] | None:
        """Return the source characters of each target character, if known.

        A row may be empty: the dashes of a date come from no source character.
        """
        return None


@dataclass(frozen=True)
class StreamedPairs:
    """Pairs that are read from the disk on each iteration, with their number.

    ``fingerprint`` identifies the files and the selection.
    """

    count: int
    fingerprint: str
    read: Callable[[], Iterator[Pair]] = field(repr=False)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Pair]:
        return self.read()


@dataclass(frozen=True)
class PairCorpus:
    """Pairs in three splits; no source text is in two of them.

    The fingerprint is a sha256 over all texts in order, ``notes`` describe what was dropped or
    split off, ``languages`` are those of source and target if known.
    """

    name: str
    train: Sequence[Pair] | StreamedPairs
    validation: Sequence[Pair]
    test: Sequence[Pair]
    fingerprint: str
    notes: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")
