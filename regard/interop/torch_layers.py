"""torch's attention layer and its masks, in regard's own terms.

The same numbers from `MultiHeadAttention`: then another score, recorded weights, any mask.
"""

import torch
from torch import Tensor, nn

from regard.attention import Mask, MultiHeadAttention, dense
from regard.errors import RegardError


def from_torch(layer: nn.MultiheadAttention) -> MultiHeadAttention:
    """torch's layer as regard's, with copies of its weights, its dropout and its mode.

    What is frozen there is frozen here. Texts come as (batch, n, width) whatever its
    ``batch_first`` was, and ``layer(x)`` is its ``layer(x, x, x)[0]``. Errors: ``add_bias_kv`` and
    ``add_zero_attn``, keys that no text has.

    >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> bool((from_torch(theirs)(x) - theirs(x, x, x)[0]).abs().max() < 1e-6)
    True
    """
    if layer.bias_k is not None or layer.add_zero_attn:
        raise RegardError("add_bias_kv and add_zero_attn add keys of no text: there is no layer so")
    width, heads = layer.embed_dim, layer.num_heads
    packed = layer.in_proj_weight is not None
    found = MultiHeadAttention(
        width,
        heads,
        dropout=layer.dropout,
        key_width=None if packed else layer.kdim,
        value_width=None if packed else layer.vdim,
        bias=layer.in_proj_bias is not None,
    )
    theirs: dict[str, Tensor] = {"output.weight": layer.out_proj.weight}
    if packed:
        theirs["project.weight"] = layer.in_proj_weight
    else:
        theirs["project_queries.weight"] = layer.q_proj_weight
        theirs["project_keys.weight"] = layer.k_proj_weight
        theirs["project_values.weight"] = layer.v_proj_weight
    if layer.in_proj_bias is not None:
        names = ["project"] if packed else [f"project_{x}" for x in ("queries", "keys", "values")]
        parts = layer.in_proj_bias.chunk(len(names))
        theirs |= {f"{name}.bias": part for name, part in zip(names, parts, strict=True)}
        theirs["output.bias"] = layer.out_proj.bias
    found = found.to(layer.out_proj.weight)  # before, so that float64 keeps its digits
    found.load_state_dict(theirs)
    for name, parameter in found.named_parameters():
        source = theirs[name]
        source = source if source._base is None else source._base  # a part of one bias
        parameter.requires_grad_(source.requires_grad)
    return found.train(layer.training)


def mask_from_torch(
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    *,
    heads: int | None = None,
) -> Mask | None:
    """torch's masks of ``nn.MultiheadAttention``, where True or −inf hides, as one that may see.

    ``key_padding_mask`` is (batch, m), ``attn_mask`` (n, m), or with ``heads`` one of each head:
    (batch · heads, n, m). Errors: another shape; a number that is added to scores and hides
    nothing, which is a bias and no mask.

    >>> mask_from_torch(torch.tensor([[False, True]])).allows(torch.arange(1), torch.arange(2))
    tensor([[[ True, False]]])
    """
    if attn_mask is not None and attn_mask.ndim == 3 and heads and len(attn_mask) % heads == 0:
        attn_mask = attn_mask.unflatten(0, (-1, heads))
    elif attn_mask is not None and attn_mask.ndim != 2:
        raise RegardError(
            f"an attn_mask is (queries, keys), or with heads= (batch * heads, queries, keys), not "
            f"{tuple(attn_mask.shape)} with heads={heads}"
        )
    seen: Mask | None = None
    if key_padding_mask is not None:
        seen = dense(~hidden(key_padding_mask, "key_padding_mask")[:, None, :])
    if attn_mask is not None:
        table = dense(~hidden(attn_mask, "attn_mask"), over_heads=attn_mask.ndim > 2)
        seen = table if seen is None else seen & table
    return seen


def hidden(mask: Tensor, name: str) -> Tensor:
    """What a mask of torch's hides, as bools."""
    if mask.dtype == torch.bool:
        return mask
    below = mask == -torch.inf
    if not (below | (mask == 0)).all():
        raise RegardError(
            f"{name} holds numbers other than 0 and -inf: they are added to the scores, and a mask "
            "hides; a score with a bias is position=alibi or t5-bias, or one of your own"
        )
    return below
