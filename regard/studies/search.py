"""The declaration of a search over settings: trials, ranges and sampler."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, get_args

from regard.errors import RegardError
from regard.ranges import Choice, LogUniform, Range, parse_range
from regard.settings import Settings, key_of, unknown_key
from regard.studies.arms import Arm
from regard.studies.compatibility import CUTTING
from regard.training.settings import BUDGETS, TrainingSettings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

Sampler = Literal["random", "tpe"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
FIRST = 6  # trials of TPE that see no others: the default settings and random ones
BATCH = 3  # trials of TPE that see the same ones before them, and can run side by side
#: Settings of a training that are the same for every trial.
KEPT = {*BUDGETS, "seed", "init", "device", "precision", "threads", "save_every", "save_seconds"}

#: What is drawn for a network that begins with pretrained weights.
FINE_TUNED: Mapping[str, Range] = {"learning_rate": LogUniform(1e-5, 1e-4)}

Space = Mapping[str, Range]


@dataclass(frozen=True)
class Search:
    """A search over the settings of every arm, the same number of trials for each.

    Trial 0 has the settings that the arm would have without a search; the others are drawn by
    Optuna. `sampler` "random" draws independently; "tpe" (Bergstra et al. 2011) learns from
    earlier trials: the first `FIRST` from none, then each batch of `BATCH` from all before the
    batch. What trial k draws is thus a function of (seed, arm, k) and, for "tpe", of the scores of
    fixed earlier trials: neither the number of processes nor an interruption changes it.

    `space` are ranges as ``key=low..high``, ``key=low..high:log`` or ``key=a,b,c``; each takes the
    place of the range that stands beside the model's settings, or adds one.

    Errors: fewer than two trials, another sampler, a negative seed.
    """

    trials: int
    sampler: Sampler = "random"
    seed: int = 0
    space: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise RegardError(
                f"tune={self.trials}: a search needs at least two trials; the first is the default"
            )
        if self.sampler not in SAMPLERS:
            raise RegardError(f"unknown sampler {self.sampler!r}; choose {' or '.join(SAMPLERS)}")
        if self.seed < 0:
            raise RegardError(f"the seed of a search is 0 or more, not {self.seed}")

    def batches(self) -> Iterator[range]:
        """Yield the numbers of the trials that may run side by side.

        >>> list(Search(4).batches()), list(Search(8, "tpe").batches())
        ([range(0, 4)], [range(0, 6), range(6, 8)])
        """
        begin, size = 0, self.trials if self.sampler == "random" else FIRST
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
        """Return what is searched of each arm; nothing of an arm whose settings are all given.

        A setting that is given is not searched: for all arms by `overrides`, or for one arm.
        Errors: a range that is badly written, for a setting that no arm has, that is given, or
        that must be the same for every trial; nothing to search at all.
        """
        given = dict(_pair(text) for text in self.space)
        if len(given) < len(self.space):
            raise RegardError("two ranges are given for the same setting; leave one out")
        shared = {key_of(pair) for pair in overrides}
        for key in given:
            if key in shared:
                raise RegardError(f"{key} is given and searched: leave out {key}= or its range")
            _must_be_searchable(key, task)
        spaces = {}
        for arm in arms:
            fixed = {*shared, *(key_of(pair) for pair in arm.overrides)}
            own = _space(task, arm, given)
            spaces[arm.name] = {key: own[key] for key in sorted(own) if key not in fixed}
        known = {key for arm in arms for kind in _searched(task, arm) for key in kind.model_fields}
        for key in given:
            if key not in known:
                raise RegardError(unknown_key(key, sorted(known - KEPT)))
        if not any(spaces.values()):
            raise RegardError(
                "there is nothing to search: every setting with a range is given; leave one out "
                "or name another, as in --tune-space width=64,128"
            )
        return spaces

    def suggest(
        self,
        arm: str,
        number: int,
        space: Space,
        seen: Sequence[tuple[Mapping[str, str], float | None]],
    ) -> dict[str, str]:
        """Return the settings of a trial as ``key: value``; none of trial 0, the default.

        `seen` are the trials before its batch: what they drew, and their score; None: it failed.
        """
        if number == 0:
            return {}
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {key: _distribution(where) for key, where in space.items()}
        study = optuna.create_study(direction="maximize", sampler=self._sampler(arm, number))
        for settings, score in seen if self.sampler == "tpe" else ():
            if all(key in settings and where.has(settings[key]) for key, where in space.items()):
                params = {key: where.read(settings[key]) for key, where in space.items()}
                value = float("-inf") if score is None else score
                study.add_trial(
                    optuna.trial.create_trial(
                        params=params, distributions=distributions, value=value
                    )
                )
        drawn = study.ask(distributions).params
        return {key: where.written(drawn[key]) for key, where in space.items()}

    def _sampler(self, arm: str, number: int) -> "BaseSampler":
        """Optuna's sampler for one trial of one arm."""
        from optuna.samplers import RandomSampler, TPESampler

        digest = sha256(f"{self.seed}/{number}/{arm}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        if self.sampler == "random":
            return RandomSampler(seed=seed)
        return TPESampler(seed=seed, n_startup_trials=FIRST - 1)


def _space(task: str, arm: Arm, given: Mapping[str, str]) -> dict[str, Range]:
    """The usual ranges of an arm, with those that are given in their place or beside them.

    Pretrained weights are fine-tuned at rates of their own; frozen, they leave nothing to draw.
    """
    kinds = _searched(task, arm)
    usual = {**_usual(kinds)}
    if any(key_of(pair) == "weights" for pair in arm.overrides):
        usual = {**FINE_TUNED} if len(kinds) > 1 else {}
    for key, text in given.items():
        owners = [kind for kind in kinds if key in kind.model_fields]
        if owners:
            whole = owners[0].model_fields[key].annotation is int
            usual[key] = parse_range(key, text, usual.get(key), whole=whole)
    return usual


def _usual(kinds: Sequence[type[Settings]]) -> dict[str, Range]:
    """The ranges that stand beside the settings; a model's own before the training's."""
    return {key: found for kind in reversed(kinds) for key, found in kind.search.items()}


def _searched(task: str, arm: Arm) -> tuple[type[Settings], ...]:
    """Whose settings a search may draw: a baseline has no training and cuts no texts."""
    from regard.tasks import TASKS

    entry = TASKS[task].models[arm.model]
    if entry.deterministic:
        return (entry.settings,)
    return (entry.settings, TrainingSettings, TASKS[task].settings)


def _must_be_searchable(key: str, task: str) -> None:
    """Errors: a setting that must be the same for every trial, or for every arm."""
    from regard.tasks import TASKS

    asked = TASKS[task]
    data = set(asked.settings.model_fields) - (set() if asked.by_token else CUTTING)
    models = {k for entry in asked.models.values() for k in entry.settings.model_fields}
    if key in KEPT or key in data - models:
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
