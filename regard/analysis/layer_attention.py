"""Attention weights of a model's layers for one text, as tables."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.analysis.record import Recording, table
from regard.attention import Attended
from regard.attention.kernels.summary import Summary
from regard.core.errors import RegardError
from regard.core.shown import shown

_most: ContextVar[float] = ContextVar("maximum weights of one text", default=math.inf)


class TooManyWeightsError(RegardError):
    """A text with more attention weights than `at_most` allows; ``weights`` is their number."""

    def __init__(self, most: float, weights: int) -> None:
        super().__init__(
            f"a text may have at most {most:,} attention weights here, not {weights:,}"
        )
        self.weights = weights


@contextmanager
def at_most(weights: int) -> Iterator[None]:
    """Refuse texts with more weights in total within the context, before computing any."""
    token = _most.set(weights)
    try:
        yield
    finally:
        _most.reset(token)


class LayerAttention(NamedTuple):
    """The weights (heads, queries, keys) of an attention layer for the tokens of one text.

    A pooling layer has one query. Otherwise the queries are the tokens of the text, or in
    cross-attention the tokens of the generated text, ``asking``.
    """

    layer: str
    tokens: list[str]
    weights: NDArray[np.float32]
    asking: list[str] | None = None

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.weights.shape[1:]))
        heads = f"{len(self.weights)} head{'s' * (len(self.weights) != 1)}"
        return f"<LayerAttention {self.layer}: {heads}, {shape} weights>"

    def _repr_html_(self) -> str:
        return shown(self)

    @property
    def received(self) -> NDArray[np.float32]:
        """Return the weight that each token receives, the mean over heads and queries."""
        return np.asarray(self.weights.mean((0, 1)))

    def json(self, number: int) -> dict[str, Any]:
        """Return the weights of the layer with this number as plain values."""
        asking = {} if self.asking is None else {"asking": self.asking}
        return {
            "layer": number,
            "name": self.layer,
            "tokens": self.tokens,
            **asking,
            "received": self.received.tolist(),
            "weights": self.weights.tolist(),
        }


def looked(recording: Recording, tokens: Sequence[str]) -> list[LayerAttention]:
    """Return the weights of each recorded layer for the first text. Raises: see `at_most`."""
    must_be_few(recording)
    return [
        LayerAttention(name, list(tokens), heads(table(seen))) for name, seen in recording.layers
    ]


def must_be_few(recording: Recording) -> None:
    """Raise an error if the tables of a recording would exceed `at_most`."""
    size = sum(_size(seen) for _, seen in recording.layers)
    if size > _most.get():
        raise TooManyWeightsError(_most.get(), size)


def _size(seen: Attended | Summary) -> int:
    """Return the number of weights in the `table` of a layer."""
    if isinstance(seen, Summary):
        return seen.mass.numel() * seen.indices.shape[-2]
    return seen.shape.numel()


def heads(weights: Tensor) -> NDArray[np.float32]:
    """Return the weights (heads, queries, keys) of the first row of a batch."""
    first = weights[0].float().cpu()
    return np.asarray(first.reshape(-1, *first.shape[-2:]).numpy(), dtype=np.float32)
