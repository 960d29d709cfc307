"""``metrics.jsonl``: a line every few steps, consistent with the checkpoints."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.reading import checked, parse_json, read_bytes
from regard.training.loop import Progress

MOST = 1 << 30  # maximum bytes of the file
EVERY = 10  # steps; those with a validation always have a line


class MetricsLog:
    """The log of one training; on a resume, lines of steps that are repeated are removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = False

    def add(self, progress: Progress) -> None:
        """Append a line for a step, if it is logged."""
        if not self.begun:
            self.cut(progress.step)
            self.begun = True
        if not logged(progress):
            return
        row = asdict(progress)
        del row["note"], row["few_updates"]
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        with atomic_io.one_line_errors(self.path, len(line)), self.path.open("ab") as file:
            file.write(line)

    def cut(self, step: int) -> None:
        """Remove the lines from this step on, and an incomplete last line."""
        if self.path.exists():
            earlier = [row for row in self.rows() if row["step"] < step]
            lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in earlier)
            atomic_io.write_bytes(self.path, lines.encode())

    def rows(self) -> list[dict[str, Any]]:
        """Return all complete lines. Raises: an invalid line."""
        if not self.path.exists():
            return []
        rows = []
        for line in read_bytes(self.path, MOST).splitlines():
            try:
                row = parse_json(line, self.path)
            except RegardError:  # the last line, cut off by a kill or a full disk
                break
            checked(Progress, row, self.path)
            rows.append(row)
        return rows


def logged(progress: Progress) -> bool:
    """Return whether a step has a line: the first, every tenth, and those with a validation."""
    return progress.step <= 1 or not progress.step % EVERY or progress.validation is not None
