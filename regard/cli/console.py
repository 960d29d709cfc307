"""What commands share: options, where words go, how progress looks, how results become JSON."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a complete run.")]

out = Console(highlight=False, emoji=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def say(text: str = "", *, quiet: bool = False) -> None:
    """Print words for people: on stdout, or on stderr where stdout belongs to JSON (`quiet`)."""
    (err if quiet else out).print(text, markup=False)


def emit_json(result: Any) -> None:
    """Print one JSON object on stdout: with ``--json`` nothing else goes there."""
    sys.stdout.write(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


class Bar(Protocol):
    """Something that shows how far the work has come."""

    def __call__(self, done: float, total: float, says: str) -> None: ...


@contextmanager
def bar(what: str, *, every: float = 5.0) -> Iterator[Bar]:
    """A progress bar with rate and time left on a terminal; elsewhere a plain line now and then.

    It goes to stderr, so that results on stdout stay clean. Call it as ``show(done, total, says)``.
    """
    if not err.is_terminal:
        yield _Lines(what, every)
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[says]}", markup=False),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(what, total=None, says="")

        def show(done: float, total: float, says: str) -> None:
            if progress.tasks[0].total is None:  # what an earlier process did is no speed of ours
                progress.reset(task, total=total, completed=int(done))
            progress.update(task, completed=done, total=total, says=says)

        yield show


class _Lines:
    """Plain progress for files and pipes: a line every few seconds, rarer with time; the last."""

    def __init__(self, what: str, every: float) -> None:
        self.what, self.every, self.begun = what, every, time.monotonic()
        self.last = self.begun
        self.first: float | None = None  # done before we came

    def __call__(self, done: float, total: float, says: str) -> None:
        now = time.monotonic()
        spent = now - self.begun
        self.first = done if self.first is None else self.first
        if now - self.last < max(self.every, 0.03 * spent) and done < total:
            return
        self.last = now
        ours = done - self.first
        left = f", {spent * (total - done) / ours:.0f} s left" if ours else ""
        err.print(f"{self.what}: {done:g} of {total:g}, {spent:.0f} s{left}  {says}", markup=False)
