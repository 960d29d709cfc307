"""Every task by name. A task knows what a batch means; torch is loaded when one is prepared."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.settings import Settings
from regard.tasks.settings import ClassificationSettings

if TYPE_CHECKING:
    from regard.tasks.classification import Classification

__all__ = ["TASKS", "TaskEntry"]


@dataclass(frozen=True)
class TaskEntry:
    """A task's name, what is asked, its settings, and how it is prepared from them."""

    name: str
    says: str
    settings: type[Settings]
    prepare: Callable[[Any], "Classification"] = field(repr=False)


def _classification(settings: ClassificationSettings) -> "Classification":
    from regard.tasks.classification import prepare

    return prepare(settings)


TASKS: dict[str, TaskEntry] = {
    "sentiment": TaskEntry(
        "sentiment", "which label does a text bear?", ClassificationSettings, _classification
    )
}
