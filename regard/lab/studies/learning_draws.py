"""Nested draws of labelled rows, and the errors of arms trained on them.

All arms are trained on the same draws and answer the same rows held out.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from regard.core.errors import UntrainableError
from regard.core.settings import key_value
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.studies.arms import Arm, models_of
from regard.lab.studies.learning_curve import LearningCurve, measured
from regard.lab.tasks.embedded import Embedded, Sentence
from regard.lab.tasks.heads import FOLDS, folds

SMALLEST = 25  # rows of the first size
REPEATED = 1_000  # rows up to which the folds are drawn twice
#: Work of an encoder, its weights without word vectors · characters: a minute or two on two cores.
WORK = 8e12
FEWEST = 200  # rows that every encoder reads
AT_ONCE = 256  # texts whose vectors are computed between two reports of progress
NETWORK_SIZES, NETWORK_DRAWS = 3, 3  # the last sizes and the first draws, for arms that are trained

Show = Callable[[float, float, str], None]  # displays progress: done, total, message


@dataclass(frozen=True)
class Rows:
    """Labelled texts: ``answers`` are numbers of labels, or standardised numbers without labels.

    Texts of equal ``unit`` are never in a draw and held out of it. ``total``: the rows of the data,
    of which these may be a part.
    """

    texts: list[str]
    answers: NDArray[Any]
    labels: tuple[str, ...]
    units: Int[np.ndarray, " rows"]
    total: int

    @property
    def strata(self) -> Int[np.ndarray, " rows"]:
        """Return the labels, or the tenth of the numbers that each belongs to."""
        if self.labels:
            return np.asarray(self.answers)
        return np.argsort(np.argsort(self.answers)) * 10 // len(self.answers)

    def losses(self, answers: NDArray[Any], held: NDArray[np.integer]) -> Float[np.ndarray, " n"]:
        """Return the loss of each answer: 1 if a label is wrong, the squared error of a number."""
        true = self.answers[held]
        return np.asarray(answers != true if self.labels else (answers - true) ** 2, float)

    def part(self, count: int, seed: int) -> "Rows":
        """Return at most this many rows, drawn with the share of every label."""
        if count >= len(self.texts):
            return self
        chosen = np.sort(stratified(np.arange(len(self.texts)), self.strata, seed)[:count])
        texts = [self.texts[i] for i in chosen]
        return Rows(texts, self.answers[chosen], self.labels, self.units[chosen], self.total)


@dataclass(frozen=True)
class Predictor:
    """An arm that is trained on texts and answers other texts.

    ``model`` is a baseline to fit, which is cheap, or an estimator that trains a network.
    """

    model: Any
    cheap: bool

    @property
    def encoder(self) -> Embedded | None:
        """Return the model, if it reads vectors of an encoder."""
        return self.model if isinstance(self.model, Embedded) else None

    def __call__(self, texts: list[str], answers: NDArray[Any], others: list[str]) -> NDArray[Any]:
        """Return the answers to the other texts. Raises: `UntrainableError`."""
        model = copy.copy(self.model)  # the encoder is shared
        model.fit(texts, answers)
        if not self.cheap:
            return np.asarray(model.predict(others))
        scores = model.scores(others) if model.labels == 1 else model.probabilities(others)
        return np.asarray(scores[:, 0] if model.labels == 1 else scores.argmax(1))


def predictor(arm: Arm, rows: Rows, columns: Columns = NAMED) -> Predictor:
    """Return the predictor of an arm. Raises: unknown settings; an encoder that cannot be read."""
    entry = models_of("classification" if rows.labels else "regression")[arm.model]
    settings: dict[str, Any] = dict(map(key_value, arm.overrides))
    if entry.baseline:
        labels = len(rows.labels) or 1
        found = Predictor(
            entry.build(entry.configure(settings), vocabulary=0, labels=labels), cheap=True
        )
        if found.encoder:
            found.encoder.encoder  # noqa: B018 (its errors before the first training)
        return found
    from regard.lab.runs.estimators import TextClassifier, TextRegressor

    if columns.second or columns.further:
        settings |= {"text": columns.text, "features": columns.features}
    estimator = (TextClassifier if rows.labels else TextRegressor)(arm.model, **settings)
    return Predictor(estimator, cheap=False)


def affordable(predict: Predictor, texts: Sequence[str]) -> int:
    """Return the number of texts that an encoder can read in a minute or two; else all."""
    if not isinstance(predict.encoder, Sentence):
        return len(texts)
    weights = predict.encoder.encoder.named_parameters()
    inner = sum(x.numel() for name, x in weights if "embedding" not in name)
    mean = sum(map(len, texts)) / len(texts)
    return max(FEWEST, int(WORK / (max(inner, 1) * max(mean, 1.0))))


def draws_for(rows: int) -> int:
    """Return the number of draws of each size."""
    return FOLDS * (2 if rows <= REPEATED else 1)


def stratified(
    pool: Int[np.ndarray, " rows"], strata: Int[np.ndarray, " all"], seed: int | Sequence[int]
) -> Int[np.ndarray, " rows"]:
    """Return a random order of rows, each prefix of which has nearly the share of every stratum.

    >>> stratified(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), 0).tolist()
    [2, 0, 4, 1, 5, 3]
    """
    rng = np.random.default_rng(seed)
    place = np.empty(len(pool))
    for stratum in np.unique(strata[pool]):
        rows = rng.permutation(np.flatnonzero(strata[pool] == stratum))
        place[rows] = (np.arange(len(rows)) + rng.random(len(rows))) / len(rows)
    return np.asarray(pool[np.argsort(place)])


def divisions(
    rows: Rows, seed: int
) -> Iterator[tuple[Int[np.ndarray, " train"], Int[np.ndarray, " held"]]]:
    """Yield the rows to train on, in the order of `stratified`, and the rows held out.

    Five folds, once or twice, each with nearly the share of every stratum; units stay together.
    """
    units, first, places = np.unique(rows.units, return_index=True, return_inverse=True)
    strata = rows.strata
    for turn in range(draws_for(len(rows.texts)) // FOLDS):
        order = np.random.default_rng([seed, turn]).permutation(len(units))
        fold = np.empty(len(units), int)
        fold[order] = folds(strata[first[order]])
        for number in range(FOLDS):
            held = fold[places] == number
            train = stratified(np.flatnonzero(~held), strata, [seed, turn, number])
            yield train, np.flatnonzero(held)


def sizes_for(most: int) -> list[int]:
    """Return the sizes of a curve: 25, 50, 100, … and the largest.

    >>> sizes_for(160), sizes_for(32)
    ([25, 50, 100, 160], [16, 32])
    """
    doubled = [size for k in range(20) if (size := SMALLEST << k) < 0.85 * most]
    return [*doubled, most] if len(doubled) > 1 or most > 2 * SMALLEST else [most // 2, most]


def draw(
    rows: Rows,
    arms: Sequence[Arm],
    predictors: Mapping[str, Predictor],
    seed: int,
    show: Show,
) -> list[LearningCurve]:
    """Return the learning curve of each arm; all are trained on the same draws."""
    parts = list(divisions(rows, seed))
    sizes = sizes_for(min(len(train) for train, _ in parts))
    _embed(rows.texts, predictors, show)
    jobs = [
        (arm.name, size, number)
        for arm in arms
        for number in range(len(parts))
        for size in range(len(sizes))
        if predictors[arm.name].cheap
        or (size >= len(sizes) - NETWORK_SIZES and number < NETWORK_DRAWS)
    ]
    losses = {arm.name: [list[NDArray[Any]]() for _ in sizes] for arm in arms}
    for done, (name, size, number) in enumerate(jobs):
        show(done, len(jobs), f"{name}, {sizes[size]:,} rows")
        train, held = parts[number]
        row = np.full(len(rows.texts), np.nan)
        row[held] = held_losses(rows, predictors[name], train[: sizes[size]], held)
        losses[name][size].append(row)
    guesses = [rows.losses(_guess(rows, train, held), held).mean() for train, held in parts]
    show(len(jobs), len(jobs), "")
    guess, most = float(np.mean(guesses)), 1.0 if rows.labels else math.inf
    curves = []
    for each in losses.values():
        known = {size: np.array(x) for size, x in zip(sizes, each, strict=True) if x}
        curves.append(measured(list(known), list(known.values()), guess, most))
    return curves


def _embed(texts: Sequence[str], predictors: Mapping[str, Predictor], show: Show) -> None:
    """Compute the vectors of all texts once, in parts, so that progress is seen and kept."""
    for name, predict in predictors.items():
        if predict.encoder:
            for start in range(0, len(texts), AT_ONCE):
                show(start, len(texts), f"{name}: vectors of the texts")
                predict.encoder.vectors(texts[start : start + AT_ONCE])


def held_losses(
    rows: Rows, predict: Predictor, train: NDArray[np.integer], held: NDArray[np.integer]
) -> Float[np.ndarray, " held"]:
    """Return the losses on the rows held out; those of a guess if nothing can be learned."""
    answers = rows.answers[train]
    guess = _guess(rows, train, held)
    if len(np.unique(answers)) < 2:
        return rows.losses(guess, held)
    try:
        found = predict([rows.texts[i] for i in train], answers, [rows.texts[i] for i in held])
    except UntrainableError:  # no word occurs twice, say
        found = guess
    return rows.losses(found, held)


def _guess(rows: Rows, train: NDArray[np.integer], held: NDArray[np.integer]) -> NDArray[Any]:
    """Return the most frequent label of the training rows, or their mean, for each row held out."""
    answers = rows.answers[train]
    return np.full(len(held), np.bincount(answers).argmax() if rows.labels else answers.mean())
