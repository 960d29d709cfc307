"""Tasks and runs as tests need them: with some settings, and trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.lab import runs
from regard.lab.tasks import TASKS


def prepared(name: str, *own: Any, **settings: object) -> Any:
    """Return a task by name; ``own`` are the tokenizer and the facts of a run."""
    entry = TASKS[name]
    return entry.prepare(entry.configure({key: str(x) for key, x in settings.items()}), *own)


def trained(folder: Path, task: str, model: str, settings: Sequence[str]) -> runs.Run:
    """Return a run that was trained to its end."""
    run = runs.start(folder, task, model, settings)
    list(run.train())
    return run
