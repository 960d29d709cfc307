"""``regard evaluate``: the metrics of a run on its test split or on another file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import Json, RunFolder, emit_json, opened, print_table, say
from regard.lab.cli.options import Int8, Onnx

if TYPE_CHECKING:
    from regard.lab.tasks.evaluation import Evaluation

LENGTH = 200  # characters of a text among the worst errors


def evaluate(
    run: RunFolder,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Labelled texts to use instead of the run's test split: a .csv, .tsv, .jsonl, "
            ".txt, .parquet or .conllu file, a folder with one file or folder per label, or "
            "neg.txt,pos.txt."
        ),
    ] = None,
    text: Annotated[
        str, typer.Option(help="Text column of the file: a name, or a number from 1.")
    ] = "",
    label: Annotated[
        str, typer.Option(help="Label column of the file: a name, or a number from 1.")
    ] = "",
    labels: Annotated[
        str,
        typer.Option(
            help="Rename labels of the file to the run's: neg:0,pos:1.", metavar="OLD:NEW,…"
        ),
    ] = "",
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Write all answers to this file, one JSON object per line. For questions: plain "
            "answers, one per line, unless the file is a .jsonl."
        ),
    ] = None,
    errors: Annotated[
        int, typer.Option(min=0, help="Number of wrong answers to list, the worst first.")
    ] = 0,
    onnx: Onnx = False,
    int8: Int8 = False,
    json: Json = False,
) -> None:
    """Show the metrics of a run, overall and per label.

    Without --data it scores the predictions that were saved when the training ended. With --data
    the model predicts a labelled file of yours now; with --onnx or --int8, also the test split.

    regard evaluate runs/classification-transformer --data more.csv --predictions answers.jsonl

    regard evaluate runs/classification-transformer --errors 10
    """
    from regard.core import atomic_io
    from regard.lab.runs.run import READ
    from regard.training.ranks import ranks

    if data is None and (text or label):
        raise RegardError("--text and --label need a file: add --data FILE")
    if data is None and labels:
        raise RegardError("--labels needs a file: add --data FILE")
    model = opened(run, "evaluate")
    if onnx or int8:
        from regard.lab.runs.onnx_folder import through_onnx

        model = through_onnx(model, int8=int8)
    evaluation = model.evaluate(data, text=text or "", label=label or "", labels=labels)
    notes = [note for note in model.notes if not (data and note == READ)]
    if predictions is not None and ranks().first:
        plain = model.task.plain(evaluation) if predictions.suffix != ".jsonl" else b""
        atomic_io.write_bytes(predictions, plain or evaluation.rows())
    if json:
        emit_json(
            {
                "run": str(run),
                "data": str(data or ("test split" if model.held_out else "train split")),
                "notes": notes,
                **evaluation.json(),
                **({"errors": evaluation.worst(errors)} if errors else {}),
            }
        )
        return
    for note in notes:
        say(note)
    split = "test" if model.held_out else "train"
    show(evaluation, str(data) if data else f"the run's {split} split")
    if errors:
        show_errors(evaluation, errors)
    if predictions is not None:
        say(f"answers: {predictions}")


def show_errors(evaluation: "Evaluation", count: int) -> None:
    """Print the worst wrong answers, each text in one line."""
    rows = evaluation.worst(count)
    say()
    say("the worst errors:" if rows else "no answer is listed as wrong")
    for row in rows:
        text = " ".join(row["text"].split())
        text = text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
        say(f"  predicted {row['predicted']}, true {row['true']}: {text}  ({row['source']})")


def show(evaluation: "Evaluation", data: str) -> None:
    """Print an evaluation."""
    say(f"{evaluation.n:,} {evaluation.unit} of {data}")
    facts = evaluation.words()
    width = max(18, *(len(name) for name, _ in facts))
    for name, words in facts:
        say(f"{name:<{width}} {words}")
    for heads, *rows in evaluation.tables:
        say()
        print_table(heads, rows, right=heads[1:])
    if evaluation.note:
        say(f"\n{evaluation.note}")
