"""The declaration of a search over settings: trials, ranges and sampler."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from hashlib import sha256
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

from regard.core.errors import RegardError
from regard.core.ranges import Choice, LogUniform, Range, parse_range
from regard.core.settings import Settings, described, key_of, unknown_key
from regard.lab.studies.arms import Arm
from regard.lab.tasks import TASKS
from regard.lab.tasks.settings import CUTTING
from regard.training.settings import BUDGETS, TrainingSettings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

Sampler = Literal["random", "tpe", "grid"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
FIRST = 6  # trials before TPE uses results: the default settings and random ones
BATCH = 3  # TPE trials that use the same earlier results, so that they can run in parallel
#: Training settings that are equal in all trials.
FIXED = {*BUDGETS, "seed", "init", "device", "precision", "threads", "save_every", "save_seconds"}

#: The default ranges of a network that starts from pretrained weights.
FINE_TUNED: Mapping[str, Range] = {"learning_rate": LogUniform(1e-5, 1e-4)}

Space = Mapping[str, Range]


@dataclass(frozen=True)
class Search:
    """A search over the settings of every arm, with the same number of trials for each.

    Trial 0 has the arm's settings without a search; Optuna samples the others. `sampler` "random"
    samples independently. "tpe" (Bergstra et al. 2011) learns from earlier trials: the first
    `FIRST` use none, then each batch of `BATCH` uses all trials before the batch. Trial k is
    therefore a function of (seed, arm, k) and, for "tpe", of the scores of fixed earlier trials. It
    depends neither on the number of processes nor on interruptions. "grid" tries every combination
    of the choices in `space`, without default ranges; the default settings are first or among them.

    `space` lists ranges as ``key=low..high``, ``key=low..high:log`` or ``key=a,b,c``. A range
    replaces the default range of a setting, or adds one.

    Raises: fewer than two trials, an unknown sampler, a negative seed.
    """

    trials: int = described(
        MISSING,
        "Tune the settings of each arm on the validation split with N trials, the first with "
        "default settings; each has the budget of a run. The seeds use the best.",
        name="tune",
        metavar="N",
        min=2,
    )
    sampler: Sampler = described(
        "random",
        "Optuna sampler: random, tpe, which learns from earlier trials, or grid: all choices.",
        type=str,
    )
    seed: int = described(0, "Random seed of the search.", name="tune_seed", min=0)
    space: tuple[str, ...] = described(
        (),
        "Search range of a setting, replacing or adding to the default ones: low..high, "
        "low..high:log or a,b,c. Repeatable.",
        name="tune_space",
        metavar="KEY=RANGE",
    )

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise RegardError(
                f"tune={self.trials}: a search needs at least two trials; the first is the default"
            )
        if self.sampler not in SAMPLERS:
            raise RegardError(f"unknown sampler {self.sampler!r}; choose {', '.join(SAMPLERS)}")
        if self.seed < 0:
            raise RegardError(f"the seed of a search is 0 or more, not {self.seed}")

    def batches(self) -> Iterator[range]:
        """Yield the numbers of the trials that may run in parallel.

        >>> list(Search(4).batches()), list(Search(8, "tpe").batches())
        ([range(0, 4)], [range(0, 6), range(6, 8)])
        """
        begin, size = 0, FIRST if self.sampler == "tpe" else self.trials
        while begin < self.trials:
            yield range(begin, min(begin + size, self.trials))
            begin, size = begin + size, BATCH

    def words(self) -> list[str]:
        """Return the search as options of ``regard compare``."""
        words = ["--tune", str(self.trials)]
        words += ["--sampler", self.sampler] if self.sampler != "random" else []
        words += ["--tune-seed", str(self.seed)] if self.seed else []
        return [*words, *(word for text in self.space for word in ("--tune-space", text))]

    def spaces(
        self, task: str, arms: Sequence[Arm], overrides: Sequence[str]
    ) -> dict[str, dict[str, Range]]:
        """Return the ranges of each arm's searched settings; empty if all its settings are fixed.

        A setting with a value is not searched, whether `overrides` set it for all arms or an arm
        for itself. Raises: a malformed range; a range of a setting that no arm has, that
        `overrides` set, or that must be equal in all trials; nothing to search.
        """
        ranges = dict(_pair(text) for text in self.space)
        if len(ranges) < len(self.space):
            raise RegardError("two ranges are given for the same setting; leave one out")
        if self.sampler == "grid" and not ranges:
            raise RegardError("a grid needs values: give --tune-space learning_rate=0.001,0.01")
        shared = {key_of(pair) for pair in overrides}
        for key in ranges:
            if key in shared:
                raise RegardError(f"{key} is given and searched: leave out {key}= or its range")
            _must_be_searchable(key, task)
        spaces = {}
        for arm in arms:
            fixed = {*shared, *(key_of(pair) for pair in arm.overrides)}
            own = _space(task, arm, ranges)
            keys = own.keys() & ranges if self.sampler == "grid" else own
            spaces[arm.name] = {key: own[key] for key in sorted(keys) if key not in fixed}
        known = {key for arm in arms for kind in _searched(task, arm) for key in kind.model_fields}
        for key in ranges:
            if key not in known:
                raise RegardError(unknown_key(key, sorted(known - FIXED)))
        if not any(spaces.values()):
            raise RegardError(
                "there is nothing to search: every setting with a range is given; leave one out "
                "or name another, as in --tune-space width=64,128"
            )
        if self.sampler == "grid":
            for arm in arms:
                self._must_be_grid(arm.name, spaces[arm.name])
        return spaces

    def _must_be_grid(self, arm: str, space: Space) -> None:
        """Raise an error if the trials are not the combinations of an arm's choices."""
        for key, values in space.items():
            if not isinstance(values, Choice):
                raise RegardError(
                    f"arm {arm}: a grid needs values of {key}, not {values}; give --tune-space "
                    f"{key}=a,b,c"
                )
        combinations = prod(len(one.values) for one in space.values() if isinstance(one, Choice))
        if space and self.trials not in (combinations, combinations + 1):
            raise RegardError(
                f"arm {arm}: the grid has {combinations} combinations, not {self.trials}; give "
                f"--tune {combinations}, or one more for default settings outside the grid"
            )

    def check_grid(self, arm: str, space: Space, default: Mapping[str, str]) -> None:
        """Raise an error if the trials of a grid are not its combinations and the default."""
        if self.sampler != "grid" or not space:
            return
        trials = 1 + len(_combinations(space, default))
        if self.trials != trials:
            raise RegardError(
                f"arm {arm}: the grid has {trials} trials, with the default settings "
                f"{', '.join(f'{key}={value}' for key, value in default.items())}, not "
                f"{self.trials}; give --tune {trials}"
            )

    def suggest(
        self,
        arm: str,
        number: int,
        space: Space,
        default: Mapping[str, str],
        seen: "Sequence[FrozenTrial]" = (),
    ) -> "FrozenTrial":
        """Return a trial to run: with sampled settings, trial 0 with those of `default`.

        `seen` has the finished trials before its batch. Settings are sampled in memory, so that the
        storage gets the whole trial at once, and an interruption leaves no half of one. A default
        that the ranges leave out has no parameters, so that TPE does not use it.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {key: _distribution(values) for key, values in space.items()}
        params: Mapping[str, Any] = {}
        if number and self.sampler == "grid":
            params = _combinations(space, default)[number - 1]
        elif number:
            study = optuna.create_study(direction="maximize", sampler=self._sampler(arm, number))
            study.add_trials(one for one in seen if one.params and self.sampler == "tpe")
            drawn = study.ask(distributions).params
            # As written in the run's settings, that is rounded.
            params = {key: values.read(values.written(drawn[key])) for key, values in space.items()}
        elif all(values.has(default[key]) for key, values in space.items()):
            params = {key: values.read(default[key]) for key, values in space.items()}
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=dict(params),
            distributions=distributions if params else {},
        )

    def _sampler(self, arm: str, number: int) -> "BaseSampler":
        """Return Optuna's sampler for one trial of an arm."""
        from optuna.samplers import RandomSampler, TPESampler

        digest = sha256(f"{self.seed}/{number}/{arm}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        if self.sampler == "random":
            return RandomSampler(seed=seed)
        return TPESampler(seed=seed, n_startup_trials=FIRST - 1)


def _combinations(space: Space, default: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the combinations of choices other than the default settings, which are trial 0.

    >>> rates = {"learning_rate": Choice(("0.001", "0.01"))}
    >>> _combinations(rates, {"learning_rate": "0.01"})
    [{'learning_rate': '0.001'}]
    """
    values = product(*(one.values for one in space.values() if isinstance(one, Choice)))
    every = (dict(zip(space, each, strict=True)) for each in values)
    return [one for one in every if any(one[key] != default[key] for key in space)]


def _space(task: str, arm: Arm, ranges: Mapping[str, str]) -> dict[str, Range]:
    """Return the default ranges of an arm, replaced and extended by ``ranges``.

    For pretrained weights, the defaults are `FINE_TUNED`; for frozen ones there are none. Of two
    settings classes with a range for the same key, the first has precedence.
    """
    kinds = _searched(task, arm)
    usual = {key: values for kind in reversed(kinds) for key, values in kind.search.items()}
    if any(key_of(pair) == "weights" for pair in arm.overrides):
        usual = {**FINE_TUNED} if len(kinds) > 1 else {}
    for key, text in ranges.items():
        owners = [kind for kind in kinds if key in kind.model_fields]
        if owners:
            whole = owners[0].model_fields[key].annotation is int
            usual[key] = parse_range(key, text, usual.get(key), whole=whole)
    return usual


def _searched(task: str, arm: Arm) -> tuple[type[Settings], ...]:
    """Return the settings classes that a search may sample: for a baseline only its own."""
    entry = TASKS[task].models[arm.model]
    if entry.fitted:
        return (entry.settings,)
    return (entry.settings, TrainingSettings, TASKS[task].settings)


def _must_be_searchable(key: str, task: str) -> None:
    """Raise an error if a setting must be equal in all trials and arms."""
    task_entry = TASKS[task]
    data = set(task_entry.settings.model_fields) - (task_entry.own_choice & CUTTING)
    models = {k for entry in task_entry.models.values() for k in entry.settings.model_fields}
    if key in FIXED or key in data - models:
        raise RegardError(f"{key} is not searched: it is the same for every trial and every arm")


def _distribution(where: Range) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(where, Choice):
        return CategoricalDistribution(where.values)
    if where.whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise RegardError(f"a range is written key=low..high or key=a,b,c, not {text!r}")
    return key_of(key), value.strip()
