"""A call of attention: checked, placed, sanitized, prepared, planned, computed."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.attention.attended import Attended, sources_of
from regard.attention.cache import KeyValueCache
from regard.attention.kernels import choose, dot, exact
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.summary import Summary, summarize
from regard.attention.kernels.tiled import tiled
from regard.attention.mask import Mask, as_mask
from regard.attention.mask_context import MaskContext, over_heads, seen_of
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import NORMALIZERS, TopK
from regard.attention.prepared import Prepared, as_tuple, repeat_all_kv, repeat_kv
from regard.attention.sanitize import NonFinite, centred, is_finite, sanitize
from regard.attention.score import Score
from regard.attention.scores import SCORES
from regard.attention.tracing import on_cpu, readable, transformed, without_numbers
from regard.errors import RegardError, look_up
from regard.parts import a, is_part, load_part

#: Where a score would lose its digits, it is computed in these.
FINER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
}


@dataclass(frozen=True)
class Call:
    """A call of :func:`attend` that has been checked, and what it is computed from.

    ``queries``, ``keys`` and ``values`` are sanitized: what was not finite is 0.
    """

    queries: Prepared
    keys: Prepared
    values: Tensor
    score: Score
    normalizer: Normalizer
    context: MaskContext
    nonfinite: NonFinite | None
    dropout: float
    plan: choose.Plan
    dtype: torch.dtype
    cast: tuple[bool, torch.dtype]
    sources: Sequence[Tensor]

    @classmethod
    def of(
        cls,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        score: Score | str,
        mask: Mask | Tensor | None,
        normalize: str | Normalizer,
        dropout: float,
        query_positions: Tensor | None,
        key_positions: Tensor | None,
        heads: int | None,
        cache: KeyValueCache | None,
    ) -> "Call":
        """Check, place, sanitize, prepare, plan."""
        must_be_tensors(queries=queries, keys=keys, values=values)
        if query_positions is not None or key_positions is not None:
            given = {"query_positions": query_positions, "key_positions": key_positions}
            must_be_tensors(**{name: x for name, x in given.items() if x is not None})
        score = score_named(score, queries, keys, heads)
        acceleration = score.acceleration
        heads, mask = heads or score.heads, as_mask(mask)
        normalizer = named(normalize, heads)
        check(queries, keys, values, score, dropout, heads)
        m = keys.shape[-2] + (0 if cache is None else len(cache))
        if cache is not None and cache.fixed and len(cache):
            m = len(cache)  # it takes no others
        if mask is not None and cache is None and key_positions is None and on_cpu(keys):
            mask.must_fit(m)
        rows, columns = places(queries, keys, m, query_positions, key_positions)
        kind = mask.kind if mask else None
        by_default = query_positions is key_positions is None
        if kind == "causal" and not (by_default and rows.shape[-1] == m):
            kind = "pairs"
        sources = sources_of(queries, keys, values, rows, columns, score, normalizer)
        dtype, cast = values.dtype, autocasting(queries.device.type)
        ready_queries: Prepared | None = None
        ready_keys: Prepared | None = None
        if cache is not None:
            positions = over_heads(rows, heads), over_heads(columns, heads)
            seen = None
            if mask is not None and acceleration.translation_invariant and not len(cache):
                seen = seen_of(mask.over_heads() if heads else mask, rows, columns)
                if heads and seen.ndim > 1:  # by some head: keys may be of fewer
                    seen = seen.any(-2, keepdim=True)
            sides = remembered(score, cache, queries, keys, values, positions, seen)
            queries, ready_queries, new_keys, values = sides
            ready_keys, values, columns = cache.append(new_keys, values, columns)
        shape = shape_of_scores(queries, keys, m, heads)
        context, nonfinite = MaskContext(mask, kind, rows, columns, heads, shape), None
        # Finite numbers that nobody may see do no harm; on a CPU finding out costs 1 % of the call.
        # Without a mask one key is subtracted from all where only differences matter.
        spreads = mask is not None or (acceleration.translation_invariant and on_cpu(queries))
        if spreads and cache is None and not (on_cpu(queries) and is_finite(queries, keys, values)):
            queries, raw, values, nonfinite = sanitize(queries, keys, values, context)
            keys = first(raw)
        if cache is not None and ready_keys is not None and ready_queries is not None:
            if not (on_cpu(queries) and cache.finite and is_finite(queries)):
                queries, ready_keys, values, nonfinite = sanitize(
                    queries, ready_keys, values, context
                )
                ready_queries = score.prepare_queries(queries, context.positions[0])
        else:
            if acceleration.translation_invariant:
                queries, keys = centred(queries, keys, context)
            ready_queries, ready_keys = prepare(score, queries, keys, context)
            # By the numbers themselves only where all queries see the same keys: else a number
            # that comes later would change bits of what came before.
            alike = kind in (None, "keys")
            if acceleration.needs_upcast(score, ready_queries, ready_keys if alike else None):
                finer = FINER[queries.dtype]
                ready_queries, ready_keys = prepare(
                    score, queries.to(finer), keys.to(finer), context
                )
                values = values.to(finer)
        if acceleration.needs_upcast(score, ready_queries, None):
            cast = False, cast[1]  # autocast would round what was just made finer
        plan = choose.plan(
            inner_product=acceleration.inner_product,
            normalize=normalizer.name,
            shape=context.shape,
            mask=kind,
            dtype=first(ready_queries).dtype,
            device=first(ready_queries).device.type,
            dropout=dropout,
            finite=nonfinite is None,
            numbers_per_pair=acceleration.numbers_per_pair(score, ready_keys),
            hidden=first(ready_keys).shape[-1],
            additive=acceleration.additive,
            linear=acceleration.linear,
            searches=normalizer.searches,
            asked=choose.asked(),
            graph=without_numbers(queries),
            transformed=transformed(queries, keys, values, score, normalizer),
        )
        if readable(queries):
            choose.tell_if_not_taken(plan)
        return cls(
            ready_queries,
            ready_keys,
            values,
            score,
            normalizer,
            context,
            nonfinite,
            dropout,
            plan,
            dtype,
            cast,
            sources,
        )

    def casting(self) -> AbstractContextManager[object]:
        """Inside, autocast is as it was when the call was made."""
        device = self.values.device.type
        if autocasting(device) == self.cast:
            return nullcontext()
        return torch.autocast(device, self.cast[1], self.cast[0])

    def run(self) -> Attended:
        """Compute it, by its plan."""
        with self.casting():
            return self.computed()

    def computed(self) -> Attended:
        """The output, by its plan; the weights for who asks."""
        weigh, heads = self.weigh, self.context.heads
        if self.plan.kernel == "exact":
            weights, dropout = weigh(), Dropout.drawn(self.dropout, self.values)
            allowed = self.context.allowed
            output = exact.average(weights, self.values, heads, allowed, self.nonfinite, dropout)
            weigh = partial(_as_computed, weights)
        elif self.plan.kernel == "tiled":
            output = tiled(
                self.queries,
                repeat_all_kv(self.keys, heads),
                repeat_kv(self.values, heads),
                self.score,
                self.normalizer,
                self.context,
                Dropout.drawn(self.dropout, self.values),
                self.nonfinite,
                self.plan.sizes,
                self.plan.compiled,
            )
        else:
            output = self.by_dot()
        output, shape = output.to(self.dtype), self.context.shape
        return Attended(output, weigh, self.summarize, self.sources, shape, heads)

    def summarize(self, top: int) -> Summary:
        """The weights, summed up strip by strip. Errors: numbers that cannot be read."""
        if not readable(self.values):
            raise RegardError(
                "summary() reads numbers, which torch.compile, torch.export, torch.func and the "
                "meta device do not show: read .weights there, or sum up an eager call"
            )
        heads, sizes, compiled = self.context.heads, self.plan.sizes, self.plan.compiled
        keys, context = repeat_all_kv(self.keys, heads), self.context
        with self.casting():
            return summarize(
                self.queries,
                keys,
                self.score,
                self.normalizer,
                context,
                self.nonfinite,
                sizes,
                compiled,
                top,
            )

    def weigh(self) -> Tensor:
        """The weights, whole, before dropout."""
        context = self.context
        with self.casting():
            found = exact.weights(
                self.queries,
                self.keys,
                context.positions,
                self.score,
                self.normalizer,
                context.heads,
                context.allowed,
                self.nonfinite,
            )
        # A score of positions alone says the same for every text.
        return found if found.shape == context.shape else found.expand(context.shape)

    def by_dot(self) -> Tensor:
        """The output of an inner product with softmax."""
        queries, keys, context = self.queries, self.keys, self.context
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        scale = self.score.acceleration.scale(self.score, queries.shape[-1])
        heads = context.heads
        if self.plan.kernel == "plain":
            return dot.plain(queries, keys, self.values, scale, heads, context.allowed)
        causal = context.kind == "causal"
        allowed = None if causal else context.allowed
        return dot.fused(queries, keys, self.values, scale, heads, allowed, causal)


def remembered(
    score: Score,
    cache: KeyValueCache,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: tuple[Tensor, Tensor],
    seen: Tensor | None,
) -> tuple[Tensor, Prepared, Prepared, Tensor]:
    """Queries, they and the new keys made ready, and the new values, as the cache keeps them.

    What comes later must not change what came before: so by the first key and by the dtype alone.
    """
    acceleration = score.acceleration
    if acceleration.translation_invariant:
        queries, keys = cache.centred(queries, keys, seen)
    ready = score.prepare_queries(queries, positions[0])
    if acceleration.needs_upcast(score, ready, None):
        finer = FINER[queries.dtype]
        queries, keys, values = queries.to(finer), keys.to(finer), values.to(finer)
        ready = score.prepare_queries(queries, positions[0])
    ready_keys = score.prepare_keys(keys, positions[1])
    if on_cpu(queries) and not (cache.fixed and len(cache)):
        cache.finite = cache.finite and is_finite(*as_tuple(ready_keys), values)
    return queries, ready, ready_keys, values


def must_be_tensors(**given: object) -> None:
    """Errors: a list, an array or anything else where a tensor is asked for, by its name."""
    for what, x in given.items():
        if x is None:
            raise RegardError(f"{what} are a tensor, not None")
        if not isinstance(x, Tensor):
            raise RegardError(
                f"{what} are a tensor, not {a(type(x).__name__)}: give torch.as_tensor({what})"
            )


def _as_computed(weights: Tensor) -> Tensor:
    return weights


def autocasting(device: str) -> tuple[bool, torch.dtype]:
    """Whether torch rounds products here, and to what."""
    if device == "meta":  # which torch has no autocast for
        return False, torch.float32
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def places(
    queries: Tensor, keys: Tensor, m: int, rows: Tensor | None, columns: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Positions as given, or the last of m: of the keys at hand, and of the queries."""
    n, new = queries.shape[-2], keys.shape[-2]
    same = rows is None and n == new
    if columns is None:
        columns = torch.arange(m - new, m, device=queries.device)
        rows = columns if same else rows
    if rows is None:
        rows = torch.arange(m - n, m, device=queries.device)
    return rows, columns


def prepare(
    score: Score, queries: Tensor, keys: Tensor, context: MaskContext
) -> tuple[Prepared, Prepared]:
    """Both sides, made ready once per row."""
    rows, columns = context.positions
    return score.prepare_queries(queries, rows), score.prepare_keys(keys, columns)


def first(prepared: Prepared) -> Tensor:
    """The first tensor of what a prepare method gave."""
    return as_tuple(prepared)[0]


def named(normalize: str | Normalizer, heads: int | None = None) -> Normalizer:
    """A normaliser, by name ("top-k-4" says how many), as the user's ``FILE.py:Name``, or as it is.

    >>> named("top-k-4").k
    4
    """
    if isinstance(normalize, Normalizer):
        return normalize
    if not isinstance(normalize, str):
        raise RegardError(f"a normalizer is a Normalizer or the name of one, not {normalize!r}")
    if is_part(normalize):
        own: type[Normalizer] = load_part(normalize, Normalizer, "normalizer")
        return own(heads)
    base, _, number = normalize.rpartition("-")
    if base == TopK.name and number.isdecimal():
        return TopK(heads, k=int(number))
    return look_up(NORMALIZERS, normalize, "normalizer")(heads)


def score_named(score: Score | str, queries: Tensor, keys: Tensor, heads: int | None) -> Score:
    """Return a score as it is, or one without parameters by its name."""
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise RegardError(f"a score is a Score, as make_score('dot') makes one, not {score!r}")
    length = max(queries.shape[-2:-1] + keys.shape[-2:-1], default=1)
    kind = look_up(SCORES, score, "score")
    widths = [x.shape[-1] if x.ndim else None for x in (queries, keys)]
    made = kind(*widths, heads=heads, length=length)
    if next(made.parameters(), None) is not None:
        raise RegardError(
            f"{score} has parameters, which every call by name would make anew: make it once, by "
            f"make_score({score!r}, query_width={widths[0]}, key_width={widths[1]})"
        )
    return made


def check(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    dropout: float,
    heads: int | None,
) -> None:
    """Refuse what cannot be attended to, in words."""
    if not 0 <= dropout < 1:
        raise RegardError(f"dropout is a share of the weights from 0 up to 1, not {dropout}")
    if min(queries.ndim, keys.ndim, values.ndim) < 2:
        shapes = ", ".join(str(tuple(x.shape)) for x in (queries, keys, values))
        raise RegardError(f"queries, keys and values are (*batch, rows, width), not {shapes}")
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(f"{keys.shape[-2]} keys came with {values.shape[-2]} values")
    score.check(queries.shape[-1], keys.shape[-1])
    if heads is None:
        return
    if score.heads not in (None, heads):
        raise RegardError(f"the score was made for heads={score.heads}; the call has {heads}")
    if min(queries.ndim, keys.ndim, values.ndim) < 3 or queries.shape[-3] != heads:
        raise RegardError(
            f"a score for {heads} heads takes (*batch, {heads}, n, width), "
            f"not queries of shape {tuple(queries.shape)}"
        )
    groups = keys.shape[-3]
    if not groups or heads % groups or values.shape[-3] != groups:
        raise RegardError(
            f"{heads} heads of queries cannot share {groups} heads of keys and "
            f"{values.shape[-3]} of values"
        )


def shape_of_scores(queries: Tensor, keys: Tensor, m: int, heads: int | None) -> torch.Size:
    """(\\*batch, n, m), with all of the queries' heads."""
    batch = keys.shape[:-2]
    if heads is not None:
        batch = torch.Size([*batch[:-1], heads])
    try:
        if queries.shape[:-2] != batch:  # broadcast_shapes takes 40 microseconds
            batch = torch.broadcast_shapes(queries.shape[:-2], batch)
    except RuntimeError:
        raise RegardError(
            f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} have batch axes that do "
            "not broadcast"
        ) from None
    return torch.Size([*batch, queries.shape[-2], m])
