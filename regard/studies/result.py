"""What came of a comparison: arms with intervals and costs, verdicts, as JSON and as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.durable import write_json
from regard.studies.arms import Arm
from regard.studies.statistics import Difference

FILE = "comparison.json"
UNITLESS = {"BLEU", "chrF"}  # people say 33.1 BLEU, not per cent


def per_cent(metric: str) -> str:
    """What stands behind a metric's number, times 100.

    >>> f"91.4{per_cent('accuracy')}, 33.1{per_cent('BLEU')}"
    '91.4 %, 33.1'
    """
    return "" if metric in UNITLESS else " %"


@dataclass(frozen=True)
class ArmResult:
    """An arm's mean over its seeds with the 95 % interval, and its cost.

    `seconds` of training is a mean over seeds, `peak_mb` the largest; `flops` are of one forward
    pass over a test text of median length, none where the arm is no network. `also` is what else
    its runs tell, by name: shares, a mean over seeds.
    """

    arm: Arm
    seeds: int
    mean: float
    low: float
    high: float
    seconds: float
    peak_mb: float
    parameters: int
    flops: int | None
    also: Mapping[str, float] = field(default_factory=dict)

    def tells(self, name: str) -> str:
        """What else its runs tell, times 100; nothing where they do not.

        >>> ArmResult(Arm("a", "gru"), 1, 0, 0, 0, 0, 0, 0, None, {"chrF": 0.5}).tells("chrF")
        '50.0'
        """
        return f"{100 * self.also[name]:.1f}" if name in self.also else ""

    def json(self) -> dict[str, Any]:
        """The row of the table, as plain values."""
        keys = ("seeds", "mean", "low", "high", "seconds", "peak_mb", "parameters")
        return {"name": self.arm.name, **{key: getattr(self, key) for key in keys}}


@dataclass(frozen=True)
class Failure:
    """A run that did not end, and why."""

    arm: str
    seed: int
    says: str


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    `verdicts` hold every arm against the reference, one family; `rungs` each rung of a ladder
    against the one before, a family of its own. `about` is what else a report tells: the command,
    the data.
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
    about: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        import regard

        return regard.html(self)

    def json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        return {
            "task": self.task,
            "metric": self.metric,
            "arms": [result.json() for result in self.arms],
            "verdicts": [_verdict(found) for found in (*self.verdicts, *self.rungs)],
            "claims": [],
            "report": self.report,
        }

    def record(self) -> dict[str, Any]:
        """All that is known, as ``comparison.json`` holds it: more keys, the same shape."""
        extras = [
            {"model": r.arm.model, "settings": list(r.arm.overrides)}
            | {"folder": r.arm.folder, "flops": r.flops, "also": dict(r.also)}
            for r in self.arms
        ]
        families = ["reference"] * len(self.verdicts) + ["ladder"] * len(self.rungs)
        found = self.json()
        return {
            **found,
            "arms": [row | extra for row, extra in zip(found["arms"], extras, strict=True)],
            "verdicts": [
                row | {"family": family}
                for row, family in zip(found["verdicts"], families, strict=True)
            ],
            "reference": self.reference,
            "errors": [vars(failure) for failure in self.failures],
            **self.about,
        }

    def save(self) -> Path:
        """Write ``comparison.json`` into the comparison's folder: whole, or not at all."""
        path = self.folder / FILE
        write_json(path, self.record())
        return path

    @property
    def also(self) -> list[str]:
        """The names of what else the arms tell."""
        return list(dict.fromkeys(name for result in self.arms for name in result.also))

    def table(self) -> str:
        """Arms, then verdicts, as plain text."""
        width = max(len(result.arm.name) for result in self.arms)
        also = self.also
        head = f"{self.metric}{per_cent(self.metric)} (95 %)"
        wide = max(20, len(head))
        more = "".join(f"  {name}{per_cent(name)}" for name in also)
        lines = [f"{'arm':<{width}}  {head:<{wide}}{more}    seconds  peak MB  parameters"]
        for r in self.arms:
            interval = f"{100 * r.mean:.1f} ({100 * r.low:.1f} to {100 * r.high:.1f})"
            more = "".join(f"{r.tells(name):>{len(name + per_cent(name)) + 2}}" for name in also)
            lines.append(
                f"{r.arm.name:<{width}}  {interval:<{wide}}{more}{r.seconds:>11,.1f}"
                f"{r.peak_mb:>9,.0f}{r.parameters:>12,}"
            )
        lines += [found.says for found in (*self.verdicts, *self.rungs)]
        lines += [f"{f.arm}, seed {f.seed}: {f.says}" for f in self.failures]
        return "\n".join(lines)


def _verdict(found: Difference) -> dict[str, Any]:
    return {
        "a": found.a,
        "b": found.b,
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "says": found.says,
    }
