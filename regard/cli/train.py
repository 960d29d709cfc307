"""``regard train``: one model on one task, in a folder that any later command can use."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import Json, bar, duration, emit_json, err, hidden, out, say, showable
from regard.parts import short
from regard.trusted import trust_named

if TYPE_CHECKING:
    from regard.runs import Config, Forecast, Run
    from regard.training.loop import Progress

MODELS_IN_WORDS = (  # written out, so that help does not load the table
    "mean, attention-pool, query-from-mean, self-attention, +residual, +positions, "
    "+residual+positions, +cls, transformer, gpt, bert, frozen, t5, rnn, cnn, tfidf, nb-svm"
)
WRITERS_IN_WORDS = "gru, bahdanau, lab-6, luong-dot, luong-general, luong-concat, transformer, t5"
TASKS_IN_WORDS = (
    "classification, reverse, dates, translation; language-modeling, masked-modeling, "
    "span-corruption; birthplace-pretrain, birthplace"
)

TEXT = "'your text'"  # of a command that is suggested
SAMPLES = {
    "masked-modeling": "'your [MASK] text'",
    "span-corruption": "'your <extra_id_0> text'",
    "birthplace": "'Where was NAME born?'",
}


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"What to learn: {TASKS_IN_WORDS}.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of task, model and training, as learning_rate=0.002 heads=2; "
            "--settings lists them.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help=f"Which model. Of classification: {MODELS_IN_WORDS}; of a task that writes texts: "
            f"{WRITERS_IN_WORDS}.",
            show_default="the task's own",
        ),
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            help="A name (`regard data list` has them all), or your own .csv, .tsv or .jsonl file "
            "(or .gz of it); of labelled texts also .txt (label, tab, text), .parquet, a folder "
            "with a file or a folder for each label, or neg.txt,pos.txt; of texts alone .txt or "
            ".md, cut where lines are empty, or line by line where none is; of pairs also "
            "FILE,FILE. Others beside it: test=FILE validation=FILE; columns: text=NAME "
            "label=NAME, or by number from 1."
        ),
    ] = "",
    budget: Annotated[
        str, typer.Option(help="How long: 10m, '500 steps', '3 epochs' or '2M tokens'.")
    ] = "",
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Begin from the weights and the tokens of a complete run, as one of birthplace-"
            "pretrain, language-modeling, masked-modeling or span-corruption; its network's "
            "settings hold where none are given.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN|FILE",
            help="Model and settings of another run, or of a file like its config.toml; what is "
            "given here goes before.",
        ),
    ] = None,
    pretrain_on: Annotated[
        str,
        typer.Option(
            metavar="TEXTS",
            help="Pretrain first on texts without labels (a .txt, .jsonl, .csv or .tsv file, imdb "
            "or reviews), in RUN-pretrained, without what the task is judged by; for --model bert "
            "(the default then), gpt or t5.",
        ),
    ] = "",
    pretrain_budget: Annotated[
        str,
        typer.Option(
            help="How long to pretrain, as --budget.", show_default="until it stops improving"
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the run.", show_default="runs/TASK-MODEL"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Load two batches, make a step, forecast time and memory."),
    ] = False,
    end: Annotated[
        bool,
        typer.Option(
            "--end", help="Of a training that was stopped: end it here, with its best weights."
        ),
    ] = False,
    list_settings: Annotated[
        bool, typer.Option("--settings", help="List all settings, what they are and mean.")
    ] = False,
    json: Json = False,
) -> None:
    """Train one model on one task, and judge it on the test split.

    The same command again goes on after a stop or a crash, to the very same weights, and says so
    when the run is complete; with --end it makes a run of what was learned until then. Nothing is
    overwritten: other settings need another --out.

    regard train classification

    regard train classification --model rnn --data reviews.csv --budget 10m seed=1

    regard train classification --data few.csv --pretrain-on many.txt

    regard train birthplace --init runs/birthplace-pretrain-gpt

    regard train classification --config runs/mine --out runs/again seed=1
    """
    from regard import runs
    from regard.errors import RegardError

    if end and dry_run:
        raise RegardError("--dry-run forecasts a training, --end ends one: give one of them")
    pairs = [*(settings or []), *([f"data={data}"] if data else []), *as_pairs(budget)]
    model, overrides, asked_for = wanted(
        task, model, pairs, init=init, config=config, texts=pretrain_on, budget=pretrain_budget
    )
    if list_settings:
        show_settings(asked_for, json)
        return
    given = as_pairs(pretrain_budget)
    if dry_run:
        asked = [runs.way_of(task, model, pretrain_on, overrides, given)] if pretrain_on else []
        asked.append((task, overrides))
        show_forecasts([runs.forecast(what, model, own) for what, own in asked], json)
        return
    from regard.memory import keep_freed_memory
    from regard.training.ranks import ranks

    keep_freed_memory()
    out.quiet = err.quiet = not ranks().first  # of several processes one speaks
    place = folder or Path("runs") / f"{short(task)}-{short(model)}"
    if pretrain_on:
        before = place.with_name(f"{place.name}-pretrained")
        first = runs.pretraining_for(before, task, model, pretrain_on, overrides, given)
        if not pretrained(first, pretrain_on, end, json):
            return
        asked_for = runs.Config.make(task, model, [*overrides, f"init={before}"])
    run = runs.go_on(place, asked_for)
    complete = run.complete
    follow(run, f"{model} on {task}", end=end)
    if ranks().first:
        report(run, complete, json)


def wanted(
    task: str,
    model: str,
    pairs: Sequence[str],
    *,
    init: Path | None,
    config: Path | None,
    texts: str,
    budget: str,
) -> "tuple[str, list[str], Config]":
    """Return the model, the settings as pairs and the config that a training asks for.

    Errors: options that forbid each other; names and settings that there are not, told before
    torch is loaded.
    """
    from regard import runs
    from regard.errors import RegardError, look_up
    from regard.tasks import TASKS

    if init and texts:
        raise RegardError("--init begins from a run, --pretrain-on makes one: give one of them")
    if budget and not texts:
        raise RegardError("--pretrain-budget goes with --pretrain-on TEXTS")
    trust_named((task, model))
    after = "bert" if texts else runs.model_after(init, task)
    overrides = [*pairs, *([f"init={init}"] if init else [])]
    if config:
        after, overrides = as_there(runs.Config.read(config), task, model, overrides)
    model = model or after or look_up(TASKS, task, "task").model
    return model, overrides, runs.Config.make(task, model, overrides)


def as_there(there: "Config", task: str, model: str, given: list[str]) -> tuple[str, list[str]]:
    """The model of another run, and its settings as pairs where none are given.

    Errors: a run of another task.
    """
    from regard.errors import RegardError
    from regard.settings import key_of
    from regard.training.settings import BUDGETS

    if there.task != task:
        raise RegardError(f"--config is of {there.task}, not of {task}")
    mine = set(map(key_of, given))
    mine |= set(BUDGETS) if mine & set(BUDGETS) else set()
    sections = there.sections()
    if model and model != there.model:
        del sections["network"]
    theirs = {key: value for part in sections.values() for key, value in part.items()}
    left = [f"{key}={in_words(value)}" for key, value in theirs.items() if key not in mine]
    return there.model, [*left, *given]


def as_pairs(budget: str) -> list[str]:
    """A budget in words as settings.

    >>> as_pairs("2M tokens"), as_pairs("")
    (['tokens=2000000'], [])
    """
    from regard.studies.budget import parse_budget

    return [f"{key}={value}" for key, value in parse_budget(budget).items()] if budget else []


def pretrained(run: "Run", texts: str, end: bool, json: bool) -> bool:
    """Pretrain on some texts; whether to go on with the labels: not if it was ended just now."""
    ends = end and not run.complete
    follow(run, f"{run.config.model} on the texts of {texts}", end=ends)
    say(f"pretrained: {run.evaluate().line()}; run: {run.folder.path}", quiet=json)
    if ends:
        report(run, False, json)
        say("the same command without --end goes on with its labels", quiet=json)
    return not ends


def follow(run: "Run", what: str, *, end: bool = False, shown: bool = True) -> None:
    """Train a run to its end, or end it here, and show how far it is; notes are said anyway."""
    with bar(what) if shown else hidden() as show:
        try:
            for progress in run.train(end=end):
                for note in filter(None, (progress.note, progress.few_updates)):
                    say(note, quiet=True)
                show(*advance(progress, run.validates), progress.seconds_left)
        except KeyboardInterrupt:
            if not end and run.folder.checkpoints.steps():
                say("with --end the same command makes a run of its last checkpoint", quiet=True)
            raise


def advance(progress: "Progress", metric: str) -> tuple[float, float, str]:
    """Done, total, and words for the bar; done follows the budget, whatever it is counted in."""
    from regard.tasks.evaluation import validated

    words = [f"loss {progress.loss:.3f}"]
    if progress.best is not None:
        words.append(f"{validated(metric, progress.best)} at best")
    words.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    words += [] if progress.seconds_left else ["answering the test split"]
    return progress.step, progress.steps, ", ".join(words)


def report(run: "Run", was_complete: bool, json: bool) -> None:
    """Say how good the run is, where it lies, and what to do with it."""
    judged = run.evaluate()
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
                **judged.json(),
                "validation": last.get("best"),
                "validates": run.validates,
                "convergence": run.convergence,
                "steps": last.get("step"),
                "repeat": run.repeat,
                "tokens": last.get("tokens"),
                "seconds": last.get("seconds"),
                "peak_mb": last.get("peak_mb"),
            }
        )
        return
    if was_complete:
        say(f"{folder} was complete already; nothing was done")
    for note in run.notes:
        say(note)
    say(f"{'test' if run.held_out else 'train'} {judged.line()}")
    if last:
        say(f"{last['step']:,} steps, {last['tokens']:,} tokens, {duration(last['seconds'])}")
    environment = run.folder.environment()
    for begun in filter(None, (environment.get(what) for what in ("init", "weights"))):
        parts = [f"{begun['taken']:,} weights"]
        for what in ("new", "left"):
            parts += [f"{what}: {', '.join(begun[what])}"] if begun.get(what) else []
        say(f"begun from {begun.get('run') or begun['source']}: {'; '.join(parts)}")
    for note in environment.get("data", {}).get("notes", []):
        say(f"data: {note}")
    say(f"run: {folder}")
    text = SAMPLES.get(run.config.task, TEXT)
    trees = run.config.reads_trees
    say(f"next: regard predict {folder} {'--file FILE.conllu' if trees else text}")
    if showable([folder]):
        say(f"      regard show {folder} {text}")
    say(f"      regard evaluate {folder}")


def show_settings(config: "Config", json: bool) -> None:
    """Say what each setting of task, model and training is, and what it means."""
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

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold")
    table.add_column()
    for _, name, part in parts:
        table.add_row(escape(f"{name}:"))
        for key, means in part.meanings().items():
            table.add_row(escape(f"  {key}={in_words(getattr(part, key))}"), escape(means))
    out.print(table, soft_wrap=False)


def in_words(value: object) -> str:
    """A setting as the command line takes it.

    >>> in_words(True), in_words(30.0), in_words(1e-5), in_words("corpus-1.0")
    ('1', '30', '1e-05', 'corpus-1.0')
    """
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(int(value) if isinstance(value, bool) else value)


def show_forecasts(forecasts: Sequence["Forecast"], json: bool) -> None:
    """Say what a training would cost, and a pretraining before it."""
    if json:
        *before, last = (forecast.json() for forecast in forecasts)
        emit_json({**last, **({"pretraining": before[0]} if before else {})})
        return
    for forecast in forecasts:
        show_forecast(forecast)
    say("nothing was written: without --dry-run the training begins")


def show_forecast(forecast: "Forecast") -> None:
    """Say what one training would cost."""
    for note in (*forecast.notes, *forecast.warnings):
        say(note)
    say(
        f"{forecast.model} on {forecast.task}: {forecast.train:,} texts to learn from, "
        f"{forecast.validation:,} to validate, {forecast.test:,} to test"
    )
    say(f"{forecast.parameters:,} parameters, {forecast.precision}")
    say(
        f"{'at most' if forecast.at_most else 'about'} {duration(forecast.seconds)}: "
        f"{forecast.steps:,} steps at {forecast.tokens_per_second:,.0f} tokens/s"
        + ("; it ends where validation stops improving" if forecast.at_most else "")
    )
    say(f"about {forecast.memory_mb:,.0f} MB of memory, {forecast.disk_mb:,.0f} MB of disk")
