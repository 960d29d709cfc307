"""Answer each kind of request, in the models' thread."""

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.analysis.layer_attention import LayerAttention, TooManyWeightsError, at_most
from regard.core.errors import RegardError
from regard.lab.data.examples import as_json
from regard.lab.reports.packed import is_rollout, matrix, pack, with_rollout
from regard.lab.runs import load
from regard.lab.tasks.writing.streaming import Drawing, answered
from regard.lab.web.disagreements import Disagreements
from regard.lab.web.limits import Limits
from regard.lab.web.refusal import over
from regard.lab.web.registry import Registry
from regard.lab.web.requests import DisagreementsRequest
from regard.lab.web.served_model import ServedModel

Written = Sequence[int] | None  # ids of the tokens that a model wrote; None: its own answer

CACHE_BYTES = 400_000_000  # bytes of weights kept for the next request


class Look(NamedTuple):
    """An answer, its attention, and the number of tokens read if the model continued the text."""

    answer: dict[str, Any]
    layers: list[LayerAttention]
    read: int | None = None


class Answers:
    """Answers requests to the runs of a registry. Call its methods from one thread only."""

    def __init__(self, registry: Registry, limits: Limits) -> None:
        self.registry, self.limits = registry, limits
        self._looks: OrderedDict[tuple[str, str, Written], Look] = OrderedDict()
        self._disagreements: tuple[tuple[str, str], Disagreements] | None = (
            None  # the last pair of runs
        )

    def predict(
        self, name: str, several: Sequence[Sequence[str]], best: int = 1
    ) -> list[list[dict[str, Any]]]:
        """Return answers to the texts of several requests, in one call of the model."""
        model = self.registry.model(name)
        for text in (text for texts in several for text in texts):
            self.check_length(model.count(text))
        results = iter(model.predict([text for texts in several for text in texts], best))
        return [[next(results) for _ in texts] for texts in several]

    def translate(
        self, name: str, several: Sequence[Sequence[str]], best: int
    ) -> list[list[dict[str, Any]]]:
        """Return the texts generated for several requests. Raises: a run that labels texts."""
        if not self.registry.model(name).answers_in_texts:
            raise RegardError(f"{name} does not generate text; use /predict")
        return self.predict(name, several, best)

    def attention(
        self, name: str, text: str, written: Written, layer: int | None, head: int | None
    ) -> list[dict[str, Any]]:
        """Return the weights of layers and heads as numbers. Raises: no such layer; too many."""
        own = [x for x in self._cached(name, text, written).layers if not is_rollout(x)]
        chosen = [
            (number, _one_head(each, head))
            for number, each in enumerate(own, 1)
            if layer in (None, number)
        ]
        if layer is not None and not chosen:
            raise RegardError(f"layer {layer}: this model has attention layers 1 to {len(own)}")
        size = sum(each.weights.size for _, each in chosen)
        if size > self.limits.numbers:
            raise over("numbers", self.limits.numbers, size)
        return [
            each._replace(weights=np.nan_to_num(each.weights)).json(number)
            for number, each in chosen
        ]

    def look(self, name: str, text: str, written: Written = None) -> dict[str, Any]:
        """Return the answer to a text and its attention, packed for the page.

        With ``written``, the tokens that `write` returned: the attention while writing them.
        """
        result = self._cached(name, text, written)
        read = {} if result.read is None else {"read": result.read}
        packed = pack(result.layers)
        return {"run": name, **as_json(text), "answer": result.answer, **read, **packed}

    def matrix(self, name: str, text: str, written: Written, layer: int, head: int) -> bytes:
        """Return the packed weights of one head. Raises: no such layer or head."""
        layers = self._cached(name, text, written).layers
        if layer > len(layers):
            raise RegardError(f"layer {layer}: this model has 1 to {len(layers)}")
        return matrix(_one_head(layers[layer - 1], head).weights[0])

    def write(
        self, name: str, text: str, drawing: Drawing, temperature: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Generate a text token by token, at a temperature or the run's default one."""
        model = self.registry.model(name)
        own = model.temperature if temperature is None else temperature
        drawing = drawing._replace(temperature=own)
        self.check_length(model.count(text))
        for piece in model.write(text, drawing):
            yield piece._asdict()

    def disagreements(self, query: DisagreementsRequest) -> dict[str, Any]:
        """Return how two runs differ on the test split: counts and a page of texts."""
        names = query.a, query.b
        if self._disagreements is None or self._disagreements[0] != names:
            evaluations = [load(self.registry.runs[name]).evaluate() for name in names]
            self._disagreements = names, Disagreements.between(names, evaluations)
        return {"a": query.a, "b": query.b, **self._disagreements[1].page(query)}

    def _cached(self, name: str, text: str, written: Written) -> Look:
        """Return the answer and the attention of a text, cached for the next request."""
        key = name, json.dumps(as_json(text)), None if written is None else tuple(written)
        if key not in self._looks:
            self._looks[key] = self._look(name, text, written)
        self._looks.move_to_end(key)
        while len(self._looks) > 1 and (
            len(self._looks) > self.limits.looks or self._cached_bytes() > CACHE_BYTES
        ):
            self._looks.popitem(last=False)
        return self._looks[key]

    def _look(self, name: str, text: str, written: Written) -> Look:
        model = self.registry.model(name)
        self.check_length(model.count(text) + len(written or ()))
        try:
            with at_most(self.limits.weights):
                answer, layers, read = _ask(model, text, written)
        except TooManyWeightsError as error:
            raise over("weights", self.limits.weights, error.weights) from None
        return Look(answer, with_rollout(layers, model.residual), read)

    def _cached_bytes(self) -> int:
        return sum(layer.weights.nbytes for kept in self._looks.values() for layer in kept.layers)

    def check_length(self, tokens: int) -> None:
        """Raise an error for a text of more tokens than the limit."""
        if tokens > self.limits.tokens:
            raise over("tokens", self.limits.tokens, tokens)


def _ask(model: ServedModel, text: str, written: Written) -> Look:
    if written is None:
        return Look(model.predict([text])[0], model.attention(text))
    pieces, layers, read = model.reread(text, written)
    rows = [piece._asdict() for piece in pieces]
    unknown = {"unknown": list(words)} if (words := model.unknown(text)) else {}
    return Look({**answered(pieces), **unknown, "pieces": rows}, layers, read)


def _one_head(layer: LayerAttention, head: int | None) -> LayerAttention:
    if head is None:
        return layer
    if head > len(layer.weights):
        raise RegardError(f"head {head}: {layer.layer} has heads 1 to {len(layer.weights)}")
    return layer._replace(weights=layer.weights[head - 1 : head])
