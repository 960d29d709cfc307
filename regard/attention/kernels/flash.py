"""Torch's fused kernels, strip by strip: any mask, a bias, and a sink, in O(n) memory.

The kernel returns the output and L_i = log Σ_j exp(s_ij) of each row. One more term exp(b) in that
sum, a sink, gives L' = log(exp(L) + exp(b)) and the output times exp(L − L'). Its backward pass
reads only both, so that it gives the gradients of the call with the sink. Blocks of keys that the
mask hides from all rows of a strip are left out. For a bias with a gradient, the gradient of the
scores of a strip, p (g vᵀ − Σ g o) with p = exp(s − L'), is computed too: here for a CPU, on a GPU
by torch's kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.call import Call
from regard.attention.kernels.choose import SINKS, Plan
from regard.attention.kernels.compiled import compiling
from regard.attention.kernels.distances import upto, weigh
from regard.attention.kernels.dot import NARROWEST, four_axes, sides_of
from regard.attention.kernels.native import flushing
from regard.attention.kernels.strips import (
    Strip,
    add,
    add_to_keys,
    materialised,
    pick,
    positions_of,
    rounded,
    zeros,
    zeros_of_keys,
)
from regard.attention.kernels.tiled import Graph, refuse_captured
from regard.attention.kernels.work import Space, Work, allowed_in, work_of
from regard.attention.prepared import alone, as_tuple
from regard.attention.tracing import refuse_second_derivative

#: On a GPU rows of a table begin at multiples of this, widths are multiples of 8, and there is an L
#: for each row of full groups of 32.
ALIGNED, EIGHT, GROUP = 16, 8, 32
#: Queries from which flipping them takes less time than a table of their bias.
MANY = 512
#: The widest heads of torch's flash attention on a GPU.
FLASH_WIDTH = 256
aten = torch.ops.aten


@dataclass(frozen=True)
class Strips:
    """A call of torch's kernel in strips: its work, scale and batch, and how it masks."""

    work: Work
    scale: float
    batch: torch.Size
    causal: bool  # the kernel's own mask
    backwards: bool  # see `from_the_last`

    def table(self, strip: Strip, bias: Tensor | None, like: Tensor) -> Tensor | None:
        """Return the bias of a strip, −inf where masked, with the axes of the kernel, or None."""
        table = None if bias is None else bias.detach().to(like.dtype)
        context, hides = self.work.context, not (strip.whole or self.causal)
        # Under autocast the table is a copy.
        if hides and self.backwards and table is not None and table.stride()[-2:] == (1, 1):
            row, column = (x[0] for x in positions_of(context, strip))
            table = upto(table, int(row - column))
        elif hides:
            allowed = allowed_in(self.work, strip)
            table = allowed.new_zeros((), dtype=like.dtype) if table is None else table
            table = torch.where(allowed, table, -torch.inf)
        if table is not None and table.ndim > 2 and len(self.batch) != 2:
            table = four_axes(table, table.shape[-1], self.batch)
        return table

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output and L of a strip by the kernel of the device."""
        sides, scale = (q, k, v), self.scale
        if not on_gpu(q):
            rows, logs = aten._scaled_dot_product_flash_attention_for_cpu(
                *sides, 0.0, self.causal, attn_mask=table, scale=scale
            )
            return rows, logs
        if table is None and flash_serves(q):
            rows, logs, *_ = aten._scaled_dot_product_flash_attention(
                *sides, 0.0, self.causal, scale=scale
            )
            return rows, logs
        rows, logs, *_ = aten._scaled_dot_product_efficient_attention(
            *sides, aligned(table, q, k), True, 0.0, self.causal, scale=scale
        )
        logs = logs[..., : q.shape[-2]]
        if table is None:
            return rows, logs
        empty = (table == -torch.inf).all(-1)
        return rows.masked_fill(empty.unsqueeze(-1), 0), logs.masked_fill(empty, -torch.inf)

    def backward(
        self, sides: Sequence[Tensor], table: Tensor | None, output: Tensor, logs: Tensor,
        learned: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return the gradients of a strip's queries, keys, values and, if ``learned``, scores.

        ``sides``: the gradient of the output, queries, keys and values.
        """
        (_, q, k, _), scale = sides, self.scale
        if not on_gpu(q):
            found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *sides, output, logs, 0.0, self.causal, attn_mask=table, scale=scale
            )
            return tuple(found)
        seed, n, m = q.new_empty(0, dtype=torch.int64), q.shape[-2], k.shape[-2]
        if table is None and flash_serves(q):
            found = aten._scaled_dot_product_flash_attention_backward(
                *sides, output, logs.contiguous(), None, None, n, m, 0.0, self.causal, seed, seed,
                scale=scale,
            )  # fmt: skip
            return tuple(found)
        logs = pad(logs, (0, up(n, GROUP) - n), value=torch.inf)
        found = aten._scaled_dot_product_efficient_attention_backward(
            *sides, aligned(table, q, k), output, logs, seed, seed, 0.0,
            [True, True, True, learned], self.causal, scale=scale,
        )  # fmt: skip
        return tuple(found)


def on_gpu(x: Tensor) -> bool:
    """Return whether torch's kernels of a GPU compute with this tensor."""
    return x.device.type != "cpu"


def flash_serves(q: Tensor) -> bool:
    """Return whether torch's flash attention on a GPU takes these queries."""
    return q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] <= FLASH_WIDTH


def up(number: int, unit: int) -> int:
    """Return the number rounded up to a multiple of a unit.

    >>> up(65, 16), up(64, 16)
    (80, 64)
    """
    return -(-number // unit) * unit


def aligned(table: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Return a table over the whole batch, with rows that begin where the GPU's kernel reads.

    It reads the columns between two rows too, which are 0.
    """
    if table is None:
        return None
    room = table.new_zeros(*table.shape[:-1], up(k.shape[-2], ALIGNED))[..., : k.shape[-2]]
    return room.copy_(table).expand(*q.shape[:-1], -1)


def by_strips(call: Call, plan: Plan) -> Tensor:
    """Compute softmax(scale · q kᵀ + bias) v, with the normaliser's sink, (*batch, n, width).

    Differentiable once.
    """
    if backwards := from_the_last(call):
        context = replace(call.context, rows=call.context.rows.flip(-1), counted=None, kept={})
        prepared = alone([x.flip(-2) for x in as_tuple(call.queries)])
        call = replace(call, queries=prepared, context=context)
    queries, keys, values, scale = sides_of(call)
    batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], values.shape[:-2])
    score, sink = call.score, None
    if call.normalizer.name in SINKS:
        sink = call.normalizer.sink_score()  # type: ignore[operator]
        sink = queries.new_zeros(1, 1) if sink is None else sink.expand(*batch, 1, 1)
        sink = four_axes(sink, 1, batch)
    causal = call.context.kind == "causal" and score.acceleration.inner_product
    # Only the table of a bias and a mask of pairs takes memory; most texts share one.
    numbers = 2 * plan.sizes.numbers
    if score.acceleration.inner_product and call.context.kind != "pairs":
        numbers = call.context.shape.numel()
    elif on_gpu(queries):
        numbers = plan.sizes.numbers
    elif len(batch) == 2:
        numbers *= batch[0]
    plan = replace(plan, sizes=replace(plan.sizes, numbers=numbers))
    if causal:
        call = replace(call, context=replace(call.context, mask=None, kind=None))
    work, prepared, others = work_of(call, plan, split=False)
    learned = torch.is_grad_enabled() and not score.acceleration.inner_product
    if learned:
        refuse_captured(work, prepared, others)
    width = max(queries.shape[-1], values.shape[-1], NARROWEST)
    width = up(width, EIGHT) if on_gpu(queries) else width
    sides = [four_axes(x, width, batch) for x in (queries, keys, values)]
    sides = [x if x.stride(-1) == 1 else x.contiguous() for x in sides]  # else torch's kernel errs
    rest = [*prepared, *score.parameters()] if learned else []
    strips = Strips(work, scale, batch, causal, backwards)
    biased = prepared if not score.acceleration.inner_product else ()
    with compiling(work.compiled), flushing(queries, work.context.shape.numel()):
        output: Tensor = _ByStrips.apply(  # type: ignore[no-untyped-call]
            strips, [x.detach() for x in biased], *sides, sink, *rest
        )
    output = output[..., : values.shape[-1]]
    output = output.flip(-2) if backwards else output
    return output if len(batch) == 2 else output.reshape(*batch, *output.shape[-2:])


def from_the_last(call: Call) -> bool:
    """Return whether queries are computed from the last to the first.

    Then the rows of a bias of distance are overlapping parts of one vector, and no table is made.
    """
    context = call.context
    n, batch = context.shape[-2], context.shape[:-2]
    if n < MANY or len(batch) > 2 or context.counted is None:
        return False
    if context.kind not in (None, "causal"):
        return False
    by_distance = call.score.acceleration.by_distance(call.score, context.positions)
    return by_distance and not on_gpu(as_tuple(call.queries)[0])


class _ByStrips(torch.autograd.Function):
    """The autograd function of `by_strips`: the kernel forward and backward for each strip."""

    @staticmethod
    def forward(
        ctx: Any,
        strips: Strips,
        biased: Sequence[Tensor],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        *rest: Tensor,
    ) -> Tensor:
        device = q.device.type
        if torch.is_autocast_enabled(device):
            q, k, v = (x.to(torch.get_autocast_dtype(device)) for x in (q, k, v))
        work, learned = strips.work, False
        output = q.new_zeros(*q.shape[:-1], v.shape[-1])
        total = q.new_zeros(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))
        for strip in work.strips:
            one, two, three = sides_in(strip, work, q, k, v)
            graph = Graph.of(work, strip, biased, [], []) if biased else None
            bias = None if graph is None else graph.scores
            learned |= bias is not None and bias.requires_grad
            table = full(strips.table(strip, bias, q), one, two)
            rows, logs = strips.forward(one, two, three, table)
            output[..., strip.tile.rows, :] = rows
            total[..., strip.tile.rows] = logs
        if sink is not None:
            # The kernel's L of a row that sees nothing is 0, and its output is 0 with any L'.
            more = torch.logaddexp(total, sink.detach()[..., 0].to(total.dtype))
            output *= (total - more).exp_().unsqueeze(-1).to(output.dtype)
            total = more
        if on_gpu(q):  # a row that sees nothing gets no weight in the backward pass
            total.masked_fill_(total == -torch.inf, torch.inf)
        ctx.strips, ctx.biased, ctx.learned = strips, len(biased), learned
        ctx.save_for_backward(q, k, v, output, total, sink, *rest)
        return output

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("the fused kernel")
        work: Work = ctx.strips.work
        with compiling(work.compiled), flushing(upstream[0], work.context.shape.numel()):
            return _ByStrips._backward(ctx, *upstream)

    @staticmethod
    def _backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, output, total, sink, *rest = ctx.saved_tensors
        strips: Strips = ctx.strips
        work, (slope,) = strips.work, upstream
        slope = materialised(slope.to(q.dtype))
        learned = ctx.learned
        of_keys = (zeros_of_keys(x, work.strips) if learned else zeros(x) for x in (k, v))
        totals = [torch.zeros_like(q), *of_keys]
        mean = (slope * output).sum(-1, keepdim=True, dtype=total.dtype)
        of_rest = [zeros(x) for x in rest]
        prepared, parameters = rest[: ctx.biased], rest[ctx.biased :]
        of_bias: tuple[list[Tensor], ...] = (of_rest[: ctx.biased], [], of_rest[ctx.biased :])
        space = Space()
        for strip in work.strips:
            one, two, three = sides_in(strip, work, q, k, v)
            rows = strip.tile.rows
            graph = None
            if not work.score.acceleration.inner_product:
                graph = Graph.of(work, strip, prepared, [], parameters)
            bias = None if graph is None else graph.scores
            table = full(strips.table(strip, bias, q), one, two)
            given, logs = slope[..., rows, :], total[..., rows]
            sides = given, one, two, three
            if learned and not on_gpu(q):
                assert table is not None
                more = (table, logs, mean[..., rows, :])
                of_queries, of_scores, weights = explicit(space, strips.scale, *sides, *more)
                add_to_keys(totals[1], strip, work.context, of_scores, one, strips.scale)
                add_to_keys(totals[2], strip, work.context, weights, given)
            else:
                found = strips.backward(sides, table, output[..., rows, :], logs, learned)
                of_queries, *_, of_scores = found
                for place in (1, 2):
                    add(totals[place], strip, -1, work.context, found[place])
            if graph is not None and learned:
                graph.send(of_scores.view(*strips.batch, *of_scores.shape[-2:]), of_bias)
            totals[0][..., rows, :] = of_queries
        of_sink = None
        if sink is not None and ctx.needs_input_grad[5]:
            nothing = (sink[..., 0].to(total.dtype) - total).exp_()
            of_sink = -(nothing.unsqueeze(-1) * mean).sum(-2, keepdim=True).to(sink.dtype)
        return (None, None, *rounded(totals, (q, k, v)), of_sink, *rounded(of_rest, rest))


def explicit(
    space: Space,
    scale: float,
    upstream: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    logs: Tensor,
    mean: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a strip's queries and scores, and its weights, by three products.

    The last two are in buffers that the next call overwrites.
    """
    size = torch.Size([*queries.shape[:-1], keys.shape[-2]])
    scores, of_scores = (space.room(place, size, queries) for place in (0, 1))
    torch.matmul(queries * scale, keys.mT, out=scores)
    torch.matmul(upstream, values.mT, out=of_scores)
    weigh(table, logs, mean, scores, of_scores)
    return (of_scores @ keys).mul_(scale), of_scores, scores


def sides_in(strip: Strip, work: Work, *sides: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries, keys and values of a strip."""
    queries, *others = sides
    (one,) = pick([queries], strip, -2, work.context)
    two, three = pick(others, strip, -1, work.context)
    return one, two, three


def full(table: Tensor | None, one: Tensor, two: Tensor) -> Tensor | None:
    """Return a table with a number for each pair of a strip, of two or four axes; not a copy."""
    if table is None:
        return None
    table = table.expand(*table.shape[:-2], one.shape[-2], two.shape[-2])
    return table if table.ndim in (2, 4) else table[(None,) * (4 - table.ndim)]
