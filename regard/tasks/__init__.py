"""Every task by name. A task knows what a batch means; torch is loaded when one is prepared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.settings import Settings, build
from regard.tasks.settings import ClassificationSettings, SequencesSettings

__all__ = ["TASKS", "TaskEntry"]


@dataclass(frozen=True)
class TaskEntry:
    """A task's name, what is asked, its settings, and how it is prepared from them.

    ``kind`` says which models and which runs it takes; ``defaults`` are settings of its own;
    ``model`` is the one it is trained with if none is named.
    """

    name: str
    says: str
    settings: type[Settings]
    prepare: Callable[[Any], Any] = field(repr=False)
    kind: Literal["classification", "sequences"]
    model: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """This task's settings: its defaults, then the overrides."""
        return build(self.settings, {**self.defaults, **(overrides or {})})


def _classification(settings: ClassificationSettings) -> Any:
    from regard.tasks.classification import prepare

    return prepare(settings)


def _sequences(settings: SequencesSettings) -> Any:
    from regard.tasks.sequences import prepare

    return prepare(settings)


def _writing(name: str, says: str, model: str, **defaults: Any) -> TaskEntry:
    defaults = {"data": name, **defaults}
    return TaskEntry(name, says, SequencesSettings, _sequences, "sequences", model, defaults)


_ALL = [
    TaskEntry(
        "sentiment",
        "which label does a text bear?",
        ClassificationSettings,
        _classification,
        "classification",
        "transformer",
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
]

TASKS: dict[str, TaskEntry] = {entry.name: entry for entry in _ALL}
