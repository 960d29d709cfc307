"""Adapters that give layers and models of different packages one interface for the laws.

They convert lengths to masks: in torch True hides a key, in the other packages it keeps a key.
"""

import contextlib
import copy
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention import (
    KeyValueCache,
    Mechanism,
    MultiHeadAttention,
    causal,
    lengths,
)
from regard.conformance.law import LONG, InapplicableError
from regard.core.errors import RegardError
from regard.core.plugins import one_line

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
    #: The most precise dtype that it uses in all operations.
    dtype: torch.dtype = torch.float64
    #: Whether it follows the contract of `regard.attention.Mechanism`: memory, positions, cache.
    mechanism: bool = False
    #: Whether rows must be in the order of the words, as in a recurrence.
    ordered: bool = False
    #: The maximum number of words, if limited.
    longest: int | None = None

    def build(self, dropout: float = 0.0) -> nn.Module:
        """Return a module with random parameters, in training mode."""
        raise NotImplementedError

    def variant(self, **settings: Any) -> nn.Module:
        """Return a module with other settings, or of another width and number of heads."""
        raise InapplicableError("an instance has the settings that it was made with")

    def takes(self, name: str) -> bool:
        """Return whether a call takes an argument of this name."""
        return False

    def must_take_dropout(self) -> None:
        """Raise an InapplicableError if the effect of ``build(dropout)`` cannot be measured."""
        if not self.one_attention:
            raise InapplicableError("the output is not a weighted mean of values")

    def call(
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
    ) -> Tensor:
        """Return the output (batch, n, width).

        ``valid``: number of tokens of each text. ``future``: False for a causal mask. ``more``:
        further arguments that it `takes`.
        """
        raise NotImplementedError

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and the weights of one attention (batch, heads, n, n)."""
        raise InapplicableError("the layer does not return weights")

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        """Return the output for queries x and keys and values from ``memory``."""
        raise InapplicableError("the layer has no cross-attention")

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the output of a causal pass, computed ``sizes`` tokens at a time with a cache."""
        raise InapplicableError("the layer has no cache")


class Regard(Layer):
    """A module called as ``module(x, mask=mask)``, or a mechanism, as models call it.

    ``make(**settings)`` builds it. ``named`` has the settings that its class declares; an instance
    has none.
    """

    def __init__(
        self, make: Callable[..., nn.Module], name: str, named: Collection[str] = ()
    ) -> None:
        self.make, self.name, self.named = make, name, named
        module = self.build()
        self.width = int(getattr(module, "width", WIDTH))
        self.heads = int(getattr(module, "heads", HEADS))
        self.mechanism = isinstance(module, Mechanism)
        self.arguments = [*signature(module.forward).parameters.values()] if self.mechanism else []
        self.one_attention = type(module) is MultiHeadAttention  # a subclass may do anything
        self.positions = not self.one_attention or uses_positions(module)
        self.ordered = bool(getattr(module, "ordered", False))
        self.dtype = precision(module, self.call, self.width)

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self.make(dropout=dropout) if dropout else self.make()

    def variant(self, **settings: Any) -> nn.Module:
        missing = settings.keys() - {"width", "heads", *self.named}
        if missing:
            raise InapplicableError(f"it takes no {min(missing)}=")
        try:
            return self.make(**settings)
        except Exception as error:  # whatever a user's code raises
            raise InapplicableError(f"it refuses {settings}: {one_line(error)}") from None

    def must_take_dropout(self) -> None:
        if "dropout" not in self.named:
            super().must_take_dropout()

    def takes(self, name: str) -> bool:
        """Return whether the forward of a mechanism takes an argument of this name."""
        return any(p.name == name or p.kind is p.VAR_KEYWORD for p in self.arguments)

    def call(
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
    ) -> Tensor:
        mask = None if future else causal()
        if valid is not None:
            mask = lengths(valid) if mask is None else mask & lengths(valid)
        with refusals() if more else contextlib.nullcontext():
            output: Tensor = module(x, mask=mask, **more)
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

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        if not self.takes("memory"):
            return super().across(module, x, memory, valid)
        mask = None if valid is None else lengths(valid)
        with refusals():
            output: Tensor = module(x, memory, mask=mask, **more)
        return output

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        if not self.takes("cache"):
            return super().steps(module, x, sizes)
        cache, start, parts = KeyValueCache(), 0, []
        for part in x.split(list(sizes), 1):
            at = slice(start, start := start + part.shape[1])
            more = {} if positions is None else {"positions": positions[at]}
            with refusals():
                parts.append(module(part, mask=causal(), cache=cache, **more))
        return torch.cat(parts, 1)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert a NotImplementedError of a mechanism (no cache, say) to an InapplicableError."""
    try:
        yield
    except NotImplementedError as error:
        raise InapplicableError(f"it raises {one_line(error)}") from None


def of_class(kind: Callable[..., nn.Module], name: str) -> Regard:
    """Return the adapter of a mechanism's class, or of a class with some options."""
    whole: Any = getattr(kind, "func", kind)
    bases = [base.__init__ for base in whole.__mro__ if "__init__" in vars(base)]
    named = {key for make in bases for key in signature(make).parameters}

    def make(width: int = WIDTH, heads: int = HEADS, **settings: Any) -> nn.Module:
        settings.setdefault("dropout", 0.0)
        if "length" in named:
            settings.setdefault("length", 2 * max(LONG))
        try:
            return kind(width, heads, **settings)
        except RegardError as error:
            if not settings["dropout"]:
                raise
            raise InapplicableError(str(error)) from None

    return Regard(make, name, named)


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
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
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

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        padding = None if valid is None else ~valid_mask(valid, memory)
        output: Tensor = module(x, memory, memory, key_padding_mask=padding, need_weights=False)[0]
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
        self.name, self.longest = f"transformers.{kind}:{kernel}", max(LONG)
        if module is None:
            self.config, self.modes = self.kinds[kind]
            return
        settings: Any = module.config
        if (
            getattr(settings, "is_encoder_decoder", False)
            and "decoder_input_ids" in signature(module.forward).parameters
        ):
            raise RegardError(
                f"{kind} is an encoder and a decoder; name one of them: model.get_encoder()"
            )
        self.module = module = getattr(module, "base_model", module)  # without its output layer
        if "inputs_embeds" not in signature(module.forward).parameters:
            raise RegardError(
                f"{type(module).__name__} takes no inputs_embeds, which the laws give to a model; "
                "name a model that reads words"
            )
        self.width = int(module.get_input_embeddings().weight.shape[-1])  # type: ignore[operator]
        self.heads = int(getattr(settings, "num_attention_heads", HEADS))
        self.longest = getattr(settings, "max_position_embeddings", None)
        self.modes = (is_causal_model(module),)
        self.dtype = precision(self.build(), self.call, self.width)

    def build(self, dropout: float = 0.0) -> nn.Module:
        if self.module is not None:
            return with_dropout(copy.deepcopy(self.module), dropout)
        transformers = peer("transformers")
        settings = {
            "vocab_size": 20,
            "attn_implementation": self.kernel,
            "hidden_size": WIDTH,
            "num_attention_heads": HEADS,
            "num_hidden_layers": 2,
            "max_position_embeddings": max(LONG),
        }
        if self.kind == "BertModel":
            settings |= {
                "intermediate_size": 16,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": dropout,
            }
        else:
            settings |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": dropout}
        config = getattr(transformers, self.config)(**settings)
        module: nn.Module = getattr(transformers, self.kind)(config)
        return module.train()

    def call(
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
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

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        if self.modes != (True,):
            return super().steps(module, x, sizes)
        past, outputs = None, []
        for part in x.split(list(sizes), 1):
            output = module(inputs_embeds=part, past_key_values=past, use_cache=True)
            past = output.past_key_values
            outputs.append(output[0])
        return torch.cat(outputs, 1)


def is_causal_model(model: nn.Module) -> bool:
    """Return whether a transformers model is causal.

    Its attention modules have ``is_causal``. Older families are decoders by their configuration,
    or generate without being masked models.
    """
    causal_flags = {
        x.is_causal for x in model.modules() if isinstance(getattr(x, "is_causal", None), bool)
    }
    if causal_flags:
        return True in causal_flags
    settings: Any = model.config
    if getattr(settings, "is_decoder", False) or getattr(settings, "is_causal", False):
        return True
    known = peer("transformers.models.auto.modeling_auto")
    kind = settings.model_type
    return (
        kind in known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and kind not in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


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
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
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

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        if self.kind != "Attention":
            return super().across(module, x, memory, valid)
        mask = None if valid is None else valid_mask(valid, memory)
        output: Tensor = first_of(module(x, context=memory, context_mask=mask))
        return output

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        if self.kind != "Decoder":
            return super().steps(module, x, sizes)
        output, cache = module(x[:, :4], return_hiddens=True)
        outputs = [output]
        for length in range(5, x.shape[1] + 1):  # it reads the full text
            output, cache = module(x[:, :length], cache=cache, return_hiddens=True)
            outputs.append(output[:, -1:])
        return torch.cat(outputs, 1)


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
    """Import an optional package. Raises: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise RegardError(f"{name} is not installed ({error}): pip install {package}") from None


def layer_of(module: nn.Module, name: str = "") -> Layer:
    """Return the adapter of a module. Raises: it cannot be called as ``module(x, mask=mask)``."""
    kind, home = type(module).__name__, type(module).__module__.split(".")[0]
    parents = {base.__name__ for base in type(module).__mro__}
    if isinstance(module, nn.MultiheadAttention):
        return TorchMultihead(module)
    if home == "transformers" or "PreTrainedModel" in parents:
        return HuggingFace(kind, str(vars(module)["config"]._attn_implementation), module)
    if home == "x_transformers":
        return XTransformers(kind, module=module)
    must_take_a_mask(module, name or kind)

    def make(**settings: Any) -> nn.Module:
        return with_dropout(copy.deepcopy(module), settings.get("dropout", 0.0))

    return Regard(make, name or kind)


def must_take_a_mask(module: nn.Module, name: str) -> None:
    """Raise a RegardError for a module that cannot be called as ``module(x, mask=mask)``."""
    known = "torch.nn.MultiheadAttention and the models of transformers and x_transformers"
    remedy = (
        "wrap it in a module whose forward(self, x, mask=None) turns a regard Mask into its own "
        "arguments, mask.allows(torch.arange(n), torch.arange(n)), True = may look"
    )
    try:
        arguments = signature(module.forward)
        arguments.bind(torch.zeros(()), mask=None)
    except TypeError:
        own = ", ".join(str(p) for p in arguments.parameters.values())
        raise RegardError(
            f"{name} is called as forward({own}), and the laws call module(x, mask=mask); {remedy}"
        ) from None
    if type(module).__module__.startswith("torch."):
        raise RegardError(f"{name} takes masks of torch's own; of other packages the laws know "
                          f"{known}: {remedy}")  # fmt: skip


def with_dropout(module: nn.Module, dropout: float) -> nn.Module:
    """Return a module with this dropout, if it is 0 or a regard layer; else with its own."""
    if isinstance(module, MultiHeadAttention):
        module.attention.dropout = dropout
    if dropout:
        return module
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for key, value in vars(part).items():
            if "drop" in key.lower() and isinstance(value, float):
                setattr(part, key, 0.0)
    return module


class _Downcasts(TorchDispatchMode):
    """Notes whether float64 becomes float32 in a computation."""

    found = False

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        result = function(*arguments, **(keywords or {}))
        if isinstance(result, Tensor) and result.dtype == torch.float32:
            given = tree_leaves((arguments, keywords))
            self.found |= any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in given)
        return result


def precision(module: nn.Module, call: Callable[..., Tensor], width: int) -> torch.dtype:
    """Return float32 if a module in float64 computes in float32 somewhere, or else float64."""
    module = module.double().eval()
    mode = _Downcasts()  # type: ignore[no-untyped-call]
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        contextlib.suppress(Exception),  # the laws report a module that does not run
    ):
        x = torch.randn(1, 3, width, dtype=torch.float64)
        call(module, x)  # the first call may build or compare something
        with mode:
            call(module, x)
    return torch.float32 if mode.found else torch.float64


#: Functions that build the adapters of layers and models, by name.
LAYERS: dict[str, Callable[[], Layer]] = {
    "regard.MultiHeadAttention": lambda: of_class(MultiHeadAttention, "regard.MultiHeadAttention"),
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
