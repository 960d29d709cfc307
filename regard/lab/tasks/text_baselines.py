"""Baselines of models that generate texts: copies, the most frequent text, nearest neighbours.

Nothing is pickled: the pairs are saved as lines of JSON.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, Field

from regard.core.errors import RegardError, UntrainableError
from regard.core.reading import checked, parse_rows, read_bytes, read_json
from regard.core.settings import Settings, build
from regard.lab.tasks.baseline_settings import NeighbourSettings, NoSettings

KEPT = 1_000  # number of most frequent texts that are kept
AT_ONCE = 256  # texts in one search for neighbours


class TextBaseline(ABC):
    """A model without a network that maps texts to texts. Fit it to pairs first."""

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = NoSettings

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        #: Saved arrays: none.
        self.arrays: dict[str, Any] = {}
        #: Pairs of source and target that were learned.
        self.pairs: list[tuple[str, str]] = []

    @abstractmethod
    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Learn from pairs of a source and its target."""

    @abstractmethod
    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return up to ``best`` texts for each text, the best first."""

    def save(self, folder: Path) -> None:
        """Write baseline.json and pairs.jsonl into an existing folder."""
        description = {"baseline": self.name, "settings": self.settings.model_dump()}
        (folder / "baseline.json").write_text(json.dumps(description, indent=1), encoding="utf-8")
        lines = (
            json.dumps({"source": source, "target": target}, ensure_ascii=False)
            for source, target in self.pairs
        )
        text = "".join(f"{line}\n" for line in lines)
        (folder / "pairs.jsonl").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a model that `save` wrote. Raises: a damaged file; a model of another class."""
        saved = checked(_Saved, read_json(folder / "baseline.json"), folder / "baseline.json")
        if saved.baseline != cls.name:
            raise RegardError(
                f"{folder} contains {saved.baseline}, not {cls.name}; restore its files, or train "
                "again"
            )
        model = cls(build(cls.settings_class, saved.settings))
        path = folder / "pairs.jsonl"
        rows = parse_rows(read_bytes(path), str(path))
        pairs = [checked(_Pair, row, path) for row in rows]
        model.pairs = [(pair.source, pair.target) for pair in pairs]
        return model

    def must_have_learned(self) -> None:
        """Raise an error if the model is not fitted."""
        if not self.pairs:
            raise RegardError(f"{self.name} is not fitted; call fit first")


class Copy(TextBaseline):
    """A baseline that returns its input.

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
    """A baseline that returns the most frequent target for every text.

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
            raise UntrainableError(f"{self.name} requires training pairs; there are none")
        self.pairs = [("", target) for target, _ in counts.most_common(KEPT)]

    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return the most frequent targets."""
        self.must_have_learned()
        return [[target for _, target in self.pairs[:best]] for _ in texts]


class NearestNeighbour(TextBaseline):
    """A translation memory: returns the target of the pair with the most similar source.

    Similarity is the cosine of TF-IDF of the n-grams of 2 to ``ngrams`` characters within words
    (Salton & Buckley 1988). More than ``examples`` pairs are subsampled evenly.

    >>> model = NearestNeighbour(NeighbourSettings())
    >>> model.fit([("a small dog", "un petit chien"), ("a black cat", "un chat noir")])
    >>> model.write(["the dog"])
    [['un petit chien']]
    """

    name = "nearest-neighbour"
    settings_class = NeighbourSettings

    def fit(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Keep the pairs and build the index."""
        every = list(pairs)
        step = -(-len(every) // self.settings.examples)
        self.pairs = [pair for pair in every[:: max(step, 1)] if pair[0].strip()]
        if not self.pairs:
            raise UntrainableError(f"{self.name} requires training pairs; there are none")
        self.index()

    def index(self) -> None:
        """Build the TF-IDF index of the sources."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.must_have_learned()
        self._vectorizer = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(min(2, self.settings.ngrams), self.settings.ngrams),
            sublinear_tf=True,
            dtype=np.float32,
        )
        try:
            self._known = self._vectorizer.fit_transform(
                [source for source, _ in self.pairs]
            ).T.tocsr()
        except ValueError as error:
            raise UntrainableError(
                f"{self.name}: the sources contain no letters ({error}); check the data"
            ) from None

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the pairs and build the index. Raises: as `TextBaseline.load`; no pairs."""
        model = super().load(folder)
        model.index()
        return model

    def write(self, texts: Sequence[str], best: int = 1) -> list[list[str]]:
        """Return the targets of the most similar sources; the first pair's if none is similar."""
        self.must_have_learned()
        targets: list[list[str]] = []
        for start in range(0, len(texts), AT_ONCE):
            similarity = (
                self._vectorizer.transform(texts[start : start + AT_ONCE]) @ self._known
            ).toarray()
            order = np.argsort(-similarity, axis=1, kind="stable")[:, :best]
            targets += [[self.pairs[i][1] for i in row] for row in order]
        return targets


class _Saved(BaseModel):
    """The content of ``baseline.json``."""

    baseline: str
    settings: dict[str, Any]


class _Pair(BaseModel):
    source: Annotated[str, Field(strict=True)]
    target: Annotated[str, Field(strict=True)]
