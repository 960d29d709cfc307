"""What commands share: options, where words go, how progress looks, how results become JSON."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console

if TYPE_CHECKING:
    from regard.runs import Run

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


def opened(folder: Path, command: str) -> "Run":
    """The run in a folder, for a command.

    Errors: those of `runs.load`; a folder above runs, whose names are told.
    """
    from regard import runs
    from regard.data.titles import listed
    from regard.errors import RegardError

    found = runs.below(folder)
    if not found:
        return runs.load(folder)
    chosen = showable(found) if command == "show" else found[0]
    names = listed([str(run.relative_to(folder)) for run in found], 10)
    raise RegardError(
        f"{folder} is no run but holds {len(found)}: {names}; give one, as in regard {command} "
        f"{chosen or found[0]}"
    )


def showable(runs: Sequence[Path]) -> Path | None:
    """The first run that `regard show` can draw: one that attends, else one that weighs words.

    A run that cannot be read here, as one of an untrusted file, is none.
    """
    from regard.errors import RegardError
    from regard.runs.config import Config

    configs = {}
    for run in runs:
        with suppress(RegardError):
            configs[run] = Config.read(run)
    able = [run for run, config in configs.items() if not config.reads_trees]
    attending = [run for run in able if configs[run].attends]
    weighing = [run for run in able if configs[run].entry.weighs]
    return next(iter([*attending, *weighing]), None)


class Bar(Protocol):
    """Something that shows how far the work has come.

    `left`: the seconds that it will take yet, where more is known than that the rest goes as fast.
    """

    def __call__(self, done: float, total: float, says: str, left: float | None = None) -> None: ...


@contextmanager
def bar(what: str, *, every: float = 5.0) -> Iterator[Bar]:
    """A progress bar with rate and time left on a terminal; elsewhere a plain line now and then.

    It goes to stderr, so that results on stdout stay clean. Call it as ``show(done, total, says)``.
    """
    pace = _Pace()
    if not err.is_terminal:
        yield _Lines(what, every, pace)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[says]}", markup=False),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(what, total=None, says="", left="")

        def show(done: float, total: float, says: str, left: float | None = None) -> None:
            _, words = pace(done, total, left)
            progress.update(task, completed=done, total=total, says=says, left=words)

        yield show


@contextmanager
def hidden() -> Iterator[Bar]:
    """A bar that nobody sees."""

    def show(done: float, total: float, says: str, left: float | None = None) -> None: ...

    yield show


class _Pace:
    """How long a piece of work goes on, and how long it will yet: as fast as it went here."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.first: float | None = None  # done before we came

    def __call__(self, done: float, total: float, left: float | None) -> tuple[float, str]:
        """Seconds since it began, and words for those that are left."""
        spent = time.monotonic() - self.begun
        self.first = done if self.first is None else self.first
        if left is None and done > self.first:
            left = spent * (total - done) / (done - self.first)
        return spent, "" if left is None else f"{duration(left)} left"


class _Lines:
    """Plain progress for files and pipes: a line every few seconds, rarer with time; the last."""

    def __init__(self, what: str, every: float, pace: _Pace) -> None:
        self.what, self.every, self.pace = what, every, pace
        self.last = 0.0

    def __call__(self, done: float, total: float, says: str, left: float | None = None) -> None:
        spent, words = self.pace(done, total, left)
        if spent - self.last < max(self.every, 0.03 * spent) and done < total:
            return
        self.last = spent
        times = ", ".join([duration(spent), *([words] if words else [])])
        err.print(f"{self.what}: {done:g} of {total:g}, {times}  {says}", markup=False)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(4.2), duration(150), duration(7500)
    ('4.2 s', '2 min 30 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"
