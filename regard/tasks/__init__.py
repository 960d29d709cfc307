"""Every task by name. A task knows what a batch means; torch is loaded when one is prepared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.settings import Settings, build
from regard.tasks.settings import (
    AnswersSettings,
    BirthplacePretrainingSettings,
    ClassificationSettings,
    MaskedModelingSettings,
    PretrainingSettings,
    SequencesSettings,
    SpanCorruptionSettings,
)

__all__ = ["TASKS", "TaskEntry"]


@dataclass(frozen=True)
class TaskEntry:
    """A task's name, what is asked, its settings, and how it is prepared from them.

    ``kind`` says which models and which runs it takes; ``defaults`` are settings of its own;
    ``training`` are settings of the training that it is learned by unless others are given;
    ``model`` is the one it is trained with if none is named; ``inherits`` are settings that it
    takes over from the run that it begins from (``--init``), beside how texts are cut into tokens.
    """

    name: str
    says: str
    settings: type[Settings]
    prepare: Callable[[Any], Any] = field(repr=False)
    kind: Literal[
        "classification",
        "sequences",
        "language-modeling",
        "masked-modeling",
        "span-corruption",
        "answers",
    ]
    model: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inherits: Sequence[str] = ()
    training: Mapping[str, Any] = field(default_factory=dict)

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """This task's settings: its defaults, then the overrides."""
        return build(self.settings, {**self.defaults, **(overrides or {})})


def _classification(settings: ClassificationSettings) -> Any:
    from regard.tasks.classification import prepare

    return prepare(settings)


def _sequences(settings: SequencesSettings) -> Any:
    from regard.tasks.sequences import prepare

    return prepare(settings)


def _language(settings: PretrainingSettings) -> Any:
    from regard.tasks.language_modeling import prepare

    return prepare(settings)


def _masked(settings: MaskedModelingSettings) -> Any:
    from regard.tasks.masked_modeling import prepare

    return prepare(settings)


def _spans(settings: SpanCorruptionSettings) -> Any:
    from regard.tasks.span_corruption import prepare

    return prepare(settings)


def _birthplace_pretraining(settings: BirthplacePretrainingSettings) -> Any:
    from regard.tasks.birthplace import prepare_pretraining

    return prepare_pretraining(settings)


def _answers(settings: AnswersSettings) -> Any:
    from regard.tasks.birthplace import prepare

    return prepare(settings)


def _writing(name: str, says: str, model: str, **defaults: Any) -> TaskEntry:
    defaults = {"data": name, **defaults}
    return TaskEntry(
        name, says, SequencesSettings, _sequences, "sequences", model, defaults, training=TEXTS
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

_ALL = [
    TaskEntry(
        "classification",
        "which label does a text bear?",
        ClassificationSettings,
        _classification,
        "classification",
        "transformer",
        training=TEXTS,
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
        _language,
        "language-modeling",
        "gpt",
        training=UNTIL_IT_STOPS_IMPROVING,
    ),
    TaskEntry(
        "masked-modeling",
        "which words of a text are hidden: what BERT is pretrained by",
        MaskedModelingSettings,
        _masked,
        "masked-modeling",
        "bert",
        training=UNTIL_IT_STOPS_IMPROVING,
    ),
    TaskEntry(
        "span-corruption",
        "the spans that a text lacks, or how it goes on: what T5 is pretrained by",
        SpanCorruptionSettings,
        _spans,
        "span-corruption",
        "t5",
        training=UNTIL_IT_STOPS_IMPROVING,
    ),
    TaskEntry(
        "birthplace-pretrain",
        "a span that a biography lacks, written behind it: assignment 5's pretraining",
        BirthplacePretrainingSettings,
        _birthplace_pretraining,
        "language-modeling",
        "gpt",
        training=UNTIL_IT_STOPS_IMPROVING,
    ),
    TaskEntry(
        "birthplace",
        "where was NAME born? The answer stood in the texts of pretraining, if it stood anywhere",
        AnswersSettings,
        _answers,
        "answers",
        "gpt",
        inherits=("data", "data_dir"),
        training=TEXTS,
    ),
]

TASKS: dict[str, TaskEntry] = {entry.name: entry for entry in _ALL}
