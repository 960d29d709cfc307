"""The literal definition with the whole table, in any dtype; the reference of all other kernels."""

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.dropout import Dropout
from regard.attention.prepared import repeat_all_kv, repeat_kv
from regard.attention.sanitize import NonFinite


def weights(call: Call) -> Tensor:
    """Compute normalize(score(q, k)) over the keys that the mask lets q see: (*batch, n, m)."""
    heads, allowed = call.context.heads, call.context.allowed
    keys = repeat_all_kv(call.keys, heads)
    scores = call.score.compare(call.queries, keys, call.context.positions)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    result: Tensor = call.normalizer(scores) if scores.shape[-1] else scores
    if call.nonfinite is not None:
        lost = lost_rows(call.nonfinite, heads, allowed)
        result = result.masked_fill(lost if allowed is None else lost & allowed, torch.nan)
    return result


def average(call: Call, weights: Tensor, dropout: Dropout | None = None) -> Tensor:
    """Compute weights @ values: (*batch, n, value_width)."""
    if dropout is not None:
        weights = weights * dropout.factors(weights.shape, weights.dtype, weights.device)
    dropped, values = weights.to(call.values.dtype), repeat_kv(call.values, call.context.heads)
    if call.nonfinite is None:
        return dropped @ values
    arguments = (call.nonfinite, call.context.heads, call.context.allowed)
    output = dropped.masked_fill(lost_rows(*arguments), 0) @ values
    return output.masked_fill(has_nan(*arguments), torch.nan)


def has_nan(nonfinite: NonFinite, heads: int | None, allowed: Tensor | None) -> Tensor:
    """Return which outputs, (*batch, n, value_width), a number that is not finite reaches."""
    bad = repeat_kv(nonfinite.values, heads)
    if allowed is None:
        reached = bad.any(-2, keepdim=True)
    else:
        seen = allowed.expand(*allowed.shape[:-1], bad.shape[-2])
        reached = seen.float() @ bad.float() > 0
    return lost_rows(nonfinite, heads, allowed) | reached


def lost_rows(nonfinite: NonFinite, heads: int | None, allowed: Tensor | None) -> Tensor:
    """Return which queries, (*batch, n, 1), are not finite or may see a key that is not."""
    keys, asking = repeat_kv(nonfinite.keys.unsqueeze(-2), heads), nonfinite.queries.unsqueeze(-1)
    visible = keys if allowed is None else allowed & keys
    if allowed is not None:  # a query that may see nothing gets zeros, even if it is not finite
        asking = asking & allowed.any(-1, keepdim=True)
    return asking | visible.any(-1, keepdim=True)
