"""`Lab`, the base class of all labs, and `MeasuringLab`, which measures without training runs."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

from regard.core.atomic_io import make_folder, write_json
from regard.core.errors import OccupiedError, RegardError
from regard.core.names import is_part, located
from regard.core.reading import read_json
from regard.core.settings import Settings, build, split
from regard.lab.labs import LabRequest, Questioned, Say, Show
from regard.lab.reports.comparison import write_report
from regard.lab.reports.findings import Cell, Section, Table, write_findings
from regard.lab.reports.markup import Html
from regard.lab.reports.prose import read_page
from regard.lab.reports.scales import duration
from regard.lab.reports.scales import forecast as ahead
from regard.lab.runs.environment import machine
from regard.lab.runs.places import default_folder
from regard.lab.studies.budget import parse_budget
from regard.lab.studies.result import Comparison, verdict_row
from regard.lab.studies.statistics import Difference

S = TypeVar("S", bound=Settings)
M = TypeVar("M")
Claim = dict[str, Any]
FILE = "results.json"
ENGLISH = "en"  # the language of a page without one in its name
SLOWER = 2  # how many times as slow a machine may be as that of a lab's `ReferenceTime`
#: Options of a lab and their command-line flags.
FLAGS = {"data": "--data", "seeds": "--seeds", "budget": "--budget", "workers": "--workers",
         "delta": "--delta"}  # fmt: skip


def claim(says: str, value: float, holds: bool) -> Claim:
    """Return a claim about the result: a sentence with the number, the number, whether it holds.

    >>> claim("nothing was measured", float("nan"), False)["value"] is None
    True
    """
    return {"says": says, "value": float(value) if isfinite(value) else None, "holds": bool(holds)}


@dataclass(frozen=True)
class Findings:
    """The result of a lab with a page: values for its sentences, claims, figures and tables.

    `claims`: the value of each claim and whether it holds, by key; a page reads the value as
    ``claims.KEY``. `tables`: columns and rows. Titles, captions and notes stand in the page.
    """

    claims: Mapping[str, tuple[float, bool]]
    values: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Html] = field(default_factory=dict)
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Cell]]]] = field(
        default_factory=dict
    )

    @classmethod
    def joined(cls, parts: Iterable["Findings"]) -> "Findings":
        """Join the findings of parts of a lab. Raises: two parts have the same name."""
        whole: list[dict[str, Any]] = [{}, {}, {}, {}]
        for part in parts:
            own = (part.claims, part.values, part.figures, part.tables)
            for joined, more in zip(whole, own, strict=True):
                if twice := sorted(joined.keys() & more.keys()):
                    raise RegardError(f"two parts of a lab use the name {twice[0]!r}")
                joined.update(more)
        return cls(*whole)

    def described(self, page: Path, **more: object) -> "LabReport":
        """Fill in the page; `more` are further values.

        Raises: a claim without a sentence, or a sentence without a claim; what `read_page` raises.
        """
        tables = {name: Table("", *content) for name, content in self.tables.items()}
        values = {key: value for key, (value, _) in self.claims.items()}
        prose = read_page(page, {**self.values, **more, "claims": values}, self.figures, tables)
        if odd := sorted(prose.claims.keys() ^ self.claims.keys()):
            raise RegardError(f"{page}: claims of the lab and the page differ: {', '.join(odd)}")
        claims = [claim(prose.claims[key], *found) for key, found in self.claims.items()]
        return LabReport(prose.answer, prose.sections, claims)


def record_of(
    metric: str, arms: Sequence[Mapping[str, Any]], verdicts: Iterable[Difference]
) -> dict[str, Any]:
    """Return arms and verdicts of a measurement, as in ``regard compare --json``."""
    rows = [verdict_row(verdict) for verdict in verdicts]
    return {"metric": metric, "arms": arms, "verdicts": rows}


def arm_row(
    name: str,
    seeds: int,
    interval: tuple[float, float, float],
    *,
    seconds: float | None = None,
    parameters: int | None = None,
) -> dict[str, Any]:
    """Return an arm as ``--json`` prints it; `interval` is the mean and its 95 % interval."""
    mean, low, high = interval
    return {
        "name": name, "seeds": seeds, "mean": mean, "low": low, "high": high, "seconds": seconds,
        "peak_mb": None, "parameters": parameters,
    }  # fmt: skip


@dataclass(frozen=True)
class LabReport:
    """The results of a lab. `answer`: the result in a few sentences with numbers.

    `trained`: the comparison, if the lab trains runs; the report and the JSON object then have its
    runs. `record`: additional keys of the JSON object, such as those of `record_of`.
    """

    answer: Sequence[str]
    sections: Sequence[Section]
    claims: Sequence[Claim]
    next: str = ""
    trained: Comparison | None = None
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Lab(Questioned, ABC):
    """A question and the experiment that answers it. `name` is its name in ``regard lab``."""

    question: str = ""
    name: str = ""
    lang: str = ENGLISH
    page: Path | None = None

    def in_language(self, lang: str) -> Self:
        """Return the lab with its report in a language: with the page ``NAME.LANG.md``.

        Raises: there is no such page.
        """
        if lang == ENGLISH or not self.page:
            return replace(self, lang=lang)
        page = self.page.with_suffix(f".{lang}.md")
        if not page.is_file():
            names = self.page.parent.glob(f"{self.page.stem}.*.md")
            known = ", ".join([ENGLISH, *sorted(path.suffixes[0][1:] for path in names)])
            raise RegardError(f"{self.name} has no page in {lang!r}; its languages are: {known}")
        return replace(self, lang=lang, page=page)

    @abstractmethod
    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Run the lab; print messages by `say` and progress by `show`.

        Return the object that ``--json`` prints. Raises: unknown or invalid settings.
        """

    @abstractmethod
    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Forecast the time of the lab without running it."""

    def place(
        self, request: LabRequest, stem: str = "", check: Callable[[Path], object] | None = None
    ) -> Path:
        """Return the output folder: the requested one, or a default by the lab's name.

        `check` raises an `OccupiedError` for a folder with other runs, by default for one with the
        results of another command; then the folder is named by the settings, too.
        """
        if request.out:
            return request.out
        name = Path(located(self.name)[0]).stem if is_part(self.name) else self.name
        stem = stem or Path(request.data).stem
        base = Path("runs") / f"lab-{name}{f'-{stem}' if stem else ''}"
        flags = {key: getattr(request, key) for key in ("seeds", "budget")}
        pairs = [*request.overrides, *(f"{key}={value}" for key, value in flags.items() if value)]
        return default_folder(base, pairs, check or partial(self._must_be_mine, request))

    def _must_be_mine(self, request: LabRequest, folder: Path) -> None:
        """Raise an error for a folder with the results of another command."""
        if not (folder / FILE).exists():
            return
        try:
            command = read_json(folder / FILE)["command"]
        except (RegardError, KeyError, TypeError):
            command = "another command"
        if command != self.command(request):
            raise OccupiedError(f"{folder} holds the results of {command}; give another --out")

    def command(self, request: LabRequest) -> str:
        """Return the command line that repeats the run."""
        parts = ["regard", "lab", self.name]
        for key, flag in FLAGS.items():
            value = getattr(request, key)
            parts += [flag, str(value)] if value else []
        parts += ["--out", str(request.out)] if request.out else []
        parts += ["--lang", self.lang] if self.lang != ENGLISH else []
        return shlex.join([*parts, *request.overrides])

    def finish(
        self, request: LabRequest, report: LabReport, out: Path, data: str, say: Say
    ) -> dict[str, Any]:
        """Print the results, write the report and ``results.json``, and return the JSON object.

        The report takes longest to make, so it comes last.
        """
        tables = [table for section in report.sections for table in section.tables]
        record: dict[str, Any] = {
            "task": self.name,
            "metric": "",
            "arms": [],
            "verdicts": [],
            "machine": machine(),
            **(report.trained.record() if report.trained else {}),
            **report.record,
            "claims": list(report.claims),
            "question": self.question,
            "answer": " ".join(report.answer),
            "tables": [table.json() for table in tables],
            "command": self.command(request),
            "data": data,
            **({"lang": self.lang} if self.lang != ENGLISH else {}),
        }
        if report.trained:
            say("\n" + "\n".join(report.trained.rows()))
        for table in tables:
            say(f"\n{table.title}\n{table.text()}")
        if report.claims:
            say("\nClaims:")
        for row in report.claims:
            say(f"  {'✓' if row['holds'] else '✗'} {row['says']}")
        say("\nVerdict:")
        for sentence in report.answer:
            say(f"  {sentence}")
        make_folder(out)
        if report.trained:
            path = write_report(record, out, report.sections, report.answer)
        else:
            path = write_findings(record, report.sections, out)
        record["report"] = str(path)
        write_json(out / FILE, record)
        say(f"\nreport: {record['report']}")
        say(f"next:   {report.next}")
        return record


@dataclass(frozen=True)
class ReferenceTime:
    """The time that a lab took with its defaults, and the settings that change it.

    `scales_with`: settings to which the time is roughly proportional; a budget in minutes changes
    them. `steps`: settings that a budget in steps changes. `note`: a case that takes longer.
    """

    seconds: float
    where: str
    scales_with: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuringLab(Lab, Generic[S, M]):
    """A lab that measures without training runs.

    `measure` returns the measurements; `findings` and the `page` describe them. A lab without a
    setting `seeds` repeats the measurement for each further seed, and its claims must hold for all
    seeds.
    """

    settings: type[S]
    reference_time: ReferenceTime
    measure: Callable[[S, Say, Show], M]
    next: str | Callable[[M], str]
    page: Path
    findings: Callable[[M], Findings] = lambda measured: cast(Findings, measured)
    compared: Callable[[M], Mapping[str, Any]] = lambda measured: {}

    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Measure with every seed, then write and print the results."""
        if request.launcher:
            raise RegardError(
                f"{self.name} measures in processes of this machine; leave --launch and --jobs out"
            )
        first, *others = self.all_settings(request)
        if request.out:
            make_folder(request.out)
        measured = self.measure(first, say, show)
        report = self.describe(measured)
        if others:
            repeated = [self.describe(self.measure(one, say, show)).claims for one in others]
            table, claims = over_seeds([report.claims, *repeated])
            section = Section("Do the claims hold with other seeds?", tables=[table])
            report = replace(report, sections=[*report.sections, section], claims=claims)
        following = self.next if isinstance(self.next, str) else self.next(measured)
        report = replace(report, next=following, record=self.compared(measured))
        data = request.data or "built-in data"
        return self.finish(request, report, self.place(request), data, say)

    def describe(self, measured: M) -> LabReport:
        """Return the answer, sections and claims about the measurements."""
        return self.findings(measured).described(self.page)

    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Check the settings and estimate the time from that of a run with the defaults."""
        several, takes = self.all_settings(request), self.reference_time
        message = f"regard lab {self.name} took {duration(takes.seconds)} with its defaults on "
        message += takes.where + (f"; {takes.note}." if takes.note else ".")
        keys = {pair.partition("=")[0].strip().replace("-", "_") for pair in request.overrides}
        seconds: float | None = None
        if request.data or keys - {*takes.scales_with, "seed", "seeds", "budget"}:
            message += " The time with these settings is unknown."
        else:
            seconds = sum(map(self.estimate, several))
            says = "With these settings: " if seconds != takes.seconds else "Here: "
            message += f" {says}{ahead(seconds, SLOWER * seconds)}."
        say(message)
        most = None if seconds is None else SLOWER * seconds
        return {"task": self.name, "forecast": [], "seconds": seconds, "most_seconds": most,
                "says": message}  # fmt: skip

    def estimate(self, settings: S) -> float:
        """Return the estimated seconds with these settings, from the time with the defaults."""
        defaults: dict[str, Any] = {k: one.default for k, one in self.settings.model_fields.items()}
        if "budget" in defaults:
            budgets = [60 * float(parse_budget(text)["minutes"])
                    for text in (settings.model_dump()["budget"], defaults["budget"])]  # fmt: skip
            return self.reference_time.seconds + budgets[0] - budgets[1]
        ratios = [
            float(getattr(settings, key)) / defaults[key] for key in self.reference_time.scales_with
        ]
        seeds = float(getattr(settings, "seeds", 1)) / defaults.get("seeds", 1)
        times: float = seeds * (sum(ratios) / len(ratios) if ratios else 1.0)
        return self.reference_time.seconds * times

    def all_settings(self, request: LabRequest) -> list[S]:
        """Return the settings of each measurement, one per seed."""
        fields = self.settings.model_fields
        if request.least:
            raise RegardError(
                f"--seeds {request.least}..{request.seeds}: this lab measures and decides nothing "
                f"by seeds; give one number, --seeds {request.least}"
            )
        if request.seeds < 2 or "seeds" in fields:
            return [self.settings_for(request)]
        single = replace(request, seeds=0)
        pairs = [pair for pair in request.overrides if pair.partition("=")[0].strip() == "seed"]
        if pairs:
            raise RegardError(
                f"--seeds {request.seeds} and {pairs[0]} exclude each other; give one"
            )
        start = int(self.settings_for(single).model_dump()["seed"])
        return [
            self.settings_for(replace(single, overrides=[*request.overrides, f"seed={seed}"]))
            for seed in range(start, start + request.seeds)
        ]

    def settings_for(self, request: LabRequest) -> S:
        """Return the lab's defaults overridden by the user's ``key=value`` pairs and flags.

        Raises: a flag without a setting in this lab; an unknown or invalid setting.
        """
        (values,) = split(request.overrides, self.settings)
        flags: dict[str, Any] = {}
        for key, flag in FLAGS.items():
            value = getattr(request, key)
            if not value:
                continue
            if key == "budget" and key not in self.settings.model_fields:
                flags |= self._budget(value)
            elif key in self.settings.model_fields:
                flags[key] = value
            elif key != "seeds":
                known = ", ".join(sorted(self.settings.model_fields))
                raise RegardError(f"this lab does not support {flag}; its settings are: {known}")
        for key in flags.keys() & values.keys():
            flag = FLAGS.get(key, "--budget")
            raise RegardError(f"{key} is set twice, by {flag} and by {key}={values[key]}")
        return build(self.settings, {**values, **flags})

    def _budget(self, budget: str) -> dict[str, Any]:
        """Return the settings that a budget changes. Raises: an unsupported unit."""
        ((unit, amount),) = parse_budget(budget).items()
        if unit == "steps" and self.reference_time.steps:
            return dict.fromkeys(self.reference_time.steps, amount)
        if unit != "minutes":
            steps = " or a number of steps" if self.reference_time.steps else ""
            raise RegardError(f"budget {budget!r}: this lab needs a time{steps}, for example 30s")
        factor, values = 60 * float(amount) / self.reference_time.seconds, {}
        for key in self.reference_time.scales_with:
            field = self.settings.model_fields[key]
            least = max((b for m in field.metadata if (b := getattr(m, "ge", None))), default=0)
            most = min((b for m in field.metadata if (b := getattr(m, "le", None))), default=None)
            value = field.annotation(factor * field.default) if field.annotation else 0
            values[key] = max(value, least) if most is None else min(max(value, least), most)
        return values


def over_seeds(several: Sequence[Sequence[Claim]]) -> tuple[Table, list[Claim]]:
    """Return each claim over seeds as a table, and the claims that hold for every seed.

    >>> one, two = [claim("x is 1", 1, True)], [claim("x is 2", 2, False)]
    >>> table, claims = over_seeds([one, two])
    >>> table.rows, claims[0]["says"], claims[0]["holds"]
    ([['x is 1', 1.0, 2.0, '1 of 2']], 'x is 1; holds for 1 of 2 seeds', False)
    """
    rows, claims = [], []
    for group in zip(*several, strict=False):
        first, holds = group[0], sum(one["holds"] for one in group)
        values = [one["value"] for one in group if one["value"] is not None] or [nan]
        rows.append([first["says"], min(values), max(values), f"{holds} of {len(group)}"])
        says = f"{first['says']}; holds for {holds} of {len(group)} seeds"
        claims.append({**first, "says": says, "holds": holds == len(group)})
    columns = ["claim (numbers of the first seed)", "minimum", "maximum", "holds for"]
    return Table(f"Claims over {len(several)} seeds", columns, rows), claims
