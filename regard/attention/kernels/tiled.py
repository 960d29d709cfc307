"""Any score × mask × normaliser × dropout in O(n) memory, by strips of rows.

The backward pass computes the strips again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.choose import Plan
from regard.attention.kernels.compiled import compiling
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.exact import has_nan
from regard.attention.kernels.native import flushing
from regard.attention.kernels.strips import (
    Strip,
    add,
    add_to_keys,
    materialised,
    pick,
    positions_of,
    put,
    rounded,
    taken,
    zeros,
    zeros_of_keys,
)
from regard.attention.kernels.work import (
    Space,
    Work,
    allowed_in,
    call,
    dropped,
    factors_of,
    joined,
    masked,
    nonfinite_of,
    parts_of,
    product_of,
    scores_of,
    work_of,
)
from regard.attention.mask import Tile
from regard.attention.normalizer import Backward
from regard.attention.prepared import repeat_kv
from regard.attention.tracing import refuse_second_derivative
from regard.attention.twin import twin
from regard.core.errors import RegardError


def tiled(call: Call, plan: Plan, dropout: Dropout | None) -> Tensor:
    """Compute normalize(score(q, k)) v strip by strip, (*batch, n, value_width).

    Differentiable once, in the prepared queries and keys, the values, and the parameters of score
    and normaliser.
    """
    values, shape = repeat_kv(call.values, call.context.heads), call.context.shape
    batch = torch.broadcast_shapes(values.shape[:-2], shape[:-2])
    work, queries, keys = work_of(call, plan, dropout, split=batch == shape[:-2])
    parameters = [*call.score.parameters(), *call.normalizer.parameters()]
    if torch.is_grad_enabled():
        refuse_captured(work, queries, keys)
    output: Tensor = _Tiled.apply(  # type: ignore[no-untyped-call]
        work, values, *queries, *keys, *parameters
    )
    return output


def refuse_captured(work: Work, queries: Sequence[Tensor], keys: Sequence[Tensor]) -> None:
    """Raise a RegardError if compare or forward needs a gradient for a non-parameter tensor.

    Tensors from the prepare methods are allowed.
    """
    if not work.strips:
        return
    for part in (work.score, work.normalizer):
        if any(getattr(module, "_former_parameters", None) for module in part.modules()):
            raise RegardError(
                f"a copy of {type(part).__name__} by nn.DataParallel has no parameters to learn; "
                "use torch.nn.parallel.DistributedDataParallel"
            )
    batch, tile, _ = work.strips[0]
    corner = Tile(slice(tile.rows.start, tile.rows.start + 1), taken(tile.columns, slice(0, 1)))
    place = Strip(batch, corner, False)
    with torch.enable_grad():
        scores = call(
            work,
            [x.detach() for x in pick(queries, place, -2, work.context)],
            [x.detach() for x in pick(keys, place, -1, work.context)],
            positions_of(work.context, place),
            [x.detach() for x in work.score.parameters()],
        )
    if scores is not None and scores.requires_grad:
        raise RegardError(
            f"{type(work.score).__name__}.compare uses a tensor that needs a gradient and is "
            "neither a registered parameter nor from prepare_queries or prepare_keys; make it an "
            "nn.Parameter of the score"
        )
    if parameters := [x.detach() for x in work.normalizer.parameters()]:
        with torch.enable_grad():
            weights = twin(work.normalizer, parameters).forward(
                parameters[0].new_zeros(work.normalizer.heads or 1, 1, 1)
            )
        if weights.requires_grad:
            raise RegardError(
                f"{type(work.normalizer).__name__}.forward uses a tensor that needs a gradient and "
                "is not read from self: make it an nn.Parameter that forward reads"
            )


class _Tiled(torch.autograd.Function):
    """The autograd function of `tiled`: strips forward, and again backward."""

    @staticmethod
    def forward(ctx: Any, work: Work, values: Tensor, *tensors: Tensor) -> Tensor:
        queries, keys, _ = split(work, tensors)
        shape = torch.broadcast_shapes(work.context.shape[:-2], values.shape[:-2])
        output = values.new_zeros(*shape, work.context.shape[-2], values.shape[-1])
        kept: list[tuple[Tensor, ...]] = []
        space = Space()
        with compiling(work.compiled), flushing(values, work.context.shape.numel()):
            for strip in work.strips:
                scores, allowed = scores_of(work, strip, queries, keys, space)
                statistics = work.normalizer.statistics(scores)
                weights = work.normalizer.weights(scores, statistics)
                used = dropped(work, strip, weights)
                seen = pick([values], strip, -1, work.context)[0]
                rows = used.to(values.dtype) @ seen
                if work.nonfinite is not None:
                    bad = has_nan(nonfinite_of(work.nonfinite, strip, work.context), None, allowed)
                    rows = rows.masked_fill(bad, torch.nan)
                put(output, strip, work.context).copy_(rows)
                kept.append(statistics)
        ctx.work, ctx.kept = work, kept
        ctx.cast = (
            torch.is_autocast_enabled(values.device.type),
            torch.get_autocast_dtype(values.device.type),
        )
        ctx.save_for_backward(values, *tensors)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("the tiled kernel")
        values, *tensors = ctx.saved_tensors
        enabled, dtype = ctx.cast
        with (
            compiling(ctx.work.compiled),
            flushing(values, ctx.work.context.shape.numel()),
            torch.autocast(values.device.type, dtype, enabled),
        ):
            return None, *backward(ctx.work, ctx.kept, values, tensors, materialised(upstream[0]))


def backward(
    work: Work,
    kept: Sequence[tuple[Tensor, ...]],
    values: Tensor,
    tensors: Sequence[Tensor],
    upstream: Tensor,
) -> list[Tensor]:
    """Compute the gradients of the values and of all tensors strip by strip."""
    queries, keys, rest = split(work, tensors)
    of_score = len(list(work.score.parameters()))
    to_queries, to_keys, to_rest = ([zeros(x) for x in of] for of in (queries, keys, rest))
    of_values = zeros_of_keys(values, work.strips)
    if work.score.acceleration.linear:
        to_keys[0] = zeros_of_keys(keys[0], work.strips)
    space = Space()
    for strip, statistics in zip(work.strips, kept, strict=True):
        # A score with many numbers per pair is computed in chunks of columns, and again for their
        # gradient; any other once, and its graph is kept.
        parts = parts_of(work, strip, queries, keys)
        graph = None
        if len(parts) == 1:
            graph = Graph.of(work, strip, queries, keys, rest[:of_score])
        if graph is not None and work.score.acceleration.linear:
            mine = joined(graph.leaves[0], work.tuples[0])
            product = product_of(work, strip, mine, keys, space, graph.scores)
            scores, _ = masked(work, strip, product)
        elif graph is None:
            scores, _ = scores_of(work, strip, queries, keys, space)
        else:
            assert graph.scores is not None
            scores, _ = masked(work, strip, graph.scores.detach())
        weights = work.normalizer.weights(scores, statistics)
        slope = put(upstream, strip, work.context)
        if work.nonfinite is not None:
            allowed = None if strip.whole else allowed_in(work, strip)
            bad = has_nan(nonfinite_of(work.nonfinite, strip, work.context), None, allowed)
            slope = slope.masked_fill(bad, 0)
        seen, gathered = pick([values], strip, -1, work.context)[0], values.dtype
        of_weights = space.product(1, slope.to(gathered), seen.mT).to(scores.dtype)
        used = weights
        if work.dropout is not None:
            factors = factors_of(work, strip, weights)
            of_weights, used = of_weights * factors, weights * factors
        if of_weights.shape != weights.shape:  # values of more batches than the scores
            of_weights = of_weights.sum_to_size(weights.shape)
        add_to_keys(of_values, strip, work.context, used.to(gathered), slope.to(gathered))
        parameters = tuple(rest[of_score:])
        of_scores, *more = work.normalizer.gradient(
            Backward(weights, of_weights, scores, statistics, parameters)
        )
        for total, part in zip(to_rest[of_score:], more, strict=True):
            total += part
        del weights, used, of_weights, scores  # free their memory
        totals = (to_queries, to_keys, to_rest[:of_score])
        if graph is not None:
            graph.send(of_scores, totals)
            if work.score.acceleration.linear:
                send_product(work, strip, graph, of_scores, keys, totals)
        else:
            for chunk, small in parts:
                Graph.of(work, small, queries, keys, rest[:of_score]).send(
                    of_scores[..., chunk], totals
                )
    sums = [of_values, *to_queries, *to_keys, *to_rest]
    return rounded(sums, [values, *queries, *keys, *rest])


def send_product(
    work: Work,
    strip: Strip,
    graph: "Graph",
    of_scores: Tensor,
    keys: Sequence[Tensor],
    totals: Sequence[Sequence[Tensor]],
) -> None:
    """Add the gradients of both sides of a linear score's product."""
    score = work.score
    query = score.acceleration.product_queries(score, joined(graph.leaves[0], work.tuples[0]))
    place = next(i for i, x in enumerate(graph.leaves[0]) if x is query)
    of_scores = of_scores.to(query.dtype) * score.acceleration.scale(score, query.shape[-1])
    key = pick(keys[:1], strip, -1, work.context)[0]
    add(totals[0][place], strip, -2, work.context, of_scores @ key)
    add_to_keys(totals[1][0], strip, work.context, of_scores, query.detach())


@dataclass
class Graph:
    """The scores of a strip with their autograd graph, to propagate a gradient.

    For a linear score, only the bias added to the product, or None.
    """

    work: Work
    strip: Strip
    leaves: tuple[list[Tensor], list[Tensor], list[Tensor]]
    scores: Tensor | None

    @classmethod
    def of(
        cls,
        work: Work,
        strip: Strip,
        queries: Sequence[Tensor],
        keys: Sequence[Tensor],
        parameters: Sequence[Tensor],
    ) -> "Graph":
        """Compute the scores with their own graph."""
        mine, others = pick(queries, strip, -2, work.context), pick(keys, strip, -1, work.context)
        leaves = [leaf(x) for x in mine], [leaf(x) for x in others], [leaf(x) for x in parameters]
        others_or_none = None if work.score.acceleration.linear else leaves[1]
        with torch.enable_grad():
            scores = call(
                work, leaves[0], others_or_none, positions_of(work.context, strip), leaves[2]
            )
        return cls(work, strip, leaves, scores)

    def send(self, upstream: Tensor, totals: Sequence[Sequence[Tensor]]) -> None:
        """Add the gradients of prepared queries, of keys and of parameters."""
        of = [x for group in self.leaves for x in group if x.requires_grad]
        if self.scores is None or not self.scores.requires_grad or not of:
            return
        upstream = upstream.to(self.scores.dtype)
        if upstream.numel() == self.scores.numel():
            upstream = upstream.view(self.scores.shape)  # sum_to_size would copy it
        else:
            upstream = upstream.sum_to_size(self.scores.shape)
        gradients = iter(torch.autograd.grad(self.scores, of, upstream, allow_unused=True))
        for side, (leaves, of_side) in enumerate(zip(self.leaves, totals, strict=True)):
            for x, total in zip(leaves, of_side, strict=True):
                more = next(gradients) if x.requires_grad else None
                if more is None:
                    continue
                if side == 2:
                    total += more
                else:
                    add(total, self.strip, side - 2, self.work.context, more)


def split(work: Work, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Split tensors into prepared queries, prepared keys and parameters."""
    one, two = work.parts
    return list(tensors[:one]), list(tensors[one : one + two]), list(tensors[one + two :])


def leaf(x: Tensor) -> Tensor:
    """Return a detached copy as the leaf of a new graph."""
    return x.detach().requires_grad_(x.dtype.is_floating_point)
