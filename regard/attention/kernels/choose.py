"""Which path computes a call, and why. A pure function of what the call looks like."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from regard.atomic_io import configuration
from regard.attention.carried import Carried
from regard.attention.kernels.compiled import can_compile
from regard.attention.kernels.strips import Sizes
from regard.attention.mask import Kind
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


class Properties(NamedTuple):
    """What a plan depends on; ``shape`` is that of the scores.

    ``graph``: numbers and sizes are not known yet, as torch.compile does not; ``transformed``: what
    has rules for the exact path alone.
    """

    inner_product: bool
    normalize: str
    shape: tuple[int, ...]
    mask: Kind | None = None
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    dropout: float = 0.0
    finite: bool = True
    numbers_per_pair: int = 1
    hidden: int = 1
    additive: bool = False
    linear: bool = False
    searches: bool = False
    asked: Kernel | None = None
    graph: bool = False
    transformed: str | None = None


def plan(of: Properties) -> Plan:
    """Return the path of a call with these properties. Errors: another path that `use` asks for.

    >>> plan(Properties(inner_product=True, normalize="softmax", shape=(8, 9, 9))).kernel
    'fused'
    >>> plan(Properties(inner_product=False, normalize="softmax", shape=(8, 900, 900))).why
    'the score is no inner product: strips of rows'
    """
    if of.transformed is not None:
        if of.asked not in (None, "exact"):
            raise RegardError(
                f"the {of.asked} kernel has no rules for {of.transformed}; compute inside `with "
                "regard.use('exact'):`, or ask for no kernel"
            )
        return Plan("exact", f"{of.transformed} has no rules for other kernels", 0.0, False, SIZES)
    if of.graph:
        products = of.inner_product and of.normalize == "softmax" and not of.dropout
        return plan_of_graph(products, of.asked)
    known, (n, m), additive = constants(), of.shape[-2:], of.additive
    pairs, size = int(torch.Size(of.shape[:-2]).numel()) * n * m, of.dtype.itemsize / 1e6
    # What stands beside a strip takes room too: a graph of its own, tables of a search, a compiled
    # kernel's sums.
    share = 4 if additive else 2 if of.searches or not of.linear else 1
    sizes = Sizes(known.strip_numbers // share, least=ADDITIVE_ROWS if additive else 1)
    each = of.hidden if additive else of.numbers_per_pair
    work = pairs * max(each, SEARCH if of.searches else 1)
    worth = additive or of.searches or of.numbers_per_pair > 1
    compiled = worth and 0 < known.compile_hidden <= work and can_compile()
    kernel, why = path(of, pairs, known)
    per_pair, memory = max(of.numbers_per_pair, each if additive else 1), 0.0
    if kernel == "tiled":
        heads = of.shape[-3] if len(of.shape) > 2 else 1
        strip = min(pairs, max(sizes.numbers, sizes.least * heads * m))
        memory = strip * 4 * size + min(pairs * per_pair, sizes.numbers) * 3 * size
        memory += 2 * heads * m * of.hidden * size if additive else 0.0  # exponentials of the keys
    elif kernel != "fused":
        memory = pairs * size * (2 + per_pair)
    elif of.mask == "pairs":
        memory = 2 * n * m * size
    return Plan(kernel, why, memory, compiled, sizes)


def path(of: Properties, pairs: int, known: Constants) -> tuple[Kernel, str]:
    """Return the kernel of an eager call with so many pairs over its batch, and the reason."""
    n, m = of.shape[-2:]
    if not n or not m:
        return "exact", EMPTY
    if of.asked == "exact":
        return "exact", "use() asks for it"
    tiles = None
    if not of.inner_product:
        tiles = "the score is no inner product"
    elif of.normalize != "softmax":
        tiles = f"torch's kernels know softmax alone, not {of.normalize}"
    elif not of.finite:
        tiles = "inputs hold NaN or infinity, which torch's kernels spread"
    elif of.dropout:
        tiles = "torch's kernels drop no weights in O(n) memory"
    if of.asked is not None and (of.asked == "tiled" or not tiles):
        return of.asked, "use() asks for it"
    if tiles and pairs <= known.exact_pairs and of.asked is None:
        return "exact", f"{tiles}, and the whole table is no larger than a strip"
    if tiles:
        return "tiled", f"{tiles}: strips of rows"
    if of.dtype == torch.bfloat16 and of.device == "cpu" and m <= known.plain_bfloat16_keys:
        return "plain", f"bfloat16 and at most {known.plain_bfloat16_keys} keys"
    if of.mask == "pairs" and n * m > known.fused_pairs:
        return "tiled", "torch's kernel would hold the mask whole: strips of rows"
    return "fused", "an inner product with softmax: torch's kernel, O(n) memory"


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
