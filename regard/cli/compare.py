"""``regard compare``: several models, several seeds, one budget; and which is better."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import Bar, Json, bar, duration, emit_json, err, out, say, showable
from regard.cli.train import SAMPLES, TASKS_IN_WORDS, TEXT
from regard.errors import RegardError, look_up

if TYPE_CHECKING:
    from rich.table import Table

    from regard.studies.compare import Study
    from regard.studies.launch import Event
    from regard.studies.result import ArmResult, Comparison
    from regard.studies.search import Sampler, Search
    from regard.studies.statistics import Difference
    from regard.tasks.units import Unit


def compare(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help=f"What to learn: {TASKS_IN_WORDS}. With --predictions: the first file.",
        ),
    ],
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
            "(or .gz of it); of labelled texts also .txt (label, tab, text), .parquet, a folder "
            "with a file or a folder for each label, or neg.txt,pos.txt; of pairs also FILE,FILE. "
            "Others beside it: test=FILE validation=FILE; columns: text=NAME label=NAME, or by "
            "number from 1."
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
    tune: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Search every arm's settings on validation: N trials each, the first with the "
            "default settings, each with the budget of a run. The seeds then have the best.",
        ),
    ] = None,
    tune_space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=RANGE",
            help="Range to search instead of the usual one, or beside them: low..high, "
            "low..high:log or a,b,c. May be given more than once.",
        ),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="Optuna's sampler: random, or tpe, which learns from the trials.")
    ] = "random",
    tune_seed: Annotated[int, typer.Option(min=0, help="Random seed of the search.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of runs and report.",
            show_default="runs/compare-TASK-DATA, with --tune runs/tune-TASK-DATA",
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
    predictions: Annotated[
        bool,
        typer.Option(
            "--predictions",
            help="Train nothing: the arguments are files of predictions, one for each arm and "
            "seed, FILE or NAME=FILE (.jsonl, .csv or .tsv with label and predicted; "
            "probabilities, group, and id, source or text to pair rows if there are any). Seed N "
            "is told by ARM.N.jsonl, ARM-seed-N.jsonl or ARM/seed-N/predictions.jsonl.",
        ),
    ] = False,
    metric: Annotated[
        str,
        typer.Option(
            help="With --predictions: accuracy, macro-f1, balanced-accuracy, log-loss, or of texts "
            "bleu. A training takes metric=NAME.",
            show_default="accuracy",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Train models with several seeds, and say which is surely better.

    The unit is the seed: intervals and p are of paired differences, the variance of the test
    examples (or of their groups) added, Holm's correction over all arms against the reference.
    Without evidence, the verdict says how large a difference would have been found. Translations
    are compared by BLEU of the whole test. The same command again goes on where it was; more
    --seeds add to what is there.

    regard compare classification --arms mean,transformer,tfidf

    regard compare classification --arms "transformer,transformer:score=additive"

    regard compare classification --data reviews.csv --seeds 5 --budget 10m

    regard compare translation --data multi30k --arms gru,bahdanau --seeds 1

    regard compare classification --arms tfidf,transformer --tune 12

    regard compare --predictions mine.0.jsonl mine.1.jsonl theirs.0.jsonl theirs.1.jsonl
    """
    from regard.studies.compare import Study
    from regard.studies.compare import compare as run

    if predictions:
        trains = {"--arms": arms, "--data": data, "--budget": budget, "--workers": workers,
                  "--ladder": ladder, "--dry-run": dry_run}  # fmt: skip
        if given := [name for name, value in trains.items() if value]:
            raise RegardError(f"--predictions trains nothing: leave {' and '.join(given)} out")
        _of_files([task, *(settings or [])], metric, reference, folder, json)
        return
    if metric:
        raise RegardError(f"--metric goes with --predictions; a training takes metric={metric}")
    overrides = [*(settings or []), *([f"data={data}"] if data else [])]
    search = search_of(tune, sampler, tune_seed, tune_space or [])
    place = folder or usual_folder(task, data, tunes=search is not None)
    asked: dict[str, Any] = {
        "search": search,
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


def usual_folder(task: str, data: str, *, tunes: bool) -> Path:
    """Return where a comparison goes that names no folder.

    >>> usual_folder("classification", "a/reviews.csv", tunes=False).name
    'compare-classification-reviews'
    """
    kind = "tune" if tunes else "compare"
    return Path("runs") / f"{kind}-{task}{f'-{Path(data).stem}' if data else ''}"


def search_of(trials: int | None, sampler: str, seed: int, space: Sequence[str]) -> "Search | None":
    """Return the search that the options ask for. Errors: options of a search without --tune."""
    from regard.studies.search import SAMPLERS, Search

    drawn: Mapping[str, Sampler] = {name: name for name in SAMPLERS}
    chosen = look_up(drawn, sampler, "sampler")
    if trials is not None:
        return Search(trials, chosen, seed, tuple(space))
    given = {"--tune-space": bool(space), "--sampler": sampler != "random", "--tune-seed": seed}
    for option, is_given in given.items():
        if is_given:
            raise RegardError(f"{option} is of a search: give --tune N, the number of trials, too")
    return None


def _of_files(
    files: Sequence[str], metric: str, reference: str, folder: Path | None, json: bool
) -> None:
    """Compare what other programs predicted."""
    from regard.studies.predictions import OUT, compare_predictions

    place = folder or Path(OUT)
    found = compare_predictions(
        files, metric=metric or "accuracy", reference=reference or None, out=place
    )
    found = with_report(found)
    if json:
        emit_json(found.json())
    else:
        show_comparison(found)


class Watch:
    """Turns what happens to the jobs into one bar, and a line for each job that ends."""

    def __init__(self, show: Bar) -> None:
        self.show = show
        self.done: dict[str, float] = {}
        self.warned: set[str] = set()  # arms, each once

    def __call__(self, event: "Event") -> None:
        name = event.name
        self.done[name] = event.done
        if event.kind == "finished":
            say(f"{name}: {event.says}", quiet=True)
        elif event.kind == "failed":
            say(f"{name}: error: {event.says}", quiet=True)
        elif event.kind == "warning" and event.arm not in self.warned:
            self.warned.add(event.arm)
            say(f"{event.arm}: {event.says}", quiet=True)
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
    from rich.measure import Measurement

    from regard.reports.search import best_settings, search_table
    from regard.runs import below
    from regard.studies.compare import models_of
    from regard.tasks import TASKS

    place = out if out.is_terminal else Console(width=WIDE)  # a file has no edge to fold at
    whole = _table(found)
    if Measurement.get(place, place.options.update(max_width=WIDE), whole).maximum <= place.width:
        place.print(whole)
    else:
        place.print(_table(found, costs=False))
        say()
        place.print(_table(found, verdicts=False))
    say()
    for note in found.about.get("notes", []):
        say(f"data: {note}")
    for difference in (*found.verdicts, *found.rungs):
        say(difference.says)
    for result in found.arms:
        if not result.trained:
            say(f"{result.arm.name}: {result.training()}: {_remedy(result)}")
    if "tuning" in found.about:
        tuning = found.about["tuning"]
        say(f"\n{search_table(tuning).text()}")
        for name, chosen in best_settings(tuning).items():
            say(f"best settings of {name}: {chosen}")
    if not found.verdicts:
        say(f"nothing to compare with: {found.reference} has no result")
    models = models_of(found.task) if found.task in TASKS else {}
    counting = [name for name, entry in models.items() if entry.baseline]
    if counting and not any(result.arm.model in counting for result in found.arms):
        say(f"no arm is a baseline: {' or '.join(counting)} beside them shows what a network adds")
    for failure in found.failures:
        err.print(f"error: {failure}", markup=False)
    if repeat := found.about.get("repeat"):
        say(f"\nin steps, to repeat it elsewhere: {shlex.join(repeat)}")
    say(f"\nreport: {found.report}")
    drawn = showable(below(found.folder))
    follows = [f"regard show {drawn} {SAMPLES.get(found.task, TEXT)}"] if drawn else []
    follows += [f"regard serve {found.folder}"] if models else []
    for head, command in zip(("next:", ""), follows, strict=False):
        say(f"{head:<8}{command}")


def _remedy(result: "ArmResult") -> str:
    """What to do about an arm that was not trained to its end."""
    from regard.training.convergence import ONE_LABEL, RISING, UNKNOWN

    if {RISING, UNKNOWN} & set(result.ended):
        return "give a longer --budget, or none"
    if ONE_LABEL in result.ended:
        return "it learned nothing; another learning_rate= may help"
    return "the command again tries what failed"


def _table(found: "Comparison", *, verdicts: bool = True, costs: bool = True) -> "Table":
    """A row for each arm: its score and the verdict on it, its costs and other scores, or both."""
    from rich.markup import escape
    from rich.table import Table

    from regard.studies.result import COSTS
    from regard.tasks import unit_of

    against = {difference.a: difference for difference in found.verdicts}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    longest = max(len(result.arm.name) for result in found.arms)
    table.add_column("arm", overflow="fold", min_width=min(longest, 24))
    headings, known, also = [], found.costs if costs else [], found.also if costs else []
    if verdicts:
        over = "better than" if found.unit.lower else "against"
        headings = [f"{found.metric}{found.unit.sign} (95 %)", f"{over} {found.reference}"]
        headings += ["p (Holm)", "verdict"]
    headings += [COSTS[i] for i in known] + [f"{name}{unit_of(name).sign}" for name in also]
    trained = costs and any(result.ended for result in found.arms)
    headings += ["training"] if trained else []
    for heading in headings:
        table.add_column(escape(heading), justify="left" if heading in LEFT else "right")
    for result in found.arms:
        told, spent = against.get(result.arm.name), result.costs()
        cells = _verdict(found.unit, result, told) if verdicts else []
        cells += [spent[i] for i in known] + [result.tells(name) for name in also]
        cells += [result.training()] if trained else []
        table.add_row(escape(result.arm.name), *cells)
    for name, value in found.trivial.items() if verdicts else ():
        table.add_row(name, found.unit.write(value), style="dim")
    return table


def _verdict(unit: "Unit", result: "ArmResult", difference: "Difference | None") -> list[str]:
    mean, low, high = (unit.write(v) for v in (result.mean, result.low, result.high))
    score = f"{mean} ({low} to {high})"
    if difference is None:
        return [score, "", "", ""]
    ends = (difference.mean, difference.low, difference.high)
    points = [unit.write(value, "+") for value in ends]
    against = f"{points[0]} ({points[1]} to {points[2]})"
    p = f"{difference.p:.3f}" if difference.p >= 0.001 else "< 0.001"
    verdict = "[green]better[/]" if difference.mean > 0 else "[red]worse[/]"
    if difference.found and not difference.claimed:
        verdict = "no claim"
    return [score, against, p, verdict if difference.found else "no evidence"]


WIDE = 1000  # columns; no table has more
LEFT = {"verdict", "training"}


def _forecast(study: "Study", workers: int | None, json: bool) -> None:
    """Load two batches and make one step of each arm; say what all the runs would take."""
    import os

    import torch

    from regard import runs

    torch.set_num_threads(1)  # as the workers will have
    jobs = study.jobs()
    trials = study.trials
    many = min(workers or os.cpu_count() or 1, max(len(jobs), sum(trials.values())))
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for arm in study.arms:
        mine = [job.task for job in jobs if job.arm == arm.name]
        seen = runs.forecast(mine[0].task, mine[0].model, mine[0].overrides)
        rows.append(
            {"name": arm.name, "runs": len(mine), "trials": trials[arm.name], **seen.json()}
        )
        notes += [note for note in seen.notes if note not in notes]
    whole = sum((row["runs"] + row["trials"]) * row["seconds"] for row in rows)
    seconds = max(whole / many, *(row["seconds"] for row in rows))
    if json:
        emit_json({"task": study.task, "workers": many, "seconds": seconds, "arms": rows})
        return
    for note in notes:
        say(f"data: {note}")
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        say(
            f"{row['name']:<{wide}}  {_times(row)} × {row['seconds']:,.1f} s, "
            f"{row['steps']:,} steps, {row['parameters']:,} parameters, {row['memory_mb']:,.0f} MB"
        )
    for name, warning in ((row["name"], text) for row in rows for text in row["warnings"]):
        say(f"{name}: {warning}")
    some = any(row["at_most"] for row in rows)
    say(
        f"{'at most' if some else 'about'} {duration(seconds)} with {many} side by side"
        + ("; runs end where validation stops improving" if some else "")
        + "; nothing was written"
    )


def _times(row: dict[str, Any]) -> str:
    return f"({row['trials']} trials + {row['runs']})" if row["trials"] else str(row["runs"])
