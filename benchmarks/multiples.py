"""The rows of ``regard bench attention``: every part as a multiple of SDPA's time and memory.

A score, position, normaliser or mask is one call of `attend` with 8 heads of 64 columns, forward
and backward, beside `torch.nn.functional.scaled_dot_product_attention` with the same queries, keys
and values. A mechanism is a causal layer of width 512 beside the layer ``multi-head``, whose
attention is SDPA. ``floor_s`` is the time of the operations that no implementation can avoid at
this machine's measured rates: multiplications and additions, ``exp``, divisions. The rate of
``exp`` is that of ``torch.exp``; torch's kernel has a coarser one, and may be below its floor.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import nn

from benchmarks import peers
from benchmarks.case import Aim, Case, Problem, Side
from regard.analysis.timing import alone
from regard.attention import (
    MECHANISMS,
    NORMALIZERS,
    POSITIONS,
    SCORES,
    Mask,
    attend,
    bigbird,
    causal,
    documents,
    global_tokens,
    lengths,
    make_score,
    named_mechanism,
    window,
)
from regard.attention.mechanisms.recurrent import StateAttention
from regard.core.errors import RegardError
from regard.core.names import parts_of

HEADS, WIDTH = 8, 64
SIZES = (256, 1024, 4096)
#: Tokens of a call on a processor and on a GPU: short texts come in batches.
TOKENS = {"cpu": 1024, "cuda": 16_384}
#: The most that a kind of part may cost, in multiples of SDPA's time.
AIMS = {"additive": 2.5, "t5-bias": 1.3, "kerple": 1.3, "fire": 1.3}
USUAL = 2.0
#: Numbers, few enough for one thread, and calls by which the rate of a function is measured.
IN_CACHE, CALLS = 2**14, 500
#: Times the measured rate of a product that a benchmark may reach: bfloat16 on a CPU is faster.
POSSIBLE = 4
MASKS: dict[str, Callable[[int], Mask]] = {
    "causal": lambda n: causal(),
    "lengths": lambda n: lengths([n - n // 8]),
    "window 64": lambda n: window(64),
    "window 64 causal": lambda n: window(64) & causal(),
    "dilated window 64": lambda n: window(64, 4),
    "global 16 + window 64": lambda n: window(64) | global_tokens(16),
    "bigbird": bigbird,
    "documents": lambda n: documents(torch.arange(n) // (n // 4)) & causal(),
}
#: Mechanisms with numbers, and output stages.
VARIANTS = (
    "dsa-64", "delta-reach-2", "delta-products-3", "multi-head+gate", "multi-head+exclusive",
    "multi-head+value-residual",
)  # fmt: skip
#: Positions that are added to the inputs, and those of a tree.
NO_CALL = ("none", "sinusoidal", "learned", "tree-depth", "tree-keys")


class Work(NamedTuple):
    """Operations per pair of a query and a key that no implementation avoids, with backward.

    ``products``: multiplications and additions, in multiples of a head's columns; ``exp`` and
    ``reciprocal``: calls, once forward and once when backward computes the scores again.
    """

    products: float = 7 * 2
    exp: float = 2
    reciprocal: float = 0


#: Forward q·k and weights · v; backward the scores again and four products. Additive attention has
#: three products with values, and for each hidden unit a division and 2 operations forward, and
#: backward the same, 2 for r − r² and 6 for the sums over queries, keys and weights.
WORK = {
    "additive": Work(3 * 2 + 12, 2, 2 * WIDTH),
    "synthesizer": Work(3 * 2),
    "synthesizer-random": Work(3 * 2),
    "synthesizer-factorised": Work(3 * 2),
    "synthesizer-factorised-random": Work(3 * 2),
    "epanechnikov": Work(exp=0),
    "boxcar": Work(3 * 2, exp=0),
    "sparsemax": Work(exp=0),
    "entmax15": Work(exp=0),
    "sum": Work(exp=0),
}


def table(*, quick: bool = False, device: str = "cpu", dtype: str = "float32") -> list[Case]:
    """Return all rows; ``quick``: the same with small inputs."""
    sizes = (64,) if quick else SIZES
    return [of(kind, name, n, device, dtype) for n in sizes for kind, name in parts()]


def of(kind: str, name: str, n: int, device: str, dtype: str) -> Case:
    """Return the row of a part at a length."""
    tokens = max(n, TOKENS[device]) if n >= SIZES[0] else n
    return Case(
        f"{kind} {name}, n = {n:,}",
        "multi-head" if kind == "mechanism" else "SDPA",
        partial(make, kind, name, tokens, getattr(torch, dtype)),
        n,
        Aim(1 / AIMS.get(name, USUAL)),
        same=False,
        floor=partial(floor, kind, name, n, tokens, device, dtype),
    )


def parts() -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each row."""
    yield from (("score", name) for name in SCORES)
    yield from (("position", name) for name in POSITIONS if name not in NO_CALL)
    yield from (("normaliser", name) for name in NORMALIZERS)
    yield from (("mask", name) for name in MASKS)
    yield from (("mechanism", name) for name in (*MECHANISMS, *VARIANTS) if name != "multi-head")


def make(kind: str, name: str, tokens: int, dtype: torch.dtype, n: int) -> Problem:
    """Return the call of a part, and the plain one."""
    batch = max(1, tokens // n)
    if kind == "mechanism":
        ours, theirs = (layer_of(x, batch, n, dtype) for x in (name, "multi-head"))
        return Problem(ours, theirs, torch.randn(batch, n, HEADS * WIDTH, dtype=dtype))
    shape = (batch, HEADS, n, WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    score = make_score(
        name if kind == "score" else "scaled-dot",
        name if kind == "position" else "none",
        WIDTH,
        WIDTH,
        heads=HEADS,
        length=n,
    ).to(dtype)
    normalize = NORMALIZERS[name]() if kind == "normaliser" else "softmax"
    if isinstance(normalize, nn.Module):
        normalize = normalize.to(dtype)
    mask = MASKS[name](n) if kind == "mask" else None
    of = [q, k, v, *(x for x in score.parameters() if x.requires_grad)]
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score, mask, normalize=normalize).output, of),
        lambda: Side(peers.sdpa(q, k, v), [q, k, v]),
        torch.randn(shape, dtype=dtype),
    )


def layer_of(name: str, batch: int, n: int, dtype: torch.dtype) -> Callable[[], Side]:
    """Return a causal layer with an input of its own."""

    def made() -> Side:
        torch.manual_seed(0)
        layer = named_mechanism(name)(HEADS * WIDTH, HEADS).to(dtype)
        x = torch.randn(batch, n, HEADS * WIDTH, dtype=dtype, requires_grad=True)
        used = [x, *(p for p in layer.parameters() if p.requires_grad)]
        return Side(lambda: layer(x, mask=causal()), used)

    return made


def floor(kind: str, name: str, n: int, tokens: int, device: str, dtype: str) -> float:
    """Return the seconds of the operations that a row cannot avoid."""
    rate, rows = rates(device, dtype), max(1, tokens // n) * n
    work = WORK.get(name, Work())
    share = 1.0
    if kind == "mask":
        at = torch.arange(n, device="cpu")
        share = float(MASKS[name](n).allows(at, at).float().mean())
    elif kind == "mechanism":
        share = (n + 1) / n / 2
    width = HEADS * WIDTH
    per_pair = {
        "flops": work.products * WIDTH, "exp": work.exp, "reciprocal": work.reciprocal,
    }  # fmt: skip
    seconds = sum(count / rate[what] for what, count in per_pair.items() if what in rate)
    seconds *= rows * n * HEADS * share
    if kind == "mechanism":
        projections = rows * 3 * 4 * 2 * width**2 / rate["flops"]
        state = rows * 3 * 4 * WIDTH * width / rate["flops"]
        linear = issubclass(MECHANISMS.named(parts_of(name)[0])[0], StateAttention)
        return projections + (state if linear else seconds)
    return seconds


@cache
def rates(device: str, dtype: str) -> dict[str, float]:
    """Return operations per second: of a large product, and of ``exp`` and divisions in cache.

    On a GPU, where functions of small tensors measure launches, that of the product alone.
    """
    kind = getattr(torch, dtype)
    with torch.device(device):
        a, b = (torch.randn(2048, 2048, dtype=kind) for _ in range(2))
        found = {"flops": 2 * 2048**3 / alone(lambda: a @ b, 9, device=device)}
        if device == "cpu":
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # a barrier of threads would take longer than the function
            for what in ("exp", "reciprocal"):
                seconds = alone(partial(repeated, what, kind), 5)
                found[what] = threads * CALLS * IN_CACHE / seconds
            torch.set_num_threads(threads)
    return found


def must_be_possible(flops: float, seconds: float, device: str = "cpu") -> None:
    """Raise an error if a measured time is below that of its multiplications and additions.

    >>> must_be_possible(1e6, 1.0)
    """
    rate = rates(device, "float32" if device == "cpu" else "bfloat16")["flops"]
    if flops / seconds > POSSIBLE * rate:
        raise RegardError(
            f"{flops / seconds:.1e} operations a second were measured and this machine computes "
            f"{rate:.1e}: the benchmark did not do its work"
        )


def repeated(what: str, dtype: torch.dtype) -> None:
    """Call a function of torch on numbers that stay in the cache."""
    x = torch.linspace(-3, 3, IN_CACHE, dtype=dtype)
    found = torch.empty_like(x)
    for _ in range(CALLS):
        getattr(torch, what)(x, out=found)
