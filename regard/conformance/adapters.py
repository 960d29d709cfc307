"""Layers and models behind one call, so that one set of laws serves regard's, yours and the peers'.

Masks of others become valid lengths here: torch hides where True, the others keep where True.
"""

import copy
import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention import KeyValueCache, MultiHeadAttention, causal, lengths
from regard.conformance.law import InapplicableError
from regard.errors import RegardError

WIDTH, HEADS = 12, 3
STEPS = (4, 1, 1, 3)


class Layer:
    """Self-attention over (batch, n, width): how to build it, and how to call what was built.

    Abstract. An adapter says what its module can do; what it cannot do raises
    InapplicableError, and the law does not apply.
    """

    name: str = "layer"
    width: int = WIDTH
    heads: int = HEADS
    #: Which masks it knows: without one on the future (False), with one (True).
    modes: tuple[bool, ...] = (False, True)
    #: Whether the output is a mean of values and a projection, and nothing after it.
    one_attention: bool = True
    #: Whether it knows where a token stands.
    positions: bool = False
    #: The finest dtype in which it computes throughout.
    dtype: torch.dtype = torch.float64

    def build(self, dropout: float = 0.0) -> nn.Module:
        """A module with random parameters, in training mode."""
        raise NotImplementedError

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        """The output (batch, n, width); ``valid``: tokens of each text; may it see the future."""
        raise NotImplementedError

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and the weights of one attention (batch, heads, n, n)."""
        raise InapplicableError("it gives no weights")

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        """The output for queries x and keys and values from ``memory``."""
        raise InapplicableError("it attends to its own input alone")

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        """The output of a causal pass, some tokens at a time, with a cache."""
        raise InapplicableError("it has no cache")


class Regard(Layer):
    """A module called as ``module(x, mask=mask)`` with a regard Mask: regard's own, or a user's."""

    def __init__(self, make: Callable[[float], nn.Module], name: str) -> None:
        module = make(0.0)
        self.make, self.name = make, name
        self.width = int(getattr(module, "width", WIDTH))
        self.heads = int(getattr(module, "heads", HEADS))
        self.ours = type(module) is MultiHeadAttention  # a subclass may do anything
        self.one_attention = self.ours
        self.positions = not self.ours or knows_places(module)

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self.make(dropout)

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if future else causal()
        if valid is not None:
            mask = lengths(valid) if mask is None else mask & lengths(valid)
        made: Tensor = module(x, mask=mask)
        return made

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(module, MultiHeadAttention):
            return super().weights(module, x, valid)
        seen: list[Tensor] = []
        hook = module.attention.register_forward_hook(lambda *call: seen.append(call[2].weights))
        try:
            output = module(x, mask=lengths(valid))
        finally:
            hook.remove()
        return output, seen[0]

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        if not self.ours:
            return super().across(module, x, memory, valid)
        made: Tensor = module(x, memory, mask=lengths(valid))
        return made

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if not self.ours:
            return super().steps(module, x)
        past = KeyValueCache()
        parts = [module(part, mask=causal(), cache=past) for part in x.split(STEPS, 1)]
        return torch.cat(parts, 1)


class TorchMultihead(Layer):
    """``torch.nn.MultiheadAttention``, batch first. Its masks are True where a key is hidden."""

    name = "torch.nn.MultiheadAttention"

    def __init__(self, module: nn.MultiheadAttention | None = None) -> None:
        self.given = module
        if module is not None:
            self.width, self.heads = module.embed_dim, module.num_heads

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.given is None:
            return nn.MultiheadAttention(WIDTH, HEADS, dropout, batch_first=True)
        made = copy.deepcopy(self.given)
        made.dropout, made.batch_first = dropout, True
        return made

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        after = None if future else ~kept_past(x.shape[1])
        padding = None if valid is None else ~kept(valid, x)
        made: Tensor = module(
            x, x, x, attn_mask=after, key_padding_mask=padding, need_weights=False
        )[0]
        return made

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = module(
            x, x, x, key_padding_mask=~kept(valid, x), average_attn_weights=False
        )
        return output, weights

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        made: Tensor = module(
            x, memory, memory, key_padding_mask=~kept(valid, memory), need_weights=False
        )[0]
        return made


class HuggingFace(Layer):
    """A transformers model over ``inputs_embeds``, tiny and random unless one is given."""

    one_attention = False
    positions = True
    kinds: ClassVar[dict[str, tuple[str, tuple[bool, ...]]]] = {
        "BertModel": ("BertConfig", (False,)),
        "GPT2Model": ("GPT2Config", (True,)),
    }

    def __init__(self, kind: str, kernel: str, module: nn.Module | None = None) -> None:
        self.kind, self.kernel, self.given = kind, kernel, module
        self.name, self.modes = f"transformers.{kind}:{kernel}", (False,)
        if kind in self.kinds:
            self.config, self.modes = self.kinds[kind]
        if module is not None:
            settings: Any = module.config
            self.width, self.heads = settings.hidden_size, settings.num_attention_heads
            decodes = bool(getattr(settings, "is_decoder", False))  # some configs do not say
            self.modes = (decodes or kind not in ("BertModel",),)

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.given is not None:
            return copy.deepcopy(self.given)
        transformers = peer("transformers")
        if self.kind == "BertModel":
            settings = {
                "hidden_size": WIDTH,
                "num_attention_heads": HEADS,
                "num_hidden_layers": 2,
                "intermediate_size": 16,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": dropout,
                "max_position_embeddings": 64,
            }
        else:
            settings = {
                "n_embd": WIDTH,
                "n_head": HEADS,
                "n_layer": 2,
                "n_positions": 64,
                "resid_pdrop": 0.0,
                "embd_pdrop": 0.0,
                "attn_pdrop": dropout,
            }
        config = getattr(transformers, self.config)(
            vocab_size=20, attn_implementation=self.kernel, **settings
        )
        made: nn.Module = getattr(transformers, self.kind)(config)
        return made.train()

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if valid is None else kept(valid, x).long()
        made: Tensor = module(inputs_embeds=x, attention_mask=mask, use_cache=False)[0]
        return made

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        mask = kept(valid, x).long()
        found = module(inputs_embeds=x, attention_mask=mask, output_attentions=True)
        if not found.attentions or found.attentions[0] is None:
            raise InapplicableError("it gives no weights by this kernel")
        return found[0], found.attentions[0]

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if self.modes != (True,):
            return super().steps(module, x)
        past, found = None, []
        for part in x.split(STEPS, 1):
            made = module(inputs_embeds=part, past_key_values=past, use_cache=True)
            past = made.past_key_values
            found.append(made[0])
        return torch.cat(found, 1)


class XTransformers(Layer):
    """``x_transformers.Attention``, or a stack of layers: ``Encoder``, ``Decoder``."""

    def __init__(self, kind: str, *, flash: bool = False, module: nn.Module | None = None) -> None:
        self.kind, self.flash, self.given = kind, flash, module
        self.name = f"x_transformers.{kind}{':flash' if flash else ''}"
        self.one_attention = kind == "Attention"
        # Without torch's kernel the softmax is computed in float32, whatever came in.
        self.dtype = torch.float64 if flash else torch.float32
        self.modes = (kind == "Decoder",) if kind != "Attention" else (False, True)
        if module is not None:
            settings: Any = module
            self.width = int(getattr(settings, "dim", WIDTH))
            self.modes = (bool(getattr(settings, "causal", False)),)

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.given is not None:
            return copy.deepcopy(self.given)
        package = peer("x_transformers")
        if self.kind == "Attention":
            made = package.Attention(
                WIDTH, dim_head=WIDTH // HEADS, heads=HEADS, dropout=dropout, flash=self.flash
            )
        else:
            made = getattr(package, self.kind)(
                dim=WIDTH,
                depth=2,
                heads=HEADS,
                attn_dim_head=WIDTH // HEADS,
                attn_dropout=dropout,
                attn_flash=self.flash,
            )
        whole: nn.Module = made
        return whole

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if valid is None else kept(valid, x)
        if self.kind != "Attention":
            stacked: Tensor = module(x, mask=mask)
            return stacked
        past = None if future else kept_past(x.shape[1])
        made: Tensor = first_of(module(x, mask=mask, attn_mask=past))
        return made

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind != "Attention" or self.flash:
            return super().weights(module, x, valid)
        output, between = module(x, mask=kept(valid, x), return_intermediates=True)
        return output, between.post_softmax_attn

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        if self.kind != "Attention":
            return super().across(module, x, memory, valid)
        made: Tensor = first_of(module(x, context=memory, context_mask=kept(valid, memory)))
        return made

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if self.kind != "Decoder":
            return super().steps(module, x)
        made, past = module(x[:, :4], return_hiddens=True)
        found = [made]
        for done in range(5, x.shape[1] + 1):  # it is given the whole text and reads its last token
            made, past = module(x[:, :done], cache=past, return_hiddens=True)
            found.append(made[:, -1:])
        return torch.cat(found, 1)


def knows_places(module: nn.Module) -> bool:
    """Whether a regard layer gives other outputs where its tokens stand elsewhere."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        x = torch.randn(1, 3, int(getattr(module, "width", WIDTH)))
        at = torch.tensor([0, 2, 1])
        plain, moved = module(x), module(x, positions=at)
    return not torch.equal(plain, moved)


def first_of(made: Any) -> Any:
    """What comes first where there is more."""
    return made[0] if isinstance(made, tuple) else made


def kept(valid: Tensor, x: Tensor) -> Tensor:
    """True at the tokens of each text, (batch, n)."""
    return torch.arange(x.shape[1]) < valid[:, None]


def kept_past(n: int) -> Tensor:
    """True at each position's own and earlier ones, (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def peer(name: str) -> Any:
    """A package that regard does not need, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise RegardError(f"{name} is not here ({error}): pip install {package}") from None


def layer_of(module: nn.Module, name: str = "") -> Layer:
    """The adapter of a module that is made already."""
    kind, home = type(module).__name__, type(module).__module__.split(".")[0]
    parents = {base.__name__ for base in type(module).__mro__}
    if isinstance(module, nn.MultiheadAttention):
        return TorchMultihead(module)
    if home == "transformers" or "PreTrainedModel" in parents:
        settings: Any = module.config
        return HuggingFace(kind, str(settings._attn_implementation), module)
    if home == "x_transformers":
        return XTransformers(kind, module=module)
    return Regard(lambda dropout: with_dropout(copy.deepcopy(module), dropout), name or kind)


def with_dropout(module: nn.Module, dropout: float) -> nn.Module:
    """A regard layer that drops this share of its weights; any other module as it is."""
    if isinstance(module, MultiHeadAttention):
        module.attention.dropout = dropout
    return module


def ours(dropout: float) -> nn.Module:
    """regard's own layer, small."""
    return MultiHeadAttention(WIDTH, HEADS, dropout=dropout)


#: Layers and models by name, made when asked for.
LAYERS: dict[str, Callable[[], Layer]] = {
    "regard.MultiHeadAttention": lambda: Regard(ours, "regard.MultiHeadAttention"),
    "torch.nn.MultiheadAttention": TorchMultihead,
    "transformers.BertModel:eager": lambda: HuggingFace("BertModel", "eager"),
    "transformers.BertModel:sdpa": lambda: HuggingFace("BertModel", "sdpa"),
    "transformers.GPT2Model:eager": lambda: HuggingFace("GPT2Model", "eager"),
    "transformers.GPT2Model:sdpa": lambda: HuggingFace("GPT2Model", "sdpa"),
    "x_transformers.Attention": lambda: XTransformers("Attention"),
    "x_transformers.Attention:flash": lambda: XTransformers("Attention", flash=True),
    "x_transformers.Encoder": lambda: XTransformers("Encoder"),
    "x_transformers.Encoder:flash": lambda: XTransformers("Encoder", flash=True),
    "x_transformers.Decoder": lambda: XTransformers("Decoder"),
    "x_transformers.Decoder:flash": lambda: XTransformers("Decoder", flash=True),
}
