"""Tensors of a traced graph as functions from indices to nodes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.triton.expression import (
    Affine,
    Builder,
    Node,
    UnsupportedScore,
    summed,
)

Index = tuple[Affine, ...]
ZERO = Affine()
#: Dtypes that the kernels read as float32; casts between them are left out.
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
UNARY_FLOAT = frozenset({"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf"})


@dataclass(frozen=True)
class Value:
    """A tensor of the traced graph: its shape, and its number at an index."""

    shape: tuple[int, ...]
    at: Callable[[Index], Node]
    view: bool = False


@dataclass
class Values:
    """Values of one kernel; ``captured`` collects tensors that are not arguments."""

    build: Builder
    captured: list[Tensor]

    def value(self, x: object) -> Value:
        """Return a number or a value as a value."""
        if isinstance(x, Value):
            return x
        if isinstance(x, bool | int | float):
            node = self.build.constant(x)
            return Value((), lambda index: node)
        raise UnsupportedScore(f"it uses a {type(x).__name__}")

    def tensor(self, x: Tensor) -> Value:
        """Return a tensor that the traced function captured."""
        if x.numel() == 1 and x.device.type == "cpu" and x.ndim == 0:
            return self.value(x.item())
        if x.dtype == torch.float64:
            raise UnsupportedScore("it computes in float64")
        place = next((i for i, y in enumerate(self.captured) if y is x), len(self.captured))
        if place == len(self.captured):
            self.captured.append(x)
        return self.loaded(f"captured{place}", tuple(x.shape), kind_of(x.dtype))

    def loaded(self, name: str, shape: tuple[int, ...], kind: str) -> Value:
        """Return a tensor of the kernel, read at any index."""

        def at(index: Index) -> Node:
            symbols = frozenset[str]().union(*(x.symbols for x in index))
            return self.build.node("load", (), (name, index), kind, symbols)

        return Value(shape, at)

    def side(
        self, name: str, row: str, lead: Sequence[str], shape: tuple[int, ...], kind: str
    ) -> Value:
        """Return a tensor with a row for each query ("r") or key ("c"), of which a pair reads one.

        ``lead`` are the symbols of its batch axes, of which those of size 1 are broadcast. With
        the axes of a prepared tensor it has one more than those, the width; positions have none.
        """
        axes = [*lead, row]
        wide = len(shape) > len(axes)

        def at(index: Index) -> Node:
            own = index[: len(axes)]
            for place, symbol, size in zip(own, axes, shape, strict=False):
                if place != (Affine.of(symbol) if size > 1 else ZERO):
                    raise UnsupportedScore("a pair reads other rows than its own")
            rest = index[len(axes) :] if wide else ()
            symbols = {"z", row}.union(*(x.symbols for x in rest))
            return self.build.node("load", (), (name, rest), kind, symbols)

        return Value(shape, at)

    def pointwise(self, op: str, args: Sequence[Any], kind: str | None = None) -> Value:
        """Return one operation on the numbers of broadcast values."""
        values = [self.value(x) for x in args]
        shape = tuple(torch.broadcast_shapes(*(x.shape for x in values)))

        def at(index: Index) -> Node:
            nodes = [x.at(narrowed(index, x.shape)) for x in values]
            return self.operation(op, nodes, kind)

        return Value(shape, at)

    def operation(self, op: str, nodes: Sequence[Node], kind: str | None) -> Node:
        """Return the node of an operation, of the kind that torch's promotion gives."""
        build = self.build
        if kind is None:
            kinds = {x.kind for x in nodes[-2:]}
            kind = "f" if "f" in kinds or op in UNARY_FLOAT else "i"
            if kinds == {"b"} and op == "where":
                kind = "b"
        if kind == "f":
            if op == "add":
                return build.add(*nodes)
            if op == "mul":
                return build.mul(*nodes)
        return build.node(op, nodes, kind=kind)

    def summed(self, value: Value, axes: Iterable[int], keep: bool) -> Value:
        """Return the sum over some axes, of which one is longer than 1."""
        gone = {axis % len(value.shape) for axis in axes}
        long = [axis for axis in gone if value.shape[axis] != 1]
        if len(long) > 1 or 0 in (value.shape[axis] for axis in gone):
            raise UnsupportedScore("it sums over several axes at once, or none")
        symbol = self.symbol(value.shape[long[0]]) if long else ""

        def at(index: Index) -> Node:
            rest = iter(index)
            old = [
                next(rest) if keep or axis not in gone else ZERO for axis in range(len(value.shape))
            ]
            if not long:
                return value.at(tuple(old))
            must_be_closed(index)
            old[long[0]] = Affine.of(symbol)
            return self.total(symbol, value.at(tuple(old)))

        kept = [1] if keep else []
        sizes = [[n] if axis not in gone else kept for axis, n in enumerate(value.shape)]
        return Value(tuple(chain.from_iterable(sizes)), at)

    def symbol(self, size: int) -> str:
        """Return the symbol of sums over so many numbers, shared by all of them."""
        name = f"d{size}"
        self.build.extents[name] = size
        return name

    def total(self, symbol: str, body: Node) -> Node:
        """Return a sum that is not inside another sum of the same numbers."""
        if body.kind != "f":
            raise UnsupportedScore("it sums integers")
        return self.build.sum(symbol, body)


def kind_of(dtype: torch.dtype) -> str:
    """Return the kind of node for a dtype."""
    if dtype == torch.bool:
        return "b"
    return "f" if dtype.is_floating_point else "i"


def narrowed(index: Index, shape: Sequence[int]) -> Index:
    """Return the index into a tensor that is broadcast: 0 along axes of 1."""
    last = index[len(index) - len(shape) :] if shape else ()
    return tuple(ZERO if size == 1 else x for x, size in zip(last, shape, strict=True))


def must_be_closed(index: Index) -> None:
    """Raise an UnsupportedScore if an index is that of another sum."""
    if any(summed(place.symbols) for place in index):
        raise UnsupportedScore("it has a sum inside of a sum")
