"""Trace `compare` and masks to expressions: torch's operations on tensors become index arithmetic.

Each tensor of the traced graph is a function from indices to a node, as in Inductor's loops: views
and broadcasting change indices, sums open a symbol, all else is one operation on numbers.
"""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from regard.attention.kernels.triton.expression import Affine, Node, UnsupportedScore
from regard.attention.kernels.triton.values import ZERO, Index, Value, kind_of, must_be_closed
from regard.attention.kernels.triton.views import Views

aten = torch.ops.aten

#: Functions of one number whose result is a float.
UNARY = {
    aten.exp: "exp", aten.log: "log", aten.sqrt: "sqrt", aten.rsqrt: "rsqrt", aten.sin: "sin",
    aten.cos: "cos", aten.tanh: "tanh", aten.sigmoid: "sigmoid", aten.erf: "erf",
    aten.relu: "relu", aten.abs: "abs", aten.floor: "floor", aten.sign: "sign",
}  # fmt: skip
#: Functions of two numbers.
BINARY = {
    aten.mul: "mul", aten.maximum: "maximum", aten.minimum: "minimum",
    aten.remainder: "remainder",
}  # fmt: skip
COMPARISON = {
    aten.lt: "lt", aten.le: "le", aten.gt: "gt", aten.ge: "ge", aten.eq: "eq", aten.ne: "ne",
}  # fmt: skip
LOGICAL = {
    aten.logical_and: "and", aten.logical_or: "or", aten.bitwise_and: "and",
    aten.bitwise_or: "or", aten.logical_xor: "ne", aten.bitwise_xor: "ne",
}  # fmt: skip
#: Operations that return their first argument's numbers.
SAME = (aten.detach, aten.alias, aten.clone, aten.contiguous, aten.lift_fresh_copy, aten.positive)


class Lowering(Views):
    """The interpretation of a graph of torch's operations."""

    def output(
        self, function: Callable[..., Tensor], values: Sequence[Value], tensors: Sequence[Tensor]
    ) -> Value:
        """Return the value of a function of tensors. Raise an UnsupportedScore with the reason."""
        try:
            with torch.no_grad():
                graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(
                    *(x.detach() for x in tensors)
                )
        except UnsupportedScore:
            raise
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:120]
            raise UnsupportedScore(
                f"it cannot be traced ({type(error).__name__}: {first})"
            ) from error
        arguments = iter(values)
        known: dict[fx.Node, Any] = {}
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(arguments)
            elif node.op == "get_attr":
                known[node] = self.tensor(getattr(graph, node.target))
            elif node.op == "output":
                return self.value(fx.node.map_arg(node.args[0], known.__getitem__))
            else:
                given = fx.node.map_arg(node.args, known.__getitem__)
                named = fx.node.map_arg(node.kwargs, known.__getitem__)
                known[node] = self.call(node, given, named)
                if name_of(node).endswith("_"):
                    written = node.args[0]
                    if written.op != "call_function" or given[0].view:
                        raise UnsupportedScore("it writes to a tensor in place")
                    known[written] = known[node]
        raise UnsupportedScore("it returns nothing")

    def call(self, node: fx.Node, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """Return the value of one operation."""
        if node.target is operator.getitem:
            return args[0][args[1]]
        name = name_of(node).removesuffix("_")  # without it the operation is not in place
        packet = getattr(aten, name, None)
        if packet in SAME:
            return self.value(args[0])
        if packet in UNARY:
            return self.pointwise(UNARY[packet], args[:1])
        if packet in BINARY:
            return self.pointwise(BINARY[packet], args[:2])
        if packet in COMPARISON:
            return self.pointwise(COMPARISON[packet], args[:2], "b")
        if packet in LOGICAL:
            return self.pointwise(LOGICAL[packet], args[:2], "b")
        method = getattr(self, f"op_{name}", None)
        if method is None:
            raise UnsupportedScore(f"it uses {name}, which Triton tiles do not have")
        return method(node, *args, **named)

    def op_add(self, node: fx.Node, a: Any, b: Any, *, alpha: float | int = 1) -> Value:
        return self.pointwise("add", [a, b if alpha == 1 else self.pointwise("mul", [b, alpha])])

    def op_sub(self, node: fx.Node, a: Any, b: Any, *, alpha: float | int = 1) -> Value:
        return self.pointwise("sub", [a, b if alpha == 1 else self.pointwise("mul", [b, alpha])])

    def op_rsub(self, node: fx.Node, a: Any, b: Any, alpha: float | int = 1) -> Value:
        return self.op_sub(node, b, a, alpha=alpha)

    def op_div(self, node: fx.Node, a: Any, b: Any, *, rounding_mode: str | None = None) -> Value:
        if rounding_mode is None:
            return self.pointwise("div", [a, b], "f")
        if rounding_mode == "floor" and all(self.whole(x) for x in (a, b)):
            return self.pointwise("floordiv", [a, b], "i")
        raise UnsupportedScore("it rounds a quotient")

    def op_floor_divide(self, node: fx.Node, a: Any, b: Any) -> Value:
        return self.op_div(node, a, b, rounding_mode="floor")

    def whole(self, x: Any) -> bool:
        """Return whether a value holds integers."""
        value = self.value(x)
        return value.at((ZERO,) * len(value.shape)).kind == "i" if prod(value.shape) else False

    def op_neg(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("mul", [-1, a])

    def op_reciprocal(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("div", [1.0, a], "f")

    def op_square(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("mul", [a, a])

    def op_pow(self, node: fx.Node, a: Any, power: Any) -> Value:
        if not isinstance(power, int | float) or isinstance(a, int | float):
            raise UnsupportedScore("it uses a power that is not a number")
        if power == 0.5:
            return self.pointwise("sqrt", [a])
        if power != int(power) or not 1 <= abs(power) <= 4:
            raise UnsupportedScore(f"it uses the power {power:g}")
        result = a
        for _ in range(abs(int(power)) - 1):
            result = self.pointwise("mul", [result, a])
        return result if power > 0 else self.op_reciprocal(node, result)

    def op_clamp(self, node: fx.Node, a: Any, min: Any = None, max: Any = None) -> Value:
        # The gradient of torch's clamp is 1 at the bounds, that of a maximum a half.
        for bound, op in ((min, "lt"), (max, "gt")):
            if bound is not None:
                a = self.op_where(node, self.pointwise(op, [a, bound], "b"), bound, a)
        return self.value(a)

    def op_clamp_min(self, node: fx.Node, a: Any, bound: Any) -> Value:
        return self.op_clamp(node, a, bound)

    def op_clamp_max(self, node: fx.Node, a: Any, bound: Any) -> Value:
        return self.op_clamp(node, a, None, bound)

    def op_where(self, node: fx.Node, condition: Any, a: Any, b: Any) -> Value:
        return self.pointwise("where", [condition, a, b])

    def op_masked_fill(self, node: fx.Node, a: Any, mask: Any, fill: Any) -> Value:
        return self.op_where(node, mask, fill, a)

    def op_logical_not(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("not", [a], "b")

    op_bitwise_not = op_logical_not

    def op_isnan(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("ne", [a, a], "b")

    def op_softplus(
        self, node: fx.Node, a: Any, beta: float | int = 1, threshold: float | int = 20
    ) -> Value:
        # log(1 + e^x) = max(x, 0) + log(1 + e^−|x|)
        scaled = a if beta == 1 else self.pointwise("mul", [a, float(beta)])
        small = self.pointwise("exp", [self.op_neg(node, self.pointwise("abs", [scaled]))])
        rest = self.pointwise("log", [self.pointwise("add", [1.0, small])])
        total = self.pointwise("add", [self.pointwise("relu", [scaled]), rest])
        return total if beta == 1 else self.pointwise("div", [total, float(beta)], "f")

    def op_silu(self, node: fx.Node, a: Any) -> Value:
        return self.pointwise("mul", [a, self.pointwise("sigmoid", [a])])

    def op_gelu(self, node: fx.Node, a: Any, *, approximate: str = "none") -> Value:
        if approximate != "none":
            raise UnsupportedScore("it uses gelu's approximation")
        half = self.pointwise("erf", [self.pointwise("mul", [a, 2**-0.5])])
        share = self.pointwise("mul", [0.5, self.pointwise("add", [1.0, half])])
        return self.pointwise("mul", [a, share])

    def op__to_copy(self, node: fx.Node, a: Any, **named: Any) -> Value:
        dtype, value = named.get("dtype"), self.value(a)
        if dtype is None:
            return value
        if dtype == torch.float64:
            raise UnsupportedScore("it computes in float64")
        kind = kind_of(dtype)

        def at(index: Index) -> Node:
            number = value.at(index)
            return number if number.kind == kind else self.build.node("cast", (number,), kind=kind)

        return Value(value.shape, at)

    def op_sum(
        self, node: fx.Node, a: Any, axes: Any = None, keepdim: bool = False, **named: Any
    ) -> Value:
        value = self.value(a)
        axes = range(len(value.shape)) if axes is None or axes == [] else axes
        return self.summed(value, axes, keepdim)

    def op_mean(
        self, node: fx.Node, a: Any, axes: Any, keepdim: bool = False, **named: Any
    ) -> Value:
        value = self.value(a)
        number = prod(value.shape[axis] for axis in axes)
        return self.pointwise("mul", [self.summed(value, axes, keepdim), 1.0 / number])

    def op_linalg_vector_norm(
        self, node: fx.Node, a: Any, order: float | int = 2, axes: Any = None,
        keepdim: bool = False, **named: Any,
    ) -> Value:  # fmt: skip
        if axes is None or order not in (1, 2):
            raise UnsupportedScore(f"it uses the norm of order {order:g}")
        if order == 1:
            return self.summed(self.pointwise("abs", [a]), axes, keepdim)
        return self.pointwise("sqrt", [self.summed(self.op_square(node, a), axes, keepdim)])

    def op__cdist_forward(self, node: fx.Node, a: Any, b: Any, p: float | int, mode: Any) -> Value:
        one, two = self.op_unsqueeze(node, a, -2), self.op_unsqueeze(node, b, -3)
        return self.op_linalg_vector_norm(node, self.op_sub(node, one, two), p, [-1])

    def op__euclidean_dist(self, node: fx.Node, a: Any, b: Any) -> Value:
        return self.op__cdist_forward(node, a, b, 2, None)

    def op_bmm(self, node: fx.Node, a: Value, b: Value) -> Value:
        symbol, size = self.symbol(a.shape[-1]), a.shape[-1]

        def at(index: Index) -> Node:
            must_be_closed(index)
            inner = Affine.of(symbol) if size > 1 else ZERO
            *batch, row, column = index
            left, right = a.at((*batch, row, inner)), b.at((*batch, inner, column))
            return self.total(symbol, self.build.mul(left, right))

        return Value((*a.shape[:-1], b.shape[-1]), at)

    op_mm = op_bmm

    def op_mv(self, node: fx.Node, a: Value, b: Value) -> Value:
        return self.op_squeeze(node, self.op_bmm(node, a, self.op_unsqueeze(node, b, -1)), -1)

    def op_dot(self, node: fx.Node, a: Value, b: Value) -> Value:
        return self.summed(self.pointwise("mul", [a, b]), [0], False)


def name_of(node: fx.Node) -> str:
    """Return the name of a traced operation in ``aten``, or an empty text for another."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet).removeprefix("aten.") if packet is not None else ""
