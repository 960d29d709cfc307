"""Measure the constants of kernel selection on this machine, in a minute or two.

``compile_hidden`` is not measured: whether compiling pays depends on the number of later calls.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from regard.analysis.timing import clock, in_turns
from regard.attention import NORMALIZERS, SCORES, Mask, attend, others, use
from regard.attention.kernels import choose
from regard.core.atomic_io import write_json
from regard.core.errors import RegardError

HEADS, WIDTH = 4, 64
KEYS = (64, 128, 256, 512, 1024, 2048)  # of plain products in bfloat16
# The last candidates bound the memory: a table of 1 MB, a mask of 16 MB.
EXACT = tuple(2**x for x in range(10, 20, 2))  # pairs
FUSED = (256, 512, 1024, 2048)  # queries and keys
STRIPS = tuple(2**x for x in range(18, 23))
#: The same on a GPU.
GPU_EXACT = tuple(2**x for x in range(14, 26, 2))
GPU_FUSED = (1024, 2048, 4096, 8192)
GPU_STRIPS = tuple(2**x for x in range(22, 28))
#: The smallest strip is chosen whose time is within this factor of the best.
CLOSE = 1.03


def calibrate(*, quick: bool = False, device: str = "cpu") -> dict[str, int]:
    """Measure the constants and save them in the file that regard reads from then on.

    ``quick`` measures the smallest candidates only, which is imprecise. With ``device`` "cuda" it
    measures a GPU's constants; the constants of the other device are kept.
    """
    try:
        constants = asdict(choose.load_constants())
    except RegardError:  # a file that cannot be read is replaced
        constants = asdict(choose.SHIPPED)
    budget, most = (0.02, 2) if quick else (1.0, 6)
    results = measured_on_gpu(budget, most) if device == "cuda" else measured(budget, most)
    for name, value in results:
        constants[name] = value
    path = choose.constants_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, constants)
    choose.load_constants.cache_clear()
    return constants


def measured(budget: float, most: int) -> Iterator[tuple[str, int]]:
    """Yield each constant's name and its best value among ``most`` candidates."""
    with choose.using(choose.SHIPPED):
        yield "plain_bfloat16_keys", last_win(KEYS[:most], bfloat16, budget)
        yield "exact_pairs", last_win(EXACT[:most], table_or_strips, budget)
        wins = last_win(FUSED[:most], masked, budget)
        yield "fused_pairs", wins**2
    yield "strip_numbers", best_strip(STRIPS[:most], 256 if most < len(STRIPS) else 1024)


def measured_on_gpu(budget: float, most: int, device: str = "cuda") -> Iterator[tuple[str, int]]:
    """Yield the same for a GPU; tests pass another device."""
    with choose.using(choose.SHIPPED):
        tables = partial(table_or_strips, device=device)
        yield "gpu_exact_pairs", last_win(GPU_EXACT[:most], tables, budget, device)
        wins = last_win(GPU_FUSED[:most], partial(masked, device=device), budget, device)
        yield "gpu_fused_pairs", wins**2
    sizes = GPU_STRIPS[:most]
    n = 64 if most < len(GPU_STRIPS) else 4096
    yield "gpu_strip_numbers", best_strip(sizes, n, device=device)


Contest = Callable[[int], tuple[Callable[[], object], Callable[[], object]]]


def last_win(
    candidates: Sequence[int], contest: Contest, budget: float, device: str = "cpu"
) -> int:
    """Return the last candidate for which the first of two kernels is faster, or 0."""
    won = 0
    for candidate in candidates:
        first, second = in_turns(*contest(candidate), budget=budget, device=device)
        if first > second:
            break
        won = candidate
    return won


def bfloat16(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return calls of plain matrix products and of torch's fused kernel."""
    work = trained(max(1, 2048 // n), n, dtype=torch.bfloat16)
    return use("plain")(work), use("fused")(work)


def table_or_strips(
    pairs: int, device: str = "cpu"
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return calls with the full table of scores and in strips, without torch's kernel."""
    work = trained(1, int((pairs // HEADS) ** 0.5), normalize="sigmoid", device=device)
    return use("exact")(work), use("tiled")(work)


def masked(n: int, device: str = "cpu") -> tuple[Callable[[], object], Callable[[], object]]:
    """Return calls with a full mask of pairs in torch's kernel and in strips."""
    work = trained(1, n, mask=others(), device=device)
    return use("fused")(work), use("tiled")(work)


def best_strip(candidates: Sequence[int], n: int, rounds: int = 3, device: str = "cpu") -> int:
    """Return the smallest strip whose time is close to the best."""
    work = use("tiled")(trained(2, n, normalize="sigmoid", device=device))
    timed = clock(device)

    def once(numbers: int) -> float:
        both = {"strip_numbers": numbers, "gpu_strip_numbers": numbers}
        with choose.using(replace(choose.SHIPPED, **both)):
            return timed(work)

    once(candidates[0])
    turns = [[once(numbers) for numbers in candidates] for _ in range(rounds)]
    medians = [sorted(times)[rounds // 2] for times in zip(*turns, strict=True)]
    return next(c for c, t in zip(candidates, medians, strict=True) if t <= CLOSE * min(medians))


def trained(
    batch: int,
    n: int,
    *,
    normalize: str = "softmax",
    mask: Mask | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Callable[[], object]:
    """Return a call of scaled-dot attention, forward and backward."""
    score, normalizer = SCORES["scaled-dot"](), NORMALIZERS[normalize]()
    shape = (batch, HEADS, n, WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for _ in range(3))
    upstream = torch.randn(shape, dtype=dtype, device=device)

    def work() -> Any:
        output = attend(q, k, v, score, mask, normalize=normalizer).output
        return torch.autograd.grad(output, [q, k, v], upstream)

    return work
