"""Adapters that give layers and models of different packages one interface for the laws.

They convert lengths to masks: in torch True hides a key, in the other packages it keeps a key.
"""

import copy
import importlib
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from regard.attention import (
    KeyValueCache,
    Mechanism,
    MultiHeadAttention,
    causal,
    lengths,
    named_mechanism,
)
from regard.conformance.law import InapplicableError
from regard.errors import RegardError

WIDTH, HEADS = 12, 3
STEPS = (4, 1, 1, 3)


class Layer:
    """The abstract adapter of self-attention over (batch, n, width): builds and calls a module.

    Methods that a module does not support raise `InapplicableError`, so that the law does not
    apply.
    """

    name: str = "layer"
    width: int = WIDTH
    heads: int = HEADS
    #: Supported masks: False for bidirectional attention, True for causal.
    modes: tuple[bool, ...] = (False, True)
    #: Whether the output is a projected weighted mean of values, without further layers.
    one_attention: bool = True
    #: Whether it uses positions.
    positions: bool = False
    #: The most precise dtype in which it computes throughout.
    dtype: torch.dtype = torch.float64

    def build(self, dropout: float = 0.0) -> nn.Module:
        """Return a module with random parameters, in training mode."""
        raise NotImplementedError

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        """Return the output (batch, n, width).

        ``valid``: number of tokens of each text. ``future``: False for a causal mask.
        """
        raise NotImplementedError

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and the weights of one attention (batch, heads, n, n)."""
        raise InapplicableError("the layer does not return weights")

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        """Return the output for queries x and keys and values from ``memory``."""
        raise InapplicableError("the layer has no cross-attention")

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return the output of a causal pass, computed a few tokens at a time with a cache."""
        raise InapplicableError("the layer has no cache")


class Regard(Layer):
    """A module called as ``module(x, mask=mask)`` with a regard Mask, of regard or of a user."""

    def __init__(self, make: Callable[[float], nn.Module], name: str) -> None:
        module = make(0.0)
        self.make, self.name = make, name
        self.width = int(getattr(module, "width", WIDTH))
        self.heads = int(getattr(module, "heads", HEADS))
        self.ours = type(module) is MultiHeadAttention  # a subclass may do anything
        self.one_attention = self.ours
        self.positions = not self.ours or uses_positions(module)

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self.make(dropout)

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if future else causal()
        if valid is not None:
            mask = lengths(valid) if mask is None else mask & lengths(valid)
        output: Tensor = module(x, mask=mask)
        return output

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(module, MultiHeadAttention):
            return super().weights(module, x, valid)
        weights: list[Tensor] = []
        hook = module.attention.register_forward_hook(lambda *call: weights.append(call[2].weights))
        try:
            output = module(x, mask=lengths(valid))
        finally:
            hook.remove()
        return output, weights[0]

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        if not self.ours:
            return super().across(module, x, memory, valid)
        output: Tensor = module(x, memory, mask=lengths(valid))
        return output

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if not self.ours:
            return super().steps(module, x)
        return in_steps(module, x)


class OfMechanism(Regard):
    """A mechanism, by name or class: it reads memories and writes with a cache, as models ask."""

    def __init__(self, name: str, kind: type[Mechanism] | None = None) -> None:
        make = kind or named_mechanism(name)
        super().__init__(lambda dropout: make(WIDTH, HEADS, dropout=dropout), name)

    def build(self, dropout: float = 0.0) -> nn.Module:
        try:
            return super().build(dropout)
        except RegardError as error:
            if not dropout:
                raise
            raise InapplicableError(str(error)) from None

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        output: Tensor = module(x, memory, mask=lengths(valid))
        return output

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        return in_steps(module, x)


class TorchMultihead(Layer):
    """``torch.nn.MultiheadAttention``, batch first. Its masks are True for hidden keys."""

    name = "torch.nn.MultiheadAttention"

    def __init__(self, module: nn.MultiheadAttention | None = None) -> None:
        self.module = module
        if module is not None:
            self.width, self.heads = module.embed_dim, module.num_heads

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.module is None:
            return nn.MultiheadAttention(WIDTH, HEADS, dropout, batch_first=True)
        module = copy.deepcopy(self.module)
        module.dropout, module.batch_first = dropout, True
        return module

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        later = None if future else ~causal_mask(x.shape[1])
        padding = None if valid is None else ~valid_mask(valid, x)
        output: Tensor = module(
            x, x, x, attn_mask=later, key_padding_mask=padding, need_weights=False
        )[0]
        return output

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = module(
            x, x, x, key_padding_mask=~valid_mask(valid, x), average_attn_weights=False
        )
        return output, weights

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        output: Tensor = module(
            x, memory, memory, key_padding_mask=~valid_mask(valid, memory), need_weights=False
        )[0]
        return output


class HuggingFace(Layer):
    """A transformers model called with ``inputs_embeds``; by default tiny, with random weights."""

    one_attention = False
    positions = True
    kinds: ClassVar[dict[str, tuple[str, tuple[bool, ...]]]] = {
        "BertModel": ("BertConfig", (False,)),
        "GPT2Model": ("GPT2Config", (True,)),
    }

    def __init__(self, kind: str, kernel: str, module: nn.Module | None = None) -> None:
        self.kind, self.kernel, self.module = kind, kernel, module
        self.name, self.modes = f"transformers.{kind}:{kernel}", (False,)
        if kind in self.kinds:
            self.config, self.modes = self.kinds[kind]
        if module is not None:
            settings: Any = module.config
            self.width, self.heads = settings.hidden_size, settings.num_attention_heads
            decodes = bool(getattr(settings, "is_decoder", False))  # some configs lack it
            self.modes = (decodes or kind not in ("BertModel",),)

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.module is not None:
            return copy.deepcopy(self.module)
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
        module: nn.Module = getattr(transformers, self.kind)(config)
        return module.train()

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if valid is None else valid_mask(valid, x).long()
        output: Tensor = module(inputs_embeds=x, attention_mask=mask, use_cache=False)[0]
        return output

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        mask = valid_mask(valid, x).long()
        output = module(inputs_embeds=x, attention_mask=mask, output_attentions=True)
        if not output.attentions or output.attentions[0] is None:
            raise InapplicableError("this kernel does not return weights")
        return output[0], output.attentions[0]

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if self.modes != (True,):
            return super().steps(module, x)
        past, outputs = None, []
        for part in x.split(STEPS, 1):
            output = module(inputs_embeds=part, past_key_values=past, use_cache=True)
            past = output.past_key_values
            outputs.append(output[0])
        return torch.cat(outputs, 1)


class XTransformers(Layer):
    """``x_transformers.Attention``, or a stack of layers: ``Encoder`` or ``Decoder``."""

    def __init__(self, kind: str, *, flash: bool = False, module: nn.Module | None = None) -> None:
        self.kind, self.flash, self.module = kind, flash, module
        self.name = f"x_transformers.{kind}{':flash' if flash else ''}"
        self.one_attention = kind == "Attention"
        # Without torch's kernel the softmax is computed in float32 for every input dtype.
        self.dtype = torch.float64 if flash else torch.float32
        self.modes = (kind == "Decoder",) if kind != "Attention" else (False, True)
        if module is not None:
            settings: Any = module
            self.width = int(getattr(settings, "dim", WIDTH))
            self.modes = (bool(getattr(settings, "causal", False)),)

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.module is not None:
            return copy.deepcopy(self.module)
        package = peer("x_transformers")
        if self.kind == "Attention":
            module = package.Attention(
                WIDTH, dim_head=WIDTH // HEADS, heads=HEADS, dropout=dropout, flash=self.flash
            )
        else:
            module = getattr(package, self.kind)(
                dim=WIDTH,
                depth=2,
                heads=HEADS,
                attn_dim_head=WIDTH // HEADS,
                attn_dropout=dropout,
                attn_flash=self.flash,
            )
        return cast(nn.Module, module)

    def call(
        self, module: nn.Module, x: Tensor, valid: Tensor | None = None, *, future: bool = True
    ) -> Tensor:
        mask = None if valid is None else valid_mask(valid, x)
        if self.kind != "Attention":
            output: Tensor = module(x, mask=mask)
            return output
        earlier = None if future else causal_mask(x.shape[1])
        attended: Tensor = first_of(module(x, mask=mask, attn_mask=earlier))
        return attended

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind != "Attention" or self.flash:
            return super().weights(module, x, valid)
        output, intermediates = module(x, mask=valid_mask(valid, x), return_intermediates=True)
        return output, intermediates.post_softmax_attn

    def across(self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        if self.kind != "Attention":
            return super().across(module, x, memory, valid)
        mask = valid_mask(valid, memory)
        output: Tensor = first_of(module(x, context=memory, context_mask=mask))
        return output

    def steps(self, module: nn.Module, x: Tensor) -> Tensor:
        if self.kind != "Decoder":
            return super().steps(module, x)
        output, cache = module(x[:, :4], return_hiddens=True)
        outputs = [output]
        for length in range(5, x.shape[1] + 1):  # it takes the whole text and reads its last token
            output, cache = module(x[:, :length], cache=cache, return_hiddens=True)
            outputs.append(output[:, -1:])
        return torch.cat(outputs, 1)


def in_steps(module: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a causal pass of a regard layer, a few tokens at a time."""
    cache = KeyValueCache()
    parts = [module(part, mask=causal(), cache=cache) for part in x.split(STEPS, 1)]
    return torch.cat(parts, 1)


def uses_positions(module: nn.Module) -> bool:
    """Return whether other positions change the output of a regard layer."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        x = torch.randn(1, 3, int(getattr(module, "width", WIDTH)))
        plain, moved = module(x), module(x, positions=torch.tensor([0, 2, 1]))
    return not torch.equal(plain, moved)


def first_of(output: Any) -> Any:
    """Return the first element of a tuple; any other value unchanged."""
    return output[0] if isinstance(output, tuple) else output


def valid_mask(valid: Tensor, x: Tensor) -> Tensor:
    """Return True for the tokens of each text, (batch, n)."""
    return torch.arange(x.shape[1]) < valid[:, None]


def causal_mask(n: int) -> Tensor:
    """Return True for each position and those before it, (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def peer(name: str) -> Any:
    """Import an optional package. Errors: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise RegardError(f"{name} is not installed ({error}): pip install {package}") from None


def layer_of(module: nn.Module, name: str = "") -> Layer:
    """Return the adapter of a module."""
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
    """Set the attention dropout of a regard layer; return any other module unchanged."""
    if isinstance(module, MultiHeadAttention):
        module.attention.dropout = dropout
    return module


def ours(dropout: float) -> nn.Module:
    """Return a small layer of regard."""
    return MultiHeadAttention(WIDTH, HEADS, dropout=dropout)


#: Functions that build the adapters of layers and models, by name.
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
