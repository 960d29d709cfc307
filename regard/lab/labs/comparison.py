"""`ComparisonLab`: trains arms of one task as runs and compares them seed by seed."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from regard.core.errors import RegardError
from regard.core.settings import Settings, build, key_of, key_value
from regard.lab.labs import LabRequest, Say, Show
from regard.lab.labs.lab import FLAGS, Claim, Findings, Lab, LabReport
from regard.lab.labs.running import follow, forecast, pretrain
from regard.lab.reports.answer import answer, percent
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.evidence import arms_of
from regard.lab.reports.findings import Cell
from regard.lab.studies.arms import Arm, models_of, parse_arm
from regard.lab.studies.budget import parse_budget, parse_seeds
from regard.lab.studies.compare import compare
from regard.lab.studies.forecasts import Planned
from regard.lab.studies.job import RunTask, train_and_score
from regard.lab.studies.launch import Job
from regard.lab.studies.processes import Local
from regard.lab.studies.result import Comparison, claimed
from regard.lab.studies.search import Search
from regard.lab.studies.spec import JobSpec
from regard.lab.studies.study import Study

BUDGETS = {"epochs", "steps", "tokens", "minutes"}
DRY_RUN = "dry-run"  # a folder that is never created, so that a forecast finds no existing runs
ANY_DATA = ""  # key of the preset for data without a preset of their own
BEGIN = "init="
AHEAD, BEHIND, UNCLEAR = "ahead", "behind", "no evidence"
EQUIVALENT = "equivalent"  # within δ, if it was declared
#: With evidence, at these steps, of arms that were not trained to the end.
AHEAD_SO_FAR, BEHIND_SO_FAR = "ahead so far", "behind so far"
STANDINGS = (AHEAD, BEHIND, AHEAD_SO_FAR, BEHIND_SO_FAR, EQUIVALENT, UNCLEAR)

Values = Mapping[str, object]


@dataclass(frozen=True)
class Pretraining:
    """Settings of pretraining and fine-tuning.

    `network` applies to both, `before` to the pretraining, `after` to the fine-tuning.
    """

    network: Values
    before: Values
    after: Values


@dataclass(frozen=True)
class Preset:
    """Default settings of a lab for one kind of data.

    `settings` apply to all arms that have them, `arms` to single arms; `trained` names the arms
    that are trained, all if it is empty. With `least`, seeds are added from that number on until
    every claim is decided; `delta` as of a `Study`. `search`: of each arm's settings. `typical`:
    the median number of validations after which patience ended its arms, divided by the patience,
    if known.
    """

    seeds: int = 3
    settings: Values = field(default_factory=dict)
    arms: Mapping[str, Values] = field(default_factory=dict)
    trained: Sequence[str] = ()
    pretraining: Pretraining | None = None
    task: str = ""
    typical: float | None = None
    least: int = 0
    delta: float | None = None
    search: Search | None = None


@dataclass(frozen=True)
class PretrainFirst:
    """The pretrained runs from which an arm is fine-tuned, one for each seed.

    `folder` is relative to the lab's pretraining folder. With `ready` it is the path of an already
    trained run, shared by all seeds.
    """

    arm: str
    task: str
    model: str
    settings: tuple[str, ...] = ()
    folder: str = ""
    cost: float = 1.0
    ready: bool = False

    def home(self, out: Path) -> str:
        """Return the folder of the runs, with ``{seed}`` as placeholder."""
        if self.ready:
            return self.folder
        return str(out / "pretrained" / (self.folder or self.arm) / "seed-{seed}")

    def jobs(self, out: Path, seeds: int) -> list[Job]:
        """Return a pretraining job for every seed, or none if `ready`."""
        return [
            Job(self.arm, seed, RunTask(self.home(out).format(seed=seed), self.task, self.model,
                                        (*self.settings, f"seed={seed}")), self.cost)
            for seed in (() if self.ready else range(seeds))
        ]  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The runs of a comparison lab for one request.

    `overrides`: settings of all arms; `user_settings`: those among them given by the user;
    `options`: the lab's own settings; `stem`: suffix of the default folder's name; `least` and
    `delta`: as of a `Study`.
    """

    task: str
    data: str
    arms: Sequence[Arm]
    overrides: Sequence[str]
    seeds: int
    reference: str
    budget: str
    preset: Preset
    user_settings: Mapping[str, str]
    options: Any
    ladder: Sequence[tuple[str, str]] = ()
    pretrain_first: Sequence[PretrainFirst] = ()
    stem: str = ""
    about: str = ""
    least: int = 0
    delta: float | None = None
    search: Search | None = None

    @property
    def first_seeds(self) -> int:
        """Return the number of seeds with which every arm begins."""
        return self.least or self.seeds

    @property
    def seeds_each(self) -> str:
        """Return the number of seeds in words: "3 to 9 seeds each"."""
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''} each"
        return f"{self.least} to {seeds}" if self.least else seeds

    def without_user_settings(self, settings: Values) -> dict[str, object]:
        """Return the lab's settings that the user does not override."""
        dropped = {*self.user_settings, *(BUDGETS if self.own_budget else ())}
        return {name: value for name, value in settings.items() if name not in dropped}

    @property
    def own_budget(self) -> bool:
        """Return whether the user gave a budget."""
        return bool(self.budget) or bool(BUDGETS & self.user_settings.keys())

    def sizes(self) -> dict[str, object]:
        """Return the pretrained network's settings, overridden by the user's."""
        network = self.preset.pretraining.network if self.preset.pretraining else {}
        return {**network, **{k: v for k, v in self.user_settings.items() if k in network}}

    def before(self) -> dict[str, object]:
        """Return the preset's pretraining settings, overridden by the user's sizes and budget."""
        settings = self.preset.pretraining.before if self.preset.pretraining else {}
        budget = {k: v for k, v in self.user_settings.items() if k in BUDGETS}
        budget |= parse_budget(self.budget) if self.budget else {}
        others = {k: v for k, v in settings.items() if not (budget and k in BUDGETS)}
        return {"data": self.data, **self.sizes(), **others, **budget}

    @property
    def unpretrained(self) -> list[Arm]:
        """Return the arms that are trained from random weights."""
        pretrained = {first.arm for first in self.pretrain_first}
        return [arm for arm in self.arms if arm.name not in pretrained]

    def study(self, arms: Sequence[Arm], out: Path) -> Study:
        """Return the declaration of the comparison, with these arms in this folder."""
        return Study(
            self.task, tuple(arms), seeds=self.seeds, budget=self.budget, reference=self.reference,
            overrides=tuple(self.overrides), ladder=tuple(self.ladder), out=out,
            least=self.least, delta=self.delta, search=self.search,
        )  # fmt: skip

    def initialized(self, out: Path) -> list[Arm]:
        """Return the arms; pretrained ones get ``init=`` with the folder of their runs."""
        folders = {first.arm: f"{BEGIN}{first.home(out)}" for first in self.pretrain_first}
        return [
            replace(arm, overrides=(folders[arm.name], *arm.overrides))
            if arm.name in folders
            else arm
            for arm in self.arms
        ]


@dataclass(frozen=True)
class Result:
    """The results of a comparison lab: its plan, the comparison and the arms with their runs.

    `record`: the object that ``--json`` prints; `measured`: the return value of the lab's
    `measure`.
    """

    plan: Plan
    out: Path
    record: dict[str, Any]
    arms: Sequence[Evidence]
    measured: Any = None

    @property
    def means(self) -> dict[str, float]:
        """The mean of each arm, by name."""
        return {str(row["name"]): float(row["mean"]) for row in self.record["arms"]}

    @property
    def seeds(self) -> int:
        """The largest number of seeds of an arm."""
        return int(self.record.get("seeds", self.plan.seeds))

    @property
    def summary(self) -> list[str]:
        """The result of the comparison in a few sentences."""
        return answer(self.record, self.arms)

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds after which the claims are judged."""
        return self.plan.study(self.plan.arms, self.out).looks

    def arm(self, name: str) -> Mapping[str, Any]:
        """Return the record of an arm, or an empty one if it has no result."""
        return next((row for row in self.record["arms"] if row["name"] == name), {})

    def verdict(self, a: str, b: str) -> Mapping[str, Any] | None:
        """Return the declared comparison of two arms, or None."""
        verdicts = [v for v in self.record["verdicts"] if (v["a"], v["b"]) == (a, b)]
        return verdicts[-1] if verdicts else None

    def standing(self, a: str, b: str) -> str:
        """Return whether there is evidence (α = 5 %) that arm a is ahead of b, or behind.

        If one of them was not trained to the end, the evidence is about these steps: "ahead so far"
        or "behind so far", which supports no claim about the methods. An arm with only one seed
        left of several, since the others failed, is no evidence.
        """
        verdict = self.verdict(a, b)
        if verdict and verdict.get("verdict") == EQUIVALENT and not verdict["untrained"]:
            return EQUIVALENT
        if verdict is None or verdict["p"] is None or not verdict["p"] < 0.05:
            return UNCLEAR
        asked = self.record.get("seeds", 1)
        if min(self.arm(name).get("seeds", asked) for name in (a, b)) < min(2, asked):
            return UNCLEAR
        if not claimed(verdict):
            return AHEAD_SO_FAR if verdict["difference"] > 0 else BEHIND_SO_FAR
        return AHEAD if verdict["difference"] > 0 else BEHIND


class _Flags(Settings):
    """Flags that may also be given as ``key=value``."""

    data: str = ""
    seeds: int = Field(0, ge=1)
    budget: str = ""
    workers: int | None = Field(None, ge=0)
    delta: float | None = Field(None, gt=0)


@dataclass(frozen=True, kw_only=True)
class ComparisonLab(Lab):
    """A lab that trains arms of one task with several seeds and compares them.

    An arm is an `Arm` or a string as for ``regard compare``: ``transformer:heads=2``.
    `presets`: default settings by data; the first data are the default, `ANY_DATA` is the key for
    all data without a preset. Without such a preset other data are an error, which ends with
    `other_data_hint`. `options`: the lab's own settings; every other ``key=value`` is a setting of
    the runs. `usual_data` returns the data for the options, by default the first of `presets`.
    `adapt` changes the plan beyond the presets. `measure` evaluates the trained runs; `findings`
    and the `page` describe the results; a page can show the ``summary`` of the comparison. A lab
    without a page has the summary and `claims`. `more_seeds`: the arms that get more seeds, if they
    are added until claims are decided; by default those of undecided comparisons.

    >>> lab = ComparisonLab(question="Which?", task="classification", arms=["mean", "rnn"])
    >>> lab.plan(LabRequest(seeds=2, overrides=["steps=9"])).overrides
    ('data=reviews', 'steps=9')
    """

    task: str
    arms: Sequence[Arm | str]
    presets: Mapping[str, Preset] = field(default_factory=lambda: {"reviews": Preset()})
    reference: str = ""
    options: type[Settings] = Settings
    usual_data: Callable[[Any], str] = lambda options: ""
    adapt: Callable[[Plan], Plan] = lambda plan: plan
    measure: Callable[[Result], Any] = lambda result: None
    findings: Callable[[Result], Findings] = lambda result: Findings({})
    claims: Callable[[Result], Iterable[Claim]] = lambda result: ()
    more_seeds: Callable[[Result], Collection[str]] | None = None
    next: str | Callable[[Result], str] = "regard lab"
    other_data_hint: str = "give one of them"

    def run(self, request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
        """Pretrain, train and compare the arms; write and print the results."""
        request, plan, out = self._open(request, say)
        self.check(plan, out)
        comparison = self.compare(plan, out, request, show, say)
        result = self.result(plan, comparison, out)
        return self.finish(request, self.report(result, comparison), out, plan.data, say)

    def check(self, plan: Plan, out: Path) -> None:
        """Raise an error for a plan whose runs could not be trained, before any training."""
        plan.study(plan.arms, out / DRY_RUN).check()

    def must_match(self, plan: Plan, out: Path) -> None:
        """Raise an `OccupiedError` if a folder holds other runs than those of a plan."""
        before = [job for one in plan.pretrain_first for job in one.jobs(out, plan.first_seeds)]
        finished = [JobSpec.of(train_and_score, job).finished() for job in before]
        self.check(plan, out)
        arms = plan.initialized(out) if all(finished) else plan.unpretrained
        plan.study(arms, out).check_stored()

    def compare(
        self, plan: Plan, out: Path, request: LabRequest, show: Show, say: Say
    ) -> Comparison:
        """Pretrain, train and compare the arms of a plan, where the request says.

        A seed is pretrained just before the arm's run with it is trained.
        """
        launcher = request.launcher or Local(request.workers or None)
        study = plan.study(plan.initialized(out), out)
        first = [job for one in plan.pretrain_first for job in one.jobs(out, plan.seeds)]

        def before(jobs: Sequence[Job]) -> None:
            wanted = {(job.arm, job.seed) for job in jobs}
            mine = [job for job in first if (job.arm, job.seed) in wanted]
            pretrain(sorted(mine, key=lambda job: job.seed), launcher, show)

        def more_seeds(comparison: Comparison) -> Collection[str]:
            assert self.more_seeds
            return self.more_seeds(self.result(plan, comparison, out))

        before(study.jobs(plan.first_seeds))  # whose settings are checked
        more = more_seeds if self.more_seeds else None
        return compare(study, launcher, follow(show, say), before, more)

    def result(self, plan: Plan, comparison: Comparison, out: Path) -> Result:
        """Evaluate the trained runs."""
        record = comparison.record()
        result = Result(plan, out, record, arms_of(record, out))
        return replace(result, measured=self.measure(result))

    def report(self, result: Result, comparison: Comparison) -> LabReport:
        """Describe the results."""
        if self.page:
            report = self.findings(result).described(self.page, summary=result.summary)
        else:
            report = LabReport(result.summary, [], [*self.claims(result)])
        following = self.next if isinstance(self.next, str) else self.next(result)
        return replace(report, next=following, trained=comparison, record=result.record)

    def dry_run(self, request: LabRequest, say: Say) -> dict[str, Any]:
        """Run some steps of each arm and forecast the time and memory of all."""
        request, plan, out = self._open(request, say)
        planned = [
            Planned(f"{job.arm}, pretraining", job.task, plan.seeds, first=plan.first_seeds)
            for one in plan.pretrain_first
            for job in one.jobs(out, 1)
        ]
        arms = [replace(arm, overrides=tuple(p for p in arm.overrides if not p.startswith(BEGIN)))
                for arm in plan.arms]  # fmt: skip
        study = plan.study(arms, out / DRY_RUN)
        study.check()
        fixed, trials = {arm.name for arm in arms if arm.deterministic}, study.trials
        planned += [
            Planned(
                job.arm,
                job.task,
                times + trials[job.arm],
                plan.preset.typical,
                min(times, study.looks[0]) + trials[job.arm],
            )
            for job in study.jobs(1)
            for times in [1 if job.arm in fixed else plan.seeds]
        ]
        return forecast(self.name, planned, request.workers or os.cpu_count() or 1, say)

    def plan(self, request: LabRequest) -> Plan:
        """Return the preset of the requested data, overridden by the user's settings.

        Raises: a pair that is not ``key=value``; an invalid option or budget; data that the lab
        does not support. Unknown settings of runs are reported later, by the comparison.
        """
        request, user_settings = self._split(request)
        options = {
            key: user_settings.pop(key)
            for key in [*user_settings]
            if key in self.options.model_fields
        }
        chosen = build(self.options, options)
        data = request.data or self.usual_data(chosen) or next(iter(self.presets))
        preset = self.presets.get(data) or self.presets.get(ANY_DATA)
        if preset is None:
            known = " and ".join(self.presets)
            raise RegardError(f"--data {data}: this lab supports {known}; {self.other_data_hint}")
        if request.budget:
            parse_budget(request.budget)
        task = preset.task or self.task
        models = models_of(task)
        arms = [arm if isinstance(arm, Arm) else parse_arm(arm, models) for arm in self.arms]
        arms = [arm for arm in arms if not preset.trained or arm.name in preset.trained]
        given = {*user_settings, *preset.settings}
        search = preset.search
        if search and {key_of(one) for one in search.space} & given:
            search = None
        plan = Plan(
            task, data, arms, (), request.seeds or preset.seeds,
            self.reference or (arms[0].name if arms else ""), request.budget, preset,
            user_settings, chosen, stem=Path(data).stem,
            least=request.least if request.seeds else preset.least,
            delta=preset.delta if request.delta is None else request.delta, search=search,
        )  # fmt: skip
        arms = [
            replace(arm, overrides=(*pairs(plan.without_user_settings(own)), *arm.overrides))
            for arm in arms
            for own in [preset.arms.get(arm.name, {})]
        ]
        overrides = pairs(
            {"data": data, **plan.without_user_settings(preset.settings), **user_settings}
        )
        plan = self.adapt(replace(plan, arms=arms, overrides=overrides))
        about = plan.about or f"{len(plan.arms)} arms on {data}, {plan.seeds_each}"
        return replace(plan, about=about)

    def _open(self, request: LabRequest, say: Say) -> tuple[LabRequest, Plan, Path]:
        """Make the plan and print its summary."""
        plan = self.plan(request)
        normalized, _ = self._split(request)
        say(plan.about)
        return normalized, plan, self.place(normalized, plan.stem, partial(self.must_match, plan))

    @staticmethod
    def _split(request: LabRequest) -> tuple[LabRequest, dict[str, str]]:
        """Return the request with flags taken from its pairs, and the other pairs by name."""
        user_settings: dict[str, str] = {}
        for pair in request.overrides:
            key, value = key_value(pair)
            if key in user_settings or (key in FLAGS and getattr(request, key)):
                raise RegardError(f"{key} is set twice; set it once")
            user_settings[key] = value
        flags = {key: user_settings.pop(key) for key in FLAGS if key in user_settings}
        if ".." in flags.get("seeds", ""):
            least, most = parse_seeds(flags["seeds"])
            request, flags["seeds"] = replace(request, least=least), str(most)
        values = build(_Flags, flags).model_dump()
        normalized = replace(
            request, overrides=pairs(user_settings), **{key: values[key] for key in flags}
        )
        return normalized, user_settings


def pairs(settings: Values) -> tuple[str, ...]:
    """Return settings as ``key=value``.

    >>> pairs({"width": 8})
    ('width=8',)
    """
    return tuple(f"{key}={value}" for key, value in settings.items())


def parse_names(key: str, text: str, known: Collection[str]) -> list[str]:
    """Parse comma-separated names. Raises: no name, or an unknown one.

    >>> parse_names("models", "gpt, t5", ["bert", "gpt", "t5"])
    ['gpt', 't5']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known] or ([] if names else ["none"]):
        raise RegardError(f"{key}={text}: {unknown[0]!r} is not one of {', '.join(known)}")
    return names


def points_of(verdict: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a verdict: difference in points, its 95 % interval, p.

    >>> points_of({"difference": 0.113, "low": 0.035, "high": 0.19, "p": 0.0104})
    [11.3, '3.5 to 19.0', '0.010']
    """
    gain, low, high, p = (float(verdict[key]) for key in ("difference", "low", "high", "p"))
    shown = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return [round(100 * gain, 1), f"{percent(low)} to {percent(high)}", shown]
