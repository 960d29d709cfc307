"""``regard evaluate``: how good a run is, on its own test split or on another file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import Json, RunFolder, emit_json, opened, out, say
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.tasks.evaluation import Evaluation


def evaluate(
    run: RunFolder,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Labelled texts instead of the run's test split: a .csv, .tsv, .jsonl, .txt, "
            ".parquet or .conllu file, a folder with a file or a folder for each label, or "
            "neg.txt,pos.txt."
        ),
    ] = None,
    text: Annotated[
        str, typer.Option(help="The file's column of texts, by name or by number from 1.")
    ] = "",
    label: Annotated[
        str, typer.Option(help="The file's column of labels, by name or by number from 1.")
    ] = "",
    labels: Annotated[
        str,
        typer.Option(
            help="The run's names for labels of the file: neg:0,pos:1.", metavar="OLD:NEW,…"
        ),
    ] = "",
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Write every answer there, one JSON object a line; of questions the answers "
            "alone, one a line, unless the file is a .jsonl."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say how good a run is: its metrics, and those of each label.

    The test split was answered once, when the run was completed; those answers are judged here.
    With --data the model answers a labelled file of yours now.

    regard evaluate runs/classification-transformer --data more.csv --predictions answers.jsonl
    """
    from regard import durable
    from regard.runs.run import READ

    if data is None and (text or label):
        raise RegardError("--text and --label name columns of a file: give it as --data FILE")
    if data is None and labels:
        raise RegardError("--labels renames those of a file: give it as --data FILE")
    model = opened(run, "evaluate")
    judged = model.evaluate(data, text=text or "", label=label or "", labels=labels)
    notes = [note for note in model.notes if not (data and note == READ)]
    if predictions is not None:
        plain = judged.plain() if predictions.suffix != ".jsonl" else b""
        durable.write_bytes(predictions, plain or judged.rows())
    if json:
        emit_json(
            {
                "run": str(run),
                "data": str(data or ("test split" if model.held_out else "train split")),
                "notes": notes,
                **judged.json(),
            }
        )
        return
    for note in notes:
        say(note)
    split = "test" if model.held_out else "train"
    show(judged, str(data) if data else f"the run's {split} split")
    if predictions is not None:
        say(f"answers: {predictions}")


def show(judged: "Evaluation", data: str) -> None:
    """Print an evaluation."""
    from rich.markup import escape
    from rich.table import Table

    say(f"{judged.n:,} {judged.unit} of {data}")
    for name, words in judged.words():
        say(f"{name:<18} {words}")
    for heads, *rows in judged.tables():
        table = Table(box=None, pad_edge=False)
        table.add_column(escape(heads[0]), overflow="fold")
        for head in heads[1:]:
            table.add_column(escape(head), justify="right")
        for row in rows:
            table.add_row(*map(escape, row))
        say()
        out.print(table)
    if judged.note:
        say(f"\n{judged.note}")
