"""A table of how the runs of a report were trained: data, batches, steps, learning rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.lab.reports.evidence import last_row, read_json
from regard.lab.reports.findings import Table
from regard.lab.reports.scales import number
from regard.lab.runs.config import Config
from regard.lab.tasks import TASKS

UNKNOWN = "–"
COLUMNS = ["arm", "training data", "mean batch", "steps", "learning rate"]


def training_table(arms: Sequence[tuple[str, Sequence[Path]]]) -> Table | None:
    """Return a table with a row for each arm; None if no run folder can be read."""
    rows = [[name, *cells] for name, folders in arms if (cells := _cells(folders))]
    return Table("Training", COLUMNS, rows) if rows else None


def _cells(folders: Sequence[Path]) -> list[str]:
    """Return an arm's training set size, mean batch, steps of all seeds and learning rate."""
    for folder in folders:
        try:
            config = Config.read(folder)
        except RegardError:
            continue
        break
    else:
        return []
    unit = TASKS[config.task].examples
    examples, tokens = _size(read_json(folder / "env.json"))
    size = f"{examples:,} {unit}" if examples else UNKNOWN
    size += f", {tokens:,} tokens" if tokens else ""
    if config.entry.baseline:
        return [size, UNKNOWN, UNKNOWN, UNKNOWN]
    ends = [last for folder in folders if _count((last := last_row(folder)).get("step"))]
    if not ends:
        return [size, UNKNOWN, UNKNOWN, _rate(config)]
    steps = sorted({int(last["step"]) for last in ends})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return [size, _batch(ends[0], examples, unit), span, _rate(config)]


def _size(environment: dict[str, Any]) -> tuple[int, int]:
    """Return the examples and tokens of the training set, each 0 if unknown."""
    trained_on, data = (environment.get(key) for key in ("trained_on", "data"))
    trained_on, data = (part if isinstance(part, dict) else {} for part in (trained_on, data))
    counts = data.get("counts")
    total = sum(map(_count, counts)) if isinstance(counts, list) else 0
    return _count(trained_on.get("examples", total)), _count(trained_on.get("tokens"))


def _count(value: object) -> int:
    """Return a count from a file, 0 if it is not a positive integer."""
    return value if type(value) is int and value > 0 else 0


def _batch(last: dict[str, Any], examples: int, unit: str) -> str:
    """Return the mean batch size of a training, from its last line of metrics."""
    steps, epoch, tokens = last["step"], last.get("epoch"), _count(last.get("tokens"))
    size = examples * epoch / steps if isinstance(epoch, int | float) else 0
    parts = [f"{size:.0f} {unit}"] if size >= 1 else []
    parts += [f"{tokens / steps:,.0f} tokens"] if tokens else []
    return ", ".join(parts) or UNKNOWN


def _rate(config: Config) -> str:
    return f"{number(config.training.learning_rate)}, {config.training.schedule}"
