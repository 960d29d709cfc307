"""What the models' thread does for each kind of question."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.analysis.layer_attention import LayerAttention, TooManyWeightsError, at_most
from regard.errors import RegardError
from regard.reports.packed import is_rollout, matrix, pack, with_rollout
from regard.tasks.writing.streaming import Drawing, answered
from regard.web.disagreements import Disagreements, Filter
from regard.web.limits import Limits
from regard.web.refusal import over
from regard.web.shelf import Shelf
from regard.web.subject import Subject

Written = Sequence[int] | None  # numbers of the tokens that a model wrote; None: its own answer

HELD = 400_000_000  # bytes of weights that are kept for the next question


class Seen(NamedTuple):
    """An answer, what was looked at, and of one text that is gone on with how much was read."""

    answer: dict[str, Any]
    layers: list[LayerAttention]
    read: int | None = None


class Answers:
    """Questions to the runs of a shelf. Its methods run in one thread, that of the models."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits
        self._looks: OrderedDict[tuple[str, str, Written], Seen] = OrderedDict()
        self._apart: tuple[tuple[str, str], Disagreements] | None = None  # of two runs, the last

    def predict(self, name: str, several: Sequence[Sequence[str]]) -> list[list[dict[str, Any]]]:
        """Answers to the texts of several requests, in one call of the model."""
        return self._best(name, several, 1)

    def translate(
        self, name: str, several: Sequence[Sequence[str]], best: int
    ) -> list[list[dict[str, Any]]]:
        """What a run writes for the texts of several requests. Errors: it labels texts."""
        if self.shelf.subject(name).kind != "sequences":
            raise RegardError(f"{name} writes no texts; ask /predict")
        return self._best(name, several, best)

    def _best(
        self, name: str, several: Sequence[Sequence[str]], best: int
    ) -> list[list[dict[str, Any]]]:
        subject = self.shelf.subject(name)
        for text in (text for texts in several for text in texts):
            self._short(subject.count(text))
        found = iter(subject.predict([text for texts in several for text in texts], best))
        return [[next(found) for _ in texts] for texts in several]

    def attention(
        self, name: str, text: str, written: Written, layer: int | None, head: int | None
    ) -> list[dict[str, Any]]:
        """The weights of layers and heads as plain numbers. Errors: no such layer; too many."""
        own = [x for x in self._seen(name, text, written).layers if not is_rollout(x)]
        chosen = [
            (number, _one_head(seen, head))
            for number, seen in enumerate(own, 1)
            if layer in (None, number)
        ]
        if layer is not None and not chosen:
            raise RegardError(f"layer {layer}: this model has attention layers 1 to {len(own)}")
        size = sum(seen.weights.size for _, seen in chosen)
        if size > self.limits.numbers:
            raise over("numbers", self.limits.numbers, size)
        return [_plain(number, seen) for number, seen in chosen]

    def look(self, name: str, text: str, written: Written = None) -> dict[str, Any]:
        """The answer to a text and its attention, packed for the page.

        With ``written``, what `write` wrote: the attention it wrote with.
        """
        seen = self._seen(name, text, written)
        read = {} if seen.read is None else {"read": seen.read}
        return {"run": name, "text": text, "answer": seen.answer, **read, **pack(seen.layers)}

    def matrix(self, name: str, text: str, written: Written, layer: int, head: int) -> bytes:
        """One head of a look, packed. Errors: no such layer or head."""
        layers = self._seen(name, text, written).layers
        if layer > len(layers):
            raise RegardError(f"layer {layer}: this model has 1 to {len(layers)}")
        return matrix(_one_head(layers[layer - 1], head).weights[0])

    def write(
        self, name: str, text: str, drawing: Drawing, temperature: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """A text token by token, drawn by a temperature or by that of the run."""
        subject = self.shelf.subject(name)
        own = subject.temperature if temperature is None else temperature
        drawing = drawing._replace(temperature=own)
        self._short(subject.count(text))
        for piece in subject.write(text, drawing):
            yield piece._asdict()

    def disagreements(
        self, a: str, b: str, chosen: Filter, offset: int, limit: int
    ) -> dict[str, Any]:
        """How two runs answered the test split: counts, and a page of texts that one got wrong."""
        from regard.runs import load

        if self._apart is None or self._apart[0] != (a, b):
            judged = [load(self.shelf.runs[name]).evaluate() for name in (a, b)]
            self._apart = (a, b), Disagreements.between((a, b), judged)
        return {"a": a, "b": b, **self._apart[1].page(chosen, offset, limit)}

    def _seen(self, name: str, text: str, written: Written) -> Seen:
        """The answer and the attention of a text, kept for the next question about them."""
        key = name, text, None if written is None else tuple(written)
        if key not in self._looks:
            self._looks[key] = self._look(name, text, written)
        self._looks.move_to_end(key)
        while len(self._looks) > 1 and (
            len(self._looks) > self.limits.looks or self._held() > HELD
        ):
            self._looks.popitem(last=False)
        return self._looks[key]

    def _look(self, name: str, text: str, written: Written) -> Seen:
        subject = self.shelf.subject(name)
        self._short(subject.count(text) + len(written or ()))
        try:
            with at_most(self.limits.weights):
                answer, layers, read = _looked(subject, text, written)
        except TooManyWeightsError as error:
            raise over("weights", self.limits.weights, error.weights) from None
        return Seen(answer, with_rollout(layers, subject.residual), read)

    def _held(self) -> int:
        return sum(seen.weights.nbytes for kept in self._looks.values() for seen in kept.layers)

    def _short(self, tokens: int) -> None:
        if tokens > self.limits.tokens:
            raise over("tokens", self.limits.tokens, tokens)


def _looked(subject: Subject, text: str, written: Written) -> Seen:
    if written is None:
        return Seen(subject.predict([text])[0], subject.attention(text))
    pieces, layers, read = subject.reread(text, written)
    told = [piece._asdict() for piece in pieces]
    return Seen({**answered(pieces), "pieces": told}, layers, read)


def _one_head(seen: LayerAttention, head: int | None) -> LayerAttention:
    if head is None:
        return seen
    if head > len(seen.weights):
        raise RegardError(f"head {head}: {seen.layer} has heads 1 to {len(seen.weights)}")
    return seen._replace(weights=seen.weights[head - 1 : head])


def _plain(number: int, seen: LayerAttention) -> dict[str, Any]:
    asking = {} if seen.asking is None else {"asking": seen.asking}
    weights = np.nan_to_num(seen.weights)
    return {
        "layer": number,
        "name": seen.layer,
        "tokens": seen.tokens,
        **asking,
        "received": weights.mean((0, 1)).tolist(),
        "weights": weights.tolist(),
    }
