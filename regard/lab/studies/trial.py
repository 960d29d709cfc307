"""One trial of a search in a worker process: train with some settings and validate.

A trial never reads the test split. Only its result in the storage of the search is kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.core.atomic_io import remove_folder
from regard.core.errors import RegardError, UntrainableError
from regard.core.reading import checked
from regard.lab.studies.job import RunTask, at_most, share
from regard.lab.studies.launch import Report
from regard.lab.studies.storage import open_search
from regard.lab.tasks.evaluation import validated

if TYPE_CHECKING:
    from optuna import Study as Trials

    from regard.lab.runs import Run
    from regard.training.loop import Progress

TRIAL_SEED = 1_000_000  # differs from the seeds of final runs, which therefore repeat no trial


@dataclass(frozen=True)
class Trial:
    """The result of a trial: its best validation score and its cost.

    `given` has all settings as ``key=value``, `about` the fingerprint of the data and the digests
    of a user's own parts; a stored trial is reused only if all of them match. The score is the
    `metric` as a share, for a loss exp(−loss). A failed trial has no score, and `says` is the
    error.
    """

    given: tuple[str, ...]
    state: Literal["complete", "failed"]
    validation: float | None
    loss: float | None
    steps: int
    seconds: float
    says: str
    about: Mapping[str, Any]
    metric: str = ""

    def rank(self, number: int) -> tuple[float, float, int]:
        """Return a sort key, larger is better: score, then lower loss, then lower number.

        Of perfect scores that with the fewest steps is best: a lower loss shows only that it was
        trained longer.
        """
        if self.validation is None:
            return (float("-inf"), 0.0, -number)
        cost = self.steps if self.validation == 1 else self.loss or 0.0
        return (self.validation, -cost, -number)


def trial_folder(out: Path, arm: str, number: int) -> Path:
    """Return the folder of a trial's run, which names its study and its number in the storage."""
    return out / arm / "tune" / f"trial-{number}"


def read_trial(folder: Path) -> Trial | None:
    """Return the stored result of the trial in a folder; None without one."""
    arm, number = folder.parents[1], int(folder.name.removeprefix("trial-"))
    search = open_search(arm.parent, arm.name)
    return result_of(search, number) if search else None


def result_of(search: "Trials", number: int) -> Trial | None:
    """Return the result of a trial; None before its end. Raises: it is not one of regard's."""
    trials = search.trials
    if number >= len(trials) or not trials[number].state.is_finished():
        return None
    name = f"trial-{number}"
    return checked(Trial, search.user_attrs.get(name), f"{search.study_name}, {name}")


def keep_trial(folder: Path, trial: Trial) -> None:
    """Store the result of a trial and remove its run: weights, checkpoints and metrics.

    Raises: the trial is not one of a search.
    """
    arm, number = folder.parents[1], int(folder.name.removeprefix("trial-"))
    search = open_search(arm.parent, arm.name)
    if search is None or number >= len(search.trials):
        raise RegardError(f"{folder} is not a trial of a search; regard compare --tune makes them")
    search.set_user_attr(folder.name, asdict(trial))
    score = float("-inf") if trial.validation is None else trial.validation
    search.tell(number, score, skip_if_finished=True)
    remove_folder(folder)


def train_and_validate(job: RunTask, report: Report) -> str:
    """Train or resume the trial's run, store its score, and return it as text.

    Raises: as a run, but settings that cannot be trained are stored as a failed trial.
    """
    import torch

    from regard.core.memory import keep_freed_memory
    from regard.lab import runs

    torch.set_num_threads(1)
    keep_freed_memory()
    folder = Path(job.folder)
    run = runs.open_or_start(folder, job.task, job.model, job.overrides)
    trial = _trial(run, job, report)
    keep_trial(folder, trial)
    if trial.validation is None:
        return f"failed: {trial.says}"
    return validated(run.validates, trial.validation)


def _trial(run: "Run", job: RunTask, report: Report) -> Trial:
    failed = ""
    try:
        for progress in run.try_out():
            message = _message(progress, run.validates)
            report(share(progress), message, progress.few_updates, at_most(progress))
    except UntrainableError as error:
        failed = str(error)
    environment, rows = run.folder.environment(), run.metrics()
    about = {
        "fingerprint": environment.get("data", {}).get("fingerprint"),
        "parts": environment.get("parts", {}),
    }
    best = None if failed or not rows else float(rows[-1]["best"])
    best_rows = [row for row in rows if best is not None and row["validation"] == best]
    losses = [float(row["validation_loss"]) for row in best_rows]
    return Trial(
        given=job.overrides,
        state="failed" if failed else "complete",
        validation=best,
        loss=min(losses, default=None),
        steps=int(rows[-1]["step"]) if rows else 0,
        seconds=float(rows[-1]["seconds"]) if rows else 0.0,
        says=failed,
        about=about,
        metric=run.validates,
    )


def _message(progress: "Progress", metric: str) -> str:
    best = "" if progress.best is None else f", {validated(metric, progress.best)}"
    return f"step {progress.step} of {progress.steps}, loss {progress.loss:.3f}{best}"
