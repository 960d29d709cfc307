"""Any score × mask × normaliser × dropout in O(n) memory: strips of rows, and a backward that
computes them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.kernels.compiled import compiling
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.exact import Faults, spoilt
from regard.attention.kernels.strips import (
    Sizes,
    Strip,
    add,
    add_product,
    count,
    part,
    pick,
    put,
    strips_of,
    taken,
    where_of,
)
from regard.attention.masks import Tile
from regard.attention.normalizers import Normalizer
from regard.attention.score import Prepared, Score, Where, as_tuple, spread
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.attention.attend import Sight


@dataclass(frozen=True)
class Work:
    """What a call computes, but for its tensors."""

    score: Score
    normalizer: Normalizer
    sight: "Sight"
    strips: Sequence[Strip]
    sizes: Sizes
    dropout: Dropout | None
    faults: Faults | None
    compiled: bool
    parts: tuple[int, int]  # tensors of prepared queries and keys; then come parameters
    tuples: tuple[bool, bool]  # whether prepared queries and keys are tuples


def tiled(
    queries: Prepared,
    keys: Prepared,
    values: Tensor,
    score: Score,
    normalizer: Normalizer,
    sight: "Sight",
    dropout: Dropout | None,
    faults: Faults | None,
    sizes: Sizes,
    compiled: bool,
) -> Tensor:
    """normalize(score(q, k)) v for prepared queries and keys, (\\*batch, n, value_width).

    Keys and values have all of the queries' heads. Differentiable once, in the prepared queries
    and keys, the values, and the parameters of score and normaliser.
    """
    batch = torch.broadcast_shapes(values.shape[:-2], sight.shape[:-2])
    work, ours, theirs = work_of(
        queries,
        keys,
        score,
        normalizer,
        sight,
        dropout,
        faults,
        sizes,
        compiled,
        split=batch == sight.shape[:-2],
    )
    parameters = [*score.parameters(), *normalizer.parameters()]
    if torch.is_grad_enabled():
        refuse_captured(work, queries, keys)
    output: Tensor = _Tiled.apply(  # type: ignore[no-untyped-call]
        work, values, *ours, *theirs, *parameters
    )
    return output


def work_of(
    queries: Prepared,
    keys: Prepared,
    score: Score,
    normalizer: Normalizer,
    sight: "Sight",
    dropout: Dropout | None,
    faults: Faults | None,
    sizes: Sizes,
    compiled: bool,
    *,
    split: bool = True,
) -> tuple[Work, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The work, and the tensors of prepared queries and keys; ``split``: the batch may be cut."""
    alike = score.inner_product and not [*normalizer.parameters(), *normalizer.buffers()]
    ours, theirs = as_tuple(queries), as_tuple(keys)
    if faults is not None:
        bad_keys = spread(faults.keys[..., None], sight.heads)[..., 0]
        faults = Faults(faults.queries, bad_keys, spread(faults.values, sight.heads))
    work = Work(
        score,
        normalizer,
        sight,
        strips_of(sight, sizes, split, alike),
        sizes,
        dropout,
        faults,
        compiled,
        (len(ours), len(theirs)),
        (isinstance(queries, tuple), isinstance(keys, tuple)),
    )
    return work, ours, theirs


def refuse_captured(work: Work, queries: Prepared, keys: Prepared) -> None:
    """Whatever compare needs a gradient for comes from prepare or is a registered parameter."""
    if not work.strips:
        return
    batch, tile, _ = work.strips[0]
    corner = Tile(slice(tile.rows.start, tile.rows.start + 1), taken(tile.columns, slice(0, 1)))
    place = Strip(batch, corner, False)
    with torch.enable_grad():
        scores = call(
            work,
            [x.detach() for x in pick(as_tuple(queries), place, -2, work.sight)],
            [x.detach() for x in pick(as_tuple(keys), place, -1, work.sight)],
            where_of(work.sight, place),
            [x.detach() for x in work.score.parameters()],
        )
    if scores is not None and scores.requires_grad:
        raise RegardError(
            f"{type(work.score).__name__}.compare uses a tensor that needs a gradient and is "
            "neither a registered parameter nor from prepare_queries or prepare_keys: make it an "
            "nn.Parameter of the score"
        )


class _Tiled(torch.autograd.Function):
    """Strips forward, strips again backward."""

    @staticmethod
    def forward(ctx: Any, work: Work, values: Tensor, *tensors: Tensor) -> Tensor:
        ours, theirs, _ = split(work, tensors)
        shape = torch.broadcast_shapes(work.sight.shape[:-2], values.shape[:-2])
        output = values.new_zeros(*shape, work.sight.shape[-2], values.shape[-1])
        kept: list[tuple[Tensor, ...]] = []
        space = Space()
        with compiling(work.compiled):
            for strip in work.strips:
                scores, allowed = scores_of(work, strip, ours, theirs, space)
                statistics = work.normalizer.statistics(scores)
                weights = work.normalizer.weights(scores, statistics)
                used = dropped(work, strip, weights)
                seen = pick([values], strip, -1, work.sight)[0]
                made = used.to(values.dtype) @ seen
                if work.faults is not None:
                    bad = spoilt(faults_of(work.faults, strip, work.sight), None, allowed)
                    made = made.masked_fill(bad, torch.nan)
                put(output, strip, work.sight).copy_(made)
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
        if torch.is_grad_enabled():
            raise RegardError(
                "the tiled kernel is differentiable once; for second derivatives compute inside "
                "`with regard.attention.use('exact'):`"
            )
        values, *tensors = ctx.saved_tensors
        enabled, dtype = ctx.cast
        with (
            compiling(ctx.work.compiled),
            torch.autocast(values.device.type, dtype, enabled),
        ):
            return None, *backward(ctx.work, ctx.kept, values, tensors, upstream[0])


def backward(
    work: Work,
    kept: Sequence[tuple[Tensor, ...]],
    values: Tensor,
    tensors: Sequence[Tensor],
    upstream: Tensor,
) -> list[Tensor]:
    """Gradients of the values and of all tensors, strip by strip."""
    ours, theirs, rest = split(work, tensors)
    of_score = len(list(work.score.parameters()))
    of_values, found = torch.zeros_like(values), [torch.zeros_like(x) for x in tensors]
    to_ours, to_theirs, to_rest = split(work, found)
    space = Space()
    for strip, statistics in zip(work.strips, kept, strict=True):
        # Where a score holds many numbers a pair, its columns are computed some at a time, and
        # once more for their gradient; else once, and the graph is kept.
        parts = parts_of(work, strip, ours, theirs)
        graph = None
        if len(parts) == 1:
            graph = Graph.of(work, strip, ours, theirs, rest[:of_score])
        if graph is not None and work.score.linear:
            mine = joined(graph.leaves[0], work.tuples[0])
            made = product_of(work, strip, mine, theirs, space, graph.scores)
            scores, _ = masked(work, strip, made)
        elif graph is None:
            scores, _ = scores_of(work, strip, ours, theirs, space)
        else:
            assert graph.scores is not None
            scores, _ = masked(work, strip, graph.scores.detach())
        weights = work.normalizer.weights(scores, statistics)
        given = put(upstream, strip, work.sight)
        if work.faults is not None:
            allowed = None if strip.whole else allowed_in(work, strip)
            bad = spoilt(faults_of(work.faults, strip, work.sight), None, allowed)
            given = given.masked_fill(bad, 0)
        seen, gathered = pick([values], strip, -1, work.sight)[0], values.dtype
        of_weights = space.product(1, given.to(gathered), seen.mT).to(scores.dtype)
        used = weights
        if work.dropout is not None:
            factors = factors_of(work, strip, weights)
            of_weights, used = of_weights * factors, weights * factors
        if of_weights.shape != weights.shape:  # values of more batches than the scores
            of_weights = of_weights.sum_to_size(weights.shape)
        add_product(of_values, strip, -1, work.sight, used.to(gathered).mT, given.to(gathered))
        of_scores, *more = work.normalizer.gradient(
            weights, of_weights, scores, statistics, tuple(rest[of_score:])
        )
        for total, found_here in zip(to_rest[of_score:], more, strict=True):
            total += found_here
        del weights, used, of_weights, scores  # room for what follows
        totals = (to_ours, to_theirs, to_rest[:of_score])
        if graph is not None:
            graph.send(of_scores, totals)
            if work.score.linear:
                send_product(work, strip, graph, of_scores, theirs, totals)
        else:
            for chunk, small in parts:
                Graph.of(work, small, ours, theirs, rest[:of_score]).send(
                    of_scores[..., chunk], totals
                )
    return [of_values, *found]


def send_product(
    work: Work,
    strip: Strip,
    graph: "Graph",
    of_scores: Tensor,
    theirs: Sequence[Tensor],
    totals: Sequence[Sequence[Tensor]],
) -> None:
    """Add the gradients of both sides of a linear score's product."""
    query = work.score.product_queries(joined(graph.leaves[0], work.tuples[0]))
    assert isinstance(query, Tensor)
    place = next(i for i, x in enumerate(graph.leaves[0]) if x is query)
    of_scores = of_scores.to(query.dtype) * work.score.scale(query.shape[-1])
    key = pick(theirs[:1], strip, -1, work.sight)[0]
    add_product(totals[0][place], strip, -2, work.sight, of_scores, key)
    add_product(totals[1][0], strip, -1, work.sight, of_scores.mT, query.detach())


@dataclass
class Graph:
    """The scores of a strip with what is needed to send a gradient back through them.

    Of a linear score only what stands beside the product; None if there is nothing.
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
        ours: Sequence[Tensor],
        theirs: Sequence[Tensor],
        parameters: Sequence[Tensor],
    ) -> "Graph":
        """Compute them, with a graph of their own."""
        mine, others = pick(ours, strip, -2, work.sight), pick(theirs, strip, -1, work.sight)
        leaves = [leaf(x) for x in mine], [leaf(x) for x in others], [leaf(x) for x in parameters]
        others_or_none = None if work.score.linear else leaves[1]
        with torch.enable_grad():
            made = call(work, leaves[0], others_or_none, where_of(work.sight, strip), leaves[2])
        return cls(work, strip, leaves, made)

    def send(self, upstream: Tensor, totals: Sequence[Sequence[Tensor]]) -> None:
        """Add the gradients of prepared queries, of keys and of parameters."""
        of = [x for group in self.leaves for x in group if x.requires_grad]
        if self.scores is None or not self.scores.requires_grad or not of:
            return
        upstream = upstream.to(self.scores.dtype)
        if upstream.shape != self.scores.shape:
            upstream = upstream.sum_to_size(self.scores.shape)
        found = iter(torch.autograd.grad(self.scores, of, upstream, allow_unused=True))
        for side, (leaves, of_side) in enumerate(zip(self.leaves, totals, strict=True)):
            for x, total in zip(leaves, of_side, strict=True):
                more = next(found) if x.requires_grad else None
                if more is None:
                    continue
                if side == 2:
                    total += more
                else:
                    add(total, self.strip, side - 2, self.work.sight, more)


class Space:
    """Room that the products of one strip after another are written to, and no new room each time.

    What stands in a place is overwritten by the next product there.
    """

    def __init__(self) -> None:
        self.places: dict[int, Tensor] = {}

    def product(self, place: int, one: Tensor, two: Tensor) -> Tensor:
        """one @ two, in this place."""
        if torch.is_autocast_enabled(one.device.type) or one.dtype != two.dtype:
            return one @ two
        batch = one.shape[:-2]
        if batch != two.shape[:-2]:
            batch = torch.broadcast_shapes(batch, two.shape[:-2])
        shape = torch.Size([*batch, one.shape[-2], two.shape[-1]])
        room = self.places.get(place)
        if room is None or room.numel() < shape.numel():
            room = self.places[place] = one.new_empty(shape.numel())
        return torch.matmul(one, two, out=room[: shape.numel()].view(shape))


def scores_of(
    work: Work,
    strip: Strip,
    ours: Sequence[Tensor],
    theirs: Sequence[Tensor],
    space: Space,
) -> tuple[Tensor, Tensor | None]:
    """The scores of a strip, −inf where the mask hides, and what it allows; without a graph."""
    if work.score.linear:
        rows = pick(ours, strip, -2, work.sight)
        beside = call(work, rows, None, where_of(work.sight, strip))
        asking = joined(rows, work.tuples[0])
        return masked(work, strip, product_of(work, strip, asking, theirs, space, beside))
    made = []
    for _, small in parts_of(work, strip, ours, theirs):
        mine, others = pick(ours, small, -2, work.sight), pick(theirs, small, -1, work.sight)
        found = call(work, mine, others, where_of(work.sight, small))
        assert found is not None
        made.append(found)
    return masked(work, strip, made[0] if len(made) == 1 else torch.cat(made, -1))


def product_of(
    work: Work,
    strip: Strip,
    mine: Prepared,
    theirs: Sequence[Tensor],
    space: Space,
    beside: Tensor | None,
) -> Tensor:
    """The scores of a linear score: scale · q'·k', and what stands beside it."""
    query = work.score.product_queries(mine)
    assert isinstance(query, Tensor)
    query = work.score.scale(query.shape[-1]) * query
    scores = space.product(0, query, pick(theirs[:1], strip, -1, work.sight)[0].mT)
    if beside is None:
        return scores
    beside = beside.detach()
    fits = torch.broadcast_shapes(scores.shape, beside.shape) == scores.shape
    return scores.add_(beside) if fits else scores + beside


def parts_of(
    work: Work, strip: Strip, ours: Sequence[Tensor], theirs: Sequence[Tensor]
) -> list[tuple[slice, Strip]]:
    """The columns that a score compares at once, by place in the strip, and as strips.

    All of them, unless it holds so many numbers a pair that these would outgrow a strip.
    """
    seen = theirs[0].shape[-2] if strip.tile.columns == slice(None) else count(strip.tile.columns)
    held = work.score.numbers_per_pair(joined(theirs, work.tuples[1]))
    if held <= 1:
        return [(slice(0, seen), strip)]
    slices = max(
        part(x, strip.batch, len(work.sight.shape))[..., 0, 0].numel() for x in (ours[0], theirs[0])
    )
    rows = strip.tile.rows.stop - strip.tile.rows.start
    step = max(16, work.sizes.numbers // max(1, slices * rows * held))
    if step >= seen:
        return [(slice(0, seen), strip)]
    chunks = [slice(i, min(i + step, seen)) for i in range(0, seen, step)]
    tile = strip.tile
    return [
        (chunk, strip._replace(tile=Tile(tile.rows, taken(tile.columns, chunk))))
        for chunk in chunks
    ]


def call(
    work: Work,
    mine: Sequence[Tensor],
    others: Sequence[Tensor] | None,
    where: Where,
    parameters: Sequence[Tensor] = (),
) -> Tensor | None:
    """The scores of prepared queries and keys, with these parameters if there are any.

    Without keys, what stands beside the product of a linear score.
    """
    theirs = None if others is None else joined(others, work.tuples[1])
    given = (joined(mine, work.tuples[0]), theirs, where)
    made: Tensor | None
    if parameters:
        named = dict(zip((n for n, _ in work.score.named_parameters()), parameters, strict=True))
        made = torch.func.functional_call(work.score, named, given)
    else:
        made = work.score(*given)
    return made


def masked(work: Work, strip: Strip, scores: Tensor) -> tuple[Tensor, Tensor | None]:
    """−inf where the mask hides; over the whole batch, in a dtype that sums well."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    sight = work.sight
    shape = list(sight.shape[:-2])
    shape[: len(strip.batch)] = [x.stop - x.start for x in strip.batch]
    full = (*shape, *scores.shape[-2:])
    if scores.shape != full:
        scores = scores.expand(full)
    if strip.whole:
        return scores, None
    allowed = allowed_in(work, strip)
    return scores.masked_fill(~allowed, -torch.inf), allowed


def allowed_in(work: Work, strip: Strip) -> Tensor:
    """What the mask allows in a strip."""
    return part(work.sight.allows(strip.tile), strip.batch, len(work.sight.shape))


def dropped(work: Work, strip: Strip, weights: Tensor) -> Tensor:
    """The weights as they are used."""
    return weights if work.dropout is None else weights * factors_of(work, strip, weights)


def factors_of(work: Work, strip: Strip, weights: Tensor) -> Tensor:
    """Dropout's factors for a strip."""
    assert work.dropout is not None
    given = (work.sight.shape, weights.dtype, weights.device)
    return work.dropout.factors(*given, strip.tile, strip.batch)


def faults_of(faults: Faults, strip: Strip, sight: "Sight") -> Faults:
    """Those of a strip's rows and columns."""
    ours = pick([faults.queries.unsqueeze(-1)], strip, -2, sight)[0].squeeze(-1)
    keys = pick([faults.keys.unsqueeze(-1)], strip, -1, sight)[0].squeeze(-1)
    return Faults(ours, keys, pick([faults.values], strip, -1, sight)[0])


def split(work: Work, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Prepared queries, prepared keys, parameters."""
    one, two = work.parts
    return list(tensors[:one]), list(tensors[one : one + two]), list(tensors[one + two :])


def leaf(x: Tensor) -> Tensor:
    """A tensor of its own in a new graph."""
    return x.detach().requires_grad_(x.dtype.is_floating_point)


def joined(parts: Sequence[Tensor], as_tuple: bool) -> Prepared:
    """What a prepare method gave."""
    return tuple(parts) if as_tuple else parts[0]
