"""The computation of one strip: scores, mask, dropout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.acceleration import Acceleration
from regard.attention.call import Call
from regard.attention.kernels.choose import Plan
from regard.attention.kernels.compiled import compile_once, wanted
from regard.attention.kernels.dropout import Dropout
from regard.attention.kernels.strips import (
    Sizes,
    Strip,
    count,
    part,
    pick,
    positions_of,
    strips_of,
    taken,
)
from regard.attention.mask import Tile
from regard.attention.mask_context import MaskContext
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Positions, Prepared, as_tuple, repeat_all_kv, repeat_kv
from regard.attention.sanitize import NonFinite
from regard.attention.score import Score
from regard.attention.twin import twin
from regard.core.errors import RegardError


@dataclass(frozen=True)
class Work:
    """The parts of a tiled call except its tensors."""

    score: Score
    normalizer: Normalizer
    context: MaskContext
    strips: Sequence[Strip]
    sizes: Sizes
    dropout: Dropout | None
    nonfinite: NonFinite | None
    compiled: bool
    parts: tuple[int, int]  # number of tensors of prepared queries and keys
    tuples: tuple[bool, bool]  # whether prepared queries and keys are tuples


def work_of(
    call: Call, plan: Plan, dropout: Dropout | None = None, *, split: bool = True
) -> tuple[Work, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the work, and the tensors of prepared queries and keys with all heads.

    ``split``: whether the batch may be cut.
    """
    score, normalizer, context = call.score, call.normalizer, call.context
    products = score.acceleration.inner_product
    same_heads = products and not [*normalizer.parameters(), *normalizer.buffers()]
    queries, keys = as_tuple(call.queries), as_tuple(repeat_all_kv(call.keys, context.heads))
    nonfinite = call.nonfinite
    if nonfinite is not None:
        bad_keys = repeat_kv(nonfinite.keys[..., None], context.heads)[..., 0]
        values = repeat_kv(nonfinite.values, context.heads)
        nonfinite = NonFinite(nonfinite.queries, bad_keys, values)
    work = Work(
        score,
        normalizer,
        context,
        strips_of(context, plan.sizes, split, same_heads),
        plan.sizes,
        dropout,
        nonfinite,
        plan.compiled,
        (len(queries), len(keys)),
        (isinstance(call.queries, tuple), isinstance(call.keys, tuple)),
    )
    return work, queries, keys


class Space:
    """Buffers for the products of consecutive strips; the next product in a place overwrites it."""

    def __init__(self) -> None:
        self.places: dict[int, Tensor] = {}

    def product(self, place: int, one: Tensor, two: Tensor) -> Tensor:
        """Return one @ two, in the buffer of this place."""
        if torch.is_autocast_enabled(one.device.type) or one.dtype != two.dtype:
            return one @ two
        batch = one.shape[:-2]
        if batch != two.shape[:-2]:
            batch = torch.broadcast_shapes(batch, two.shape[:-2])
        shape = torch.Size([*batch, one.shape[-2], two.shape[-1]])
        return torch.matmul(one, two, out=self.room(place, shape, one))

    def room(self, place: int, shape: torch.Size, like: Tensor) -> Tensor:
        """Return the buffer of this place in a shape, with any numbers."""
        room = self.places.get(place)
        if room is None or room.numel() < shape.numel():
            room = self.places[place] = like.new_empty(shape.numel())
        return room[: shape.numel()].view(shape)


def scores_of(
    work: Work,
    strip: Strip,
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    space: Space,
) -> tuple[Tensor, Tensor | None]:
    """Return the scores of a strip, −inf where masked, and its mask, without a graph."""
    if work.score.acceleration.linear:
        rows = pick(queries, strip, -2, work.context)
        bias = call(work, rows, None, positions_of(work.context, strip))
        asking = joined(rows, work.tuples[0])
        return masked(work, strip, product_of(work, strip, asking, keys, space, bias))
    blocks = []
    for _, small in parts_of(work, strip, queries, keys):
        mine, others = pick(queries, small, -2, work.context), pick(keys, small, -1, work.context)
        scores = call(work, mine, others, positions_of(work.context, small))
        assert scores is not None
        blocks.append(scores)
    return masked(work, strip, blocks[0] if len(blocks) == 1 else torch.cat(blocks, -1))


def product_of(
    work: Work,
    strip: Strip,
    mine: Prepared,
    keys: Sequence[Tensor],
    space: Space,
    bias: Tensor | None,
) -> Tensor:
    """Return the scores of a linear score: scale · q'·k' + bias, with ``bias`` as the bias."""
    acceleration = work.score.acceleration
    query = acceleration.product_queries(work.score, mine)
    query = acceleration.scale(work.score, query.shape[-1]) * query
    scores = space.product(0, query, pick(keys[:1], strip, -1, work.context)[0].mT)
    if bias is None:
        return scores
    bias = bias.detach()
    fits = torch.broadcast_shapes(scores.shape, bias.shape) == scores.shape
    return scores.add_(bias) if fits else scores + bias


def parts_of(
    work: Work, strip: Strip, queries: Sequence[Tensor], keys: Sequence[Tensor]
) -> list[tuple[slice, Strip]]:
    """Return the columns that a score compares at once, by index in the strip, and as strips.

    These are all columns, unless the score's numbers per pair would exceed the size of a strip.
    """
    width = keys[0].shape[-2] if strip.tile.columns == slice(None) else count(strip.tile.columns)
    numbers = work.score.acceleration.numbers_per_pair(work.score, joined(keys, work.tuples[1]))
    if numbers <= 1:
        return [(slice(0, width), strip)]
    slices = max(
        part(x, strip.batch, len(work.context.shape)).shape[:-2].numel()
        for x in (queries[0], keys[0])
    )
    rows = strip.tile.rows.stop - strip.tile.rows.start
    step = max(16, work.sizes.numbers // max(1, slices * rows * numbers))
    if step >= width:
        return [(slice(0, width), strip)]
    chunks = [slice(i, min(i + step, width)) for i in range(0, width, step)]
    tile = strip.tile
    return [
        (chunk, strip._replace(tile=Tile(tile.rows, taken(tile.columns, chunk))))
        for chunk in chunks
    ]


def call(
    work: Work,
    mine: Sequence[Tensor],
    others: Sequence[Tensor] | None,
    positions: Positions,
    parameters: Sequence[Tensor] = (),
) -> Tensor | None:
    """Return the scores of prepared queries and keys, with these parameters if there are any.

    Without keys, return the bias of a linear score.
    """
    keys = None if others is None else joined(others, work.tuples[1])
    queries = joined(mine, work.tuples[0])
    score = twin(work.score, parameters) if parameters else work.score
    if keys is None:
        return score.acceleration.bias(score, queries, positions)
    return compared(score, queries, keys, positions)


def compared(score: Score, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
    """Compute the scores by `fast_compare`, compiled if `wanted` and worthwhile.

    Raise a RegardError for a user's function that cannot be compiled.
    """
    acceleration = score.acceleration
    if not wanted() or acceleration.numbers_per_pair(score, keys) <= 1:
        return acceleration.fast_compare(score, queries, keys, positions)
    fast: Callable[..., Tensor] = type(acceleration).fast_compare
    try:
        if fast is Acceleration.fast_compare:  # compiled once for each class of scores
            fast = type(score).compare
            scores: Tensor = compile_once(fast, whole=False)(score, queries, keys, positions)
        else:
            compiled = compile_once(fast, whole=False)
            scores = compiled(acceleration, score, queries, keys, positions)
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        raise RegardError(
            f"{type(score).__name__}.{fast.__name__} cannot be compiled "
            f"({str(error).strip().splitlines()[0]}); give the score acceleration = "
            "Acceleration(numbers=1) to compute it without compiling"
        ) from error
    return scores


def masked(work: Work, strip: Strip, scores: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the scores over the whole batch, −inf where masked, and the mask; at least float32."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    context = work.context
    shape = list(context.shape[:-2])
    shape[: len(strip.batch)] = [x.stop - x.start for x in strip.batch]
    full = (*shape, *scores.shape[-2:])
    if scores.shape != full:
        scores = scores.expand(full)
    if strip.whole:
        return scores, None
    allowed = allowed_in(work, strip)
    return scores.masked_fill(~allowed, -torch.inf), allowed


def allowed_in(work: Work, strip: Strip) -> Tensor:
    """Return which pairs of a strip the mask allows."""
    return part(work.context.allows(strip.tile), strip.batch, len(work.context.shape))


def dropped(work: Work, strip: Strip, weights: Tensor) -> Tensor:
    """Return the weights after dropout."""
    return weights if work.dropout is None else weights * factors_of(work, strip, weights)


def factors_of(work: Work, strip: Strip, weights: Tensor) -> Tensor:
    """Return the factors of dropout for a strip."""
    assert work.dropout is not None
    arguments = (work.context.shape, weights.dtype, weights.device)
    return work.dropout.factors(*arguments, strip.tile, strip.batch)


def nonfinite_of(nonfinite: NonFinite, strip: Strip, context: MaskContext) -> NonFinite:
    """Return the marks of a strip's rows and columns."""
    queries = pick([nonfinite.queries.unsqueeze(-1)], strip, -2, context)[0].squeeze(-1)
    keys = pick([nonfinite.keys.unsqueeze(-1)], strip, -1, context)[0].squeeze(-1)
    return NonFinite(queries, keys, pick([nonfinite.values], strip, -1, context)[0])


def joined(parts: Sequence[Tensor], as_tuple: bool) -> Prepared:
    """Return the tensors of a prepared side as a tuple, or the only one."""
    return tuple(parts) if as_tuple else parts[0]
