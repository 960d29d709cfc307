"""Train with ``track=mlflow`` and ``track=wandb`` and read back what the real packages stored.

    pip install './examples/trackers[mlflow,wandb]'; python -m benchmarks.trackers

prints one JSON object: for each tracker, how many numbers were compared with ``metrics.jsonl`` and
the largest difference, or that it is not installed. Nothing leaves the machine: MLflow writes a
SQLite file, Weights & Biases is offline. Exit code 1 if a number differs.
"""

import importlib
import json
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.lab import runs
from regard.lab.runs.track import TRACKED

SETTINGS = ["width=8", "steps=25", "evaluate_every=10", "examples=100", "threads=1"]
TOLERANCE = 1e-6


def trained(folder: Path, name: str) -> runs.Run:
    """Return a run that was interrupted after 12 steps and resumed."""
    settings = [*SETTINGS, f"track={name}"]
    run = runs.start(folder, "classification", "mean", settings)
    training = run.train()
    for progress in training:
        if progress.step == 12:
            training.close()  # type: ignore[attr-defined]
            break
    run = runs.load(folder)
    for _ in run.train():
        pass
    return run


def mlflow_numbers(folder: Path) -> Mapping[str, Mapping[int, float]]:
    """Return the numbers that MLflow has, by name and step."""
    client = importlib.import_module("mlflow").MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("regard")
    (run,) = client.search_runs([experiment.experiment_id])
    if (run.info.status, run.data.params["training.steps"]) != ("FINISHED", "25"):
        raise SystemExit(f"mlflow: {run.info.status}, {run.data.params}")
    return {
        name: {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}
        for name in TRACKED
    }


def wandb_numbers(folder: Path) -> Mapping[str, Mapping[int, float]]:
    """Return the numbers in the offline files of Weights & Biases, by name and step."""
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    paths = sorted(folder.glob("wandb/offline-run-*/*.wandb"))  # of the interrupted, the resumed
    numbers: dict[str, dict[int, float]] = {name: {} for name in TRACKED}
    for data in (record for path in paths for record in log_records(path.read_bytes())):
        record = records.Record()
        record.ParseFromString(data)
        items: dict[str, Any] = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for name in TRACKED:
            if name in items:
                numbers[name][int(items["_step"])] = float(items[name])
    return numbers


def log_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a log in LevelDB's format after a header of 7 bytes.

    Blocks of 32 KiB; a record is one chunk (1), or a first (2), middle (3) and last (4) one, each
    with checksum, length and kind.
    """
    place, joined = 7, b""
    while place + 7 <= len(data):
        left = 32_768 - place % 32_768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        joined += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield joined
            joined = b""


READERS = {"mlflow": mlflow_numbers, "wandb": wandb_numbers}


def main() -> int:
    """Run the command."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ["WANDB_MODE"] = "offline"
    report: dict[str, Any] = {}
    for name, read in READERS.items():
        if find_spec(name) is None:
            report[name] = "not installed"
            continue
        with TemporaryDirectory() as room:
            run = trained(Path(room) / "run", name)
            found, compared, gap = read(run.folder.path), 0, 0.0
            for row in run.metrics():
                for key in TRACKED:
                    if row[key] is not None:
                        there = found[key].get(row["step"], float("inf"))
                        gap = max(gap, abs(there - row[key]) / max(1.0, abs(row[key])))
                        compared += 1
            version = importlib.import_module(name).__version__
            report[name] = {"version": version, "numbers": compared, "largest_difference": gap}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    told = [x["largest_difference"] for x in report.values() if isinstance(x, dict)]
    return 0 if told and max(told) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
