"""Which score, and which normaliser, matters for what? All of them on three small tasks.

Each arm is one score with one normaliser in a network of one layer, everything else the same. The
unit is the seed; every arm is compared with scaled-dot × softmax, a family of differences a task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from regard.attention import NORMALIZERS, SCORES, make_score
from regard.errors import RegardError, look_up, no_such
from regard.labs import Say, Show
from regard.labs.lab import Compared, MeasuringLab, ReferenceTime
from regard.labs.scores.figures import sections
from regard.labs.scores.report import MADE_FOR, Study, arm_rows, claims, in_short
from regard.labs.scores.tasks import TASKS, Arm, Budget, Trained, Work, task_of, train
from regard.plugins import is_part
from regard.settings import Settings
from regard.studies.launch import Event, Job, launch
from regard.studies.statistics import as_family, compare_runs
from regard.trusted import trust_named

REFERENCE = ("scaled-dot", "softmax")
#: What a step takes, beside a dot product's; only for which arm to begin with.
SLOW = {"additive": 2.5, "epanechnikov": 1.7, "boxcar": 1.5, "entmax": 1.5}


def _names(what: str, table: Mapping[str, object], value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, Sequence), f"names of {what}s with commas between"
    names = [str(name).strip() for name in parts]
    trust_named(names)
    for name in names:
        if name not in table:
            raise ValueError(no_such(name, table, what))
    if not names or len(set(names)) < len(names):
        raise ValueError(f"one {what} or more, each once, commas between")
    return tuple(names)


def _rates(value: object) -> tuple[float, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, Sequence), "learning rates with commas between, as in 0.01,0.03"
    try:
        rates = tuple(float(rate) for rate in parts)
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate <= 1 for rate in rates) or len(set(rates)) < len(rates):
        raise ValueError("learning rates above 0 and at most 1, each once, as in 0.01,0.03")
    return rates


class ScoresSettings(Settings):
    """The arms of the comparison and the budget of each.

    `tasks`, `scores` and `normalizers`: which take part; ``FILE.py:Name`` is your own.
    `pairs`: "once" has every score with softmax, or with what it is made for, and every normaliser
    with scaled-dot; "all" has every score with every normaliser. Each seed trains once at each of
    the `rates`; `effort`: times the usual steps; `held`: validation examples, and test examples;
    `keep`: keys that top-k keeps. `workers`: processes of one thread, 0 for one a core.
    """

    tasks: Annotated[tuple[str, ...], BeforeValidator(partial(_names, "task", TASKS))] = tuple(
        TASKS
    )
    scores: Annotated[tuple[str, ...], BeforeValidator(partial(_names, "score", SCORES))] = tuple(
        SCORES
    )
    normalizers: Annotated[
        tuple[str, ...], BeforeValidator(partial(_names, "normaliser", NORMALIZERS))
    ] = tuple(NORMALIZERS)
    pairs: Literal["once", "all"] = "once"
    seeds: int = Field(5, ge=2, le=50)
    rates: Annotated[tuple[float, ...], BeforeValidator(_rates)] = (0.01, 0.03)
    effort: float = Field(1.0, gt=0, le=1000, allow_inf_nan=False)
    held: int = Field(300, ge=20, le=500)
    keep: int = Field(4, ge=1)
    workers: int = Field(0, ge=0)


@dataclass(frozen=True)
class Measured:
    """The tasks with their arms and verdicts, and the settings."""

    studies: list[Study]
    settings: ScoresSettings


def measure(settings: ScoresSettings, say: Say, show: Show) -> Measured:
    """Train every arm of every task, and compare.

    Errors: a score of one's own that cannot be made; a reference arm that fails.
    """
    pairs = pairs_of(settings)
    for score in filter(is_part, settings.scores):
        make_score(score, "none", 4, 4, heads=2, length=4)  # its mistakes before any training
    for normalizer in filter(is_part, settings.normalizers):
        look_up(NORMALIZERS, normalizer, "normaliser")
    say(
        f"{len(pairs)} arms on {len(settings.tasks)} tasks, {settings.seeds} seeds each at "
        f"{len(settings.rates)} learning rates"
    )
    trained, failed = train_all(settings, pairs, show)
    for arm, why in failed.items():
        say(f"{arm.name} has no result: {why}")
    return Measured([study(task, trained, failed) for task in settings.tasks], settings)


def pairs_of(settings: ScoresSettings) -> list[tuple[str, str]]:
    """Return the arms of a task as (score, normaliser), the reference first."""
    if settings.pairs == "all":
        pairs = [(score, name) for score in settings.scores for name in settings.normalizers]
    else:
        pairs = [(score, "softmax") for score in settings.scores if score not in MADE_FOR]
        pairs += [(score, MADE_FOR[score]) for score in settings.scores if score in MADE_FOR]
        pairs += [(REFERENCE[0], name) for name in settings.normalizers]
    return list(dict.fromkeys([REFERENCE, *pairs]))


def train_all(
    settings: ScoresSettings, pairs: Sequence[tuple[str, str]], show: Show
) -> tuple[dict[Arm, Trained], dict[Arm, str]]:
    """Return what came of every arm, and the line that says why nothing came of it."""
    budget = Budget(settings.seeds, settings.rates, settings.effort, settings.held, settings.keep)
    arms = [Arm(task, *pair) for task in settings.tasks for pair in pairs]
    jobs = [Job(arm.name, 0, Work(arm, budget), cost(arm)) for arm in arms]
    done: dict[str, float] = {}

    def hear(event: Event) -> None:
        done[event.arm] = event.done
        show(sum(done.values()), len(jobs), event.arm)

    trained: dict[Arm, Trained] = {}
    failed: dict[Arm, str] = {}
    for arm, outcome in zip(
        arms, launch(jobs, train, workers=settings.workers or None, on_event=hear), strict=True
    ):
        if outcome.error:
            failed[arm] = outcome.error
        else:
            trained[arm] = outcome.value
    return trained, failed


def cost(arm: Arm) -> float:
    """Estimate the relative time of an arm, so that long ones start first."""
    task = task_of(arm.task)
    numbers = task.steps * task.batch * task.width * (task.length if task.reads != "last" else 6)
    return numbers * SLOW.get(arm.score, 1.0) * SLOW.get(arm.normalizer, 1.0)


def study(task: str, trained: Mapping[Arm, Trained], failed: Mapping[Arm, str]) -> Study:
    """Compare each arm of a task with the reference, as one family.

    Errors: nothing came of the reference.
    """
    arms = [found for arm, found in trained.items() if arm.task == task]
    reference = Arm(task, *REFERENCE)
    if reference in failed:
        raise RegardError(f"{reference.name} is what all are compared with: {failed[reference]}")
    against = trained[reference]
    verdicts = as_family(
        [
            compare_runs(found.right, against.right, (found.arm.name, reference.name))
            for found in arms
            if found.arm != reference
        ]
    )
    lost = {arm: why for arm, why in failed.items() if arm.task == task}
    return Study(task_of(task), against, tuple(arms), tuple(verdicts), lost)


def rows_of(measured: Measured) -> Compared:
    """Return the arms of all tasks and their verdicts, for ``--json``."""
    return Compared.of(
        "share of examples answered without a mistake",
        [row for found in measured.studies for row in arm_rows(found)],
        [verdict for found in measured.studies for verdict in found.verdicts],
    )


LAB = MeasuringLab(
    settings=ScoresSettings,
    reference_time=ReferenceTime(
        50, "two cores", scales_with=("effort",), note="with pairs=all, 16 minutes on one"
    ),
    measure=measure,
    figures=lambda measured: sections(measured.studies, measured.settings.model_dump()),
    claims=lambda measured: claims(measured.studies),
    answer=lambda measured: in_short(measured.studies),
    next="regard lab scores pairs=all --out runs/lab-scores-all",
    compared=rows_of,
)
