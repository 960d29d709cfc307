"""Choose the kernel of a call, as a pure function of the call's properties."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from regard.attention.carried import Carried
from regard.attention.kernels.compiled import can_compile
from regard.attention.kernels.strips import Sizes
from regard.attention.mask import Kind
from regard.core.atomic_io import configuration
from regard.core.errors import RegardError
from regard.core.reading import read_json

Kernel = Literal["exact", "plain", "fused", "tiled", "triton"]

EMPTY = "there is nothing to compare"


@dataclass(frozen=True)
class Constants:
    """Machine-dependent constants of the plan, measured on a machine with two cores.

    Those that begin with ``gpu`` are for CUDA and were measured on an H200, where larger ones won
    too: they bound the memory, and beyond ``gpu_exact_pairs`` Triton serves. ``regard bench
    attention --calibrate`` measures them again, those of a GPU with ``--device cuda``; a run keeps
    those it started with.
    """

    #: Maximum keys for which plain matrix products beat torch's fused kernel in bfloat16 on a CPU
    #: with AMX (1.55 times over a training step). In float32 and float64 the fused kernel wins at
    #: every length, masks included: 1.1 times at 64 keys, 1.5 at 256, 1.8 at 512, with backward.
    plain_bfloat16_keys: int = 512
    #: Maximum pairs (over the batch) for which the whole table is no larger than a strip.
    exact_pairs: int = 2**14
    #: Maximum queries × keys for which torch's fused kernel gets a mask of pairs as a table. Beyond
    #: it gets strips of rows, each without the keys that the mask hides from it.
    fused_pairs: int = 2**16
    #: Numbers in a strip of scores: 8 MB of float32, enough rows for efficient matrix products.
    strip_numbers: int = 2**21
    #: Minimum rows of a strip: what each strip computes from its keys and reads from tables
    #: dominates if there are few.
    strip_rows: int = 128
    #: Minimum pairs × numbers per pair (hidden units, columns, steps of a search) for which
    #: compiling pays; 0 = never compile.
    compile_hidden: int = 2**27
    #: The same for the kernels in C++ on a CPU, which compile in a second, once on a machine. A
    #: pass over memory that one in C++ replaces counts as a number per pair.
    native_hidden: int = 2**22
    #: Maximum pairs over the batch for which torch's fused kernel gets the bias of a score as a
    #: whole table: never, since strips are faster on a CPU.
    bias_pairs: int = 0
    #: The same four on a GPU, where a strip of 8 MB would be too little work for a launch.
    gpu_exact_pairs: int = 2**20
    gpu_fused_pairs: int = 2**26
    gpu_strip_numbers: int = 2**26
    gpu_bias_pairs: int = 2**27

    def on(self, device: str) -> "Constants":
        """Return the constants that apply to a type of device.

        >>> Constants(gpu_exact_pairs=7).on("cuda").exact_pairs, Constants().on("cpu").exact_pairs
        (7, 16384)
        """
        if device != "cuda":
            return self
        return replace(
            self,
            exact_pairs=self.gpu_exact_pairs,
            fused_pairs=self.gpu_fused_pairs,
            strip_numbers=self.gpu_strip_numbers,
            bias_pairs=self.gpu_bias_pairs,
        )


SHIPPED = Constants()
SIZES = Sizes()
#: Cost per pair of a normaliser that searches its rows, in numbers.
SEARCH = 32
#: Passes over memory that one in C++ replaces: its work per number.
PASSES = 8

#: Normalisers with another term in the sum of softmax, that of their `sink_score`.
SINKS = ("softmax-plus-one", "sink")

_asked: Carried[Kernel] = Carried("kernel")
_constants: Carried[Constants] = Carried("constants")


@dataclass(frozen=True)
class Plan:
    """The kernel of a call, the reason, and its memory in addition to inputs and gradients."""

    kernel: Kernel
    why: str
    megabytes: float = 0.0
    compiled: bool = False
    sizes: Sizes = SIZES
    by_strips: bool = False  # torch's kernel gets one strip of rows after another

    def __repr__(self) -> str:
        how = ", compiled" if self.compiled else ""
        return f"{self.kernel}{how}: {self.why}; about {self.megabytes:,.0f} MB besides the inputs"


class Properties(NamedTuple):
    """The properties of a call that a plan depends on; ``shape`` is that of the scores.

    ``graph``: numbers and sizes are unknown, as under torch.compile. ``transformed``: the active
    transform that supports only the exact kernel, or None. ``asked``: the kernel that `use` sets.
    ``triton``: why the call has no Triton tile, "" if it has one, None where Triton does not run.
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
    decays: bool = False
    searches: bool = False
    asked: Kernel | None = None
    graph: bool = False
    transformed: str | None = None
    triton: str | None = None


def plan(of: Properties) -> Plan:
    """Return the plan of a call with these properties.

    Raise a RegardError if `use` requests a kernel that the active transform does not support.

    >>> plan(Properties(inner_product=True, normalize="softmax", shape=(8, 9, 9))).kernel
    'fused'
    >>> plan(Properties(inner_product=False, normalize="softmax", shape=(8, 900, 900))).why
    'the score is not an inner product: strips of rows'
    """
    if of.transformed is not None:
        if of.asked not in (None, "exact"):
            raise RegardError(
                f"the {of.asked} kernel does not support {of.transformed}; compute inside `with "
                "regard.use('exact'):`, or omit use()"
            )
        return Plan("exact", f"{of.transformed} supports no other kernel", 0.0, False, SIZES)
    if of.graph:
        products = of.inner_product and of.normalize == "softmax" and not of.dropout
        return plan_of_graph(products, of.asked)
    known, (n, m), additive = constants().on(of.device), of.shape[-2:], of.additive
    pairs, size = int(torch.Size(of.shape[:-2]).numel()) * n * m, of.dtype.itemsize / 1e6
    # A strip needs additional memory: for its graph, tables of a search, sums of a compiled kernel.
    share = 1 if additive else 2 if of.searches or not of.linear else 1
    sizes = Sizes(known.strip_numbers // share, least=known.strip_rows)
    each = of.hidden if additive else of.numbers_per_pair
    native, biased = of.device == "cpu" and of.numbers_per_pair == 1, not of.inner_product
    distances = native and biased and of.linear and of.dtype in (torch.float32, torch.float64)
    work = pairs * max(each, SEARCH if of.searches else PASSES if distances else 1)
    worthwhile = additive or of.searches or of.numbers_per_pair > 1 or distances
    least = known.native_hidden if native else known.compile_hidden
    compiled = worthwhile and 0 < least <= work and can_compile(of.device)
    kernel, why = path(of, pairs, known)
    strips = kernel == "fused" and needs_strips(of, known)
    per_pair, memory = max(of.numbers_per_pair, each if additive else 1), 0.0
    if kernel == "tiled":
        heads = of.shape[-3] if len(of.shape) > 2 else 1
        strip = min(pairs, max(sizes.numbers, sizes.least * heads * m))
        memory = strip * 4 * size + min(pairs * per_pair, sizes.numbers) * 3 * size
        memory += 2 * heads * m * of.hidden * size if additive else 0.0  # exponentials of the keys
    elif kernel == "triton":  # gradients of both sides in float32
        memory = pairs // (n * m) * (n + m) * of.hidden * 4e-6
    elif kernel != "fused":
        memory = pairs * size * (2 + per_pair)
    elif strips:
        memory = min(pairs, sizes.numbers) * 3 * size if biased or of.mask == "pairs" else 0.0
    elif biased:
        memory = 2 * pairs * size
    elif of.mask == "pairs":
        memory = 2 * n * m * size
    return Plan(kernel, why, memory, compiled, sizes, strips)


def needs_strips(of: Properties, known: Constants) -> bool:
    """Return whether torch's fused kernel computes such a call by strips of rows."""
    on_gpu = of.device == "cuda"
    if not (of.device == "cpu" or on_gpu) or of.asked == "plain":
        return False
    if of.inner_product and of.normalize == "softmax":
        n, m = of.shape[-2:]
        pairs = of.mask == "pairs" and n * m > known.fused_pairs
        return not on_gpu and (of.decays or pairs)
    softmax = of.normalize == "softmax"
    if not (softmax or of.normalize in SINKS) or not (of.inner_product or of.linear):
        return False
    if on_gpu:  # a softmax with a small bias gets it as one table
        return not softmax or torch.Size(of.shape).numel() > known.bias_pairs
    # In half precision the kernel would round the bias, and the sum that a sink is added to.
    return of.dtype in (torch.float32, torch.float64)


def path(of: Properties, pairs: int, known: Constants) -> tuple[Kernel, str]:
    """Return the kernel of an eager call with this many pairs over its batch, and the reason."""
    n, m = of.shape[-2:]
    if not n or not m:
        return "exact", EMPTY
    if of.asked == "exact":
        return "exact", "requested by use()"
    tiles = None
    with_bias = of.linear and pairs <= known.bias_pairs and of.asked != "plain"
    strips = needs_strips(of, known)
    if not (of.inner_product or with_bias or strips):
        tiles = "the score is not an inner product"
    elif of.normalize != "softmax" and not strips:
        tiles = f"torch's kernels support only softmax, not {of.normalize}"
    elif not of.finite:
        tiles = "inputs contain NaN or infinity, which torch's kernels spread to other queries"
    elif of.dropout:
        tiles = "torch's kernels have no dropout in O(n) memory"
    elif of.dtype == torch.float64 and of.device == "cuda":
        tiles = "torch's kernels have no float64 in O(n) memory on a GPU"
    if of.asked == "tiled" or (of.asked == "triton" and of.triton == ""):
        return of.asked, "requested by use()"
    if of.asked not in (None, "triton") and not tiles:
        return of.asked, "requested by use()"
    other = not of.inner_product or of.normalize != "softmax"
    small = pairs <= known.exact_pairs and not with_bias and of.asked is None
    if strips and other and not tiles and small:
        return "exact", "the whole table is no larger than a strip"
    if not tiles and other:
        what = "a bias" if not of.inner_product else "a sink"
        where = "in strips of rows" if strips else "the bias as its mask"
        return "fused", f"an inner product with {what}: torch's kernel, {where}"
    if tiles and pairs <= known.exact_pairs and of.asked is None:
        return "exact", f"{tiles}, and the whole table is no larger than a strip"
    if tiles:
        return tiled_or_triton(of, tiles)
    if of.dtype == torch.bfloat16 and of.device == "cpu" and m <= known.plain_bfloat16_keys:
        return "plain", f"bfloat16 and at most {known.plain_bfloat16_keys} keys"
    if strips:
        return "fused", "an inner product with softmax: torch's kernel in strips of rows"
    if of.mask == "pairs" and n * m > known.fused_pairs:
        return tiled_or_triton(of, "torch's kernel would need the whole mask in memory")
    return "fused", "an inner product with softmax: torch's kernel, O(n) memory"


def tiled_or_triton(of: Properties, why: str) -> tuple[Kernel, str]:
    """Return Triton's tiles if the call has them, else strips, with the reason."""
    if of.triton == "" and of.asked is None:
        return "triton", f"{why}: tiles written in Triton"
    reason = f"; no Triton tile: {of.triton}" if of.triton else ""
    return "tiled", f"{why}: strips of rows{reason}"


def plan_of_graph(products: bool, asked: Kernel | None) -> Plan:
    """Return the plan of a call inside a graph: torch's kernel, or the exact one.

    It depends on the kind of score and on no size, so that one graph serves all sizes. Strips
    depend on the mask's answers, which are unknown in a graph.
    """
    if not products:
        why = "inside a graph, and torch's kernels do not support the call"
        return Plan("exact", why, 0.0, False, SIZES)
    if asked in ("exact", "plain"):
        return Plan(asked, "requested by use()", 0.0, False, SIZES)
    return Plan("fused", "a graph is made of an inner product with softmax", 0.0, False, SIZES)


class KernelNotTaken(UserWarning):
    """A warning that a kernel requested by :func:`use` does not support a call."""


def warn_if_not_taken(plan: Plan) -> None:
    """Warn if a call uses another kernel than :func:`use` requests, unless it is empty."""
    if asked() not in (None, plan.kernel) and plan.why != EMPTY:
        warnings.warn(
            f"use({asked()!r}) does not apply to this call; computed by {plan}",
            KernelNotTaken,
            stacklevel=4,
        )


def asked() -> Kernel | None:
    """Return the kernel that :func:`use` requests, or None."""
    return _asked.get()


@contextmanager
def use(kernel: Kernel | str) -> Iterator[None]:
    """Compute attention by this kernel inside the block, for tests and debugging.

    "plain" and "fused" support only inner products with softmax, finite inputs and no dropout;
    another call is computed by "tiled" with a :class:`KernelNotTaken` warning. Raise a RegardError
    for an unknown kernel.
    """
    if kernel not in get_args(Kernel):
        raise RegardError(
            f"no kernel is called {kernel!r}; choose one of {', '.join(get_args(Kernel))}"
        )
    with _asked.set(kernel):  # type: ignore[arg-type]
        yield


def constants() -> Constants:
    """Return the constants of `using`, else those calibrated on this machine, else the shipped."""
    return _constants.get() or load_constants()


def constants_file() -> Path:
    """Return the file that `regard bench attention --calibrate` writes, ``kernels.json``."""
    return configuration() / "kernels.json"


@cache
def load_constants() -> Constants:
    """Return the constants of that file, or the shipped ones if there is none.

    Raise a RegardError for an invalid file.
    """
    path = constants_file()
    if not path.exists():
        return SHIPPED
    try:
        written = read_json(path)
    except RegardError as error:
        raise RegardError(f"{error}; delete it or calibrate again") from None
    return constants_from(written, str(path))


def constants_from(written: object, source: str) -> Constants:
    """Return constants from JSON, with shipped ones for missing names.

    Raise a RegardError for unknown names, and for values that are not counts.
    """
    known = {entry.name for entry in fields(Constants)}
    if not isinstance(written, dict) or not written.keys() <= known:
        raise RegardError(
            f"{source}: not a JSON object of kernel constants; the names are {', '.join(known)}"
        )
    if any(type(value) is not int or value < 0 for value in written.values()):
        raise RegardError(f"{source}: kernel constants must be integers of at least 0")
    return replace(SHIPPED, **written)


@contextmanager
def using(constants: Constants) -> Iterator[None]:
    """Plan by these constants inside the block."""
    with _constants.set(constants):
        yield
