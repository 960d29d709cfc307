"""`Adopted`: the adapter of a layer from elsewhere, whose arguments `adopt` has found."""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from regard.attention import Mask, Packing
from regard.conformance.adapters import (
    STEPS,
    Layer,
)
from regard.conformance.conventions import ADDITIVE, BOTH, KEYS, PAIRS, Form
from regard.conformance.law import InapplicableError
from regard.core.errors import RegardError

Call = Callable[[nn.Module, Tensor, Tensor | None, Tensor | None], Any]


class Adopted(Layer):
    """A layer or model from elsewhere; made by `adopt`, which describes the arguments.

    ``roles``: the argument of each role; ``forms``: the form of each mask that is understood.
    """

    one_attention = False
    foreign = True

    def __init__(self, make: Callable[..., nn.Module], named: Mapping[str, str], name: str) -> None:
        self.make, self.named, self.name = make, named, name
        self.roles: dict[str, str] = {}
        self.forms: dict[str, Form] = {}
        self.fixed: dict[str, Any] = {}
        self.function: Call | None = None
        self.hides: set[str] = set()  # what masks of `function` can hide
        self.batch_first, self.embeds, self.needs_memory, self.place = True, False, False, 0
        self.unread: list[str] = []
        self.source = name  # how a program makes it
        self.convention = ""

    def build(self, dropout: float = 0.0) -> nn.Module:
        return self.made(dropout=dropout)

    def made(self, **settings: Any) -> nn.Module:
        """Return a module whose parameters exist, after a first call if it makes them then."""
        module = self.make(**settings)
        lazy = any(map(is_lazy, module.parameters())) or getattr(module, "built", True) is False
        width = settings.get("width", self.width)
        if lazy and width:
            with torch.no_grad():
                self.run(module.eval(), torch.zeros(1, 2, width), None, None)
        return module.train()

    def must_take_dropout(self) -> None:
        if not self.one_attention or "dropout" not in self.named:
            raise InapplicableError("it is not one attention with a dropout setting")

    def takes(self, name: str) -> bool:
        return name in ("positions", "packing") and name in self.roles and self.one_attention

    def call(
        self,
        module: nn.Module,
        x: Tensor,
        valid: Tensor | None = None,
        *,
        future: bool = True,
        **more: Any,
    ) -> Tensor:
        if packing := more.pop("packing", None):
            return self._packed(module, packing, x, future, more)
        allowed = self._allowed(x, x, valid, future)
        return self.output(self.run(module, x, None, allowed, **more), x)

    def _packed(
        self, module: nn.Module, packing: Packing, rows: Tensor, future: bool, more: dict[str, Any]
    ) -> Tensor:
        """Return the output of texts in one row, whose ends an argument has (``cu_seqlens``)."""
        sizes = torch.bincount(packing.places // packing.shape[1], minlength=packing.shape[0])
        ends = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)]).int()
        allowed = self._allowed(rows[None], rows[None], None, future)
        given = {self.roles["packing"]: ends}
        return self.output(self.run(module, rows[None], None, allowed, given=given, **more),
                           rows[None])[0]  # fmt: skip

    def weights(self, module: nn.Module, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        answer = self.run(module, x, None, self._allowed(x, x, valid, True), weights=True)
        n = x.shape[1]
        found = [y for i, y in enumerate(self.tensors(answer)) if i != self.place
                 and y.ndim > 2 and y.shape[0] == len(x) and y.shape[-2:] == (n, n)]  # fmt: skip
        if not found:
            raise InapplicableError("the layer does not return weights")
        found.sort(key=lambda y: float(y.nan_to_num(0.0).min()) < 0)  # scores are no weights
        return self.output(answer, x), found[0]

    def across(
        self, module: nn.Module, x: Tensor, memory: Tensor, valid: Tensor | None, **more: Any
    ) -> Tensor:
        if not self.crosses or "packing" in more:
            raise InapplicableError("the layer has no cross-attention of this kind")
        allowed = None if valid is None else self._allowed(x, memory, valid, True)
        return self.output(self.run(module, x, memory, allowed, **more), x)

    def pairs(self, module: nn.Module, x: Tensor, mask: Mask) -> Tensor:
        if PAIRS not in self.can or self.modes == (True,) or not self.one_attention:
            raise InapplicableError("it is not one attention with a mask of pairs")
        words = torch.arange(x.shape[1])
        allowed = mask.allows(words, words).expand(len(x), -1, -1)
        return self.output(self.run(module, x, None, allowed), x)

    def steps(
        self,
        module: nn.Module,
        x: Tensor,
        sizes: Sequence[int] = STEPS,
        positions: Tensor | None = None,
    ) -> Tensor:
        cache = self.roles.get("cache")
        if not cache or self.modes != (True,) or self.function or not self.batch_first:
            raise InapplicableError("the layer has no cache")
        flags = ("use_cache", "return_hiddens")
        use = {key: True for key in flags if key in parameters_of(module)}
        whole = "return_hiddens" in use  # x-transformers: of the full text
        past, start, parts = None, 0, list[Tensor]()
        for size in [sizes[0], *[1] * sum(sizes[1:])] if whole else sizes:
            at = slice(start, start := start + size)
            shown = x[:, :start] if whole else x[:, at]
            given = {**use, cache: past}
            places = None if positions is None else positions[at]
            answer = self.run(module, shown, None, None, positions=places, given=given)
            past = kept(answer, cache, whole)
            if past is None:
                raise InapplicableError(f"it returned no {cache}")
            parts.append(self.output(answer, shown)[:, -size:])
        return torch.cat(parts, 1)

    @property
    def can(self) -> set[str]:
        """Return what its masks of words can hide: `KEYS`, `PAIRS`."""
        if self.function:
            return self.hides
        found = {form.what for name, form in self.forms.items() if not of_memory(name)}
        return {KEYS, PAIRS} if BOTH in found else found

    @property
    def crosses(self) -> bool:
        """Return whether it takes keys and values, or a memory, other than the queries."""
        return self.function is None and bool({"keys", "memory"} & self.roles.keys())

    def run(
        self,
        module: nn.Module,
        x: Tensor,
        memory: Tensor | None,
        allowed: Tensor | None,
        *,
        weights: bool = False,
        positions: Tensor | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the module for queries (b, n, width) and allowed pairs (b, n, m)."""
        if self.function:
            if allowed is not None and (missing := kinds(allowed).keys() - self.hides):
                raise InapplicableError(f"call= hides no {min(missing)}")
            return self.function(module, x, memory, allowed)
        read = self._turned(x if memory is None else memory)
        values: dict[str, Any] = dict(self.fixed)
        values[self.roles["queries"]] = self._turned(x)
        for role in ("keys", "values"):
            if role in self.roles:
                values[self.roles[role]] = read
        if "memory" in self.roles and memory is not None:
            values[self.roles["memory"]] = read
        elif self.needs_memory:  # the same few words for all texts
            few = torch.arange(3 * x.shape[-1], dtype=x.dtype).sin().reshape(1, 3, -1)
            values[self.roles["memory"]] = self._turned(few.expand(len(x), -1, -1))
        if "weights" in self.roles:
            values[self.roles["weights"]] = weights
        if isinstance(positions, Tensor):
            values[self.roles["positions"]] = positions[None] if positions.ndim < 2 else positions
        if allowed is not None:
            values |= self._masks(x, allowed, across=memory is not None)
        values |= given or {}
        parameters = parameters_of(module)
        if weights and "average_attn_weights" in parameters:
            values["average_attn_weights"] = False
        with embedded(module, x) if self.embeds else contextlib.nullcontext(x) as first:
            if self.embeds:
                values[self.roles["queries"]] = first
            leading = [values.pop(name) for name, p in parameters.items()
                       if p.kind is p.POSITIONAL_ONLY and name in values]  # fmt: skip
            return module(*leading, **values)

    def _masks(self, x: Tensor, allowed: Tensor, *, across: bool) -> dict[str, Any]:
        """Return the masks of a call that hides pairs."""
        forms = {name: form for name, form in self.forms.items() if of_memory(name) == across}
        if across and not forms:
            forms = {name: form for name, form in self.forms.items() if not of_memory(name)}
        tables: dict[str, Tensor] = {}
        for what, table in kinds(allowed).items():
            fitting = [name for kind in (what, BOTH) for name, form in forms.items()
                       if form.what == kind]  # fmt: skip
            if fitting:
                name = fitting[0]
                tables[name] = tables[name] & table if name in tables else table
            elif what == PAIRS and "causal" in self.roles:
                rest = allowed.any(1, keepdim=True).expand_as(allowed)
                return {**self._masks(x, rest, across=across), self.roles["causal"]: True}
            elif self.modes != (True,) or not bool(table[:, :, 0].all()):  # else padding is later
                raise InapplicableError(f"it takes no mask of {what}")
        for name, table in tables.items():
            if forms[name].meaning == ADDITIVE and not bool(table.any(-1).all()):
                raise InapplicableError("an additive mask, of numbers of the caller, hides not all")
        return {name: forms[name].write(table, self.heads, x.dtype)
                for name, table in tables.items()}  # fmt: skip

    def _allowed(
        self, x: Tensor, memory: Tensor, valid: Tensor | None, future: bool
    ) -> Tensor | None:
        """Return the allowed pairs (b, n, m); None if nothing is hidden by masks."""
        n, m = x.shape[1], memory.shape[1]
        built_in = self.modes == (True,)
        if valid is None and (future or built_in):
            return None
        allowed = torch.ones(len(x), n, m, dtype=torch.bool)
        if not future and not built_in:
            allowed = allowed.tril()
        if valid is not None:
            allowed = allowed & (torch.arange(m) < valid[:, None])[:, None]
        return allowed

    def output(self, answer: Any, x: Tensor) -> Tensor:
        """Return the output (b, n, …) among what a call returned."""
        found = self.tensors(answer)
        if len(found) <= self.place:
            raise RegardError(f"{self.name} returned {type(answer).__name__} without an output")
        return self._turned(found[self.place])

    def tensors(self, answer: Any) -> list[Tensor]:
        """Return the tensors of numbers in what a call returned, in order."""
        leaves = tree_leaves(answer)
        inside = [y for leaf in leaves if not isinstance(leaf, Tensor) and hasattr(leaf, "__dict__")
                  for y in tree_leaves(list(vars(leaf).values()))]  # fmt: skip
        return [y for y in (*leaves, *inside) if isinstance(y, Tensor) and y.is_floating_point()]

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def __str__(self) -> str:
        """Return in one line how it is called."""
        if self.function:
            arguments = "call="
        else:
            who = {"queries": "x", "keys": "x", "values": "x"}
            parts = [f"{self.roles[role]}={value}" for role, value in who.items()
                     if role in self.roles]  # fmt: skip
            parts += [f"{self.roles['memory']}=memory"] if "memory" in self.roles else []
            parts += [f"{name}={form}" for name, form in self.forms.items()]
            arguments = f"forward({', '.join(parts)})"
        says = [
            arguments,
            "x is words before the embedding" if self.embeds else "",
            "batch first" if self.batch_first else "time first",
            "causal" if self.modes == (True,) else "",
            f"width {self.width}, {self.heads} head{'s' if self.heads > 1 else ''}",
            str(self.dtype).removeprefix("torch."),
            f"left out: {', '.join(self.unread)}" if self.unread else "",
        ]
        by = f", called as in {self.convention}" if self.convention else ""
        return f"{self.name}{by}: {'; '.join(part for part in says if part)}"


def kinds(allowed: Tensor) -> dict[str, Tensor]:
    """Return what a table (b, n, m) hides, each as such a table: keys, pairs, or both in one."""
    keys = allowed.any(1, keepdim=True).expand_as(allowed)  # seen by any query
    pairs = (allowed | ~keys).all(0, keepdim=True).expand_as(allowed)
    found = {KEYS: keys, PAIRS: pairs}
    if not torch.equal(keys & pairs, allowed):  # other pairs in each text
        found = {BOTH: allowed}
    return {what: table for what, table in found.items() if not bool(table.all())}


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a call: of ``forward``, or of keras' ``call``."""
    kind: Any = type(module)
    return merged(kind, "call" if is_keras(module) else "forward")


def is_keras(module: nn.Module) -> bool:
    """Return whether a module is a layer or a model of keras."""
    return any(base.__module__.startswith("keras.") for base in type(module).__mro__)


@lru_cache(maxsize=64)  # the arguments are read at every call
def merged(kind: type, method: str) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a method; those of its bases too, if it passes ``**kwargs`` on."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if method not in vars(base) or base in (nn.Module, object):
            continue
        own = [*inspect.signature(vars(base)[method]).parameters.values()][1:]  # without self
        found |= {p.name: p for p in own if p.name not in found}
        if not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in own):
            break
    loose = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in found.items() if p.kind not in loose}


def copied(module: nn.Module) -> nn.Module:
    """Return a copy, also of a module that keeps a result of its last call."""
    kept_results = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    return copy.deepcopy(module, kept_results)


def of_memory(name: str) -> bool:
    """Return whether a mask is one of keys from a memory."""
    return name.startswith(("memory_", "context_", "encoder_", "cross_", "enc_"))


def kept(answer: Any, name: str, whole: bool) -> Any:
    """Return the cache among what a call returned; None if there is none."""
    if whole:
        return answer[1]
    if (past := getattr(answer, name, None)) is not None:
        return past
    later = answer[1:] if isinstance(answer, tuple) else ()
    return next((one for one in later if isinstance(one, tuple | list)), None)


@contextmanager
def embedded(module: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Give vectors (b, n, width) to a module in place of its first embedding; yield its input."""
    numbers, pending = torch.ones(x.shape[:2], dtype=torch.long), [x]

    def replace(part: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        fits = pending and inputs[0].shape == numbers.shape and output.shape == x.shape
        return pending.pop() if fits else output

    parts = [part for part in module.modules() if isinstance(part, nn.Embedding)]
    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.enter_context(part.register_forward_hook(replace))
        yield numbers
