"""What translation learns from: a text, the text it becomes, and where they stand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Bool
from numpy import ndarray


@dataclass(frozen=True, slots=True)
class Pair:
    """A text, the text it becomes, and where they stand: ``train.de:12``."""

    source: str
    target: str
    place: str

    def alignment(self) -> Bool[ndarray, "target source"] | None:
        """Which characters of the source each character of the target comes from, if known.

        A row without any is a character that comes from nowhere, as the dashes of a date do.
        """
        return None


@dataclass(frozen=True)
class StreamedPairs:
    """So many pairs that are read from the disk each time they are iterated over.

    ``fingerprint`` is that of their files and of how they were chosen.
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
    """Pairs in three splits; no source text stands on two sides.

    The fingerprint is a sha256 over all texts in order, ``notes`` say what was left out or split
    off, ``languages`` are those of source and target where they are known.
    """

    name: str
    train: Sequence[Pair] | StreamedPairs
    validation: Sequence[Pair]
    test: Sequence[Pair]
    fingerprint: str
    notes: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")
