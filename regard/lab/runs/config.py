"""The configuration of a run: a task, a model and their settings, as a file."""

import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from regard.core.errors import RegardError, look_up, no_such
from regard.core.names import absolute, reads_trees
from regard.core.settings import Settings, build, split
from regard.core.trusted import must_be_trusted, trust_named
from regard.lab.data.conllu import is_conllu
from regard.lab.data.vectors import is_table
from regard.lab.runs.track import TRACKERS
from regard.lab.tasks import TASKS, TaskEntry
from regard.lab.tasks.models import ModelEntry
from regard.nn.models.settings import EncoderSettings
from regard.training.settings import BUDGETS, TrainingSettings

if TYPE_CHECKING:
    from regard.lab.tasks.task import Task

CONFIG = "config.toml"
LOCK = ".lock"  # held by the process that writes to the folder
SECTIONS = ("data", "network", "training")
CUTTING = ("tokenizer", "vocabulary", "minimum", "length")  # settings of tokenization
#: Settings that do not affect results, except by rounding and dropout.
FREE = {
    "data_dir", "save_every", "save_seconds", "strategy", "accumulate", "activation_checkpointing",
    "compile", "track",
}  # fmt: skip
PRETRAINED = "pretrained"  # tokenizer= of a run with weights=, or with vectors= of a table
#: The default settings for fine-tuning a pretrained network, with a rate by `tuning_rate`. Devlin
#: et al. 2019, A.3.
FINE_TUNING: Mapping[str, Any] = {
    "epochs": 4,
    "least_steps": 200,  # with few labels, 4 epochs are too few: Zhang et al. 2021
    "schedule": "linear",
    "warmup": 0.1,
    "batch_size": 16,
}


@dataclass(frozen=True)
class Config:
    """A task by name, a model by name, and all their settings; ``config.toml`` of a run.

    >>> config = Config.make("classification", "transformer", ["steps=100", "score=additive"])
    >>> config.training.steps, config.network.score
    (100, 'additive')
    """

    task: str
    model: str
    data: Settings
    network: Settings
    training: TrainingSettings

    @classmethod
    def make(cls, task: str, model: str, overrides: Sequence[str] = ()) -> "Config":
        """Return a run's config from ``key=value`` pairs.

        A key that task and model share (`length`) goes to both. With ``init=RUN``, the network and
        tokenizer settings default to those of that run. Raises: an unknown task, model or key, with
        the nearest spellings; a tokenizer other than that of ``init``; ``init`` for a baseline;
        tree positions for data without trees; settings that ``weights=`` determines.
        """
        task, model = absolute(task), absolute(model)
        trust_named((task, model))
        task_entry = look_up(TASKS, task, "task")
        entry = look_up(task_entry.models, model, "model")
        data, network, training = split(
            overrides, task_entry.settings, entry.settings, TrainingSettings
        )
        data, network, training = (
            {key: absolute(value) for key, value in part.items()}
            for part in (data, network, training)
        )
        trust_named([*network.values(), data.get("data"), training.get("track")])
        if init := training.get("init"):
            if entry.baseline:
                raise RegardError(
                    f"{model} is a baseline and cannot start from a run; leave init out"
                )
            before = cls.read(Path(init))
            _must_be_its_tokens(task_entry.configure(data), before, data.keys(), init)
            data = {
                **shared(before.data, task_entry.settings, (*CUTTING, *task_entry.inherits)),
                **data,
            }
            if network.get("weights"):
                raise RegardError(
                    f"init={init} and weights={network['weights']} exclude each other; give only "
                    "one"
                )
            network = {**shared(before.network, entry.settings), **network}
        _must_have_trees(str(network.get("position", "")), task_entry, data)
        configured = entry.configure(network)
        if name := weights_of(configured):
            data = _with_own_tokens(task_entry, data, f"weights={name}")
            configured = configured if init else _as_stored(name, network)
        elif name := table_of(configured):
            data = _with_own_tokens(task_entry, data, f"vectors={name}")
        elif entry.pretrained and not getattr(configured, "weights", ""):
            raise RegardError(
                f"{model} needs a pretrained encoder: give weights=FOLDER, or a name on the hub"
            )
        usual = training_defaults(task_entry, configured, training)
        settings = build(TrainingSettings, {**usual, **training})
        if settings.track not in TRACKERS:
            raise RegardError(no_such(settings.track, TRACKERS, "tracker"))
        return cls(task, model, task_entry.configure(data), configured, settings)

    @classmethod
    def read(cls, folder: Path) -> "Config":
        """Read the config of a run's folder, or a file like its ``config.toml``.

        Raises: no folder, no run in it, an invalid file, an untrusted Python file.
        """
        path = folder if folder.is_file() else folder / CONFIG
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            task, model = str(values["task"]), str(values["model"])
            sections: list[Mapping[str, Any]] = [values[name] for name in SECTIONS]
        except (FileNotFoundError, NotADirectoryError):
            if (folder / "config.json").is_file():
                raise RegardError(
                    f"{folder} contains no run but a model in Hugging Face format; open it with "
                    "`regard serve` or regard.interop.huggingface.load"
                ) from None
            what = "contains no run" if folder.exists() else "does not exist"
            raise RegardError(
                f"{folder} {what}; create one with "
                f"`regard train TASK --out {shlex.quote(str(folder))}`"
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise RegardError(f"{path} is not the config of a run: {error}") from None
        must_be_trusted({"task": task, "model": model}, path)
        task_entry = look_up(TASKS, task, "task")
        entry = look_up(task_entry.models, model, "model")
        kinds: tuple[type[Settings], ...] = (task_entry.settings, entry.settings)
        data, network = (build(kind, values) for kind, values in zip(kinds, sections, strict=False))
        config = cls(task, model, data, network, build(TrainingSettings, sections[2]))
        must_be_trusted(config.named, path)
        return config

    @property
    def entry(self) -> ModelEntry:
        """Return the model's entry in the table of models."""
        return TASKS[self.task].models[self.model]

    @property
    def named(self) -> dict[str, Any]:
        """Return the settings that may name a Python file of the user's own."""
        return {**self.parts, "data": getattr(self.data, "data", "")}

    @property
    def parts(self) -> dict[str, Any]:
        """Return the settings that the network is built from: task, model, its own settings."""
        return {"task": self.task, "model": self.model, **self.network.model_dump()}

    @property
    def attends(self) -> bool:
        """Return whether the model has attention weights."""
        return self.entry.attends(self.network.model_dump())

    @property
    def reads_trees(self) -> bool:
        """Return whether it needs parsed sentences, since its positions are tree positions."""
        return reads_trees(str(getattr(self.network, "position", "")))

    @property
    def unread_task(self) -> "Task[Any]":
        """Return the task without reading data or tokenizer."""
        task: Task[Any] = TASKS[self.task].prepare(self.reads)
        return task

    @property
    def reads(self) -> Settings:
        """Return the task's settings with `length` reduced by the model's special tokens.

        Raises: the length leaves no room for a text.
        """
        data, network = self.data.model_dump(), self.network.model_dump()
        if "length" not in data or "length" not in network:
            return self.data
        room = min(data["length"], network["length"]) - self.entry.symbols
        if room < 1:
            raise RegardError(
                f"length={data['length']} is too short for the special tokens of {self.model}; "
                f"take length={self.entry.symbols + 1} or more"
            )
        return self.data.model_copy(update={"length": room})

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return all settings by section: data, network, training."""
        return {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}

    def toml(self) -> bytes:
        """Return the content of ``config.toml``."""
        return tomli_w.dumps({"task": self.task, "model": self.model, **self.sections()}).encode()

    def differences(self, there: "Config") -> list[str]:
        """Return each setting that differs in another config: "steps is 100 there and 200 here".

        Settings that do not affect results are not compared.
        """
        names = {"task": (self.task, there.task), "model": (self.model, there.model)}
        differences = [
            f"{name} is {other!r} there and {own!r} here"
            for name, (own, other) in names.items()
            if own != other
        ]
        if differences:
            return differences
        sections = there.sections()
        return [
            f"{key} is {sections[section].get(key)!r} there and {value!r} here"
            for section, values in self.sections().items()
            for key, value in values.items()
            if key not in FREE and sections[section].get(key) != value
        ]


def weights_of(network: Settings) -> str:
    """Return ``weights=`` of a network that starts from pretrained weights, else ""."""
    return network.weights if isinstance(network, EncoderSettings) else ""


def table_of(network: Settings) -> str:
    """Return ``vectors=`` of a network if they are a table with its own tokenizer, else ""."""
    name = str(getattr(network, "vectors", ""))
    return name if name and is_table(name) else ""


def model_after(init: Path | None, task: str) -> str:
    """Return the model of the run to start from, if the task has this model."""
    if init is None:
        return ""
    name = Config.read(init).model
    return name if name in look_up(TASKS, task, "task").models else ""


def _must_have_trees(position: str, task: TaskEntry, data: Mapping[str, Any]) -> None:
    """Raise an error for tree positions if the data have no trees."""
    if not reads_trees(position):
        return
    settings = task.configure(data)
    configured = settings.model_dump()
    held = configured.get("validation")  # a share, or a file
    files = [str(data[key]) for key in ("data", "test") if data.get(key)]
    files += [held] if isinstance(held, str) else []
    writes = task.prepare(settings).answers_in_texts
    if writes or not (files and all(map(is_conllu, files))):
        raise RegardError(
            f"position={position} reads the tree of each text, and "
            f"{' and '.join(files) or 'the data'} of {task.name} have none; give parsed sentences "
            "with labels (classification, --data FILE.conllu label=KEY), or in Python use "
            "regard.attention.parsed(…)"
        )
    if (kind := configured["tokenizer"]) != "words":
        raise RegardError(
            f"tokenizer={kind} splits words, but a CoNLL-U tree has one node per word; use "
            f"tokenizer=words with position={position}"
        )


def tuning_rate(width: int, layers: int) -> float:
    """Return the learning rate for fine-tuning an encoder: 3e-5 · (768 · 12) / (width · layers).

    Small encoders need larger rates, which Adam's step, equal for every weight, makes inversely
    proportional to the width (Yang et al. 2021, "Tensor Programs V"). Bounded by 2e-5 and 2e-4.

    >>> tuning_rate(768, 12), tuning_rate(384, 6), tuning_rate(1024, 24), tuning_rate(128, 2)
    (3e-05, 0.00012, 2e-05, 0.0002)
    """
    return float(f"{min(max(3e-5 * 768 * 12 / (width * max(layers, 1)), 2e-5), 2e-4):.2g}")


def training_defaults(
    task: TaskEntry, network: Settings, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the default training settings of a network.

    A network with pretrained weights gets the settings for fine-tuning, others the task's. If
    ``batch_tokens`` is given, the task's batch size is omitted. If a decaying ``schedule`` is
    given, patience, warmup and the mean of the weights are omitted, since such a training uses its
    whole budget.

    >>> from regard.nn.models.settings import EncoderSettings
    >>> task = TASKS["classification"]
    >>> training_defaults(task, EncoderSettings(), {}) == task.training
    True
    >>> training_defaults(task, EncoderSettings(), {"schedule": "linear", "epochs": 3})
    {'batch_size': 64}
    >>> fine = training_defaults(task, EncoderSettings(weights="bert-base-uncased"), {"steps": 9})
    >>> sorted(fine)
    ['batch_size', 'learning_rate', 'schedule', 'warmup']
    """
    given = {key: value for key, value in given.items() if str(value) not in ("", "0", "0.0")}
    left_out = {"batch_size"} if "batch_tokens" in given else set()
    if isinstance(network, EncoderSettings) and network.weights:
        rate = tuning_rate(network.width, network.layers)
        usual: Mapping[str, Any] = {**FINE_TUNING, "learning_rate": rate}
        left_out |= {"epochs", "least_steps"} if {*BUDGETS} & given.keys() else set()
    else:
        usual = task.training
        if given.get("schedule", "constant") != "constant":
            left_out |= {"patience", "schedule", "warmup", "average"}
    return {key: value for key, value in usual.items() if key not in left_out}


def _as_stored(name: str, given: Mapping[str, Any]) -> Settings:
    """Return a network's settings with the sizes of its pretrained weights."""
    from regard.lab.runs.encoder import Encoder

    encoder = Encoder(name)
    settings = encoder.settings(dict(given))
    _ = encoder.tokenizer  # report missing files before any training
    return settings


def _with_own_tokens(task: TaskEntry, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the settings with the tokenizer of pretrained weights or vectors.

    Raises: another one is given.
    """
    settings = task.configure(data).model_dump()
    for key in sorted({*CUTTING} & {*data} - {"length"}):
        if settings["tokenizer"] != PRETRAINED:
            raise RegardError(f"{name} has its own tokenizer; leave {key}={settings[key]} out")
    return {**data, "tokenizer": PRETRAINED}


def _must_be_its_tokens(data: Settings, before: Config, given: Iterable[str], init: str) -> None:
    """Raise an error for tokenizer settings that differ from those of the run to start from."""
    own, earlier = data.model_dump(), before.data.model_dump()
    for key in sorted({*CUTTING} & {*given} - {"length"}):
        if key in earlier and own[key] != earlier[key]:
            raise RegardError(
                f"init={init} has its own tokenizer with {key}={earlier[key]}; leave {key}= out"
            )


def shared(
    before: Settings, kind: type[Settings], keys: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the values of another run's settings that exist in settings of this kind."""
    return {
        key: value
        for key, value in before.model_dump().items()
        if key in kind.model_fields and (keys is None or key in keys)
    }
