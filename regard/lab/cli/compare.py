"""``regard compare``: compare models over several seeds with one budget."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import RegardError, look_up
from regard.core.names import COMMAND, short
from regard.core.settings import key_of
from regard.lab.cli import completion
from regard.lab.cli.console import (
    WIDE,
    Bar,
    Browse,
    Json,
    bar,
    begin,
    browse,
    emit_json,
    err,
    opened,
    out,
    say,
    showable,
)
from regard.lab.cli.launching import Jobs, Launch, launcher_of, listing
from regard.lab.cli.suggest import show_suggestion
from regard.lab.cli.train import TASKS_IN_WORDS, sample
from regard.lab.cli.train_request import noted
from regard.lab.studies.budget import parse_seeds
from regard.lab.studies.search import SAMPLERS, Sampler, Search
from regard.lab.studies.study import Study

if TYPE_CHECKING:
    from rich.table import Table

    from regard.lab.studies.launch import Event
    from regard.lab.studies.result import ArmResult, Comparison
    from regard.lab.studies.statistics import Difference
    from regard.lab.tasks.units import Unit


def compare(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help=f"Task to learn: {TASKS_IN_WORDS}. With --predictions: the first file.",
            autocompletion=completion.tasks,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings for all arms; a model setting applies to the arms whose model has it. "
            "`regard train TASK --model NAME --settings` lists them.",
            autocompletion=completion.settings,
        ),
    ] = None,
    *,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms",
            "-a",
            help="Comma-separated models: mean,transformer,tfidf, or for tasks that write text "
            "gru,bahdanau,transformer. Settings of one arm follow a colon: "
            "transformer:score=additive,heads=2 (a comma before key=value continues the arm, a "
            "semicolon always ends it). Repeatable. FILE.py:NAME is your own network, or an "
            "estimator of scikit-learn; 'command:PROGRAM {train} {test} {out} {seed}' reads CSV "
            "files and writes one with 'predicted', up to the next semicolon. It is ended after "
            "twice its {minutes}: those of --budget, or 60.",
            autocompletion=completion.models,
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="Named data (see `regard data list`) or a .csv, .tsv or .jsonl file (also .gz). "
            "Labelled texts may also be a .txt (label, tab, text), a .parquet, a folder with one "
            "file or folder per label, or neg.txt,pos.txt; pairs also FILE,FILE. Other splits: "
            "test=FILE validation=FILE; columns: text=NAME label=NAME, or numbers from 1.",
            autocompletion=completion.data,
        ),
    ] = "",
    study: Annotated[dict[str, Any], Study],
    search: Annotated[dict[str, Any], Search],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Output folder for runs and report.",
            show_default="runs/compare-TASK-DATA, with --tune runs/tune-TASK-DATA",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of parallel runs, one thread each.", show_default="all cores"
        ),
    ] = None,
    launch: Launch = "",
    jobs: Jobs = False,
    open_page: Browse = False,
    curve: Annotated[
        bool,
        typer.Option(
            "--curve",
            help="Also draw the learning curves of the arms in OUT/curves, as `regard suggest`.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run some steps per arm; forecast time and memory.")
    ] = False,
    predictions: Annotated[
        bool,
        typer.Option(
            "--predictions",
            help="Compare existing predictions instead of training: one file per arm and seed, "
            "FILE or NAME=FILE (.jsonl, .csv or .tsv with columns label and predicted; optional: "
            "probabilities, group, and id, source or text to match rows). The seed N is read from "
            "ARM.N.jsonl, ARM-seed-N.jsonl or ARM/seed-N/predictions.jsonl.",
        ),
    ] = False,
    metric: Annotated[
        str,
        typer.Option(
            help="Metric with --predictions: accuracy, macro-f1, balanced-accuracy, log-loss, or "
            "bleu for texts. To train, use metric=NAME.",
            show_default="accuracy",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Train models with several seeds and test which one is better.

    Confidence intervals and p-values are for paired differences per seed, including the variance of
    the test examples (or of their groups), with Holm's correction over all arms against the
    reference. Without evidence, the verdict reports the smallest difference that could have been
    detected. --seeds 3..30 adds seeds until each verdict is "different" or "equivalent", at an
    error rate that holds whenever it stops. Translations are compared by the BLEU of the whole test
    split. Run the same command again to resume; a larger --seeds adds runs.

    regard compare classification --arms mean,transformer,tfidf

    regard compare classification --arms "transformer,transformer:score=additive"

    regard compare classification --data reviews.csv --seeds 5 --budget 10m

    regard compare classification --arms mean,transformer,tfidf --seeds 3..30 --delta 1

    regard compare translation --data multi30k --arms gru,bahdanau --seeds 1

    regard compare classification --arms tfidf,transformer --tune 12

    regard compare classification --seeds 50 --launch dask:tcp://HOST:8786

    regard compare --predictions mine.0.jsonl mine.1.jsonl theirs.0.jsonl theirs.1.jsonl
    """
    from regard.lab.studies.arms import parse_arms

    if predictions:
        from regard.lab.studies.predictions import OUT, compare_predictions

        trains = {"--arms": arms, "--data": data, "--budget": study["budget"],
                  "--workers": workers, "--ladder": study["ladder"], "--dry-run": dry_run,
                  "--launch": launch, "--jobs": jobs, "--curve": curve}  # fmt: skip
        if given := [name for name, value in trains.items() if value]:
            raise RegardError(f"--predictions trains nothing; leave {' and '.join(given)} out")
        files = [task, *(settings or [])]
        comparison = compare_predictions(
            files, metric=metric or "accuracy", reference=study["reference"] or None,
            delta=study["delta"], out=folder or OUT,
        )  # fmt: skip
        _shown(comparison, json, open_page)
        return
    if metric:
        raise RegardError(f"--metric needs --predictions; to train, use metric={metric}")
    overrides = (*(settings or []), *([f"data={data}"] if data else []))
    study["least"], study["seeds"] = parse_seeds(study["seeds"])
    declared = Study(
        task, parse_arms(arms or [], task), overrides=overrides, search=search_of(**search), **study
    )
    action = "forecasting" if dry_run else "listing" if jobs else "comparing"
    begin(f"{action} {', '.join(arm.name for arm in declared.arms)} on {task}")
    from regard.lab.studies.compare import compare as run  # loads scipy

    launcher = launcher_of(launch, jobs, workers)
    declared = replace(declared, out=folder or usual_folder(declared))
    if dry_run:
        declared.check()
        _forecast(declared, workers, json)
        return
    if curve:
        from regard.lab.studies.suggest import METRIC

        look_up(METRIC, task, "task with learning curves")
    with listing(jobs, "runs"), bar("runs") as show:
        comparison = run(declared, launcher, Watch(show))
    comparison = _shown(comparison, json, open_page)
    if curve:
        _draw_curves(declared, quiet=json)
    if comparison.failures:
        raise typer.Exit(2)


def usual_folder(study: "Study") -> Path:
    """Return the default folder: named by task and data; if that is occupied, by settings, too."""
    from regard.lab.runs.places import default_folder

    stems = [f"-{Path(pair[5:]).stem}" for pair in study.overrides if pair.startswith("data=")]
    kind = "tune" if study.search else "compare"
    base = Path("runs") / f"{kind}-{short(study.task)}{''.join(stems)}"
    pairs = [pair for pair in study.overrides if not pair.startswith("data=")]
    pairs += [f"budget={study.budget}"] if study.budget else []
    folder = default_folder(base, pairs, lambda path: replace(study, out=path).check())
    return noted(folder, base)


def search_of(trials: int | None, sampler: str, seed: int, space: Sequence[str]) -> Search | None:
    """Return the search for the options. Raises: search options without --tune."""
    drawn: Mapping[str, Sampler] = {name: name for name in SAMPLERS}
    chosen = look_up(drawn, sampler, "sampler")
    if trials is not None:
        return Search(trials, chosen, seed, tuple(space))
    options = {"--tune-space": bool(space), "--sampler": sampler != "random", "--tune-seed": seed}
    for option, is_given in options.items():
        if is_given:
            raise RegardError(f"{option} needs a search; add --tune N, the number of trials")
    return None


def _shown(comparison: "Comparison", json: bool, open_page: bool) -> "Comparison":
    """Write the report, and print the comparison."""
    comparison = with_report(comparison)
    if json:
        emit_json(comparison.json())
    else:
        show_comparison(comparison)
    if open_page:
        browse(Path(comparison.report))
    return comparison


def _draw_curves(study: Study, *, quiet: bool) -> None:
    """Draw the learning curves of the arms on the rows of the data; a test file is not read."""
    from regard.lab.reports.suggestion import write
    from regard.lab.runs import Config
    from regard.lab.runs.estimators import OF_FILES
    from regard.lab.studies.arms import models_of
    from regard.lab.studies.suggest import suggest

    arms, of_data = [], OF_FILES | {"text", "features", "validation", "examples", "seed"}
    run = study.run(study.arms[0], 0)
    data: Any = Config.make(run.task, run.model, run.overrides).data
    for arm in study.arms:
        entry, pairs = models_of(study.task)[arm.model], study.run(arm, 0).overrides
        own = entry.settings.model_fields
        pairs = tuple(
            pair
            for pair in pairs
            if (key_of(pair) in own if entry.baseline else key_of(pair) not in of_data)
        )
        arms.append(replace(arm, overrides=pairs))
    with bar("curves") as show:
        found = suggest(data.source, task=study.task, arms=arms, defaults=(), show=show)
    path = write(found, study.out / "curves", shlex.join([*study.command(), "--curve"]))
    if not quiet:
        say()
        show_suggestion(found)
        say(f"learning curves: {path}")


class Watch:
    """Show the events of all jobs in one progress bar, and a line for each finished job."""

    def __init__(self, show: Bar) -> None:
        self.show = show
        self.done: dict[str, float] = {}
        self.warned: set[str] = set()  # arms with a printed warning

    def __call__(self, event: "Event") -> None:
        name = event.name
        if event.kind == "extended":
            say(event.message, quiet=True)
            return
        self.done[name] = event.done
        if event.kind in ("finished", "restarted"):
            say(f"{name}: {event.message}", quiet=True)
        elif event.kind == "failed":
            say(f"{name}: error: {event.message}", quiet=True)
        elif event.kind == "warning" and event.arm not in self.warned:
            self.warned.add(event.arm)
            say(f"{event.arm}: {event.message}", quiet=True)
        words = f"{name}: {event.message}" if event.kind == "progress" else ""
        self.show(round(sum(self.done.values()), 2), event.total, words, event.left)


def with_report(comparison: "Comparison") -> "Comparison":
    """Write the report next to the runs and its path into the comparison."""
    from regard.lab.reports.comparison import write_report

    comparison = replace(comparison, report=str(comparison.folder / "report.html"))
    comparison.save()
    write_report(comparison.record(), comparison.folder)
    return comparison


def show_comparison(comparison: "Comparison") -> None:
    """Print the arms, the verdicts and the path of the report."""
    from rich.console import Console
    from rich.measure import Measurement

    from regard.lab.reports.search import best_settings, search_table
    from regard.lab.runs import below
    from regard.lab.studies.arms import models_of
    from regard.lab.tasks import TASKS

    place = out if out.is_terminal else Console(width=WIDE)  # do not fold lines in a file
    whole = _table(comparison)
    if Measurement.get(place, place.options.update(max_width=WIDE), whole).maximum <= place.width:
        place.print(whole)
    else:
        place.print(_table(comparison, costs=False))
        say()
        place.print(_table(comparison, verdicts=False))
    say()
    for note in comparison.about.get("notes", []):
        say(f"data: {note}")
    for difference in (*comparison.verdicts, *comparison.rungs):
        say(difference.sentence)
    for result in comparison.arms:
        if not result.trained:
            remedy = _remedy(result, comparison.about.get("command", ()))
            say(f"{result.arm.name}: {result.training()}: {remedy}")
    if "tuning" in comparison.about:
        tuning = comparison.about["tuning"]
        say(f"\n{search_table(tuning).text()}")
        for name, chosen in best_settings(tuning).items():
            say(f"best settings of {name}: {chosen}")
    if not comparison.verdicts:
        finished = [result.arm.name for result in comparison.arms]
        says = f"the reference {comparison.reference} has no result"
        if comparison.reference in finished:
            says = f"no arm besides {comparison.reference} has a result"
        say(f"nothing to compare: {says}")
    models = models_of(comparison.task) if comparison.task in TASKS else {}
    baselines = [name for name, entry in models.items() if entry.baseline]
    if baselines and not any(result.arm.model in baselines for result in comparison.arms):
        free = " or ".join([name for name in baselines if not models[name].pretrained][:2])
        say(f"no arm is a baseline; add {free} to see the gain of a network")
    for failure in comparison.failures:
        err.print(f"error: {failure}", markup=False)
    if repeat := comparison.about.get("repeat"):
        say(f"\nto repeat it on another machine, by steps: {shlex.join(repeat)}")
    say(f"\nreport: {comparison.report}")
    drawn = showable(below(comparison.folder))
    follows = (
        [f"regard show {shlex.quote(str(drawn))} {sample(opened(drawn, 'show'))}"] if drawn else []
    )
    follows += [f"regard serve {shlex.quote(str(comparison.folder))}"] if models else []
    for head, command in zip(("next:", ""), follows, strict=False):
        say(f"{head:<8}{command}")


def _remedy(result: "ArmResult", command: Sequence[str]) -> str:
    """Return what to do about an arm whose training did not converge.

    ``command``: that of the comparison, which shows whether the training had a budget.
    """
    from regard.lab.runs.convergence import ONE_LABEL, RISING, TRIVIAL, UNKNOWN
    from regard.training.settings import BUDGETS

    if {RISING, UNKNOWN} & set(result.ended):
        given = [pair for pair in (*result.arm.overrides, *command) if key_of(pair) in BUDGETS]
        if given or "--budget" in command:
            return f"use a longer {given[0] if given else '--budget'}, or none"
        return f"use a longer --budget than its {max(result.steps, default=0):,} steps"
    if {ONE_LABEL, TRIVIAL} & set(result.ended):
        return "it learned nothing; try another learning_rate="
    return "run the command again to retry the failed runs"


def _table(comparison: "Comparison", *, verdicts: bool = True, costs: bool = True) -> "Table":
    """Return a table with a row per arm: score and verdict, costs and other scores, or both."""
    from rich.markup import escape
    from rich.table import Table

    from regard.lab.studies.result import COSTS
    from regard.lab.studies.statistics import verdict_heading
    from regard.lab.tasks import unit_of

    against = {difference.a: difference for difference in comparison.verdicts}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    longest = max(len(result.arm.name) for result in comparison.arms)
    table.add_column("arm", overflow="fold", min_width=min(longest, 24))
    headings, known = [], comparison.costs if costs else []
    others = comparison.other_metrics if costs else []
    if verdicts:
        over = "better than" if comparison.unit.lower else "against"
        headings = [
            f"{comparison.metric}{comparison.unit.sign} (95 %)",
            f"{over} {comparison.reference}",
        ]
        first = next(iter(comparison.verdicts), None)
        headings += ["p (Holm)", verdict_heading(first.margin, first.unit) if first else "verdict"]
    headings += [COSTS[i] for i in known] + [f"{name}{unit_of(name).sign}" for name in others]
    trained = costs and any(result.ended for result in comparison.arms)
    headings += ["training"] if trained else []
    for heading in headings:
        table.add_column(escape(heading), justify="left" if heading.startswith(LEFT) else "right")
    for result in comparison.arms:
        difference, spent = against.get(result.arm.name), result.costs()
        cells = _verdict(comparison.unit, result, difference) if verdicts else []
        cells += [spent[i] for i in known] + [result.other(name) for name in others]
        cells += [result.training()] if trained else []
        table.add_row(escape(result.arm.name), *cells)
    for name, value in comparison.trivial.items() if verdicts else ():
        table.add_row(name, comparison.unit.write(value), style="dim")
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
    if not difference.significant:
        verdict = difference.verdict or "no evidence"
    if difference.untrained and (difference.significant or verdict == "equivalent"):
        verdict = "no claim"
    count = "" if difference.margin is None else f", {difference.seeds} seeds"
    return [score, against, p, verdict + count]


LEFT = ("verdict", "training")


def _forecast(study: "Study", workers: int | None, json: bool) -> None:
    """Run some steps of each arm and print the forecast for all runs."""
    import os

    from regard.lab.reports.scales import forecast as ahead
    from regard.lab.studies.forecasts import Planned, costs, total

    jobs, trials = study.jobs(), study.trials
    planned = [
        Planned(arm.name, mine[0].task, len(mine), first=min(len(mine), study.looks[0]))
        for arm in study.arms
        if not arm.model.startswith(COMMAND)
        for mine in [[job for job in jobs if job.arm == arm.name]]
    ]
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for one, cost in costs(planned):
        rows.append(
            {"name": one.name, "runs": one.times, "first_runs": one.first,
             "trials": trials[one.name], **cost.json()}
        )  # fmt: skip
        notes += [note for note in cost.notes if note not in notes]
    many, few = ([row[key] + row["trials"] for row in rows] for key in ("runs", "first_runs"))
    parallel = min(workers or os.cpu_count() or 1, max(len(jobs), sum(trials.values())))
    seconds, most = total(rows, many, parallel, few)
    if json:
        emit_json(
            {"task": study.task, "workers": parallel, "seconds": seconds, "most_seconds": most,
             "arms": rows}
        )  # fmt: skip
        return
    for note in notes:
        say(f"data: {note}")
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        say(
            f"{row['name']:<{wide}}  {_times(row)} × {ahead(row['seconds'], row['most_seconds'])}, "
            f"{row['steps']:,} steps, {row['parameters']:,} parameters, {row['memory_mb']:,.0f} MB"
        )
    for arm in study.arms:
        if arm.model.startswith(COMMAND):
            say(f"{arm.name}: not run, so its time is unknown and not in the sum")
    for name, warning in ((row["name"], text) for row in rows for text in row["warnings"]):
        say(f"{name}: {warning}")
    early = any(row["steps"] < row["most_steps"] for row in rows)
    say(
        f"{ahead(seconds, most)} with {parallel} parallel runs"
        + (f"; {study.least} seeds, at most {study.seeds}" if study.least else "")
        + ("; at most, if validation keeps improving" if early else "")
        + "; nothing was written"
    )


def _times(row: dict[str, Any]) -> str:
    runs = str(row["runs"])
    if row["first_runs"] < row["runs"]:
        runs = f"{row['first_runs']} to {runs}"
    return f"({row['trials']} trials + {runs})" if row["trials"] else runs
