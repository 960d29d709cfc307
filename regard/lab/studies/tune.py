"""Search the settings of every arm on validation, with the same number of trials for each.

The trials run in the launcher's processes and share Optuna's storage. The comparison then trains
an arm's seeds with its best settings.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.atomic_io import locked, remove_folder
from regard.core.errors import OccupiedError, RegardError
from regard.core.plugins import changed
from regard.core.ranges import Range
from regard.lab.runs import Config
from regard.lab.studies.arms import Arm
from regard.lab.studies.expected import best_so_far, expected_best
from regard.lab.studies.job import RunTask, read_score
from regard.lab.studies.launch import Event, Job, Launcher, Outcome, launch
from regard.lab.studies.search import Search
from regard.lab.studies.storage import begin_search, open_search
from regard.lab.studies.trial import Trial, keep_trial, read_trial, result_of, train_and_validate
from regard.lab.tasks.settings import PretrainingSettings

if TYPE_CHECKING:
    from regard.lab.studies.study import Study

DECLARED = "search"  # the declaration of an arm's search, in the storage
LOCK = "search.lock"  # held while trials are drawn


@dataclass(frozen=True)
class Tuned:
    """The result of a search: the arms with their best settings, and the failed searches.

    `record` has everything as JSON-serialisable values, by arm.
    """

    arms: tuple[Arm, ...]
    failed: tuple[Outcome, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)


def check_search(study: "Study", search: Search) -> dict[str, dict[str, Range]]:
    """Return the ranges of each arm's searched settings, and check the search before it starts.

    Raises: as `Search.spaces`; a range with invalid values of its setting; no validation
    texts; final runs with the settings of another search, or of none.
    """
    spaces = search.spaces(study.task, study.arms, study.settings)
    for arm in study.arms:
        for key, values in spaces[arm.name].items():
            for end in values.ends():
                run = study.trial(arm, 0, {key: end})
                try:
                    config = Config.make(run.task, run.model, run.overrides)
                except RegardError as error:
                    raise RegardError(f"arm {arm.name}, range of {key}: {error}") from None
                if isinstance(config.data, PretrainingSettings) and config.data.validation == 0:
                    raise RegardError(
                        "validation=0 holds no texts out, which a search needs; give validation="
                    )
        _check_same_search(study, arm, search, spaces[arm.name])
        first = study.trial(arm, 0, {})
        search.check_grid(arm.name, spaces[arm.name], _defaults(first, spaces[arm.name]))
        if spaces[arm.name] and (stored := read_trial(Path(first.folder))):
            _check_same(first, stored, {})
    return spaces


def tune(study: "Study", launcher: Launcher | None, notify: Callable[[Event], None]) -> Tuned:
    """Run the missing trials, and give every arm its best settings; without a search, its own.

    An arm with a trial that could not run (a worker died, the disk is full) has no result; the same
    call runs the missing trials. A trial whose settings cannot be trained is a failed trial and
    counts. Raises: as `check_search`; stored trials of other settings, data or code.
    """
    search = study.search
    if search is None:
        return Tuned(study.arms)
    spaces = check_search(study, search)
    searches = {
        arm.name: _ArmSearch(study, search, arm, spaces[arm.name])
        for arm in study.arms
        if spaces[arm.name]
    }
    unfinished = any(
        read_score(Path(job.task.folder)) is None for job in study.jobs(study.looks[0])
    )
    facts = study.read_data(set(searches)) if unfinished else {}

    def notify_trial(event: Event) -> None:  # the time of the seeds afterwards is unknown
        notify(replace(event, what="trial", left=None))

    for batch in search.batches():
        jobs = []
        for each in searches.values():
            jobs += each.jobs(batch, facts.get(each.arm.name, {}), notify_trial)
        for outcome in launch(jobs, train_and_validate, launcher, notify_trial):
            if outcome.error:
                searches[outcome.job.arm].failed.append(outcome)
        for each in searches.values():
            each.collect(batch)
    tuned = [searches[arm.name].tuned() if arm.name in searches else arm for arm in study.arms]
    return Tuned(
        arms=tuple(arm for arm in tuned if arm is not None),
        failed=tuple(failure for each in searches.values() for failure in each.failed),
        record={
            "trials": search.trials,
            "sampler": search.sampler,
            "seed": search.seed,
            "metric": next((each.metric for each in searches.values() if each.metric), ""),
            "arms": {name: each.record() for name, each in searches.items()},
        },
    )


class _ArmSearch:
    """The search of one arm: its trials and their results."""

    def __init__(
        self, study: "Study", search: Search, arm: Arm, space: Mapping[str, Range]
    ) -> None:
        self.study, self.search, self.arm, self.space = study, search, arm, space
        self.default = _defaults(study.trial(arm, 0, {}), space)
        self.drawn: list[dict[str, str]] = []
        self.trials: list[Trial] = []
        self.failed: list[Outcome] = []
        self.stored = begin_search(study.out, arm.folder)
        self.stored.set_user_attr(DECLARED, _declaration(search, space))

    def jobs(
        self, batch: range, facts: Mapping[str, Any], notify: Callable[[Event], None]
    ) -> list[Job]:
        """Return the jobs of a batch that have no result yet; notify of the stored ones."""
        if self.failed:
            return []
        with locked(self.study.out / LOCK, wait=True):
            seen = self.stored.trials
            for number in range(len(seen), batch.stop):
                self.stored.add_trial(
                    self.search.suggest(
                        self.arm.name, number, self.space, self.default, seen[: batch.start]
                    )
                )
        missing, trials = [], self.stored.trials
        for number in batch:
            params = trials[number].params if number else {}
            self.drawn.append({key: self.space[key].written(params[key]) for key in params})
            run = self.study.trial(self.arm, number, self.drawn[number])
            stored = result_of(self.stored, number) or _contradictory(run)
            if stored is None:
                cost = self.study.cost(self.arm)
                missing.append(Job(self.arm.name, number, run, cost, "trial"))
            else:
                _check_same(run, stored, facts)
                remove_folder(
                    Path(run.folder)
                )  # left if a process was killed after it stored the result
                notify(Event("kept", self.arm.name, number, 1.0, "already complete"))
        return missing

    def collect(self, batch: range) -> None:
        """Read the results of a batch. Raises: a trial without a result and without a failure."""
        if self.failed:
            return
        for number in batch:
            trial = result_of(self.stored, number)
            if trial is None:
                folder = self.study.trial(self.arm, number, {}).folder
                raise RegardError(f"{folder}: the trial left no result; run it again")
            self.trials.append(trial)
        if (
            all(trial.state == "failed" for trial in self.trials)
            and batch.stop == self.search.trials
        ):
            job = Job(self.arm.name, 0, None, what="trial")
            message = (
                f"all {len(self.trials)} trials failed, this one because {self.trials[0].says}"
            )
            self.failed.append(Outcome(job, None, message))

    @property
    def metric(self) -> str:
        """Return the name of the validation score; "" if no trial was run."""
        return next((trial.metric for trial in self.trials if trial.metric), "")

    @property
    def best(self) -> int:
        """Return the number of the best trial."""
        return max(range(len(self.trials)), key=lambda number: self.trials[number].rank(number))

    def tuned(self) -> Arm | None:
        """Return the arm with its best settings; None if its search has no result."""
        if self.failed:
            return None
        chosen = tuple(f"{key}={value}" for key, value in self.drawn[self.best].items())
        return replace(self.arm, overrides=(*self.arm.overrides, *chosen))

    def record(self) -> dict[str, Any]:
        """Return the search as JSON-serialisable values; the score of a loss is exp(−loss)."""
        keys = ("validation", "loss", "steps", "seconds", "state", "says")
        rows = [
            {"settings": drawn, **{key: getattr(trial, key) for key in keys}}
            for drawn, trial in zip(self.drawn, self.trials, strict=False)
        ]
        record: dict[str, Any] = {
            "space": {key: str(values) for key, values in self.space.items()},
            "default": self.default,
            "trials": rows,
            "seconds": sum(trial.seconds for trial in self.trials),
        }
        if self.failed:
            return record
        scores = [trial.validation for trial in self.trials]
        lowest = min(score for score in scores if score is not None)
        known = [lowest if score is None else score for score in scores]
        random = self.search.sampler == "random"
        curve = expected_best(known[0], known[1:]) if random else best_so_far(known)
        gain = None if scores[0] is None else known[self.best] - known[0]
        return {
            **record,
            "best": self.best,
            "settings": {**self.default, **self.drawn[self.best]},
            "gain": gain,
            "expected": [list(point) for point in curve],
        }


def _defaults(run: RunTask, space: Mapping[str, Range]) -> dict[str, str]:
    """Return the values of the searched settings in a run without a search."""
    config = Config.make(run.task, run.model, run.overrides)
    parts = (config.network, config.training, config.data)
    return {
        key: next(str(getattr(part, key)) for part in parts if hasattr(part, key)) for key in space
    }


def _contradictory(run: RunTask) -> Trial | None:
    """Store and return a failed trial if its settings contradict each other; else None."""
    from regard.lab.runs.build import build_once

    try:
        build_once(Config.make(run.task, run.model, run.overrides))
        return None
    except RegardError as error:
        trial = Trial(run.overrides, "failed", None, None, 0, 0.0, str(error), {})
    keep_trial(Path(run.folder), trial)
    return trial


def _check_same(run: RunTask, stored: Trial, facts: Mapping[str, Any]) -> None:
    """Raise an error if a stored trial has other settings, data or code."""
    there = set(stored.given) - set(run.overrides)
    if there or len(stored.given) != len(run.overrides):
        here = ", ".join(sorted(set(run.overrides) - set(stored.given))) or "fewer settings"
        raise OccupiedError(
            f"{run.folder} holds another trial: {', '.join(sorted(there)) or 'fewer settings'} "
            f"there and {here} here; give another --out"
        )
    known = stored.about.get("fingerprint")
    differences = ["the data"] if facts and known and known != facts.get("fingerprint") else []
    if parts := stored.about.get("parts"):
        differences += changed(Config.make(run.task, run.model, run.overrides).named, parts)
    if differences:
        raise RegardError(
            f"{differences[0]} changed since {run.folder} was tried; give another --out, so that "
            "all trials are trained on the same"
        )


def _check_same_search(
    study: "Study", arm: Arm, search: Search, space: Mapping[str, Range]
) -> None:
    """Raise an error if the arm's folder holds another search, or final runs of another.

    Trials can be added until the first final run begins, since that run reads the test split.
    """
    folder, declared = study.out / arm.folder, _declaration(search, space)
    begun = any(folder.glob("seed-*/config.toml"))
    trials = open_search(study.out, arm.folder)
    stored = trials.user_attrs.get(DECLARED) if trials else None
    if stored is None and begun and space:
        raise OccupiedError(f"{folder} was trained without a search; give another --out to search")
    if stored is None or stored == declared:
        return
    more = {**stored, "trials": search.trials} == declared and stored["trials"] < search.trials
    if begun or not more:
        changed_key = next(key for key in declared if stored.get(key) != declared[key])
        raise OccupiedError(
            f"{folder} holds another search: {changed_key} is {stored.get(changed_key)} "
            f"there and {declared[changed_key]} here; give another --out"
        )


def _declaration(search: Search, space: Mapping[str, Range]) -> dict[str, Any]:
    """Return the declaration of a search as JSON-serialisable values."""
    return {**asdict(search), "space": {key: str(values) for key, values in space.items()}}
