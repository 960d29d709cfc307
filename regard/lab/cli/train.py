"""``regard train``: train one model on one task, into a folder for all other commands."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.core.atomic_io import MANIFEST
from regard.core.names import short
from regard.core.trusted import trust_named
from regard.lab.cli import completion
from regard.lab.cli.console import Json, bar, duration, emit_json, err, hidden, out, say, showable
from regard.lab.reports.scales import forecast as ahead
from regard.lab.runs.places import default_folder

if TYPE_CHECKING:
    from regard.lab.runs import Config, Forecast, Run
    from regard.training.loop import Progress

MODELS_IN_WORDS = (  # written out so that --help does not load the table
    "mean, attention-pool, query-from-mean, self-attention, +residual, +positions, "
    "+residual+positions, +cls, transformer, gpt, bert, frozen, t5, rnn, cnn, tfidf, nb-svm"
)
WRITERS_IN_WORDS = (
    "gru, bahdanau, lab-6, luong-dot, luong-general, luong-concat, transformer, t5, "
    "copy, most-frequent, nearest-neighbour"
)
TASKS_IN_WORDS = (
    "classification, regression, tagging; reverse, dates, translation; language-modeling, "
    "masked-modeling, span-corruption; birthplace-pretrain, birthplace; mqar, induction, "
    "selective-copying, sorting, reversing, max-retrieval, indirect-indexing, modular-addition"
)

TEXT = "'your text'"  # the argument in a suggested command
SAMPLES = {
    "masked-modeling": "'your [MASK] text'",
    "span-corruption": "'your <extra_id_0> text'",
    "birthplace": "'Where was NAME born?'",
}


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
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help=f"Model. For classification: {MODELS_IN_WORDS}; for tasks that write text: "
            f"{WRITERS_IN_WORDS}.",
            show_default="depends on the task",
            autocompletion=completion.models,
        ),
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            help="Named data (see `regard data list`) or a .csv, .tsv or .jsonl file (also .gz). "
            "Labelled texts may also be a .txt (label, tab, text), a .parquet, a folder with one "
            "file or folder per label, or neg.txt,pos.txt; texts without labels a .txt or .md, "
            "split at empty lines, or else at each line, a .parquet, a pattern or an address: "
            "'s3://bucket/*.jsonl.gz' (docs/scale.md); pairs also FILE,FILE. Other splits: "
            "test=FILE validation=FILE; columns: text=NAME label=NAME, or numbers from 1.",
            autocompletion=completion.data,
        ),
    ] = "",
    budget: Annotated[
        str, typer.Option(help="Training budget: 10m, '500 steps', '3 epochs' or '2M tokens'.")
    ] = "",
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            autocompletion=completion.runs,
            help="Start from the weights and tokenizer of a completed run, such as one of "
            "birthplace-pretrain, language-modeling, masked-modeling or span-corruption; its "
            "network settings become the defaults.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN|FILE",
            help="Use the model and settings of another run, or of a file like its config.toml; "
            "settings given here override them.",
        ),
    ] = None,
    pretrain_on: Annotated[
        str,
        typer.Option(
            metavar="TEXTS",
            help="First pretrain on unlabelled texts (a .txt, .jsonl, .csv or .tsv file, imdb or "
            "reviews), in RUN-pretrained; the texts that the task is tested on are left out. For "
            "--model bert (then the default), gpt or t5.",
        ),
    ] = "",
    pretrain_budget: Annotated[
        str,
        typer.Option(
            help="Pretraining budget, like --budget.", show_default="until it stops improving"
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Output folder of the run.",
            show_default="runs/TASK-MODEL; if occupied, also named by settings",
        ),
    ] = None,
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
    pairs = [*(settings or []), *([f"data={data}"] if data else []), *as_pairs(budget)]
    model, overrides, asked_for = wanted(
        task, model, pairs, init=init, config=config, texts=pretrain_on, budget=pretrain_budget
    )
    if list_settings:
        show_settings(asked_for, json)
        return
    own_budget = as_pairs(pretrain_budget)
    if dry_run:
        plans = (
            [runs.way_of(task, model, pretrain_on, overrides, own_budget)] if pretrain_on else []
        )
        plans.append((task, overrides))
        show_forecasts([runs.forecast(what, model, own) for what, own in plans], json)
        return
    from regard.core.memory import keep_freed_memory
    from regard.training.ranks import ranks

    keep_freed_memory()
    out.quiet = err.quiet = not ranks().first  # only one of several processes prints
    first, config_of = planned(task, model, overrides, asked_for, pretrain_on, own_budget)
    place = folder or usual_folder(task, model, pairs, config_of, first)
    if first:
        begun = runs.go_on(pretrained_beside(place), first)
        if not pretrained(begun, pretrain_on, end, json):
            return
    run = runs.go_on(place, config_of(place))
    complete = run.complete
    follow(run, f"{model} on {task}", end=end)
    if ranks().first:
        report(run, complete, json)


def planned(
    task: str,
    model: str,
    overrides: list[str],
    config: "Config",
    texts: str,
    budget: list[str],
) -> "tuple[Config | None, Callable[[Path], Config]]":
    """Return the config of a pretraining on `texts`, if there are any, and the run's config.

    The latter is a function of the run's folder, since the pretraining is in a folder next to it.
    """
    from regard.lab import runs

    if not texts:
        return None, lambda folder: config
    way, given = runs.way_of(task, model, texts, overrides, budget)
    return runs.Config.make(way, model, given), lambda folder: runs.Config.make(
        task, model, [*overrides, f"init={pretrained_beside(folder)}"]
    )


def usual_folder(
    task: str,
    model: str,
    pairs: Sequence[str],
    config_of: "Callable[[Path], Config]",
    first: "Config | None" = None,
) -> Path:
    """Return the default folder of a run: ``runs/TASK-MODEL`` or one next to it.

    `pairs`: the given settings. `config_of`: the config of the run in a folder. `first`: the config
    of the pretraining in the folder next to it, which the run's config needs.
    """
    from regard.lab.runs import must_match

    def check(path: Path) -> None:
        before = pretrained_beside(path)
        if first:
            must_match(before, first)
        if not first or (before / MANIFEST).exists():
            must_match(path, config_of(path))

    base = Path("runs") / f"{short(task)}-{short(model)}"
    return noted(default_folder(base, pairs, check), base)


def noted(folder: Path, base: Path) -> Path:
    """Return a default folder; print a note if it differs from the one in the help."""
    if folder != base:
        say(f"{base} is occupied by other settings or files; this is {folder}", quiet=True)
    return folder


def pretrained_beside(folder: Path) -> Path:
    """Return the folder of the pretraining of --pretrain-on."""
    return folder.with_name(f"{folder.name}-pretrained")


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
    """Return the model, the settings as pairs and the config of a training.

    Raises, before torch is loaded: options that exclude each other; unknown names and settings.
    """
    from regard.core.errors import RegardError, look_up
    from regard.lab import runs
    from regard.lab.tasks import TASKS

    if init and texts:
        raise RegardError("--init and --pretrain-on exclude each other; give only one of them")
    if budget and not texts:
        raise RegardError("--pretrain-budget needs --pretrain-on TEXTS")
    trust_named((task, model))
    after = "bert" if texts else runs.model_after(init, task)
    overrides = [*pairs, *([f"init={init}"] if init else [])]
    if config:
        after, overrides = as_there(runs.Config.read(config), task, model, overrides)
    model = model or after or look_up(TASKS, task, "task").model
    return model, overrides, runs.Config.make(task, model, overrides)


def as_there(there: "Config", task: str, model: str, given: list[str]) -> tuple[str, list[str]]:
    """Return the model of another run, and its settings as pairs unless overridden by `given`.

    Raises: a run of another task.
    """
    from regard.core.errors import RegardError
    from regard.core.names import absolute
    from regard.core.settings import in_words, key_of
    from regard.training.settings import BUDGETS

    if there.task != absolute(task):
        raise RegardError(f"--config is for the task {there.task}, not for {task}")
    mine = set(map(key_of, given))
    mine |= set(BUDGETS) if mine & set(BUDGETS) else set()
    sections = there.sections()
    if model and model != there.model:
        del sections["network"]
    theirs = {key: value for part in sections.values() for key, value in part.items()}
    left = [f"{key}={in_words(value)}" for key, value in theirs.items() if key not in mine]
    return there.model, [*left, *given]


def as_pairs(budget: str) -> list[str]:
    """Convert a budget in words to settings.

    >>> as_pairs("2M tokens"), as_pairs("")
    (['tokens=2000000'], [])
    """
    from regard.lab.studies.budget import parse_budget

    return [f"{key}={value}" for key, value in parse_budget(budget).items()] if budget else []


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

    with bar(what) if shown else hidden() as show, stoppable():
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
                "tokens": last.get("tokens"),
                "seconds": last.get("seconds"),
                "peak_mb": last.get("peak_mb"),
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
    text = SAMPLES.get(run.config.task, TEXT)
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
