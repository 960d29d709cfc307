"""A training as `regard train` and `regard.train` describe it: options, settings and folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.atomic_io import MANIFEST
from regard.core.errors import RegardError, look_up
from regard.core.names import short
from regard.core.settings import described
from regard.core.trusted import trust_command, trust_named
from regard.lab.cli import completion
from regard.lab.cli.console import say
from regard.lab.runs.places import default_folder

if TYPE_CHECKING:
    from regard.lab.runs import Config, Forecast

MODELS_IN_WORDS = (  # written out so that --help does not load the table
    "mean, attention-pool, query-from-mean, self-attention, +residual, +positions, "
    "+residual+positions, +cls, transformer, gpt, bert, frozen, t5, rnn, cnn, "
    "tfidf, nb-svm, fasttext, static, sentence"
)
WRITERS_IN_WORDS = (
    "gru, bahdanau, lab-6, luong-dot, luong-general, luong-concat, transformer, t5, "
    "copy, most-frequent, nearest-neighbour"
)


@dataclass(frozen=True)
class TrainRequest:
    """A task, settings as ``key=value`` and the options of ``regard train``."""

    task: str
    settings: tuple[str, ...] = ()
    model: str = described(
        "",
        f"Model. For classification: {MODELS_IN_WORDS}; for tasks that write text: "
        f"{WRITERS_IN_WORDS}.",
        flags=("--model", "-m"),
        show_default="depends on the task",
        autocompletion=completion.models,
    )
    data: str = described(
        "",
        "Named data (see `regard data list`) or a .csv, .tsv or .jsonl file (also .gz). "
        "Labelled texts may also be a .txt (label, tab, text), a .parquet, a folder with one "
        "file or folder per label, or neg.txt,pos.txt; texts without labels a .txt or .md, "
        "split at empty lines, or else at each line, a .parquet, a pattern or an address: "
        "'s3://bucket/*.jsonl.gz' (docs/scale.md); pairs also FILE,FILE. Other splits: "
        "test=FILE validation=FILE; columns: text=NAME label=NAME, or numbers from 1.",
        autocompletion=completion.data,
    )
    budget: str = described("", "Training budget: 10m, '500 steps', '3 epochs' or '2M tokens'.")
    init: Path | None = described(
        None,
        "Start from the weights and tokenizer of a completed run, such as one of "
        "birthplace-pretrain, language-modeling, masked-modeling or span-corruption; its "
        "network settings become the defaults.",
        metavar="RUN",
        autocompletion=completion.runs,
    )
    config: Path | None = described(
        None,
        "Use the model and settings of another run, or of a file like its config.toml; "
        "settings given here override them.",
        metavar="RUN|FILE",
    )
    pretrain_on: str = described(
        "",
        "First pretrain on unlabelled texts (a .txt, .jsonl, .csv or .tsv file, imdb or "
        "reviews), in RUN-pretrained; the texts that the task is tested on are left out. For "
        "--model bert (then the default), gpt or t5.",
        metavar="TEXTS",
    )
    pretrain_budget: str = described(
        "", "Pretraining budget, like --budget.", show_default="until it stops improving"
    )
    out: Path | None = described(
        None,
        "Output folder of the run.",
        show_default="runs/TASK-MODEL; if occupied, also named by settings",
    )

    @property
    def pairs(self) -> list[str]:
        """Return the settings, data and budget as ``key=value``."""
        data = [f"data={self.data}"] if self.data else []
        return [*self.settings, *data, *as_pairs(self.budget)]

    def plan(self) -> "TrainPlan":
        """Choose the model and build the configurations.

        Raises, before torch is loaded: options that exclude each other; unknown names and settings.
        """
        from regard.lab import runs
        from regard.lab.tasks import TASKS

        if self.init and self.pretrain_on:
            raise RegardError("--init and --pretrain-on exclude each other; give only one of them")
        if self.pretrain_budget and not self.pretrain_on:
            raise RegardError("--pretrain-budget needs --pretrain-on TEXTS")
        if named := next((pair for pair in self.settings if pair.startswith("model=")), ""):
            raise RegardError(f"{named} is an option: write --model {named[6:]}")
        trust_named((self.task, self.model))
        trust_command(self.model)
        after = "bert" if self.pretrain_on else runs.model_after(self.init, self.task)
        overrides = [*self.pairs, *([f"init={self.init}"] if self.init else [])]
        if self.config:
            there = runs.Config.read(self.config)
            after, overrides = as_there(there, self.task, self.model, overrides)
        model = self.model or after or look_up(TASKS, self.task, "task").model
        config = runs.Config.make(self.task, model, overrides)
        first: tuple[str, list[str]] | None = None
        if self.pretrain_on:
            budget = as_pairs(self.pretrain_budget)
            first = runs.way_of(self.task, model, self.pretrain_on, overrides, budget)
        return TrainPlan(self, model, tuple(overrides), config, first)


@dataclass(frozen=True)
class TrainPlan:
    """The model and settings of a request, and the task and settings of a pretraining before it."""

    request: TrainRequest
    model: str
    overrides: tuple[str, ...]
    config: "Config"
    first: tuple[str, list[str]] | None

    @property
    def pretraining(self) -> "Config | None":
        """Return the config of the pretraining, if there is one."""
        from regard.lab.runs import Config

        return Config.make(self.first[0], self.model, self.first[1]) if self.first else None

    def config_in(self, folder: Path) -> "Config":
        """Return the config of the run in a folder, which has its pretraining next to it."""
        from regard.lab.runs import Config

        if not self.first:
            return self.config
        init = f"init={pretrained_beside(folder)}"
        return Config.make(self.request.task, self.model, [*self.overrides, init])

    def forecasts(self) -> "list[Forecast]":
        """Run some steps of each training and forecast time and memory."""
        from regard.lab import runs

        trainings = [*([self.first] if self.first else []), (self.request.task, self.overrides)]
        return [runs.forecast(task, self.model, settings) for task, settings in trainings]

    def folder(self) -> Path:
        """Return the folder of the run: ``--out``, ``runs/TASK-MODEL`` or one next to it."""
        from regard.lab.runs import must_match

        first = self.pretraining

        def check(path: Path) -> None:
            before = pretrained_beside(path)
            if first:
                must_match(before, first)
            if not first or (before / MANIFEST).exists():
                must_match(path, self.config_in(path))

        base = Path("runs") / f"{short(self.request.task)}-{short(self.model)}"
        return self.request.out or noted(default_folder(base, self.request.pairs, check), base)


def noted(folder: Path, base: Path) -> Path:
    """Return a default folder; print a note if it differs from the one in the help."""
    if folder != base:
        say(f"{base} is occupied by other settings or files; this is {folder}", quiet=True)
    return folder


def pretrained_beside(folder: Path) -> Path:
    """Return the folder of the pretraining of --pretrain-on."""
    return folder.with_name(f"{folder.name}-pretrained")


def as_there(there: "Config", task: str, model: str, given: list[str]) -> tuple[str, list[str]]:
    """Return the model of another run, and its settings as pairs unless overridden by `given`.

    Raises: a run of another task.
    """
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
