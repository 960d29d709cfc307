"""Multi-head attention: several heads in parallel, each with its own projections."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.arguments import must_be_tensors, must_suit, places
from regard.attention.cache import KeyValueCache
from regard.attention.head_spec import HeadMechanism, HeadSpec
from regard.attention.layer import Attention
from regard.attention.mask import Mask, as_mask
from regard.attention.mask_context import seen_of
from regard.attention.mechanism import PerSide, both_sides
from regard.attention.mechanisms.stages import FirstValues
from regard.attention.packing import Packing
from regard.attention.prepared import repeat_kv
from regard.attention.sanitize import is_finite, nonfinite_rows
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError


class Inputs(NamedTuple):
    """The inputs of multi-head attention: queries, keys and values before their projection."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    packing: Packing | None
    key_packing: Packing | None
    cache: KeyValueCache | None

    @property
    def cached(self) -> bool:
        """Return whether the cache has all keys and values already."""
        return self.cache is not None and self.cache.filled


class MultiHeadAttention(HeadMechanism):
    """concat(head_1 … head_h) W_O, head_i = attend(W_Q,i q, W_K,i k, W_V,i v). Vaswani et al. 2017.

    Several heads attend in parallel, each with its own projections and columns of the output.

    If queries, keys and values have the same width, the three projections are rows of one weight,
    in this order, as in ``torch.nn.MultiheadAttention``, and self-attention multiplies by it once.

    Args:
        width: The width of the queries and of the output.
        heads: The number of heads.
        score: The name or class of a score, or a `Score`, used as it is.
        position: The name of a position that is part of the score, wrapped around it.
        normalize: A `Normalizer`, or its name.
        dropout: The probability of dropping a weight, in training mode.
        key_width: The width of the keys, by default that of the queries.
        value_width: The width of the values, by default that of the keys.
        key_value_heads: The number of heads of keys and values, each shared by neighbouring query
            heads: 1 is multi-query, more is grouped-query attention. By default ``heads``.
        head_width: The columns of one head, by default width / heads.
        bias: Whether the projections have a bias.
        output_projection: Whether W_O follows the heads.
        length: The maximum input length, which synthesizers and Linformer need.
        compress: "linformer", "linformer-32" or a module, which mixes keys and values along their
            length.
        stages: The names of output stages between the heads and W_O.

    Shape:
        queries: (*batch, n, width)
        memory: (*batch, m, key_width); the queries by default.
        values: (*batch, m, value_width); the memory by default.
        output: (*batch, n, width)

    Returns:
        The output for each query.

    Raises:
        RegardError: Sizes that do not divide: width by ``heads``, or ``heads`` by
            ``key_value_heads``; an unknown name; inputs of another width.

    Source:
        Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (multi-query); Ainslie et al. 2023
        (grouped-query).

    Example:
        >>> MultiHeadAttention(8, 2, key_value_heads=1)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    name = "multi-head"
    takes_values = True
    #: Whether the attention draws its random numbers after those of the output projection.
    attention_last: ClassVar[bool] = False

    def build(self, spec: HeadSpec) -> None:
        inner, keys = spec.heads * spec.each_head, spec.groups * spec.each_head
        self.sizes = (inner, keys, keys)
        self.make_projections(spec)
        self.register_module("attention", None)  # listed before the output projection in any case
        if not self.attention_last:
            self.attention = self.make_attention(spec)
        self.output = spec.make_output()
        self.reset()
        if self.attention_last:
            self.attention = self.make_attention(spec)

    def make_projections(self, spec: HeadSpec) -> None:
        """Create the projections of queries, keys and values."""
        key_width = spec.memory_width
        value_width = spec.value_width or key_width
        self.packed = key_width == value_width == spec.width
        if self.packed:
            self.project = nn.Linear(spec.width, sum(self.sizes), spec.bias)
        else:
            self.project_queries = nn.Linear(spec.width, self.sizes[0], spec.bias)
            self.project_keys = nn.Linear(key_width, self.sizes[1], spec.bias)
            self.project_values = nn.Linear(value_width, self.sizes[2], spec.bias)

    def make_attention(self, spec: HeadSpec) -> Attention:
        """Return the attention of the projected heads."""
        return Attention(
            spec.make_score(),
            spec.normalize,
            spec.dropout,
            heads=spec.heads,
            compress=spec.make_compress(),
        )

    def extra_repr(self) -> str:
        shared = "" if self.groups == self.heads else f", key_value_heads={self.groups}"
        return f"width={self.width}, heads={self.heads}{shared}"

    def forward(
        self,
        queries: Float[Tensor, "*batch queries width"],
        memory: Float[Tensor, "*key_batch keys key_width"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        values: Float[Tensor, "*key_batch keys value_width"] | None = None,
        positions: PerSide[Int[Tensor, "... n"]] = None,
        cache: KeyValueCache | None = None,
        packing: PerSide[Packing] = None,
        first_values: FirstValues | None = None,
    ) -> Float[Tensor, "*batch queries _"]:
        """Compute each query's average of the values, (*batch, n, width).

        The memory is both keys and values, unless ``values`` are given; without a memory this is
        self-attention. The mask's batch axes are those of the queries; the head axis is inserted
        here. With a ``cache``, keys and values are appended to it and the queries attend to all of
        it; a filled fixed cache is not extended.

        ``positions`` and ``packing`` are those of the queries, and in self-attention also of the
        keys; a pair is (queries, memory). With ``packing`` the queries and the result are rows
        without padding, (rows, width); mask and positions remain those of the padded table. The
        mask must hide a memory's padding from every real query. ``first_values``: of the first
        layer, for stages that mix values.
        """
        tensors = {"queries": queries, "memory": memory, "values": values}
        must_be_tensors(**{k: x for k, x in tensors.items() if x is not None or k == "queries"})
        if isinstance(mask, Tensor) and mask.is_floating_point() and mask.ndim == queries.ndim:
            raise RegardError(
                "the third argument is a mask, not a tensor of numbers; pass values by name, "
                "layer(queries, keys, values=…), and make a bias part of the score"
            )
        mask, keys, itself = as_mask(mask), memory, memory is None or memory is queries
        query_positions, key_positions = both_sides(positions, memory)
        if cache is not None and cache.filled:
            key_positions = None  # the cache has them
        packing, key_packing = both_sides(packing, memory)
        if mask is not None and cache is None and packing is None:
            queries, keys, values = without_hidden(
                mask, queries, keys, values, query_positions, key_positions
            )
        bad = None
        if cache is not None and cache.fixed and not len(cache) and key_packing is None:
            keys, values, bad = without_nonfinite(queries if keys is None else keys, values)
        if keys is None:
            keys, key_packing = queries, packing
        inputs = Inputs(
            queries, keys, keys if values is None else values, packing, key_packing, cache
        )
        q, k, v = self.projected(inputs)
        if self.mixes_values:
            columns = self.mixed(v.transpose(-3, -2).flatten(-2), first_values)
            v = columns.unflatten(-1, (-1, v.shape[-1])).transpose(-3, -2)
        if bad is not None:  # sanitized under the mask of each call, without a gradient
            k, v = k.masked_fill(bad[0], torch.nan), v.masked_fill(bad[1], torch.nan)
        mask = self.masked(q, k, mask, (query_positions, key_positions), cache, itself)
        attended = self.attention(
            q,
            k,
            v,
            mask,
            query_positions=query_positions,
            key_positions=key_positions,
            cache=cache,
        )
        output: Tensor = self.joined(attended.output)
        if self.stages:
            asked = queries if packing is None else packing.unpack(queries)
            own = self.joined(repeat_kv(v, self.attention.heads)) if itself else None
            output = self.staged(output, asked, own)
        output = output.transpose(-3, -2).flatten(-2)
        if packing is not None:
            output = packing.pack(output)
        return output if self.output is None else self.output(output)

    def masked(
        self,
        queries: Tensor,
        keys: Tensor,
        mask: Mask | None,
        positions: tuple[Tensor | None, Tensor | None],
        cache: KeyValueCache | None,
        itself: bool,
    ) -> Mask | None:
        """Return the mask of the attention of projected queries and keys.

        ``itself``: whether the keys are those of the queries, as in self-attention.
        """
        return mask

    def joined(self, output: Tensor) -> Tensor:
        """Return the heads (*batch, heads, n, head_width) from the output of the attention."""
        return output

    def projected(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return projected queries (*batch, heads, n, head_width), and keys and values.

        Keys and values are (*batch, groups, m, head_width).
        """
        queries, keys, values, packing, key_packing, _ = inputs
        if inputs.cached:
            q = self._project(queries, 0, 1, packing)[0]
            none = q.new_empty(*q.shape[:-3], self.groups, 0, self.head_width)
            return q, none, none
        if self.packed and queries is keys is values:
            q, k, v = self._project(queries, 0, 3, packing)
        elif self.packed and keys is values:
            (q,) = self._project(queries, 0, 1, packing)
            k, v = self._project(keys, 1, 3, key_packing)
        else:
            sides = ((queries, packing), (keys, key_packing), (values, key_packing))
            q, k, v = (self._project(x, i, i + 1, how)[0] for i, (x, how) in enumerate(sides))
        return q, k, v

    def _project(
        self, x: Tensor, first: int, last: int, packing: Packing | None = None
    ) -> list[Tensor]:
        """Project to queries (0), keys (1), values (2), from first to last − 1, by one product."""
        sizes = self.sizes[first:last]
        separate = ("project_queries", "project_keys", "project_values")[first]
        linear = self.project if self.packed else getattr(self, separate)
        name = ("queries", "keys", "values")[first]
        must_suit(name, x, linear)
        if self.packed:
            start = sum(self.sizes[:first])
            rows = slice(start, start + sum(sizes))
            if len(sizes) == 3:
                projected = self.project(x)
            elif is_plain(self.project):
                bias = None if self.project.bias is None else self.project.bias[rows]
                projected = F.linear(x, self.project.weight[rows], bias)
            else:
                projected = self.project(x)[..., rows]
        else:
            projected = linear(x)
        if packing is not None:
            projected = packing.unpack(projected)
        heads = projected.unflatten(-1, (-1, self.head_width))
        # Split by heads and not by columns: the gradients are then joined by one copy, not two.
        parts = heads.split([size // self.head_width for size in sizes], -2)
        return [part.transpose(-3, -2) for part in parts]


def is_plain(linear: nn.Module) -> bool:
    """Return whether a layer computes only x Wᵀ + b, so that rows of W compute a part of it.

    This is not so for a low-rank adapter, quantized or sharded weights, hooks, or its own forward.
    """
    hooks = [linear._forward_hooks, linear._forward_pre_hooks]
    hooks += [linear._backward_hooks, linear._backward_pre_hooks]
    plain = type(linear) is nn.Linear and type(linear.weight) in (nn.Parameter, Tensor)
    return plain and not any(hooks) and "forward" not in vars(linear)


def without_nonfinite(
    keys: Tensor, values: Tensor | None
) -> tuple[Tensor, Tensor | None, tuple[Tensor, Tensor] | None]:
    """Return keys and values with zeros for the rows that are not finite, and those rows.

    Their gradients would carry a NaN of the padding into the projections.
    """
    inputs = [keys] if values is None else [keys, values]
    if on_cpu(keys) and is_finite(*inputs):
        return keys, values, None
    rows = [nonfinite_rows(x) for x in inputs]
    keys = keys.masked_fill(rows[0], 0)
    values = None if values is None else values.masked_fill(rows[-1], 0)
    return keys, values, (rows[0].unsqueeze(-3), rows[-1].unsqueeze(-3))


def without_hidden(
    mask: Mask,
    queries: Tensor,
    keys: Tensor | None,
    values: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Set numbers that are not finite, or overflow when squared, to zero in rows no query may see.

    This comes before the projections, whose gradients would get a NaN from padding. Other numbers
    stay: in self-attention a hidden row is still a query.
    """
    tensors = [x for x in (queries, keys, values) if x is not None]
    source = queries if keys is None else keys
    if on_cpu(queries) and is_finite(*tensors):
        return queries, keys, values
    rows, columns = places(queries, source, source.shape[-2], query_positions, key_positions)
    hidden = ~seen_of(mask, rows, columns).unsqueeze(-1)
    if mask.has_heads and hidden.ndim > 2:
        hidden = hidden.all(-3)

    def sanitized(x: Tensor) -> Tensor:
        wide = x.float() if x.dtype == torch.float16 else x
        return x.masked_fill(hidden & ~wide.square().isfinite(), 0)

    if keys is None or keys is queries:
        queries, keys = sanitized(queries), None
    else:
        keys = sanitized(keys)
    return queries, keys, values if values is None else sanitized(values)
