"""The functions of one score and mask: traced, differentiated, written and imported once."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels.triton.emit import HEAD, PARAMETERS, Gradient, Writer
from regard.attention.kernels.triton.expression import (
    MOST_NODES,
    Affine,
    Builder,
    Node,
    UnsupportedScore,
    adjoints,
    in_order,
    summed,
)
from regard.attention.kernels.triton.trace import Lowering
from regard.attention.kernels.triton.values import FLOATS, ZERO, Value, kind_of
from regard.attention.mask import WHOLE
from regard.attention.prepared import Prepared, alone, as_tuple, repeat_all_kv
from regard.attention.twin import twin

TILE = "tl.zeros([BR, BC], tl.float32)"


@dataclass(frozen=True)
class Program:
    """The written functions of a score and a mask.

    ``captured`` are the tensors that they read besides prepared tensors, positions and parameters.
    ``rows`` and ``columns`` are the buffers of gradients of the two sides.
    """

    module: ModuleType
    text: str
    captured: Sequence[Tensor]
    rows: Sequence["Buffer"]
    columns: Sequence["Buffer"]


class Buffer(NamedTuple):
    """A buffer of gradients, (Z, rows, width), of the tensor at a place of `Sides.tensors`.

    For a parameter each row holds the contributions of a query, and ``axes`` are the batch axes by
    which it is indexed; for other tensors None.
    """

    place: int
    width: int
    axes: tuple[int, ...] | None

    def gradient(self, numbers: Tensor, tensor: Tensor, batch: Sequence[int]) -> Tensor:
        """Return the gradient of the tensor."""
        if self.axes is None:
            return numbers.view(tensor.shape).to(tensor.dtype)
        total = numbers.sum(1).view(*batch, self.width)
        if others := [axis for axis in range(len(batch)) if axis not in self.axes]:
            total = total.sum(others)
        return total.reshape(tensor.shape).to(tensor.dtype)


@dataclass(frozen=True)
class Sides:
    """The tensors of a call over its whole batch; ``z`` of the kernels counts its entries."""

    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    positions: tuple[Tensor, Tensor]
    parameters: tuple[Tensor, ...]

    @classmethod
    def of(cls, call: Call) -> "Sides":
        """Return the tensors of a call, expanded to its batch."""
        batch = call.context.shape[:-2]

        def expanded(prepared: Prepared) -> tuple[Tensor, ...]:
            return tuple(x.expand(*batch, *x.shape[-2:]) for x in as_tuple(prepared))

        rows, columns = (
            x if x.ndim == 1 else x.expand(*batch, x.shape[-1]) for x in call.context.positions
        )
        keys = repeat_all_kv(call.keys, call.context.heads)
        parameters = tuple(call.score.parameters())
        return cls(expanded(call.queries), expanded(keys), (rows, columns), parameters)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return those that may have gradients, in the order of `Program`'s places."""
        return (*self.queries, *self.keys, *self.parameters)

    @property
    def names(self) -> list[str]:
        """Return the names of `tensors` in expressions."""
        return [
            *(f"query{i}" for i in range(len(self.queries))),
            *(f"key{i}" for i in range(len(self.keys))),
            *(f"parameter{i}" for i in range(len(self.parameters))),
        ]


def program_of(call: Call, sides: Sides, wanted: Sequence[bool]) -> Program:
    """Return the functions of a call; ``wanted``: which of its tensors need a gradient.

    Raise an UnsupportedScore with the reason if there are none.
    """
    if any(x.is_floating_point() and x.dtype not in FLOATS for x in sides.tensors):
        raise UnsupportedScore("it is computed in float64")
    *batch, n, m = call.context.shape
    symbols = [f"b{i}" for i in range(len(batch))]
    build = Builder(dict(zip([*symbols, "r", "c"], [*batch, n, m], strict=True)))
    lower = Lowering(build, [])
    score = expression(lower, symbols, *traced_score(lower, call, sides, symbols))
    if score.kind != "f":
        score = build.node("cast", (score,), kind="f")
    allowed = None
    if call.context.mask is not None:
        allowed = expression(lower, symbols, *traced_mask(lower, call, symbols))
    size = len(in_order([score] + ([] if allowed is None else [allowed])))
    if size > MOST_NODES:
        raise UnsupportedScore(f"it has {size:,} operations, more than {MOST_NODES:,}")
    return written(lower, sides, symbols, score, allowed, wanted)


def expression(
    lower: Lowering,
    symbols: Sequence[str],
    function: Callable[..., Tensor],
    values: Sequence[Value],
    tensors: Sequence[Tensor],
) -> Node:
    """Return the node of a pair."""
    extents = lower.build.extents
    index = tuple(Affine.of(s) if extents[s] > 1 else ZERO for s in [*symbols, "r", "c"])
    return lower.output(function, values, tensors).at(index)


Traced = tuple[Callable[..., Tensor], Sequence[Value], Sequence[Tensor]]


def traced_score(lower: Lowering, call: Call, sides: Sides, symbols: Sequence[str]) -> Traced:
    """Return `compare` as a function of tensors, with their values."""
    score, shape = call.score, call.context.shape
    one, two = len(sides.queries), len(sides.keys)

    def scores(*tensors: Tensor) -> Tensor:
        queries, keys = tensors[:one], tensors[one : one + two]
        rows, columns, *parameters = tensors[one + two :]
        made = twin(score, parameters) if parameters else score
        compared = made.acceleration.traced_compare(
            made,
            queries if isinstance(call.queries, tuple) else alone(queries),
            keys if isinstance(call.keys, tuple) else alone(keys),
            (rows, columns),
        )
        return compared.expand(shape)

    values = []
    for name, x in zip(sides.names, sides.tensors, strict=True):
        shape_of, kind = tuple(x.shape), kind_of(x.dtype)
        if name.startswith("parameter"):
            values.append(lower.loaded(name, shape_of, kind))
        else:
            row = "r" if name.startswith("query") else "c"
            values.append(lower.side(name, row, symbols, shape_of, kind))
    places = positions(lower, sides.positions, symbols)
    return (
        scores,
        [*values[: one + two], *places, *values[one + two :]],
        [*sides.queries, *sides.keys, *sides.positions, *sides.parameters],
    )


def traced_mask(lower: Lowering, call: Call, symbols: Sequence[str]) -> Traced:
    """Return the mask as a function of positions, with their values."""
    context = call.context

    def allowed(rows: Tensor, columns: Tensor) -> Tensor:
        mine = replace(context, rows=rows, columns=columns, kept={})
        return mine.allows(WHOLE).expand(context.shape)

    places = (context.rows, context.columns)
    lead = symbols[:-1] if context.heads else symbols
    return allowed, positions(lower, places, lead), places


def positions(
    lower: Lowering, places: tuple[Tensor, Tensor], symbols: Sequence[str]
) -> list[Value]:
    """Return the values of the positions of queries and keys."""
    values = []
    for name, row, x in zip(("rows", "columns"), "rc", places, strict=True):
        lead = symbols[len(symbols) - x.ndim + 1 :]
        values.append(lower.side(name, row, lead, tuple(x.shape), "i"))
    return values


def written(
    lower: Lowering,
    sides: Sides,
    symbols: Sequence[str],
    score: Node,
    allowed: Node | None,
    wanted: Sequence[bool],
) -> Program:
    """Return the functions of expressions, written to a file and imported."""
    build, batch = lower.build, [lower.build.extents[s] for s in symbols]
    names = [*sides.names, "rows", "columns", *(f"captured{i}" for i in range(len(lower.captured)))]
    places = {name: i for i, name in enumerate(names)}
    widths = {
        name: x.shape[-1]
        for name, x in zip(sides.names, sides.tensors, strict=True)
        if not name.startswith("parameter")
    }
    for name, x in zip(("rows", "columns"), sides.positions, strict=True):
        widths[name] = int(x.ndim > 1)
    first = len(batch)  # K begins with the sizes of the batch
    strides = {}
    for name, x in [
        *((n, x) for n, x in zip(sides.names, sides.tensors, strict=True) if n not in widths),
        *((f"captured{i}", x) for i, x in enumerate(lower.captured)),
    ]:
        strides[name] = first
        first += x.ndim
    in_z = {}
    for i, symbol in enumerate(symbols):
        after = " * ".join(f"K[{j}]" for j in range(i + 1, len(batch))) or "1"
        in_z[symbol] = f"((z // ({after})) % K[{i}])"

    def writer() -> Writer:
        return Writer(build, places, widths, strides, in_z)

    def returning(name: str, node: Node, form: str) -> list[str]:
        text = writer()
        text.closed([node])
        text.write("return " + form.format(text.name(node, text.top)))
        return [f"@triton.jit\ndef {name}({PARAMETERS}):", *text.lines, "", ""]

    lines = returning("scores", score, f"{{}} + {TILE}")
    if allowed is not None:
        lines += returning("allowed", allowed, f"{{}} & ({TILE} == 0.0)")
    upstream = build.node("upstream", (), (), "f", {"z", "r", "c"})
    needed = {name for name, is_wanted in zip(sides.names, wanted, strict=True) if is_wanted}
    slopes = {}
    if needed:
        slopes = dict(adjoints(build, score, upstream, lambda load: load.data[0] in needed))
    buffers: dict[str, list[Buffer]] = {"r": [], "c": []}
    outputs: dict[str, list[Gradient]] = {"r": [], "c": []}
    for load, slope in slopes.items():
        name, side = load.data[0], "c" if load.data[0].startswith("key") else "r"
        place = sides.names.index(name)
        buffer, slot = slot_of(place, load, sides.tensors[place], symbols)
        if buffer not in buffers[side]:
            buffers[side].append(buffer)
        number = buffers[side].index(buffer)
        outputs[side].append(Gradient(number, buffer.width, slot, slope))
    for side, function in (("r", "to_rows"), ("c", "to_columns")):
        text = writer()
        text.top.names[id(upstream)] = "g"
        text.gradients(outputs[side], side)
        lines += [f"@triton.jit\ndef {function}(g, G, r_in, c_in, {PARAMETERS}):"]
        lines += [*text.lines, "    pass", "", ""]
    source = HEAD + "\n".join(lines)
    module = imported(source)
    return Program(module, source, lower.captured, buffers["r"], buffers["c"])


def slot_of(
    place: int, load: Node, tensor: Tensor, symbols: Sequence[str]
) -> tuple[Buffer, Affine]:
    """Return the buffer of a tensor's gradient, and the place of a load in its rows."""
    index: tuple[Affine, ...] = load.data[-1]
    if not load.data[0].startswith("parameter"):
        return Buffer(place, tensor.shape[-1], None), index[0]
    by_batch = [Affine.of(symbol) for symbol in symbols]
    used: list[int] = []
    slot, width = ZERO, 1
    for at, size in reversed(list(zip(index, tensor.shape, strict=True))):
        if at in by_batch:
            used.insert(0, by_batch.index(at))
        elif used or at.symbols != summed(at.symbols):
            raise UnsupportedScore("a parameter with a gradient is read by position")
        else:
            slot, width = slot.plus(at.times(width)), width * size
    if used != sorted(used):
        raise UnsupportedScore("a parameter with a gradient is read by batch axes out of order")
    return Buffer(place, width, tuple(used)), slot


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for the written files that only this user can read, until the process ends.

    Triton reads a function's source from its file. A file of another process is never imported.
    """
    return tempfile.TemporaryDirectory(prefix="regard-triton-")


@cache
def imported(text: str) -> ModuleType:
    """Return the module of a text that `emit` wrote."""
    name = f"regard_triton_{sha256(text.encode()).hexdigest()[:24]}"
    path = Path(folder().name) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return loaded(name, path)


@cache
def templates() -> ModuleType:
    """Return the module ``kernels.py``, past import hooks, which decorate its functions.

    Triton's interpreter cannot call decorated functions.
    """
    return loaded("regard_triton_kernels", Path(__file__).with_name("kernels.py"))


def loaded(name: str, path: Path) -> ModuleType:
    """Return a file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
