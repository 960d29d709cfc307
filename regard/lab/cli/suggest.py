"""``regard suggest``: name the method for labelled texts before one is trained."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.lab.cli import completion
from regard.lab.cli.console import Browse, Json, begin, browse, emit_json, say

if TYPE_CHECKING:
    from regard.lab.studies.suggest import Suggestion


def suggest(
    data: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Your labelled texts, as for regard init; or named data.",
            autocompletion=completion.data,
        ),
    ],
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights",
            "-w",
            metavar="FOLDER-OR-NAME",
            help="Pretrained sentence encoder or static word vectors. Repeatable.",
        ),
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms", "-a", help="One more arm, such as cnn:width=64 (as in compare). Repeatable."
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="classification or regression.", show_default="guessed")
    ] = "",
    text: Annotated[
        str, typer.Option(help="Text column, or two: FIRST,SECOND.", show_default="guessed")
    ] = "",
    label: Annotated[str, typer.Option(help="Label column.", show_default="guessed")] = "",
    group: Annotated[str, typer.Option(help="Group column; a group is not divided.")] = "",
    features: Annotated[str, typer.Option(help="Further columns, such as price,country.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for report.html, suggestion.json, curves.svg."),
    ] = None,
    open_page: Browse = False,
    json: Json = False,
) -> None:
    """Name the method that suits your labelled texts.

    Trains cheap arms on 25, 50, 100, … of your rows, scores them on the others, and forecasts each
    for all rows and for twice as many. A test file is not needed and never read.

    regard suggest reviews.csv

    regard suggest reviews.csv --weights sentence-transformers/all-MiniLM-L6-v2 --out curves
    """
    from regard.core.errors import RegardError

    if open_page and not out:
        raise RegardError("--open shows the report; add --out FOLDER")
    begin(f"reading {data}")
    from regard.lab.cli.calls import suggest as call
    from regard.lab.reports.suggestion import write

    found = call(
        data, task=task, weights=weights or (), arms=arms or (), text=text, label=label,
        group=group, features=features, seed=seed, progress=True,
    )  # fmt: skip
    path = None
    if out:
        words = ["regard", "suggest", data, *(f"--weights={name}" for name in weights or ())]
        words += [f"--arms={name}" for name in arms or ()]
        options: dict[str, str | int] = {"task": task, "text": text, "label": label}
        options |= {"group": group, "features": features, "seed": seed}
        words += [f"--{key}={value}" for key, value in options.items() if value]
        path = write(found, out, shlex.join(words))
    if json:
        emit_json(found.json() | {"report": str(path) if path else None})
    else:
        show_suggestion(found)
        if path:
            say(f"report: {path}")
        say(f"next: {found.command}")
    if open_page and path:
        browse(path)


def show_suggestion(found: "Suggestion") -> None:
    """Print the table of the curves, the sentences and the notes."""
    from regard.lab.reports.suggestion import table

    what = f"{found.labels:,} labels" if found.labels else "numbers"
    say(f"{found.data}: {found.rows:,} rows, {what}; {found.draws} draws of each size")
    say(f"{table(found).title}\n{table(found).text()}\n")
    for sentence in found.sentences:
        say(sentence)
    for note in found.notes:
        say(f"note: {note}")
