"""What a model that writes must beat: the input itself, one text for all, the likest pair's text.

Nothing is pickled: the texts that are needed to write are lines of JSON.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from regard.errors import RegardError, UntrainableError, look_up
from regard.models.settings import NeighbourSettings, NoSettings
from regard.reading import checked, parse_rows, read_bytes, read_json
from regard.settings import Settings, build

KEPT = 1_000  # commonest texts that are kept
AT_ONCE = 256  # texts whose neighbours are looked for at once


class TextBaseline(ABC):
    """Writes a text for a text without a network. Fit it to pairs first."""

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = NoSettings

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        #: It keeps texts and no numbers.
        self.arrays: dict[str, Any] = {}
        #: What it has learned: pairs of a text and what was written for it.
        self.pairs: list[tuple[str, str]] = []

    @abstractmethod
    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn from pairs of a source and its target."""

    @abstractmethod
    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return what is written for each text: so many at most, the best first."""

    def save(self, folder: Path) -> None:
        """Write baseline.json and pairs.jsonl into a folder that exists."""
        said = {"baseline": self.name, "settings": self.settings.model_dump()}
        (folder / "baseline.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
        lines = (
            json.dumps({"source": source, "target": target}, ensure_ascii=False)
            for source, target in self.pairs
        )
        text = "".join(f"{line}\n" for line in lines)
        (folder / "pairs.jsonl").write_text(text, encoding="utf-8")

    def must_have_learned(self) -> None:
        """Errors: it was not fitted."""
        if not self.pairs:
            raise RegardError(f"{self.name} has learned nothing yet; fit it first")


class Copy(TextBaseline):
    """Writes what it reads.

    >>> Copy(NoSettings()).write(["ein Hund"])
    [['ein Hund']]
    """

    name = "copy"

    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn nothing."""

    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return each text itself."""
        return [[text] for text in texts]


class MostFrequentText(TextBaseline):
    """Writes the target that is the commonest of all, whatever it reads.

    >>> model = MostFrequentText(NoSettings())
    >>> model.fit([("a", "x"), ("b", "y"), ("c", "y")])
    >>> model.write(["d"], best=2)
    [['y', 'x']]
    """

    name = "most-frequent"

    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Count the targets."""
        counts = Counter(target for _, target in pairs)
        if not counts:
            raise UntrainableError(f"{self.name} has no pairs to learn from")
        self.pairs = [("", target) for target, _ in counts.most_common(KEPT)]

    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return the commonest targets."""
        self.must_have_learned()
        return [[target for _, target in self.pairs[:best]] for _ in texts]


class NearestNeighbour(TextBaseline):
    """Writes the target of the pair whose source is the likest: a translation memory.

    Likeness is the cosine of TF-IDF of the runs of 2 to ``ngrams`` letters within words (Salton &
    Buckley 1988). Of more than ``examples`` pairs an even share is kept.

    >>> model = NearestNeighbour(NeighbourSettings())
    >>> model.fit([("a small dog", "un petit chien"), ("a black cat", "un chat noir")])
    >>> model.write(["the dog"])
    [['un petit chien']]
    """

    name = "nearest-neighbour"
    settings_class = NeighbourSettings

    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Keep the pairs."""
        found = list(pairs)
        far = -(-len(found) // self.settings.examples)
        self.pairs = [pair for pair in found[:: max(far, 1)] if pair[0].strip()]
        if not self.pairs:
            raise UntrainableError(f"{self.name} has no pairs to learn from")
        self.index()

    def index(self) -> None:
        """Weigh the letters of the pairs that were kept."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._weigh = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(min(2, self.settings.ngrams), self.settings.ngrams),
            sublinear_tf=True,
            dtype=np.float32,
        )
        try:
            self._known = self._weigh.fit_transform([source for source, _ in self.pairs]).T.tocsr()
        except ValueError as error:
            raise UntrainableError(f"{self.name} finds no letters in its pairs: {error}") from None

    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return the targets of the likest sources; the first pair's where none is like a text."""
        self.must_have_learned()
        found: list[list[str]] = []
        for start in range(0, len(texts), AT_ONCE):
            alike = (self._weigh.transform(texts[start : start + AT_ONCE]) @ self._known).toarray()
            order = np.argsort(-alike, axis=1, kind="stable")[:, :best]
            found += [[self.pairs[i][1] for i in row] for row in order]
        return found


TEXT_BASELINES: dict[str, type[TextBaseline]] = {
    model.name: model for model in (Copy, MostFrequentText, NearestNeighbour)
}


class _Saved(BaseModel):
    """``baseline.json``."""

    baseline: str
    settings: dict[str, Any]


class _Pair(BaseModel):
    source: Annotated[str, Field(strict=True)]
    target: Annotated[str, Field(strict=True)]


def load(folder: Path) -> TextBaseline:
    """Return what `TextBaseline.save` wrote. Errors: a file is missing, or damaged."""
    said = checked(_Saved, read_json(folder / "baseline.json"), folder / "baseline.json")
    cls = look_up(TEXT_BASELINES, said.baseline, "baseline")
    model = cls(build(cls.settings_class, said.settings))
    path = folder / "pairs.jsonl"
    rows = parse_rows(read_bytes(path), str(path))
    pairs = [checked(_Pair, row, path) for row in rows]
    model.pairs = [(pair.source, pair.target) for pair in pairs]
    if isinstance(model, NearestNeighbour):
        model.must_have_learned()
        model.index()
    return model
