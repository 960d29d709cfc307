"""Convert torch's attention layer and its masks to regard's.

`from_torch` copies a layer into a `MultiHeadAttention` with equal results, for any regard mask and
for recording. `MultiheadAttention` is a drop-in replacement of torch's layer.
"""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import Attention, Mask, MultiHeadAttention, Normalizer, Score, dense
from regard.attention.head_spec import HeadSpec
from regard.attention.mechanisms.multihead import without_hidden
from regard.core.errors import RegardError
from regard.interop.added_bias import AddedBias


def from_torch(layer: nn.MultiheadAttention) -> MultiHeadAttention:
    """Return a copy of torch's layer as regard's: weights, dropout, mode and frozen parameters.

    Inputs are (batch, n, width) whatever ``batch_first`` was, and ``layer(x)`` is torch's
    ``layer(x, x, x)[0]``. Raises: ``add_bias_kv`` and ``add_zero_attn``, which add artificial
    keys.

    >>> layer = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> bool((from_torch(layer)(x) - layer(x, x, x)[0]).abs().max() < 1e-6)
    True
    """
    if layer.bias_k is not None or layer.add_zero_attn:
        raise RegardError(
            "add_bias_kv and add_zero_attn are not supported, since they add a key that no text "
            "has; use a layer without them"
        )
    width, heads = layer.embed_dim, layer.num_heads
    packed = layer.in_proj_weight is not None
    copy = MultiHeadAttention(
        width,
        heads,
        dropout=layer.dropout,
        key_width=None if packed else layer.kdim,
        value_width=None if packed else layer.vdim,
        bias=layer.in_proj_bias is not None,
    )
    state: dict[str, Tensor] = {"output.weight": layer.out_proj.weight}
    if packed:
        state["project.weight"] = layer.in_proj_weight
    else:
        state["project_queries.weight"] = layer.q_proj_weight
        state["project_keys.weight"] = layer.k_proj_weight
        state["project_values.weight"] = layer.v_proj_weight
    if layer.in_proj_bias is not None:
        names = ["project"] if packed else [f"project_{x}" for x in ("queries", "keys", "values")]
        parts = layer.in_proj_bias.chunk(len(names))
        state |= {f"{name}.bias": part for name, part in zip(names, parts, strict=True)}
        state["output.bias"] = layer.out_proj.bias
    copy = copy.to(layer.out_proj.weight)  # before loading, so that float64 keeps its precision
    copy.load_state_dict(state)
    for name, parameter in copy.named_parameters():
        source = state[name]
        source = source if source._base is None else source._base  # a view of one bias
        parameter.requires_grad_(source.requires_grad)
    return copy.train(layer.training)


def mask_from_torch(
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    *,
    heads: int | None = None,
) -> Mask | None:
    """Return the masks of ``nn.MultiheadAttention``, where True or −inf hides, as one `Mask`.

    ``key_padding_mask`` is (batch, m), ``attn_mask`` (n, m), or with ``heads`` one for each head:
    (batch · heads, n, m). Raises: another shape; numbers other than 0 and −inf, which are a bias.

    >>> mask_from_torch(torch.tensor([[False, True]])).allows(torch.arange(1), torch.arange(2))
    tensor([[[ True, False]]])
    """
    if attn_mask is not None and attn_mask.ndim == 3 and heads and len(attn_mask) % heads == 0:
        attn_mask = attn_mask.unflatten(0, (-1, heads))
    elif attn_mask is not None and attn_mask.ndim != 2:
        raise RegardError(
            f"attn_mask must be (queries, keys), or with heads= (batch * heads, queries, keys), "
            f"not {tuple(attn_mask.shape)} with heads={heads}"
        )
    mask: Mask | None = None
    if key_padding_mask is not None:
        mask = dense(~hidden(key_padding_mask, "key_padding_mask")[:, None, :])
    if attn_mask is not None:
        table = dense(~hidden(attn_mask, "attn_mask"), over_heads=attn_mask.ndim > 2)
        mask = table if mask is None else mask & table
    return mask


def hidden(mask: Tensor, name: str) -> Tensor:
    """Return a torch mask as booleans, True where it hides. Raises: numbers but 0 and −inf."""
    if mask.dtype == torch.bool:
        return mask
    below = mask == -torch.inf
    if not (below | (mask == 0)).all():
        raise RegardError(
            f"{name} has numbers other than 0 and -inf, which are a bias and not a mask; use "
            "position=alibi or t5-bias, or a score of your own, to add a bias"
        )
    return below


class MultiheadAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` with regard's attention: softmax(q·k / √width) by default.

    Constructor, ``forward``, first weights and ``state_dict`` are torch's; ``score``, ``position``,
    ``normalize`` and ``length`` are `MultiHeadAttention`'s. It can replace ``self_attn`` and
    ``multihead_attn`` in ``nn.TransformerEncoderLayer`` and ``nn.TransformerDecoderLayer``, whose
    fused evaluation path is then off. `regard.analysis.record` records it.

    Differences from torch: a query without visible keys gets zeros instead of NaN; weights are
    returned before dropout. Raises: ``add_bias_kv`` and ``add_zero_attn``; a width that is not
    divisible by the heads; masks of another shape; ``is_causal`` without an ``attn_mask``.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> layer.self_attn = MultiheadAttention.like(layer.self_attn, normalize="sparsemax")
    >>> layer(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: str | type[Score] | Score = "scaled-dot",
        position: str = "none",
        normalize: str | Normalizer = "softmax",
        length: int | None = None,
    ) -> None:
        if add_bias_kv or add_zero_attn:
            keyword = "add_bias_kv" if add_bias_kv else "add_zero_attn"
            raise RegardError(
                f"{keyword}=True is not supported, since it adds a key that no text has; remove it"
            )
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise RegardError(
                f"embed_dim={embed_dim} is not divisible by num_heads={num_heads}; use a multiple"
            )
        super().__init__(
            embed_dim, num_heads, dropout, bias, False, False, kdim, vdim, batch_first, device,
            dtype,
        )  # fmt: skip
        spec = HeadSpec(embed_dim, num_heads, score, position, length=length)
        compared = AddedBias(spec.make_score())
        self.attention = Attention(compared, normalize, dropout, heads=num_heads)
        self.attention.to(self.out_proj.weight)

    @classmethod
    def like(cls, layer: nn.MultiheadAttention, **parts: Any) -> Self:
        """Return a layer with a copy of the weights, the settings and the mode of torch's.

        ``parts``: score, position, normalize and length. Raises: as of the constructor.
        """
        packed, weight = layer.in_proj_weight is not None, layer.out_proj.weight
        copy = cls(
            layer.embed_dim,
            layer.num_heads,
            layer.dropout,
            layer.in_proj_bias is not None,
            layer.bias_k is not None,
            layer.add_zero_attn,
            None if packed else layer.kdim,
            None if packed else layer.vdim,
            layer.batch_first,
            weight.device,
            weight.dtype,
            **parts,
        )
        mine = dict(copy.named_parameters())
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                mine[name].copy_(parameter).requires_grad_(parameter.requires_grad)
        return copy.train(layer.training)

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # If it is true, torch's encoder layer bypasses this layer by a fused softmax kernel.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output and, if ``need_weights``, the weights, as torch's layer does.

        ``is_causal`` is a hint that ``attn_mask`` is causal, and is ignored. Finite numbers in
        masks are added to the scores; −inf hides.
        """
        if query.is_nested:
            return self._nested(query, key, value, need_weights, average_attn_weights)
        if is_causal and attn_mask is None:
            raise RegardError(
                "is_causal=True requires attn_mask; give attn_mask="
                "nn.Transformer.generate_square_subsequent_mask(n)"
            )
        batched = query.ndim == 3
        if not batched:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        mask, bias = mask_and_bias(key_padding_mask, attn_mask, query, key, self.num_heads)
        output, weights = self._attend(query, key, value, mask, bias, need_weights)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output[0], None if weights is None else weights[0]
        return output if self.batch_first else output.transpose(0, 1), weights

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return outputs (batch, n, embed_dim) and, if needed, weights (batch, heads, n, m)."""
        if mask is not None:
            query, keys, values = without_hidden(mask, query, key, value, None, None)
            key, value = query if keys is None else keys, value if values is None else values
        biased = self.attention.score
        assert isinstance(biased, AddedBias)
        biased.set_bias(bias)
        self.attention.dropout = self.dropout
        try:
            attended = self.attention(*self._heads(query, key, value), mask)
            weights = attended.weights if need_weights else None
        finally:
            biased.set_bias(None)
        output: Tensor = self.out_proj(attended.output.transpose(1, 2).flatten(2))
        return output, weights

    def _heads(self, *inputs: Tensor) -> list[Tensor]:
        """Project queries, keys and values to (batch, heads, n, head_dim)."""
        if self.in_proj_weight is not None:
            matrices = self.in_proj_weight.chunk(3)
        else:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = [F.linear(*part) for part in zip(inputs, matrices, biases, strict=True)]
        return [x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected]

    def _nested(
        self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within the texts of a nested tensor, which ``nn.TransformerEncoder`` builds."""
        if not query is key is value:
            raise RegardError(
                "nested tensors are only supported for self-attention; pad them first"
            )
        sizes = torch.tensor([len(text) for text in query.unbind()], device=query.device)
        padded = query.to_padded_tensor(0.0)
        hidden = torch.arange(padded.shape[1], device=query.device) >= sizes[:, None]
        mask, _ = mask_and_bias(hidden, None, padded, padded, self.num_heads)
        output, weights = self._attend(padded, padded, padded, mask, None, need_weights)
        if weights is not None and average:
            weights = weights.mean(1)
        return torch._nested_tensor_from_mask(output, ~hidden, mask_check=False), weights


Shapes = dict[
    tuple[int, ...], tuple[int, ...]
]  # accepted shapes of a mask, and the shape it is read as


def mask_and_bias(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    queries: Tensor,
    keys: Tensor,
    heads: int,
) -> tuple[Mask | None, Tensor | None]:
    """Split torch's masks into a mask that hides and a bias that is added to the scores.

    Queries are (batch, n, …), keys (batch, m, …). Raises: a mask of another shape, or of
    integers.
    """
    batch, n, m = len(queries), queries.shape[1], keys.shape[1]
    padding: Shapes = {(batch, m): (batch, 1, 1, m)}
    pairs: Shapes = {(n, m): (n, m), (batch * heads, n, m): (batch, heads, n, m)}
    mask: Mask | None = None
    bias: Tensor | None = None
    for name, tensor, known in (
        ("key_padding_mask", key_padding_mask, padding),
        ("attn_mask", attn_mask, pairs),
    ):
        if tensor is None:
            continue
        if tuple(tensor.shape) not in known:
            expected = " or ".join(map(str, known))
            raise RegardError(f"{name} must be {expected}, not {tuple(tensor.shape)}")
        table = tensor.reshape(known[tuple(tensor.shape)])
        if not (table.dtype == torch.bool or table.is_floating_point()):
            raise RegardError(f"{name} must be bool or float, not {table.dtype}")
        below = table if table.dtype == torch.bool else table == -torch.inf
        if table.dtype != torch.bool and (table.requires_grad or bool((table != 0)[~below].any())):
            rest = table.masked_fill(below, 0)
            bias = rest if bias is None else bias + rest
        if not bool(below.any()):
            continue
        over_heads = below.ndim == 4 and below.shape[1] > 1
        if below.ndim == 4 and not over_heads:
            below = below[:, 0]
        visible = dense(~below, over_heads=over_heads)
        mask = visible if mask is None else mask & visible
    return mask, bias
