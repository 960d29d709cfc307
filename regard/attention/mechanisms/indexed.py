"""Attention over the keys that a trained indexer chooses for each query."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.arguments import Arguments, places
from regard.attention.attended import Attended
from regard.attention.head_spec import HeadSpec
from regard.attention.layer import Attention
from regard.attention.mask import WHOLE, Mask, Tile
from regard.attention.mask_context import over_heads
from regard.attention.mechanisms.moba import (
    chosen_blocks,
    product_sides,
    query_strips,
)
from regard.attention.mechanisms.multihead import MultiHeadAttention
from regard.attention.positions import make_score
from regard.attention.tracing import readable, unrounded
from regard.core.errors import RegardError


class IndexedAttention(MultiHeadAttention):
    """head_i = attend(q, k, v) over the ``keys`` keys with largest I = Σ_j w_j ReLU(a_j·b).

    DeepSeek sparse attention, DeepSeek-AI 2025 (V3.2), section 2.1, equations 1, 2 and 4; by name
    ``dsa-64``. The keys are chosen for all heads at once, among those that the mask shows, and keys
    equal to the last one chosen are chosen too. The indexer is as wide as the attention: a_j and
    the weights w_j, one for each head, are linear in the query of all heads, and b, one for all
    heads, in the key of all heads (in the paper, in the input). With rotary positions a and b are
    rotated.

    The choice has no gradient. In training the indexer learns, and nothing else does, from
    KL(p ‖ softmax I) over the chosen keys, with p the mean of the heads' weights. The gradient of
    this loss is added in the backward pass, where that of each query is multiplied by the norm of
    the gradient of its output, so that it scales with the loss of the network and leaves out
    padding (in the paper each query counts the same).

    Queries (*batch, n, width) and a memory (*batch, m, key_width) give (*batch, n, width). In
    addition to attention, the choice takes O(n m heads) time and n m bools; a cache stores b too.
    Raise a RegardError for a number of keys that is not an integer ≥ 1, and for compress.

    >>> layer = IndexedAttention(8, 2, keys=3)
    >>> layer(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    name = "dsa"
    options: ClassVar[Mapping[str, int]] = {"keys": 1}

    def __init__(self, width: int, heads: int, *, keys: float = 64, **settings: Any) -> None:
        if keys != int(keys) or keys < 1:
            raise RegardError(f"dsa needs a number of keys, an integer of at least 1, not {keys}")
        self.keys = int(keys)
        super().__init__(width, heads, **settings)

    def make_attention(self, spec: HeadSpec) -> Attention:
        spec.must_not_compress(self.name, "chooses single keys")
        return Indexed(spec, self.keys)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, keys={self.keys}"


class Indexed(Attention):
    """Attention over the keys with the largest index of each query."""

    def __init__(self, spec: HeadSpec, keys: int) -> None:
        super().__init__(spec.make_score(), spec.normalize, spec.dropout, heads=spec.heads)
        width, inner = spec.each_head, spec.heads * spec.each_head
        self.keys = keys
        self.ask = nn.Linear(inner, inner, bias=False)
        self.weigh = nn.Linear(inner, spec.heads, bias=False)
        self.hold = nn.Linear(spec.groups * width, width, bias=False)
        position = spec.position if spec.position.startswith("rotary") else "none"
        self.product = make_score("dot", position, width, width, length=spec.length)

    def compute(self, arguments: Arguments) -> Attended:
        """Compute the weighted average of the chosen values."""
        queries, keys, mask = arguments.queries, arguments.keys, arguments.mask
        cache = arguments.cache
        assert not isinstance(mask, Tensor)
        past = 0 if cache is None else len(cache)
        given = arguments.query_positions, arguments.key_positions
        rows, columns = places(queries, keys, past + keys.shape[-2], *given)
        learning = self.training and torch.is_grad_enabled() and cache is None
        asked, weights, held = self.sides(queries.detach(), keys.detach(), rows, columns)
        if cache is not None:
            held, columns = cache.route(held, columns)
        inputs = asked, weights, held
        with torch.no_grad():
            tables = [
                self.chosen(index_of(*inputs, some), (mask, rows, columns), some)
                for some in query_strips(asked, held.shape[-2])
            ]
        table = torch.cat(tables, -2) if len(tables) > 1 else tables[0]
        among = chosen_blocks(table, torch.arange(table.shape[-1], device=table.device))
        attended = super().compute(arguments._replace(mask=among if mask is None else mask & among))
        if learning and table.numel():
            losses = self.losses(attended, inputs, table)
            attended.output = _Taught.apply(attended.output, losses)  # type: ignore[no-untyped-call]
        return attended

    def sides(
        self, queries: Tensor, keys: Tensor, rows: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return a (*batch, heads, n, width), w (*batch, heads, n, 1), b (*batch, 1, m, width)."""
        heads = queries.shape[-3]
        queries, keys = (x.transpose(-3, -2).flatten(-2) for x in (queries, keys))
        asked = self.ask(queries).unflatten(-1, (heads, -1)).transpose(-3, -2)
        held = self.hold(keys).unsqueeze(-3)
        at = over_heads(rows, heads), over_heads(columns, heads)
        asked, held = product_sides(self.product, asked, held, *at)
        weights = self.weigh(queries).mT.unsqueeze(-1) * self.ask.out_features**-0.5
        wide = torch.promote_types(asked.dtype, torch.float32)
        return asked.to(wide), weights.to(wide), held.to(wide)

    def chosen(
        self, index: Tensor, sees: tuple[Mask | None, Tensor, Tensor], some: slice
    ) -> Tensor:
        """Return which keys some queries read, (*batch, 1, some, m)."""
        mask, rows, columns = sees
        index = index.masked_fill(~index.isfinite(), torch.inf)  # a visible NaN is not lost
        if mask is not None:
            visible = mask.over_heads().allows(rows, columns, Tile(some, WHOLE.columns))
            if mask.has_heads:
                visible = visible.any(-3, keepdim=True)
            index = index.masked_fill(~visible, -torch.inf)
        enough = index
        if not readable(index) or index.shape[-1] < self.keys:
            enough = F.pad(index, (0, self.keys), value=-torch.inf)
        least = enough.topk(self.keys, -1).values[..., -1:]
        # Numbers that are equal but for rounding are equal, however many rows a product has.
        size = enough.masked_fill(~enough.isfinite(), 0).abs().amax(-1, keepdim=True)
        near = least - 16 * torch.finfo(index.dtype).eps * size
        return (index >= near) & (index > -torch.inf)

    def losses(
        self, attended: Attended, inputs: tuple[Tensor, Tensor, Tensor], table: Tensor
    ) -> Tensor:
        """Return −Σ p ln softmax(I) of each query, (*batch, n): the KL but for a constant.

        ``table`` (*batch, 1, n, m): the chosen keys.
        """
        asked, _, held = inputs
        if not readable(table):  # a graph has no summary
            with torch.no_grad():
                target = attended.weights.sum(-3, keepdim=True)
            return _loss(*inputs, (table, None, target), slice(None))
        # Keys equal to the last one chosen may be more than ``keys``.
        found = attended.summary(max(1, int(table.sum(-1).max())))
        at = found.indices.long().clamp(min=0).movedim(-3, -2).flatten(-2).unsqueeze(-3)
        size = found.weights.movedim(-3, -2).flatten(-2).unsqueeze(-3)
        heads, width, keys = asked.shape[-3], held.shape[-1], held.shape[-2]
        # Reading the chosen keys of each query, or all products of heads, whichever is less.
        gathers = found.indices.shape[-1] * width <= heads * keys
        again = partial(checkpoint, _loss, use_reentrant=False, preserve_rng_state=False)
        losses = []
        for rows in query_strips(asked, keys):
            chosen, read = table[..., rows, :], None
            target = size.new_zeros(chosen.shape)
            target.scatter_add_(-1, at[..., rows, :], size[..., rows, :])
            if gathers:
                read = places_of(chosen)
                chosen, read = read >= 0, read.clamp(min=0)
                target = target.gather(-1, read) * chosen
            losses.append(again(*inputs, (chosen, read, target), rows))
        return torch.cat(losses, -1)


def index_of(asked: Tensor, weights: Tensor, held: Tensor, some: slice) -> Tensor:
    """Return I = Σ_j w_j ReLU(a_j · b) of some queries with every key, (*batch, 1, some, m)."""
    asked = asked[..., some, :].transpose(-3, -2)
    with unrounded(asked):
        products: Tensor = (asked.flatten(-3, -2) @ held.squeeze(-3).mT).relu_()
        return summed(weights, some, products.unflatten(-2, asked.shape[-3:-1]))


def index_at(asked: Tensor, weights: Tensor, held: Tensor, some: slice, at: Tensor) -> Tensor:
    """Return I of some queries with the keys at their places, (*batch, 1, some, most)."""
    asked, each = asked[..., some, :].transpose(-3, -2), held.shape[-2]
    texts = torch.arange(held.shape[:-2].numel(), device=held.device).mul(each)
    keys = F.embedding(at + texts.view(*held.shape[:-2], 1, 1), held.flatten(0, -2))
    with unrounded(asked):
        return summed(weights, some, (asked @ keys.squeeze(-4).mT).relu_())


def summed(weights: Tensor, some: slice, products: Tensor) -> Tensor:
    """Return Σ_j w_j · products of some queries, (*batch, 1, some, keys).

    Products are (*batch, some, heads, keys).
    """
    return (weights[..., some, :].movedim(-3, -1) @ products).movedim(-2, -3)


def places_of(table: Tensor) -> Tensor:
    """Return the places of the chosen keys, (*batch, 1, n, most), and −1 behind the last.

    >>> places_of(torch.tensor([[False, True, True], [True, False, False]]))
    tensor([[ 1,  2],
            [ 0, -1]])
    """
    flat = table.flatten(0, -2)
    row, key = flat.nonzero(as_tuple=True)
    counts = flat.sum(-1)
    found = key.new_full((len(flat), max(1, int(counts.max()))), -1)
    found[row, torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]] = key
    return found.view(*table.shape[:-1], -1)


def _loss(
    asked: Tensor,
    weights: Tensor,
    held: Tensor,
    taught: tuple[Tensor, Tensor | None, Tensor],
    some: slice,
) -> Tensor:
    """Return −Σ p ln softmax(I) of some queries, (*batch, some).

    ``taught``: which of the keys read are chosen, the places of those read (None: all keys), and
    their weights.
    """
    chosen, read, target = taught
    if read is None:
        index = index_of(asked, weights, held, some)
    else:
        index = index_at(asked, weights, held, some, read)
    index, target = index.masked_fill(~chosen, -torch.inf), target.to(index.dtype)
    total = target.sum(-1, keepdim=True)
    target = target / total.masked_fill(total == 0, 1)
    logs = index.log_softmax(-1).masked_fill(~chosen, 0)
    return -(target * logs).sum(-1).squeeze(-2)


class _Taught(torch.autograd.Function):
    """Return an output, and in the backward pass add the gradients of losses of its queries."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, losses: Tensor) -> Tensor:
        ctx.dtype = losses.dtype
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        sizes = torch.linalg.vector_norm(slope.to(ctx.dtype), dim=(-3, -1))
        return slope, sizes
