"""Read the run folders of a comparison for a report; missing parts are left out."""

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.core import reading
from regard.core.errors import RegardError
from regard.core.reading import parse_json
from regard.lab.data.examples import from_json
from regard.lab.data.label_lists import joined
from regard.lab.reports.figures import Series
from regard.lab.studies import arms as study
from regard.lab.studies.job import RunScore, read_score
from regard.lab.tasks import TASKS, unit_of
from regard.lab.tasks.models import MODELS, ModelEntry
from regard.lab.tasks.tagging.evaluation import Tags
from regard.lab.tasks.units import Unit

if TYPE_CHECKING:
    from regard.lab.runs import Run

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """A run's prediction for one test example; `confidence` is the predicted probability.

    If `tags`, truth and prediction are a tag for each word of the text; if `written`, they are
    texts; if `several`, they are labels joined to one text.
    """

    index: int
    text: str
    truth: str
    predicted: str
    confidence: float
    tags: bool = False
    written: bool = False
    several: bool = False

    def in_words(self, answer: str) -> str:
        """Return the truth or the prediction as text; tags as the spans that they mark."""
        if self.several:
            return answer or "no label"
        words, tags = self.text.split(" "), answer.split(" ")
        if not self.tags or len(words) != len(tags):
            return answer
        return Tags(tuple(words), tuple(tags)).phrase()

    @property
    def right(self) -> bool:
        return self.truth == self.predicted


@dataclass(frozen=True)
class Arm:
    """An arm of a comparison: its row of numbers, and the run folder of each seed."""

    name: str
    row: Mapping[str, Any]
    folders: tuple[Path, ...]
    metric: str = "accuracy"

    @property
    def unit(self) -> Unit:
        """Return the unit of the metric."""
        return unit_of(self.metric)

    @property
    def rank(self) -> float:
        """Return the mean with its sign such that the better arm has the larger value."""
        return self.unit.better(self.mean)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Return the settings of the first readable run as a flat table; empty without one."""
        for folder in self.folders:
            try:
                return _flat(tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")))
            except (OSError, ValueError):
                continue
        return {}

    @property
    def own_settings(self) -> dict[str, Any]:
        """Return the settings that differ from the model's defaults."""
        entry = self.models.get(self.model)
        usual = entry.configure().model_dump() if entry else {}
        return {k: self.config[k] for k in usual if self.config.get(k, usual[k]) != usual[k]}

    @property
    def formula(self) -> str:
        """Return the model's formula with the settings of the first run; "" if unknown."""
        entry = self.models.get(self.model)
        if entry is None:
            return ""
        settings = {k: v for k, v in self.config.items() if k in entry.settings.model_fields}
        try:
            return entry.describe(entry.configure(settings))
        except RegardError:  # a config.toml with invalid settings
            return entry.describe()

    @property
    def models(self) -> Mapping[str, ModelEntry]:
        """Return the models of the arm's task."""
        task = TASKS.get(str(self.config.get("task")))
        return task.models if task else MODELS

    @property
    def model(self) -> str:
        """Return the name of the arm's model in `models`."""
        name = str(self.config.get("model") or self.row.get("model", self.name))
        return name if name in self.models else name.split(":")[0]

    @property
    def deterministic(self) -> bool:
        """Return whether all seeds give the same predictions, so that one run is enough."""
        entry = self.models.get(self.model)
        return entry is not None and entry.deterministic

    @property
    def family(self) -> str:
        """Return "attention", "network" (without attention) or "baseline" (no network)."""
        entry = self.models.get(self.model)
        if entry is None:
            return "network"
        if entry.baseline:
            return "baseline"
        return "attention" if entry.attends(self.config) else "network"

    @property
    def mean(self) -> float:
        return _number(self.row.get("mean"))

    @property
    def low(self) -> float:
        return _number(self.row.get("low"))

    @property
    def high(self) -> float:
        return _number(self.row.get("high"))

    @property
    def training(self) -> str:
        """Return how the trainings ended, in words; "" if unknown."""
        return str(self.row.get("training", ""))

    @property
    def trained(self) -> bool:
        """Return whether the training of every run converged, or True if unknown."""
        return bool(self.row.get("trained", True))

    def number(self, key: str) -> float:
        """Return a number of the arm's row, NaN if missing."""
        return _number(self.row.get(key))

    def curve(self, folder: Path, key: str) -> Series:
        """Return a column of a run's metrics.jsonl over epochs, or over steps."""
        rows = [row for row in read_lines(folder / "metrics.jsonl") if row.get(key) is not None]
        x = [_number(row.get("epoch", row.get("step"))) for row in rows]
        return Series("", x, [_number(row[key]) for row in rows])

    @cached_property
    def answers(self) -> list[Answer]:
        """Return the answers of the first run with predictions to the test examples."""
        return next((rows for folder in self.folders if (rows := _answers(folder))), [])

    @property
    def writes(self) -> bool:
        """Return whether the predictions are texts."""
        return self.metric == "BLEU" or any(answer.written for answer in self.answers)

    @cached_property
    def scores(self) -> list[RunScore]:
        """Return the stored score of each seed's run."""
        return [score for folder in self.folders if (score := read_score(folder))]

    def from_run(self, view: "Callable[[Run], list[T]]") -> list[T]:
        """Return the view of the first run that can be loaded; empty without one."""
        import regard

        for folder in self.folders:
            with suppress(RegardError, OSError):
                return view(regard.load(folder))
        return []

    @property
    def by_seed(self) -> list[float]:
        """Return the metric of each seed, as a share or in nats."""
        if self.scores:
            return [score.value for score in self.scores]
        if self.metric != "accuracy":
            return []
        return [float(share) for share in self.right.mean(1)] if self.right.size else []

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Return which answers are right, (seeds, examples), for the runs with all examples."""
        rows = [row for folder in self.folders if len(row := _right(folder))]
        longest = max(map(len, rows), default=0)
        return np.array([row for row in rows if len(row) == longest], dtype=bool)


def arms_of(comparison: Mapping[str, Any], folder: Path) -> list[Arm]:
    """Return the arms of a comparison in their order, each with its existing run folders."""
    names = [(str(row["name"]), row) for row in comparison.get("arms", [])]
    seeds = comparison.get("seeds")
    wanted = {f"seed-{seed}" for seed in range(seeds)} if isinstance(seeds, int) else None
    arms = []
    for name, row in names:
        runs = _runs(folder / study.Arm(name, "").folder)  # an earlier call may have had more seeds
        runs = tuple(run for run in runs if wanted is None or run.name in wanted)
        arms.append(Arm(name, row, runs, str(comparison.get("metric", "accuracy"))))
    return arms


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a .jsonl file; skip invalid lines, such as one cut off by a crash."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(RegardError):
                    if isinstance(row := parse_json(line, path), dict):
                        yield row
    except OSError:
        return


def last_row(folder: Path) -> dict[str, Any]:
    """Return the last row of a run's metrics.jsonl, or an empty one without any."""
    return next(reversed([*read_lines(folder / "metrics.jsonl")]), {})


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one if it cannot be read."""
    with suppress(RegardError):
        return reading.read_json(path)
    return {}


def confusion_of(answers: Sequence[Answer]) -> tuple[list[str], list[list[int]]]:
    """Return labels (or word tags) and counts; rows are true labels, columns predicted ones."""
    pairs: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        if answer.tags:
            pairs.update(zip(answer.truth.split(" "), answer.predicted.split(" "), strict=False))
        else:
            pairs[answer.truth, answer.predicted] += 1
    labels = sorted({label for pair in pairs for label in pair})
    return labels, [[pairs[row, column] for column in labels] for row in labels]


def _runs(home: Path) -> tuple[Path, ...]:
    try:
        folders = [path for path in home.glob("seed-*") if path.is_dir()]
    except OSError:  # not a valid folder name
        return ()
    return tuple(sorted(folders, key=lambda path: (len(path.name), path.name)))


def _right(folder: Path) -> NDArray[np.bool_]:
    """Return which answers of a run are right, from its stored score or its predictions."""
    if score := read_score(folder):
        return score.correct()
    return np.array([answer.right for answer in _answers(folder)], dtype=bool)


def _answers(folder: Path) -> list[Answer]:
    """Return the answers of a run; rows of texts scored by token have none."""
    rows = enumerate(read_lines(folder / "predictions.jsonl"))
    return [_answer(i, row) for i, row in rows if {"predicted", "labels", "said"} & row.keys()]


def _answer(index: int, row: Mapping[str, Any]) -> Answer:
    probabilities = row.get("probabilities")
    predicted = str(row.get("predicted", row.get("said", "")))
    if "labels" in row:
        predicted = joined(row["labels"])
    if isinstance(probabilities, Mapping):
        confidence = _number(probabilities.get(predicted))
    elif isinstance(probabilities, list):
        confidence = max(map(_number, probabilities), default=math.nan)
    else:
        confidence = _number(row.get("confidence"))
    text, truth = from_json({"text": "", **row}), str(row.get("label", ""))
    tags, written = "said" in row, "ended" in row  # as the task wrote its rows
    return Answer(index, text, truth, predicted, confidence, tags, written, "labels" in row)


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the entries of its sub-tables on the same level."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat.update(_flat(value) if isinstance(value, Mapping) else {key: value})
    return flat


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
