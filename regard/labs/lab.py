"""What a lab is: a question, a report, one way to end; and the lab that measures."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any, Generic, TypeVar

from regard.atomic_io import write_json
from regard.errors import RegardError
from regard.labs import LabRequest, Say, Show
from regard.plugins import is_part
from regard.reports.comparison import write_report
from regard.reports.findings import Section, Table, write_findings
from regard.reports.scales import duration
from regard.settings import Settings, build, split
from regard.studies.budget import parse_budget
from regard.studies.result import Comparison, verdict_row
from regard.studies.statistics import Difference

S = TypeVar("S", bound=Settings)
M = TypeVar("M")
Claim = dict[str, Any]
FILE = "results.json"
#: What a lab may be asked for by a flag, and the flag.
FLAGS = {"data": "--data", "seeds": "--seeds", "budget": "--budget", "workers": "--workers"}


def claim(says: str, value: float, holds: bool) -> Claim:
    """Return one thing to look for: a sentence with the number, the number, whether it holds.

    >>> claim("there was nothing to measure", float("nan"), False)["value"] is None
    True
    """
    return {"says": says, "value": float(value) if isfinite(value) else None, "holds": bool(holds)}


@dataclass(frozen=True)
class Part:
    """A part of a lab: a section of its report, what it claims, its share of the answer."""

    section: Section
    claims: Sequence[Claim] = ()
    answer: str = ""


@dataclass(frozen=True)
class Compared:
    """Arms and verdicts of a measurement, as ``regard compare --json`` has them."""

    metric: str = ""
    arms: Sequence[Mapping[str, Any]] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(
        cls, metric: str, arms: Iterable[Mapping[str, Any]], verdicts: Iterable[Difference]
    ) -> "Compared":
        """Build the rows of JSON from differences."""
        return cls(metric, list(arms), [verdict_row(found) for found in verdicts])


def arm_row(
    name: str,
    seeds: int,
    interval: tuple[float, float, float],
    *,
    seconds: float | None = None,
    peak_mb: float | None = None,
    parameters: int | None = None,
) -> dict[str, Any]:
    """Return an arm as ``--json`` prints it; `interval` is the mean and its 95 % interval."""
    mean, low, high = interval
    return {
        "name": name, "seeds": seeds, "mean": mean, "low": low, "high": high, "seconds": seconds,
        "peak_mb": peak_mb, "parameters": parameters,
    }  # fmt: skip


@dataclass(frozen=True)
class LabReport:
    """What a lab found. `answer`: its result in a few sentences, numbers included.

    `record` holds more keys of the JSON object. `trained` is the comparison of a lab that trains
    runs: the report then shows the runs, too.
    """

    answer: Sequence[str]
    sections: Sequence[Section]
    claims: Sequence[Claim]
    next: str
    compared: Compared = Compared()
    trained: Comparison | None = None
    record: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Lab(ABC):
    """A question, and the experiment that answers it. `name` is what ``regard lab`` calls it."""

    question: str = ""
    name: str = ""

    @abstractmethod
    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Do the lab: words for people go to `say`, progress to `show`.

        Returns the object that ``--json`` prints. Errors: settings that do not exist or fit.
        """

    @abstractmethod
    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Say what the lab will take, as measured or as it took elsewhere; train nothing."""

    def place(self, request: LabRequest, stem: str = "") -> Path:
        """Return the folder that the lab writes into: the one asked for, or one by its name."""
        name = Path(self.name.rpartition(":")[0]).stem if is_part(self.name) else self.name
        stem = stem or Path(request.data).stem
        return request.out or Path("runs") / f"lab-{name}{f'-{stem}' if stem else ''}"

    def command(self, request: LabRequest) -> str:
        """Return the command line that does the same again."""
        parts = ["regard", "lab", self.name]
        for key, flag in FLAGS.items():
            value = getattr(request, key)
            parts += [flag, str(value)] if value else []
        parts += ["--out", str(request.out)] if request.out else []
        return shlex.join([*parts, *request.overrides])

    def finish(
        self, request: LabRequest, report: LabReport, out: Path, data: str, say: Say
    ) -> dict[str, Any]:
        """Write the report and ``results.json``, say what was found, and return the JSON object."""
        from regard.runs.environment import machine

        tables = [table for section in report.sections for table in section.tables]
        record: dict[str, Any] = {
            "task": self.name,
            "metric": report.compared.metric,
            "arms": list(report.compared.arms),
            "verdicts": list(report.compared.verdicts),
            "machine": machine(),
            **(report.trained.record() if report.trained else {}),
            **(report.record or {}),
            "claims": list(report.claims),
            "question": self.question,
            "answer": " ".join(report.answer),
            "tables": [table.json() for table in tables],
            "command": self.command(request),
            "data": data,
        }
        out.mkdir(parents=True, exist_ok=True)
        if report.trained:
            path = write_report(record, out, report.sections, report.answer)
        else:
            path = write_findings(record, report.sections, out)
        record["report"] = str(path)
        write_json(out / FILE, record)
        if report.trained:
            say("\n" + "\n".join(report.trained.rows()))
        for table in tables:
            say(f"\n{table.title}\n{table.text()}")
        if report.claims:
            say("\nWhat to look for:")
        for found in report.claims:
            say(f"  {'✓' if found['holds'] else '✗'} {found['says']}")
        say("\nVerdict:")
        for sentence in report.answer:
            say(f"  {sentence}")
        say(f"\nreport: {record['report']}")
        say(f"next:   {report.next}")
        return record


@dataclass(frozen=True)
class Takes:
    """How long a lab took with its defaults, and what that depends on.

    `grows`: settings that the time is about in proportion to; a budget in minutes changes these.
    `steps`: settings that a budget in steps sets. `more`: what takes longer, in words.
    """

    seconds: float
    where: str
    grows: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    more: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuringLab(Lab, Generic[S, M]):
    """A lab that measures by itself, without runs of ``regard train``.

    `measure` makes the numbers; `figures`, `claims` and `answer` say what they show, the first two
    by default from ``measured.parts``. A lab without a setting `seeds` measures again with each
    further seed, and its claims must hold for all.
    """

    settings: type[S]
    takes: Takes
    measure: Callable[[S, Say, Show], M]
    answer: Callable[[M], str]
    next: str | Callable[[M], str]
    figures: Callable[[M], Sequence[Section]] = lambda measured: sections_of(measured)
    claims: Callable[[M], Sequence[Claim]] = lambda measured: claims_of(measured)
    compared: Callable[[M], Compared] = lambda measured: Compared()

    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Measure, with every seed; write and say what was found."""
        first, *others = self.all_settings(request)
        say(self.question)
        measured = self.measure(first, say, show)
        sections, claims = [*self.figures(measured)], [*self.claims(measured)]
        if others:
            again = [self.claims(self.measure(settings, say, show)) for settings in others]
            table, claims = over_seeds([claims, *again])
            sections.append(Section("Is it the same with other seeds?", tables=[table]))
        follows = self.next if isinstance(self.next, str) else self.next(measured)
        report = LabReport(
            [self.answer(measured)], sections, claims, follows, self.compared(measured)
        )
        data = request.data or "built-in data"
        return self.finish(request, report, self.place(request), data, say)

    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Check the settings, and say what the lab took with its defaults, and what that makes."""
        several, takes = self.all_settings(request), self.takes
        says = f"regard lab {self.name} measures nothing beforehand. With its defaults it took "
        says += f"{duration(takes.seconds)} on {takes.where}"
        says += f"; {takes.more}." if takes.more else "."
        keys = {pair.partition("=")[0].strip().replace("-", "_") for pair in request.overrides}
        seconds: float | None = None
        if request.data or keys - {*takes.grows, "seed", "seeds", "budget"}:
            says += " What is set here changes that."
        else:
            seconds = sum(map(self.estimate, several))
            if seconds != takes.seconds:
                says += f" What is set here makes that about {duration(seconds)}."
        say(says)
        return {"task": self.name, "forecast": [], "seconds": seconds, "says": says}

    def estimate(self, settings: S) -> float:
        """Return the seconds that the lab would take where its defaults took `takes`."""
        usual: dict[str, Any] = {k: one.default for k, one in self.settings.model_fields.items()}
        if "budget" in usual:
            more = [60 * float(parse_budget(text)["minutes"])
                    for text in (settings.model_dump()["budget"], usual["budget"])]  # fmt: skip
            return self.takes.seconds + more[0] - more[1]
        ratios = [float(getattr(settings, key)) / usual[key] for key in self.takes.grows]
        seeds = float(getattr(settings, "seeds", 1)) / usual.get("seeds", 1)
        times: float = seeds * (sum(ratios) / len(ratios) if ratios else 1.0)
        return self.takes.seconds * times

    def all_settings(self, request: LabRequest) -> list[S]:
        """Return the settings of each measurement: one, or one a seed."""
        fields = self.settings.model_fields
        if request.seeds < 2 or "seeds" in fields:
            return [self.settings_for(request)]
        alone = replace(request, seeds=0)
        given = [pair for pair in request.overrides if pair.partition("=")[0].strip() == "seed"]
        if given:
            raise RegardError(f"--seeds {request.seeds} and {given[0]}: give one of them")
        start = int(self.settings_for(alone).model_dump()["seed"])
        return [
            self.settings_for(replace(alone, overrides=[*request.overrides, f"seed={seed}"]))
            for seed in range(start, start + request.seeds)
        ]

    def settings_for(self, request: LabRequest) -> S:
        """Return the lab's settings: its own, under the user's ``key=value`` and flags.

        Errors: a flag that this lab has no setting for, a setting that does not exist or fit.
        """
        (values,) = split(request.overrides, self.settings)
        given: dict[str, Any] = {}
        for key, flag in FLAGS.items():
            value = getattr(request, key)
            if not value:
                continue
            if key == "budget" and key not in self.settings.model_fields:
                given |= self._budget(value)
            elif key in self.settings.model_fields:
                given[key] = value
            elif key != "seeds":
                known = ", ".join(sorted(self.settings.model_fields))
                raise RegardError(f"this lab has no use for {flag}; it takes: {known}")
        for key in given.keys() & values.keys():
            flag = FLAGS.get(key, "--budget")
            raise RegardError(f"{key} is set twice, by {flag} and by {key}={values[key]}")
        return build(self.settings, {**values, **given})

    def _budget(self, budget: str) -> dict[str, Any]:
        """Return the settings that a budget sets. Errors: a unit that this lab has no use for."""
        ((unit, amount),) = parse_budget(budget).items()
        if unit == "steps" and self.takes.steps:
            return dict.fromkeys(self.takes.steps, amount)
        if unit != "minutes":
            steps = " or in steps" if self.takes.steps else ""
            raise RegardError(f"budget {budget!r}: this lab's budget is a time{steps}, as in 30s")
        factor, values = 60 * float(amount) / self.takes.seconds, {}
        for key in self.takes.grows:
            field = self.settings.model_fields[key]
            least = max((b for m in field.metadata if (b := getattr(m, "ge", None))), default=0)
            most = min((b for m in field.metadata if (b := getattr(m, "le", None))), default=None)
            value = field.annotation(factor * field.default) if field.annotation else 0
            values[key] = max(value, least) if most is None else min(max(value, least), most)
        return values


def sections_of(measured: Any) -> list[Section]:
    """Return the sections of ``measured.parts``."""
    return [part.section for part in measured.parts]


def claims_of(measured: Any) -> list[Claim]:
    """Return the claims of ``measured.parts``."""
    return [one for part in measured.parts for one in part.claims]


def over_seeds(several: Sequence[Sequence[Claim]]) -> tuple[Table, list[Claim]]:
    """Return each claim over seeds as a table, and the claims that hold for every seed.

    >>> one, two = [claim("x is 1", 1, True)], [claim("x is 2", 2, False)]
    >>> table, claims = over_seeds([one, two])
    >>> table.rows, claims[0]["says"], claims[0]["holds"]
    ([['x is 1', 1.0, 2.0, '1 of 2']], 'x is 1; over 2 seeds it holds in 1', False)
    """
    rows, claims = [], []
    for same in zip(*several, strict=False):
        first, holds = same[0], sum(one["holds"] for one in same)
        values = [one["value"] for one in same if one["value"] is not None] or [nan]
        rows.append([first["says"], min(values), max(values), f"{holds} of {len(same)}"])
        says = f"{first['says']}; over {len(same)} seeds it holds in {holds}"
        claims.append({**first, "says": says, "holds": holds == len(same)})
    columns = ["claim, in the numbers of the first seed", "least", "most", "holds in"]
    return Table(f"The claims over {len(several)} seeds", columns, rows), claims
