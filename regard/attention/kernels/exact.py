"""The literal definition, dense, in any dtype: what every other path is tested against."""

import torch
from torch import Tensor

from regard.attention.kernels.dropout import Dropout
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Positions, Prepared, repeat_kv
from regard.attention.sanitize import NonFinite
from regard.attention.score import Score


def weights(
    queries: Prepared,
    keys: Prepared,
    positions: Positions,
    score: Score,
    normalizer: Normalizer,
    heads: int | None,
    allowed: Tensor | None,
    nonfinite: NonFinite | None = None,
) -> Tensor:
    """normalize(score(q, k)) over the keys that the mask lets q see: (\\*batch, n, m)."""
    if isinstance(keys, Tensor):
        keys = repeat_kv(keys, heads)
    else:
        keys = tuple(repeat_kv(part, heads) for part in keys)
    scores = score.compare(queries, keys, positions)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    result: Tensor = normalizer(scores) if scores.shape[-1] else scores
    if nonfinite is not None:
        lost = lost_rows(nonfinite, heads, allowed)
        result = result.masked_fill(lost if allowed is None else lost & allowed, torch.nan)
    return result


def average(
    weights: Tensor,
    values: Tensor,
    heads: int | None,
    allowed: Tensor | None,
    nonfinite: NonFinite | None = None,
    dropout: Dropout | None = None,
) -> Tensor:
    """weights @ values: (\\*batch, n, value_width)."""
    if dropout is not None:
        weights = weights * dropout.factors(weights.shape, weights.dtype, weights.device)
    dropped = weights.to(values.dtype)
    if nonfinite is None:
        return dropped @ repeat_kv(values, heads)
    output = dropped.masked_fill(lost_rows(nonfinite, heads, allowed), 0) @ repeat_kv(values, heads)
    return output.masked_fill(spoilt(nonfinite, heads, allowed), torch.nan)


def spoilt(nonfinite: NonFinite, heads: int | None, allowed: Tensor | None) -> Tensor:
    """The outputs, (\\*batch, n, value_width), that something not finite reaches."""
    bad = repeat_kv(nonfinite.values, heads)
    if allowed is None:
        reached = bad.any(-2, keepdim=True)
    else:
        reached = allowed.float() @ bad.float() > 0
    return lost_rows(nonfinite, heads, allowed) | reached


def lost_rows(nonfinite: NonFinite, heads: int | None, allowed: Tensor | None) -> Tensor:
    """The queries, (\\*batch, n, 1), that are not finite or may see a key that is not."""
    keys, asking = repeat_kv(nonfinite.keys.unsqueeze(-2), heads), nonfinite.queries.unsqueeze(-1)
    seen = keys if allowed is None else allowed & keys
    if allowed is not None:  # who may see nothing gets zeros, whoever asks
        asking = asking & allowed.any(-1, keepdim=True)
    return asking | seen.any(-1, keepdim=True)
