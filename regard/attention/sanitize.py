"""Replace numbers that are hidden or not finite, and centre rows for precision."""

import math
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from regard.attention.mask_context import MaskContext
from regard.attention.prepared import Prepared, as_tuple, repeat_kv
from regard.attention.tracing import on_cpu


@dataclass(frozen=True)
class NonFinite:
    """Masks of the inputs that were not finite before they were set to zero; True = not finite.

    They let a NaN reach the queries that may see it, and no others.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor


def sanitize(
    queries: Tensor, keys: Prepared, values: Tensor, context: MaskContext
) -> tuple[Tensor, Prepared, Tensor, NonFinite | None]:
    """Set to zero the keys and values that no query may see; on a CPU also numbers not finite.

    The last element of the result marks the latter, or is None if there are none.
    """
    sides = [*as_tuple(keys), values]
    if context.mask is not None:
        hidden = ~context.seen
        if context.heads and hidden.ndim > 1:
            hidden = hidden.all(-2, keepdim=True)
        sides = [x.masked_fill(hidden.unsqueeze(-1), 0) for x in sides]
    nonfinite = None
    if on_cpu(queries) and not is_finite(queries, *sides):
        bad = [~x.isfinite() for x in (queries, *sides)]
        marks = [x.any(-1, keepdim=True) for x in bad[1:-1]]
        most = max((x.shape[-3] for x in marks if x.ndim > 2), default=1)
        marks = [repeat_kv(x, most) if context.heads and x.ndim > 2 else x for x in marks]
        of_keys = reduce(torch.logical_or, marks).squeeze(-1)
        nonfinite = NonFinite(bad[0].any(-1), of_keys, bad[-1])
        queries, *sides = (x.masked_fill(b, 0) for x, b in zip((queries, *sides), bad, strict=True))
    finite_keys = tuple(sides[:-1]) if isinstance(keys, tuple) else sides[0]
    return queries, finite_keys, sides[-1], nonfinite


def nonfinite_rows(x: Tensor) -> Tensor:
    """Return which rows of x hold a number that is not finite, of shape (…, 1)."""
    return ~x.detach().isfinite().all(-1, keepdim=True)


def is_finite(*tensors: Tensor) -> bool:
    """Return whether no number is NaN or infinite, or so large that a product of two could be.

    The sum of squares bounds every inner product. Views that together make up one tensor are read
    as that tensor, which is 3 times faster.
    """
    whole = tensors[0]._base
    if whole is not None and all(x._base is whole for x in tensors):
        tensors = (whole,) if sum(x.numel() for x in tensors) == whole.numel() else tensors
    return all(math.isfinite(_squares(x.detach()).item()) for x in tensors)


def _squares(x: Tensor) -> Tensor:
    """Return the sum of all squares, in a dtype whose range covers any product of two numbers."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    if x.is_contiguous() and not half:  # takes half as long
        return torch.dot(x.view(-1), x.view(-1))
    norm: Tensor = torch.linalg.vector_norm(x, dtype=torch.float32 if half else None)
    return norm.square()


def centred(queries: Tensor, keys: Tensor, context: MaskContext) -> tuple[Tensor, Tensor]:
    """Subtract the first visible key from queries and keys: far from 0, squares lose digits.

    It is a key and not a mean, so that later keys cannot change a bit of earlier results.
    """
    if keys.numel() == 0:
        return queries, keys
    rows = keys.detach()
    if context.mask is not None:
        rows = repeat_kv(rows, context.heads).expand(*context.shape[:-2], -1, -1)
        visible = context.seen.expand(rows.shape[:-1]).reshape(-1)
        origin = rows.reshape(-1, keys.shape[-1]).index_select(0, visible.int().argmax()[None])[0]
    else:
        origin = rows.reshape(-1, keys.shape[-1])[0]
    return queries - origin, keys - origin
