"""The literal definition, dense, in any dtype: what every other path is tested against."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.kernels.dropout import Dropout
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Prepared, Where, spread
from regard.attention.score import Score


@dataclass(frozen=True)
class Faults:
    """Where the inputs were not finite before they were put to zero; True = not finite.

    Kept aside so that a NaN reaches the queries that may see it, and nobody else.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor


def weights(
    queries: Prepared,
    keys: Prepared,
    where: Where,
    score: Score,
    normalizer: Normalizer,
    heads: int | None,
    allowed: Tensor | None,
    faults: Faults | None = None,
) -> Tensor:
    """normalize(score(q, k)) over the keys that the mask lets q see: (\\*batch, n, m)."""
    if isinstance(keys, Tensor):
        keys = spread(keys, heads)
    else:
        keys = tuple(spread(part, heads) for part in keys)
    scores = score.compare(queries, keys, where)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    result: Tensor = normalizer(scores) if scores.shape[-1] else scores
    if faults is not None:
        lost = lost_rows(faults, heads, allowed)
        result = result.masked_fill(lost if allowed is None else lost & allowed, torch.nan)
    return result


def average(
    weights: Tensor,
    values: Tensor,
    heads: int | None,
    allowed: Tensor | None,
    faults: Faults | None = None,
    dropout: Dropout | None = None,
) -> Tensor:
    """weights @ values: (\\*batch, n, value_width)."""
    if dropout is not None:
        weights = weights * dropout.factors(weights.shape, weights.dtype, weights.device)
    dropped = weights.to(values.dtype)
    if faults is None:
        return dropped @ spread(values, heads)
    output = dropped.masked_fill(lost_rows(faults, heads, allowed), 0) @ spread(values, heads)
    return output.masked_fill(spoilt(faults, heads, allowed), torch.nan)


def spoilt(faults: Faults, heads: int | None, allowed: Tensor | None) -> Tensor:
    """The outputs, (\\*batch, n, value_width), that something not finite reaches."""
    bad = spread(faults.values, heads)
    if allowed is None:
        reached = bad.any(-2, keepdim=True)
    else:
        reached = allowed.float() @ bad.float() > 0
    return lost_rows(faults, heads, allowed) | reached


def lost_rows(faults: Faults, heads: int | None, allowed: Tensor | None) -> Tensor:
    """The queries, (\\*batch, n, 1), that are not finite or may see a key that is not."""
    keys, asking = spread(faults.keys.unsqueeze(-2), heads), faults.queries.unsqueeze(-1)
    seen = keys if allowed is None else allowed & keys
    if allowed is not None:  # who may see nothing gets zeros, whoever asks
        asking = asking & allowed.any(-1, keepdim=True)
    return asking | seen.any(-1, keepdim=True)
