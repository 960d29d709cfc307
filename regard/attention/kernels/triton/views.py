"""Views of tensors, and tensors without numbers of their own: new indices, the same nodes."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import fx

from regard.attention.kernels.triton.expression import Affine, Node, UnsupportedScore
from regard.attention.kernels.triton.values import (
    ZERO,
    Index,
    Value,
    Values,
    kind_of,
    narrowed,
)


class Views(Values):
    """The operations of torch that compute no number; ``op_NAME`` interprets ``aten.NAME``."""

    def op_view(self, node: fx.Node, a: Any, shape: Sequence[int]) -> Value:
        value, shape = self.value(a), tuple(node.meta["val"].shape)
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]

        def at(index: Index) -> Node:
            flat = ZERO
            for place, stride in zip(index, strides, strict=True):
                flat = flat.plus(place.times(stride))
            return value.at(self.unflattened(flat, value.shape))

        return Value(shape, at, view=True)

    op_reshape = op__unsafe_view = op_view

    def unflattened(self, flat: Affine, shape: Sequence[int]) -> Index:
        """Return the indices of a place in the flat order. Raise if axes would be mixed."""
        left, places = flat, []
        for axis, size in enumerate(shape):
            stride = prod(shape[axis + 1 :]) or 1
            terms = tuple((s, f // stride) for s, f in left.terms if f % stride == 0)
            place = Affine(terms, left.constant // stride)
            left = left.plus(place.times(-stride))
            most = sum(f * (self.extent(s) - 1) for s, f in terms) + place.constant
            if any(f < 0 for _, f in terms) or not 0 <= most < max(size, 1):
                raise UnsupportedScore("it reshapes pairs in a way that mixes axes")
            places.append(place)
        if left.terms:
            raise UnsupportedScore("it reshapes pairs in a way that mixes axes")
        return tuple(places)

    def extent(self, symbol: str) -> int:
        """Return how many values a symbol has."""
        return self.build.extents[symbol]

    def moved(self, value: Value, shape: Sequence[int], old: Callable[[Index], Index]) -> Value:
        """Return a view: the number at an index is that of the old tensor at another."""
        return Value(tuple(shape), lambda index: value.at(old(index)), view=True)

    def op_expand(self, node: fx.Node, a: Any, sizes: Sequence[int], **named: Any) -> Value:
        value, shape = self.value(a), tuple(node.meta["val"].shape)
        return self.moved(value, shape, lambda index: narrowed(index, value.shape))

    def op_permute(self, node: fx.Node, a: Value, order: Sequence[int]) -> Value:
        order = [axis % len(a.shape) for axis in order]
        back = sorted(range(len(order)), key=order.__getitem__)
        shape = [a.shape[axis] for axis in order]
        return self.moved(a, shape, lambda index: tuple(index[i] for i in back))

    def op_transpose(self, node: fx.Node, a: Value, one: int, two: int) -> Value:
        order = list(range(len(a.shape)))
        one, two = one % len(order), two % len(order)
        order[one], order[two] = order[two], order[one]
        return self.op_permute(node, a, order)

    def op_t(self, node: fx.Node, a: Value) -> Value:
        return self.op_permute(node, a, range(len(a.shape))[::-1])

    def op_unsqueeze(self, node: fx.Node, a: Any, axis: int) -> Value:
        value = self.value(a)
        axis %= len(value.shape) + 1
        shape = (*value.shape[:axis], 1, *value.shape[axis:])
        return self.moved(value, shape, lambda index: (*index[:axis], *index[axis + 1 :]))

    def op_squeeze(self, node: fx.Node, a: Value, axes: Any = None) -> Value:
        axes = range(len(a.shape)) if axes is None else axes
        axes = [axes] if isinstance(axes, int) else axes
        gone = {x % len(a.shape) for x in axes if a.shape[x] == 1}
        shape = [size for axis, size in enumerate(a.shape) if axis not in gone]

        def old(index: Index) -> Index:
            rest = iter(index)
            return tuple(ZERO if axis in gone else next(rest) for axis in range(len(a.shape)))

        return self.moved(a, shape, old)

    def op_select(self, node: fx.Node, a: Value, axis: int, place: int) -> Value:
        axis %= len(a.shape)
        at = Affine((), place % a.shape[axis])
        shape = (*a.shape[:axis], *a.shape[axis + 1 :])
        return self.moved(a, shape, lambda index: (*index[:axis], at, *index[axis:]))

    def op_unbind(self, node: fx.Node, a: Value, axis: int = 0) -> list[Value]:
        return [self.op_select(node, a, axis, place) for place in range(a.shape[axis])]

    def op_slice(
        self, node: fx.Node, a: Value, axis: int = 0, start: int | None = None,
        end: int | None = None, step: int = 1,
    ) -> Value:  # fmt: skip
        axis %= len(a.shape)
        places = range(a.shape[axis])[start:end:step]
        shape = (*a.shape[:axis], len(places), *a.shape[axis + 1 :])

        def old(index: Index) -> Index:
            place = index[axis].times(step).plus(Affine((), places.start))
            return (*index[:axis], place, *index[axis + 1 :])

        return self.moved(a, shape, old)

    def op_split(self, node: fx.Node, a: Value, size: int, axis: int = 0) -> list[Value]:
        total = a.shape[axis]
        return [
            self.op_slice(node, a, axis, first, min(first + size, total))
            for first in range(0, total, size)
        ]

    def op_split_with_sizes(
        self, node: fx.Node, a: Value, sizes: Sequence[int], axis: int = 0
    ) -> list[Value]:
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        pairs = zip(ends, sizes, strict=True)
        return [self.op_slice(node, a, axis, end - size, end) for end, size in pairs]

    def op_arange(self, node: fx.Node, *args: int, **named: Any) -> Value:
        start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
        if not all(isinstance(x, int) for x in args):
            raise UnsupportedScore("it uses a range of fractions")

        def at(index: Index) -> Node:
            place = index[0].times(step).plus(Affine((), start))
            return self.build.node("index", (), (place,), "i", place.symbols)

        return Value(tuple(node.meta["val"].shape), at)

    def op_full(self, node: fx.Node, shape: Sequence[int], fill: Any, **named: Any) -> Value:
        constant = self.value(fill)
        return Value(tuple(shape), lambda index: constant.at(()))

    def op_zeros(self, node: fx.Node, *given: Any, **named: Any) -> Value:
        return self.op_full(node, node.meta["val"].shape, zero_of(node))

    op_new_zeros = op_zeros_like = op_zeros

    def op_ones(self, node: fx.Node, *given: Any, **named: Any) -> Value:
        return self.op_full(node, node.meta["val"].shape, type(zero_of(node))(1))

    op_new_ones = op_ones_like = op_ones

    def op_full_like(self, node: fx.Node, a: Value, fill: Any, **named: Any) -> Value:
        return self.op_full(node, a.shape, fill)

    def op_scalar_tensor(self, node: fx.Node, fill: Any, **named: Any) -> Value:
        return self.op_full(node, (), fill)


def zero_of(node: fx.Node) -> float | int | bool:
    """Return the zero of a traced tensor's dtype."""
    return {"f": 0.0, "i": 0, "b": False}[kind_of(node.meta["val"].dtype)]
