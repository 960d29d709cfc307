"""Send the metrics of a training to TensorBoard, MLflow or Weights & Biases (``track=``).

A tracker gets the rows of ``metrics.jsonl`` as they are written. It changes no result, and writes
into the run's folder unless the tracker's own environment variables name another place.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import RegardError
from regard.lab.runs.config import Config
from regard.lab.runs.metrics_log import logged
from regard.training.loop import Progress

#: Fields of `Progress` that are tracked if they have a number.
TRACKED = (
    "epoch", "loss", "learning_rate", "tokens", "tokens_per_second", "peak_mb", "validation",
    "validation_loss", "best",
)  # fmt: skip


class Tracker(Protocol):
    """A store for numbers by name and step."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Store the numbers of a step."""

    def close(self, complete: bool) -> None:
        """End the record; ``complete``: whether the training reached its end."""


class TensorBoard:
    """Event files in ``RUN/tensorboard``: ``tensorboard --logdir runs`` shows all runs.

    A resumed training hides the later steps of the one that was interrupted.
    """

    def __init__(self, folder: Path, config: Config, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter  # torch's class has no types
        self.writer = make(str(folder / "tensorboard"), purge_step=step)
        self.writer.add_text("config", f"    {config.toml().decode()}".replace("\n", "\n    "))

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self, complete: bool) -> None:
        self.writer.close()


class MLflow:
    """A run of the experiment "regard", at ``MLFLOW_TRACKING_URI`` or in ``RUN/mlflow.db``.

    A resumed training continues its run, whose id is in ``RUN/.mlflow``.
    """

    def __init__(self, folder: Path, config: Config, step: int) -> None:
        from mlflow import MlflowClient

        place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
        self.client, memory = MlflowClient(place), folder / ".mlflow"
        if memory.exists():
            self.id = memory.read_text(encoding="utf-8")
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "regard")
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name)
        self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
        memory.write_text(self.id, encoding="utf-8")
        for key, value in _settings(config).items():
            self.client.log_param(self.id, key, value)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.client.log_metric(self.id, name, number, step=step)

    def close(self, complete: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if complete else "KILLED")


class WeightsAndBiases:
    """A run of the project "regard" in ``RUN/wandb``, offline unless ``WANDB_MODE`` is set.

    ``wandb sync`` sends an offline run. A resumed training continues its run, whose id is in
    ``RUN/.wandb-id``.
    """

    def __init__(self, folder: Path, config: Config, step: int) -> None:
        import wandb

        memory = folder / ".wandb-id"
        known = memory.read_text(encoding="utf-8") if memory.exists() else None
        self.run = wandb.init(
            id=known,
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", "regard"),
            name=folder.name,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=_settings(config),
        )
        memory.write_text(str(self.run.id), encoding="utf-8")

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self, complete: bool) -> None:
        self.run.finish(exit_code=0 if complete else 1)


#: The tracker of each value of ``track``, and the packages that it needs.
TRACKERS: Mapping[str, tuple[Callable[[Path, Config, int], Tracker], str]] = {
    "tensorboard": (TensorBoard, "'.[track]'"),
    "mlflow": (MLflow, "mlflow"),
    "wandb": (WeightsAndBiases, "wandb"),
}


@contextmanager
def tracking(folder: Path, config: Config) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that sends a step's numbers to the tracker of ``track=``, if there is one.

    Raises: the tracker's package is not installed.
    """
    name = config.training.track
    if name == "none":
        yield lambda progress: None
        return
    make, package = TRACKERS[name]
    must_be_installed(name, package)
    tracker: Tracker | None = None
    complete = False

    def add(progress: Progress) -> None:
        nonlocal tracker, complete
        if tracker is None:  # the first step is where a resumed training continues
            tracker = make(folder, config, progress.step)
        if logged(progress):
            values = asdict(progress)
            numbers = {key: values[key] for key in TRACKED if values[key] is not None}
            tracker.add(progress.step, numbers)
        complete = bool(progress.ended) or progress.step >= progress.steps

    try:
        yield add
    finally:
        if tracker is not None:
            tracker.close(complete)


def must_be_installed(name: str, package: str) -> None:
    """Raise a one-line error if a tracker's package cannot be imported."""
    try:
        __import__(name)
    except ImportError as error:
        raise RegardError(
            f"track={name} needs {name}, which is not installed ({error}): pip install -c "
            f"constraints.txt {package}, or leave track= out; metrics.jsonl has the same numbers"
        ) from None


def _settings(config: Config) -> dict[str, Any]:
    """Return all settings of a run, flat: ``training.steps``."""
    flat = {
        f"{section}.{key}": value
        for section, values in config.sections().items()
        for key, value in values.items()
    }
    return {"task": config.task, "model": config.model, **flat}
