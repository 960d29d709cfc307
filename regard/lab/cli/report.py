"""``regard report``: write a run and its answers into one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from regard.lab.cli.console import Browse, Json, RunFolder, browse, emit_json, opened, say
from regard.lab.cli.predict import FeatureValues, SecondTexts, inputs_of, must_be_paired


def report(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to answer (default: some of the test split)."),
    ] = None,
    second: SecondTexts = None,
    feature: FeatureValues = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output file.", show_default="RUN/report.html"),
    ] = None,
    open_page: Browse = False,
    json: Json = False,
) -> None:
    """Write an HTML report of a run with answers to a few texts.

    The file shows the attention of every head, works offline and is at most 5 MB.

    regard report runs/classification-transformer 'not a bad film' --out film.html
    """
    from regard.lab.reports.run import write_run_report

    must_be_paired(texts or [], second)
    loaded = opened(run, "report")
    path = write_run_report(loaded, inputs_of(loaded, texts or [], second, feature), out)
    if json:
        emit_json({"run": str(run), "report": str(path), "bytes": path.stat().st_size})
    else:
        say(f"{path}: {path.stat().st_size:,} bytes, opens in any browser")
    if open_page:
        browse(path)
