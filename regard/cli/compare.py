"""``regard compare``: several models, several seeds, one budget; and which is better."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.cli.console import Bar, Json, bar, duration, emit_json, err, out, say
from regard.cli.train import TASKS_IN_WORDS

if TYPE_CHECKING:
    from rich.table import Table

    from regard.studies.compare import Study
    from regard.studies.launch import Event
    from regard.studies.result import ArmResult, Comparison
    from regard.studies.statistics import Difference


def compare(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"What to learn: {TASKS_IN_WORDS}.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings for every arm; one of models goes to the arms whose model has it. "
            "`regard train TASK --model NAME --settings` lists them.",
        ),
    ] = None,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms",
            "-a",
            help="Models by name, joined by commas: mean,transformer,tfidf, or of a task that "
            "writes texts gru,bahdanau,transformer. An arm's own settings "
            "follow a colon: transformer:score=additive,heads=2 (a comma before key=value goes on "
            "with the arm; a semicolon always ends it). May be given more than once.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A name (`regard data list` has them all), or your own .csv, .tsv or .jsonl file "
            "(or .gz of it); of pairs also FILE,FILE."
        ),
    ] = "",
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs of each arm. One seed compares two models alone.")
    ] = 3,
    budget: Annotated[
        str, typer.Option(help="Of each run: 10m, '500 steps', '3 epochs' or '2M tokens'.")
    ] = "",
    reference: Annotated[
        str,
        typer.Option(
            help="The arm that all others are compared with.", show_default="the first arm"
        ),
    ] = "",
    ladder: Annotated[
        bool, typer.Option("--ladder", help="Also compare each network with the one before it.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of runs and report.", show_default="runs/compare-TASK-DATA"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at the same time, one thread each.", show_default="all cores"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="One step of each arm; forecast time and memory.")
    ] = False,
    json: Json = False,
) -> None:
    """Train models with several seeds, and say which is surely better.

    The unit is the seed: intervals and p are Student's t on paired differences, the variance of
    the test examples added, Holm's correction over all arms against the reference. Translations
    are compared by BLEU of the whole test; with one seed by a paired bootstrap over its texts. The
    same command again goes on where it was; more --seeds add to what is there.

    regard compare sentiment --arms mean,transformer,tfidf

    regard compare sentiment --arms "transformer,transformer:score=additive"

    regard compare sentiment --data reviews.csv --seeds 5 --budget 10m

    regard compare translation --data multi30k --arms gru,bahdanau --seeds 1
    """
    from regard.studies.compare import Study
    from regard.studies.compare import compare as run

    overrides = [*(settings or []), *([f"data={data}"] if data else [])]
    place = folder or Path("runs") / f"compare-{task}{f'-{Path(data).stem}' if data else ''}"
    asked: dict[str, Any] = {
        "seeds": seeds,
        "budget": budget or None,
        "reference": reference or None,
        "out": place,
        "overrides": overrides,
    }
    if dry_run:
        _forecast(Study.plan(task, arms or [], **asked), workers, json)
        return
    with bar("runs") as show:
        found = run(task, arms or [], **asked, workers=workers, ladder=ladder, on_event=Watch(show))
    found = with_report(found)
    if json:
        emit_json(found.json())
    else:
        show_comparison(found)
    if found.failures:
        raise typer.Exit(2)


class Watch:
    """Turns what happens to the jobs into one bar, and a line for each job that ends."""

    def __init__(self, show: Bar) -> None:
        self.show = show
        self.done: dict[tuple[str, int], float] = {}

    def __call__(self, event: "Event") -> None:
        name = f"{event.arm}, seed {event.seed}"
        self.done[event.arm, event.seed] = event.done
        if event.kind == "finished":
            say(f"{name}: {event.says}", quiet=True)
        elif event.kind == "failed":
            say(f"{name}: error: {event.says}", quiet=True)
        words = f"{name}: {event.says}" if event.kind == "progress" else ""
        self.show(round(sum(self.done.values()), 2), event.total, words, event.left)


def with_report(found: "Comparison") -> "Comparison":
    """Write the report beside the runs, and its name into the comparison."""
    from dataclasses import replace

    from regard.reports.comparison import write_report

    found = replace(found, report=str(found.folder / "report.html"))
    found.save()
    write_report(found.record(), found.folder)
    return found


def show_comparison(found: "Comparison") -> None:
    """Print the arms, the verdicts, and where the report lies."""
    from rich.console import Console

    from regard.studies.compare import models_of

    place = out if out.is_terminal else Console(width=ONE_TABLE)  # a file has no edge to fold at
    if place.width >= ONE_TABLE:
        place.print(_table(found, VERDICT, COST))
    else:
        place.print(_table(found, VERDICT))
        say()
        place.print(_table(found, COST))
    say()
    for difference in (*found.verdicts, *found.rungs):
        say(difference.says)
    if not found.verdicts:
        say(f"nothing to compare with: {found.reference} has no result")
    counting = [name for name, entry in models_of(found.task).items() if entry.kind == "baseline"]
    if counting and not any(result.arm.deterministic for result in found.arms):
        say(f"no arm counts words: {' or '.join(counting)} beside them shows what a network adds")
    for failure in found.failures:
        err.print(f"error: {failure.arm}, seed {failure.seed}: {failure.says}", markup=False)
    say(f"\nreport: {found.report}")
    networks = [result.arm.folder for result in found.arms if not result.arm.deterministic]
    if networks:
        say(f"next:   regard show {found.folder / networks[-1] / 'seed-0'} 'your text'")


def _table(found: "Comparison", *parts: "Columns") -> "Table":
    """A row for each arm, with the columns of some parts."""
    from rich.markup import escape
    from rich.table import Table

    from regard.studies.result import per_cent

    verdicts = {difference.a: difference for difference in found.verdicts}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    longest = max(len(result.arm.name) for result in found.arms)
    table.add_column("arm", overflow="fold", min_width=min(longest, 24))
    also = found.also if COST in parts else []
    headings = [heading for part in parts for heading in part.headings]
    headings += [f"{name}{per_cent(name)}" for name in also]
    metric = f"{found.metric}{per_cent(found.metric)}"
    for heading in headings:
        words = heading.replace("{metric}", metric).replace("{reference}", found.reference)
        table.add_column(escape(words), justify="left" if heading == "verdict" else "right")
    for result in found.arms:
        verdict = verdicts.get(result.arm.name)
        cells = [cell for part in parts for cell in part.cells(result, verdict)]
        cells += [result.tells(name) for name in also]
        table.add_row(escape(result.arm.name), *cells)
    return table


class Columns(NamedTuple):
    """Some columns of the table: their headings, and an arm's cells."""

    headings: tuple[str, ...]
    cells: Callable[["ArmResult", "Difference | None"], list[str]]


def _verdict(result: "ArmResult", difference: "Difference | None") -> list[str]:
    mean, low, high = (f"{100 * v:.1f}" for v in (result.mean, result.low, result.high))
    accuracy = f"{mean} ({low} to {high})"
    if difference is None:
        return [accuracy, "", "", ""]
    points = [f"{100 * v:+.1f}" for v in (difference.mean, difference.low, difference.high)]
    against = f"{points[0]} ({points[1]} to {points[2]})".replace("-", "−")
    p = f"{difference.p:.3f}" if difference.p >= 0.001 else "< 0.001"
    verdict = "[green]better[/]" if difference.mean > 0 else "[red]worse[/]"
    return [accuracy, against, p, verdict if difference.found else "no evidence"]


def _cost(result: "ArmResult", _: "Difference | None") -> list[str]:
    cells = [f"{result.seconds:,.1f}", f"{result.peak_mb:,.0f}", f"{result.parameters:,}"]
    return [*cells, "" if result.flops is None else f"{result.flops / 1e6:,.1f}"]


ONE_TABLE = 132  # columns that a terminal needs to show it all side by side
VERDICT = Columns(("{metric} (95 %)", "against {reference}", "p (Holm)", "verdict"), _verdict)
COST = Columns(("seconds", "peak MB", "parameters", "MFLOP"), _cost)


def _forecast(study: "Study", workers: int | None, json: bool) -> None:
    """Load two batches and make one step of each arm; say what all the runs would take."""
    import os

    import torch

    from regard import runs

    torch.set_num_threads(1)  # as the workers will have
    jobs = study.jobs()
    many = min(workers or os.cpu_count() or 1, len(jobs))
    rows = []
    for arm in study.arms:
        mine = [job.task for job in jobs if job.arm == arm.name]
        seen = runs.forecast(mine[0].task, mine[0].model, mine[0].overrides)
        rows.append({"name": arm.name, "runs": len(mine), **seen.json()})
    whole = sum(row["runs"] * row["seconds"] for row in rows)
    seconds = max(whole / many, *(row["seconds"] for row in rows))
    if json:
        emit_json({"task": study.task, "workers": many, "seconds": seconds, "arms": rows})
        return
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        say(
            f"{row['name']:<{wide}}  {row['runs']} × {row['seconds']:,.1f} s, "
            f"{row['steps']:,} steps, {row['parameters']:,} parameters, {row['memory_mb']:,.0f} MB"
        )
    say(f"about {duration(seconds)} with {many} side by side; nothing was written")
