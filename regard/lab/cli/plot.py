"""``regard plot``: the learning curves of a run or the arms of a comparison as a figure."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.core.errors import RegardError
from regard.lab.cli import completion
from regard.lab.cli.console import Browse, Json, browse, emit_json, say

Kind = Literal["intervals", "learning", "cost", "search", "validation", "loss"]


def plot(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of a run or a comparison.",
            autocompletion=completion.runs,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file: .pdf, .png or .svg.")],
    kind: Annotated[
        Kind | None,
        typer.Option(help="What to draw (default: the first for which there are numbers)."),
    ] = None,
    open_page: Browse = False,
    json: Json = False,
) -> None:
    """Draw a run or a comparison as a figure for a paper.

    A run has its validation score (--kind validation) and its losses (loss) over the steps, also
    while it is trained. A comparison has the mean of each arm with its interval (intervals), the
    validation curves of all seeds (learning), the scores over the training time (cost) and, after a
    search, the best score over the time of the trials (search).

    regard plot runs/classification-transformer --out curve.pdf

    regard plot runs/compare-classification --kind cost --out cost.svg
    """
    if out.suffix.lower() not in (".pdf", ".png", ".svg"):
        raise RegardError(f"--out {out}: the name must end in .pdf, .png or .svg")

    from regard.lab.reports.plots import chart_of

    drawn, chart = chart_of(folder, kind or "")
    chart.drawing.save(out)
    if json:
        size = out.stat().st_size
        emit_json({"folder": str(folder), "kind": drawn, "plot": str(out), "bytes": size})
    else:
        say(f"{out}: {chart.drawing.title} ({drawn})")
    if open_page:
        browse(out)
