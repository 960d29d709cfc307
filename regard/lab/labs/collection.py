"""`CollectionLab`: several comparisons with a summary on one page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field

from regard.core.errors import RegardError
from regard.core.settings import Settings, build
from regard.lab.labs import LabRequest, Say, Show
from regard.lab.labs.comparison import (
    BUDGETS,
    DRY_RUN,
    STANDINGS,
    ComparisonLab,
    Result,
    Values,
    pairs,
    parse_names,
)
from regard.lab.labs.lab import Claim, Findings, Lab, LabReport
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.figures import Row, interval_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table
from regard.lab.reports.scales import forecast as ahead
from regard.lab.studies.arms import Arm
from regard.lab.studies.job import read_score
from regard.lab.studies.launchers import Pending
from regard.lab.studies.result import Comparison
from regard.lab.studies.search import Search
from regard.lab.studies.statistics import format_p
from regard.lab.tasks import unit_of

QUICK: Final = "quick"
#: The rates of which every arm has its best on validation, one trial each.
RATES: Final = Search(5, "grid", space=("learning_rate=0.0003,0.001,0.003,0.01,0.03",))
#: A constant rate, a running mean of the weights, and patience: trained until validation stops.
TO_THE_END: Values = {
    "schedule": "constant", "average": 0.99, "patience": 8, "evaluate_every": 50, "dropout": 0.0,
    "batch_size": 32, "precision": "fp32",  # on every processor the same
}  # fmt: skip
LATER = 1000  # the first of other seeds, beyond those of any comparison
SENTENCES = 12  # verdicts that are written as sentences; more of them are a table


class CollectionSettings(Settings):
    """Settings of a collection; every other ``key=value`` is a setting of all its runs."""

    only: str = Field("", description="names of comparisons, with commas between; empty: all")
    size: Literal["quick", "full"] = Field(
        QUICK,
        description="quick: about a minute for each comparison; full: the seeds and steps of "
        "docs/results",
    )


@dataclass(frozen=True)
class Member:
    """A comparison of a collection.

    ``quick`` and ``quick_seeds`` replace settings of its preset in the version of a minute.
    ``quick_arms`` are the names of the arms that remain in it; empty: all. ``rows``: its rows in
    the summary.
    """

    name: str
    lab: ComparisonLab
    rows: Callable[[Result], Sequence[Sequence[Cell]]]
    quick: Values = field(default_factory=dict)
    quick_seeds: int = 2
    quick_arms: Sequence[str] = ()

    def lab_of(self, size: str) -> ComparisonLab:
        """Return the comparison with the arms of a size."""
        if size != QUICK or not self.quick_arms:
            return self.lab
        arms = [arm for arm in self.lab.arms if isinstance(arm, Arm)]
        return replace(self.lab, arms=[arm for arm in arms if arm.name in self.quick_arms])


@dataclass(frozen=True, kw_only=True)
class CollectionLab(Lab):
    """A lab of several comparisons, each with a folder and a section of the report.

    ``only=NAME,…`` selects some; the report has those alone. The same command resumes: complete
    runs are not repeated.
    `findings` describes the rows of all members; the `page` has the answer and the summary.
    """

    members: Sequence[Member]
    page: Path
    findings: Callable[[Sequence[Sequence[Cell]]], Findings]

    def in_language(self, lang: str) -> Self:
        """Return the lab and its members with their reports in a language."""
        members = [replace(one, lab=one.lab.in_language(lang)) for one in self.members]
        return replace(super().in_language(lang), members=members)

    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Train and compare the members one after another; write and print one report.

        Raises: an unknown member or setting; data, which each member chooses itself.
        """
        request, settings, chosen = self._chosen(request)
        labs = [(member, member.lab_of(settings.size)) for member in chosen]
        planned = [(member, lab, lab.plan(self._request(member, request, settings)))
                   for member, lab in labs]  # fmt: skip

        def must_match(out: Path) -> None:
            for member, lab, plan in planned:
                lab.must_match(plan, out / member.name)

        out = self.place(request, settings.size, must_match)
        for member, lab, plan in planned:
            lab.check(plan, out / member.name)  # all of them before any training
        rows: list[Sequence[Cell]] = []
        sections: list[Section] = []
        claims: list[Claim] = []
        records: dict[str, Any] = {}
        lines: list[str] = []
        for member, lab, plan in planned:
            place = out / member.name
            say(f"{member.name}: {plan.about}")
            try:
                comparison = lab.compare(plan, place, request, show, say)
            except Pending as pending:  # --jobs: the members do not wait for each other
                lines += pending.lines
                continue
            result = lab.result(plan, comparison, place)
            part = lab.report(result, comparison)
            rows += member.rows(result)
            sections.append(_section(member, comparison, part))
            claims += part.claims
            records[member.name] = comparison.record()
        if lines:
            raise Pending(lines)
        summary = self.findings(rows).described(self.page)
        sections = [*summary.sections, *sections]
        more = "size=full" if settings.size == QUICK else f"size=full seed={LATER}"
        only = f" only={settings.only}" if settings.only else ""
        report = LabReport(summary.answer, sections, claims, f"regard lab {self.name} {more}{only}",
                           record={"parts": records})  # fmt: skip
        return self.finish(request, report, out, "", say)

    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Forecast each member and their sum."""
        request, settings, chosen = self._chosen(request)
        rows: list[dict[str, Any]] = []
        for member in chosen:
            say(f"{member.name}:")
            own = replace(self._request(member, request, settings), out=Path(DRY_RUN))
            lab = replace(member.lab_of(settings.size), name=member.name)
            forecast = lab.dry_run(own, lambda text: None)
            times = {key: float(forecast[key]) for key in ("seconds", "most_seconds")}
            rows.append({"name": member.name, **times})
            say(f"  {ahead(*times.values())}")
        seconds, most = (sum(row[key] for row in rows) for key in ("seconds", "most_seconds"))
        says = f"all: {ahead(seconds, most)}"
        say(says)
        return {"task": self.name, "forecast": rows, "seconds": seconds, "most_seconds": most,
                "says": says}  # fmt: skip

    def _chosen(self, request: LabRequest) -> tuple[LabRequest, CollectionSettings, list[Member]]:
        """Return the request with flags taken from its pairs, the settings, the chosen members."""
        request, given = ComparisonLab._split(request)
        if request.data:
            raise RegardError(
                f"--data {request.data}: every comparison of this lab has its own data; use only="
            )
        own = {key: given[key] for key in CollectionSettings.model_fields if key in given}
        settings = build(CollectionSettings, own)
        known = [member.name for member in self.members]
        names = parse_names("only", settings.only, known) if settings.only else known
        return request, settings, [member for member in self.members if member.name in names]

    @staticmethod
    def _request(member: Member, request: LabRequest, settings: CollectionSettings) -> LabRequest:
        """Return the request for one member."""
        _, given = ComparisonLab._split(request)
        own = {k: v for k, v in given.items() if k not in CollectionSettings.model_fields}
        quick = settings.size == QUICK
        seeds = request.seeds or (member.quick_seeds if quick else 0)
        budget = bool(request.budget or BUDGETS & own.keys())
        small = {k: v for k, v in member.quick.items() if not (budget and k in BUDGETS)}
        values = {**(small if quick else {}), **own}
        return replace(request, seeds=seeds, overrides=pairs(values))


def _section(member: Member, comparison: Comparison, report: LabReport) -> Section:
    """Return the section of a member: its text, its arms as a chart and a table, its verdicts."""
    unit = unit_of(comparison.metric)
    rows = [
        Row(arm.arm.name, unit.times * arm.mean, unit.times * arm.low, unit.times * arm.high,
            trained=arm.trained)
        for arm in comparison.arms
    ]  # fmt: skip
    chart = interval_chart(
        f"{member.name}: {comparison.metric}, 95 % intervals", rows,
        x_label=unit.heading(comparison.metric), reference=comparison.reference,
        lines={name: unit.times * value for name, value in comparison.trivial.items()},
        digits=unit.digits,
    )  # fmt: skip
    verdicts = (*comparison.verdicts, *comparison.rungs)
    many = len(verdicts) > SENTENCES
    sentences = [*([] if many else [one.sentence for one in verdicts]),
                 *map(str, comparison.failures)]  # fmt: skip
    own = report.sections
    figures = [Figure(chart), *(figure for section in own for figure in section.figures)]
    tables = [
        arms_table(member.name, comparison),
        *([verdicts_table(member.name, comparison)] if many else []),
        *(table for one in own for table in one.tables),
    ]
    text = [*(text for section in own for text in section.paragraphs), *sentences]
    return Section(f"{member.name}: {member.lab.question}", text, figures, tables)


def finished(arm: Evidence) -> list[Path]:
    """Return the folders of an arm's runs that have a result."""
    return [folder for folder in arm.folders if read_score(folder)]


def by_standing(rows: Sequence[Sequence[Cell]]) -> dict[str, list[str]]:
    """Return the arms of a task by their standing, from rows of (task, arm, …, standing).

    >>> by_standing([["sorting", "delta", "behind"], ["sorting", "moba", "behind"]])
    {'behind': ['delta', 'moba']}
    """
    return {
        standing: names
        for standing in STANDINGS
        if (names := [str(row[1]) for row in rows if row[-1] == standing])
    }


def seeds_needed(verdict: Mapping[str, Any]) -> int:
    """Return the seeds at which an undecided difference would be decided, if it stayed the same.

    The interval narrows as 1/√n, until it excludes 0 or lies within ±δ; with Holm's correction one
    that does so may be undecided, and then it is one more seed at least.

    >>> seeds_needed({"seeds": 4, "low": -0.05, "high": 0.05, "difference": 0.0, "delta": 0.03})
    12
    """
    half, gap = (verdict["high"] - verdict["low"]) / 2, abs(verdict["difference"])
    share: float = half / max(gap, verdict["delta"] - gap, 1e-9)
    return max(int(verdict["seeds"]) + 1, math.ceil(int(verdict["seeds"]) * share**2))


def arms_table(name: str, comparison: Comparison) -> Table:
    """Return the arms of a comparison with their costs."""
    unit = unit_of(comparison.metric)
    columns = ["arm", unit.heading(comparison.metric), "95 % interval", "seeds", "parameters",
               "seconds", "training"]  # fmt: skip
    rows: list[list[Cell]] = [
        [arm.arm.name, unit.write(arm.mean), f"{unit.write(arm.low)} to {unit.write(arm.high)}",
         arm.seeds, arm.parameters or 0, round(arm.seconds or 0.0, 1), arm.training()]
        for arm in comparison.arms
    ]  # fmt: skip
    return Table(f"{name}: the arms", columns, rows)


def verdicts_table(name: str, comparison: Comparison) -> Table:
    """Return the verdicts of a comparison: differences, their intervals and p."""
    unit = unit_of(comparison.metric)
    columns = ["arm", "beside", unit.heading("difference"), "95 % interval", "p (Holm)",
               "not trained to the end"]  # fmt: skip
    rows: list[list[Cell]] = [
        [one.a, one.b, unit.write(one.mean, "+"),
         f"{unit.write(one.low, '+')} to {unit.write(one.high, '+')}",
         format_p(one.p).removeprefix("p ").removeprefix("= "), ", ".join(one.untrained)]
        for one in (*comparison.verdicts, *comparison.rungs)
    ]  # fmt: skip
    note = (
        "A difference from an arm whose training had not ended is a statement about these steps, "
        "not about the methods."
    )
    return Table(f"{name}: the differences", columns, rows, note)
