"""What the page and the API ask of a model: `Subject`. A run is one; others can be made to be."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from regard.decoding import Writer
from regard.errors import RegardError
from regard.runs import ClassifierRun, Looked, Run, TextRun
from regard.runs.pieces import (
    LONGEST,
    Asked,
    Drawing,
    Piece,
    Reread,
    asking,
    at_work,
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

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at; nothing of a model without one."""

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """A text token by token. Errors: the model does not write."""

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """What was looked at while `write` wrote these tokens. Errors: it wrote none."""

    @property
    def residual(self) -> float:
        """The share that passes beside a layer's attention, for `rollout`."""


class RunSubject:
    """A complete run of regard's, asked through its own methods."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        self.kind = "classification" if isinstance(run, ClassifierRun) else "sequences"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off; of a baseline its words."""
        if self.run.config.entry.kind == "baseline":
            return len(text.split())
        if isinstance(self.run, TextRun):
            return len(self.run.task.whole(text))
        return len(self.run.task.tokenizer.encode([text])[0])

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
        if best == 1 and isinstance(self.run, TextRun) and self.run.draws:
            # each by itself, so that who else asks changes no answer
            return [self.run.predict(text).json() for text in texts]
        if best == 1:
            return [answer.json() for answer in self.run.predict(texts)]
        if not isinstance(self.run, TextRun) or self.run.search is None:
            raise RegardError(f"{self.name} gives one answer to a text; ask without best")
        each = [[text] for text in texts] if self.run.draws else [texts]
        found = [answers for some in each for answers in self.run.best(some, best)]
        return [{**answers[0].json(), "best": [x.json() for x in answers]} for answers in found]

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at; of a baseline nothing.

        Of a run that writes another text: while it writes its answer, and what source and answer
        look at in themselves.
        """
        if self.run.config.entry.kind == "baseline" or not self.run.tokens(text):
            return []  # a language model has a token to begin behind
        asked = asking(self.run.task, text, LONGEST)
        if asked is not None and asked.behind:
            return self.run.attention(text)
        return at_work(self.run, text)[0]

    @property
    def residual(self) -> float:
        """0 for blocks without a residual connection, else a half."""
        return 0.0 if getattr(self.run.config.network, "block", "") == "plain" else 0.5

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

    def _asked(self, text: str, most: int) -> Asked | None:
        if self.kind == "classification":
            raise RegardError(f"{self.name} labels texts and writes none; ask /predict")
        return asking(self.run.task, text, most)


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
