"""What the run folders of a comparison hold for a report; whatever is missing is left out."""

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import reading
from regard.errors import RegardError
from regard.models import MODELS, ModelEntry
from regard.reading import parse_json
from regard.reports.figures import Series
from regard.studies import arms as study
from regard.studies.job import Judged, read_judged
from regard.tasks import TASKS, unit_of
from regard.tasks.tagging.evaluation import Tags
from regard.tasks.units import Unit


@dataclass(frozen=True)
class Answer:
    """What a run said about one test example. `confidence` is the probability of what it said.

    ``tags``: whether truth and answer are a tag for each word of the text.
    """

    index: int
    text: str
    truth: str
    said: str
    confidence: float
    tags: bool = False

    def told(self, answer: str) -> str:
        """The truth, or what was said, in words: of tags the spans that they mark."""
        words, tags = self.text.split(" "), answer.split(" ")
        if not self.tags or len(words) != len(tags):
            return answer
        return Tags(tuple(words), tuple(tags)).told()

    @property
    def right(self) -> bool:
        return self.truth == self.said


@dataclass(frozen=True)
class Arm:
    """An arm of a comparison: its row of numbers and the folders of its runs, one a seed."""

    name: str
    row: Mapping[str, Any]
    folders: tuple[Path, ...]
    metric: str = "accuracy"

    @property
    def unit(self) -> Unit:
        """How its numbers are written."""
        return unit_of(self.metric)

    @property
    def rank(self) -> float:
        """Its mean, negative where less is better: of two arms the larger is the better."""
        return self.unit.better(self.mean)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of its first run, flat; nothing where they cannot be read."""
        for folder in self.folders:
            try:
                return _flat(tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")))
            except (OSError, ValueError):
                continue
        return {}

    @property
    def own_settings(self) -> dict[str, Any]:
        """Where this arm's model differs from what the table says of it."""
        entry = self.models.get(self.model)
        usual = entry.configure().model_dump() if entry else {}
        return {k: self.config[k] for k in usual if self.config.get(k, usual[k]) != usual[k]}

    @property
    def formula(self) -> str:
        """What its model computes with the settings that its first run has; "" if unknown."""
        entry = self.models.get(self.model)
        if entry is None:
            return ""
        kept = {k: v for k, v in self.config.items() if k in entry.settings.model_fields}
        try:
            return entry.describe(entry.configure(kept))
        except RegardError:  # a config.toml of other settings
            return entry.describe()

    @property
    def models(self) -> Mapping[str, ModelEntry]:
        """The models of the arm's task."""
        task = TASKS.get(str(self.config.get("task")))
        return task.models if task else MODELS

    @property
    def model(self) -> str:
        """The name in `models` behind the arm's own label."""
        said = str(self.config.get("model") or self.row.get("model", self.name))
        return said if said in self.models else said.split(":")[0]

    @property
    def deterministic(self) -> bool:
        """Whether every seed makes the same predictions, so that one run stands for all."""
        entry = self.models.get(self.model)
        return entry is not None and entry.deterministic

    @property
    def family(self) -> str:
        """ "attention", "network" (no attention in it) or "baseline" (no network)."""
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
        """How its trainings ended, in words; empty where nothing is known."""
        return str(self.row.get("training", ""))

    @property
    def trained(self) -> bool:
        """Whether every run was trained to its end, as far as is known."""
        return bool(self.row.get("trained", True))

    def number(self, key: str) -> float:
        """A number of the arm's row, NaN where there is none."""
        return _number(self.row.get(key))

    def curve(self, folder: Path, key: str) -> Series:
        """A column of a run's metrics.jsonl over passes through the data (or steps)."""
        rows = [row for row in read_lines(folder / "metrics.jsonl") if row.get(key) is not None]
        x = [_number(row.get("epoch", row.get("step"))) for row in rows]
        return Series(folder.name, x, [_number(row[key]) for row in rows])

    @cached_property
    def answers(self) -> list[Answer]:
        """What its first run with predictions said about the test examples."""
        task = TASKS.get(str(self.config.get("task")))
        tags = task is not None and task.tags_words
        found = next((found for folder in self.folders if (found := _answers(folder))), [])
        return [replace(answer, tags=True) for answer in found] if tags else found

    @property
    def writes(self) -> bool:
        """Whether its answers are texts."""
        task = TASKS.get(str(self.config.get("task")))
        return self.metric == "BLEU" or (task is not None and task.writes == "another")

    @cached_property
    def judged(self) -> list[Judged]:
        """What the comparison kept of its runs, one a seed."""
        return [found for folder in self.folders if (found := read_judged(folder))]

    @property
    def by_seed(self) -> list[float]:
        """The metric of each seed, as a share or in nats."""
        if self.judged:
            return [run.value for run in self.judged]
        if self.metric != "accuracy":
            return []
        return [float(share) for share in self.right.mean(1)] if self.right.size else []

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """(seeds, examples): which answers were right, of the runs that tell of all examples."""
        rows = [row for folder in self.folders if len(row := _right(folder))]
        longest = max(map(len, rows), default=0)
        return np.array([row for row in rows if len(row) == longest], dtype=bool)


def arms_of(comparison: Mapping[str, Any], folder: Path) -> list[Arm]:
    """The arms of a comparison in their order, each with the run folders that there are."""
    names = [(str(row["name"]), row) for row in comparison.get("arms", [])]
    seeds = comparison.get("seeds")
    kept = {f"seed-{seed}" for seed in range(seeds)} if isinstance(seeds, int) else None
    found = []
    for name, row in names:
        runs = _runs(folder / study.Arm(name, "").folder)  # of an earlier call perhaps more seeds
        runs = tuple(run for run in runs if kept is None or run.name in kept)
        found.append(Arm(name, row, runs, str(comparison.get("metric", "accuracy"))))
    return found


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a .jsonl file; a line that is none (a killed writer's last) is passed over."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(RegardError):
                    if isinstance(row := parse_json(line, path), dict):
                        yield row
    except OSError:
        return


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is none to be read."""
    with suppress(RegardError):
        return reading.read_json(path)
    return {}


def confusion_of(answers: Sequence[Answer]) -> tuple[list[str], list[list[int]]]:
    """Labels, or tags of words, and counts: rows what was true, columns what was said."""
    pairs: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        if answer.tags:
            pairs.update(zip(answer.truth.split(" "), answer.said.split(" "), strict=False))
        else:
            pairs[answer.truth, answer.said] += 1
    labels = sorted({label for pair in pairs for label in pair})
    return labels, [[pairs[row, column] for column in labels] for row in labels]


def _runs(home: Path) -> tuple[Path, ...]:
    try:
        found = [path for path in home.glob("seed-*") if path.is_dir()]
    except OSError:  # a name that no folder can have
        return ()
    return tuple(sorted(found, key=lambda path: (len(path.name), path.name)))


def _right(folder: Path) -> NDArray[np.bool_]:
    """Right or wrong by example: as the comparison kept it, or from the answers themselves."""
    if judged := read_judged(folder):
        return judged.correct()
    return np.array([answer.right for answer in _answers(folder)], dtype=bool)


def _answers(folder: Path) -> list[Answer]:
    """Rows of texts that were judged by their tokens hold no answer."""
    rows = enumerate(read_lines(folder / "predictions.jsonl"))
    return [_answer(i, row) for i, row in rows if {"predicted", "said"} & row.keys()]


def _answer(index: int, row: Mapping[str, Any]) -> Answer:
    chances = row.get("probabilities")
    said = str(row.get("predicted", row.get("said", "")))
    if isinstance(chances, Mapping):
        confidence = _number(chances.get(said))
    elif isinstance(chances, list):
        confidence = max(map(_number, chances), default=math.nan)
    else:
        confidence = _number(row.get("confidence"))
    return Answer(index, str(row.get("text", "")), str(row.get("label", "")), said, confidence)


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with its sub-tables' entries beside its own."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat.update(_flat(value) if isinstance(value, Mapping) else {key: value})
    return flat


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
