"""``regard runs``: list, compare, tag and delete runs."""

import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.core.errors import RegardError
from regard.lab.cli import completion
from regard.lab.cli.console import Json, emit_json, print_table, say, subcommands

if TYPE_CHECKING:
    from regard.lab.runs.config import Config
    from regard.lab.runs.listing import Row

app = subcommands("List, compare, tag and delete runs.")
Order = Literal["name", "task", "model", "data", "score", "seed", "when", "size"]
KEYS: dict[str, Callable[["Row"], Any]] = {  # of columns that are not attributes
    "name": lambda row: str(row.path),
    "score": lambda row: -1.0 if row.score is None else row.score,
    "when": lambda row: row.finished,
}


def _folder(metavar: str, help: str) -> Any:
    """Return an argument that is the folder of a run, with its completion."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion.runs)


@app.command("list")
def list_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that contains runs.")
    ] = Path("runs"),
    task: Annotated[str, typer.Option(help="Show only runs of this task.")] = "",
    model: Annotated[str, typer.Option(help="Show only runs of this model.")] = "",
    data: Annotated[str, typer.Option(help="Show only runs on this data.")] = "",
    tag: Annotated[
        list[str] | None, typer.Option(help="Show only runs with this tag; may be repeated.")
    ] = None,
    sort: Annotated[Order, typer.Option(help="Column to sort by.")] = "name",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort in descending order.")] = False,
    json: Json = False,
) -> None:
    """List the runs of a folder, their scores, sizes and tags.

    The score is the best validation score, the larger the better; regard runs compare and regard
    evaluate show the scores on the test split. Nothing that a run names is executed.

    regard runs list --sort score --reverse --task classification
    """
    from regard.lab.runs.listing import rows_below

    wanted = {"task": task, "model": model, "data": data}
    rows = [
        row
        for row in rows_below(folder)
        if all(not value or getattr(row, key) == value for key, value in wanted.items())
        and {*(tag or [])} <= {*row.tags}
    ]
    rows.sort(key=KEYS.get(sort, attrgetter(sort)), reverse=reverse)
    if json:
        emit_json({"folder": str(folder), "runs": [row.json() for row in rows]})
        return
    if not rows:
        filtered = any(wanted.values()) or tag
        say(f"no runs in {folder}" + (" match" if filtered else "; create one: regard train TASK"))
        return
    heads = ["run", "task", "model", "data", "score", "seed", "when", "size", "tags"]
    print_table(heads, [_cells(row, folder) for row in rows], right={"score", "seed", "size"})


def _cells(row: "Row", folder: Path) -> list[str]:
    score = "" if row.score is None else f"{row.score:.4f}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.finished))
    name = str(row.path.relative_to(folder))
    return [
        name if name != "." else str(row.path),
        row.task,
        row.model,
        row.data,
        score,
        str(row.seed),
        when if row.complete else f"{when}, not complete",
        f"{row.size / 1e6:,.1f} MB",
        " ".join(row.tags),
    ]


@app.command()
def compare(
    first: Annotated[Path, _folder("A", "Folder of a run.")],
    second: Annotated[Path, _folder("B", "Folder of another run.")],
    json: Json = False,
) -> None:
    """Show the settings that differ and the scores of two runs.

    Two runs do not tell whether a method is better: that takes several seeds, as in regard compare.
    """
    from regard.lab.cli.console import opened
    from regard.lab.runs.config import Config

    folders = (first, second)
    configs = tuple(Config.read(folder) for folder in folders)
    differences = differing(*configs)
    scores: dict[str, list[str]] = {}
    values: list[dict[str, Any]] = []
    for place, folder in enumerate(folders):
        evaluation = opened(folder, "runs compare").evaluate()
        values.append({"run": str(folder), **evaluation.json()})
        for name, words in evaluation.words():
            scores.setdefault(name, ["", ""])[place] = words
    tasks = {config.task for config in configs}
    advice = _advice(configs)
    if json:
        emit_json(
            {
                "settings": [
                    {"setting": key, "a": a, "b": b} for key, (a, b) in differences.items()
                ],
                "scores": values,
                "comparable": len(tasks) == 1,
                "next": advice,
            }
        )
        return
    heads = ["", str(first), str(second)]
    settings = [[key, str(a), str(b)] for key, (a, b) in differences.items()]
    print_table(heads, settings or [["all settings", "the same", "the same"]])
    say()
    print_table(heads, [[name, *both] for name, both in scores.items()])
    say()
    if len(tasks) > 1:
        say("the tasks differ, so these scores cannot be compared")
    else:
        say(f"one run each does not tell which is better; test it: {advice}")


def differing(a: "Config", b: "Config") -> "dict[str, tuple[Any, Any]]":
    """Return the settings that differ, by name; None where a run has no such setting."""
    flat = []
    for config in (a, b):
        sections = config.sections()
        values = {key: value for part in sections.values() for key, value in part.items()}
        flat.append({"task": config.task, "model": config.model, **values})
    keys = dict.fromkeys([*flat[0], *flat[1]])
    pairs = {key: (flat[0].get(key), flat[1].get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _advice(configs: "tuple[Config, ...]") -> str:
    """Return the command that compares the two models by several seeds."""
    names = list(dict.fromkeys(config.model for config in configs))
    arms = ",".join(names) if len(names) > 1 else f"{names[0]},{names[0]}:KEY=VALUE"
    return f"regard compare {configs[0].task} --arms {arms} --seeds 5"


@app.command("tag")
def tag_run(
    run: Annotated[Path, _folder("RUN", "Folder of a run.")],
    words: Annotated[list[str] | None, typer.Argument(metavar="TAG", help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="Tag to remove; may be repeated.", metavar="TAG")
    ] = None,
    json: Json = False,
) -> None:
    """Add tags to a run, remove tags, or show them.

    regard runs tag runs/mine baseline good

    regard runs tag runs/mine --remove good
    """
    from regard.lab.runs.listing import row_of, tag

    tags = tag(run, words or [], remove or []) if words or remove else list(row_of(run).tags)
    if json:
        emit_json({"run": str(run), "tags": tags})
    else:
        say(f"{run}: {' '.join(tags) or 'no tags'}")


@app.command("delete")
def delete_runs(
    runs: Annotated[list[Path], _folder("RUN", "Folders of runs.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete runs, after a question.

    A folder that is a link, contains no run or contains other files is refused; then none is
    deleted.

    regard runs delete runs/old runs/older --yes
    """
    from regard.lab.runs.listing import delete, must_be_deletable

    rows = [must_be_deletable(run) for run in runs]
    for row in rows:
        state = "complete" if row.complete else "not complete"
        what = f"{row.model} on {row.task}, {state}, {row.size / 1e6:,.1f} MB"
        say(f"{row.path}: {what}", quiet=json or yes)
    if not yes:
        import sys

        if sys.stdin is None or not sys.stdin.isatty():
            raise RegardError("nothing was deleted; add --yes to delete without a question")
        if not typer.confirm("Delete?", err=True):
            say("nothing was deleted", quiet=json)
            raise typer.Exit(1)
    for row in rows:
        delete(row.path)
    if json:
        emit_json({"deleted": [str(row.path) for row in rows]})
    else:
        say(f"deleted {len(rows)} run{'s' if len(rows) != 1 else ''}")
