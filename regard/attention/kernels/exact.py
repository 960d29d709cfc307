"""The literal definition, dense, in any dtype: what every other path is tested against."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.normalizers import Normalizer
from regard.attention.scores import Prepared, Score, Where, spread


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
    result = normalizer(scores)
    if faults is not None:
        result = result.masked_fill(lost_rows(faults, heads, allowed), torch.nan)
    return result


def average(
    weights: Tensor,
    values: Tensor,
    heads: int | None,
    allowed: Tensor | None,
    faults: Faults | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """weights @ values: (\\*batch, n, value_width)."""
    dropped = (F.dropout(weights, dropout) if dropout else weights).to(values.dtype)
    if faults is None:
        return dropped @ spread(values, heads)
    lost = lost_rows(faults, heads, allowed)
    output = dropped.masked_fill(lost, 0) @ spread(values, heads)
    seen = torch.ones_like(dropped[..., :1, :]) if allowed is None else allowed.to(dropped.dtype)
    spoilt = seen @ spread(faults.values, heads).to(dropped.dtype) > 0
    return output.masked_fill(lost | spoilt, torch.nan)


def lost_rows(faults: Faults, heads: int | None, allowed: Tensor | None) -> Tensor:
    """The queries, (\\*batch, n, 1), that are not finite or may see a key that is not."""
    keys = spread(faults.keys.unsqueeze(-2), heads)
    seen = keys if allowed is None else allowed & keys
    return faults.queries.unsqueeze(-1) | seen.any(-1, keepdim=True)
