"""`ServedModel`, the interface of a model that the API serves, and its implementation for runs."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
from regard.decoding import Writer
from regard.lab.runs import Run, load
from regard.lab.tasks.writing.streaming import (
    Drawing,
    NextWord,
    Piece,
    Reread,
    WriteRequest,
    reread,
    write,
)
from regard.lab.web import pretrained


class ServedModel(Protocol):
    """The interface of a served model. Any object with these methods can be served."""

    name: str
    answers_in_texts: bool  # False: answers with labels

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, before truncation."""

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """Return an answer to each text as plain values; ``best`` outputs of a generator."""

    def unknown(self, text: str) -> Sequence[str]:
        """Return the words of a text that the model does not know."""

    def attention(self, text: str) -> list[LayerAttention]:
        """Return the attention of each layer, or an empty list without attention."""

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """Generate a text token by token. Raises: the model does not generate text."""

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """Return the attention while `write` wrote these tokens. Raises: it cannot write them."""

    @property
    def residual(self) -> float:
        """Share of the state that bypasses a layer's attention, for `rollout`."""

    @property
    def temperature(self) -> float:
        """Default sampling temperature; 0 takes the most likely token."""


class ServedRun:
    """A complete run of regard, served through its own methods."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        self.answering = run  #: answers `predict`
        self.answers_in_texts = run.config.unread_task.answers_in_texts

    def by_torch(self) -> "ServedRun":
        """Return the same run answered by its network, which can be changed while it runs."""
        return ServedRun(self.name, self.run)

    def count(self, text: str) -> int:
        """Return the number of tokens before truncation; for a baseline, of words."""
        if self.run.config.entry.baseline:
            return len(text.split())
        return len(self.run.task.whole(text))

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """Return an answer to each text as plain values, with ``best`` outputs of a generator.

        ``left_out`` is the number of tokens truncated, ``unknown`` the words that the model does
        not know, if any.
        """
        answers = self._answers(texts, best)
        for answer, left in zip(answers, self.run.left_out(texts), strict=True):
            if left:
                answer["left_out"] = left
        return answers

    def _answers(self, texts: list[str], best: int) -> list[dict[str, Any]]:
        # Sample for each text alone, so that other requests in the batch change no answer.
        parts = [[text] for text in texts] if self.temperature else [texts]
        if best == 1:
            return [answer.json() for part in parts for answer in self.answering.predict(part)]
        outputs = [answers for part in parts for answers in self.run.best(part, best)]
        return [{**answers[0].json(), "best": [x.json() for x in answers]} for answers in outputs]

    def unknown(self, text: str) -> Sequence[str]:
        """Return the words of a text that the model does not know."""
        return self.run.unknown([text])[0]

    def attention(self, text: str) -> list[LayerAttention]:
        """Return the attention of each layer; an empty list for a baseline.

        For a sequence-to-sequence run: cross-attention while it writes its answer, and the
        self-attention of source and answer.
        """
        if self.run.config.entry.baseline or not self.run.tokens(text):
            return []  # a language model always has a start token
        if self.run.task.writes == "on":
            return self.run.attention(text)
        return self.run.at_work(text)[0]

    @property
    def network(self) -> nn.Module:
        """The network, for interventions. Raises: a baseline."""
        return self.run.network

    def attribute(self, text: str, choice: int | None = None) -> dict[str, Any]:
        """Return attributions of the tokens. Raises: as `Run.attribute`."""
        return self.run.attribute(text, choice).json()

    def next_words(self, text: str) -> list[NextWord]:
        """Return the likeliest first words of the output; none if the run writes no words."""
        with self.run.computing():
            words: list[NextWord] = self.run.task.next_words(self.run.model, text)
        return words

    @property
    def residual(self) -> float:
        """0 for blocks without a residual connection, else 0.5."""
        return 0.0 if getattr(self.run.config.network, "block", "") == "plain" else 0.5

    @property
    def temperature(self) -> float:
        """Temperature of the run's task."""
        return float(self.run.task.temperature)

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """Generate a text, token by token if the model does so.

        Each step is computed on demand, so that other requests can be answered between two steps.

        Raises: a run that labels texts; settings that `decoding.sample` does not accept.
        """
        request = self._request(text, drawing.most)
        if not 0 < drawing.top_p <= 1 or drawing.top_k < 0 or drawing.temperature < 0:
            raise RegardError(
                f"sampling needs temperature ≥ 0, top_k ≥ 0 and 0 < top_p ≤ 1, not temperature="
                f"{drawing.temperature:g}, top_k={drawing.top_k}, top_p={drawing.top_p:g}"
            )
        if request is None:  # the model fills in all masks at once
            answer = self.run.predict([text])[0]
            yield Piece(answer.text, math.exp(min(answer.log_probability, 0.0)), answer.text)
        elif len(request.source):
            model = cast(Writer, self.run.network)
            yield from write(model, request, drawing, self.run.computing)

    def reread(self, text: str, written: Sequence[int]) -> Reread:
        """Return the attention while `write` wrote these tokens.

        Raises: a run that does not write token by token; ids that it cannot write.
        """
        request = self._request(text, max(len(written), 1))
        if request is None:
            raise RegardError(f"{self.name} fills in all masks at once; leave out written")
        with self.run.computing():
            return reread(self.run.network, request, written)

    def _request(self, text: str, most: int) -> WriteRequest | None:
        if not self.answers_in_texts:
            raise RegardError(f"{self.name} does not generate text; use /predict")
        request: WriteRequest | None = self.run.task.request(text, most)
        return request


def opened(name: str, folder: Path) -> ServedModel:
    """Open the run or the Hugging Face model in a folder.

    Raises: an incomplete run; a model that regard cannot read.
    """
    if pretrained.is_pretrained(folder):
        return pretrained.opened(name, folder)
    run = load(folder)
    if not run.complete:
        raise RegardError(f"run {name} is not complete; resume its training first")
    return ServedRun(name, run)


Open = Callable[[str, Path], ServedModel]
