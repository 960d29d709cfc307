"""``regard init``: write a commented configuration file for a data file."""

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli import completion
from regard.lab.cli.console import Json, emit_json, printable, say

if TYPE_CHECKING:
    from regard.lab.data.check import Findings
    from regard.lab.runs import Config

WIDTH = 98  # characters of a comment line
TITLES = {
    "data": "the data: where the texts are, how they are split and cut into tokens",
    "network": "the model",
    "training": "the training",
}
PROBLEMS = 5  # problems of the data in the file; the next command lists all


def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATAFILE",
            help="Your texts: a .csv, .tsv, .jsonl, .txt, .parquet or .conll file, or a folder "
            "with one file or folder per label.",
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            help="Task to learn.",
            show_default="guessed from the data",
            autocompletion=completion.tasks,
        ),
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Model.",
            show_default="depends on the task",
            autocompletion=completion.models,
        ),
    ] = "",
    text: Annotated[str, typer.Option(help="Text column.", show_default="guessed")] = "",
    label: Annotated[str, typer.Option(help="Label column.", show_default="guessed")] = "",
    out: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="DATAFILE.toml, here")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write a commented configuration file for your data.

    It guesses the task and the columns from the data, and lists every setting with its default
    value and meaning. Edit the file and give it to regard train --config.

    regard init reviews.csv

    regard init ratings.csv --task regression --text comment --label stars --out stars.toml
    """
    from regard.core import atomic_io
    from regard.core.errors import look_up
    from regard.lab.data.guess import guess
    from regard.lab.runs.config import Config
    from regard.lab.tasks import TASKS

    path = out or Path(f"{_stem(data)}.toml")
    guessed = guess(data, text, label)
    findings = None
    if guessed.task in ("classification", "tagging"):
        findings = _checked(data, guessed.settings, guessed.task == "tagging")
    chosen = task or _task(guessed.task, findings)
    entry = look_up(TASKS, chosen, "task")
    known = entry.settings.model_fields
    pairs = [f"{key}={value}" for key, value in guessed.settings.items() if key in known]
    config = Config.make(chosen, model or entry.model, [f"data={data}", *pairs])
    reasons = [*guessed.reasons, *(findings.remarks if findings else [])]
    if chosen != guessed.task:
        kind = "since a row has several labels" if chosen == "multilabel" else ""
        kind = "as given" if task else kind or "since the labels are numbers"
        reasons.append(f"task: {chosen}, {kind}")
    problems = list(findings.problems) if findings else []
    content = written(config, path, reasons, problems)
    if path.exists() and not force and not (path.is_file() and path.read_bytes() == content):
        raise RegardError(f"{path} exists; add --force to replace it, or give another --out")
    atomic_io.write_bytes(path, content)
    command = f"regard train {shlex.quote(chosen)} --config {shlex.quote(str(path))}"
    if json:
        emit_json(
            {
                "file": str(path),
                "task": chosen,
                "model": config.model,
                "columns": guessed.settings,
                "reasons": reasons,
                "problems": problems,
                "next": command,
            }
        )
        return
    say(f"{path}: {chosen} with the model {config.model}")
    for reason in reasons:
        say(f"  {reason}")
    if findings:
        rows = sum(part.rows for part in findings.parts)
        labels = list(findings.parts[0].labels)
        say(f"  {rows:,} rows" + (f", {len(labels):,} labels" if labels else ""))
    for problem in problems[:PROBLEMS]:
        say(f"! {problem}")
    if problems:
        say(f"  details: regard data check {shlex.quote(data)}")
    if chosen in ("classification", "regression"):
        columns = [f"--{key}={value}" for key, value in guessed.settings.items()]
        say(f"next: {shlex.join(['regard', 'suggest', data, *columns])}")
        say(f"then: {command} --dry-run")
    else:
        say(f"next: {command} --dry-run")


def _stem(data: str) -> str:
    """Return the name of a data file without its endings.

    >>> _stem("texts/reviews.csv.gz"), _stem("neg.txt,pos.txt"), _stem("texts/")
    ('reviews', 'neg', 'texts')
    """
    name = Path(data.split(",")[0]).name
    return name.split(".")[0] or "regard"


def _checked(data: str, columns: dict[str, str], tags: bool) -> "Findings":
    from regard.lab.data.check import check
    from regard.lab.data.data_source import Columns, DataSource

    chosen = Columns(columns.get("text", ""), columns.get("label", ""))
    return check(DataSource(data, columns=chosen), tags=tags)


def _task(guessed: str, findings: "Findings | None") -> str:
    """Return the task; numbers that hardly repeat are for regression, lists for multilabel."""
    return findings.task if guessed == "classification" and findings else guessed


def written(config: "Config", path: Path, reasons: list[str], problems: list[str]) -> bytes:
    """Return the content of the file: TOML with the meaning of each setting as a comment."""
    import tomli_w

    lines = [
        *_comment(f"regard train {shlex.quote(config.task)} --config {shlex.quote(str(path))}"),
        *_comment("Settings on the command line override those of this file: learning_rate=0.002"),
        "#",
        *(line for reason in reasons for line in _comment(f"guessed: {reason}")),
        *(line for problem in problems[:PROBLEMS] for line in _comment(f"problem: {problem}")),
        "",
        f"{tomli_w.dumps({'task': config.task, 'model': config.model})}",
    ]
    for name, values in config.sections().items():
        lines += [*_comment(TITLES[name]), f"[{name}]", ""]
        for key, means in getattr(config, name).meanings().items():
            lines += [*_comment(means), tomli_w.dumps({key: values[key]})]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _comment(text: str) -> list[str]:
    """Return a text as comment lines; TOML allows no control characters in them."""
    plain = " ".join(printable(text).split())
    return textwrap.wrap(plain, WIDTH, initial_indent="# ", subsequent_indent="#   ")
