"""The constants by which calls are planned, measured on this machine in a minute or two.

``compile_hidden`` is not among them: whether a compiler's seconds are worth it depends on how many
calls follow, which no measurement of one call tells.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from regard.analysis.timing import in_turns, seconds
from regard.atomic_io import write_json
from regard.attention import NORMALIZERS, SCORES, Mask, attend, others, use
from regard.attention.kernels import choose

HEADS, WIDTH = 4, 64
KEYS = (64, 128, 256, 512, 1024, 2048)  # of plain products in bfloat16
# The last of these bound memory: a table of 1 MB, a mask of 16 MB, whatever is fastest beyond.
EXACT = tuple(2**x for x in range(10, 20, 2))  # pairs
FUSED = (256, 512, 1024, 2048)  # queries and keys
STRIPS = tuple(2**x for x in range(17, 22))
#: A smaller strip is taken where it costs at most so much more than the best.
CLOSE = 1.03


def calibrate(*, quick: bool = False) -> dict[str, int]:
    """Measure the constants, and keep them in the file that regard reads from then on.

    ``quick`` measures the smallest candidates alone, and so finds little.
    """
    constants = asdict(choose.SHIPPED)
    for name, value in measured(0.02 if quick else 1.0, 2 if quick else 6):
        constants[name] = value
    path = choose.constants_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, constants)
    choose.load_constants.cache_clear()
    return constants


def measured(budget: float, most: int) -> Iterator[tuple[str, int]]:
    """Each constant's name and its best value among ``most`` candidates."""
    with choose.using(choose.SHIPPED):
        yield "plain_bfloat16_keys", last_win(KEYS[:most], bfloat16, budget)
        yield "exact_pairs", last_win(EXACT[:most], table_or_strips, budget)
        wins = last_win(FUSED[:most], masked, budget)
        yield "fused_pairs", wins**2
    yield "strip_numbers", best_strip(STRIPS[:most], 256 if most < len(STRIPS) else 1024)


Contest = Callable[[int], tuple[Callable[[], object], Callable[[], object]]]


def last_win(candidates: Sequence[int], contest: Contest, budget: float) -> int:
    """The candidate up to which the first of two ways is faster; 0 if it never is."""
    won = 0
    for candidate in candidates:
        first, second = in_turns(*contest(candidate), budget=budget)
        if first > second:
            break
        won = candidate
    return won


def bfloat16(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Plain matrix products against torch's fused kernel."""
    work = trained(max(1, 2048 // n), n, dtype=torch.bfloat16)
    return by("plain", work), by("fused", work)


def table_or_strips(pairs: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """The whole table of scores against strips, where torch's kernel does not serve."""
    work = trained(1, int((pairs // HEADS) ** 0.5), normalize="sigmoid")
    return by("exact", work), by("tiled", work)


def masked(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A mask of pairs whole in torch's kernel against strips."""
    work = trained(1, n, mask=others())
    return by("fused", work), by("tiled", work)


def best_strip(candidates: Sequence[int], n: int, rounds: int = 3) -> int:
    """The smallest strip whose time is close to the best."""
    work = by("tiled", trained(2, n, normalize="sigmoid"))

    def once(numbers: int) -> float:
        with choose.using(replace(choose.SHIPPED, strip_numbers=numbers)):
            return seconds(work)

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
) -> Callable[[], object]:
    """A call of scaled-dot attention, forward and backward."""
    score, normalizer = SCORES["scaled-dot"](), NORMALIZERS[normalize]()
    shape = (batch, HEADS, n, WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    upstream = torch.randn(shape, dtype=dtype)

    def work() -> Any:
        output = attend(q, k, v, score, mask, normalize=normalizer).output
        return torch.autograd.grad(output, [q, k, v], upstream)

    return work


def by(path: str, work: Callable[[], object]) -> Callable[[], object]:
    """The work by one path."""

    def done() -> object:
        with use(path):
            return work()

    return done
