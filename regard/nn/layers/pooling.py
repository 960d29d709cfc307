"""Pools: modules that reduce the vectors of a text to one.

A pool is called with (x, lengths) and ignores padding. It returns zeros for an empty text, except
for `FirstPool`, which returns the first vector.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attended, Attention, Score
from regard.attention.arguments import must_suit
from regard.nn.layers.embedding import inside, padding


def mean_over_time(
    x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch width"]:
    """Return t̄ = (1/n) Σ tᵢ over the n vectors of each text.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [9.0, 9.0]]])
    >>> mean_over_time(x, torch.tensor([2])).tolist()
    [[2.0, 4.0]]
    """
    share = inside(lengths, x.shape[1]).to(x.dtype) / lengths.clamp(min=1)[:, None]
    return torch.bmm(share[:, None].to(x.dtype), x).squeeze(1)


class MeanPool(nn.Module):
    """t̄ = (1/n) Σ tᵢ."""

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the mean of each text's vectors."""
        return mean_over_time(x, lengths)


class MaxPool(nn.Module):
    """The maximum of each entry over the text."""

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the maximum over time."""
        hidden = ~inside(lengths, x.shape[1])
        largest = x.masked_fill(hidden[..., None], -torch.inf).amax(1)
        return largest.masked_fill((lengths == 0)[:, None], 0)


class LastPool(nn.Module):
    """x_n, the last vector of each text."""

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the last vector of each text, or zeros for an empty text."""
        last = x[torch.arange(x.shape[0], device=x.device), (lengths - 1).clamp(min=0)]
        return last * (lengths > 0)[:, None]


class FirstPool(nn.Module):
    """x₁, the state of the token that was prepended (CLS)."""

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the first vector of each text."""
        return x[:, 0]


class AttentionPool(nn.Module):
    """t̂ = Σ pᵢ tᵢ with p = normalize(score(q, t)) and one learned q for all texts."""

    def __init__(self, width: int, score: Score, normalize: str = "softmax") -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, width) / width**0.5)
        self.attention = Attention(score, normalize)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the attention-weighted mean of each text's vectors."""
        query = self.query.expand(x.shape[0], 1, -1)
        attended: Attended = self.attention(
            query, x, x, padding(lengths, x.shape[1]), query_positions=at_the_start(x)
        )
        return attended.output.squeeze(1)


class QueryFromMeanPool(nn.Module):
    """t̂ = Σ pᵢ W_v tᵢ with p = normalize(score(W_q t̄, t)): the query is the text's own mean."""

    def __init__(self, width: int, score: Score, normalize: str = "softmax") -> None:
        super().__init__()
        self.to_query = nn.Linear(width, width)
        self.to_values = nn.Linear(width, width)
        self.attention = Attention(score, normalize)

    def forward(
        self, x: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        """Return the attention-weighted mean of each text's values."""
        must_suit("inputs", x, self.to_query)
        query = self.to_query(mean_over_time(x, lengths))[:, None]
        attended: Attended = self.attention(
            query,
            x,
            self.to_values(x),
            padding(lengths, x.shape[1]),
            query_positions=at_the_start(x),
        )
        return attended.output.squeeze(1)


def at_the_start(x: Tensor) -> Int[Tensor, " 1"]:
    """Return the position of a pool's query, which must not depend on padding."""
    return torch.zeros(1, dtype=torch.long, device=x.device)
