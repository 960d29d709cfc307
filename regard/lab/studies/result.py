"""The result of a comparison: arms with intervals and costs, and verdicts, as JSON and text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regard.core.atomic_io import write_json
from regard.core.reading import checked, read_json
from regard.core.shown import plotted, shown
from regard.lab.runs.convergence import CONVERGED, ONE_LABEL, TRIVIAL
from regard.lab.studies.arms import Arm
from regard.lab.studies.statistics import Difference
from regard.lab.tasks import unit_of
from regard.lab.tasks.units import Unit

FILE = "comparison.json"
COSTS = ("seconds", "peak MB", "parameters", "MFLOP")
COLUMN = 12  # width of a cost column in a plain-text table


@dataclass(frozen=True)
class ArmResult:
    """An arm's mean over its seeds with a 95 % interval, and its cost.

    `seconds` is the mean training time over the seeds, `peak_mb` the largest peak memory, `flops`
    the cost of one forward pass over a test text of median length. `other_metrics` are
    further metrics by name, as means over the seeds. `ended` counts how the trainings ended, in the
    words of `regard.lab.runs.convergence`, and "failed" for runs without a result. `steps` has the
    training steps of each seed, in the order of the seeds. A baseline has neither `flops` nor
    `steps`. An unknown cost is None.
    """

    arm: Arm
    seeds: int
    mean: float
    low: float
    high: float
    seconds: float | None
    peak_mb: float | None
    parameters: int | None
    flops: int | None
    other_metrics: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[int, ...] = ()

    @property
    def trained(self) -> bool:
        """Return whether every training converged, so that the score represents the method."""
        return not set(self.ended) - {CONVERGED}

    @property
    def stuck(self) -> bool:
        """Return whether a training never left the trivial answer."""
        return bool({TRIVIAL, ONE_LABEL} & set(self.ended))

    def training(self) -> str:
        """Return how the trainings ended, in words.

        >>> ArmResult(Arm("a", "rnn"), 3, 0, 0, 0, 0, 0, 0, None, {},
        ...           {"converged": 1, "still rising": 2}).training()
        'still rising (2 of 3)'
        """
        odd = {word: count for word, count in self.ended.items() if word != CONVERGED}
        every = sum(self.ended.values())
        return ", ".join(
            word if count == every else f"{word} ({count} of {every})"
            for word, count in odd.items()
        ) or (CONVERGED if self.ended else "")

    def other(self, name: str) -> str:
        """Return a further metric as text without its unit; "" if the arm does not have it.

        >>> ArmResult(Arm("a", "gru"), 1, 0, 0, 0, 0, 0, 0, None, {"chrF": 0.5}).other("chrF")
        '50.0'
        """
        return unit_of(name).write(self.other_metrics[name]) if name in self.other_metrics else ""

    def costs(self) -> list[str]:
        """Return the costs as text in the order of `COSTS`; "" if unknown.

        >>> ArmResult(Arm("a", "gru"), 1, 0, 0, 0, 1.25, 300.0, 4096, None).costs()
        ['1.2', '300', '4,096', '']
        """
        flops = None if self.flops is None else self.flops / 1e6
        pairs = (
            (self.seconds, ".1f"),
            (self.peak_mb, ".0f"),
            (self.parameters, ""),
            (flops, ".1f"),
        )
        return ["" if value is None else f"{value:,{form}}" for value, form in pairs]

    def json(self) -> dict[str, Any]:
        """Return the row of the table as plain values."""
        keys = ("seeds", "mean", "low", "high", "seconds", "peak_mb", "parameters")
        row = {"name": self.arm.name, **{key: getattr(self, key) for key in keys}}
        return row | {"training": self.training(), "trained": self.trained}


@dataclass(frozen=True)
class Failure:
    """A failed run of a seed, or of a trial of a search, with its error."""

    arm: str
    seed: int
    says: str
    what: str = "seed"

    def __str__(self) -> str:
        return f"{self.arm}, {self.what} {self.seed}: {self.says}"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `verdicts` compare every arm with the reference, as one family; `rungs` compare each rung of a
    ladder with the one before, as a second family. A difference is how much better `a` is than
    `b`; for a loss, how much lower. `trivial` has the metric of predictions made without reading
    the texts, such as the majority class. `about` has further facts for the report, such as the
    command and the data.
    """

    task: str
    metric: str
    arms: tuple[ArmResult, ...]
    reference: str
    verdicts: tuple[Difference, ...]
    rungs: tuple[Difference, ...] = ()
    failures: tuple[Failure, ...] = ()
    folder: Path = Path()
    report: str = ""
    trivial: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        arms = f"{len(self.arms)} arm{'s' * (len(self.arms) != 1)}"
        return f"<Comparison on {self.task}, {arms}>\n{self.table()}"

    _repr_html_ = shown
    plot = plotted

    def json(self) -> dict[str, Any]:
        """Return the result as ``--json`` prints it, with ``tuning`` if settings were searched."""
        tuning = {"tuning": self.about["tuning"]} if "tuning" in self.about else {}
        return {
            "task": self.task,
            "metric": self.metric,
            "arms": [result.json() for result in self.arms],
            "trivial": dict(self.trivial),
            "verdicts": [verdict_row(verdict) for verdict in (*self.verdicts, *self.rungs)],
            "claims": [],
            **tuning,
            "report": self.report,
        }

    def record(self) -> dict[str, Any]:
        """Return the content of ``comparison.json``: `json` with more keys."""
        extras = [
            {"model": r.arm.model, "settings": list(r.arm.overrides)}
            | {"folder": r.arm.folder, "flops": r.flops, "also": dict(r.other_metrics)}
            | {"ended": dict(r.ended)}
            | {"steps": list(r.steps)}
            for r in self.arms
        ]
        families = ["reference"] * len(self.verdicts) + ["ladder"] * len(self.rungs)
        plain = self.json()
        return {
            **plain,
            "arms": [row | extra for row, extra in zip(plain["arms"], extras, strict=True)],
            "verdicts": [
                row | {"family": family}
                for row, family in zip(plain["verdicts"], families, strict=True)
            ],
            "reference": self.reference,
            "errors": [vars(failure) for failure in self.failures],
            **self.about,
        }

    def save(self) -> Path:
        """Write ``comparison.json`` into the comparison's folder atomically; return its path."""
        path = self.folder / FILE
        write_json(path, self.record())
        return path

    @property
    def other_metrics(self) -> list[str]:
        """Return the names of the further metrics of the arms."""
        return list(dict.fromkeys(name for result in self.arms for name in result.other_metrics))

    @property
    def unit(self) -> Unit:
        """Return the unit of the metric."""
        return unit_of(self.metric)

    @property
    def costs(self) -> list[int]:
        """Return the indices in `COSTS` of the costs that are known for any arm."""
        rows = [result.costs() for result in self.arms]
        return [i for i in range(len(COSTS)) if any(row[i] for row in rows)]

    def table(self) -> str:
        """Return arms, verdicts and failures as plain text."""
        return "\n".join(
            [
                *self.rows(),
                *(verdict.sentence for verdict in (*self.verdicts, *self.rungs)),
                *map(str, self.failures),
            ]
        )

    def rows(self) -> list[str]:
        """Return the lines of the table: a heading, the arms and the trivial scores."""
        width = max(map(len, [*(result.arm.name for result in self.arms), *self.trivial]))
        others, unit = self.other_metrics, self.unit
        head = f"{self.metric}{unit.sign} (95 %)"
        column = max(20, len(head))
        heads = [f"{name}{unit_of(name).sign}" for name in others]
        more = "".join(f"  {heading}" for heading in heads)
        known = [i for i in self.costs if COSTS[i] != "MFLOP"]
        lines = [f"{'arm':<{width}}  {head:<{column}}{more}"]
        lines[0] += "".join(f"{COSTS[i]:>{COLUMN}}" for i in known)
        lines[0] += "  training" if any(r.ended for r in self.arms) else ""
        for r in self.arms:
            interval = f"{unit.write(r.mean)} ({unit.write(r.low)} to {unit.write(r.high)})"
            cells = zip(heads, others, strict=True)
            more = "".join(f"{r.other(name):>{len(heading) + 2}}" for heading, name in cells)
            cost = "".join(f"{r.costs()[i]:>{COLUMN}}" for i in known)
            lines.append(
                f"{r.arm.name:<{width}}  {interval:<{column}}{more}{cost}  {r.training()}".rstrip()
            )
        lines += [f"{name:<{width}}  {unit.write(value)}" for name, value in self.trivial.items()]
        return lines


class StoredArm(BaseModel):
    """An arm of a ``comparison.json``."""

    name: str
    seeds: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    parameters: int | None = None
    flops: int | None = None
    training: str = ""
    trained: bool = True
    model: str = ""
    settings: list[str] = []
    folder: str = ""
    also: dict[str, float] = {}
    ended: dict[str, int] = {}
    steps: list[int] = []


class StoredVerdict(BaseModel):
    """A difference of a ``comparison.json``."""

    a: str
    b: str
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    untrained: list[str] = []
    smallest: float | None = None
    says: str = ""
    family: str = ""
    verdict: str = ""
    delta: float | None = None


class StoredComparison(BaseModel):
    """The keys of a ``comparison.json`` that are checked; others are kept as they are."""

    task: str = ""
    metric: str
    arms: list[StoredArm]
    verdicts: list[StoredVerdict] = []
    trivial: dict[str, float] = {}
    claims: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    reference: str = ""
    report: str = ""
    seeds: int = 0
    command: list[str] = []
    data: str = ""
    notes: list[str] = []
    fingerprint: str = ""
    question: str = ""
    word_order: dict[str, Any] | None = None
    tuning: Any = None


def read_comparison(folder: Path) -> dict[str, Any]:
    """Return the record that `Comparison.save` wrote. Raises: unreadable, or of another shape."""
    record = read_json(folder / FILE)
    checked(StoredComparison, record, folder / FILE)
    return record


def claimed(verdict: Mapping[str, Any]) -> bool:
    """Return whether a verdict of a record claims a difference of two methods.

    That is so if it is significant and both arms were trained to the end.
    """
    p = verdict.get("p")
    return p is not None and float(p) < 0.05 and not verdict.get("untrained")


def verdict_row(verdict: Difference) -> dict[str, Any]:
    """Return a difference as ``--json`` prints it; with a verdict if δ was declared."""
    decided = {
        "verdict": verdict.verdict,
        "delta": verdict.margin,
        "seeds": verdict.seeds,
        "p_equivalent": verdict.p_equivalent,
    }
    return {
        "a": verdict.a,
        "b": verdict.b,
        "difference": verdict.mean,
        "low": verdict.low,
        "high": verdict.high,
        "p": verdict.p,
        "untrained": list(verdict.untrained),
        "smallest": verdict.smallest,
        "says": verdict.sentence,
        **(decided if verdict.margin is not None else {}),
    }
