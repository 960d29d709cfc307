"""One trial of a search, in a worker process: train with some settings, validate, forget the rest.

The test split is not read. What stays is a small file, ``trial-K.json``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.atomic_io import remove_folder, write_json
from regard.errors import RegardError, UntrainableError
from regard.reading import checked, read_json
from regard.studies.job import RunTask, share
from regard.studies.launch import Report

if TYPE_CHECKING:
    from regard.runs import Run
    from regard.training.loop import Progress

TRIAL_SEED = 1_000_000  # of every trial: no final run has it, so none repeats a lucky trial


@dataclass(frozen=True)
class Trial:
    """What a trial found: its best validation score, and what that cost.

    `given` are all of its settings as ``key=value``, `about` the fingerprint of the data and the
    digests of a user's own parts: a trial of other settings, data or code is another trial. The
    score is a share of `metric`, of a loss exp(−loss). One that failed has none, and `says` why.
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
        """Return what decides which trial is best: score, then loss, then which came first."""
        if self.validation is None:
            return (float("-inf"), 0.0, -number)
        return (self.validation, -(self.loss or 0.0), -number)


def trial_path(folder: Path) -> Path:
    """Return where the result of a trial is kept."""
    return folder.with_name(f"{folder.name}.json")


def read_trial(folder: Path) -> Trial | None:
    """Return the result of a trial, if it was kept."""
    path = trial_path(folder)
    try:
        return checked(Trial, read_json(path), path)
    except RegardError:
        return None


def keep_trial(folder: Path, trial: Trial) -> None:
    """Write the result of a trial, then remove its run: weights, checkpoints and metrics."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_json(trial_path(folder), asdict(trial))
    remove_folder(folder)


def train_and_validate(asked: RunTask, report: Report) -> str:
    """Train the trial's run to its end, or go on with it; keep its score, and say it.

    Errors: those of a run, except that settings which cannot be trained with are a result.
    """
    import torch

    from regard import runs
    from regard.memory import keep_freed_memory
    from regard.tasks.evaluation import validated

    torch.set_num_threads(1)
    keep_freed_memory()
    folder = Path(asked.folder)
    run = runs.open_or_start(folder, asked.task, asked.model, asked.overrides)
    trial = _tried(run, asked, report)
    keep_trial(folder, trial)
    if trial.validation is None:
        return f"failed: {trial.says}"
    return validated(run.validates, trial.validation)


def _tried(run: "Run", asked: RunTask, report: Report) -> Trial:
    failed = ""
    try:
        for progress in run.try_out():
            says = _says(progress, run.validates)
            report(share(progress), says, progress.few_updates)
    except UntrainableError as error:
        failed = str(error)
    environment, rows = run.folder.environment(), run.metrics()
    about = {
        "fingerprint": environment.get("data", {}).get("fingerprint"),
        "parts": environment.get("parts", {}),
    }
    best = None if failed or not rows else float(rows[-1]["best"])
    judged = [row for row in rows if best is not None and row["validation"] == best]
    losses = [float(row["validation_loss"]) for row in judged]
    return Trial(
        given=asked.overrides,
        state="failed" if failed else "complete",
        validation=best,
        loss=min(losses, default=None),
        steps=int(rows[-1]["step"]) if rows else 0,
        seconds=float(rows[-1]["seconds"]) if rows else 0.0,
        says=failed,
        about=about,
        metric=run.validates,
    )


def _says(progress: "Progress", metric: str) -> str:
    from regard.tasks.evaluation import validated

    best = "" if progress.best is None else f", {validated(metric, progress.best)}"
    return f"step {progress.step} of {progress.steps}, loss {progress.loss:.3f}{best}"
