"""Trackers for MLflow and Weights & Biases: ``track=mlflow`` and ``track=wandb``.

They write into the run's folder unless their own environment variables name another place.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.lab.runs import Config, Tracker


class MLflow(Tracker):
    """A run of the experiment "regard", at ``MLFLOW_TRACKING_URI`` or in ``RUN/mlflow.db``.

    A resumed training continues its run, whose id is in ``RUN/.mlflow``.
    """

    package, install = "mlflow", "pip install mlflow-skinny"

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


class WeightsAndBiases(Tracker):
    """A run of the project "regard" in ``RUN/wandb``, offline unless ``WANDB_MODE`` is set.

    ``wandb sync`` sends an offline run. A resumed training continues its run, whose id is in
    ``RUN/.wandb-id``.
    """

    package, install = "wandb", "pip install wandb"

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


def _settings(config: Config) -> dict[str, Any]:
    """Return all settings of a run, flat: ``training.steps``."""
    flat = {
        f"{section}.{key}": value
        for section, values in config.sections().items()
        for key, value in values.items()
    }
    return {"task": config.task, "model": config.model, **flat}
