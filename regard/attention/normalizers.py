"""Normalisers: from the scores of a row to weights. A string names one in ``NORMALIZERS``."""

from collections.abc import Iterable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor


class Normalizer:
    """weights = normalize(scores), row by row, in two steps that allow tiles of a row.

    ``statistics`` reads the tiles of the rows and keeps a few numbers per row; ``weights`` makes
    the weights of any tile from its scores and those numbers. A score of −inf is masked: weight
    0, gradient 0; a row of nothing else has no weight at all.
    """

    name: ClassVar[str] = "normalizer"
    #: normalize(scores + c) = normalize(scores) for a number c per row.
    shift_invariant: ClassVar[bool] = False

    def statistics(self, tiles: Iterable[Float[Tensor, "... rows _"]]) -> tuple[Tensor, ...]:
        """Numbers per row, (..., rows, 1) each, from all tiles of the rows."""
        raise NotImplementedError

    def weights(
        self, scores: Float[Tensor, "... rows columns"], statistics: tuple[Tensor, ...]
    ) -> Float[Tensor, "... rows columns"]:
        """The weights of one tile."""
        raise NotImplementedError

    def __call__(
        self, scores: Float[Tensor, "... rows columns"]
    ) -> Float[Tensor, "... rows columns"]:
        """The weights of whole rows."""
        if scores.shape[-1] == 0:
            return scores
        return self.weights(scores, self.statistics([scores]))


class Softmax(Normalizer):
    """weight_j = exp(s_j) / Σ exp(s_i); zeros where nothing may be seen.

    >>> Softmax()(torch.tensor([[0.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]
    """

    name = "softmax"
    shift_invariant = True

    def statistics(self, tiles: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
        top: Tensor | None = None
        total: Tensor | None = None
        for scores in tiles:
            high = scores.detach().amax(-1, keepdim=True)
            high = high.masked_fill(high == -torch.inf, torch.finfo(scores.dtype).min)
            new = high if top is None else torch.maximum(top, high)
            share = torch.exp(scores - new).sum(-1, keepdim=True)
            total = share if top is None or total is None else total * torch.exp(top - new) + share
            top = new
        if top is None or total is None:
            raise ValueError("statistics of no tiles")
        return top, total.masked_fill(total == 0, 1)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        top, total = statistics
        return torch.exp(scores - top) / total


NORMALIZERS: dict[str, type[Normalizer]] = {"softmax": Softmax}
