"""Every task by name, and the models that learn it; torch is loaded when one is prepared."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from regard.models import DECODERS, ENCODERS, MODELS, TEXT_BASELINES, WRITERS, ModelEntry
from regard.plugins import is_part, load_object
from regard.settings import Settings, build
from regard.tables import Table
from regard.tasks.regression import REGRESSORS, RegressionSettings
from regard.tasks.regression import UNITS as UNITS_OF_NUMBERS
from regard.tasks.settings import (
    TEMPERATURE,
    AnswersSettings,
    BirthplacePretrainingSettings,
    ClassificationSettings,
    MaskedModelingSettings,
    PretrainingSettings,
    SequencesSettings,
    SpanCorruptionSettings,
)
from regard.tasks.tagging import TAGGERS, TaggingSettings
from regard.tasks.units import UNITS, Unit
from regard.trusted import must_be_trusted

__all__ = ["TASKS", "TaskEntry", "unit_of"]


@dataclass(frozen=True)
class TaskEntry:
    """A row of the table: a task's name and question, its settings, and who learns it.

    ``task``: the class, as "module:Class", loaded when its data are first prepared. ``models``: who
    can learn it, baselines among them; ``model`` does unless another is named. ``defaults`` are
    settings of its own, ``training`` those of the training that it is learned by unless others are
    given. ``inherits``: settings that it takes over from the run that it begins from (``--init``),
    beside how texts are cut into tokens.
    """

    name: str
    says: str
    settings: type[Settings]
    task: str
    models: Mapping[str, ModelEntry] = field(repr=False)
    model: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inherits: Sequence[str] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    #: What an example is called, in the plural.
    examples: str = "texts"
    #: Texts with labels: parsed sentences with trees can stand in their place, and their model can
    #: be pretrained on texts without labels first.
    labelled: bool = False
    #: Judged token by token, so that two models are only alike if they cut texts alike.
    by_token: bool = False
    #: Whether a model writes "on" behind a text, or "another" text; "" if it writes none.
    writes: Literal["", "on", "another"] = ""
    #: By which what is written is drawn if nothing else is said; 0: it is searched for.
    temperature: float = 0.0
    #: Whether an answer is a tag for each word.
    tags_words: bool = False
    #: How a text asks for what is missing in it.
    hidden: str = ""
    #: How its own metrics are written: those that are no shares.
    units: Mapping[str, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.models, Table):
            table = Table(self.models, "regard.models", ModelEntry, "model")
            object.__setattr__(self, "models", table)

    @property
    def answers_in_texts(self) -> bool:
        """Whether an answer is a text: one that is written, or one in which words were missing."""
        return bool(self.writes or self.hidden)

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """This task's settings: its defaults, then the overrides."""
        return build(self.settings, {**self.defaults, **(overrides or {})})

    def prepare(self, settings: Settings, *own: Any) -> Any:
        """The task of these settings, its data unread.

        ``own``: the tokenizer of a run, and the facts that it remembers. Without them runs in one
        process share the task, and with it its data and tokens.
        """
        return load_class(self.task)(settings, *own) if own else shared(self.task, settings)


def load_class(name: str) -> Any:
    """Return the class that "module:Class" or ``FILE.py:Class`` names."""
    if is_part(name):
        must_be_trusted({"task": name}, Path("the task"))
        return load_object(name)
    module, _, found = name.partition(":")
    return getattr(importlib.import_module(module), found)


def unit_of(metric: str) -> Unit:
    """The unit of a metric, by its name in tables.

    >>> f"91.4{unit_of('accuracy').sign}, 33.1{unit_of('BLEU').sign}"
    '91.4 %, 33.1'
    """
    for entry in TASKS.values():
        if metric in entry.units:
            return entry.units[metric]
    return UNITS.get(metric, Unit())


@lru_cache(maxsize=8)
def shared(task: str, settings: Settings) -> Any:
    """A task that runs in one process share."""
    return load_class(task)(settings)


def _writing(name: str, says: str, model: str, **defaults: Any) -> TaskEntry:
    defaults = {"data": name, **defaults}
    return TaskEntry(
        name,
        says,
        SequencesSettings,
        "regard.tasks.writing.task:Sequences",
        {**WRITERS, **TEXT_BASELINES},
        model,
        defaults,
        training=TEXTS,
        examples="pairs",
        writes="another",
    )


#: How networks learn: at a constant rate until validation stops improving, judged and kept by a
#: running mean of the weights. How it was chosen: docs/results/unseen.md.
UNTIL_IT_STOPS_IMPROVING = {
    "patience": 5,
    "schedule": "constant",
    "warmup": 100,
    "average": 0.99,
}
#: The same with a batch counted in texts: short ones would make few steps of many tokens.
TEXTS = {"batch_size": 64, **UNTIL_IT_STOPS_IMPROVING}

SPAN_WRITERS = {name: WRITERS[name] for name in ("t5", "transformer")}

_ALL = [
    TaskEntry(
        "classification",
        "which label does a text bear?",
        ClassificationSettings,
        "regard.tasks.classification.task:Classification",
        MODELS,
        "transformer",
        training=TEXTS,
        labelled=True,
    ),
    TaskEntry(
        "regression",
        "which number belongs to a text?",
        RegressionSettings,
        "regard.tasks.regression.task:Regression",
        REGRESSORS,
        "transformer",
        training=TEXTS,
        units=UNITS_OF_NUMBERS,
    ),
    TaskEntry(
        "tagging",
        "which tag does each word of a sentence bear?",
        TaggingSettings,
        "regard.tasks.tagging.task:Tagging",
        TAGGERS,
        "transformer",
        training=TEXTS,
        examples="sentences",
        tags_words=True,
    ),
    _writing("reverse", "a string of letters, written from its end to its beginning", "lab-6"),
    _writing("dates", "a date as people write it, in ISO 8601", "bahdanau"),
    _writing(
        "translation",
        "a sentence in another language",
        "transformer",
        data="multi30k",
        tokenizer="bpe",
        metric="bleu",
        beam=5,
        smoothing=0.1,
    ),
    TaskEntry(
        "language-modeling",
        "what comes next in a text: what GPT is pretrained by",
        PretrainingSettings,
        "regard.tasks.pretraining.language_modeling:LanguageModeling",
        DECODERS,
        "gpt",
        training=UNTIL_IT_STOPS_IMPROVING,
        examples="pieces",
        by_token=True,
        writes="on",
        temperature=TEMPERATURE,
    ),
    TaskEntry(
        "masked-modeling",
        "which words of a text are hidden: what BERT is pretrained by",
        MaskedModelingSettings,
        "regard.tasks.pretraining.masked_modeling:MaskedModeling",
        ENCODERS,
        "bert",
        training=UNTIL_IT_STOPS_IMPROVING,
        examples="pieces",
        by_token=True,
        hidden="[MASK]",
    ),
    TaskEntry(
        "span-corruption",
        "the spans that a text lacks, or how it goes on: what T5 is pretrained by",
        SpanCorruptionSettings,
        "regard.tasks.pretraining.span_corruption:SpanCorruption",
        SPAN_WRITERS,
        "t5",
        training=UNTIL_IT_STOPS_IMPROVING,
        examples="pieces",
        by_token=True,
        writes="another",
        hidden="<extra_id_0>",
    ),
    TaskEntry(
        "birthplace-pretrain",
        "a span that a biography lacks, written behind it: assignment 5's pretraining",
        BirthplacePretrainingSettings,
        "regard.tasks.birthplace.task:BirthplacePretraining",
        DECODERS,
        "gpt",
        training=UNTIL_IT_STOPS_IMPROVING,
        examples="pieces",
        by_token=True,
        writes="on",
    ),
    TaskEntry(
        "birthplace",
        "where was NAME born? The answer stood in the texts of pretraining, if it stood anywhere",
        AnswersSettings,
        "regard.tasks.birthplace.task:Answers",
        DECODERS,
        "gpt",
        inherits=("data", "data_dir"),
        training=TEXTS,
        examples="questions",
        writes="on",
    ),
]

TASKS: Table[TaskEntry] = Table(
    {entry.name: entry for entry in _ALL}, "regard.tasks", TaskEntry, "task"
)
