"""The table of tasks and their models. Torch is imported when a task is first prepared."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from regard.core.settings import Settings, build
from regard.core.tables import Table, load
from regard.lab.tasks.elsewhere import Models
from regard.lab.tasks.models import DECODERS, ENCODERS, MODELS, TEXT_BASELINES, WRITERS, ModelEntry
from regard.lab.tasks.multilabel import LABELERS, MultilabelSettings
from regard.lab.tasks.regression import REGRESSORS, RegressionSettings
from regard.lab.tasks.regression import UNITS as UNITS_OF_NUMBERS
from regard.lab.tasks.settings import (
    BY_TOKEN,
    OWN_CHOICE,
    AnswersSettings,
    BirthplacePretrainingSettings,
    ClassificationSettings,
    MaskedModelingSettings,
    PretrainingSettings,
    SequencesSettings,
    SpanCorruptionSettings,
)
from regard.lab.tasks.symbols import PUZZLES
from regard.lab.tasks.tagging import TAGGERS, TaggingSettings
from regard.lab.tasks.units import UNITS, Unit

__all__ = ["TASKS", "TaskEntry", "unit_of"]


@dataclass(frozen=True)
class TaskEntry:
    """A row of the task table: name, description, settings and models.

    ``task``: the class as "module:Class", imported when its data are first prepared. ``models``:
    the models and baselines that can learn the task; ``model`` is the default. ``defaults``
    replace defaults of ``settings``, ``training`` those of the training settings. ``inherits``:
    settings copied from the run given by ``--init``, in addition to the tokenization settings.
    """

    name: str
    description: str
    settings: type[Settings]
    task: str
    models: Mapping[str, ModelEntry] = field(repr=False)
    model: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inherits: Sequence[str] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    #: The word for several examples in messages.
    examples: str = "texts"
    #: Settings of the data that may differ between compared runs.
    own_choice: Set[str] = OWN_CHOICE
    #: Units of the task's own metrics that are not fractions.
    units: Mapping[str, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.models, Models):
            object.__setattr__(self, "models", Models(self.models))

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """Build the task's settings from its defaults and the overrides."""
        return build(self.settings, {**self.defaults, **(overrides or {})})

    def prepare(self, settings: Settings, *own: Any) -> Any:
        """Build the task without reading its data.

        ``own``: the tokenizer and the `facts` of a run. Without them, equal settings return the
        same task object, so that runs in one process share its data and tokens.
        """
        return load(self.task, "task")(settings, *own) if own else shared(self.task, settings)


def unit_of(metric: str) -> Unit:
    """Return the unit of a metric, by the metric's name in tables.

    >>> f"91.4{unit_of('accuracy').sign}, 33.1{unit_of('BLEU').sign}"
    '91.4 %, 33.1'
    """
    for entry in TASKS.values():
        if metric in entry.units:
            return entry.units[metric]
    return UNITS.get(metric, Unit())


@lru_cache(maxsize=8)
def shared(task: str, settings: Settings) -> Any:
    """Return the task for these settings, shared by all runs of one process."""
    return load(task, "task")(settings)


def _writing(name: str, description: str, model: str, **defaults: Any) -> TaskEntry:
    defaults = {"data": name, **defaults}
    return TaskEntry(
        name,
        description,
        SequencesSettings,
        "regard.lab.tasks.writing.task:Sequences",
        {**WRITERS, **TEXT_BASELINES},
        model,
        defaults,
        training=TEXTS,
        examples="pairs",
    )


#: Default training of networks: a constant learning rate until validation stops improving, with
#: the running mean of the weights validated and saved. The choice: docs/results/unseen.md.
UNTIL_IT_STOPS_IMPROVING = {
    "patience": 5,
    "schedule": "constant",
    "warmup": 100,
    "average": 0.99,
}
#: The same with batch_size in texts: by tokens, a batch would have many short texts, and an epoch
#: few steps.
TEXTS = {"batch_size": 64, **UNTIL_IT_STOPS_IMPROVING}

#: A puzzle is often solved after a long plateau.
SYMBOLS = {**TEXTS, "patience": 15}

_pretraining = partial(
    TaskEntry, training=UNTIL_IT_STOPS_IMPROVING, examples="pieces", own_choice=BY_TOKEN
)

SPAN_WRITERS = {name: WRITERS[name] for name in ("t5", "transformer")}

_ALL = [
    TaskEntry(
        "classification",
        "predict the label of a text",
        ClassificationSettings,
        "regard.lab.tasks.classification.task:Classification",
        MODELS,
        "transformer",
        training=TEXTS,
    ),
    TaskEntry(
        "regression",
        "predict a number from a text",
        RegressionSettings,
        "regard.lab.tasks.regression.task:Regression",
        REGRESSORS,
        "transformer",
        training=TEXTS,
        units=UNITS_OF_NUMBERS,
    ),
    TaskEntry(
        "multilabel",
        "predict several labels of a text, or none",
        MultilabelSettings,
        "regard.lab.tasks.multilabel.task:Multilabel",
        LABELERS,
        "transformer",
        training=TEXTS,
    ),
    TaskEntry(
        "tagging",
        "predict a tag for each word of a sentence",
        TaggingSettings,
        "regard.lab.tasks.tagging.task:Tagging",
        TAGGERS,
        "transformer",
        training=TEXTS,
        examples="sentences",
    ),
    *(
        TaskEntry(
            name,
            f"solve a puzzle: {description}",
            settings,
            "regard.lab.tasks.symbols.task:SymbolTask",
            models,
            "gpt",
            {"data": name},
            training=SYMBOLS,
            examples="examples",
        )
        for name, (description, settings, models) in PUZZLES.items()
    ),
    _writing("reverse", "reverse a string of letters", "lab-6"),
    _writing("dates", "convert a written date to ISO 8601", "bahdanau"),
    _writing(
        "translation",
        "translate a sentence",
        "transformer",
        data="multi30k",
        tokenizer="bpe",
        metric="bleu",
        beam=5,
        smoothing=0.1,
    ),
    _pretraining(
        "language-modeling",
        "predict the next token: the pretraining of GPT",
        PretrainingSettings,
        "regard.lab.tasks.pretraining.language_modeling:LanguageModeling",
        DECODERS,
        "gpt",
    ),
    _pretraining(
        "masked-modeling",
        "predict masked tokens: the pretraining of BERT",
        MaskedModelingSettings,
        "regard.lab.tasks.pretraining.masked_modeling:MaskedModeling",
        ENCODERS,
        "bert",
    ),
    _pretraining(
        "span-corruption",
        "predict missing spans, or the continuation of a prefix: the pretraining of T5",
        SpanCorruptionSettings,
        "regard.lab.tasks.pretraining.span_corruption:SpanCorruption",
        SPAN_WRITERS,
        "t5",
    ),
    _pretraining(
        "birthplace-pretrain",
        "predict a missing span of a biography: the pretraining of CS224N assignment 5",
        BirthplacePretrainingSettings,
        "regard.lab.tasks.birthplace.task:BirthplacePretraining",
        DECODERS,
        "gpt",
    ),
    TaskEntry(
        "birthplace",
        'answer "where was NAME born?" from the texts of pretraining',
        AnswersSettings,
        "regard.lab.tasks.birthplace.task:Answers",
        DECODERS,
        "gpt",
        inherits=("data", "data_dir"),
        training=TEXTS,
        examples="questions",
    ),
]

TASKS: Table[TaskEntry] = Table(
    {entry.name: entry for entry in _ALL}, "regard.tasks", TaskEntry, "task"
)
