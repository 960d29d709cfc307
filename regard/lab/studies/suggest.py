"""Suggest a method for labelled texts before one is trained: learning curves of cheap arms.

Every arm is trained on the same nested draws of the user's rows, of rising sizes, and answers the
rows held out. A forecast continues each curve to all rows and to twice as many.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import RegardError, look_up
from regard.interop.sentences import load_static
from regard.lab.data import imdb
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.examples import Example
from regard.lab.data.features import Features
from regard.lab.data.files import read
from regard.lab.data.guess import guess
from regard.lab.data.label_lists import looks_like_lists, separator_of
from regard.lab.data.labels import hardly_repeat, number_of, parse_labels, rename, why_no_number
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA
from regard.lab.data.sources import load_corpus, must_be_classes
from regard.lab.data.spelling import likeness
from regard.lab.studies.arms import Arm, models_of, parse_arm
from regard.lab.studies.learning_curve import Forecast, LearningCurve
from regard.lab.studies.learning_draws import (
    Rows,
    Show,
    affordable,
    draw,
    draws_for,
    predictor,
)
from regard.lab.tasks import unit_of
from regard.lab.tasks.units import Unit

LEAST = 40  # rows; fewer have no two sizes
LEAST_UNITS = 10  # different texts or groups, for five folds
MOST = 2_000  # rows that are drawn from
FARTHEST = 32  # times the rows of the data: no statement is made beyond
SCRATCH = "mean"  # the network that is trained from scratch
DEFAULTS = {"classification": ("tfidf", "nb-svm", SCRATCH), "regression": ("ridge", SCRATCH)}
METRIC = {"classification": "accuracy", "regression": "R²"}
WORDS = {
    "tfidf": "TF-IDF + logistic regression",
    "nb-svm": "naive Bayes + linear SVM",
    "ridge": "TF-IDF + ridge regression",
    "static": "static word vectors + a linear head",
    "sentence": "sentence encoder + a linear head",
    SCRATCH: "a small network from scratch",
}


@dataclass(frozen=True)
class Candidate:
    """An arm with its learning curve, its forecast for all rows and that for twice as many."""

    name: str
    words: str
    curve: LearningCurve
    now: Forecast
    twice: Forecast


@dataclass(frozen=True)
class Suggestion:
    """The result of `suggest`. ``candidates`` are sorted by forecast error, the smallest first.

    ``trivial`` is the error of an answer that ignores the text; ``command`` trains the best arm.
    """

    data: str
    task: str
    metric: str
    rows: int
    labels: int
    draws: int
    candidates: tuple[Candidate, ...]
    trivial: float
    sentences: tuple[str, ...]
    command: str
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """Return the arm that is suggested."""
        return self.candidates[0].name

    @property
    def verdict(self) -> str:
        """Return the suggestion in words."""
        return " ".join(self.sentences)

    def json(self) -> dict[str, Any]:
        """Return the suggestion as JSON-serialisable values; values of the metric, not errors."""
        described = {key: value for key, value in asdict(self).items() if key != "candidates"}
        described["trivial"] = 1 - self.trivial
        arms = [
            {
                "name": one.name,
                "words": one.words,
                "curve": [
                    {"rows": n, "value": 1 - error, "deviation": deviation}
                    for n, error, deviation in zip(
                        one.curve.rows, one.curve.errors, one.curve.deviations, strict=True
                    )
                ],
                "forecasts": [
                    {"rows": f.rows, "value": 1 - f.error, "low": 1 - f.high, "high": 1 - f.low}
                    for f in (one.now, one.twice)
                ],
            }
            for one in self.candidates
        ]
        return {**described, "best": self.best, "verdict": self.verdict, "arms": arms}


def suggest(
    source: DataSource | Path | str,
    *,
    task: str = "",
    weights: Sequence[str] = (),
    arms: Sequence[str | Arm] = (),
    defaults: Sequence[str] | None = None,
    seed: int = 0,
    show: Show | None = None,
) -> Suggestion:
    """Draw the learning curves of cheap arms and name the best one for these rows.

    ``weights``: sentence encoders and static word vectors, each a folder or a name on the hub, or
    "wordllama". ``arms``: further arms as for ``compare``. ``defaults``: the arms that are drawn in
    any case, by default those of the task, which is guessed by the labels.

    Raises: unreadable data; fewer than 40 rows; one label; unknown arms or weights.
    """
    source = DataSource.of(source)
    source, task, rows = rows_of(source, task)
    models = models_of(task)
    given = [f"{kind_of(name)}:weights={name}" for name in weights]
    names = (*(DEFAULTS[task] if defaults is None else defaults), *given, *arms)
    parsed = [parse_arm(name, models) if isinstance(name, str) else name for name in names]
    parsed = list({arm.name: arm for arm in parsed}.values())
    predictors = {arm.name: predictor(arm, rows, source.columns) for arm in parsed}
    drawn = rows.part(MOST, seed)
    for arm in parsed:
        drawn = drawn.part(affordable(predictors[arm.name], drawn.texts), seed)
    curves = draw(drawn, parsed, predictors, seed, show or (lambda *_: None))
    trivial, used = curves[0].highest, Counter(arm.model for arm in parsed)
    candidates = sorted(
        (
            Candidate(
                arm.name,
                WORDS.get(arm.model, arm.name) if used[arm.model] == 1 else arm.name,
                curve,
                curve.forecast(rows.total),
                curve.forecast(2 * rows.total),
            )
            for arm, curve in zip(parsed, curves, strict=True)
        ),
        key=lambda one: one.now.error,
    )
    pretrained = any(pair.startswith("weights=") for arm in parsed for pair in arm.overrides)
    notes = [] if pretrained else [NO_WEIGHTS]
    if len(drawn.texts) < rows.total:
        notes.append(f"the curves were drawn from {len(drawn.texts):,} of {rows.total:,} rows")
    metric = METRIC[task]
    sentences = in_words(candidates, rows.total, unit_of(metric), metric)
    return Suggestion(
        Path(source.name).name,
        task,
        metric,
        rows.total,
        len(rows.labels),
        draws_for(len(drawn.texts)),
        tuple(candidates),
        trivial,
        sentences,
        _command(source, task, next(arm for arm in parsed if arm.name == candidates[0].name)),
        tuple(notes),
    )


def _command(source: DataSource, task: str, arm: Arm) -> str:
    """Return the command that trains an arm on the rows."""
    columns = [f"{key}={value}" for key, value in asdict(source.columns).items() if value]
    words = ["regard", "train", task, "--data", source.name, "--model", arm.model]
    return shlex.join([*words, *arm.overrides, *columns])


NO_WEIGHTS = (
    "no pretrained weights were given; with few labels, a sentence encoder is usually better than "
    "counts of words: add --weights FOLDER-OR-NAME (in Python weights=[…]), such as "
    "sentence-transformers/all-MiniLM-L6-v2, or wordllama for static word vectors"
)


def rows_of(source: DataSource, task: str = "") -> tuple[DataSource, str, Rows]:
    """Return the source with its columns, the task, and the rows; columns and task are guessed.

    Test parts of named data are not read. Raises: as `load_corpus`; too few rows; another task.
    """
    name, path = source.name, path_of(source.name)
    if task:
        look_up(METRIC, task, "task that suggest knows")
    own = name not in DATA and imdb.find(path) is None and (path.exists() or "," in name)
    if own:
        columns = source.columns
        guessed = guess(name, columns.texts[0], columns.label)
        if guessed.task != "classification":
            raise RegardError(
                f"{name} looks like data for {guessed.task}; suggest needs texts with labels or "
                "numbers: name the columns (--text, --label)"
            )
        given = guessed.settings
        columns = columns.filled(Columns(given.get("text", ""), given.get("label", "")))
        source = replace(source, columns=columns)
        examples = rename(read(path, columns).examples, parse_labels(columns.labels))
        if task != "regression" and (sign := separator_of(x.label for x in examples)):
            raise RegardError(
                f"{name}: {looks_like_lists(examples, sign)}, which suggest does not compare; "
                f"learn them with regard train multilabel --data {shlex.quote(name)}"
            )
    else:
        regression = task == "regression" or name == "ratings"
        task = task or ("regression" if regression else "classification")
        examples = load_corpus(source, numbers=regression).train
    answers = [example.label for example in examples]
    task = task or ("regression" if hardly_repeat(answers) else "classification")
    if len(examples) < LEAST:
        raise RegardError(
            f"{name}: {len(examples)} rows are too few to draw a curve; label at least {LEAST}"
        )
    rows = _numbered(name, examples, task == "regression")
    features = Features.fit(source.columns.further, rows.texts)
    return source, task, replace(rows, texts=[features.encode(text) for text in rows.texts])


def _numbered(name: str, examples: Sequence[Example], regression: bool) -> Rows:
    answers = [example.label for example in examples]
    keys = [example.group or likeness(example.text) for example in examples]
    units = np.unique(keys, return_inverse=True)[1]
    if (different := len({*keys})) < LEAST_UNITS:
        raise RegardError(
            f"{name}: {different} different texts or groups are too few to draw a curve; it needs "
            f"{LEAST_UNITS}"
        )
    texts = [example.text for example in examples]
    if not regression:
        must_be_classes(name, examples)
        labels, numbers = np.unique(answers, return_inverse=True)
        if len(labels) < 2:
            raise RegardError(
                f"{name}: all rows have the label {answers[0]!r}; two labels are needed"
            )
        return Rows(texts, numbers, tuple(labels.tolist()), units, len(texts))
    for example in examples:
        if number_of(example.label) is None:
            raise RegardError(f"{example.source}: {why_no_number(example.label)}")
    values = np.array([number_of(answer) for answer in answers], float)
    if not (deviation := values.std()):
        raise RegardError(f"{name}: all rows have the number {answers[0]}; two are needed")
    return Rows(texts, (values - values.mean()) / deviation, (), units, len(texts))


def kind_of(weights: str) -> str:
    """Return the model for weights: "static" for static word vectors, otherwise "sentence"."""
    if weights == "wordllama":
        return "static"
    try:
        load_static(weights)
    except RegardError:
        return "sentence"
    return "static"


def in_words(
    candidates: Sequence[Candidate], rows: int, unit: Unit, metric: str
) -> tuple[str, ...]:
    """Return the suggestion in sentences: the best arm, the others, more labels, from scratch."""
    best, *others = candidates
    low, high = (unit.write(1 - x) for x in (best.now.high, best.now.low))
    sign = unit.sign if unit.sign else f" {metric}"
    sentences = [
        f"With your {rows:,} rows: {best.words}, {unit.write(1 - best.now.error)}{sign} "
        f"({low} to {high})."
    ]
    for other in others:
        if other.name.partition(":")[0] == SCRATCH:
            continue
        sentences.append(_behind(best, other, rows))
    gain = best.curve.sampled(rows) - best.curve.sampled(2 * rows)
    more, least, most = (
        unit.write(max(float(x), 0.0)) for x in (gain.mean(), *np.quantile(gain, [0.025, 0.975]))
    )
    sentences.append(
        f"{rows:,} more labels would bring about {more} {unit.points} ({least} to {most})".rstrip()
        + "."
    )
    scratch = next((one for one in others if one.name.partition(":")[0] == SCRATCH), None)
    if scratch is not None:
        sentences.append(_from_scratch(best, scratch, rows))
    return tuple(sentences)


def _behind(best: Candidate, other: Candidate, rows: int) -> str:
    """Say how many rows another arm needs for the value of the best one."""
    for size in _ahead(rows):
        if float(np.mean(other.curve.sampled(size))) <= best.now.error:
            return f"{_begin(other.words)} would need some {_round(size):,}."
    return f"{_begin(other.words)} would need more than {_round(FARTHEST * rows):,}."


def _from_scratch(best: Candidate, scratch: Candidate, rows: int) -> str:
    """Say below which number of rows a network from scratch is not expected to be the best."""
    for size in _ahead(rows):
        ahead = scratch.curve.sampled(size) < best.curve.sampled(size)
        if float(ahead.mean()) >= 0.25:
            if size <= rows * 1.2:
                return f"{_begin(scratch.words)} may do as well; compare both."
            return f"Training {scratch.words} does not pay below some {_round(size):,} rows."
    return f"Training {scratch.words} does not pay below {_round(FARTHEST * rows):,} rows."


def _ahead(rows: int) -> list[int]:
    return [round(rows * 2 ** (k / 4)) for k in range(4 * (FARTHEST.bit_length() - 1) + 1)]


def _round(rows: int) -> int:
    """Return a number of rows with two digits.

    >>> _round(2_963)
    3000
    """
    step = 10 ** max(len(str(rows)) - 2, 0)
    return int(round(rows / step) * step)


def _begin(words: str) -> str:
    return words[:1].upper() + words[1:]
