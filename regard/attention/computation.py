"""Compute a call of `attend`: check, sanitize, prepare, plan and run it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from regard.attention.arguments import Arguments, places, shape_of_scores
from regard.attention.attended import Attended, sources_of
from regard.attention.cache import KeyValueCache
from regard.attention.call import Call
from regard.attention.kernels import choose, dot, exact
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.flash import by_strips
from regard.attention.kernels.summary import Summary, summarize
from regard.attention.kernels.tiled import tiled
from regard.attention.kernels.triton import available
from regard.attention.mask_context import MaskContext
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Prepared, as_tuple
from regard.attention.sanitize import centred, is_finite, nonfinite_rows, sanitize
from regard.attention.score import Score
from regard.attention.tracing import on_cpu, readable, transformed, without_numbers
from regard.core.errors import RegardError

#: The wider dtype in which a score is computed if `needs_upcast` is true.
FINER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}


@dataclass(frozen=True)
class Computation:
    """A prepared call with its plan, output dtype, autocast state and source tensors."""

    call: Call
    plan: choose.Plan
    dtype: torch.dtype
    cast: tuple[bool, torch.dtype]
    sources: Sequence[Tensor]

    @classmethod
    def of(cls, arguments: Arguments) -> "Computation":
        """Check, sanitize, prepare and plan the arguments of `attend`."""
        score, normalizer, mask, heads = arguments.parts()
        cache = arguments.cache
        if cache is not None and cache.filled:
            arguments = arguments.without_keys()
        queries, keys, values = arguments.queries, arguments.keys, arguments.values
        m = keys.shape[-2] + (0 if cache is None else cache.length)
        if mask is not None and cache is None and arguments.key_positions is None and on_cpu(keys):
            mask.must_fit(m)
        rows, columns = places(queries, keys, m, arguments.query_positions, arguments.key_positions)
        kind = mask.kind if mask else None
        by_default = arguments.query_positions is arguments.key_positions is None
        if kind == "causal" and not (by_default and rows.shape[-1] == m):
            kind = "pairs"
        sources = sources_of(queries, keys, values, rows, columns, score, normalizer)
        shape = shape_of_scores(queries, keys, values, m, heads)
        counted = (m - rows.shape[-1], 0) if by_default and m and cache is None else None
        context = MaskContext(mask, kind, rows, columns, heads, shape, counted)
        if cache is None:
            call = prepared(arguments, score, normalizer, context)
        else:
            call = prepared_with_cache(arguments, score, normalizer, context, cache)
        if score.acceleration.inner_product and normalizer.scales and readable(queries):
            call = scaled(call)
        cast = autocasting(queries.device.type)
        if score.acceleration.needs_upcast(score, call.queries, None):
            cast = False, cast[1]  # autocast would undo the upcast
        plan = choose.plan(properties(call, queries, keys))
        if readable(queries):
            choose.warn_if_not_taken(plan)
        return cls(call, plan, values.dtype, cast, sources)

    def casting(self) -> AbstractContextManager[object]:
        """Return a context with the autocast state of the original call."""
        device = self.call.values.device.type
        if autocasting(device) == self.cast:
            return nullcontext()
        return torch.autocast(device, self.cast[1], self.cast[0])

    def run(self) -> Attended:
        """Compute the output by the plan; weights and summary are computed on request."""
        call, context, weigh = self.call, self.call.context, self.weigh
        with self.casting():
            if self.plan.kernel == "exact":
                weights, dropout = self._weights(), Dropout.drawn(call.dropout, call.values)
                output = exact.average(call, weights, dropout)
                weigh = partial(self._narrow, weights)
            elif self.plan.kernel == "tiled":
                output = tiled(call, self.plan, Dropout.drawn(call.dropout, call.values))
            elif self.plan.kernel == "triton":
                from regard.attention.kernels.triton import launch  # loads torch's tracer

                output = launch.attended(call, Dropout.drawn(call.dropout, call.values))
            elif self.plan.by_strips:
                output = by_strips(call, self.plan)
            else:
                output = dot.plain(call) if self.plan.kernel == "plain" else dot.fused(call)
        output, heads = output.to(self.dtype), context.heads
        return Attended(output, weigh, self.summarize, self.sources, context.shape, heads)

    def summarize(self, top: int) -> Summary:
        """Summarize the weights strip by strip.

        Raise a RegardError for tensors whose numbers cannot be read.
        """
        if not readable(self.call.values):
            raise RegardError(
                "summary() reads numbers, which are not available under torch.compile, "
                "torch.export, torch.func or on the meta device; read .weights there, or "
                "summarize an eager call"
            )
        with self.casting():
            return summarize(self.call, self.plan, top)

    def weigh(self) -> Tensor:
        """Compute all weights, before dropout."""
        return self._narrow(self._weights())

    def _weights(self) -> Tensor:
        with self.casting():
            weights, shape = exact.weights(self.call), self.call.context.shape
        # A score of positions alone has no batch axes.
        return weights if weights.shape == shape else weights.expand(shape)

    def _narrow(self, weights: Tensor) -> Tensor:
        """Return weights that were computed in float64 in the dtype of the output, or float32."""
        same = weights.dtype != torch.float64
        return weights if same else weights.to(torch.promote_types(self.dtype, torch.float32))


def prepared(
    arguments: Arguments, score: Score, normalizer: Normalizer, context: MaskContext
) -> Call:
    """Prepare queries and keys, sanitized where necessary, in a dtype of sufficient precision."""
    queries, keys, values, nonfinite = arguments.queries, arguments.keys, arguments.values, None
    mask, acceleration = context.mask, score.acceleration
    # Finite numbers in hidden rows do no harm; checking for them on a CPU costs 1 % of the call.
    # Without a mask, a translation-invariant score subtracts one key from all rows.
    spreads = mask is not None or (acceleration.translation_invariant and on_cpu(queries))
    if spreads and not (on_cpu(queries) and is_finite(queries, keys, values)):
        queries, raw, values, nonfinite = sanitize(queries, keys, values, context)
        keys = first(raw)
    if acceleration.translation_invariant:
        queries, keys = centred(queries, keys, context)
    rows, columns = context.positions
    q, k = score.prepare_queries(queries, rows), score.prepare_keys(keys, columns)
    # Read the numbers only if all queries see the same keys: otherwise a later number would
    # change bits of earlier results.
    same_keys = context.kind in (None, "keys")
    if acceleration.needs_upcast(score, q, k if same_keys else None):
        finer = FINER[queries.dtype]
        q = score.prepare_queries(queries.to(finer), rows)
        k, values = score.prepare_keys(keys.to(finer), columns), values.to(finer)
    return Call(q, k, values, score, normalizer, context, nonfinite, arguments.dropout)


def scaled(call: Call) -> Call:
    """Return the same call with the factors of a `Scaled` normaliser in the queries.

    The rest is its inner normaliser, which may be softmax and so served by torch's kernel.
    """
    queries, normalizer = call.queries, call.normalizer
    if not isinstance(queries, Tensor) or not call.context.shape.numel():
        return call
    factor: Tensor = normalizer.factor(call.context.counts.clamp(min=1))  # type: ignore[operator]
    inner: Normalizer = normalizer.inner  # type: ignore[assignment]
    return replace(call, queries=factor.to(queries.dtype) * queries, normalizer=inner)


def prepared_with_cache(
    arguments: Arguments,
    score: Score,
    normalizer: Normalizer,
    context: MaskContext,
    cache: KeyValueCache,
) -> Call:
    """Prepare the queries, and the new keys together with those in the cache.

    Later keys must not change earlier results, so only the first key and the dtype decide how.
    """
    queries, keys, values, acceleration = (
        arguments.queries,
        arguments.keys,
        arguments.values,
        score.acceleration,
    )
    rows, columns = context.positions
    if acceleration.translation_invariant:
        seen = None
        if context.mask is not None and not len(cache):
            seen = context.seen
            if context.heads and seen.ndim > 1:  # by any head: there may be fewer key heads
                seen = seen.any(-2, keepdim=True)
        queries, keys = cache.centred(queries, keys, seen)
    q = score.prepare_queries(queries, rows)
    if acceleration.needs_upcast(score, q, None):
        finer = FINER[queries.dtype]
        queries, keys, values = queries.to(finer), keys.to(finer), values.to(finer)
        q = score.prepare_queries(queries, rows)
    if cache.fixed and not len(cache):
        k = prepared_once(keys, score, columns)
    else:
        k = score.prepare_keys(keys, columns)
    if on_cpu(queries) and not cache.filled:
        cache.finite = cache.finite and is_finite(*as_tuple(k), values)
    k, values, all_columns = cache.append(k, values, context.columns)
    context, nonfinite = context.over(all_columns), None
    if not (on_cpu(queries) and cache.finite and is_finite(queries)):
        queries, k, values, nonfinite = sanitize(queries, k, values, context)
        q = score.prepare_queries(queries, rows)
    return Call(q, k, values, score, normalizer, context, nonfinite, arguments.dropout)


def prepared_once(keys: Tensor, score: Score, positions: Tensor) -> Prepared:
    """Prepare the keys of a fixed cache; rows that are not finite become NaN without a gradient.

    Padding may hold NaN, and a later call may see other rows: so they stay NaN until they are
    sanitized under each call's mask, but never reach the gradients of the score's parameters.
    """
    if on_cpu(keys) and is_finite(keys):
        return score.prepare_keys(keys, positions)
    bad = nonfinite_rows(keys)
    prepared = score.prepare_keys(keys.masked_fill(bad, 0), positions)
    sides = tuple(
        x.masked_fill(bad, torch.nan) if x.is_floating_point() else x for x in as_tuple(prepared)
    )
    return sides if isinstance(prepared, tuple) else sides[0]


def properties(call: Call, queries: Tensor, keys: Tensor) -> choose.Properties:
    """Return the properties that a plan depends on; queries and keys are those of the caller."""
    score, normalizer, context = call.score, call.normalizer, call.context
    acceleration, prepared = score.acceleration, first(call.queries)
    return choose.Properties(
        inner_product=acceleration.inner_product,
        normalize=normalizer.name,
        shape=context.shape,
        mask=context.kind,
        dtype=prepared.dtype,
        device=prepared.device.type,
        dropout=call.dropout,
        finite=call.nonfinite is None,
        numbers_per_pair=acceleration.numbers_per_pair(score, call.keys),
        hidden=first(call.keys).shape[-1],
        additive=acceleration.additive,
        linear=acceleration.linear,
        decays=acceleration.decays,
        searches=normalizer.searches,
        asked=choose.asked(),
        graph=without_numbers(queries),
        transformed=transformed(queries, keys, call.values, score, normalizer),
        triton=no_triton_tile(call),
    )


def no_triton_tile(call: Call) -> str | None:
    """Return why a call has no Triton tile, "" if it has one; None where that is not the question.

    That is where Triton does not run, where torch's kernels serve, and for small calls.
    """
    device, asked = call.values.device.type, choose.asked()
    if not available(device) or not readable(call.values) or asked not in (None, "triton"):
        return None
    if asked is None:
        pairs, known = call.context.shape.numel(), choose.constants().on(device)
        acceleration, name = call.score.acceleration, call.normalizer.name
        if not call.dropout and (name == "softmax" or name in choose.SINKS):
            products, by_pairs = acceleration.inner_product, call.context.kind == "pairs"
            if acceleration.linear and not (products and by_pairs and name == "softmax"):
                return None
        if pairs <= known.exact_pairs:
            return None
    from regard.attention.kernels.triton import launch  # loads torch's tracer

    return launch.refusal(call) or ""


def autocasting(device: str) -> tuple[bool, torch.dtype]:
    """Return whether autocast is enabled on a device, and its dtype."""
    if device == "meta":  # torch has no autocast for it
        return False, torch.float32
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def first(prepared: Prepared) -> Tensor:
    """Return the first tensor of a prepared side."""
    return as_tuple(prepared)[0]
