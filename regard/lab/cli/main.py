"""The ``regard`` command: finds the subcommand and reports errors in one line."""

import codecs
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

import regard
from regard.core.errors import RegardError
from regard.training.stopping import PREEMPTED, StoppedError

SEVEN_BITS = "seven_bits"
STOPPED = 130  # the exit code of shells for a program interrupted by Ctrl-C
COMMANDS = {
    "lab": "Answer a question by an experiment, in about a minute.",
    "compare": "Train models with several seeds and test which one is better.",
    "ranks": "Compare the same arms over several data sets.",
    "job": "Run one job of a comparison, as compare --jobs prints it.",
    "check": "Check a score, mask, normaliser, or a layer of any package.",
    "suggest": "Name the method that suits your labelled texts.",
    "init": "Write a commented configuration file for your data.",
    "train": "Train a model on a task and evaluate it on the test split.",
    "evaluate": "Show the metrics of a run, overall and per label.",
    "embed": "Write an embedding of each text, as .npy or .parquet.",
    "predict": "Predict labels or generate texts, line by line.",
    "runs": "List, compare, tag and delete runs.",
    "show": "Show which words of a text a model attends to.",
    "serve": "Explore answers and attention of models in the browser.",
    "report": "Write an HTML report of a run with answers to a few texts.",
    "plot": "Draw a run or a comparison as a figure for a paper.",
    "export": "Export a run for other libraries.",
    "exercise": "Exercises that check themselves: list, start, check, grade.",
    "bench": "Measure speed against other packages, or numerical accuracy.",
    "doctor": "Check this machine and suggest a fix for each problem.",
    "data": "Named data and your own files: list, fetch, check.",
}


class Commands(TyperGroup):
    """The commands by name. The module ``regard.lab.cli.NAME`` is imported when NAME is called.

    Importing all of them would take two thirds of the time of ``regard --help``.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def main(self, *args: Any, **attributes: Any) -> Any:
        """Run a command line; raise its usage errors as a `RegardError`, that is in one line."""
        try:
            status = super().main(*args, **attributes | {"standalone_mode": False})
        except typer.Abort:
            raise RegardError("aborted") from None
        except Exception as error:  # typer's class of usage errors is private
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            if context and type(error).__name__ == "NoArgsIsHelpError":
                typer.echo(context.get_help(), err=True)
                raise SystemExit(2) from None
            see = f"; see {context.command_path} --help" if context else ""
            says = " ".join(error.format_message().split()).rstrip(".")
            says = re.sub(r"Input should be ([^,]*)(,.*)?", r"it must be \1", says)
            raise RegardError(f"{says}{see}") from None
        raise SystemExit(status if isinstance(status, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Find the command that the first word names, and import it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, name and listed and imported(name), rest


def imported(name: str) -> Any:
    """Import a command: the group ``app`` of its module, or the function with its name."""
    module = importlib.import_module(f"regard.lab.cli.{name}")
    app = getattr(module, "app", None)
    if app is None:
        from regard.lab.cli.options import TakesSettings

        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=TakesSettings if name in ("train", "compare", "job") else None)(
            expanded(getattr(module, name))
        )
    command = typer.main.get_command(app)
    for one in (command, *getattr(command, "commands", {}).values()):
        one.help = with_whole_examples(one.help or "")
    return command


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which the options of a class replace a parameter annotated with it.

    The command gets the values of ``request: Annotated[dict[str, Any], LabRequest]`` by the names
    of the fields. The options are the fields that `regard.core.settings.described` made.
    """
    from regard.lab.cli.options import option_from

    parameters, names = list[inspect.Parameter](), dict[str, dict[str, str]]()
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        cls = next(filter(is_dataclass, getattr(hint, "__metadata__", ())), None)
        if cls is None:
            parameters.append(parameter.replace(annotation=hint))
            continue
        own = {field.name: option_from(field) for field in fields(cls) if field.metadata}
        names[parameter.name] = {name: option.name for name, option in own.items()}
        parameters += own.values()

    def call(**values: Any) -> None:
        for name, options in names.items():
            values[name] = {field: values.pop(option) for field, option in options.items()}
        command(**values)

    call.__doc__ = command.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def with_whole_examples(text: str, width: int = 76) -> str:
    """Return a help text with examples (paragraphs that are a command) that can be pasted.

    Long examples are wrapped between words with a backslash, while other text is wrapped anywhere.

    >>> print(with_whole_examples("Of texts.\\n\\nregard show RUN\\n'two words'", width=20))
    Of texts.
    <BLANKLINE>
    \x08
    regard show RUN \\
      'two words'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        _example(one, width) if re.match(r"regard [a-z]|cat .*\|\s*regard ", one) else one
        for one in paragraphs
    )


def _example(command: str, width: int) -> str:
    words = re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", command)
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) > width - 3:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return "\b\n" + " \\\n".join(lines)


app = typer.Typer(
    name="regard",
    cls=Commands,
    help="Use, modify and compare attention mechanisms: f(q) = Σ normalize(score(q, kᵢ)) vᵢ",
    no_args_is_help=True,
    rich_markup_mode=None,  # importing rich would take a third of the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Get started: regard lab sentiment",
)


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

    With several processes, every one prints the reason in one line; see `regard.training.watchdog`.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported, later


def encode_everything() -> None:
    """Write characters that the encodings of stdout and stderr lack as escapes (``\\u2192``).

    Windows uses such an encoding for redirected output. typer would write UTF-8 to a stream with
    the encoding "ascii", so the stream gets the same encoding under another name.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(
                encoding=SEVEN_BITS if ascii_only else None, errors="backslashreplace"
            )


def _seven_bits(name: str) -> codecs.CodecInfo | None:
    if name != SEVEN_BITS:
        return None
    same = codecs.lookup("ascii")
    return codecs.CodecInfo(
        same.encode,
        same.decode,
        incrementalencoder=same.incrementalencoder,
        incrementaldecoder=same.incrementaldecoder,
        name=SEVEN_BITS,
    )


codecs.register(_seven_bits)


def _trust(files: list[Path]) -> list[Path]:
    if files:
        from regard.core.trusted import trust

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
    """Move the global options to the front, so that they may be anywhere on the line.

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
    encode_everything()
    sys.argv[1:] = before_all(sys.argv[1:])
    debug = "--debug" in sys.argv[1:]
    try:
        app(prog_name="regard")
    except RegardError as error:
        if debug:
            raise
        from regard.lab.cli.console import err

        err.print(f"error: {error}", markup=False, style="red" if err.is_terminal else None)
        raise SystemExit(PREEMPTED if isinstance(error, StoppedError) else 2) from None
    except SystemExit as end:
        if end.code == STOPPED:
            from regard.lab.cli.console import err

            err.print("interrupted; run the same command again to resume")
        raise


if __name__ == "__main__":
    main()
