"""``regard data``: what there is, bringing it here, looking through it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.console import Json, bar, emit_json, say

app = typer.Typer(help="Named data and your own files: list, fetch, check.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Where data lies; otherwise REGARD_DATA, then the cache.", metavar="FOLDER"),
]
Target = Annotated[
    Path | None, typer.Option(help="Where to put it; otherwise the cache.", metavar="FOLDER")
]


@app.command("rows")
def rows(
    task: Annotated[
        str,
        typer.Argument(
            help="birthplace, birthplace-pretrain, language-modeling, masked-modeling or "
            "span-corruption."
        ),
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the task.")
    ] = None,
    data: Annotated[str, typer.Option(help="A name or a file; else the task's own.")] = "",
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many rows.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="What is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Print what a task makes of its data: x is read, y is to be said.

    regard data rows birthplace-pretrain --data birthplaces
    """
    from regard.errors import RegardError, look_up
    from regard.settings import split
    from regard.tasks import TASKS

    entry = look_up(TASKS, task, "task")
    given = [*(settings or []), *([f"data={data}"] if data else [])]
    prepared = entry.prepare(entry.configure(split(given, entry.settings)[0]))
    if not hasattr(prepared, "rows"):
        labelled = entry.labelled
        checks = "regard data check looks through texts with labels"
        reads = f"regard train {task} --dry-run reads its data and trains nothing"
        raise RegardError(f"{task} has no rows to print; {checks if labelled else reads}")
    found = prepared.rows(count, seed)
    counted = getattr(prepared.corpus, "counted", "")
    if json:
        rows = [{"x": x, "y": y} for x, y in found]
        emit_json({"task": task, "data": prepared.corpus.name, "counted": counted, "rows": rows})
        return
    if counted:
        say(counted)
    for x, y in found:
        say(f"x: {x}")
        say(f"y: {y}")


@app.command("list")
def list_data(data_dir: DataDir = None, json: Json = False) -> None:
    """Name the data there is, built in and real, and where it lies."""
    from regard.data.fetch import SOURCES, present
    from regard.data.sources import BUILT_IN

    rows: list[dict[str, Any]] = [
        {"name": name, "what": made.what, "used_for": made.used_for, "where": "built in"}
        for name, made in BUILT_IN.items()
    ]
    for name, source in SOURCES.items():
        found = present(name, data_dir)
        rows.append(
            {
                "name": name,
                "what": source.what,
                "used_for": source.used_for,
                "where": str(found) if found else None,
                "bytes": source.bytes or None,
                "fetch": source.by_hand or f"regard data fetch {name}",
                "licence": source.licence,
                "cite": source.cite,
            }
        )
    if json:
        emit_json({"data": rows})
        return
    for row in rows:
        say(f"{row['name']:<12} {row['what']} ({row['used_for']})")
        if row["where"]:
            say(f"{'':<12} here: {row['where']}")
        else:
            size = f" ({row['bytes'] / 1e6:.0f} MB)" if row["bytes"] else ""
            say(f"{'':<12} not here; {row['fetch']}{size}")
        if "licence" in row:
            say(f"{'':<12} licence: {row['licence']}. {row['cite']}")
    say()
    say("Your own: regard data check FILE   (.csv, .tsv, .jsonl, .txt, .conllu, .conll, or .gz;")
    say(".parquet; a folder with neg.txt and pos.txt, or with neg/*.txt and pos/*.txt)")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="imdb, glove or multi30k.")],
    data_dir: Target = None,
    json: Json = False,
) -> None:
    """Download named data, checked against its sha256.

    What is here already stays.
    """
    from regard.data.fetch import fetch as bring

    with bar(f"fetch {name}") as show:
        paths = bring(name, data_dir, show=show)
    if json:
        emit_json({"name": name, "files": [str(path) for path in paths]})
        return
    for path in paths:
        say(f"{path}: {path.stat().st_size:,} bytes, checked")


@app.command()
def check(
    data: Annotated[
        str,
        typer.Argument(
            help="reviews, imdb, or your labelled texts: a file, a folder with a file or a folder "
            "for each label, or neg.txt,pos.txt.",
            metavar="DATA",
        ),
    ],
    test: Annotated[str | None, typer.Option(help="Your test file.", metavar="FILE")] = None,
    validation: Annotated[
        str | None, typer.Option(help="Your development file.", metavar="FILE")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the texts, by name or by number from 1.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the labels, by name or by number from 1.")
    ] = None,
    labels: Annotated[str, typer.Option(help="Other names for labels.", metavar="OLD:NEW,…")] = "",
    group: Annotated[
        str | None, typer.Option(help="The column of what no split may tear apart.")
    ] = None,
    length: Annotated[int, typer.Option(help="Words kept of a text: what is lost?")] = 400,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="The labels are numbers, for regression.")
    ] = False,
    tags: Annotated[
        bool, typer.Option("--tags", help="A word and its tag a line; .conll needs no saying.")
    ] = False,
    data_dir: DataDir = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if there is anything to mend.")
    ] = False,
    json: Json = False,
) -> None:
    """Look through labelled texts: leaks, copies, bad rows, truncation.

    And labels that contradict each other. Pairs, and texts without labels, are checked as
    regard train reads them.
    """
    from regard.data.check import check as look

    with bar("words") as show:
        findings = look(
            data,
            test=test,
            validation=validation,
            text=text,
            label=label,
            labels=labels,
            group=group,
            length=length,
            numbers=numbers,
            tags=tags,
            data_dir=data_dir,
            show=show,
        )
    if json:
        emit_json(findings.json())
    else:
        for line in findings.lines():
            say(line)
    if strict and findings.problems:
        raise typer.Exit(1)
