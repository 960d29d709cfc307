"""Attention weights of any module, observed while it runs."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.analysis.maps import entropy
from regard.analysis.record import LONG, Recording
from regard.attention import Attended
from regard.attention.kernels.summary import Summary
from regard.core.errors import RegardError
from regard.core.spellings import SETTINGS

Weigh = Callable[[slice], Tensor]  # from some queries to their weights (batch, heads, rows, keys)
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
VIEWS = torch._C.DispatchKey.ADInplaceOrView
FLEX = "flex_attention"
#: Operations after which weights are still weights; matrix products, by their first factor.
CARRY = {"mul", "mul_", "where", "masked_fill", "native_dropout", "_to_copy", "clone", "add",
         "sub", "nan_to_num", "convolution", "copy_"}  # fmt: skip
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1}


class Observed(Attended):
    """An `Attended` of another package's module, ``seen`` as "softmax" or by a function's name.

    ``output`` is the product with the values, before the module merges its heads.
    """

    def __init__(
        self, seen: str, output: Tensor, weigh: Weigh, shape: torch.Size, sources: Sequence[Tensor]
    ) -> None:
        self.seen, summary = seen, partial(summarize, weigh, shape)
        super().__init__(output, partial(weigh, slice(None)), summary, sources, shape, shape[1])


@torch.no_grad()
def summarize(weigh: Weigh, shape: torch.Size, top: int) -> Summary:
    """Return the summary of a call, computed from strips of its queries."""
    n, m = shape[-2:]
    step = max(1, LONG * n // max(shape.numel(), 1))
    strips = [weigh(slice(i, i + step)) for i in range(0, n, step)]
    best = [x.topk(min(top, m)) for x in strips]
    values, places = (torch.cat(x, -2) for x in zip(*best, strict=True))
    mass = torch.stack([x.sum(-2) for x in strips]).sum(0)
    places = places.int().masked_fill(values == 0, -1)
    return Summary(places, values, torch.cat([entropy(x) for x in strips], -1), mass)


@contextmanager
def observe(
    model: nn.Module,
    *,
    off: Mapping[str, Sequence[int]] | None = None,
    long: int = LONG,
    top: int = 16,
) -> Iterator[Recording]:
    """Record, in this context, the weights of every attention that a model of any package computes.

    The recording has a row for each call of the last forward pass: the name of the module that made
    it (its second call is ``name:2``) and an `Observed` with the weights (batch, heads, queries,
    keys) before dropout. `regard.analysis.record.record` does the same for a model without layers
    of regard; it explains ``long`` and ``top``.

    Seen are ``scaled_dot_product_attention``, ``flex_attention``, and every softmax that a matrix
    product applies to values. No attention are probabilities that select, scale, or meet a loss or
    parameters. Not seen are kernels outside torch (flash-attn, xformers), softmaxes written as exp
    and sum, divided by another sum, or applied by mul and sum.

    ``off`` sets heads, counted from 1, to zero: ``{"layers.0.self_attn": [1, 3]}``. Compiled
    functions run uncompiled, and the fused path of ``nn.TransformerEncoder`` is off: that differs
    by rounding, and returns 0 for padding. Otherwise outputs and gradients are bit-identical.

    Warns: a forward pass without attention. Raises: ``off`` has an unknown layer or head, or one of
    a fused kernel that needs gradients.

    >>> layer, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.ones(3, 5, 6)
    >>> with torch.no_grad(), observe(layer) as recording:
    ...     _ = layer(x, x, x, need_weights=False)
    >>> [(name, attended.seen, attended.weights.shape) for name, attended in recording.layers]
    [('model', 'scaled_dot_product_attention', torch.Size([3, 2, 5, 5]))]
    """
    watch = Watch(Recording(), long, top, off or {})
    with watch.on(model):
        yield watch.recording
    if watch.calls and not watch.recording.layers:
        warnings.warn(
            f"nothing was observed of {type(model).__name__}: it multiplied no softmax by values "
            "and called no attention of torch; a kernel of another package, such as flash-attn, "
            "cannot be seen: choose torch's attention in the settings of the model",
            stacklevel=3,
        )


@dataclass(eq=False)
class Softmax:
    """A softmax over an axis, which is attention once it is multiplied by values.

    ``order``: the other axes as batch, heads and rows; ``grid``: (batch, heads); ``cut``: the slice
    of the keys, without those of sinks.
    """

    name: str
    numbers: Tensor
    axis: int
    order: tuple[int, ...]
    grid: tuple[int, int]
    cut: tuple[Any, ...] = (None,)
    done: bool = False

    def weigh(self, rows: slice) -> Tensor:
        """Return the weights (batch, heads, rows, keys)."""
        table = ordered(self.numbers, self.axis, self.order)
        return table.reshape(*self.grid, -1, table.shape[-1])[..., rows, slice(*self.cut)]


class Watch(TorchDispatchMode):
    """Sees torch's operations below autograd, and follows softmaxes to products with values."""

    supports_higher_order_operators = True  # such as flex_attention

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True imports the compiler, which takes seconds

    def __init__(
        self, recording: Recording, long: int, top: int, off: Mapping[str, Sequence[int]]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording, self.long, self.top, self.off, self.calls = recording, long, top, off, 0
        self._running: list[tuple[str, nn.Module]] = []
        self._names: dict[str, int] = {}  # calls of each module
        self._sizes: Sequence[int] = (1, 1)  # of the first two axes of the first batched input
        # The softmaxes that the numbers of a storage come from. A weak reference keeps the address
        # of a freed storage from being used again.
        self._flow: dict[StorageWeakRef, tuple[Softmax, ...]] = {}
        self._parameters: set[StorageWeakRef] = set()

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Watch a model, without torch's fused path and compiled functions."""
        mha = torch.backends.mha
        with ExitStack() as stack:
            for path, module in model.named_modules():
                name = ".".join(x for x in path.split(".") if x != "_orig_mod")  # of torch.compile
                before, after = partial(self._enter, name), partial(self._leave, name)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after, always_call=True).remove)
            stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            if sys.modules.keys() & {"torch._dynamo", "torch.nn.attention.flex_attention"}:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(self)
            yield

    def _enter(self, name: str, module: nn.Module, inputs: Any, keywords: Any) -> None:
        if not self._running:
            self.calls += 1
            if not name:
                self.recording.layers.clear()
                self._names.clear()
            self._flow = {}
            self._parameters = {ref(x) for x in module.parameters()}
            sizes = (x.shape[:2] for x in tree_leaves((inputs, keywords)) if isinstance(x, Tensor)
                     and x.ndim > (1 if x.dtype in (torch.int32, torch.int64) else 2))  # fmt: skip
            self._sizes = next(sizes, (1, 1))
        self._running.append((name, module))

    def _leave(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        self._running.pop()
        if self._running or name or output is None:  # an exception
            return
        known = [x for x, _ in self.recording.layers]
        for layer in self.off.keys() - set(known):
            choices = f"choose one of {', '.join(known)}" if known else "no attention was observed"
            raise RegardError(f"layer {layer!r} has no heads; {choices}")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        (name, composite), kwargs = described(func), kwargs or {}
        if composite:  # inference mode skips autograd, which takes these apart; views stay views
            with torch._C._SetExcludeDispatchKeyGuard(VIEWS, False), self:
                return func._op_dk(COMPOSITE, *args, **kwargs)
        result = func(*args, **kwargs)
        if not self._running or torch._C._current_graph_task_id() != -1:  # in a backward pass
            return result
        if name in ("_softmax", "_safe_softmax"):
            self._softmax(result, args[1])
        elif name in PRODUCTS:
            self._product(args[PRODUCTS[name]], args[PRODUCTS[name] + 1], result)
        elif name in CARRY:
            self._carry(name, args, result)
        elif name == "slice" and len(args) > 2:
            for softmax in self._flow.get(ref(args[0]), ()):
                if (args[1] - softmax.axis) % args[0].ndim == 0:
                    softmax.cut = args[2:]
        elif name == FLEX or (name.startswith("_scaled_dot") and not name.endswith("backward")):
            self._fused(result[0], *fused(func, args, kwargs))
        return result

    def _softmax(self, numbers: Tensor, axis: int) -> None:
        """Follow a softmax, and switch its heads off."""
        name, order = self._name(), self._order(numbers.movedim(axis, -1).shape[:-1])
        lengths, grid = ordered(numbers, axis, order).shape[:-1], (1, 1)
        if len(lengths) == 2:
            grid = lengths[0] // max(heads := self._heads(lengths[0]), 1), heads
        elif len(lengths) > 2:
            grid = lengths[0], lengths[1:-1].numel()
        softmax = Softmax(name, numbers, axis, order, grid)
        if off := self._off(name, grid[1]):
            softmax.numbers = numbers.clone()
            hidden = numbers.new_zeros(*grid, lengths.numel() // max(math.prod(grid), 1))
            hidden[:, off] = 1
            ordered(numbers, axis, order).masked_fill_(hidden.bool().reshape(*lengths, 1), 0)
        self._flow[ref(numbers)] = (softmax,)

    def _fused(self, output: Tensor, seen: str, sources: Sequence[Tensor], weigh: Weigh) -> None:
        """Record a call of a fused kernel, and switch its heads off."""
        name, shape = self._name(), torch.Size((*output.shape[:3], sources[1].shape[-2]))
        if off := self._off(name, shape[1]):
            if torch.is_grad_enabled() and any(x.requires_grad for x in sources):
                raise RegardError(f"{name}: {seen} computes gradients; use torch.no_grad() for off")
            output[:, off] = 0
        self._record(name, Observed(seen, output, weigh, shape, sources))

    def _product(self, left: Tensor, right: Tensor, output: Tensor) -> None:
        """Record the softmaxes that one factor comes from, if they weigh rows of the other."""
        for weights, values, axis in ((left, right, -1), (right, left, -2)):
            keys = weights.shape[max(axis, -weights.ndim)]
            for x in self._flow.get(ref(weights), ()):
                length = x.numbers.shape[x.axis]
                x.cut = (None,) if keys == length else x.cut
                fits = keys == len(range(length)[slice(*x.cut)])
                if x.done or not fits or ref(values) in self._parameters:
                    continue
                if x.numbers.ndim == 2 and weights.ndim == 3 and weights.shape[1] == 1:
                    x.grid = len(weights), 1  # one query for each text
                x.done = True
                rows = x.numbers.numel() // max(math.prod(x.grid) * length, 1)
                shape = torch.Size((*x.grid, rows, keys))
                self._record(x.name, Observed("softmax", output, x.weigh, shape, [x.numbers]))

    def _record(self, name: str, seen: Observed) -> None:
        is_long = seen.shape[-2:].numel() > self.long
        self.recording.layers.append((name, seen.summary(self.top) if is_long else seen))

    def _carry(self, name: str, args: Sequence[Any], result: Any) -> None:
        """Follow numbers through an operation that masks, scales or copies them."""
        result = result[0] if isinstance(result, tuple) else result
        inputs = [x for x in args if isinstance(x, Tensor) and x.numel() == result.numel()]
        if name in ("_to_copy", "clone") and ref(args[0]) in self._parameters:
            self._parameters.add(ref(result))
        if carried := dict.fromkeys(y for x in inputs for y in self._flow.get(ref(x), ())):
            self._flow[ref(result)] = tuple(carried)

    def _name(self) -> str:
        """Return a name for a call: that of the innermost module which is more than a softmax."""
        names = (x for x, y in reversed(self._running) if not isinstance(y, nn.Softmax))
        name = next(names, "") or "model"
        self._names[name] = count = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}:{count}"

    def _order(self, lengths: torch.Size) -> tuple[int, ...]:
        """Return the axes of a softmax as batch, heads and rows, by the input and the modules.

        They have this order unless the batch stands second: after the heads, or between rows and
        heads.
        """
        usual = tuple(range(len(lengths)))
        if len(lengths) != 3 or lengths[0] == self._sizes[0] or lengths[1] != self._sizes[0]:
            return usual
        known = list(self._named_heads())
        if lengths[0] in known:
            return 1, 0, 2
        if lengths[0] == self._sizes[1] and (lengths[2] in known or not known):
            return 1, 2, 0
        return usual

    def _named_heads(self) -> Iterator[int]:
        for _, module in reversed(self._running):
            for name in SETTINGS["heads"]:
                heads = getattr(module, name, None)
                if isinstance(heads, int) and heads > 0:
                    yield heads

    def _heads(self, rows: int) -> int:
        """Return the number of heads in (batch · heads) rows, by the modules or the batch."""
        for heads in self._named_heads():
            if rows / heads in (*self._sizes, 1):
                return heads
        return rows if rows % (self._sizes[0] or 1) else rows // (self._sizes[0] or 1)

    def _off(self, name: str, heads: int) -> list[int]:
        for head in self.off.get(name, ()):
            if not 1 <= head <= heads:
                raise RegardError(f"head {head}: {name} has heads 1 to {heads}")
        return [head - 1 for head in self.off.get(name, ())]


def ordered(numbers: Tensor, axis: int, order: Sequence[int]) -> Tensor:
    """Return a view of a softmax with the axis of keys last and the others in an order."""
    return numbers.movedim(axis, -1).permute(*order, -1)


@cache
def described(func: Any) -> tuple[str, bool]:
    """Return an operation's name, and whether it consists of other operations."""
    if not isinstance(func, torch._ops.OpOverload):
        return func.name(), False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)
    return func.overloadpacket.__name__, composite


def ref(x: Tensor) -> StorageWeakRef:
    """Return a weak reference to the storage of a tensor, the same for its views."""
    return StorageWeakRef(x.untyped_storage())


def fused(func: Any, args: Any, kwargs: Any) -> tuple[str, list[Tensor], Weigh]:
    """Return the name of a fused kernel, what its weights depend on, and the weights."""
    flex, name = described(func)[0] == FLEX, "scaled_dot_product_attention"
    if flex:
        name, bias, causal = FLEX, None, False
        q, k, _, score_mod, block_mask, scale, _, *buffers = args
    else:
        names = (x.name for x in func._schema.arguments)
        given = dict(zip(names, args, strict=False)) | kwargs
        q, k, scale, causal = (given.get(x) for x in ("query", "key", "scale", "is_causal"))
        bias = given.get("attn_bias", given.get("attn_mask"))

    def weigh(rows: slice) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        keys = k.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1).to(wide)  # shared by heads
        scores = q[..., rows, :].to(wide) @ keys.mT
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
        sizes = *scores.shape[:2], q.shape[-2], k.shape[-2]
        batch, heads, n, m = (torch.arange(x, device=q.device) for x in sizes)
        if flex:
            from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
            from torch.nn.attention.flex_attention import _vmap_for_bhqkv

            with TransformGetItemToIndex():  # lets the functions index tensors
                change = _vmap_for_bhqkv(score_mod, (0,), (None,) * len(buffers[0]))
                allow = _vmap_for_bhqkv(block_mask[-1], (), (None,) * len(buffers[1]))
                scores = change(scores, batch, heads, n[rows], m, *buffers[0])
                visible = allow(batch, heads, n[rows], m, *buffers[1])
            scores = scores.masked_fill(~visible, -torch.inf)
        if bias is not None:
            own = bias if bias.shape[-2] == 1 else bias[..., rows, :]
            boolean = own.dtype == torch.bool
            scores = scores.masked_fill(~own, -torch.inf) if boolean else scores + own
        if causal:
            scores = scores.masked_fill(m > n[rows, None], -torch.inf)
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        weights: Tensor = scores.softmax(-1).masked_fill(empty, 0).to(q.dtype)
        return weights

    return name, [q, k] if bias is None else [q, k, bias], weigh
