"""What the page and the API ask of a model: `Subject`. A run is one; others can be made to be."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from regard.analysis.layer_attention import LayerAttention
from regard.decoding import Writer
from regard.errors import RegardError
from regard.runs import Run
from regard.tasks import TASKS
from regard.tasks.writing.searching import Writes
from regard.tasks.writing.streaming import (
    Drawing,
    Piece,
    Reread,
    WriteRequest,
    reread,
    write,
)


class Subject(Protocol):
    """A model that can be asked. Whatever has these methods can be served and looked at."""

    name: str
    kind: str  # "classification" or "sequences"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off."""

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """An answer to each text, as plain values; of a writer the `best` texts."""

    def attention(self, text: str) -> list[LayerAttention]:
        """What each attention layer looks at; nothing of a model without one."""

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """A text token by token. Errors: the model does not write."""

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """What was looked at while `write` wrote these tokens. Errors: it wrote none."""

    @property
    def residual(self) -> float:
        """The share that passes beside a layer's attention, for `rollout`."""

    @property
    def temperature(self) -> float:
        """By which tokens are drawn if nothing else is asked; 0: the likeliest."""


class RunSubject:
    """A complete run of regard's, asked through its own methods."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        writes = TASKS[run.config.task].answers_in_texts
        self.kind = "sequences" if writes else "classification"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off; of a baseline its words."""
        if self.run.config.entry.baseline:
            return len(text.split())
        return len(self.run.task.whole(text))

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """An answer to each text, as plain values; of a writer with ``best`` further ones.

        ``left_out``: how many tokens of a text were not read, where any were not.
        """
        answers = self._answers(texts, best)
        for answer, left in zip(answers, self.run.left_out(texts), strict=True):
            if left:
                answer["left_out"] = left
        return answers

    def _answers(self, texts: list[str], best: int) -> list[dict[str, Any]]:
        task = self.run.task
        # What is drawn is drawn for each text by itself, so that who else asks changes no answer.
        draws = isinstance(task, Writes) and task.search.temperature > 0
        parts = [[text] for text in texts] if draws else [texts]
        if best == 1:
            return [answer.json() for part in parts for answer in self.run.predict(part)]
        if not isinstance(task, Writes):
            raise RegardError(f"{self.name} gives one answer to a text; ask without best")
        found = [answers for part in parts for answers in self.run.best(part, best)]
        return [{**answers[0].json(), "best": [x.json() for x in answers]} for answers in found]

    def attention(self, text: str) -> list[LayerAttention]:
        """What each attention layer looks at; of a baseline nothing.

        Of a run that writes another text: while it writes its answer, and what source and answer
        look at in themselves.
        """
        if self.run.config.entry.baseline or not self.run.tokens(text):
            return []  # a language model has a token to begin behind
        if getattr(self.run.task, "behind", False):
            return self.run.attention(text)
        return self.run.at_work(text)[0]

    @property
    def residual(self) -> float:
        """0 for blocks without a residual connection, else a half."""
        return 0.0 if getattr(self.run.config.network, "block", "") == "plain" else 0.5

    @property
    def temperature(self) -> float:
        """That of the run's own search."""
        return TASKS[self.run.config.task].temperature

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """What the run writes for a text, token by token where its model does so.

        Each step runs for itself, so that another request may be answered between two of them.

        Errors: a run that labels texts; settings that `decoding.sample` does not take.
        """
        asked = self._asked(text, drawing.most)
        if not 0 < drawing.top_p <= 1 or drawing.top_k < 0 or drawing.temperature < 0:
            raise RegardError("temperature ≥ 0, top_k ≥ 0 and 0 < top_p ≤ 1 are what is drawn by")
        if asked is None:  # it fills in what is missing, all at once
            said = self.run.predict([text])[0]
            yield Piece(said.text, math.exp(min(said.log_probability, 0.0)), said.text)
        elif len(asked.source):
            model = cast(Writer, self.run.network)
            yield from write(model, asked, drawing, self.run.computing)

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """What was looked at while `write` wrote these tokens.

        Errors: a run that does not write token by token; numbers that it does not write.
        """
        asked = self._asked(text, max(len(written), 1))
        if asked is None:
            raise RegardError(f"{self.name} fills in all at once; ask without written")
        with self.run.computing():
            return reread(self.run.network, asked, written)

    def _asked(self, text: str, most: int) -> WriteRequest | None:
        if self.kind == "classification":
            raise RegardError(f"{self.name} writes no texts; ask /predict")
        task = self.run.task
        return task.request(text, most) if isinstance(task, Writes) else None


def opened(name: str, folder: Path) -> Subject:
    """The run in a folder as a subject, or the model in Hugging Face's layout.

    Errors: a run that is not complete; a model that regard does not read.
    """
    from regard.runs import load
    from regard.web import pretrained

    if pretrained.is_pretrained(folder):
        return pretrained.opened(name, folder)
    run = load(folder)
    if not run.complete:
        raise RegardError(f"the run {name} is not complete; train it to its end first")
    return RunSubject(name, run)


Open = Callable[[str, Path], Subject]
