"""Tasks and runs as tests need them: with some settings, trained, or stopped."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.lab import runs
from regard.lab.tasks import TASKS


def prepared(name: str, *own: Any, **settings: object) -> Any:
    """Return a task by name; ``own`` are the tokenizer and the facts of a run."""
    entry = TASKS[name]
    return entry.prepare(entry.configure({key: str(x) for key, x in settings.items()}), *own)


def trained_run(folder: Path, task: str, model: str, settings: Sequence[str]) -> runs.Run:
    """Return a new run that is trained to its end."""
    return finished(runs.start(folder, task, model, settings))


def finished(run: runs.Run) -> runs.Run:
    """Train a run to its end and return it."""
    for _ in run.train():
        pass
    return run


def stop_after(run: runs.Run, steps: int) -> None:
    """Train so many steps, and end as an interrupted process does."""
    training = run.train()
    for _ in islice(training, steps):
        pass
    training.close()
