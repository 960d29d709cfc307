"""A run whose answers are texts, written or filled in: what all such runs share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast, overload

from torch import nn

from regard.analysis.cost import count_parameters
from regard.errors import RegardError
from regard.runs.run import Run
from regard.runs.translations import Text
from regard.tasks.searching import Search, Writes


class TextRun(Run):
    """A run whose answers are texts."""

    @overload
    def predict(self, texts: str) -> Text: ...
    @overload
    def predict(self, texts: list[str]) -> list[Text]: ...
    def predict(self, texts: str | list[str]) -> Text | list[Text]:
        """What the run writes for a text, or for each of many; nothing for one without tokens.

        A language model begins a text for one without tokens.
        """
        if isinstance(texts, str):
            return self.predict([texts])[0]
        return [found[0] for found in self.best(texts, 1)]

    @property
    def search(self) -> Search | None:
        """How it looks for texts if nothing else is said; None where it writes none."""
        return self.task.search if isinstance(self.task, Writes) else None

    @property
    def draws(self) -> bool:
        """Whether it draws what it writes, by a seed, if nothing else is said."""
        return self.search is not None and self.search.temperature > 0

    def best(self, texts: Sequence[str], search: int | Search) -> list[list[Text]]:
        """The best texts for each, best first: so many by the run's own search, or by another.

        Errors: a run that writes no texts.
        """
        self.must_be_complete()
        if self.search is None:
            raise RegardError(f"the run in {self.folder.path} writes no texts to choose from")
        plan = replace(self.search, best=search) if isinstance(search, int) else search
        with self.computing():
            return written(cast(Writes, self.task), self.network, texts, plan)

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are beyond those that the run reads."""
        return [max(0, len(self.task.whole(text)) - self.task.room) for text in texts]

    @property
    def keeps(self) -> str:
        """Which tokens of a longer text it reads: head or tail."""
        return str(self.task.keeps)

    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Parameters; how many operations a text takes depends on what is written."""
        return count_parameters(self.network), None


def written(
    task: Writes, model: nn.Module, texts: Sequence[str], search: Search | None = None
) -> list[list[Text]]:
    """What a model writes for each text, best first: by the task's own search, or by another."""
    return [
        [Text(task.decode(x.tokens), x.log_probability, x.ended) for x in several]
        for several in task.write(model, texts, search)
    ]
