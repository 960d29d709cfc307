"""Block-routed sparse attention: each query chooses a few blocks of keys by their means."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.arguments import places
from regard.attention.cache import KeyValueCache
from regard.attention.head_spec import HeadSpec
from regard.attention.mask import WHOLE, Blocks, Mask, Reach, Tile, conjuncts
from regard.attention.mask_context import over_heads
from regard.attention.mechanisms.multihead import MultiHeadAttention
from regard.attention.prepared import as_tuple, repeat_kv
from regard.attention.score import Score
from regard.attention.scores.wrapper import Wrapper
from regard.attention.tracing import readable, unrounded
from regard.core.errors import RegardError

#: Affinities, or pairs, that are in memory at once.
AT_ONCE = 2**22


class BlockAttention(MultiHeadAttention):
    """head_i = attend(q, k, v) over the ``top`` blocks of ``size`` keys with largest q · mean k.

    Mixture of block attention (MoBA), Lu et al. 2025, section 2.2, equations 5 to 9; ``blocks`` is
    (size, top), as a name ``moba-16-3``. Key j is in block ⌊j / size⌋ of its position j. Each head
    of a query chooses among the blocks of which it may see a key, and the mean is over the keys
    that it may see, so hidden keys have no influence. In self-attention the query's own block is
    always one of the ``top``, and blocks equal to the last one chosen are chosen too. The mask also
    holds inside the blocks. The choice has no gradient.

    q and k are those of the score's inner product, positions applied; for another score, the
    projected ones. Queries (*batch, n, width) and a memory (*batch, m, key_width) give
    (*batch, n, width). In addition to attention, the choice takes O(n m / size) time and as many
    bools per head, and with masks other than causal and padding the time of all pairs; a cache
    stores the keys of the choice too. Raise a RegardError for sizes that are not integers ≥ 1,
    and for compress.

    >>> layer = BlockAttention(8, 2, blocks=(2, 1))
    >>> layer.masked(*torch.ones(2, 2, 4, 4), None, (None, None), None, True).allows(
    ...     torch.arange(4), torch.arange(4))[0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """

    name = "moba"
    options: ClassVar[Mapping[str, int]] = {"blocks": 2}

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        blocks: tuple[int | float, int | float] = (16, 3),
        **settings: Any,
    ) -> None:
        size, top = map(int, blocks)
        if (size, top) != tuple(blocks) or min(size, top) < 1:
            raise RegardError(
                "moba needs a size of blocks and a number of blocks, integers of at least 1, not "
                f"{blocks[0]} and {blocks[1]}"
            )
        super().__init__(width, heads, **settings)
        self.blocks = size, top

    def build(self, spec: HeadSpec) -> None:
        spec.must_not_compress(self.name, "chooses blocks of neighbouring keys")
        super().build(spec)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, blocks={self.blocks}"

    def masked(
        self,
        queries: Tensor,
        keys: Tensor,
        mask: Mask | None,
        positions: tuple[Tensor | None, Tensor | None],
        cache: KeyValueCache | None,
        itself: bool,
    ) -> Mask | None:
        past = 0 if cache is None else len(cache)
        rows, columns = places(queries, keys, past + keys.shape[-2], *positions)
        with torch.no_grad():
            at = over_heads(rows, self.heads), over_heads(columns, self.heads)
            queries, keys = product_sides(self.attention.score, queries, keys, *at)
            if cache is not None:
                keys, columns = cache.route(keys, columns)
            size, top = self.blocks
            chosen = Choice.of(queries, keys, (rows, columns), mask, size, itself).best(top)
        if chosen is None or mask is None:
            return mask if chosen is None else chosen
        return mask & chosen


def product_sides(
    score: Score, queries: Tensor, keys: Tensor, rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the queries and keys of the score's inner product, or if there is none, as they are.

    Changes of a score that leave no inner product, such as a cap, are left out.
    """
    while isinstance(score, Wrapper) and not score.acceleration.linear:
        score = score.inner
    if not score.acceleration.linear:
        return queries, keys
    prepared = score.prepare_queries(queries, rows)
    product_queries = score.acceleration.product_queries(score, prepared)
    return product_queries, as_tuple(score.prepare_keys(keys, columns))[0]


@dataclass(frozen=True)
class Choice:
    """The choice of blocks of keys (…, groups, m, width) by queries (*batch, heads, n, width).

    ``numbers`` (…, blocks) are the numbers of the blocks, ``places`` (…, m) the index of each key's
    block among them, ``asking`` (…, n) the number of each query's own block.
    """

    queries: Tensor
    keys: Tensor
    at: tuple[Tensor, Tensor]
    mask: Mask | None
    numbers: Tensor
    places: Tensor
    asking: Tensor
    own: bool

    @classmethod
    def of(
        cls,
        queries: Tensor,
        keys: Tensor,
        at: tuple[Tensor, Tensor],
        mask: Mask | None,
        size: int,
        own: bool,
    ) -> "Choice":
        """Number the blocks of ``size`` positions that contain keys."""
        asking, blocks = (x.div(size, rounding_mode="floor") for x in at)
        if readable(blocks):
            numbers, index = torch.unique(blocks, return_inverse=True)
        else:  # in a graph the number of blocks is unknown: each key has room for one
            same = blocks[..., :, None] == blocks[..., None, :]
            numbers, index = blocks, same.int().argmax(-1)
        wide = torch.promote_types(queries.dtype, torch.float32)
        return cls(queries.to(wide), keys.to(wide), at, mask, numbers, index, asking, own)

    def best(self, top: int) -> Mask | None:
        """Return a mask of the ``top`` blocks of each query, or None if there are no more."""
        n, known = self.queries.shape[-2], readable(self.queries)
        if known and (not n or self.numbers.shape[-1] <= top):
            return None
        parts = []
        for affinity in self.affinities():
            # In a graph there may be fewer blocks than ``top``.
            padded = affinity if known else F.pad(affinity, (0, top), value=-torch.inf)
            least = padded.topk(top, -1).values[..., -1:]
            parts.append((affinity >= least) & (affinity > -torch.inf))
        return chosen_blocks(torch.cat(parts, -2) if len(parts) > 1 else parts[0], self.places)

    def affinities(self) -> Iterator[Tensor]:
        """Yield q · mean k of some queries with every block, (*batch, heads, rows, blocks).

        It is −inf for blocks of which a query sees no key, and ∞ for its own block. Numbers that
        are not finite become ∞, so that a visible NaN is never left out.
        """
        count = self.numbers.shape[-1]
        seen, causal = self.seen_by_all()
        means = total = None
        if seen is not None:
            keys = self.keys.masked_fill(~seen.unsqueeze(-1), 0)
            total = self.summed(seen.unsqueeze(-2).to(keys.dtype))
            means = self.summed(keys.mT) / total.clamp(min=1)
            means = repeat_kv(means, self.queries.shape[-3])
        width = count if means is not None else self.keys.shape[-2]
        for some in query_strips(self.queries, width):
            with unrounded(self.queries):
                if means is None:
                    affinity, counts = self.by_pairs(some)
                else:
                    assert total is not None
                    affinity, counts = self.queries[..., some, :] @ means, total
            asking = over_heads(self.asking, 1)[..., some].unsqueeze(-1)
            numbers = over_heads(self.numbers, 1).unsqueeze(-2)
            may = counts > 0
            if causal:
                may = may & (numbers <= asking)
            always = ~affinity.isfinite()
            if self.own:
                always = always | (numbers == asking)
            yield affinity.masked_fill(always, torch.inf).masked_fill(~may, -torch.inf)

    def seen_by_all(self) -> tuple[Tensor | None, bool]:
        """Return which keys the padding leaves, (…, 1, m), and whether the mask is also causal.

        None if the mask says more: then each query sees other keys of a block.
        """
        rows, columns = self.at
        causal, seen = False, torch.ones_like(columns, dtype=torch.bool).unsqueeze(-2)
        for part in conjuncts(self.mask):
            if part.kind == "causal":
                causal = True
            elif part.kind == "keys" and not part.has_heads:
                seen = seen & part.allows(rows, columns, Tile(slice(0, 1), slice(None)))
            else:
                return None, False
        return seen, causal

    def by_pairs(self, some: slice) -> tuple[Tensor, Tensor]:
        """Return q · mean k over the keys that each query sees, and their number."""
        assert self.mask is not None
        visible = self.mask.over_heads().allows(*self.at, Tile(some, WHOLE.columns))
        keys = repeat_kv(self.keys, self.queries.shape[-3])
        products = (self.queries[..., some, :] @ keys.mT).masked_fill(~visible, 0)
        counts = self.summed(visible.to(products.dtype))
        return self.summed(products) / counts.clamp(min=1), counts

    def summed(self, x: Tensor) -> Tensor:
        """Return the sums over each block of (…, heads, rows, m): (…, heads, rows, blocks)."""
        index = self.places if self.places.ndim == 1 else self.places[..., None, None, :]
        shape = torch.broadcast_shapes(x.shape, index.shape)
        sums = x.new_zeros(*shape[:-1], self.numbers.shape[-1])
        return sums.scatter_add(-1, index.expand(shape), x.expand(shape))


def query_strips(queries: Tensor, width: int) -> list[slice]:
    """Return the rows of queries whose affinities with ``width`` keys are in memory at once."""
    n, step = queries.shape[-2], 0
    if readable(queries):
        step = max(1, AT_ONCE // max(1, queries.shape[:-2].numel() * width))
    if not step or step >= n:
        return [slice(None)]
    return [slice(first, first + step) for first in range(0, n, step)]


def chosen_blocks(table: Tensor, places: Tensor) -> Mask:
    """Allow table[…, i, places[j]]: the keys of chosen blocks, by index in the call.

    ``table`` is (*batch, heads, n, blocks), and ``places`` (…, m) is the block of each key. A
    block of queries of which none, in any head or text, chooses any of a block of keys needs no
    computation.
    """

    def answer(rows: Tensor, columns: Tensor, tile: Tile = WHOLE) -> Tensor:
        some, at = table[..., tile.rows, :], places[..., tile.columns]
        if at.ndim == 1:
            return some.index_select(-1, at)
        return some.take_along_dim(at[..., None, None, :], -1)

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        asked = table.reshape(-1, *table.shape[-2:]).any(0)
        asked = F.pad(asked, (0, 0, 0, -len(asked) % rows.size)).unflatten(0, (-1, rows.size))
        held = asked.new_zeros(len(columns.low), table.shape[-1])
        at = torch.arange(places.shape[-1], device=places.device) // columns.size
        held[at.expand(places.shape), places] = True
        may = asked.any(1).float() @ held.float().T > 0
        may = may.cpu()
        return Reach(may, torch.zeros_like(may))

    made = (chosen_blocks, (table, places))
    return Mask(answer, by_index=True, reach=reach, over_heads=True, made=made)
