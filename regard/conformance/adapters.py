"""The interface of a layer for the laws, and its adapter of regard's own layers."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention import (
    KeyValueCache,
    Mask,
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
    #: Whether ``module.to(dtype)`` changes the dtype of its computation.
    casts: bool = True
    #: Whether it is of another package, which promises nothing about NaN in padding.
    foreign: bool = False
    #: The settings that `variant` takes.
    named: Collection[str] = ()

    def build(self, dropout: float = 0.0) -> nn.Module:
        """Return a module with random parameters, in training mode."""
        raise NotImplementedError

    def variant(self, **settings: Any) -> nn.Module:
        """Return a module with other settings, or of another width and number of heads."""
        if missing := settings.keys() - {*self.named}:
            raise InapplicableError(f"it takes no {min(missing)}=")
        try:
            return self.made(**settings)
        except Exception as error:  # whatever a user's code raises
            raise InapplicableError(f"it refuses {settings}: {one_line(error)}") from None

    def made(self, **settings: Any) -> nn.Module:
        """Return a module with other settings; any error means that it refuses them."""
        raise NotImplementedError

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

    def pairs(self, module: nn.Module, x: Tensor, mask: Mask) -> Tensor:
        """Return the output with a mask of pairs."""
        raise InapplicableError("it takes no mask of pairs")

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
        self.make, self.name, self.named = make, name, {"width", "heads", *named}
        module = self.build()
        self.width = int(getattr(module, "width", WIDTH))
        self.heads = int(getattr(module, "heads", HEADS))
        self.mechanism = isinstance(module, Mechanism)
        self.arguments = [*signature(module.forward).parameters.values()] if self.mechanism else []
        self.one_attention = type(module) is MultiHeadAttention  # a subclass may do anything
        self.positions = not self.one_attention or uses_positions(module)
        self.ordered = bool(getattr(module, "ordered", False))
        self.dtype = precision(self.build, self.call, self.width)

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self.make(dropout=dropout) if dropout else self.make()

    def made(self, **settings: Any) -> nn.Module:
        return self.make(**settings)

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
        keep = module.attention.register_forward_hook(lambda *call: weights.append(call[2].weights))
        with keep:
            output = module(x, mask=lengths(valid))
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

    def pairs(self, module: nn.Module, x: Tensor, mask: Mask) -> Tensor:
        if not self.mechanism:
            raise InapplicableError("it is not a mechanism")
        try:
            output: Tensor = module(x, mask=mask)
        except RegardError as error:
            raise InapplicableError(f"it refuses mask={mask}: {error}") from None
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


def uses_positions(module: nn.Module) -> bool:
    """Return whether other positions change the output of a regard layer."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        x = torch.randn(1, 3, int(getattr(module, "width", WIDTH)))
        plain, moved = module(x), module(x, positions=torch.tensor([0, 2, 1]))
    return not torch.equal(plain, moved)


def with_dropout(module: nn.Module, dropout: float) -> nn.Module:
    """Return a module in which every dropout has this rate."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = dropout
        for key, value in vars(part).items():
            if "drop" in key.lower() and isinstance(value, float):
                setattr(part, key, dropout)
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


def precision(
    build: Callable[[], nn.Module], call: Callable[..., Tensor], width: int
) -> torch.dtype:
    """Return float32 if a module in float64 computes in float32 somewhere, or else float64."""
    module = build().double().eval()
    mode = _Downcasts()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        x = torch.randn(1, 3, width, dtype=torch.float64)
        try:
            call(module, x)  # the first call may build or compare something
            with mode:
                call(module, x)
        except Exception:  # a module that runs in no dtype is reported by the laws
            with contextlib.suppress(Exception):
                call(build().float().eval(), x.float())
                return torch.float32
    return torch.float32 if mode.found else torch.float64
