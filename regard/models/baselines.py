"""What a network must beat: linear models on counted words and pairs of words, by scikit-learn.

They read whole texts, in whatever length, and need no vectors. Nothing is pickled: the terms are
a text file, one a line, the numbers safetensors.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from regard.errors import RegardError, UntrainableError, look_up
from regard.models.settings import NaiveBayesSVMSettings, TfidfSettings
from regard.reading import checked, read_json
from regard.settings import Settings, build

M = TypeVar("M", bound="LinearModel")
Sparse = Any  # scipy's csr matrix (texts, terms)
# Words and signs as the tokenizer `words` cuts them: "don't" is "do n't"; Chinese and Japanese by
# character; marks of punctuation count.
HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = (
    rf"[{HAN}]|[^\W{HAN}]+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b"
    rf"|\d+(?:[.,]\d+)+|[^\W{HAN}]+|\.{{2,}}|[^\w\s\ud800-\udfff]"
)
SampleWeight = NDArray[np.floating] | None  # of each text; None: all alike
NEVER = -100.0  # the score of a label that was never seen


class Weighed(NamedTuple):
    """A text's words as they were counted and what each adds to a score: ``of`` says to which.

    ``terms`` are the words and pairs of words that the model knows; what they add and ``bias`` make
    up the score.
    """

    words: list[str]
    weights: NDArray[np.float64]
    terms: dict[str, float]
    bias: float
    of: str

    @property
    def score(self) -> float:
        """Log odds of logistic regression, or the margin of an SVM."""
        return self.bias + sum(self.terms.values())


class LinearModel(ABC):
    """scores = features of counted words and pairs of words · weights + bias, a column an output.

    A subclass says what the features are and learns the weights; here are the counting, the words'
    shares in a score, and the files.
    """

    name: ClassVar[str]
    #: Arrays with a number for each term, beside the weights and the bias.
    by_term: ClassVar[tuple[str, ...]] = ()
    settings_class: ClassVar[type[Settings]]

    def __init__(self, settings: Any, labels: int) -> None:
        self.settings = settings
        self.labels = labels
        self.terms: list[str] = []
        self.arrays: dict[str, NDArray[np.float32]] = {}

    @property
    def columns(self) -> int:
        """Outputs of the linear map."""
        return self.labels

    @abstractmethod
    def features(self, counts: Sparse) -> Sparse:
        """What the weights multiply."""

    def count(self, texts: Sequence[str]) -> Sparse:
        """Find the terms of the texts to learn from, and count them: (texts, terms).

        Errors: no term in as many texts as ``minimum`` asks.
        """
        counter = self._counter(min_df=min(self.settings.minimum, len(texts)))
        try:
            counts = counter.fit_transform(texts)
        except ValueError:
            raise UntrainableError(
                f"no word stands in {self.settings.minimum} of the {len(texts)} texts that "
                f"{self.name} learns from; give more texts or minimum=1"
            ) from None
        self.terms = counter.get_feature_names_out().tolist()
        return counts

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(texts, columns). A text without a known term is answered by the bias."""
        if not self.terms:
            raise RegardError(f"{self.name} has learned nothing yet; fit it first")
        if not len(texts):
            return np.zeros((0, self.columns))
        counts = self._counter(vocabulary=self.terms).transform(texts)
        found = self.features(counts) @ self.arrays["weights"].T + self.arrays["bias"]
        return np.asarray(found, dtype=np.float64)

    def shares(self, text: str, column: int, of: str = "", sign: int = 1) -> Weighed:
        """What each word of a text adds to the score of a column, or with ``sign`` −1 takes of it.

        A term adds feature · weight; every place where it stands has an equal share of that, and of
        a pair of words each has half. The words' weights and the bias make up the score.
        """
        counter = self._counter(vocabulary=self.terms)
        words = counter.build_tokenizer()(counter.build_preprocessor()(text))
        row = self.features(counter.transform([text])).tocoo()
        adds = {
            self.terms[term]: sign * float(value * self.arrays["weights"][column, term])
            for term, value in zip(row.col, row.data, strict=True)
        }
        places: dict[str, list[range]] = {}
        for size in range(1, self.settings.ngrams + 1):
            for start in range(len(words) - size + 1):
                stands = range(start, start + size)
                places.setdefault(" ".join(words[i] for i in stands), []).append(stands)
        weights = np.zeros(len(words))
        for term, weight in adds.items():
            for stands in places[term]:
                weights[list(stands)] += weight / len(places[term]) / len(stands)
        return Weighed(words, weights, adds, sign * float(self.arrays["bias"][column]), of)

    def save(self, folder: Path) -> None:
        """Write baseline.json, terms.txt and baseline.safetensors into a folder that exists."""
        description = {
            "baseline": self.name,
            "labels": self.labels,
            "settings": self.settings.model_dump(),
        }
        (folder / "baseline.json").write_text(json.dumps(description, indent=1), encoding="utf-8")
        (folder / "terms.txt").write_text("\n".join(self.terms) + "\n", encoding="utf-8")
        # safetensors writes memory as it lies and would mix up arrays in Fortran's order.
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        save_file(arrays, folder / "baseline.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote, of this class; an abstract one loads any.

        Errors: a file is missing, or of another class.
        """
        return load(folder, {cls.name: cls} if hasattr(cls, "name") else None)

    def must_be_whole(self, folder: Path) -> None:
        """Errors: arrays that are missing, not finite, or of another size than terms and labels."""
        terms, columns = len(self.terms), self.columns
        due: dict[str, tuple[int, ...]] = {"weights": (columns, terms), "bias": (columns,)}
        due |= dict.fromkeys(self.by_term, (terms,))
        if not terms or len({*self.terms}) < terms:
            raise RegardError(f"{folder}: terms.txt holds no terms, or one twice")
        if due != {name: array.shape for name, array in self.arrays.items()}:
            raise RegardError(
                f"{folder}: terms.txt, baseline.json and baseline.safetensors do not belong "
                "together"
            )
        for name, array in self.arrays.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise RegardError(f"{folder}: {name} has numbers that are not finite")

    def _counter(self, **options: Any) -> Any:
        return CountVectorizer(
            preprocessor=_plain,
            token_pattern=WORD,
            ngram_range=(1, self.settings.ngrams),
            dtype=np.float32,
            **options,
        )


class TfidfFeatures(LinearModel):
    """TF-IDF of words and pairs of words.

    Feature of term t in a text: (1 + log count) · (1 + log((1 + N)/(1 + texts with t))), each text
    scaled to length 1.
    """

    by_term = ("rarity",)

    def features(self, counts: Sparse) -> Sparse:
        """Sublinear TF-IDF."""
        rarity = self.arrays["rarity"]
        weighed = counts.copy()
        weighed.data = (1 + np.log(counts.data)) * rarity[counts.indices]
        return normalize(weighed, copy=False)

    def learn_rarity(self, counts: Sparse) -> None:
        """Set how rare each term is among the texts of these counts."""
        texts = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = 1 + np.log((1 + counts.shape[0]) / (1 + texts))
        self.arrays = {"rarity": rarity.astype(np.float32)}


class Baseline(LinearModel):
    """Texts to label probabilities.

    With two labels there is one column of weights, for the second label against the first.
    """

    @property
    def columns(self) -> int:
        """One for two labels, else one a label."""
        return 1 if self.labels == 2 else self.labels

    @abstractmethod
    def learn(
        self, counts: Sparse, labels: NDArray[np.integer], sample_weight: SampleWeight
    ) -> None:
        """Set ``arrays`` ("weights", "bias", …) from counted terms and label numbers."""

    @abstractmethod
    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """(texts, columns) scores to (texts, labels) probabilities."""

    def fit(
        self,
        texts: Sequence[str],
        labels: NDArray[np.integer],
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Count the terms of the texts and learn from them; labels are numbers from 0.

        `weights` are of the labels, in the loss of the linear model (scikit-learn's sample_weight).
        A label without a text gets next to no probability. Errors: texts of fewer than two
        labels; no term in as many texts as ``minimum`` asks.
        """
        labels = np.asarray(labels)
        known = len(np.unique(labels))
        if known < 2:
            raise RegardError(
                f"{self.name} learns to tell labels apart, and its texts have {known}; give texts "
                "of two or more"
            )
        self.learn(self.count(texts), labels, None if weights is None else weights[labels])
        return self

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(texts, labels), rows sum to 1. A text without a known term is answered by the bias."""
        scores = self.scores(texts)
        return self.to_probabilities(scores) if len(scores) else np.zeros((0, self.labels))

    def weigh(self, text: str, label: int, name: str = "") -> Weighed:
        """What each word of a text adds to the score of a label of this ``name``: see `shares`.

        With two labels the score of the first is minus that of the second.

        >>> texts, labels = ["good film", "bad film", "good", "bad"], np.array([1, 0, 1, 0])
        >>> model = Tfidf(TfidfSettings(minimum=1), 2).fit(texts, labels)
        >>> found = model.weigh("A GOOD film", 1)
        >>> found.words, [bool(weight > 0.01) for weight in found.weights]
        (['a', 'good', 'film'], [False, True, True])
        """
        sign, column = (2 * label - 1, 0) if self.labels == 2 else (1, label)
        return self.shares(text, column, f"the score of {name}", sign)


class Tfidf(TfidfFeatures, Baseline):
    """Logistic regression on `TfidfFeatures`."""

    name = "tfidf"
    settings_class = TfidfSettings

    def learn(
        self, counts: Sparse, labels: NDArray[np.integer], sample_weight: SampleWeight
    ) -> None:
        """Rarity of each term, then logistic regression."""
        self.learn_rarity(counts)
        model = LogisticRegression(C=self.settings.inverse_penalty, max_iter=1000)
        model.fit(self.features(counts), labels, sample_weight)
        weights, bias = np.zeros((self.labels, counts.shape[1])), np.full(self.labels, NEVER)
        bias[model.classes_] = 0.0
        columns = model.classes_[-len(model.coef_) :]  # of two labels the second against the first
        weights[columns], bias[columns] = model.coef_, model.intercept_
        if self.labels == 2:
            weights, bias = weights[1:], bias[1:]
        self.arrays["weights"] = weights.astype(np.float32)
        self.arrays["bias"] = bias.astype(np.float32)

    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """The logistic function of one column, softmax of several."""
        if self.labels == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        odds = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(odds / odds.sum(1, keepdims=True))


class NaiveBayesSVM(Baseline):
    """Linear SVM on r ∘ [term is in the text], drawn towards naive Bayes. Wang & Manning 2012.

    r = log((p/‖p‖₁)/(q/‖q‖₁)), p and q the smoothed counts of texts of the label and of the others
    in which each term stands (section 2.1). The SVM's weights w become (1 − β) w̄ + β w with w̄ the
    mean of |w| (section 2.3) and β `interpolation`; its bias becomes β b; both are scaled so that
    the margins of the training texts keep their size. With more than two
    labels, one SVM a label against the rest. The squared hinge is smallest at margin 2P − 1, so
    P = (1 + margin)/2, kept in [0.001, 0.999].
    """

    name = "nb-svm"
    settings_class = NaiveBayesSVMSettings

    def features(self, counts: Sparse) -> Sparse:
        """1 where a term stands in a text; r is already in the weights."""
        present = counts.copy()
        present.data = np.ones_like(counts.data)
        return present

    def learn(
        self, counts: Sparse, labels: NDArray[np.integer], sample_weight: SampleWeight
    ) -> None:
        """One log-count ratio and one SVM for each column."""
        present = self.features(counts)
        weights, bias = [], []
        for label in [1] if self.labels == 2 else range(self.labels):
            mine = labels == label
            if not mine.any():
                weights.append(np.zeros(present.shape[1]))
                bias.append(NEVER)
                continue
            ratio = self._log_count_ratio(present, mine)
            weighed = present.copy()
            weighed.data = ratio[present.indices]
            model = LinearSVC(C=self.settings.inverse_penalty, random_state=0, max_iter=10_000)
            model.fit(weighed, mine, sample_weight)
            drawn, shift = self._towards_naive_bayes(
                weighed, model.coef_[0], float(model.intercept_[0])
            )
            weights.append(ratio * drawn)
            bias.append(shift)
        self.arrays = {
            "weights": np.stack(weights).astype(np.float32),
            "bias": np.array(bias, dtype=np.float32),
        }

    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """(1 + margin)/2 within bounds; several labels share in proportion."""
        chance = np.where(scores == NEVER, 1e-12, np.clip((1 + scores) / 2, 0.001, 0.999))
        if self.labels == 2:
            return np.hstack([1 - chance, chance])
        return np.asarray(chance / chance.sum(1, keepdims=True))

    def _towards_naive_bayes(
        self, weighed: Sparse, own: NDArray[np.floating], bias: float
    ) -> tuple[NDArray[np.floating], float]:
        """Interpolate the SVM's weights with their mean size, and its bias with 0.

        The result is scaled so that the margins of the training texts are, in least squares, the
        SVM's own: the interpolation shrinks them, and with them the stated confidence.
        """
        share = self.settings.interpolation
        drawn, shift = (1 - share) * np.abs(own).mean() + share * own, share * bias
        before, after = weighed @ own + bias, weighed @ drawn + shift
        scale = float(before @ after) / max(float(after @ after), 1e-12)
        scale = scale if scale > 0 else 1.0
        return scale * drawn, scale * shift

    def _log_count_ratio(self, present: Sparse, mine: NDArray[np.bool_]) -> NDArray[np.float32]:
        p = self.settings.smoothing + np.asarray(present[mine].sum(0)).ravel()
        q = self.settings.smoothing + np.asarray(present[~mine].sum(0)).ravel()
        return np.asarray(np.log((p / p.sum()) / (q / q.sum())), dtype=np.float32)


BASELINES: dict[str, type[Baseline]] = {"tfidf": Tfidf, "nb-svm": NaiveBayesSVM}


@dataclass(frozen=True)
class _Saved:
    """``baseline.json``."""

    baseline: str
    labels: Annotated[int, Field(ge=1)]
    settings: dict[str, Any]


def load(folder: Path, kinds: Mapping[str, type[M]] | None = None) -> M:
    """The model that `LinearModel.save` wrote into a folder: of these ``kinds``, by name.

    Errors: a file is missing, or does not hold what it should.
    """
    known: Mapping[str, type[Any]] = kinds or BASELINES
    said = checked(_Saved, read_json(folder / "baseline.json"), folder / "baseline.json")
    if said.baseline not in known and said.baseline in BASELINES:
        raise RegardError(f"{folder} holds {said.baseline}, not {', '.join(known)}")
    cls = look_up(known, said.baseline, "baseline")
    if issubclass(cls, Baseline) and said.labels < 2:
        raise RegardError(f"{folder / 'baseline.json'}: labels are {said.labels}, not 2 or more")
    baseline: M = cls(build(cls.settings_class, said.settings), said.labels)
    try:
        baseline.terms = (folder / "terms.txt").read_text(encoding="utf-8").split("\n")[:-1]
        baseline.arrays = load_file(folder / "baseline.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RegardError(f"{folder} does not hold a saved baseline: {error}") from None
    baseline.must_be_whole(folder)
    return baseline


def _plain(text: str) -> str:
    return text.replace("<br />", " ").lower()
