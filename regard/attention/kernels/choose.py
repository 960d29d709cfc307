"""Which path computes a call, and why. A pure function of what the call looks like."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import torch

from regard.attention.carried import Carried
from regard.attention.kernels.compiled import can_compile
from regard.attention.kernels.strips import Sizes
from regard.attention.mask import Kind
from regard.durable import configuration
from regard.errors import RegardError
from regard.reading import read_json

Kernel = Literal["exact", "plain", "fused", "tiled"]

EMPTY = "there is nothing to compare"


@dataclass(frozen=True)
class Constants:
    """What the plan depends on beside the call, measured on a machine of two cores.

    ``regard bench attention --calibrate`` measures them anew; a run keeps those that it began with.
    """

    #: Up to this many keys, plain matrix products beat torch's fused kernel in bfloat16 on a CPU
    #: with AMX (1.55 times over a training step). In float32 and float64 the fused kernel wins at
    #: every length, masks included: 1.1 times at 64 keys, 1.5 at 256, 1.8 at 512, with backward.
    plain_bfloat16_keys: int = 512
    #: Up to so many pairs (over the batch) the whole table is no larger than a strip.
    exact_pairs: int = 2**14
    #: Up to so many queries × keys torch's fused kernel gets a mask of pairs whole.
    fused_pairs: int = 2**20
    #: Numbers in a strip of scores: 4 MB of float32, rows enough for efficient matrix products.
    strip_numbers: int = 2**20
    #: From so many pairs × numbers a pair (hidden units, columns, steps of a search) a call is
    #: worth compiling for; 0: never.
    compile_hidden: int = 2**27


SHIPPED = Constants()
SIZES = Sizes()
#: What a normaliser that searches its rows costs a pair, in numbers.
SEARCH = 32
#: Rows of a strip of additive scores, at least: the exponentials of its keys are made for each
#: strip, and with few rows cost more than these.
ADDITIVE_ROWS = 32

_asked: Carried[Kernel] = Carried("kernel")
_constants: Carried[Constants] = Carried("constants")


@dataclass(frozen=True)
class Plan:
    """A path, the reason for it, and the memory that it takes beside inputs and gradients."""

    kernel: Kernel
    why: str
    megabytes: float = 0.0
    compiled: bool = False
    sizes: Sizes = SIZES

    def __str__(self) -> str:
        how = ", compiled" if self.compiled else ""
        return f"{self.kernel}{how}: {self.why}; about {self.megabytes:,.0f} MB beside the inputs"


def plan(
    *,
    inner_product: bool,
    normalize: str,
    shape: tuple[int, ...],
    mask: Kind | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    dropout: float = 0.0,
    finite: bool = True,
    numbers_per_pair: int = 1,
    hidden: int = 1,
    additive: bool = False,
    linear: bool = False,
    searches: bool = False,
    asked: Kernel | None = None,
    graph: bool = False,
    transformed: str | None = None,
) -> Plan:
    """The path of a call with these properties; ``shape`` is that of the scores.

    ``graph``: numbers and sizes are not known yet, as torch.compile does not; ``transformed``: what
    has rules for the exact path alone. Errors: another path that `use` asks for.

    >>> plan(inner_product=True, normalize="softmax", shape=(8, 9, 9)).kernel
    'fused'
    >>> plan(inner_product=False, normalize="softmax", shape=(8, 900, 900)).why
    'the score is no inner product: strips of rows'
    """
    if transformed is not None:
        if asked not in (None, "exact"):
            raise RegardError(
                f"the {asked} kernel has no rules for {transformed}; compute inside `with "
                "regard.use('exact'):`, or ask for no kernel"
            )
        return Plan("exact", f"{transformed} has no rules for other kernels", 0.0, False, SIZES)
    if graph:
        return plan_of_graph(inner_product and normalize == "softmax" and not dropout, asked)
    known, (n, m) = constants(), shape[-2:]
    slices = int(torch.Size(shape[:-2]).numel())
    pairs, size = slices * n * m, dtype.itemsize / 1e6
    per_pair = max(numbers_per_pair, hidden if additive else 1)
    # What stands beside a strip takes room too: a graph of its own, tables of a search, a compiled
    # kernel's sums.
    share = 4 if additive else 2 if searches or not linear else 1
    sizes = Sizes(known.strip_numbers // share, least=ADDITIVE_ROWS if additive else 1)
    work = pairs * max(hidden if additive else numbers_per_pair, SEARCH if searches else 1)
    worth = additive or searches or numbers_per_pair > 1
    compiled = worth and 0 < known.compile_hidden <= work and can_compile()
    heads = shape[-3] if len(shape) > 2 else 1
    room = max(sizes.numbers, sizes.least * heads * m)
    strip = min(pairs, room) * 4 * size + min(pairs * per_pair, sizes.numbers) * 3 * size
    strip += 2 * heads * m * hidden * size if additive else 0.0  # the exponentials of the keys

    def made(kernel: Kernel, why: str) -> Plan:
        if kernel == "tiled":
            memory = strip
        elif kernel == "fused":
            memory = 2 * n * m * size if mask == "pairs" else 0.0
        else:
            memory = pairs * size * (2 + per_pair)
        return Plan(kernel, why, memory, compiled, sizes)

    if not n or not m:
        return made("exact", EMPTY)
    if asked == "exact":
        return made("exact", "use() asks for it")
    tiles = None
    if not inner_product:
        tiles = "the score is no inner product"
    elif normalize != "softmax":
        tiles = f"torch's kernels know softmax alone, not {normalize}"
    elif not finite:
        tiles = "inputs hold NaN or infinity, which torch's kernels spread"
    elif dropout:
        tiles = "torch's kernels drop no weights in O(n) memory"
    if asked is not None and (asked == "tiled" or not tiles):
        return made(asked, "use() asks for it")
    if tiles and pairs <= known.exact_pairs and asked is None:
        return made("exact", f"{tiles}, and the whole table is no larger than a strip")
    if tiles:
        return made("tiled", f"{tiles}: strips of rows")
    if dtype == torch.bfloat16 and device == "cpu" and m <= known.plain_bfloat16_keys:
        return made("plain", f"bfloat16 and at most {known.plain_bfloat16_keys} keys")
    if mask == "pairs" and n * m > known.fused_pairs:
        return made("tiled", "torch's kernel would hold the mask whole: strips of rows")
    return made("fused", "an inner product with softmax: torch's kernel, O(n) memory")


def plan_of_graph(products: bool, asked: Kernel | None) -> Plan:
    """The path of a call that becomes part of a graph: torch's kernel, or the literal table.

    By what the score is and no size, so that one graph serves all sizes. Strips are cut by what a
    mask answers, which a graph does not know.
    """
    if not products:
        why = "a graph is made of what torch's kernels do not serve"
        return Plan("exact", why, 0.0, False, SIZES)
    if asked in ("exact", "plain"):
        return Plan(asked, "use() asks for it", 0.0, False, SIZES)
    return Plan("fused", "a graph is made of an inner product with softmax", 0.0, False, SIZES)


class KernelNotTaken(UserWarning):
    """A path that :func:`use` asks for cannot serve a call."""


def tell_if_not_taken(plan: Plan) -> None:
    """Warn of a call that goes another way than :func:`use` asks; none of an empty one."""
    if asked() not in (None, plan.kernel) and plan.why != EMPTY:
        warnings.warn(f"use({asked()!r}) was not taken: {plan}", KernelNotTaken, stacklevel=4)


def asked() -> Kernel | None:
    """The path that :func:`use` asks for."""
    return _asked.get()


@contextmanager
def use(kernel: Kernel | str) -> Iterator[None]:
    """Compute by this path inside the block: for tests, and for finding faults.

    A call that "plain" and "fused" cannot serve (a score that is no inner product, another
    normaliser than softmax, inputs that are not finite, dropout) goes by tiles all the same, and
    a :class:`KernelNotTaken` says so.
    """
    if kernel not in get_args(Kernel):
        raise RegardError(
            f"no kernel is called {kernel!r}. There are: {', '.join(get_args(Kernel))}"
        )
    with _asked.set(kernel):  # type: ignore[arg-type]
        yield


def constants() -> Constants:
    """Those that `using` gives, else those calibrated on this machine, else those shipped."""
    return _constants.get() or load_constants()


def constants_file() -> Path:
    """Where `regard bench attention --calibrate` writes: ``kernels.json`` of `configuration`."""
    return configuration() / "kernels.json"


@cache
def load_constants() -> Constants:
    """What stands in that file, or what is shipped. Errors: a file that is not one of these."""
    path = constants_file()
    if not path.exists():
        return SHIPPED
    try:
        written = read_json(path)
    except RegardError as error:
        raise RegardError(f"{error}; delete it or calibrate anew") from None
    return constants_from(written, str(path))


def constants_from(written: object, source: str) -> Constants:
    """Constants from JSON, those shipped where one is missing. Errors: unknown names, no counts."""
    known = {entry.name for entry in fields(Constants)}
    if not isinstance(written, dict) or not written.keys() <= known:
        raise RegardError(f"{source} holds no constants of kernels; these are {', '.join(known)}")
    if any(type(value) is not int or value < 0 for value in written.values()):
        raise RegardError(f"{source}: constants of kernels are whole numbers of 0 or more")
    return replace(SHIPPED, **written)


@contextmanager
def using(constants: Constants) -> Iterator[None]:
    """Plan by these constants inside the block."""
    with _constants.set(constants):
        yield
