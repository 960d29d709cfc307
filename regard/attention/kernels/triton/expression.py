"""A score as an expression of one pair: what `trace` makes, and `differentiate` and `emit` read.

A node is a number that belongs to a batch entry, a row and a column. ``symbols`` are the indices
that it depends on: "z" (batch), "r" (row), "c" (column), and one for each open sum.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A node larger than this is not emitted: the kernel would not fit the registers.
MOST_NODES = 2_000


class UnsupportedScore(Exception):  # noqa: N818 - caught by `launch`, never shown as an error
    """The reason why a score or mask has no Triton tile."""


@dataclass(frozen=True)
class Affine:
    """An index: the sum of symbols times factors, and a constant.

    >>> Affine.of("r").plus(Affine((), 2)).times(3)
    Affine(terms=(('r', 3),), constant=6)
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @classmethod
    def of(cls, symbol: str) -> "Affine":
        """Return the index that is one symbol."""
        return cls(((symbol, 1),))

    def plus(self, other: "Affine") -> "Affine":
        """Return the sum of two indices."""
        factors = dict(self.terms)
        for symbol, factor in other.terms:
            factors[symbol] = factors.get(symbol, 0) + factor
        terms = tuple(sorted((s, f) for s, f in factors.items() if f))
        return Affine(terms, self.constant + other.constant)

    def times(self, factor: int) -> "Affine":
        """Return the index times a number."""
        terms = tuple((s, f * factor) for s, f in self.terms if factor)
        return Affine(terms, self.constant * factor)

    @property
    def symbols(self) -> frozenset[str]:
        """Return the symbols in it."""
        return frozenset(symbol for symbol, _ in self.terms)


@dataclass(frozen=True, eq=False)
class Node:
    """One operation on numbers; equal nodes of a `Builder` are one object.

    ``kind`` is "f" (float32), "i" (an integer) or "b" (a truth value). ``data`` belongs to the
    operation: the value of "constant", the `Affine` of "index", tensor and indices of "load",
    symbol and size of "sum".
    """

    op: str
    args: tuple["Node", ...]
    data: tuple[Any, ...]
    kind: str
    symbols: frozenset[str]


@dataclass
class Builder:
    """The nodes of one kernel, each stored once, with simple constants folded."""

    extents: dict[str, int] = field(default_factory=dict)
    nodes: dict[tuple[Any, ...], Node] = field(default_factory=dict)

    def node(
        self,
        op: str,
        args: Sequence[Node] = (),
        data: tuple[Any, ...] = (),
        kind: str = "f",
        symbols: Iterable[str] = (),
        closed: str = "",
    ) -> Node:
        """Return the node of an operation.

        ``symbols`` are those that no argument has; the ``closed`` one is open in arguments alone.
        """
        key = (op, tuple(map(id, args)), data, kind)
        if key not in self.nodes:
            if len(self.nodes) > 4 * MOST_NODES:
                raise UnsupportedScore("the score has too many operations")
            own = frozenset(symbols).union(*(x.symbols for x in args))
            self.nodes[key] = Node(op, tuple(args), data, kind, own - {closed})
        return self.nodes[key]

    def constant(self, value: float | int | bool) -> Node:
        """Return a number."""
        kind = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"
        return self.node("constant", (), (value,), kind)

    def add(self, a: Node, b: Node) -> Node:
        """Return a + b."""
        if is_number(a, 0):
            return b
        return a if is_number(b, 0) else self.node("add", (a, b))

    def mul(self, a: Node, b: Node) -> Node:
        """Return a · b."""
        if is_number(a, 0) or is_number(b, 0):
            return self.constant(0.0)
        if is_number(a, 1):
            return b
        return a if is_number(b, 1) else self.node("mul", (a, b))

    def neg(self, a: Node) -> Node:
        """Return −a."""
        return self.mul(self.constant(-1.0), a)

    def where(self, condition: Node, a: Node, b: Node) -> Node:
        """Return a where the condition holds, else b."""
        return a if a is b else self.node("where", (condition, a, b), kind=a.kind)

    def sum(self, symbol: str, body: Node) -> Node:
        """Return the sum of a node over all values of a symbol."""
        size = self.extents[symbol]
        if symbol not in body.symbols:
            return self.mul(self.constant(float(size)), body)
        return self.node("sum", (body,), (symbol, size), closed=symbol)


def is_number(node: Node, value: float | int) -> bool:
    """Return whether a node is this constant."""
    return node.op == "constant" and node.kind != "b" and node.data[0] == value


def in_order(outputs: Iterable[Node]) -> list[Node]:
    """Return all nodes that outputs depend on, arguments first."""
    done: dict[int, Node] = {}
    waiting = [(node, False) for node in outputs][::-1]
    while waiting:
        node, ready = waiting.pop()
        if id(node) in done:
            continue
        if ready:
            done[id(node)] = node
        else:
            waiting.append((node, True))
            waiting += [(x, False) for x in reversed(node.args)]
    return list(done.values())


def adjoints(
    build: Builder, output: Node, seed: Node, wanted: Callable[[Node], bool]
) -> Mapping[Node, Node]:
    """Return the derivative of ``seed`` · ``output`` by each load that is ``wanted``.

    By reverse mode: a node outside a sum collects the contributions of its uses inside.
    """
    order = in_order([output])
    slope: dict[int, Node] = {id(output): seed}
    found: dict[Node, Node] = {}
    for node in reversed(order):
        upstream = slope.get(id(node))
        if upstream is None or node.kind != "f":
            continue
        if node.op == "load" and wanted(node):
            found[node] = upstream
        for argument, partial in partials(build, node):
            contribution = build.mul(upstream, partial)
            for symbol in sorted(summed(inside(node) - argument.symbols)):
                contribution = build.sum(symbol, contribution)
            before = slope.get(id(argument))
            slope[id(argument)] = (
                contribution if before is None else build.add(before, contribution)
            )
    return found


def summed(symbols: Iterable[str]) -> frozenset[str]:
    """Return the symbols of sums among some: d and a size."""
    return frozenset(symbol for symbol in symbols if symbol.startswith("d"))


def inside(node: Node) -> frozenset[str]:
    """Return the symbols that are open where the arguments of a node are computed."""
    return node.symbols | {node.data[0]} if node.op == "sum" else node.symbols


def partials(build: Builder, node: Node) -> list[tuple[Node, Node]]:
    """Return each differentiable argument of a node with the derivative by it.

    Raise an UnsupportedScore for an operation without a derivative here.
    """
    number = build.constant
    if node.op in ("constant", "load", "index", "floor", "sign") or node.kind != "f":
        return []
    a, b = (*node.args, None, None)[:2]
    assert a is not None
    if node.op in ("sum", "add", "sub", "mul", "div", "where", "maximum", "minimum"):
        one = number(1.0)
        if node.op == "sum":
            return [(a, one)]
        assert b is not None
        if node.op == "where":
            zero, c = number(0.0), node.args[2]
            return [(b, build.where(a, one, zero)), (c, build.where(a, zero, one))]
        if node.op in ("maximum", "minimum"):  # torch gives each half of the gradient of a tie
            first = build.node("gt" if node.op == "maximum" else "lt", (a, b), kind="b")
            tie = build.node("eq", (a, b), kind="b")
            share = build.where(tie, number(0.5), build.where(first, one, number(0.0)))
            other = build.where(tie, number(0.5), build.where(first, number(0.0), one))
            return [(a, share), (b, other)]
        return {
            "add": [(a, one), (b, one)],
            "sub": [(a, one), (b, number(-1.0))],
            "mul": [(a, b), (b, a)],
            "div": [
                (a, build.node("div", (one, b))),
                (b, build.neg(build.node("div", (node, b)))),
            ],
        }[node.op]
    return [(a, slope_of(build, node, a))]


def slope_of(build: Builder, node: Node, a: Node) -> Node:
    """Return the derivative of a function of one number."""
    number = build.constant

    def squared(x: Node) -> Node:
        return build.mul(x, x)

    match node.op:
        case "exp":
            return node
        case "log":
            return build.node("div", (number(1.0), a))
        case "sqrt":
            return build.node("div", (number(0.5), node))
        case "rsqrt":
            return build.mul(number(-0.5), build.node("div", (node, a)))
        case "sin":
            return build.node("cos", (a,))
        case "cos":
            return build.neg(build.node("sin", (a,)))
        case "tanh":
            return build.node("sub", (number(1.0), squared(node)))
        case "sigmoid":
            return build.node("sub", (node, squared(node)))
        case "erf":
            return build.mul(
                number(1.1283791670955126), build.node("exp", (build.neg(squared(a)),))
            )
        case "abs":
            return build.node("sign", (a,))
        case "relu":
            positive = build.node("gt", (a, number(0.0)), kind="b")
            return build.where(positive, number(1.0), number(0.0))
        case "cast":
            return number(1.0)
    raise UnsupportedScore(f"{node.op} has no derivative in Triton tiles")
