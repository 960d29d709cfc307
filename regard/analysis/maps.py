"""Measures of attention weights: entropy, distance and rollout."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import RegardError


def entropy(weights: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries"]:
    """Return −Σ w ln w in nats, from 0 (one key) to ln keys (equal weights); 0 for a row of zeros.

    >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).tolist()
    [0.6931..., 0.0]
    """
    tiny = torch.finfo(weights.dtype).tiny
    logs = weights.clamp(min=tiny).log_()  # faster than torch's entr, which is not vectorised
    values: Tensor = (weights * -logs).sum(-1)
    return values


def reach(
    weights: Float[Tensor, "*batch queries keys"],
    query_positions: Int[Tensor, " queries"] | None = None,
    key_positions: Int[Tensor, " keys"] | None = None,
) -> Float[Tensor, "*batch queries"]:
    """Return Σⱼ wᵢⱼ |i − j|: the mean distance of a query's keys.

    As in `attend`, keys have the positions 0 … m − 1 and queries the last of them by default.

    >>> reach(torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).tolist()
    [1.0, 0.0, 2.0]
    """
    queries, keys = weights.shape[-2:]
    if key_positions is None:
        key_positions = torch.arange(keys, device=weights.device)
    if query_positions is None:
        query_positions = torch.arange(keys - queries, keys, device=weights.device)
    distance = (query_positions[:, None] - key_positions).abs().to(weights.dtype)
    return (weights * distance).sum(-1)


def rollout(
    layers: Sequence[Float[Tensor, "*batch heads time time"]], residual: float = 0.5
) -> Float[Tensor, "*batch time time"]:
    """Return the contribution of each input to each last state. Abnar & Zuidema 2020.

    The product over the layers of (1 − r) A + r I, where A is the mean over heads and r the share
    that the residual connection carries past the attention (0 without one). Rows sum to 1, or to 0
    for a query without visible keys if r is 0.
    """
    total: Tensor | None = None
    for weights in layers:
        mean = weights.mean(-3)
        mixed = (1 - residual) * mean + residual * torch.eye(
            mean.shape[-1], dtype=mean.dtype, device=mean.device
        )
        total = mixed if total is None else mixed @ total
    if total is None:
        raise RegardError("rollout needs the weights of at least one layer")
    return total
