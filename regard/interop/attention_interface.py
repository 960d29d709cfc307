"""``attn_implementation="regard"``: any model of transformers, its attention computed by regard.

register()                                       # once a process
model = AutoModel.from_pretrained(name, attn_implementation="regard")
register("regard-entmax", normalize="entmax15")  # under a name of its own
adopt(model, score="additive")                   # a score with parameters, and recording
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Attention, Mask, Score, causal, make_score
from regard.attention.masks import dense
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import Sink
from regard.attention.prepared import Positions, Prepared, alone, as_tuple
from regard.attention.twin import twin
from regard.attention.wrapper import Wrapper
from regard.errors import RegardError
from regard.interop.eager import (
    EagerMask,
    eager_masks,
    refuse_changed,
    refuse_difference,
    tiny_example,
)

NAME = "regard"
#: Where a model's attention module keeps regard's layer.
PLACE = "regard"
#: By this name `adopt` looks whether regard changes a model.
CHECK = "regard-beside-eager"
#: What is passed along and changes no number in eager either, and why.
HARMLESS = {
    "is_causal": "the mask says what is hidden, as in eager",
    "sliding_window": "is in the mask",
    "position_ids": "are in the queries and keys, and in the mask",
    "output_attentions": "asks for the weights, which are given",
    "output_hidden_states": "is for the model",
    "output_router_logits": "is for the model",
    "return_dict": "is for the model",
    "logits_to_keep": "is for the model",
    "deterministic": "is about flash attention's gradients",
    "grid_thw": "is in the positions",
    "use_cache": "the cache is in the keys and values",
    "num_items_in_batch": "is for the loss",
}
#: Why a model is refused for what it passes; of other keywords the name is said.
UNKNOWN = {
    "softcap": "caps its scores (softcap)",
    "block_indices": "picks blocks of keys for each query (block_indices)",
    "sinks": "has sinks that depend on the text (sinks)",
}


class Given(Wrapper):
    """score(q, k) + b, with b (…, queries, keys) given for one call, by place: T5's bias, say.

    Without b it is the inner score, and an inner product if that is one.
    """

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        self.bias: Tensor | None = None
        self.parts = 1  # tensors that the inner score prepares of queries

    def give(self, bias: Tensor | None) -> None:
        """What the next call adds."""
        self.bias = bias
        self.adds = bias is not None

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        inner = as_tuple(self.inner.prepare_queries(queries, positions))
        self.parts = len(inner)
        if self.bias is None:
            return alone(inner)
        return (self.bias.to(queries.dtype).expand(*queries.shape[:-1], -1), *inner)

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        parts = as_tuple(queries)
        if len(parts) == self.parts:
            return (), queries
        return parts[0], alone(parts[1:])

    def added(
        self, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor | None:
        if not isinstance(queries, Tensor):
            return None
        columns = positions[1]
        return queries if len(columns) == queries.shape[-1] else queries.index_select(-1, columns)


class Borrowed(Attention):
    """regard's layer in a module of transformers; ``scaled``: by the model's own scale.

    ``named``: the score and normaliser that it was made by; of a layer that `adopt` made none.
    """

    named: tuple[str, str] | None = None
    #: Whether the module's eager attention was seen to give the same.
    compared = False

    def __init__(self, score: Score, normalize: str, heads: int, *, scaled: bool) -> None:
        super().__init__(Given(score), normalize, heads=heads)
        self.scaled = scaled


def register(name: str = NAME, *, score: str = "scaled-dot", normalize: str = "softmax") -> None:
    """Let models take ``attn_implementation=name``, by this score and normaliser.

    "scaled-dot" is q·k with the scale that the model itself has; another score gets its queries and
    keys as they are, after the model's own rotation where it has one. Masks and caches are the
    model's; ``output_attentions=True`` gives the weights, before dropout.

    The first call of each attention of a model is compared with the model's own eager attention,
    on a few queries: a model that regard would change is refused there.

    Errors: no transformers; a score or normaliser that does not exist, or that has parameters,
    which would be made too late to be trained: `adopt` makes them beforehand.
    """
    interface, masks = interfaces()
    place = place_of(name)
    layer = make_layer(score, normalize, 8, 1)
    if any(True for _ in layer.parameters()):
        raise RegardError(
            f"score={score} with normalize={normalize} has parameters, one set a layer: "
            f"adopt(model, score={score!r}, normalize={normalize!r}) makes them, to be trained"
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
        **given: Any,
    ) -> tuple[Tensor, Tensor | None]:
        here = getattr(module, place, None)
        if here is None or here.named not in (None, (score, normalize)):
            here = make_layer(score, normalize, query.shape[-1], query.shape[1])
            here.named = score, normalize
            module.add_module(place, here.to(query.device).train(module.training))
        known = {key: given.pop(key, None) for key in ("scaling", "s_aux")}
        refuse(given)
        if indices is not None:
            attention_mask = chosen(attention_mask, indices, key.shape[-2])
        if not here.compared:
            plain = make_layer("scaled-dot", "softmax", query.shape[-1], query.shape[1])
            ours = partial(attended, plain.to(query.device))
            refuse_difference(module, ours, query, key, value, attention_mask, position_bias, known)
            here.compared = True
        return attended(
            here, query, key, value, attention_mask, dropout=dropout, position_bias=position_bias,
            weights=wants_weights(given), **known,
        )  # fmt: skip

    interface.register(name, forward)
    masks.register(name, eager_masks)


def adopt(
    model: nn.Module,
    *,
    score: str = "scaled-dot",
    normalize: str = "softmax",
    length: int | None = None,
    example: dict[str, Tensor] | None = None,
) -> list[str]:
    """Give every attention of a model of transformers a layer of regard; the modules' names.

    As ``attn_implementation="regard"``, with parameters where the score or normaliser has some
    (they are the model's own then, trained and saved with it), and with layers that
    `regard.analysis.record.record` sees. ``length``, the longest text, is for synthesizers.

    The model is asked ``example``, the arguments of its forward, by eager and by regard's softmax;
    by default six words, or a picture.

    Errors: as of `register`; a model that goes another way than transformers' attention interface,
    or that regard would change; one that takes neither words nor a picture, without ``example``.
    """
    register()
    register(CHECK)
    found = {name: x for name, x in model.named_modules() if is_attention(x)}
    if not found:
        raise RegardError(
            f"{type(model).__name__} has no attention that regard can replace: none of its modules "
            "has a scale and heads like those of transformers"
        )
    refuse_changed(model, CHECK, place_of(CHECK), example or tiny_example(model))
    for module in found.values():
        width, heads = shape_of(module)
        layer = make_layer(score, normalize, width, heads, length)
        like = next(module.parameters())
        module.add_module(PLACE, layer.to(like.device, like.dtype).train(module.training))
    model.set_attn_implementation(NAME)  # type: ignore[operator]
    return list(found)


def place_of(name: str) -> str:
    """Where a module keeps the layer of this name; `NAME` alone takes what `adopt` put there."""
    return PLACE if name == NAME else f"{PLACE}:{name}".replace(".", "_")


def interfaces() -> tuple[Any, Any]:
    """transformers' tables of attention functions and of masks."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise RegardError(
            f"transformers 5 is not installed ({error}): pip install -c constraints.txt '.[hf]'"
        ) from None
    return AttentionInterface, AttentionMaskInterface


def make_layer(
    score: str, normalize: str, width: int, heads: int, length: int | None = None
) -> Borrowed:
    """regard's layer for one attention module: heads of this width."""
    inner = "dot" if score == "scaled-dot" else score
    made = make_score(inner, "none", width, width, heads=heads, length=length)
    return Borrowed(made, normalize, heads, scaled=score == "scaled-dot")


def attended(
    layer: Borrowed,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """One call: outputs (batch, n, heads, width), and the weights if they are asked for.

    No mask hides nothing; ``s_aux`` (heads) are the scores of looking at nothing.
    """
    n, bias = queries.shape[-2], position_bias
    if layer.scaled:
        queries = queries * (queries.shape[-1] ** -0.5 if scaling is None else scaling)
    seen: Mask | None = None
    if isinstance(mask, EagerMask) and mask.causal and not mask.changed:
        if n > 1:
            keys, values = keys[..., :n, :], values[..., :n, :]  # a static cache has room beyond
            bias = None if bias is None else bias[..., :n]
            seen = causal()
    elif mask is not None:
        allowed, bias = mask_of(mask, bias)
        if layer.scaled and s_aux is None:
            allowed, queries, bias = even(allowed, queries, bias)
        shared = allowed.shape[1] == 1
        seen = dense(allowed.squeeze(1) if shared else allowed, over_heads=not shared)
    given = layer.score
    assert isinstance(given, Given)
    given.give(bias if bias is not None and (bias.requires_grad or bool(bias.any())) else None)
    layer.dropout, own = dropout, layer.normalize
    try:
        if s_aux is not None:
            layer.normalize = sunk(layer, s_aux)
        found: Attended = layer(queries, keys, values, seen)
        table = found.weights if weights else None
    finally:
        layer.normalize = own
        given.give(None)
    return found.output.transpose(1, 2).contiguous(), table


def sunk(layer: Borrowed, sinks: Tensor) -> Normalizer:
    """The softmax that may look at nothing, by the model's own scores of that (heads)."""
    if layer.normalize.name != "softmax":
        raise RegardError(
            f"this model has attention sinks, which normalize={layer.normalize.name} does not "
            "support; use normalize=softmax, or a model without sinks"
        )
    made = twin(Sink(len(sinks)), [sinks.reshape(-1, 1, 1)])
    assert isinstance(made, Sink)
    return made


def chosen(mask: Tensor | None, indices: Tensor, keys: int) -> Tensor:
    """The mask, and all keys but those that a query chose: indices (batch, queries, so many)."""
    hidden = indices.new_ones(*indices.shape[:2], keys, dtype=torch.bool)
    hidden = hidden.scatter(-1, indices.long(), False).unsqueeze(1)
    return ~hidden if mask is None else mask.masked_fill(hidden, torch.finfo(mask.dtype).min)


def mask_of(mask: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """What may be seen, (batch, heads or 1, n or 1, m), and what else is added to the scores.

    A mask of numbers hides where it is as low as numbers go, or −inf; what it holds elsewhere is
    added, as they add it.
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


def even(
    allowed: Tensor, queries: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Let a query that may see nothing look at all keys alike, as eager does.

    Added to the lowest number, a score is lost. Some families read such a query: CLIP's kind pools
    the first word where it finds no end, padded or not.
    """
    nothing = ~allowed.any(-1, keepdim=True)
    queries = queries.masked_fill(nothing, 0)
    return allowed | nothing, queries, None if bias is None else bias.masked_fill(nothing, 0)


def wants_weights(given: dict[str, Any]) -> bool:
    """Return whether the weights of this call are used; else they are not computed."""
    if given.get("output_attentions"):
        return True
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # another version keeps it elsewhere; weights are then always given
        return True
    collected = _active_collector.get()  # type: ignore[no-untyped-call]
    return any("attentions" in key for key in collected or ())


def refuse(given: dict[str, Any]) -> None:
    """Say what a model passes that regard does not know, which may change its numbers."""
    for key, value in given.items():
        if value is not None and key not in HARMLESS:
            says = UNKNOWN.get(key, f"passes {key} to its attention")
            raise RegardError(f"this model {says}, which regard's attention does not: take eager")


def is_attention(module: nn.Module) -> bool:
    """Whether a module is what transformers' interface is called with: it has a scale."""
    name = type(module).__name__
    return name.endswith("Attention") and hasattr(module, "scaling") and hasattr(module, "config")


def shape_of(module: Any) -> tuple[int, int]:
    """The width of a head and how many there are, under the names that models have for them."""
    heads = said(module, "num_heads", "n_heads", "num_attention_heads")
    heads = heads or said(module.config, "num_attention_heads")
    width = said(module, "head_dim", "attention_head_size", "key_value_proj_dim", "head_size")
    if not width and heads:
        width = said(module.config, "head_dim") or said(module.config, "hidden_size") // heads
    if not width or not heads:
        raise RegardError(f"{type(module).__name__} does not say how many heads it has, or how "
                          "wide they are")  # fmt: skip
    return width, heads


def said(positions: Any, *names: str) -> int:
    """The first of these attributes that is a count; 0 if none is."""
    found = (getattr(positions, name, None) for name in names)
    return next((int(x) for x in found if isinstance(x, int) and x > 0), 0)
