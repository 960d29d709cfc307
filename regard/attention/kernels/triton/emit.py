"""Write an expression as functions of Triton.

The text holds operations of the tables below, numbers and names made here, and nothing that a user
wrote. Tiles are (rows, columns): what depends on rows alone is (rows, 1), on columns (1, columns).
Sums of products of a row's and a column's numbers are `tl.dot`; other sums are loops over tiles in
registers. Gradients are added to float32 buffers of which each program owns its rows or columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from regard.attention.kernels.triton.expression import (
    Affine,
    Builder,
    Node,
    UnsupportedScore,
    in_order,
    summed,
)

HEAD = '''"""Written by regard from a score; delete it as you like."""

import triton
import triton.language as tl


@triton.jit
def reciprocal(x, IP: tl.constexpr):
    if IP == "ieee":
        return 1.0 / x
    else:  # on a GPU one instruction, within one unit in the last place
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def tanh(x, DOT: tl.constexpr, IP: tl.constexpr):
    if DOT == tl.float32:
        return 1.0 - 2.0 * reciprocal(1.0 + tl.exp(2.0 * x), IP)
    else:  # within 2^-11, as the inputs
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


'''
PARAMETERS = (
    "T, K, z, r, c, n, m, BR: tl.constexpr, BC: tl.constexpr, DOT: tl.constexpr, IP: tl.constexpr"
)
#: Columns of a tile of `tl.dot`, at most.
WIDEST = 64

TEXT = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})",
    "lt": "({} < {})", "le": "({} <= {})", "gt": "({} > {})", "ge": "({} >= {})",
    "eq": "({} == {})", "ne": "({} != {})", "and": "({} & {})", "or": "({} | {})",
    "not": "({} == 0)", "where": "tl.where({}, {}, {})",
    "maximum": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "exp": "tl.exp({})", "log": "tl.log({})", "sqrt": "tl.sqrt({})", "rsqrt": "(1.0 / tl.sqrt({}))",
    "sin": "tl.sin({})", "cos": "tl.cos({})", "erf": "tl.erf({})", "abs": "tl.abs({})",
    "floor": "tl.floor({})", "tanh": "tanh({}, DOT, IP)",
    "sigmoid": "(0.5 + 0.5 * tanh(0.5 * {}, DOT, IP))", "relu": "tl.where({0} < 0.0, 0.0, {0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0))",
    "remainder": "((({0}) % ({1}) + ({1})) % ({1}))",
    "floordiv": "(({0} - (({0}) % ({1}) + ({1})) % ({1})) // ({1}))",
}  # fmt: skip
CASTS = {"f": "({} * 1.0)", "i": "{}.to(tl.int64)", "b": "({} != 0)"}


@dataclass(frozen=True)
class Gradient:
    """A contribution of each pair to one number of a tensor: of its row, or of its column.

    ``buffer`` numbers the buffers of that side, of ``width`` numbers each row; ``slot`` is the
    place in it.
    """

    buffer: int
    width: int
    slot: Affine
    expression: Node


@dataclass
class Layout:
    """The names of rows, columns and summed indices in one shape of tiles."""

    symbols: Mapping[str, str]
    names: dict[int, str] = field(default_factory=dict)
    turned: bool = False


@dataclass
class Writer:
    """The text of one function, and the names of its computed values.

    ``places`` gives the place in the tuple T of each tensor; ``offsets`` the width of a tensor of a
    side, or the places in K of the strides of another; ``batch`` the places in K of batch sizes.
    """

    build: Builder
    places: Mapping[str, int]
    widths: Mapping[str, int]
    strides: Mapping[str, int]
    batch: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.top = Layout({"r": "r", "c": "c"})

    def write(self, line: str, depth: int = 1) -> None:
        """Append a line."""
        self.lines.append("    " * depth + line)

    def fresh(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"x{self.count}"

    # One node.

    def offset(self, index: Affine, layout: Layout) -> str:
        """Return the text of an index."""
        words = [f"{layout.symbols.get(s) or self.batch.get(s, s)} * {f}" for s, f in index.terms]
        return " + ".join([*words, str(index.constant)])

    def text(self, node: Node, layout: Layout) -> str:
        """Return the text that computes a node from its arguments' names."""
        if node.op == "constant":
            return literal(node)
        if node.op == "index":
            return f"({self.offset(node.data[0], layout)})"
        if node.op == "load":
            return self.load(node, layout)
        arguments = [self.name(x, layout) for x in node.args]
        if node.op == "cast":
            return CASTS[node.kind].format(*arguments)
        if node.kind == "f" and node.op in ("add", "sub", "mul", "div") and whole(node):
            arguments[0] = f"({arguments[0]} * 1.0)"  # integers divide to a float in torch
        return TEXT[node.op].format(*arguments)

    def load(self, node: Node, layout: Layout) -> str:
        """Return the text that reads a number of a tensor."""
        name, index = node.data
        pointer = f"T[{self.places[name]}]"
        if name in ("rows", "columns"):
            symbol, size = ("r", "n") if name == "rows" else ("c", "m")
            row = layout.symbols[symbol]
            address = f"z * {size} + {row}" if self.widths.get(name) else row
        elif name in self.widths:
            symbol, size = ("r", "n") if "r" in node.symbols else ("c", "m")
            row, width = layout.symbols[symbol], self.widths[name]
            address = f"(z * {size} + {row}) * {width} + {self.offset(index[0], layout)}"
        else:
            first = self.strides[name]
            address = " + ".join(
                f"({self.offset(x, layout)}) * K[{first + i}]" for i, x in enumerate(index)
            )
        read = f"tl.load({pointer} + {address or '0'})"
        return {"f": f"{read}.to(tl.float32)", "i": f"{read}.to(tl.int64)", "b": read}[node.kind]

    def name(self, node: Node, layout: Layout) -> str:
        """Return the name of a node that was computed, or the text of a constant."""
        if node.op == "constant":
            return literal(node)
        if id(node) in layout.names:
            return layout.names[id(node)]
        known = self.top.names[id(node)]
        return f"tl.trans({known})" if layout.turned and node.symbols & {"r", "c"} else known

    def compute(self, nodes: Iterable[Node], layout: Layout, depth: int = 1) -> None:
        """Write the nodes that are open in a layout, and name them."""
        for node in nodes:
            if node.op not in ("constant", "sum") and id(node) not in layout.names:
                text = self.text(node, layout)
                layout.names[id(node)] = name = self.fresh()
                self.write(f"{name} = {text}", depth)

    # Operations outside all sums.

    def closed(self, outputs: Sequence[Node]) -> None:
        """Compute the closed nodes that outputs depend on, sums level by level."""
        order = in_order(outputs)
        levels: dict[int, int] = {}
        for node in order:
            level = max((levels[id(x)] for x in node.args), default=0)
            levels[id(node)] = level + (node.op == "sum")
        for level in range(max(levels.values(), default=0) + 1):
            here = [x for x in order if levels[id(x)] == level]
            sums = [x for x in here if x.op == "sum" and id(x) not in self.top.names]
            rest = []
            for node in sums:
                if not self.product(node):
                    rest.append(node)
            for symbol in dict.fromkeys(x.data[0] for x in rest):
                self.loop(symbol, [x for x in rest if x.data[0] == symbol])
            self.compute([x for x in here if not summed(x.symbols)], self.top)

    def within(self, outputs: Sequence[Node], symbol: str) -> list[Node]:
        """Return the nodes of a sum's body that depend on its index."""
        return [x for x in in_order(outputs) if symbol in x.symbols]

    def loop(self, symbol: str, sums: Sequence[Node]) -> None:
        """Compute sums over one index in one loop."""
        totals = []
        for node in sums:
            totals.append(self.fresh())
            self.write(f"{totals[-1]} = tl.zeros({shape(node)}, tl.float32)")
        layout = Layout({**self.top.symbols, symbol: symbol})
        self.write(f"for {symbol} in range({self.build.extents[symbol]}):")
        self.compute(self.within([x.args[0] for x in sums], symbol), layout, 2)
        for node, total in zip(sums, totals, strict=True):
            self.write(f"{total} += {self.name(node.args[0], layout)}", 2)
            self.top.names[id(node)] = total

    def product(self, node: Node) -> bool:
        """Compute a sum of products of rows' and columns' numbers; return whether it is one."""
        symbol = node.data[0]
        parts = factors(node.args[0])
        # A factor of the whole sum is applied to it: it would round the numbers of the product.
        whole_sum = [x for x in parts if symbol not in x.symbols]
        parts = [x for x in parts if symbol in x.symbols]
        of_rows = [x for x in parts if "c" not in x.symbols]
        of_columns = [x for x in parts if "c" in x.symbols]
        if any("r" in x.symbols for x in of_columns) or not of_columns:
            return False
        if not any("r" in x.symbols for x in of_rows):
            return False
        total = self.fresh()
        self.write(f"{total} = tl.zeros([BR, BC], tl.float32)")
        across, down = self.chunks(symbol)
        one = self.factor(of_rows, Layout({"r": "r", symbol: across}), "[BR, {}]", symbol)
        two = self.factor(of_columns, Layout({"c": "c", symbol: down}), "[{}, BC]", symbol)
        self.write(f"{one} = tl.where({across}_in, {one}, 0.0)", 2)
        self.dot(total, one, two)
        if whole_sum:
            self.write(
                " * ".join([f"{total} = {total}", *(self.name(x, self.top) for x in whole_sum)])
            )
        self.top.names[id(node)] = total
        return True

    def chunks(self, symbol: str) -> tuple[str, str]:
        """Begin a loop over chunks of a summed index; return its names as a row and a column."""
        size, step = self.build.extents[symbol], self.step(symbol)
        base = self.fresh()
        self.write(f"for {base} in range(0, {size}, {step}):")
        for name, axes in ((f"{base}a", "[None, :]"), (f"{base}b", "[:, None]")):
            self.write(f"{name}_raw = ({base} + tl.arange(0, {step})){axes}", 2)
            self.write(f"{name}_in = {name}_raw < {size}", 2)
            self.write(f"{name} = tl.minimum({name}_raw, {size - 1})", 2)
        return f"{base}a", f"{base}b"

    def step(self, symbol: str) -> int:
        """Return how many values of an index a tile holds: a power of two from 16 on."""
        size = self.build.extents[symbol]
        return min(WIDEST, max(16, 1 << (size - 1).bit_length()))

    def factor(self, parts: Sequence[Node], layout: Layout, form: str, symbol: str) -> str:
        """Compute a product of nodes in a layout as a whole tile, and return its name."""
        open_nodes = [x for x in in_order(parts) if symbol in x.symbols]
        self.compute(open_nodes, layout, 2)
        name = self.fresh()
        words = " * ".join(self.name(x, layout) for x in parts) or "1.0"
        zeros = f"tl.zeros({form.format(self.step(symbol))}, tl.float32)"
        self.write(f"{name} = {words} + {zeros}", 2)
        return name

    def dot(self, total: str, one: str, two: str) -> None:
        """Add a matrix product to a total."""
        self.write(
            f"{total} = tl.dot({one}.to(DOT), {two}.to(DOT), {total}, input_precision=IP)", 2
        )

    # Gradients.

    def gradients(self, outputs: Sequence[Gradient], side: str) -> None:
        """Add the contributions of a tile to the buffers of its rows ("r") or columns ("c")."""
        self.closed([x.expression for x in outputs])
        loops: dict[str, list[Gradient]] = {}
        for output in outputs:
            symbols = list(summed(output.expression.symbols | output.slot.symbols))
            if len(symbols) > 1:
                raise UnsupportedScore("a gradient depends on two indices")
            if not symbols:
                self.add(output, self.reduced(output.expression, self.top, side), self.top, side)
                self.write("tl.debug_barrier()")
            elif not self.gathered(output, symbols[0], side):
                loops.setdefault(symbols[0], []).append(output)
        for symbol, several in loops.items():
            layout = Layout({**self.top.symbols, symbol: symbol})
            self.write(f"for {symbol} in range({self.build.extents[symbol]}):")
            self.compute(self.within([x.expression for x in several], symbol), layout, 2)
            for output in several:
                sums = self.reduced(output.expression, layout, side)
                self.add(output, sums, layout, side, 2)
            self.write("tl.debug_barrier()")

    def reduced(self, node: Node, layout: Layout, side: str) -> str:
        """Return the text of a tile's sum over columns (for rows) or over rows."""
        tile = f"({self.name(node, layout)} + tl.zeros([BR, BC], tl.float32))"
        return f"tl.sum({tile}, 1)[:, None]" if side == "r" else f"tl.sum({tile}, 0)[None, :]"

    def add(
        self, output: Gradient, sums: str, layout: Layout, side: str, depth: int = 1, more: str = ""
    ) -> None:
        """Add sums to the buffer of an output."""
        row, size = layout.symbols[side], "n" if side == "r" else "m"
        inside = layout.symbols.get(f"{side}_in", f"{side}_in")
        slot = self.offset(output.slot, layout)
        place = self.fresh()
        self.write(
            f"{place} = G[{output.buffer}] + (z * {size} + {row}) * {output.width} + {slot}", depth
        )
        mask = f"{inside}{more}"
        self.write(
            f"tl.store({place}, tl.load({place}, mask={mask}, other=0.0) + {sums}, mask={mask})",
            depth,
        )

    def gathered(self, output: Gradient, symbol: str, side: str) -> bool:
        """Add a gradient that is a matrix product; return whether it is one."""
        other = "c" if side == "r" else "r"
        parts = factors(output.expression)
        pairs = [x for x in parts if symbol not in x.symbols]
        seen = [x for x in parts if symbol in x.symbols and other in x.symbols]
        own = [x for x in parts if symbol in x.symbols and other not in x.symbols]
        if not seen or any(side in x.symbols for x in seen):
            return False
        pair = self.fresh()
        words = " * ".join(self.name(x, self.top) for x in pairs) or "1.0"
        self.write(f"{pair} = {words} + tl.zeros([BR, BC], tl.float32)")
        if side == "c":
            self.write(f"{pair} = tl.trans({pair})")
        across, _ = self.chunks(symbol)
        turned = {"c": "tl.trans(c)", "c_in": "tl.trans(c_in)", symbol: across}
        straight = {"r": "r", symbol: across}
        own_side, other_side = (straight, turned) if side == "r" else (turned, straight)
        length, many = ("BR", "BC") if side == "r" else ("BC", "BR")
        read = Layout(other_side, turned=other_side is turned)
        two = self.factor(seen, read, f"[{many}, {{}}]", symbol)
        total = self.fresh()
        step = self.step(symbol)
        self.write(f"{total} = tl.zeros([{length}, {step}], tl.float32)", 2)
        self.dot(total, pair, two)
        mine = Layout(own_side, turned=own_side is turned)
        scale = self.factor(own, mine, f"[{length}, {{}}]", symbol)
        self.add(output, f"{total} * {scale}", mine, side, 2, f" & {across}_in")
        self.write("tl.debug_barrier()", 2)
        return True


def literal(node: Node) -> str:
    """Return the text of a constant."""
    value = node.data[0]
    if node.kind != "f":
        return repr(value)
    return repr(float(value)) if isfinite(value) else f"float({str(value)!r})"


def whole(node: Node) -> bool:
    """Return whether all arguments of a node are integers."""
    return all(x.kind != "f" for x in node.args)


def shape(node: Node) -> str:
    """Return the shape of a tile."""
    rows, columns = ("BR" if "r" in node.symbols else "1"), ("BC" if "c" in node.symbols else "1")
    return f"[{rows}, {columns}]"


def factors(node: Node) -> list[Node]:
    """Return the factors of a product."""
    if node.op != "mul":
        return [node]
    return [*factors(node.args[0]), *factors(node.args[1])]
