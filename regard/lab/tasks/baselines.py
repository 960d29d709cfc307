"""Baselines for networks: linear models on counts of word n-grams, fitted by scikit-learn.

They read texts of any length and need no word vectors. Nothing is pickled: terms are saved as lines
of a text file, numbers as safetensors.
"""

import json
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy import sparse
from scipy.special import softmax
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from regard.core.errors import RegardError, UntrainableError
from regard.core.reading import checked, read_bytes, read_json
from regard.core.settings import Settings, build
from regard.lab.data.examples import SEPARATOR, Input, texts_of
from regard.lab.data.features import matrix
from regard.lab.data.spelling import plain
from regard.lab.tasks.baseline_settings import (
    FastTextSettings,
    NaiveBayesSVMSettings,
    TfidfSettings,
)
from regard.lab.tasks.heads import NEVER, weights_of

Sparse = Any  # scipy's csr matrix (texts, terms)
# Splits as the tokenizer `words` does: "don't" is "do n't"; Chinese and Japanese characters and
# punctuation marks are words.
HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = (
    rf"[{HAN}]|[^\W{HAN}]+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b"
    rf"|\d+(?:[.,]\d+)+|[^\W{HAN}]+|\.{{2,}}|[^\w\s\ud800-\udfff]"
)
#: fastText's own file: its name, maximum bytes, first number and first numbers: args, dictionary.
FASTTEXT, LARGEST, MAGIC = "model.bin", 1_000_000_000, 793_712_314
HEADER = struct.Struct("<2i 12i d 3i q")
BUCKETS = 100_000  # rows for n-grams, which are hashed
LABEL = "__label__"
Numbers = NDArray[np.floating]  # of further columns, (texts, numbers)
SampleWeight = NDArray[np.floating] | None  # for each text; None: equal weights


class Weighed(NamedTuple):
    """The contributions of a text's words to a score, which ``of`` names.

    ``terms`` are the contributions of the n-grams that the model knows; their sum and ``bias`` are
    the score.
    """

    words: list[str]
    weights: NDArray[np.float64]
    terms: dict[str, float]
    bias: float
    of: str

    @property
    def score(self) -> float:
        """Return the log odds of logistic regression, or the margin of an SVM."""
        return self.bias + sum(self.terms.values())


class LinearModel(ABC):
    """A linear model on counts of word n-grams: scores = features · weights + bias.

    A subclass defines the features and learns the weights. This class counts n-grams, attributes
    scores to words, and saves and loads the model. Of two texts, the n-grams of each side are terms
    of their own ("first: good", "second: good"), as are the words in common ("both: good"), which
    are also counted together ("both"). The numbers of further columns follow the terms' features.
    """

    name: ClassVar[str]
    #: Names of additional arrays with one number per term.
    by_term: ClassVar[tuple[str, ...]] = ()
    settings_class: ClassVar[type[Settings]]

    def __init__(self, settings: Any, labels: int) -> None:
        self.settings = settings
        self.labels = labels
        self.terms: list[str] = []
        self.arrays: dict[str, NDArray[np.float32]] = {}

    @property
    def columns(self) -> int:
        """Return the number of outputs of the linear map."""
        return self.labels

    @abstractmethod
    def features(self, counts: Sparse) -> Sparse:
        """Return the features (texts, terms) that the weights multiply."""

    def count(self, texts: Sequence[str]) -> Sparse:
        """Find the terms of the training texts, and return their counts (texts, terms).

        Raises: no term occurs in ``minimum`` texts.
        """
        counter = self._counter(min_df=min(self.settings.minimum, len(texts)))
        try:
            counts = counter.fit_transform(texts)
        except ValueError:
            raise UntrainableError(
                f"{self.name}: no word occurs in minimum={self.settings.minimum} of the "
                f"{len(texts)} training texts; add texts or set minimum=1"
            ) from None
        self.terms = counter.get_feature_names_out().tolist()
        return counts

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the scores (texts, columns): the bias for a text without known terms."""
        if not self.terms:
            raise RegardError(f"{self.name} is not fitted; call fit first")
        if not len(texts):
            return np.zeros((0, self.columns))
        counts = self._counter(vocabulary=self.terms).transform(texts)
        features = joined(self.features(counts), matrix(texts))
        scores = features @ self.arrays["weights"].T + self.arrays["bias"]
        return np.asarray(scores, dtype=np.float64)

    def shares(self, text: str, column: int, of: str = "", sign: int = 1) -> Weighed:
        """Return the contribution of each word to ``sign`` times the score of a column.

        A term contributes feature · weight, divided equally among its occurrences, and each
        occurrence among its words. The contributions and the bias sum to the score.
        """
        words, terms = self._spans(text)
        row = self.features(self._counter(vocabulary=self.terms).transform([text])).tocoo()
        contributions = {
            self.terms[term]: sign * float(value * self.arrays["weights"][column, term])
            for term, value in zip(row.col, row.data, strict=True)
        }
        occurrences: dict[str, list[range]] = {}
        for term, span in terms:
            occurrences.setdefault(term, []).append(span)
        weights = np.zeros(len(words))
        for term, weight in contributions.items():
            for span in occurrences[term]:
                weights[list(span)] += weight / len(occurrences[term]) / len(span)
        numbers = text.numbers if isinstance(text, Input) else {}
        more = self.arrays["weights"][column, len(self.terms) :]
        for (name, number), weight in zip(numbers.items(), more, strict=True):
            contributions[f"[{name}]"] = sign * number * float(weight)
        bias = sign * float(self.arrays["bias"][column])
        return Weighed(words, weights, contributions, bias, of)

    def unknown_in(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the words of each text that are not terms, each once."""
        known = {*self.terms}
        each = (zip(_sides(text), map(self._words, texts_of(text)), strict=True) for text in texts)
        return [
            tuple(dict.fromkeys(w for side, words in sides for w in words if side + w not in known))
            for sides in each
        ]

    def save(self, folder: Path) -> None:
        """Write baseline.json, terms.txt and baseline.safetensors into an existing folder."""
        describe(self, folder)
        (folder / "terms.txt").write_text("\n".join(self.terms) + "\n", encoding="utf-8")
        # safetensors writes memory unchanged, which is wrong for arrays in Fortran order.
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        save_file(arrays, folder / "baseline.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a model that `save` wrote.

        Raises: a file is missing or damaged; a model of another class.
        """
        model: Self
        model, arrays, _ = read_saved(folder, cls)
        try:
            model.terms = (folder / "terms.txt").read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, ValueError) as error:
            raise RegardError(f"{folder} does not contain a saved baseline: {error}") from None
        model.arrays = arrays
        model.must_be_whole(folder)
        return model

    def must_be_whole(self, folder: Path) -> None:
        """Raise an error if arrays are missing, not finite, or do not match terms and labels."""
        terms, columns = len(self.terms), self.columns
        width = max(terms, self.arrays.get("weights", np.zeros((0, 0))).shape[-1])
        shapes: dict[str, tuple[int, ...]] = {"weights": (columns, width), "bias": (columns,)}
        shapes |= dict.fromkeys(self.by_term, (terms,))
        if not terms or len({*self.terms}) < terms:
            raise RegardError(f"{folder}: terms.txt is empty or contains a term twice")
        if shapes != {name: array.shape for name, array in self.arrays.items()}:
            raise RegardError(
                f"{folder}: terms.txt, baseline.json and baseline.safetensors do not match; "
                "restore the files of one run"
            )
        for name, array in self.arrays.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise RegardError(f"{folder}: {name} contains numbers that are not finite")

    def _counter(self, **options: Any) -> Any:
        return CountVectorizer(analyzer=self._terms, dtype=np.float32, **options)

    @cached_property
    def _read(self) -> Any:
        """Return the vectorizer that splits one text into words and n-grams."""
        ngrams = 1, self.settings.ngrams
        return CountVectorizer(preprocessor=_plain, token_pattern=WORD, ngram_range=ngrams)

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        analyze: Callable[[str], list[str]] = self._read.build_analyzer()
        return analyze

    def _words(self, text: str) -> list[str]:
        words: list[str] = self._read.build_tokenizer()(_plain(text))
        return words

    def _terms(self, text: str) -> list[str]:
        """Return the terms of an input, each occurrence once."""
        if len(texts_of(text)) == 1:
            return self._analyze(texts_of(text)[0])
        return [term for term, _ in self._spans(text)[1]]

    def _spans(self, text: str) -> tuple[list[str], list[tuple[str, range]]]:
        """Return the words of an input, and its terms with the words that they stand for."""
        words, spans = list[str](), list[tuple[str, range]]()
        parts = [self._words(part) for part in texts_of(text)]
        common = {*parts[0]} & {*parts[-1]} if len(parts) > 1 else set()
        for side, part in zip(_sides(text), parts, strict=True):
            words += [SEPARATOR] if words else []
            first = len(words)
            words += part
            for size in range(1, self.settings.ngrams + 1):
                for start in range(first, len(words) - size + 1):
                    span = range(start, start + size)
                    spans.append((side + " ".join(words[i] for i in span), span))
            for place in range(first, len(words)):
                if words[place] in common:
                    span = range(place, place + 1)
                    spans += [(f"both: {words[place]}", span), ("both", span)]
        return words, spans


class TfidfFeatures(LinearModel):
    """A linear model on TF-IDF of word n-grams.

    The feature of term t in a text is (1 + log count) · (1 + log((1 + N)/(1 + texts with t))), and
    each text is scaled to length 1.
    """

    by_term = ("rarity",)

    def features(self, counts: Sparse) -> Sparse:
        """Return sublinear TF-IDF."""
        rarity = self.arrays["rarity"]
        weighted = counts.copy()
        weighted.data = (1 + np.log(counts.data)) * rarity[counts.indices]
        return normalize(weighted, copy=False)

    def learn_rarity(self, counts: Sparse) -> None:
        """Compute the inverse document frequency of each term from the counts."""
        texts = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = 1 + np.log((1 + counts.shape[0]) / (1 + texts))
        self.arrays = {"rarity": rarity.astype(np.float32)}


class Baseline(LinearModel):
    """A linear classifier of texts.

    With two labels there is one column of weights, for the second label against the first.
    """

    @property
    def columns(self) -> int:
        """Return one for two labels, otherwise the number of labels."""
        return 1 if self.labels == 2 else self.labels

    def must_be_whole(self, folder: Path) -> None:
        """Raise an error if there are fewer than two labels, or as `LinearModel.must_be_whole`."""
        if self.labels < 2:
            raise RegardError(
                f"{folder / 'baseline.json'}: labels must be at least 2, not {self.labels}"
            )
        super().must_be_whole(folder)

    @abstractmethod
    def learn(
        self,
        counts: Sparse,
        numbers: Numbers,
        labels: NDArray[np.integer],
        sample_weight: SampleWeight,
    ) -> None:
        """Set ``arrays`` ("weights", "bias", …) from counted terms, columns and label numbers."""

    @abstractmethod
    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert scores (texts, columns) to probabilities (texts, labels)."""

    def fit(
        self,
        texts: Sequence[str],
        labels: NDArray[np.integer],
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Count the terms of the texts and fit the model; labels are numbers from 0.

        `weights` are the labels' weights in the loss (scikit-learn's sample_weight). A label
        without texts gets almost no probability.

        Raises: texts of fewer than two labels; no term occurs in ``minimum`` texts.
        """
        labels = np.asarray(labels)
        known = len(np.unique(labels))
        if known < 2:
            raise RegardError(
                f"{self.name} requires training texts with at least two labels, not {known}; add "
                "texts with other labels"
            )
        each = None if weights is None else weights[labels]
        self.learn(self.count(texts), matrix(texts), labels, each)
        return self

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return probabilities (texts, labels); from the bias for a text without terms."""
        scores = self.scores(texts)
        return self.to_probabilities(scores) if len(scores) else np.zeros((0, self.labels))

    def weigh(self, text: str, label: int, name: str = "") -> Weighed:
        """Return the contribution of each word to the score of a label: see `shares`.

        With two labels, the score of the first is minus that of the second. ``name`` is the label's
        name.

        >>> texts, labels = ["good film", "bad film", "good", "bad"], np.array([1, 0, 1, 0])
        >>> model = Tfidf(TfidfSettings(minimum=1), 2).fit(texts, labels)
        >>> result = model.weigh("A GOOD film", 1)
        >>> result.words, [bool(weight > 0.01) for weight in result.weights]
        (['a', 'good', 'film'], [False, True, True])
        """
        sign, column = (2 * label - 1, 0) if self.labels == 2 else (1, label)
        return self.shares(text, column, f"the score of {name}", sign)


class Tfidf(TfidfFeatures, Baseline):
    """Logistic regression on `TfidfFeatures`."""

    name = "tfidf"
    settings_class = TfidfSettings

    def learn(
        self,
        counts: Sparse,
        numbers: Numbers,
        labels: NDArray[np.integer],
        sample_weight: SampleWeight,
    ) -> None:
        """Compute the terms' inverse document frequencies, then fit logistic regression."""
        self.learn_rarity(counts)
        model = LogisticRegression(C=self.settings.inverse_penalty, max_iter=1000)
        model.fit(joined(self.features(counts), numbers), labels, sample_weight)
        weights, bias = weights_of(model, self.labels)
        if self.labels == 2:
            weights, bias = weights[1:], bias[1:]
        self.arrays["weights"] = weights.astype(np.float32)
        self.arrays["bias"] = bias.astype(np.float32)

    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Apply the logistic function to one column, softmax to several."""
        if self.labels == 2:
            scores = np.hstack([np.zeros_like(scores), scores])
        return np.asarray(softmax(scores, axis=1))


class NaiveBayesSVM(Baseline):
    """Linear SVM on r ∘ [term is in the text], interpolated with naive Bayes. Wang & Manning 2012.

    r = log((p/‖p‖₁)/(q/‖q‖₁)) with p and q the smoothed numbers of texts with the label, and of
    other texts, that contain each term (section 2.1). The SVM's weights w become (1 − β) w̄ + β w
    with w̄ the mean of |w| (section 2.3) and β the setting `interpolation`; its bias becomes β b;
    both are scaled so that the margins of the training texts keep their size. With more than two
    labels there is one SVM for each label against the rest. The expected squared hinge loss is
    minimal at margin 2P − 1, so P = (1 + margin)/2, clipped to [0.001, 0.999].
    """

    name = "nb-svm"
    settings_class = NaiveBayesSVMSettings

    def features(self, counts: Sparse) -> Sparse:
        """Return 1 for each term in a text; the weights include r."""
        present = counts.copy()
        present.data = np.ones_like(counts.data)
        return present

    def learn(
        self,
        counts: Sparse,
        numbers: Numbers,
        labels: NDArray[np.integer],
        sample_weight: SampleWeight,
    ) -> None:
        """Compute a log-count ratio and fit an SVM for each column."""
        present = self.features(counts)
        weights, bias = [], []
        for label in [1] if self.labels == 2 else range(self.labels):
            positive = labels == label
            if not positive.any():
                weights.append(np.zeros(present.shape[1] + numbers.shape[1]))
                bias.append(NEVER)
                continue
            ratio = self._log_count_ratio(present, positive)
            weighted = present.copy()
            weighted.data = ratio[present.indices]
            weighted = joined(weighted, numbers)
            model = LinearSVC(C=self.settings.inverse_penalty, random_state=0, max_iter=10_000)
            model.fit(weighted, positive, sample_weight)
            coefficients, intercept = self._towards_naive_bayes(
                weighted, model.coef_[0], float(model.intercept_[0]), present.shape[1]
            )
            coefficients[: present.shape[1]] *= ratio
            weights.append(coefficients)
            bias.append(intercept)
        self.arrays = {
            "weights": np.stack(weights).astype(np.float32),
            "bias": np.array(bias, dtype=np.float32),
        }

    def to_probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (1 + margin)/2, clipped; with more than two labels also normalised."""
        clipped = np.where(scores == NEVER, 1e-12, np.clip((1 + scores) / 2, 0.001, 0.999))
        if self.labels == 2:
            return np.hstack([1 - clipped, clipped])
        return np.asarray(clipped / clipped.sum(1, keepdims=True))

    def _towards_naive_bayes(
        self, features: Sparse, weights: NDArray[np.floating], bias: float, terms: int
    ) -> tuple[NDArray[np.floating], float]:
        """Interpolate the SVM's weights of terms with their mean size, and all others with 0.

        Interpolation shrinks the margins of the training texts, and with them the probabilities, so
        the result is scaled by least squares to the SVM's own margins.
        """
        share = self.settings.interpolation
        mixed, shift = share * weights, share * bias
        mixed[:terms] += (1 - share) * np.abs(weights[:terms]).mean()
        before, after = features @ weights + bias, features @ mixed + shift
        scale = float(before @ after) / max(float(after @ after), 1e-12)
        scale = scale if scale > 0 else 1.0
        return scale * mixed, scale * shift

    def _log_count_ratio(self, present: Sparse, positive: NDArray[np.bool_]) -> NDArray[np.float32]:
        p = self.settings.smoothing + np.asarray(present[positive].sum(0)).ravel()
        q = self.settings.smoothing + np.asarray(present[~positive].sum(0)).ravel()
        return np.asarray(np.log((p / p.sum()) / (q / q.sum())), dtype=np.float32)


@dataclass(frozen=True)
class _Saved:
    """The content of ``baseline.json``."""

    baseline: str
    labels: Annotated[int, Field(ge=1)]
    settings: dict[str, Any]
    sha256: str = ""  # the fingerprint of a pretrained encoder
    inverse_penalty: float = 1.0


def describe(model: Any, folder: Path, **more: Any) -> None:
    """Write baseline.json: the model's name, labels and settings, and ``more``."""
    settings = model.settings.model_dump()
    description = {"baseline": model.name, "labels": model.labels, "settings": settings, **more}
    (folder / "baseline.json").write_text(json.dumps(description, indent=1), encoding="utf-8")


def _described(folder: Path) -> _Saved:
    """Return the content of ``baseline.json``. Raises: it is missing or damaged."""
    return checked(_Saved, read_json(folder / "baseline.json"), folder / "baseline.json")


class FastText:
    """fastText's classifier: softmax of the mean of vectors of words and hashed n-grams.

    Joulin et al. 2017. It is trained by the package ``fasttext`` in one thread, so equal texts give
    equal models; the file is fastText's own. Raises: the package is not installed.
    """

    name = "fasttext"

    def __init__(self, settings: FastTextSettings, labels: int) -> None:
        self.settings, self.labels = settings, labels
        self.model: Any = None
        if find_spec("fasttext") is None:
            raise RegardError("the package fasttext is not installed: pip install fasttext-wheel")

    def fit(
        self,
        texts: Sequence[str],
        labels: NDArray[np.integer],
        weights: NDArray[np.floating] | None = None,
    ) -> Self:
        """Train on texts and label numbers. Raises: weights of labels, which it does not have."""
        import fasttext

        if weights is not None:
            raise RegardError("fasttext has no weights of labels; leave class_weights out")
        settings = self.settings
        with TemporaryDirectory() as aside:
            lines = (f"{LABEL}{y} {x}" for x, y in zip(map(_spaced, texts), labels, strict=True))
            (Path(aside) / "texts").write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.model = fasttext.train_supervised(
                str(Path(aside) / "texts"),
                dim=settings.width,
                epoch=settings.epoch,
                lr=settings.lr,
                wordNgrams=settings.ngrams,
                minCount=settings.minimum,
                bucket=BUCKETS if settings.ngrams > 1 else 0,
                thread=1,
                verbose=0,
            )
        return self

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return probabilities (texts, labels); equal ones for a text without words."""
        rows = np.zeros((len(texts), self.labels))
        for row, text in zip(rows, texts, strict=True):
            for chance, label in self.model.f.predict(_spaced(text) + "\n", -1, 0.0, "strict"):
                row[int(label.removeprefix(LABEL))] = chance
        sums = rows.sum(1, keepdims=True)
        return np.where(sums > 0, rows / np.maximum(sums, 1e-9), 1 / self.labels)

    def save(self, folder: Path) -> None:
        """Write baseline.json and model.bin into an existing folder."""
        describe(self, folder)
        self.model.save_model(str(folder / FASTTEXT))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a model that `save` wrote. Raises: a damaged file; sizes that do not fit."""
        saved = _described(folder)
        model = cls(build(FastTextSettings, saved.settings), saved.labels)
        path, settings = folder / FASTTEXT, model.settings
        content = read_bytes(path, LARGEST)
        damaged = RegardError(f"{path} is damaged, or not a model of fastText with these settings")
        if len(content) < HEADER.size:
            raise damaged
        numbers = HEADER.unpack_from(content)
        sizes = (numbers[0], numbers[2], numbers[7]) == (MAGIC, settings.width, settings.ngrams)
        buckets, words, labels = numbers[10], *numbers[16:18]
        fits = 0 <= buckets <= BUCKETS and words >= 0 and 0 < labels <= model.labels
        if not (sizes and fits and 4 * settings.width * (words + buckets) <= len(content)):
            raise damaged
        from fasttext.FastText import _FastText

        try:
            model.model = _FastText(model_path=str(path))
        except (ValueError, RuntimeError, MemoryError):
            raise damaged from None
        known = {f"{LABEL}{number}" for number in range(model.labels)}
        if not {*model.model.get_labels()} <= known:
            raise damaged
        return model


def read_saved(folder: Path, cls: Any) -> tuple[Any, dict[str, NDArray[np.float32]], _Saved]:
    """Return an unfitted model of a class, and the arrays and the description in a folder.

    Raises: a file is missing or damaged; a model of another class.
    """
    saved = _described(folder)
    if saved.baseline != cls.name:
        raise RegardError(
            f"{folder} contains {saved.baseline}, not {cls.name}; restore its files, or train again"
        )
    try:
        arrays = load_file(folder / "baseline.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RegardError(f"{folder} does not contain a saved baseline: {error}") from None
    return cls(build(cls.settings_class, saved.settings), saved.labels), arrays, saved


def _spaced(text: str) -> str:
    """Return the words of an input with spaces between them, none of which looks like a label.

    Of two texts, each word has its side, and those in common occur once more. A number of a further
    column is a word for each half of a deviation.
    """
    parts = [re.findall(WORD, _plain(part).replace(LABEL, " ")) for part in texts_of(text)]
    if len(parts) == 1:
        words = parts[0]
    else:
        words = [f"{n}:{word}" for n, part in enumerate(parts, 1) for word in part]
        words += [f"both:{word}" for word in dict.fromkeys(parts[0]) if word in parts[1]]
    numbers = text.numbers if isinstance(text, Input) else {}
    for name, number in numbers.items():
        if halves := round(2 * min(max(number, -4.0), 4.0)):
            words.append("column:" + "_".join(name.replace(LABEL, " ").split()) + f":{halves}")
    return " ".join(words)


def joined(features: Sparse, numbers: Numbers) -> Sparse:
    """Return the features of terms, followed by the numbers of further columns."""
    if not numbers.shape[1]:
        return features
    return sparse.hstack([features, sparse.csr_array(numbers)], format="csr")


def _sides(text: str) -> tuple[str, ...]:
    """Return what the terms of each text of an input begin with."""
    return ("first: ", "second: ") if len(texts_of(text)) > 1 else ("",)


def _plain(text: str) -> str:
    return plain(text).replace("<br />", " ").lower()
