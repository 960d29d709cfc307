"""The declaration of a comparison: arms, seeds, budget, reference, folder and search."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError
from regard.core.settings import described, key_of, key_value, unknown_key
from regard.lab.studies.arms import Arm, check_arms, models_of
from regard.lab.studies.budget import parse_budget
from regard.lab.studies.launch import Job
from regard.lab.studies.search import Search
from regard.lab.tasks import TASKS, unit_of
from regard.training.settings import TrainingSettings

if TYPE_CHECKING:
    from regard.lab.studies.job import RunTask

SEED = "{seed}"  # replaced by the run's seed in an arm's settings: init=…/seed-{seed}


@dataclass(frozen=True)
class Study:
    """The declaration of a comparison, which `regard.lab.studies.compare.compare` carries out.

    With `least`, seeds are added from that number on until every comparison is decided, at most
    `seeds`: `regard.lab.studies.stopping`. `delta` is the difference that does not matter, in the
    unit of the metric; by default `Unit.delta` if seeds are added.

    `overrides` are ``key=value`` for all arms; a model setting applies to the arms that have it.
    Run k of an arm has the seed k, or ``seed=N`` + k, for a repetition with fresh seeds.
    Every arm is compared with the `reference`, which is declared in advance ("": the first arm).
    ``ladder=True`` also compares each network with the one before it; pairs of names compare those.
    These comparisons form a family of their own. `search` first searches the settings of every arm
    on the validation split, with the same number of trials under the same budget; the seeds are
    then trained with the best settings. Runs are written to ``out/ARM/seed-N``.
    """

    task: str
    arms: tuple[Arm, ...]
    seeds: int = described(
        3,
        "Runs per arm; one seed compares two models, not two methods. 3..30 adds seeds until each "
        "comparison is decided: different, or equivalent within --delta.",
        type=str,
        metavar="N or N..M",
    )
    budget: str = described("", "Budget per run: 10m, '500 steps', '3 epochs' or '2M tokens'.")
    reference: str = described("", "Arm to compare all others with.", show_default="the first arm")
    ladder: bool | tuple[tuple[str, str], ...] = described(
        False, "Also compare each network with the previous one.", type=bool
    )
    overrides: tuple[str, ...] = ()
    search: Search | None = None
    delta: float | None = described(
        None,
        "Difference that does not matter, in the metric's unit, for the verdict 'equivalent'.",
        type=float,
        show_default="with --seeds N..M: 1 point, 1 BLEU, 0.01 nats, 0.01 of R²",
    )
    least: int = 0
    out: Path = Path()

    def __post_init__(self) -> None:
        if not self.reference and self.arms:
            object.__setattr__(self, "reference", self.arms[0].name)
        if self.delta is not None and not 0 < self.delta < math.inf:
            raise RegardError(f"--delta {self.delta:g}: give a number above 0")

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the settings of all arms: `overrides` and the budget. Raises: a wrong budget."""
        budget = parse_budget(self.budget) if self.budget else {}
        return (*self.overrides, *(f"{key}={value}" for key, value in budget.items()))

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the numbers of seeds after which the comparisons are judged."""
        from regard.lab.studies.stopping import looks  # imports scipy

        return looks(self.least or self.seeds, self.seeds)

    def margin(self, metric: str) -> float | None:
        """Return δ on the scale of a metric's values; None if nothing is to be decided.

        Raises: a metric without a usual δ.
        """
        if not self.least and self.delta is None:
            return None
        unit = unit_of(metric)
        delta = unit.delta if self.delta is None else self.delta
        if delta is None:
            raise RegardError(
                f"--seeds {self.least}..{self.seeds}: give --delta, the difference in {metric} "
                "that does not matter in your data"
            )
        return delta / unit.times

    def check(self) -> None:
        """Check all that can be checked before training.

        Raises: a wrong number of seeds, reference, budget or rung; invalid settings; a folder with
        other runs.
        """
        from regard.lab.runs import Config
        from regard.lab.studies.compatibility import check_same_test

        check_arms(self.arms, models_of(self.task))
        if self.seeds < 1:
            raise RegardError(f"seeds={self.seeds}: a comparison needs at least one")
        names = [arm.name for arm in self.arms]
        if self.reference not in names:
            raise RegardError(
                f"unknown reference {self.reference!r}; choose one of the arms: {', '.join(names)}"
            )
        for name in [name for pair in self.rungs() for name in pair if name not in names]:
            raise RegardError(f"a rung must be one of the arms: {', '.join(names)}, not {name!r}")
        known = {key for arm in self.arms for key in self._keys(arm)}
        for pair in (*self.settings, *(pair for arm in self.arms for pair in arm.overrides)):
            key_value(pair)
            if key_of(pair) not in known | {"seed"}:
                raise RegardError(unknown_key(key_of(pair), sorted(known)))
        for pair in (pair for arm in self.arms for pair in arm.overrides):
            if key_of(pair) == "seed":
                raise RegardError(
                    f"{pair}: all arms have the same seeds; leave it out, or give {pair} for all "
                    "arms, the seed of the first run"
                )
        if self.first_seed < 0:
            raise RegardError(f"seed={self.first_seed}: give 0 or a larger number")
        configs = {}
        for arm in self.arms:
            with _named(arm):
                for seed in self.seeds_of(arm)[: self.least or self.seeds]:
                    run = self.run(arm, seed)
                    configs[arm.name] = Config.make(run.task, run.model, run.overrides)
        from regard.lab.runs.build import build_once  # imports torch: after the checks of names

        for arm in self.arms:
            with _named(arm):
                build_once(configs[arm.name])
        check_same_test(configs)
        if self.least and self.delta is None:
            self.margin(TASKS[self.task].prepare(configs[names[0]].data, None).metric)
        self.check_stored()

    def check_stored(self) -> None:
        """Raise an error if a folder holds other runs, or with a search other trials."""
        from regard.lab.studies.tune import check_search

        if self.search:
            check_search(self, self.search)
        else:
            self.check_folders()

    def check_folders(self) -> None:
        """Raise an `OccupiedError` if a folder holds another run."""
        from regard.lab.runs import Config, must_match

        for arm in self.arms:
            for run in (self.run(arm, seed) for seed in self.seeds_of(arm)):
                if Path(run.folder).exists():  # a later seed may begin from a run that is to come
                    must_match(Path(run.folder), Config.make(run.task, run.model, run.overrides))

    def read_data(self, arms: set[str]) -> dict[str, dict[str, Any]]:
        """Return `Task.facts` for the first arm and for each of these arms, by name.

        The data are read here, before the workers start, so that they are fetched once and an
        error is reported once.
        """
        from regard.lab.runs import Config
        from regard.lab.studies.compatibility import NOT_READING

        facts_of: dict[str, dict[str, Any]] = {}
        facts = {}
        for arm in self.arms:
            if arm.name not in arms and arm is not self.arms[0]:
                continue
            run = self.run(arm, 0)
            data = Config.make(run.task, run.model, run.overrides).data
            key = data.model_dump_json(exclude=NOT_READING)
            if key not in facts_of:
                # A new task, so that the files are read as they are now.
                facts_of[key] = TASKS[self.task].prepare(data, None).facts()
            facts[arm.name] = facts_of[key]
        return facts

    def jobs(self, seeds: int | None = None) -> list[Job]:
        """Return a job for every arm and seed, or the first `seeds`, with a guess of its cost."""
        return [
            Job(arm.name, seed, self.run(arm, seed), self.cost(arm))
            for seed in range(self.seeds if seeds is None else seeds)
            for arm in self.arms
            if seed in self.seeds_of(arm)
        ]

    @property
    def trials(self) -> dict[str, int]:
        """Return the number of search trials of each arm; 0 without a search."""
        if not self.search:
            return {arm.name: 0 for arm in self.arms}
        spaces = self.search.spaces(self.task, self.arms, self.settings)
        return {name: self.search.trials if space else 0 for name, space in spaces.items()}

    def trial(self, arm: Arm, number: int, settings: Mapping[str, str]) -> "RunTask":
        """Return the run of one trial of a search: an arm with other settings, and its own seed."""
        from regard.lab.studies.trial import TRIAL_SEED, trial_folder

        drawn = tuple(f"{key}={value}" for key, value in settings.items())
        run = self.run(replace(arm, overrides=(*arm.overrides, *drawn)), 0)
        return replace(
            run,
            folder=str(trial_folder(self.out, arm.folder, number)),
            overrides=(*run.overrides[:-1], f"seed={TRIAL_SEED}"),
        )

    def pairs(self) -> list[tuple[str, str]]:
        """Return the comparisons with the reference, the first family."""
        names = [arm.name for arm in self.arms]
        return [(name, self.reference) for name in names if name != self.reference]

    def rungs(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of the ladder: each network with the one before it, or given pairs."""
        if isinstance(self.ladder, tuple):
            return self.ladder
        names = [arm.name for arm in self.arms if not arm.deterministic] if self.ladder else []
        return tuple(zip(names[1:], names, strict=False))

    def command(self) -> list[str]:
        """Return the command line of this comparison."""
        words = ["regard", "compare", self.task, "--arms", ";".join(arm.name for arm in self.arms)]
        words += [*self.seeds_in_words(), "--reference", self.reference]
        words += ["--budget", self.budget] if self.budget else []
        words += ["--ladder"] if self.ladder is True else []
        words += self.search.words() if self.search else []
        return [*words, *self.overrides, "--out", str(self.out)]

    def seeds_in_words(self) -> list[str]:
        """Return the options ``--seeds`` and ``--delta``."""
        words = ["--seeds", f"{self.least}..{self.seeds}" if self.least else str(self.seeds)]
        return words if self.delta is None else [*words, "--delta", f"{self.delta:g}"]

    @property
    def first_seed(self) -> int:
        """Return the seed of the first run of each arm: ``seed=`` among the settings, or 0."""
        given = dict(key_value(pair) for pair in self.overrides).get("seed", "0")
        try:
            return int(given)
        except ValueError:
            raise RegardError(f"seed={given}: give a whole number, the first seed") from None

    def run(self, arm: Arm, seed: int) -> "RunTask":
        """Return the run of an arm and a seed, which counts from `first_seed`."""
        from regard.lab.studies.job import RunTask

        own = {key_of(pair) for pair in arm.overrides}
        known = self._keys(arm)
        shared = [p for p in self.settings if key_of(p) not in own and key_of(p) in known]
        folder = self.out / arm.folder / f"seed-{seed}"
        own_pairs = [pair.replace(SEED, str(seed)) for pair in arm.overrides]
        own_seed = f"seed={self.first_seed + seed}"
        return RunTask(str(folder), self.task, arm.model, (*shared, *own_pairs, own_seed))

    def seeds_of(self, arm: Arm) -> range:
        """Return the seeds of an arm's runs; an arm that is the same for every seed runs once."""
        return range(1 if arm.deterministic else self.seeds)

    def _keys(self, arm: Arm) -> set[str]:
        """Return the names of an arm's settings, without the seed, which the comparison sets."""
        models = (TASKS[self.task].settings, models_of(self.task)[arm.model].settings)
        return {key for cls in (*models, TrainingSettings) for key in cls.model_fields} - {"seed"}

    def cost(self, arm: Arm) -> float:
        """Guess the cost of a run, to start long runs first: it grows with the layers."""
        if arm.deterministic:
            return 0.0
        usual = dict(models_of(self.task)[arm.model].configure())
        one_by_one = 3.0 if usual.get("attend_step") == "previous" else 0.0
        return 1.0 + float(usual.get("layers", 1)) + one_by_one


@contextmanager
def _named(arm: Arm) -> Iterator[None]:
    """Add the arm's name to an error."""
    try:
        yield
    except RegardError as error:
        raise RegardError(f"arm {arm.name}: {error}") from None
