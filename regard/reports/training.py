"""How the runs of a report were trained: what they learned from, batches, steps, learning rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.reports.evidence import read_json, read_lines
from regard.reports.findings import Table
from regard.reports.scales import number
from regard.runs.config import Config
from regard.tasks import TASKS

#: What the examples of a kind of task are called.
UNKNOWN = "–"
COLUMNS = ["arm", "learned from", "batch, mean", "steps", "learning rate"]


def training_table(arms: Sequence[tuple[str, Sequence[Path]]]) -> Table | None:
    """Return a row for each arm and its run folders; None where no folder can be read."""
    rows = [[name, *told] for name, folders in arms if (told := _told(folders))]
    return Table("How each was trained", COLUMNS, rows) if rows else None


def _told(folders: Sequence[Path]) -> list[str]:
    """Size of the training set, mean batch, steps of all seeds, learning rate of one arm."""
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
    ends = [last for folder in folders if _count((last := _last(folder)).get("step"))]
    if not ends:
        return [size, UNKNOWN, UNKNOWN, _rate(config)]
    steps = sorted({int(last["step"]) for last in ends})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return [size, _batch(ends[0], examples, unit), span, _rate(config)]


def _size(environment: dict[str, Any]) -> tuple[int, int]:
    """Examples of the training set and their tokens; 0 where it is not known."""
    found, data = (environment.get(key) for key in ("trained_on", "data"))
    found, data = (part if isinstance(part, dict) else {} for part in (found, data))
    counts = data.get("counts")
    total = sum(map(_count, counts)) if isinstance(counts, list) else 0
    return _count(found.get("examples", total)), _count(found.get("tokens"))


def _count(value: object) -> int:
    """A count from a file; 0 of what is none."""
    return value if type(value) is int and value > 0 else 0


def _batch(last: dict[str, Any], examples: int, unit: str) -> str:
    """The mean batch of a training, from its last line of metrics."""
    steps, epoch, tokens = last["step"], last.get("epoch"), _count(last.get("tokens"))
    whole = examples * epoch / steps if isinstance(epoch, int | float) else 0
    parts = [f"{whole:.0f} {unit}"] if whole >= 1 else []
    parts += [f"{tokens / steps:,.0f} tokens"] if tokens else []
    return ", ".join(parts) or UNKNOWN


def _rate(config: Config) -> str:
    return f"{number(config.training.learning_rate)}, {config.training.schedule}"


def _last(folder: Path) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for row in read_lines(folder / "metrics.jsonl"):
        last = row
    return last
