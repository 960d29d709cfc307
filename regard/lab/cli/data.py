"""``regard data``: list, download and check data."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.core.trusted import trust_named
from regard.lab.cli.console import Json, bar, emit_json, say, subcommands

app = subcommands("Named data and your own files: list, fetch, check.")

DataDir = Annotated[
    Path | None,
    typer.Option(help="Data folder (default: REGARD_DATA, then the cache).", metavar="FOLDER"),
]
Target = Annotated[
    Path | None, typer.Option(help="Target folder (default: the cache).", metavar="FOLDER")
]


@app.command("rows")
def rows(
    task: Annotated[
        str,
        typer.Argument(
            help="Task: birthplace, birthplace-pretrain, language-modeling, masked-modeling or "
            "span-corruption."
        ),
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the task.")
    ] = None,
    data: Annotated[
        str, typer.Option(help="Named data or a file (default: the task's data).")
    ] = "",
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Number of rows.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    json: Json = False,
) -> None:
    """Print training examples of a task: x is the input, y the target.

    regard data rows birthplace-pretrain --data birthplaces
    """
    from regard.core.errors import RegardError, look_up
    from regard.core.settings import split
    from regard.lab.tasks import TASKS

    trust_named([task, data, *(setting.partition("=")[2] for setting in settings or [])])
    entry = look_up(TASKS, task, "task")
    pairs = [*(settings or []), *([f"data={data}"] if data else [])]
    prepared = entry.prepare(entry.configure(split(pairs, entry.settings)[0]))
    examples = prepared.rows(count, seed)
    if not examples:
        raise RegardError(
            f"{task} has no rows to print; use regard train {task} --dry-run, or regard data check "
            "for a file"
        )
    counted = prepared.counted
    if json:
        rows = [{"x": x, "y": y} for x, y in examples]
        emit_json({"task": task, "data": prepared.corpus.name, "counted": counted, "rows": rows})
        return
    if counted:
        say(counted)
    for x, y in examples:
        say(f"x: {x}")
        say(f"y: {y}")


@app.command("tokenize")
def tokenize(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings of language-modeling."),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A pattern or an address: 'texts/*.jsonl.gz', 's3://bucket/*.parquet'; also one "
            "file of more than 200 MB."
        ),
    ] = "",
    processes: Annotated[
        int, typer.Option(min=0, help="Number of processes (0: one for each processor).")
    ] = 0,
    json: Json = False,
) -> None:
    """Tokenise texts that do not fit into memory, once.

    regard train language-modeling does the same when the tokens are missing. Run it again to go on
    after an interruption, or to verify the checksums of all tokens.

    regard data tokenize --data 'texts/*.jsonl.gz' text=body tokenizer=bpe data_dir=/shared
    """
    from regard.core.errors import RegardError
    from regard.core.settings import split
    from regard.lab.data.tokenizing import is_on_disk
    from regard.lab.tasks import TASKS

    entry = TASKS["language-modeling"]
    pairs = [*(settings or []), *([f"data={data}"] if data else [])]
    task = entry.prepare(entry.configure(split(pairs, entry.settings)[0]))
    if not is_on_disk(task.settings.data):
        raise RegardError(
            f"{task.settings.data}: these texts fit into memory and are tokenised by each training;"
            " give a pattern, an address, or a file of more than 200 MB"
        )
    with bar("tokenise, MB") as show:
        corpus = task.tokenise(
            processes,
            lambda done, total, what: show(done / 1e6, total / 1e6, what),
        )
    corpus.verify()
    if json:
        counts = {
            what: {part: corpus.index.total(what, part) for part in corpus.streams}
            for what in ("documents", "tokens")
        }
        emit_json(
            {
                "data": task.settings.data,
                "folder": str(corpus.folder),
                "fingerprint": corpus.fingerprint,
                "vocabulary": len(corpus.tokenizer),
                "shards": len(corpus.index.shards),
                **counts,
            }
        )
        return
    for note in corpus.notes:
        say(note)
    say(f"{corpus.folder}: checksums verified")
    say(f"next: regard train language-modeling {shlex.join(pairs)}")


@app.command("list")
def list_data(data_dir: DataDir = None, json: Json = False) -> None:
    """List built-in and real data and where it is stored."""
    from regard.lab.data.fetch import present
    from regard.lab.data.named import DATA, Source

    rows: list[dict[str, Any]] = []
    for name, data in DATA.items():
        row: dict[str, Any] = {"name": name, "what": data.what, "used_for": data.used_for}
        row["where"] = "built in"
        if isinstance(data, Source):
            folder = present(name, data_dir)
            row |= {
                "where": str(folder) if folder else None,
                "bytes": data.bytes or None,
                "fetch": data.by_hand or f"regard data fetch {name}",
                "licence": data.licence,
                "cite": data.cite,
            }
        rows.append(row)
    if json:
        emit_json({"data": rows})
        return
    for row in rows:
        say(f"{row['name']:<12} {row['what']} ({row['used_for']})")
        if row["where"]:
            say(f"{'':<12} stored in: {row['where']}")
        else:
            size = f" ({row['bytes'] / 1e6:.0f} MB)" if row["bytes"] else ""
            say(f"{'':<12} not downloaded; {row['fetch']}{size}")
        if "licence" in row:
            say(f"{'':<12} licence: {row['licence']}. {row['cite']}")
    say()
    say("Your own: regard data check FILE   (.csv, .tsv, .jsonl, .txt, .conllu, .conll, or .gz;")
    say(".parquet; a folder with neg.txt and pos.txt, or with neg/*.txt and pos/*.txt)")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the data: imdb, glove or multi30k.")],
    data_dir: Target = None,
    json: Json = False,
) -> None:
    """Download named data and verify its SHA-256 checksum.

    Files that are already there are kept.
    """
    from regard.lab.data.fetch import fetch as bring

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
            help="reviews, imdb, or your labelled texts: a file, a folder with one file or folder "
            "per label, or neg.txt,pos.txt.",
            metavar="DATA",
        ),
    ],
    test: Annotated[str | None, typer.Option(help="Test file.", metavar="FILE")] = None,
    validation: Annotated[str | None, typer.Option(help="Validation file.", metavar="FILE")] = None,
    text: Annotated[
        str | None, typer.Option(help="Text column: a name, or a number from 1.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Label column: a name, or a number from 1.")
    ] = None,
    labels: Annotated[str, typer.Option(help="Rename labels.", metavar="OLD:NEW,…")] = "",
    separator: Annotated[
        str, typer.Option(help="Sign between several labels of a row; none: they have one each.")
    ] = "",
    group: Annotated[
        str | None, typer.Option(help="Group column; no group may be in two splits.")
    ] = None,
    length: Annotated[int, typer.Option(help="Words kept per text, to report truncation.")] = 400,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="Treat labels as numbers, for regression.")
    ] = False,
    tags: Annotated[
        bool, typer.Option("--tags", help="One word and tag per line; implied by .conll.")
    ] = False,
    data_dir: DataDir = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there are problems.")
    ] = False,
    json: Json = False,
) -> None:
    """Check labelled texts: leaks, duplicates, bad rows.

    Also truncation and contradicting labels. Pairs and unlabelled texts are checked by regard train
    when it reads them.
    """
    from regard.lab.data.check import check as look
    from regard.lab.data.data_source import Columns, DataSource, Splits

    trust_named([data])
    with bar("words") as show:
        source = DataSource(
            data,
            data_dir=data_dir or "",
            columns=Columns(text or "", label or "", group or "", labels, separator),
            splits=Splits(validation, test or ""),
        )
        findings = look(source, length=length, numbers=numbers, tags=tags, show=show)
    if json:
        emit_json(findings.json())
    else:
        for line in findings.lines():
            say(line)
        first = findings.parts[0]
        if first.labels or first.numbers:
            columns = {"text": text, "label": label, "group": group}
            given = {key: value for key, value in columns.items() if value}
            if findings.task in ("classification", "regression") and not labels:
                given |= {"task": "regression"} if numbers else {}
                command = ["suggest", data, *(f"--{key}={given[key]}" for key in given)]
            else:
                given |= {"labels": labels} if labels else {}
                given |= {"separator": findings.separator} if findings.separator else {}
                settings = (f"{key}={given[key]}" for key in given)
                command = ["train", findings.task, f"--data={data}", *settings]
            say(f"next: {shlex.join(['regard', *command])}")
    if strict and findings.problems:
        raise typer.Exit(1)
