"""``attn_implementation="regard"``: compute the attention of a transformers model by regard.

register()                                       # once per process
model = AutoModel.from_pretrained(name, attn_implementation="regard")
register("regard-entmax", normalize="entmax15")  # under another name
replace(model, score="additive")                   # a score with parameters, and recording
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Attention, Mask, Score, causal, make_score
from regard.attention.masks import dense
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers.basic import Sink, SoftmaxPlusOne
from regard.attention.tracing import on_cpu
from regard.attention.twin import twin
from regard.core.errors import RegardError, importing
from regard.interop.added_bias import AddedBias
from regard.interop.eager import (
    EagerMask,
    eager_masks,
    refuse_changed,
    refuse_difference,
    tiny_example,
)

NAME = "regard"
#: The attribute of an attention module that holds regard's layer.
PLACE = "regard"
#: The name under which `replace` checks that regard does not change a model.
CHECK = "regard-check"
#: Keywords that do not change eager attention, with the reason; they are ignored.
HARMLESS = {
    "is_causal": "the mask holds it, as in eager",
    "sliding_window": "the mask holds it",
    "position_ids": "the queries, the keys and the mask hold them",
    "output_attentions": "the weights are returned",
    "input_ids": "are for the model",
    "output_hidden_states": "is for the model",
    "output_router_logits": "is for the model",
    "return_dict": "is for the model",
    "logits_to_keep": "is for the model",
    "deterministic": "for the gradients of flash attention",
    "grid_thw": "the positions hold it",
    "use_cache": "the keys and values hold the cache",
    "num_items_in_batch": "for the loss",
}
#: Unsupported features by their keyword; for other keywords the error names the keyword.
UNKNOWN = {"block_indices": "picks blocks of keys for each query (block_indices)"}


class BorrowedAttention(Attention):
    """regard's attention layer in a module of transformers; ``scaled``: by the model's own scale.

    ``registered``: the score and normaliser of `register`; None for a layer of `replace`.
    """

    registered: tuple[str, str] | None = None
    #: True once the layer was compared with the module's eager attention.
    compared = False

    def __init__(self, score: Score, normalize: str, heads: int, *, scaled: bool) -> None:
        super().__init__(AddedBias(score), normalize, heads=heads)
        self.scaled = scaled


def register(name: str = NAME, *, score: str = "scaled-dot", normalize: str = "softmax") -> None:
    """Register ``attn_implementation=name`` in transformers, with this score and normaliser.

    "scaled-dot" is q·k with the model's own scale; another score takes the queries and keys
    unscaled, after the model's rotation if it has one. Masks and caches are the model's;
    ``output_attentions=True`` returns the weights before dropout.

    The first call of each attention layer compares a few queries with the model's own eager
    attention, and raises an error if regard would change the result.

    Raises: transformers is not installed; an unknown score or normaliser, or one with parameters,
    which `replace` must create before the optimizer is built.
    """
    interface, masks = interfaces()
    place = place_of(name)
    probe = make_layer(score, normalize, 8, 1)
    if any(True for _ in probe.parameters()):
        raise RegardError(
            f"score={score} with normalize={normalize} has parameters in each layer; create them "
            f"before training by replace(model, score={score!r}, normalize={normalize!r})"
        )

    def forward(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        indices: Tensor | None = None,
        position_bias: Tensor | None = None,
        **keywords: Any,
    ) -> tuple[Tensor, Tensor | None]:
        layer = getattr(module, place, None)
        if layer is None or layer.registered not in (None, (score, normalize)):
            layer = make_layer(score, normalize, query.shape[-1], query.shape[1])
            layer.registered = score, normalize
            module.add_module(place, layer.to(query.device).train(module.training))
        known = {key: keywords.pop(key, None) for key in ("scaling", "s_aux", "sinks", "softcap")}
        attention_mask = select_blocks(module, attention_mask, query, key, keywords)
        refuse(keywords)
        if indices is not None:
            attention_mask = select_keys(attention_mask, indices, key.shape[-2])
        if not layer.compared:
            plain = make_layer("scaled-dot", "softmax", query.shape[-1], query.shape[1])
            call = partial(attended, plain.to(query.device))
            refuse_difference(module, call, query, key, value, attention_mask, position_bias, known)
            layer.compared = True
        return attended(
            layer, query, key, value, attention_mask, dropout=dropout, position_bias=position_bias,
            weights=wants_weights(keywords), **known,
        )  # fmt: skip

    interface.register(name, forward)
    masks.register(name, eager_masks)


def replace(
    model: nn.Module,
    *,
    score: str = "scaled-dot",
    normalize: str = "softmax",
    length: int | None = None,
    example: dict[str, Tensor] | None = None,
) -> list[str]:
    """Add a regard layer to every attention module of a transformers model; return their names.

    This is ``attn_implementation="regard"`` with two additions: parameters of the score or
    normaliser belong to the model and are trained and saved with it, and
    `regard.analysis.record.record` records the layers. ``length``, the longest text, is needed by
    synthesizers.

    The model runs once on ``example``, the arguments of its forward, with eager attention and once
    with regard's softmax; the default is six tokens or one image.

    Raises: as `register`; a model that does not use transformers' attention interface, or whose
    outputs regard would change; a model without ``example`` that reads neither tokens nor images.
    """
    register()
    register(CHECK)
    modules = {name: x for name, x in model.named_modules() if is_attention(x)}
    if not modules:
        raise RegardError(
            f"{type(model).__name__} has no attention that regard can replace: no module has a "
            "scale and heads under the names that transformers uses"
        )
    refuse_changed(model, CHECK, place_of(CHECK), example or tiny_example(model))
    for module in modules.values():
        width, heads = shape_of(module)
        layer = make_layer(score, normalize, width, heads, length)
        parameter = next(module.parameters())
        module.add_module(PLACE, layer.to(parameter.device, parameter.dtype).train(module.training))
    model.set_attn_implementation(NAME)  # type: ignore[operator]
    return list(modules)


def place_of(name: str) -> str:
    """Return the attribute for the layer of this name; `NAME` shares it with `replace`."""
    return PLACE if name == NAME else f"{PLACE}:{name}".replace(".", "_")


def interfaces() -> tuple[Any, Any]:
    """Return transformers' tables of attention functions and of mask functions."""
    with importing("transformers 5 is not installed", "hf"):
        from transformers import AttentionInterface, AttentionMaskInterface
    return AttentionInterface, AttentionMaskInterface


def make_layer(
    score: str, normalize: str, width: int, heads: int, length: int | None = None
) -> BorrowedAttention:
    """Return regard's layer for one attention module with heads of this width."""
    inner = "dot" if score == "scaled-dot" else score
    scorer = make_score(inner, "none", width, width, heads=heads, length=length)
    return BorrowedAttention(scorer, normalize, heads, scaled=score == "scaled-dot")


def attended(
    layer: BorrowedAttention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the outputs (batch, n, heads, width) and, if ``weights``, the attention weights.

    Without a mask all keys are visible; ``s_aux`` (heads) are the scores of the attention sinks,
    ``sinks`` (batch, heads, n, 1) the scores of a sink for each query, and ``softcap`` bounds the
    scores, equally in each call of a layer.
    """
    n, bias = queries.shape[-2], position_bias
    if layer.scaled:
        queries = queries * (queries.shape[-1] ** -0.5 if scaling is None else scaling)
    visible: Mask | None = None
    if isinstance(mask, EagerMask) and mask.causal and not mask.changed:
        if n > 1:
            # A static cache is longer than the text.
            keys, values = keys[..., :n, :], values[..., :n, :]
            bias = None if bias is None else bias[..., :n]
            visible = causal()
    elif mask is not None:
        allowed, bias = mask_of(mask, bias)
        if layer.scaled and s_aux is None and sinks is None:
            allowed, queries, bias = even_out(allowed, queries, bias)
        shared = allowed.shape[1] == 1
        visible = dense(allowed.squeeze(1) if shared else allowed, over_heads=not shared)
    if sinks is not None:
        # With b for the sink: exp(s) / (exp(b) + Σ exp(s_i)) = exp(s − b) / (1 + Σ exp(s_i − b)).
        bias = (-sinks if bias is None else bias - sinks).expand(*sinks.shape[:-1], keys.shape[-2])
    biased = layer.score
    assert isinstance(biased, AddedBias)
    biased.cap = softcap
    biased.set_bias(bias if bias is not None and (bias.requires_grad or bool(bias.any())) else None)
    layer.dropout, normalizer = dropout, layer.normalize
    try:
        if s_aux is not None or sinks is not None:
            layer.normalize = with_sinks(layer, s_aux)
        result: Attended = layer(queries, keys, values, visible)
        table = result.weights if weights else None
    finally:
        layer.normalize = normalizer
        biased.set_bias(None)
    return result.output.transpose(1, 2).contiguous(), table


def with_sinks(layer: BorrowedAttention, sinks: Tensor | None) -> Normalizer:
    """Return softmax with the model's attention sinks, one score for each head; None for 0."""
    if layer.normalize.name != "softmax":
        raise RegardError(
            f"this model has attention sinks, which normalize={layer.normalize.name} does not "
            "support; use normalize=softmax, or a model without sinks"
        )
    if sinks is None:
        return SoftmaxPlusOne()
    normalizer = twin(Sink(len(sinks)), [sinks.reshape(-1, 1, 1)])
    assert isinstance(normalizer, Sink)
    return normalizer


def select_keys(mask: Tensor | None, indices: Tensor, keys: int) -> Tensor:
    """Return the mask that also hides all keys except ``indices`` (batch, queries, k)."""
    hidden = indices.new_ones(*indices.shape[:2], keys, dtype=torch.bool)
    hidden = hidden.scatter(-1, indices.long(), False).unsqueeze(1)
    return ~hidden if mask is None else mask.masked_fill(hidden, torch.finfo(mask.dtype).min)


def select_blocks(
    module: nn.Module,
    mask: Tensor | None,
    queries: Tensor,
    keys: Tensor,
    keywords: dict[str, Any],
) -> Tensor | None:
    """Return the mask that also hides the blocks of keys that the module's indexer did not select.

    MiniMax M3 builds this mask itself for eager and sdpa alone. ``block_indices`` is taken out of
    the keywords if the module can build the mask.
    """
    blocks = keywords.get("block_indices")
    build = getattr(getattr(module, "indexer", None), "build_block_mask", None)
    if blocks is None or build is None:
        return mask
    del keywords["block_indices"]
    n, m = queries.shape[-2], keys.shape[-2]
    places = keywords.get("position_ids")
    if places is None:
        places = torch.arange(m - n, m, device=queries.device).expand(len(queries), -1)
    masked: Tensor = build(blocks, mask, m, queries.dtype, queries.device, places)
    return masked


def mask_of(mask: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the visible pairs (batch, heads or 1, n or 1, m) and the bias added to the scores.

    In a float mask, −inf and the dtype's lowest number hide a pair; other numbers are added to the
    scores, as in eager attention.
    """
    if isinstance(mask, EagerMask):
        mask = mask.numbers() if mask.changed else mask.table()
    if mask.dtype == torch.bool:
        return mask, bias
    allowed = mask > torch.finfo(mask.dtype).min / 2
    rest = mask.masked_fill(~allowed, 0)
    if bool(rest.any()):
        bias = rest if bias is None else bias + rest
    return allowed, bias


def even_out(
    allowed: Tensor, queries: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Let a query without visible keys attend to all keys equally, as eager does.

    In eager, adding the lowest number absorbs every score. Some models read such a query: CLIP
    pools the first token if there is no end token, padded or not.
    """
    nothing = ~allowed.any(-1, keepdim=True)
    if on_cpu(nothing) and not bool(nothing.any()):
        return allowed, queries, bias
    queries = queries.masked_fill(nothing, 0)
    return allowed | nothing, queries, None if bias is None else bias.masked_fill(nothing, 0)


def wants_weights(keywords: dict[str, Any]) -> bool:
    """Return whether the caller reads the weights of this call; otherwise they are not computed."""
    if keywords.get("output_attentions"):
        return True
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # moved in other versions of transformers; then always return weights
        return True
    collected = _active_collector.get()  # type: ignore[no-untyped-call]
    return any("attentions" in key for key in collected or ())


def refuse(keywords: dict[str, Any]) -> None:
    """Raise an error for a keyword that regard does not support and that may change the result."""
    for key, value in keywords.items():
        if value is not None and key not in HARMLESS:
            feature = UNKNOWN.get(key, f"passes {key} to its attention")
            raise RegardError(
                f"this model {feature}, which regard's attention does not support; use "
                "attn_implementation='eager'"
            )


def is_attention(module: nn.Module) -> bool:
    """Return whether a module calls transformers' attention interface: it has a scale."""
    name = type(module).__name__
    return name.endswith("Attention") and hasattr(module, "scaling") and hasattr(module, "config")


def shape_of(module: Any) -> tuple[int, int]:
    """Return the width of a head and the number of heads, under any of the names models use."""
    heads = first_count(module, "num_heads", "n_heads", "num_attention_heads")
    heads = heads or first_count(module.config, "num_attention_heads")
    width = first_count(
        module, "head_dim", "attention_head_size", "key_value_proj_dim", "head_size"
    )
    if not width and heads:
        width = (
            first_count(module.config, "head_dim")
            or first_count(module.config, "hidden_size") // heads
        )
    if not width or not heads:
        raise RegardError(
            f"{type(module).__name__} has no known attribute for its number of heads or their width"
        )
    return width, heads


def first_count(holder: Any, *names: str) -> int:
    """Return the first of these attributes that is a positive integer; 0 if there is none."""
    values = (getattr(holder, name, None) for name in names)
    return next((int(x) for x in values if isinstance(x, int) and x > 0), 0)
