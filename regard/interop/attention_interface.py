"""``attn_implementation="regard"``: any model of transformers, its attention computed by regard.

register()                                       # once a process
model = AutoModel.from_pretrained(name, attn_implementation="regard")
register("regard-entmax", normalize="entmax15")  # under a name of its own
adopt(model, score="additive")                   # a score with parameters, and recording
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attended, Attention, Mask, Score, causal, dense, make_score
from regard.attention.score import Prepared, Where, as_tuple
from regard.attention.wrapper import Wrapper, alone
from regard.errors import RegardError

NAME = "regard"
#: Where a model's attention module keeps regard's layer.
PLACE = "regard"
#: What some models ask of an attention that is no part of a score, mask or normaliser.
UNKNOWN = {"softcap": "caps its scores (softcap)", "s_aux": "has sinks of its own (s_aux)"}


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
        self.inner_product = self.inner.inner_product and bias is None

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Prepared:
        inner = as_tuple(self.inner.prepare_queries(queries, where))
        self.parts = len(inner)
        if self.bias is None:
            return alone(inner)
        return (self.bias.to(queries.dtype).expand(*queries.shape[:-1], -1), *inner)

    def own(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        parts = as_tuple(queries)
        if len(parts) == self.parts:
            return (), queries
        return parts[0], alone(parts[1:])

    def added(self, queries: Prepared, where: Where) -> Tensor | None:
        if not isinstance(queries, Tensor):
            return None
        columns = where[1]
        return queries if len(columns) == queries.shape[-1] else queries.index_select(-1, columns)


class Borrowed(Attention):
    """regard's layer in a module of transformers; ``scaled``: by the model's own scale.

    ``named``: the score and normaliser that it was made by; of a layer that `adopt` made none.
    """

    named: tuple[str, str] | None = None

    def __init__(self, score: Score, normalize: str, heads: int, *, scaled: bool) -> None:
        super().__init__(Given(score), normalize, heads=heads)
        self.scaled = scaled


def register(name: str = NAME, *, score: str = "scaled-dot", normalize: str = "softmax") -> None:
    """Let models take ``attn_implementation=name``, by this score and normaliser.

    "scaled-dot" is q·k with the scale that the model itself has; another score gets its queries and
    keys as they are, after the model's own rotation where it has one. Masks and caches are the
    model's; ``output_attentions=True`` gives the weights, before dropout.

    Errors: no transformers; a score or normaliser that does not exist, or that has parameters,
    which would be made too late to be trained: `adopt` makes them beforehand.
    """
    interface, masks = interfaces()
    # Each name has a layer of its own in a model, and only `NAME` takes what `adopt` put there.
    place = PLACE if name == NAME else f"{PLACE}:{name}".replace(".", "_")
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
        scaling: float | None = None,
        is_causal: bool | None = None,
        position_bias: Tensor | None = None,
        **given: Any,
    ) -> tuple[Tensor, Tensor | None]:
        here = getattr(module, place, None)
        if here is None or here.named not in (None, (score, normalize)):
            here = make_layer(score, normalize, query.shape[-1], query.shape[1])
            here.named = score, normalize
            module.add_module(place, here.to(query.device).train(module.training))
        refuse(given)
        if is_causal is None:
            is_causal = bool(getattr(module, "is_causal", True))
        return attended(
            here, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias,
            weights=wants_weights(given),
        )  # fmt: skip

    from transformers.masking_utils import sdpa_mask

    interface.register(name, forward)
    masks.register(name, sdpa_mask)


def adopt(
    model: nn.Module,
    *,
    score: str = "scaled-dot",
    normalize: str = "softmax",
    length: int | None = None,
) -> list[str]:
    """Give every attention of a model of transformers a layer of regard; the modules' names.

    As ``attn_implementation="regard"``, with parameters where the score or normaliser has some
    (they are the model's own then, trained and saved with it), and with layers that
    `regard.analysis.record.record` sees. ``length``, the longest text, is for synthesizers.

    Errors: as of `register`; a model that goes another way than transformers' attention interface.
    """
    register()
    found = {name: x for name, x in model.named_modules() if is_attention(x)}
    if not found:
        raise RegardError(
            f"{type(model).__name__} has no attention that regard can take the place of: none of "
            "its modules has a scale and heads as transformers' own have"
        )
    for module in found.values():
        width, heads = shape_of(module)
        layer = make_layer(score, normalize, width, heads, length)
        like = next(module.parameters())
        module.add_module(PLACE, layer.to(like.device, like.dtype).train(module.training))
    model.set_attn_implementation(NAME)  # type: ignore[operator]
    return list(found)


def interfaces() -> tuple[Any, Any]:
    """transformers' tables of attention functions and of masks."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise RegardError(
            f"transformers 5 is not here ({error}): pip install -c constraints.txt '.[hf]'"
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
    dropout: float,
    scaling: float | None,
    is_causal: bool,
    bias: Tensor | None,
    *,
    weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """One call: outputs (batch, n, heads, width), and the weights if they are asked for."""
    n = queries.shape[-2]
    seen: Mask | None = None
    if mask is None and is_causal and n > 1:
        keys, values = keys[..., :n, :], values[..., :n, :]  # a new static cache has room beyond
        bias = None if bias is None else bias[..., :n]
        seen = causal()
    elif mask is not None:
        mask = mask[..., : keys.shape[-2]]
        seen, bias = mask_of(mask, bias)
    if layer.scaled:
        queries = queries * (queries.shape[-1] ** -0.5 if scaling is None else scaling)
    given = layer.score
    assert isinstance(given, Given)
    given.give(bias if bias is not None and (bias.requires_grad or bool(bias.any())) else None)
    layer.dropout = dropout
    try:
        found: Attended = layer(queries, keys, values, seen)
        table = found.weights if weights else None
    finally:
        given.give(None)
    return found.output.transpose(1, 2).contiguous(), table


def mask_of(mask: Tensor, bias: Tensor | None) -> tuple[Mask, Tensor | None]:
    """regard's mask of theirs (batch, heads or 1, n, m), and what else was added to the scores.

    A mask of numbers hides where it is as low as numbers go, or −inf; what it holds elsewhere is
    added, as they add it.
    """
    if mask.dtype != torch.bool:
        allowed = mask > torch.finfo(mask.dtype).min / 2
        rest = mask.masked_fill(~allowed, 0)
        if bool(rest.any()):
            bias = rest if bias is None else bias + rest
        mask = allowed
    made = dense(mask.squeeze(1) if mask.shape[1] == 1 else mask)
    made.has_heads = mask.shape[1] != 1
    return made, bias


def wants_weights(given: dict[str, Any]) -> bool:
    """Whether somebody reads the weights of this call: nothing is computed for nobody."""
    if given.get("output_attentions"):
        return True
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # another version keeps it elsewhere; weights are then always given
        return True
    collected = _active_collector.get()  # type: ignore[no-untyped-call]
    return any("attentions" in key for key in collected or ())


def refuse(given: dict[str, Any]) -> None:
    """Say what a model asks for that would change its numbers if it were passed over."""
    for key, says in UNKNOWN.items():
        if given.get(key) is not None:
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


def said(where: Any, *names: str) -> int:
    """The first of these attributes that is a count; 0 if none is."""
    found = (getattr(where, name, None) for name in names)
    return next((int(x) for x in found if isinstance(x, int) and x > 0), 0)
