"""Summarize attention weights strip by strip, in O(n) memory."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.choose import SEARCH, Plan
from regard.attention.kernels.compiled import compiling
from regard.attention.kernels.exact import lost_rows
from regard.attention.kernels.native import call, library_for, rows_and_columns
from regard.attention.kernels.strips import part, put
from regard.attention.kernels.work import Space, allowed_in, nonfinite_of, scores_of, work_of
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers.basic import largest

#: Maximum keys for which the search in C++ is faster than torch's sorts of rows with many zeros.
MOST = 32


@dataclass(frozen=True)
class Summary:
    """A summary of the weights of a call, before dropout and without gradients.

    ``indices`` and ``weights``: the keys with the largest weights of each query, by index in the
    call, in descending order; −1 and 0 if the query sees fewer. ``entropy``: −Σ w log w in nats, 0
    for a query with one key and log n for n equal weights. ``mass``: the sum of each key's weights
    over all queries.
    """

    indices: Int[Tensor, "*batch queries top"]
    weights: Float[Tensor, "*batch queries top"]
    entropy: Float[Tensor, "*batch queries"]
    mass: Float[Tensor, "*batch keys"]

    def __repr__(self) -> str:
        *_, queries, top = self.indices.shape
        keys, batch = self.mass.shape[-1], tuple(self.mass.shape[:-1])
        return f"<Summary: top {top} of {keys:,} keys for {queries:,} queries, batch {batch}>"

    def dense(self) -> Float[Tensor, "*batch queries keys"]:
        """Return the top weights as a table, 0 elsewhere."""
        table = self.weights.new_zeros(*self.weights.shape[:-1], self.mass.shape[-1])
        return table.scatter_add_(-1, self.indices.long().clamp(min=0), self.weights)


@torch.no_grad()
def summarize(call: Call, plan: Plan, top: int) -> Summary:
    """Return the summary of a call."""
    work, queries, keys = work_of(call, plan)
    context, normalizer = work.context, work.normalizer
    like = queries[0]
    dtype = torch.float32 if like.dtype in (torch.float16, torch.bfloat16) else like.dtype
    *batch, n, m = context.shape
    top = min(top, m)
    indices = torch.full((*batch, n, top), -1, dtype=torch.int32, device=like.device)
    most = torch.zeros(*batch, n, top, dtype=dtype, device=like.device)
    entropy = torch.zeros(*batch, n, 1, dtype=dtype, device=like.device)
    mass = torch.zeros(*batch, m, dtype=dtype, device=like.device)
    space = Space()
    with compiling(plan.compiled):
        for strip in work.strips:
            scores, _ = scores_of(work, strip, queries, keys, space)
            weights = normalizer.weights(scores, normalizer.statistics(scores))
            columns = strip.tile.columns
            total = part(mass, strip.batch, len(context.shape) - 1)
            if work.nonfinite is None:
                total[..., columns] += weights.sum(-2)
            else:
                allowed = None if strip.whole else allowed_in(work, strip)
                lost = lost_rows(nonfinite_of(work.nonfinite, strip, context), None, allowed)
                unknown = lost if allowed is None else lost & allowed
                total[..., columns] += weights.masked_fill(unknown, torch.nan).sum(-2)
            values, places = heaviest(weights, min(top, weights.shape[-1]))
            first = values[..., :1], places[..., :1]
            put(entropy, strip, context).copy_(entropy_of(weights, scores, normalizer, *first))
            if isinstance(columns, Tensor):
                places = columns[places]
            else:
                places = places + (columns.start or 0)
            size = values.shape[-1]
            put(indices, strip, context)[..., :size] = places.masked_fill(values == 0, -1)
            put(most, strip, context)[..., :size] = values
            if work.nonfinite is not None:  # the weights of a query that sees a NaN are unknown
                for x in (most, entropy):
                    put(x, strip, context).masked_fill_(lost, torch.nan)
    return Summary(indices, most, entropy.squeeze(-1), mass)


def heaviest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest weights of each row in descending order, and their indices."""
    of = library_for("rows", weights, SEARCH * weights.numel())
    if of is None or k > MOST or weights.shape[-1] >= 2**24:  # the places are floats
        return largest(weights, k)
    values, places = weights.new_empty(2, *weights.shape[:-1], k)
    call("largest", of, weights.contiguous(), values, places, *rows_and_columns(weights), k)
    return values, places.long()


def entropy_of(
    weights: Tensor, scores: Tensor, normalizer: Normalizer, heaviest: Tensor, place: Tensor
) -> Tensor:
    """Return −Σ w log w of each row; overwrites ``weights``."""
    tiny = torch.finfo(weights.dtype).tiny
    if not normalizer.exponential:
        logs = weights.clamp(min=tiny).log_()  # torch's entr is not vectorised
        return -logs.mul_(weights).sum(-1, keepdim=True)
    # log w = s − c: one logarithm per row instead of one per pair.
    c = scores.gather(-1, place) - heaviest.clamp(min=tiny).log()
    c = c.clamp(min=torch.finfo(c.dtype).min)  # −inf for a row that sees nothing
    total = weights.sum(-1, keepdim=True)
    return c * total - weights.mul_(scores).nansum(-1, keepdim=True)  # 0 · −inf counts as 0
