"""The lab that compares: arms of one task, trained as runs, compared seed by seed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.errors import RegardError
from regard.labs import LabRequest, Say, Show
from regard.labs.lab import FLAGS, Claim, Lab, LabReport
from regard.labs.running import Planned, follow, forecast, pretrain
from regard.reports.answer import answer, percent
from regard.reports.evidence import Arm as Evidence
from regard.reports.evidence import arms_of
from regard.reports.findings import Cell, Section
from regard.settings import Settings, build
from regard.studies.arms import Arm, parse_arm
from regard.studies.budget import parse_budget
from regard.studies.compare import Study, compare, models_of
from regard.studies.job import RunTask
from regard.studies.launch import Job

if TYPE_CHECKING:
    from regard.studies.result import Comparison

BUDGETS = {"epochs", "steps", "tokens", "minutes"}
DRY_RUN = "dry-run"  # a folder that is never made: a forecast disturbs no runs that are there
OWN = ""  # the preset of data that no other preset is for
BEGIN = "init="

Values = Mapping[str, object]


@dataclass(frozen=True)
class Pretraining:
    """How networks read texts before they are compared: the settings of both trainings.

    `network` holds for both, `before` for the pretraining, `after` for the fine-tuning.
    """

    network: Values
    before: Values
    after: Values


@dataclass(frozen=True)
class Preset:
    """How a lab treats one kind of data.

    `settings` are those of all arms that have them, `arms` those of single arms.
    """

    seeds: int = 3
    settings: Values = field(default_factory=dict)
    arms: Mapping[str, Values] = field(default_factory=dict)
    pretraining: Pretraining | None = None
    task: str = ""


@dataclass(frozen=True)
class PretrainFirst:
    """The runs that an arm begins from, one for each seed.

    `folder` lies under the lab's; an absolute or existing one that `ready` says is trained already
    is the same for all seeds.
    """

    arm: str
    task: str
    model: str
    settings: tuple[str, ...] = ()
    folder: str = ""
    cost: float = 1.0
    ready: bool = False

    def home(self, out: Path) -> str:
        """Return the folder of its runs, with ``{seed}`` for the number of the seed."""
        if self.ready:
            return self.folder
        return str(out / "pretrained" / (self.folder or self.arm) / "seed-{seed}")

    def jobs(self, out: Path, seeds: int) -> list[Job]:
        """Return a job for every seed that is still to be pretrained."""
        return [
            Job(self.arm, seed, RunTask(self.home(out).format(seed=seed), self.task, self.model,
                                        (*self.settings, f"seed={seed}")), self.cost)
            for seed in (() if self.ready else range(seeds))
        ]  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What a comparison lab runs for one request.

    `overrides` are the settings of all arms, `mine` those of them that the user gave; `options` the
    lab's own settings; `stem` ends the name of the default folder.
    """

    task: str
    data: str
    arms: Sequence[Arm]
    overrides: Sequence[str]
    seeds: int
    reference: str
    budget: str
    preset: Preset
    mine: Mapping[str, str]
    options: Any
    ladder: Sequence[tuple[str, str]] = ()
    pretrain_first: Sequence[PretrainFirst] = ()
    stem: str = ""
    about: str = ""

    def left(self, settings: Values) -> dict[str, object]:
        """Return the lab's settings without those that the user's replace."""
        dropped = {*self.mine, *(BUDGETS if self.own_budget else ())}
        return {name: value for name, value in settings.items() if name not in dropped}

    @property
    def own_budget(self) -> bool:
        """Whether the user gave a budget."""
        return bool(self.budget) or bool(BUDGETS & self.mine.keys())

    def sizes(self) -> dict[str, object]:
        """Return the pretrained network's settings under the user's."""
        network = self.preset.pretraining.network if self.preset.pretraining else {}
        return {**network, **{k: v for k, v in self.mine.items() if k in network}}

    def before(self) -> dict[str, object]:
        """Return the settings of a pretraining: the preset's under the user's sizes and budget."""
        settings = self.preset.pretraining.before if self.preset.pretraining else {}
        budget = {k: v for k, v in self.mine.items() if k in BUDGETS}
        budget |= parse_budget(self.budget) if self.budget else {}
        kept = {k: v for k, v in settings.items() if not (budget and k in BUDGETS)}
        return {"data": self.data, **self.sizes(), **kept, **budget}

    def begun(self, out: Path) -> list[Arm]:
        """Return the arms, each that is pretrained with its runs in a folder."""
        homes = {first.arm: f"{BEGIN}{first.home(out)}" for first in self.pretrain_first}
        return [
            replace(arm, overrides=(homes[arm.name], *arm.overrides)) if arm.name in homes else arm
            for arm in self.arms
        ]


@dataclass(frozen=True)
class Result:
    """What a comparison lab found: the plan, the comparison, its arms with their runs' folders.

    `record` is what ``--json`` prints; `seen` what the lab's `measure` made of it.
    """

    plan: Plan
    out: Path
    record: dict[str, Any]
    arms: Sequence[Evidence]
    seen: Any = None

    @property
    def means(self) -> dict[str, float]:
        """The mean of each arm, by name."""
        return {str(row["name"]): float(row["mean"]) for row in self.record["arms"]}

    @property
    def in_words(self) -> list[str]:
        """The result of any comparison in a few sentences."""
        return answer(self.record, self.arms)

    def verdict(self, a: str, b: str) -> Mapping[str, Any] | None:
        """Return the declared comparison of two arms, or None."""
        pairs = ((v["a"], v["b"]) for v in self.record["verdicts"])
        found = [
            v for v, pair in zip(self.record["verdicts"], pairs, strict=True) if pair == (a, b)
        ]
        return found[-1] if found else None


class _Flags(Settings):
    """What a flag says, as ``key=value``."""

    data: str = ""
    seeds: int = Field(0, ge=1)
    budget: str = ""
    workers: int | None = Field(None, ge=0)


@dataclass(frozen=True, kw_only=True)
class ComparisonLab(Lab):
    """A lab that trains arms of one task on each of its seeds, and compares them.

    An arm is an `Arm`, or a text as for ``regard compare``: ``transformer:heads=2``.
    `presets` by data: the first is the lab's own choice, `OWN` is for all data without one; where
    there is none `elsewhere` says what to do instead. `options` are the lab's own settings; every
    other ``key=value`` is one of the runs. `adapt` makes of the plan what the presets do not say.
    `measure` looks at the trained runs; `figures`, `claims` and `answer` say what was found.

    >>> lab = ComparisonLab(question="Which?", task="classification", arms=["mean", "rnn"])
    >>> lab.plan(LabRequest(seeds=2, overrides=["steps=9"])).overrides
    ('data=reviews', 'steps=9')
    """

    task: str
    arms: Sequence[Arm | str]
    presets: Mapping[str, Preset] = field(default_factory=lambda: {"reviews": Preset()})
    reference: str = ""
    options: type[Settings] = Settings
    adapt: Callable[[Plan], Plan] = lambda plan: plan
    measure: Callable[[Result], Any] = lambda result: None
    figures: Callable[[Result], Iterable[Section]] = lambda result: ()
    claims: Callable[[Result], Iterable[Claim]] = lambda result: ()
    answer: Callable[[Result], Iterable[str]] = lambda result: result.in_words
    next: str | Callable[[Result], str] = "regard lab"
    elsewhere: str = "give one of them"

    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Pretrain, train and compare the arms; write and say what was found."""
        request, plan, out = self._open(request, say)
        Study.plan(plan.task, plan.arms, **_declared(plan, out / DRY_RUN))  # before any training
        first = [job for one in plan.pretrain_first for job in one.jobs(out, plan.seeds)]
        workers = request.workers or None
        pretrain(sorted(first, key=lambda job: job.seed), workers, show)
        comparison = compare(
            plan.task, plan.begun(out), workers=workers, ladder=plan.ladder,
            on_event=follow(show), **_declared(plan, out),
        )  # fmt: skip
        return self.finish(request, self.report(plan, comparison, out), out, plan.data, say)

    def report(self, plan: Plan, comparison: "Comparison", out: Path) -> LabReport:
        """Look at the trained runs, and say what was found."""
        record = comparison.record()
        result = Result(plan, out, record, arms_of(record, out))
        result = replace(result, seen=self.measure(result))
        return LabReport(
            [*self.answer(result)],
            [*self.figures(result)],
            [*self.claims(result)],
            self.next if isinstance(self.next, str) else self.next(result),
            trained=comparison,
            record={key: record[key] for key in record.keys() - comparison.record().keys()},
        )

    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Make one step of each arm, and forecast the time and memory of all."""
        request, plan, out = self._open(request, say)
        planned = [
            Planned(f"{job.arm}, pretraining", job.task, plan.seeds)
            for one in plan.pretrain_first
            for job in one.jobs(out, 1)
        ]
        arms = [replace(arm, overrides=tuple(p for p in arm.overrides if not p.startswith(BEGIN)))
                for arm in plan.arms]  # fmt: skip
        study = Study.plan(plan.task, arms, **_declared(plan, out / DRY_RUN))
        fixed = {arm.name for arm in arms if arm.deterministic}
        planned += [
            Planned(job.arm, job.task, 1 if job.arm in fixed else plan.seeds)
            for job in study.jobs()
            if job.seed == 0
        ]
        return forecast(self.name, planned, request.workers or 2, say)

    def plan(self, request: LabRequest) -> Plan:
        """Return the preset of the request's data under the user's settings.

        Errors: a pair that is not ``key=value``; an option or budget that does not fit; data that
        the lab does not know. What names no setting of a run is refused by the comparison.
        """
        request, mine = self._asked(request)
        own = {key: mine.pop(key) for key in [*mine] if key in self.options.model_fields}
        data = request.data or next(iter(self.presets))
        preset = self.presets.get(data) or self.presets.get(OWN)
        if preset is None:
            known = " and ".join(self.presets)
            raise RegardError(f"--data {data}: this lab knows {known}; {self.elsewhere}")
        if request.budget:
            parse_budget(request.budget)
        task = preset.task or self.task
        models = models_of(task)
        arms = [arm if isinstance(arm, Arm) else parse_arm(arm, models) for arm in self.arms]
        plan = Plan(
            task, data, arms, (), request.seeds or preset.seeds,
            self.reference or (arms[0].name if arms else ""), request.budget, preset,
            mine, build(self.options, own), stem=Path(data).stem,
        )  # fmt: skip
        arms = [
            replace(arm, overrides=(*pairs(plan.left(preset.arms.get(arm.name, {}))),
                                    *arm.overrides))
            for arm in arms
        ]  # fmt: skip
        overrides = pairs({"data": data, **plan.left(preset.settings), **mine})
        plan = self.adapt(replace(plan, arms=arms, overrides=overrides))
        seeds = f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''} each"
        return replace(plan, about=plan.about or f"{len(plan.arms)} arms on {data}, {seeds}")

    def _open(self, request: LabRequest, say: Say) -> tuple[LabRequest, Plan, Path]:
        """Make the plan, and say the question and what will be done about it."""
        plan = self.plan(request)
        asked, _ = self._asked(request)
        say(self.question)
        say(plan.about)
        return asked, plan, self.place(asked, plan.stem)

    @staticmethod
    def _asked(request: LabRequest) -> tuple[LabRequest, dict[str, str]]:
        """Return the request with what its pairs say of its flags, and the other pairs by name."""
        mine: dict[str, str] = {}
        for pair in request.overrides:
            name, equals, value = pair.partition("=")
            key = name.strip().replace("-", "_")
            if not equals:
                raise RegardError(f"settings are written key=value, not {pair!r}")
            if key in mine or (key in FLAGS and getattr(request, key)):
                raise RegardError(f"{key} is set twice")
            mine[key] = value.strip()
        flags = {key: mine.pop(key) for key in FLAGS if key in mine}
        given = build(_Flags, flags).model_dump()
        asked = replace(request, overrides=pairs(mine), **{key: given[key] for key in flags})
        return asked, mine


def _declared(plan: Plan, out: Path) -> dict[str, Any]:
    """Return what `Study.plan` and `compare` are told alike."""
    return {
        "seeds": plan.seeds,
        "budget": plan.budget or None,
        "reference": plan.reference,
        "out": out,
        "overrides": plan.overrides,
    }


def pairs(settings: Values) -> tuple[str, ...]:
    """Return settings as ``key=value``.

    >>> pairs({"width": 8})
    ('width=8',)
    """
    return tuple(f"{key}={value}" for key, value in settings.items())


def chosen(key: str, text: str, known: Collection[str]) -> list[str]:
    """Return names between commas. Errors: none, or one that is not known.

    >>> chosen("models", "gpt, t5", ["bert", "gpt", "t5"])
    ['gpt', 't5']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known] or ([] if names else ["none"]):
        raise RegardError(f"{key}={text}: {unknown[0]!r} is none of {', '.join(known)}")
    return names


def points_of(verdict: Mapping[str, Any]) -> list[Cell]:
    """Return a verdict as cells of a table: points, their 95 % interval, p.

    >>> points_of({"difference": 0.113, "low": 0.035, "high": 0.19, "p": 0.0104})
    [11.3, '3.5 to 19.0', '0.010']
    """
    gain, low, high, p = (float(verdict[key]) for key in ("difference", "low", "high", "p"))
    shown = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return [round(100 * gain, 1), f"{percent(low)} to {percent(high)}", shown]
