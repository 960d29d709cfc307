"""Train arms × seeds under one budget on all cores, and test which arm is better."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.core.errors import RegardError, look_up
from regard.core.settings import key_of, key_value, unknown_key
from regard.lab.studies import scoring
from regard.lab.studies.arms import Arm, check_arms, parse_arm, parse_arms, spelled
from regard.lab.studies.budget import parse_budget
from regard.lab.studies.compatibility import (
    check_compatible,
    check_paired,
    check_same_test,
    data_key,
)
from regard.lab.studies.job import RunScore, RunTask, read_score, train_and_score
from regard.lab.studies.launch import Event, Job, Launcher, Outcome, launch
from regard.lab.studies.result import ArmResult, Comparison, Failure
from regard.lab.studies.search import Search
from regard.lab.studies.statistics import Difference, as_family
from regard.lab.studies.trial import TRIAL_SEED
from regard.lab.studies.tune import TUNE, Tuned, check_search, tune
from regard.lab.tasks.models import ModelEntry

FAILED = "failed"  # the end of a run without a result
SEED = "{seed}"  # replaced by the run's seed in an arm's settings: init=…/seed-{seed}


def compare(
    task: str,
    arms: str | Sequence[str | Arm],
    *,
    seeds: int = 3,
    budget: str | None = None,
    reference: str | None = None,
    out: Path | str,
    overrides: Sequence[str] = (),
    workers: int | None = None,
    launcher: Launcher | None = None,
    ladder: bool | Sequence[tuple[str, str]] = False,
    search: Search | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Comparison:
    """Train every arm with every seed under one budget, and compare them on the test split.

    The unit of the statistics is the seed: `regard.lab.studies.statistics`. Every arm is compared
    with the `reference`, which is declared in advance (default: the first arm). ``ladder=True``
    also compares each network with the one before it; a list of pairs compares those. These
    comparisons form a family of their own. An arm that is the same for every seed (a baseline)
    runs once.

    `overrides` are ``key=value`` for all arms; a model setting applies to the arms that have it.
    `search` first searches the settings of every arm on the validation split, with the same number
    of trials under the same budget; the seeds are then trained with the best settings.

    The runs are jobs of `launcher`, by default `workers` processes of this machine
    (`regard.lab.studies.launchers.parse_launcher`).

    The same call resumes an interrupted comparison and does not repeat complete runs. An arm that
    fails is listed in `Comparison.failures`; the others continue. The result is written to
    ``out/comparison.json``, the runs to ``out/ARM/seed-N``.

    Raises: unknown names and settings; a folder with other runs; no arm succeeds.
    """
    study = Study.plan(
        task, arms, seeds=seeds, budget=budget, reference=reference, out=out, overrides=overrides,
        search=search,
    )  # fmt: skip
    rungs = study.rungs(ladder)
    total = len(study.jobs()) + sum(study.trials.values())

    def notify(event: Event) -> None:
        if on_event:
            on_event(replace(event, total=total))

    tuned = Tuned(study.arms)
    if search:
        tuned = tune(study, search, workers=workers, launcher=launcher, on_event=notify)
        study = replace(study, arms=tuned.arms)
        study.check_folders()
    jobs = study.jobs()
    complete = [job for job in jobs if read_score(Path(job.task.folder))]
    missing = [job for job in jobs if job not in complete]
    facts = study.read_data({job.arm for job in complete}) if missing else {}
    for job in complete:
        check_compatible(Path(job.task.folder), facts.get(job.arm, {}))
        notify(Event("kept", job.arm, job.seed, 1.0, "already complete"))
    outcomes = launch(missing, train_and_score, workers=workers, launcher=launcher, on_event=notify)
    comparison = study.result([*tuned.failed, *outcomes], rungs, tuned.record)
    comparison.save()
    return comparison


@dataclass(frozen=True)
class Study:
    """The declaration of a comparison: arms, seeds, budget, reference and folder."""

    task: str
    arms: tuple[Arm, ...]
    seeds: int
    reference: str
    out: Path
    overrides: tuple[str, ...]
    budget: str | None = None
    search: Search | None = None

    @classmethod
    def plan(
        cls,
        task: str,
        arms: str | Sequence[str | Arm],
        *,
        seeds: int = 3,
        budget: str | None = None,
        reference: str | None = None,
        out: Path | str,
        overrides: Sequence[str] = (),
        search: Search | None = None,
    ) -> "Study":
        """Build a study and check all that can be checked before training. Raises: as `compare`."""
        parsed = _arms(arms, models_of(task))
        if seeds < 1:
            raise RegardError(f"seeds={seeds}: a comparison needs at least one")
        names = [arm.name for arm in parsed]
        if reference is not None and reference not in names:
            raise RegardError(
                f"unknown reference {reference!r}; choose one of the arms: {', '.join(names)}"
            )
        from_budget = [
            f"{key}={value}" for key, value in (parse_budget(budget) if budget else {}).items()
        ]
        study = cls(
            task,
            tuple(parsed),
            seeds,
            reference or names[0],
            Path(out),
            (*overrides, *from_budget),
            budget,
            search,
        )
        study.check()
        return study

    def check(self) -> None:
        """Check the settings of all arms. Raises: invalid settings; a folder with another run."""
        from regard.lab.runs import Config

        known = {key for arm in self.arms for key in self._keys(arm)}
        for pair in (*self.overrides, *(pair for arm in self.arms for pair in arm.overrides)):
            key_value(pair)
            if key_of(pair) == "seed":
                raise RegardError(f"{pair}: a comparison sets its own seeds; use --seeds instead")
            if key_of(pair) not in known:
                raise RegardError(unknown_key(key_of(pair), sorted(known)))
        configs = {}
        for arm in self.arms:
            with _named(arm):
                for run in (self._run(arm, seed) for seed in self._seeds(arm)):
                    configs[arm.name] = Config.make(run.task, run.model, run.overrides)
        from regard.lab.runs.build import (
            build_once,
        )  # imports torch, so it comes after the checks of names

        for arm in self.arms:
            with _named(arm):
                build_once(configs[arm.name])
        check_same_test(configs)
        if self.search:
            check_search(self, self.search)
        else:
            self.check_folders()

    def check_folders(self) -> None:
        """Raise an `OccupiedError` if a folder holds another run."""
        from regard.lab.runs import Config, must_match

        for arm in self.arms:
            for run in (self._run(arm, seed) for seed in self._seeds(arm)):
                must_match(Path(run.folder), Config.make(run.task, run.model, run.overrides))

    def read_data(self, arms: set[str]) -> dict[str, dict[str, Any]]:
        """Return `Task.facts` for the first arm and for each of these arms, by name.

        The data are read here, before the workers start, so that they are fetched once and an
        error is reported once.
        """
        from regard.lab.runs import Config
        from regard.lab.tasks import TASKS

        facts_of: dict[str, dict[str, Any]] = {}
        facts = {}
        for arm in self.arms:
            if arm.name not in arms and arm is not self.arms[0]:
                continue
            run = self._run(arm, 0)
            data = Config.make(run.task, run.model, run.overrides).data
            key = data_key(data)
            if key not in facts_of:
                # A new task, so that the files are read as they are now.
                facts_of[key] = TASKS[self.task].prepare(data, None).facts()
            facts[arm.name] = facts_of[key]
        return facts

    def jobs(self) -> list[Job]:
        """Return a job for every arm and seed, with a guess of its cost."""
        return [
            Job(arm.name, seed, self._run(arm, seed), self.cost(arm))
            for seed in range(self.seeds)
            for arm in self.arms
            if seed in self._seeds(arm)
        ]

    @property
    def trials(self) -> dict[str, int]:
        """Return the number of search trials of each arm; 0 without a search."""
        if not self.search:
            return {arm.name: 0 for arm in self.arms}
        spaces = self.search.spaces(self.task, self.arms, self.overrides)
        return {name: self.search.trials if space else 0 for name, space in spaces.items()}

    def trial(self, arm: Arm, number: int, settings: Mapping[str, str]) -> RunTask:
        """Return the run of one trial of a search: an arm with other settings, and its own seed."""
        drawn = tuple(f"{key}={value}" for key, value in settings.items())
        run = self._run(replace(arm, overrides=(*arm.overrides, *drawn)), 0)
        return replace(
            run,
            folder=str(self.out / arm.folder / TUNE / f"trial-{number}"),
            overrides=(*run.overrides[:-1], f"seed={TRIAL_SEED}"),
        )

    def rungs(self, ladder: bool | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the pairs of a ladder: each network with the one before it, or the given pairs.

        Raises: a name that is not one of the arms.
        """
        if isinstance(ladder, bool):
            rungs = [arm.name for arm in self.arms if not arm.deterministic] if ladder else []
            return list(zip(rungs[1:], rungs, strict=False))
        names = [arm.name for arm in self.arms]
        for name in [name for pair in ladder for name in pair if name not in names]:
            raise RegardError(f"a rung must be one of the arms: {', '.join(names)}, not {name!r}")
        return list(ladder)

    def command(self) -> list[str]:
        """Return the command line of this comparison."""
        words = ["regard", "compare", self.task, "--arms", ";".join(arm.name for arm in self.arms)]
        words += ["--seeds", str(self.seeds), "--reference", self.reference]
        words += ["--budget", self.budget] if self.budget else []
        words += self.search.words() if self.search else []
        count = len(parse_budget(self.budget)) if self.budget else 0
        return [*words, *self.overrides[: len(self.overrides) - count], "--out", str(self.out)]

    def _repeat(self, done: Mapping[str, Mapping[int, RunScore]]) -> dict[str, Any]:
        """Return ``repeat``, the command with budgets in steps, if some were in minutes.

        All seeds of an arm get the mean of their steps, which differ slightly under minutes.
        """
        names, timed = {}, False
        for arm in self.arms:
            runs = done.get(arm.name, {}).values()
            steps = [run.steps for run in runs if run.timed and run.steps]
            batches = Counter(run.batch_tokens for run in runs).most_common(1)
            mean = round(sum(steps) / len(steps)) if steps else 0
            names[arm.name] = spelled(arm, mean, batches[0][0] if batches else 0)
            timed = timed or bool(steps)
        if not timed:
            return {}
        words = ["regard", "compare", self.task, "--arms", ";".join(names.values())]
        words += ["--seeds", str(self.seeds), "--reference", names[self.reference]]
        shared = [pair for pair in self.overrides if key_of(pair) != "minutes"]
        return {"repeat": [*words, *shared, "--out", f"{self.out}-again"]}

    def result(
        self,
        outcomes: Sequence[Outcome],
        rungs: Sequence[tuple[str, str]] = (),
        tuning: Mapping[str, Any] | None = None,
    ) -> Comparison:
        """Read the scores of the runs and compare them. Raises: no arm has a result."""
        scores = {arm.name: self._scores(arm) for arm in self.arms}
        failures = tuple(
            Failure(outcome.job.arm, outcome.job.seed, outcome.error, outcome.job.what)
            for outcome in outcomes
            if outcome.error
        )
        done = {name: runs for name, runs in scores.items() if runs}
        if not done:
            raise RegardError(failures[0].says if failures else "no arm has a result")
        first = next(run for runs in done.values() for run in runs.values())
        check_paired(done)
        pairs = [(arm.name, self.reference) for arm in self.arms if arm.name != self.reference]
        broken = Counter(one.job.arm for one in outcomes if one.error and not one.missing)
        results = [
            _result(arm, done[arm.name], broken[arm.name]) for arm in self.arms if arm.name in done
        ]
        by_name = {result.arm.name: result for result in results}
        return Comparison(
            task=self.task,
            metric=first.metric,
            arms=tuple(results),
            reference=self.reference,
            verdicts=tuple(self._family(pairs, done, by_name)),
            rungs=tuple(self._family(rungs, done, by_name)),
            failures=failures,
            folder=self.out,
            trivial=dict(first.trivial),
            about={
                "seeds": self.seeds,
                "command": self.command(),
                **self._repeat(done),
                **({"signature": first.signature} if first.signature else {}),
                **({"tuning": tuning} if tuning else {}),
                **self._data(done),
            },
        )

    def _family(
        self,
        pairs: Sequence[tuple[str, str]],
        done: Mapping[str, Mapping[int, RunScore]],
        results: Mapping[str, ArmResult],
    ) -> list[Difference]:
        """Compare the pairs in which both arms have results, on the seeds that both have."""
        fixed = {arm.name for arm in self.arms if arm.deterministic}
        differences = []
        for a, b in pairs:
            if a not in done or b not in done:
                continue
            runs = [name for name in (a, b) if name not in fixed]
            seeds = sorted(set.intersection(*(set(done[name]) for name in runs))) if runs else []
            if not runs:
                seeds = list(range(self.seeds))
            if seeds:
                scores_a, scores_b = (_paired(done[name], seeds, name in fixed) for name in (a, b))
                pair = [results[name] for name in (a, b)]
                difference = replace(
                    scoring.difference(scores_a, scores_b, (a, b)),
                    untrained=tuple(arm.arm.name for arm in pair if not arm.trained),
                    stuck=tuple(arm.arm.name for arm in pair if arm.stuck),
                    steps={arm.arm.name: round(fmean(arm.steps)) for arm in pair if arm.steps},
                )
                differences.append(difference)
        return as_family(differences)

    def _scores(self, arm: Arm) -> dict[int, RunScore]:
        scores = {s: read_score(Path(self._run(arm, s).folder)) for s in self._seeds(arm)}
        return {seed: score for seed, score in scores.items() if score is not None}

    def _data(self, done: Mapping[str, Mapping[int, RunScore]]) -> dict[str, Any]:
        """Return name, notes and fingerprint of the data, from the first complete run."""
        from regard.lab.runs.folder import Folder

        arm = next(arm for arm in self.arms if arm.name in done)
        place = Path(self._run(arm, min(done[arm.name])).folder)
        try:
            data = Folder(place).environment()["data"]
        except (KeyError, RegardError):  # predictions of other programs have none
            return {}
        return {"data": data["name"], "notes": data["notes"], "fingerprint": data["fingerprint"]}

    def _run(self, arm: Arm, seed: int) -> RunTask:
        own = {key_of(pair) for pair in arm.overrides}
        known = self._keys(arm)
        shared = [p for p in self.overrides if key_of(p) not in own and key_of(p) in known]
        folder = self.out / arm.folder / f"seed-{seed}"
        own_pairs = [pair.replace(SEED, str(seed)) for pair in arm.overrides]
        return RunTask(str(folder), self.task, arm.model, (*shared, *own_pairs, f"seed={seed}"))

    def _seeds(self, arm: Arm) -> range:
        return range(1 if arm.deterministic else self.seeds)

    def _keys(self, arm: Arm) -> set[str]:
        """Return the names of an arm's settings, without the seed, which the comparison sets."""
        from regard.lab.tasks import TASKS
        from regard.training.settings import TrainingSettings

        models = (TASKS[self.task].settings, models_of(self.task)[arm.model].settings)
        return {key for cls in (*models, TrainingSettings) for key in cls.model_fields} - {"seed"}

    def cost(self, arm: Arm) -> float:
        """Guess the cost of a run, to start long runs first: it grows with the layers."""
        if arm.deterministic:
            return 0.0
        usual = dict(models_of(self.task)[arm.model].configure())
        one_by_one = 3.0 if usual.get("attend_step") == "previous" else 0.0
        return 1.0 + float(usual.get("layers", 1)) + one_by_one


def models_of(task: str) -> Mapping[str, ModelEntry]:
    """Return the models of a task. Raises: an unknown task."""
    from regard.lab.tasks import TASKS

    return look_up(TASKS, task, "task").models


def _arms(arms: str | Sequence[str | Arm], models: Mapping[str, ModelEntry]) -> list[Arm]:
    items = [arms] if isinstance(arms, str) else list(arms)
    texts = [arm for arm in items if isinstance(arm, str)]
    if len(texts) == len(items):
        return parse_arms(texts, models)
    parsed = [arm if isinstance(arm, Arm) else parse_arm(arm, models) for arm in items]
    check_arms(parsed, models)
    return parsed


@contextmanager
def _named(arm: Arm) -> Iterator[None]:
    """Add the arm's name to an error."""
    try:
        yield
    except RegardError as error:
        raise RegardError(f"arm {arm.name}: {error}") from None


def _paired(runs: Mapping[int, RunScore], seeds: Sequence[int], fixed: bool) -> list[RunScore]:
    """Return a run for each seed; the only run of a deterministic arm (``fixed``) is repeated."""
    return [next(iter(runs.values())) if fixed else runs[seed] for seed in seeds]


def _result(arm: Arm, runs: Mapping[int, RunScore], failures: int = 0) -> ArmResult:
    mean, low, high = scoring.interval([runs[seed] for seed in sorted(runs)])
    costs = list(runs.values())
    seconds = [run.seconds for run in costs if run.seconds is not None]
    peaks = [run.peak_mb for run in costs if run.peak_mb is not None]
    return ArmResult(
        arm=arm,
        seeds=len(runs),
        mean=mean,
        low=low,
        high=high,
        seconds=sum(seconds) / len(seconds) if seconds else None,
        peak_mb=max(peaks, default=None),
        parameters=costs[0].parameters,
        flops=costs[0].flops,
        other_metrics={
            name: sum(run.also[name] for run in costs) / len(costs)
            for name in costs[0].also
            if all(name in run.also for run in costs)
        },
        ended=Counter(run.trained for run in costs if run.trained) + Counter({FAILED: failures}),
        steps=tuple(runs[seed].steps or 0 for seed in sorted(runs) if runs[seed].steps),
    )
