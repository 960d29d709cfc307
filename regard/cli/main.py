"""The ``regard`` command: registers all subcommands and reports errors in one line."""

import os
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli import (
    bench,
    check,
    compare,
    data,
    doctor,
    evaluate,
    export,
    lab,
    predict,
    report,
    serve,
    show,
    train,
)
from regard.cli.console import err
from regard.cli.options import TakesSettings
from regard.errors import RegardError
from regard.stopping import PREEMPTED, StoppedError
from regard.trusted import trust

app = typer.Typer(
    name="regard",
    help="Use, modify and compare attention mechanisms: f(q) = Σ normalize(score(q, kᵢ)) vᵢ",
    no_args_is_help=True,
    rich_markup_mode=None,  # importing rich would take a third of the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Get started: regard lab sentiment",
)
STOPPED = 130  # the exit code of shells for a program interrupted by Ctrl-C
COMMANDS: list[Callable[..., None]] = [
    lab.lab,
    compare.compare,
    check.check,
    train.train,
    evaluate.evaluate,
    predict.predict,
    show.show,
    serve.serve,
    report.report,
    export.export,
    bench.bench,
    doctor.doctor,
]
for command in COMMANDS:
    takes_settings = command in (train.train, compare.compare)
    app.command(cls=TakesSettings if takes_settings else None)(command)
app.add_typer(data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {regard.__version__}")
        raise typer.Exit


def wait_briefly() -> None:
    """Make waiting OpenMP threads sleep early, unless the user has configured them.

    By default GNU OpenMP, which torch uses, lets waiting threads spin for milliseconds. If another
    program uses the cores too, this delays a training step thousands of times.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "2000"  # read when torch is imported, later


def log_briefly() -> None:
    """Leave out C++ stack traces of lost connections, unless the user has configured the log.

    With several processes, every one prints the reason in one line; see `regard.watchdog`.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported, later


def _trust(files: list[Path]) -> list[Path]:
    for file in files:
        trust(file)
    return files


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    trusted: Annotated[
        list[Path],
        typer.Option(
            "--trust",
            metavar="FILE.py",
            callback=_trust,
            help="Trust this Python file: runs that use it may execute it. Files that you trained "
            "with on this machine are trusted already.",
        ),
    ] = [],  # noqa: B006
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Declare the options of all commands; `main` reads --debug itself."""


def before_all(words: list[str]) -> list[str]:
    """Move the global options to the front, so that they may stand anywhere on the line.

    >>> before_all(["serve", "runs/a", "--trust", "a.py", "--debug", "--trust=b.py"])
    ['--trust', 'a.py', '--debug', '--trust=b.py', 'serve', 'runs/a']
    >>> before_all(["predict", "runs/a", "--", "--debug"])
    ['predict', 'runs/a', '--', '--debug']
    """
    end = words.index("--") if "--" in words else len(words)
    first, rest, ahead = [], [], iter(words[:end])
    for word in ahead:
        if word == "--trust" and (file := [*islice(ahead, 1)]):
            first += [word, *file]
        elif word == "--debug" or word.startswith("--trust="):
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest, *words[end:]]


def main() -> None:
    """Run the command line; print a `RegardError` as one line on stderr and exit with code 2."""
    wait_briefly()
    log_briefly()
    sys.argv[1:] = before_all(sys.argv[1:])
    debug = "--debug" in sys.argv[1:]
    try:
        app()
    except RegardError as error:
        if debug:
            raise
        err.print(f"error: {error}", markup=False, style="red" if err.is_terminal else None)
        raise SystemExit(PREEMPTED if isinstance(error, StoppedError) else 2) from None
    except SystemExit as end:
        if end.code == STOPPED:
            err.print("interrupted; run the same command again to resume")
        raise


if __name__ == "__main__":
    main()
