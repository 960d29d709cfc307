"""The command ``regard``: every command by name, errors in one line."""

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
from regard.trusted import trust

app = typer.Typer(
    name="regard",
    help="Attention mechanisms to use, change and compare: f(q) = Σ normalize(score(q, kᵢ)) vᵢ",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would be a third of what --help takes
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: regard lab sentiment",
)
STOPPED = 130  # as shells say of a program that Ctrl-C ended
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
    """Let threads that wait for others sleep soon, where the user has not said otherwise.

    GNU OpenMP, by which torch shares a step among cores, lets them spin for milliseconds. Beside
    another program one of them waits for its core meanwhile, thousands of times a step.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "2000"  # read when torch is loaded, which is later


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
            help="Let a run that is opened execute this file, as those may that you trained with "
            "on this machine.",
        ),
    ] = [],  # noqa: B006
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """What holds for every command; `main` reads --debug itself."""


def before_all(words: list[str]) -> list[str]:
    """Put the options of every command first, where they may stand anywhere on the line.

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
    """Run the command line: a user's mistake is one line on stderr and exit code 2."""
    wait_briefly()
    sys.argv[1:] = before_all(sys.argv[1:])
    debug = "--debug" in sys.argv[1:]
    try:
        app()
    except RegardError as error:
        if debug:
            raise
        err.print(f"error: {error}", markup=False, style="red" if err.is_terminal else None)
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == STOPPED:
            err.print("stopped; the same command goes on from where it was")
        raise


if __name__ == "__main__":
    main()
