"""``regard train``: train one model on one task, into a folder for all other commands."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.lab.cli import completion
from regard.lab.cli.console import (
    Json,
    bar,
    begin,
    duration,
    emit_json,
    err,
    out,
    say,
    showable,
)
from regard.lab.cli.train_request import TrainRequest, pretrained_beside
from regard.lab.reports.scales import forecast as ahead

if TYPE_CHECKING:
    from regard.lab.runs import Config, Forecast, Run
    from regard.training.loop import Progress

TASKS_IN_WORDS = (
    "classification, multilabel, regression, tagging; reverse, dates, translation; "
    "language-modeling, masked-modeling, span-corruption; birthplace-pretrain, birthplace; mqar, "
    "induction, selective-copying, sorting, reversing, max-retrieval, indirect-indexing, "
    "counting, permutations, stack, modular-addition"
)

SAMPLES = {  # the argument in a suggested command
    "masked-modeling": "'your [MASK] text'",
    "span-corruption": "'your <extra_id_0> text'",
    "birthplace": "'Where was NAME born?'",
}


def sample(run: "Run") -> str:
    """Return the arguments of a suggested command that are an input of the run."""
    columns = run.task.columns
    words = [SAMPLES.get(run.config.task, "'your text'")]
    words += ["--second 'second text'"] if columns.second else []
    return " ".join([*words, *(f"--feature {shlex.quote(x)}=VALUE" for x in columns.further)])


def train(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help=f"Task to learn: {TASKS_IN_WORDS}.",
            autocompletion=completion.tasks,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of task, model and training, such as learning_rate=0.002 heads=2; "
            "--settings lists them all.",
            autocompletion=completion.settings,
        ),
    ] = None,
    *,
    options: Annotated[dict[str, Any], TrainRequest],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run some steps; forecast time and memory."),
    ] = False,
    end: Annotated[
        bool,
        typer.Option(
            "--end", help="Finish an interrupted training now, with its best weights so far."
        ),
    ] = False,
    list_settings: Annotated[
        bool, typer.Option("--settings", help="List all settings with values and descriptions.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a model on a task and evaluate it on the test split.

    Run the same command again to resume after an interruption or a crash; the weights come out the
    same. With --end, the training stops at its last checkpoint and becomes a completed run. Nothing
    is overwritten: without --out, other settings get a folder named by them; a folder given by
    --out must be free or hold the same run.

    regard train classification

    regard train classification --model rnn --data reviews.csv --budget 10m seed=1

    regard train classification --data few.csv --pretrain-on many.txt

    regard train birthplace --init runs/birthplace-pretrain-gpt

    regard train classification --config runs/mine --out runs/again seed=1
    """
    from regard.core.errors import RegardError
    from regard.lab import runs

    if end and dry_run:
        raise RegardError("--dry-run and --end exclude each other; give only one of them")
    plan = TrainRequest(task, tuple(settings or ()), **options).plan()
    if list_settings:
        show_settings(plan.config, json)
        return
    if dry_run:
        show_forecasts(plan.forecasts(), json)
        return
    begin(f"training {plan.model} on {task}")
    from regard.core.memory import keep_freed_memory
    from regard.training.ranks import ranks

    keep_freed_memory()
    out.quiet = err.quiet = not ranks().first  # only one of several processes prints
    place = plan.folder()
    if plan.pretraining:
        begun = runs.go_on(pretrained_beside(place), plan.pretraining)
        if not pretrained(begun, plan.request.pretrain_on, end, json):
            return
    run = runs.go_on(place, plan.config_in(place))
    complete = run.complete
    follow(run, f"{plan.model} on {task}", end=end)
    if ranks().first:
        report(run, complete, json)


def pretrained(run: "Run", texts: str, end: bool, json: bool) -> bool:
    """Pretrain on texts; return False if --end finished the pretraining just now, else True."""
    ends = end and not run.complete
    follow(run, f"{run.config.model} on the texts of {texts}", end=ends)
    say(f"pretrained: {run.evaluate().line()}; run: {run.folder.path}", quiet=json)
    if ends:
        report(run, False, json)
        say("run the same command without --end to train on the labels", quiet=json)
    return not ends


def follow(run: "Run", what: str, *, end: bool = False, shown: bool = True) -> None:
    """Train a run to its end, or end it now, with a progress bar; notes are always printed."""
    from regard.training.stopping import stoppable

    with bar(what, shown=shown) as show, stoppable():
        try:
            for progress in run.train(end=end):
                for note in filter(None, (progress.note, progress.few_updates)):
                    say(note, quiet=True)
                show(*advance(progress, run.validates), progress.left)
        except KeyboardInterrupt:
            if not end and run.folder.checkpoints.steps():
                say("add --end to complete the run from its last checkpoint", quiet=True)
            raise


def advance(progress: "Progress", metric: str) -> tuple[float, float, str]:
    """Return done, total and a text for the bar, both in the unit of the budget."""
    from regard.lab.tasks.evaluation import validated

    if not progress.seconds_left:
        return progress.step, progress.step, "predicting the test split"
    words = [f"loss {progress.loss:.3f}"]
    if progress.best is not None:
        words.append(f"best {validated(metric, progress.best)}")
    words.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    return progress.step, progress.expected, ", ".join(words)


def report(run: "Run", was_complete: bool, json: bool) -> None:
    """Print the metrics of the run, its folder and what to do next."""
    evaluation = run.evaluate()
    folder, rows = run.folder.path, run.metrics()
    last = rows[-1] if rows else {}
    if json:
        emit_json(
            {
                "run": str(folder),
                "task": run.config.task,
                "model": run.config.model,
                "was_complete": was_complete,
                "ended": run.ended,
                **evaluation.json(),
                "validation": last.get("best"),
                "validates": run.validates,
                "convergence": run.convergence,
                "steps": last.get("step"),
                "repeat": run.repeat,
                **{key: last.get(key) for key in ("tokens", "seconds", "peak_mb")},
            }
        )
        return
    if was_complete:
        say(f"{folder} is already complete; nothing was done")
    for note in run.notes:
        say(note)
    say(f"{'test' if run.held_out else 'train'} {evaluation.line()}")
    if last:
        say(f"{last['step']:,} steps, {last['tokens']:,} tokens, {duration(last['seconds'])}")
    environment = run.folder.environment()
    for source in filter(None, (environment.get(what) for what in ("init", "weights"))):
        parts = [f"{source['taken']:,} weights"]
        for what in ("new", "left"):
            parts += [f"{what}: {', '.join(source[what])}"] if source.get(what) else []
        say(f"started from {source.get('run') or source['source']}: {'; '.join(parts)}")
    for note in environment.get("data", {}).get("notes", []):
        say(f"data: {note}")
    say(f"run: {folder}")
    text = sample(run)
    trees = run.config.reads_trees
    place = shlex.quote(str(folder))
    say(f"next: regard predict {place} {'--file FILE.conllu' if trees else text}")
    if showable([folder]):
        say(f"      regard show {place} {text}")
    say(f"      regard evaluate {place}")


def show_settings(config: "Config", json: bool) -> None:
    """Print each setting of task, model and training with its value and description."""
    parts = [
        ("task", config.task, config.data),
        ("model", config.model, config.network),
        ("training", "training", config.training),
    ]
    if json:
        emit_json(
            {
                what: {
                    key: {"value": getattr(part, key), "means": means}
                    for key, means in part.meanings().items()
                }
                for what, _, part in parts
            }
        )
        return
    from rich.markup import escape
    from rich.table import Table

    from regard.core.settings import in_words

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold")
    table.add_column()
    for _, name, part in parts:
        table.add_row(escape(f"{name}:"))
        for key, means in part.meanings().items():
            table.add_row(escape(f"  {key}={in_words(getattr(part, key))}"), escape(means))
    out.print(table, soft_wrap=False)


def show_forecasts(forecasts: Sequence["Forecast"], json: bool) -> None:
    """Print the forecast cost of a training, and of the pretraining before it."""
    if json:
        *before, last = (forecast.json() for forecast in forecasts)
        emit_json({**last, **({"pretraining": before[0]} if before else {})})
        return
    for forecast in forecasts:
        show_forecast(forecast)
    say("nothing was written; remove --dry-run to start the training")


def show_forecast(forecast: "Forecast") -> None:
    """Print the forecast cost of one training."""
    for note in (*forecast.notes, *forecast.warnings):
        say(note)
    say(
        f"{forecast.model} on {forecast.task}: {forecast.train:,} texts for training, "
        f"{forecast.validation:,} for validation, {forecast.test:,} for test"
    )
    say(f"{forecast.parameters:,} parameters, {forecast.precision}")
    say(
        f"{ahead(forecast.seconds, forecast.most_seconds)}: {forecast.steps:,} steps "
        f"at {forecast.tokens_per_second:,.0f} tokens/s"
        + (
            f"; at most {forecast.most_steps:,}, if validation keeps improving"
            if forecast.most_steps > forecast.steps
            else ""
        )
    )
    say(f"about {forecast.memory_mb:,.0f} MB of memory, {forecast.disk_mb:,.0f} MB of disk")
