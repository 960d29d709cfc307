"""Shared by all commands: options, console output, progress bars and JSON output."""

import json
import os
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer
from rich.console import Console

from regard.lab.cli import completion

if TYPE_CHECKING:
    from regard.lab.runs import Run

Json = Annotated[bool, typer.Option("--json", help="Print only one JSON object on stdout.")]
Browse = Annotated[bool, typer.Option("--open", help="Open the result in a browser.")]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="Folder of a completed run.", autocompletion=completion.runs
    ),
]

WIDE = 1000  # columns of a terminal; no table has more
NAMED = 10  # runs of a folder that an error lists


class _Console(Console):
    """A console that draws bars with characters supported by its stream."""

    @property
    def encoding(self) -> str:
        """Return the encoding of the stream; rich assumes UTF-8 for stdout and stderr."""
        return str(getattr(self.file, "encoding", None) or "utf-8").lower()


out = _Console(highlight=False, emoji=False, soft_wrap=True)
err = _Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def subcommands(help: str) -> typer.Typer:
    """Return a command to which a module adds its subcommands."""
    return typer.Typer(help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


def say(text: str = "", *, quiet: bool = False) -> None:
    """Print a message on stdout, or if `quiet` on stderr, to keep stdout clean for results.

    Control characters of data are printed as escapes, since a terminal would obey them.
    """
    (err if quiet else out).print(printable(text), markup=False)


def begin(what: str) -> None:
    """Print on stderr what a command begins if it will load torch, which takes seconds."""
    first = os.environ.get("RANK", "0") == "0"  # only one of several processes prints
    if first and "torch" not in sys.modules:
        say(what, quiet=True)


def printable(text: str) -> str:
    """Escape each control and format character of a text except newline and tab.

    >>> print(printable("a\x1b[2Jb\u202ec"))
    a\\x1b[2Jb\\u202ec
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t\u200d" or (c.isspace() and ord(c) > 0x9F)
        else c.encode("unicode_escape").decode()
        for c in text
    )  # fmt: skip


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> None:
    """Print a table without lines; a row is a line of any width, in a pipe and on a terminal.

    `right`: the heads of columns that are aligned on the right.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        justify: Literal["right", "left"] = "right" if head in right else "left"
        table.add_column(escape(printable(head)), justify=justify)
    for row in rows:
        table.add_row(*(escape(printable(cell).replace("\n", " ")) for cell in row))
    table.width = out.measure(table, options=out.options.update(max_width=WIDE)).maximum
    out.print(table)


def browse(target: str | Path) -> None:
    """Open an address or a file in the browser; without one, say where it is."""
    import webbrowser

    address = target if isinstance(target, str) else target.resolve().as_uri()
    if not webbrowser.open(address):
        say(f"no browser was found; open {address}", quiet=True)


def emit_json(result: Any) -> None:
    """Print one JSON object on stdout; with ``--json`` nothing else is printed there.

    If the encoding is not UTF-8, JSON escapes are used, since it lacks characters.
    """
    escape = not out.encoding.startswith("utf")
    sys.stdout.write(json.dumps(result, ensure_ascii=escape, allow_nan=False) + "\n")
    sys.stdout.flush()


def opened(folder: Path, command: str) -> "Run":
    """Load the run in a folder for a command.

    Raises: as `runs.load`; a folder that contains runs, which the message lists.
    """
    from regard.core.errors import RegardError
    from regard.lab import runs
    from regard.training.ranks import ranks

    if not ranks().first:  # only one of several processes prints
        out.quiet = err.quiet = True
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    paths = runs.below(folder)
    if not paths:
        return runs.load(folder)
    chosen = showable(paths) if command == "show" else paths[0]
    names = ", ".join(str(run.relative_to(folder)) for run in paths[:NAMED])
    names += f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    raise RegardError(
        f"{folder} is not a run but contains {len(paths)}: {names}; choose one, for example "
        f"regard {command} {shlex.quote(str(chosen or paths[0]))}"
    )


def showable(runs: Sequence[Path]) -> Path | None:
    """Return the first run that `regard show` can draw: one with attention, else with word weights.

    Runs that cannot be read here, such as runs with an untrusted file, are skipped.
    """
    from regard.core.errors import RegardError
    from regard.lab.runs.config import Config

    configs = {}
    for run in runs:
        with suppress(RegardError):
            configs[run] = Config.read(run)
    able = [run for run, config in configs.items() if not config.reads_trees]
    attending = [run for run in able if configs[run].attends]
    weighing = [run for run in able if configs[run].entry.weighs]
    return next(iter([*attending, *weighing]), None)


Left = tuple[float, float]


class Bar(Protocol):
    """A function that displays progress.

    `left`: the remaining seconds, typically and at most; by default they are extrapolated from the
    time so far.
    """

    def __call__(self, done: float, total: float, says: str, left: Left | None = None) -> None: ...


@contextmanager
def bar(what: str, *, every: float = 5.0, shown: bool = True) -> Iterator[Bar]:
    """Show a progress bar with the time left on a terminal, or occasional plain lines elsewhere.

    The output goes to stderr; if not ``shown``, nothing is displayed. Call the bar as
    ``show(done, total, says)``.
    """
    pace = _Pace()
    if not shown:
        yield _ignore
        return
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

        def show(done: float, total: float, says: str, left: Left | None = None) -> None:
            _, words = pace(done, total, left)
            progress.update(task, completed=done, total=total, says=says, left=words)

        yield show


def _ignore(done: float, total: float, says: str, left: Left | None = None) -> None: ...


class _Pace:
    """A clock of elapsed time that extrapolates the remaining time."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.first: float | None = None  # done before this process started

    def __call__(self, done: float, total: float, left: Left | None) -> tuple[float, str]:
        """Return the elapsed seconds and a text with the remaining time."""
        spent = time.monotonic() - self.begun
        self.first = done if self.first is None else self.first
        if left is None and done > self.first:
            left = (spent * (total - done) / (done - self.first),) * 2
        return spent, "" if left is None else remaining(*left)


def remaining(typical: float, most: float) -> str:
    """Return the time left in words; nothing is "at most" if both are about the same.

    >>> remaining(60, 240), remaining(60, 61), remaining(0, 0)
    ('typically 1 min 0 s, at most 4 min 0 s left', '1 min 0 s left', '')
    """
    if most < 1.05 * typical:
        return f"{duration(typical)} left"
    return f"typically {duration(typical)}, at most {duration(most)} left" if most else ""


class _Lines:
    """Plain progress lines for files and pipes: every few seconds, less often with time."""

    def __init__(self, what: str, every: float, pace: _Pace) -> None:
        self.what, self.every, self.pace = what, every, pace
        self.last = 0.0

    def __call__(self, done: float, total: float, says: str, left: Left | None = None) -> None:
        spent, words = self.pace(done, total, left)
        if spent - self.last < max(self.every, 0.03 * spent) and done < total:
            return
        self.last = spent
        times = ", ".join([duration(spent), *([words] if words else [])])
        err.print(f"{self.what}: {done:g} of {total:g}, {times}  {says}", markup=False)


def duration(seconds: float) -> str:
    """Format a duration with a readable unit.

    >>> duration(4.2), duration(150), duration(7500)
    ('4.2 s', '2 min 30 s', '2 h 5 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    return f"{minutes // 60} h {minutes % 60} min"
