"""``regard bench cells``: check each score × mask × position × normaliser × dropout.

    python -m benchmarks.cells additive softmax

A cell is a choice of all five. Each is computed in float64 by the exact path, which is the formula,
and by strips (by torch's fused kernel too where that serves it): output and gradients of queries,
keys, values and all parameters must agree to 1e-9. Cells that cannot be built have a reason. Each
score with each normaliser is trained at growing n, for the exponent with which its memory grows.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.analysis import memory
from regard.analysis.growth import exponent
from regard.attention import (
    NORMALIZERS,
    POSITIONS,
    SCORES,
    Mask,
    Score,
    attend,
    bigbird,
    causal,
    dense,
    documents,
    global_tokens,
    lengths,
    lengths_per_query,
    make_score,
    others,
    prefix,
    use,
    window,
)
from regard.attention.kernels import choose
from regard.core.errors import RegardError, look_up
from regard.core.settings import Settings, build, split

TOLERANCE = 1e-9
#: Batch, heads, queries, keys, widths: all differ where they can. Keys fill two blocks of a mask.
BATCH, HEADS, QUERIES, KEYS, WIDTH, VALUE_WIDTH = 2, 2, 37, 71, 4, 3
STRIP = 2**11  # numbers, so that there are several strips
SIZES = (1024, 2048, 4096, 8192)
GROWTH = 1.1
PATIENCE = 3600.0

#: Masks for n queries that are the last of m keys.
MASKS: dict[str, Callable[[int, int], Mask | None]] = {
    "none": lambda n, m: None,
    "causal": lambda n, m: causal(),
    "lengths": lambda n, m: lengths([m, m // 3]),
    "lengths_per_query": lambda n, m: lengths_per_query(
        (torch.arange(n) * 7 % (m + 1)).expand(BATCH, n)
    ),
    "prefix": lambda n, m: causal() | prefix(m - n // 2),
    "others": lambda n, m: others(),
    "window & causal": lambda n, m: window(5) & causal(),
    "window dilated": lambda n, m: window(4, 3),
    "window | global_tokens": lambda n, m: window(3) | global_tokens(2),
    "bigbird": lambda n, m: bigbird(m, block=8, random=1),
    "documents": lambda n, m: documents(
        (torch.arange(m) * 3 // m)[m - n :], torch.arange(m) * 3 // m
    ),
    "dense": lambda n, m: dense(
        torch.rand(BATCH, n, m, generator=torch.Generator().manual_seed(1)) < 0.4
    ),
    "causal & lengths": lambda n, m: causal() & lengths([m, m - n // 2]),
}
#: Positions that are part of a score.
WRAPPED = [name for name, kind in POSITIONS.items() if kind is None or issubclass(kind, Score)]
DROPOUTS = (0.0, 0.2)


class Cell(NamedTuple):
    """A score, mask, position, normaliser and dropout."""

    score: str
    mask: str
    position: str
    normalize: str
    dropout: float

    def __str__(self) -> str:
        return (
            f"{self.score} × {self.mask} × {self.position} × {self.normalize} × "
            f"dropout {self.dropout:g}"
        )


class Verdict(NamedTuple):
    """The result of a cell: the largest difference, or the reason of the refusal."""

    cell: Cell
    difference: float = 0.0
    refused: str = ""

    @property
    def exact(self) -> bool:
        """Return whether all paths agree."""
        return not self.refused and self.difference <= TOLERANCE


class CellSettings(Settings):
    """Settings: the cells, by score and normaliser; ``memory=0`` skips the growth of memory.

    ``prompt=1`` measures it where freed memory goes back to the system at once (see
    `regard.analysis.memory`). ``processes`` run side by side, each on one core.
    """

    score: str = ""
    normalize: str = ""
    memory: bool = True
    prompt: bool = False
    processes: int = 2


def every() -> Iterator[Cell]:
    """Return all cells."""
    return (Cell(*parts) for parts in product(*factors()))


def factors() -> tuple[Sequence[Any], ...]:
    """Return the choices of each part of a cell."""
    return list(SCORES), list(MASKS), WRAPPED, list(NORMALIZERS), DROPOUTS


def pairwise(seed: int = 0, tries: int = 30) -> list[Cell]:
    """Return few cells that contain every pair of parts of different kinds, drawn by ``seed``.

    Greedy: of some cells with a missing pair, the one with most other missing pairs is taken.
    """
    draw, kinds = random.Random(seed), factors()
    left = {
        (i, a, j, b)
        for i, j in combinations(range(len(kinds)), 2)
        for a, b in product(range(len(kinds[i])), range(len(kinds[j])))
    }
    chosen = []
    while left:
        i, a, j, b = min(left)
        drawn = [[draw.randrange(len(kind)) for kind in kinds] for _ in range(tries)]
        for places in drawn:
            places[i], places[j] = a, b
        best = max(drawn, key=lambda places: len(left & set(meetings(places))))
        left -= set(meetings(best))
        chosen.append(Cell(*(kind[place] for kind, place in zip(kinds, best, strict=True))))
    return chosen


def meetings(places: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the pairs of parts in a cell."""
    for (i, a), (j, b) in combinations(enumerate(places), 2):
        yield i, a, j, b


def judge(cell: Cell, n: int = QUERIES, m: int = KEYS, strip: int = STRIP) -> Verdict:
    """Compute a cell by every path that supports it, and compare.

    >>> judge(Cell("dot", "causal", "rotary", "softmax", 0.2)).exact
    True
    """
    torch.manual_seed(0)
    small = replace(choose.SHIPPED, strip_numbers=strip, compile_hidden=0)
    with choose.using(small):
        try:
            answers = computed(cell, n, m)
        except RegardError as error:
            return Verdict(cell, refused=str(error))
    exact, *rest = answers
    return Verdict(
        cell, max(apart(a, b) for found in rest for a, b in zip(found, exact, strict=True))
    )


def computed(cell: Cell, n: int, m: int) -> list[list[Tensor]]:
    """Return output and gradients: exact, in strips, and by torch's kernel if possible."""
    score = make_score(cell.score, cell.position, WIDTH, WIDTH, heads=HEADS, length=m).double()
    normalizer = NORMALIZERS[cell.normalize](HEADS).double()
    parameters = [*score.parameters(), *normalizer.parameters()]
    with torch.no_grad():
        for x in parameters:  # away from where they begin, which may be a special place
            x.add_(torch.randn_like(x), alpha=0.1)
    shapes = (n, WIDTH), (m, WIDTH), (m, VALUE_WIDTH)
    leaves = [torch.randn(BATCH, HEADS, *x, dtype=torch.float64) for x in shapes]
    leaves = [*(x.requires_grad_() for x in leaves), *parameters]
    upstream = torch.randn(BATCH, HEADS, n, VALUE_WIDTH, dtype=torch.float64)
    mask, found = MASKS[cell.mask](n, m), []
    paths = ["exact", "tiled"]
    if score.acceleration.inner_product and cell.normalize == "softmax" and not cell.dropout:
        paths.append("fused")
    for path in paths:
        torch.manual_seed(1)  # dropout counts from a number that is drawn
        with use(path):
            q, k, v = leaves[:3]
            output = attend(q, k, v, score, mask, normalize=normalizer, dropout=cell.dropout).output
            gradients = torch.autograd.grad(output, leaves, upstream, allow_unused=True)
        zeros = [
            torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)
        ]
        found.append([output.detach(), *zeros])
    return found


def apart(a: Tensor, b: Tensor) -> float:
    """Return the largest difference; relative for numbers above 1, infinity for NaN."""
    difference = float(((a - b).abs() / b.abs().clamp(min=1)).max())
    return math.inf if math.isnan(difference) else difference


def grown(score: str, normalize: str, sizes: Sequence[int] = SIZES) -> list[float]:
    """Return the megabytes of training one head at each n, with inputs."""
    return [training(score, normalize, n).total_mb for n in sizes]


def training(score: str, normalize: str, n: int) -> memory.Memory:
    """Return the memory of a call of n × n, forward and backward, by its ordinary path."""

    def make(n: int) -> Callable[[], object]:
        scorer = make_score(score, "none", WIDTH, WIDTH, heads=1, length=n)
        normalizer = NORMALIZERS[normalize](1)
        q, k, v = (torch.randn(1, 1, n, WIDTH, requires_grad=True) for _ in range(3))
        upstream, of = torch.randn(1, 1, n, WIDTH), [*scorer.parameters(), *normalizer.parameters()]

        def work() -> object:
            output = attend(q, k, v, scorer, normalize=normalizer).output
            return torch.autograd.grad(output, [q, k, v, *of], upstream, allow_unused=True)

        return work

    # A compiler's own memory is no part of the formula's.
    with choose.using(replace(choose.constants(), compile_hidden=0)):
        make(256)()
        return memory.probe(lambda: make(n))


def row_of(name: str, verdicts: Iterable[Verdict], megabytes: Sequence[float]) -> dict[str, Any]:
    """Return a row of results for some cells."""
    verdicts = list(verdicts)
    legal = [verdict for verdict in verdicts if not verdict.refused]
    growth = exponent(SIZES, [max(x, 0.1) for x in megabytes]) if megabytes else None
    return {
        "name": name,
        "cells": len(legal),
        "exact": sum(verdict.exact for verdict in legal),
        "difference": max((verdict.difference for verdict in legal if verdict.exact), default=0.0),
        "failures": [
            {"cell": str(verdict.cell), "difference": f"{verdict.difference:.1e}"}
            for verdict in legal
            if not verdict.exact
        ],
        "refused": dict(Counter(verdict.refused for verdict in verdicts if verdict.refused)),
        "megabytes": list(megabytes),
        "memory_exponent": growth,
        "reached": len(legal) == sum(verdict.exact for verdict in legal)
        and (growth is None or growth <= GROWTH),
    }


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return a row for each score × normaliser: its cells, the exact ones, the growth of memory.

    ``quick`` takes the sample with every pair of parts, and no memory.
    """
    how = build(CellSettings, split(settings, CellSettings)[0])
    scores = [look_up({x: x for x in SCORES}, how.score, "score")] if how.score else list(SCORES)
    known = {x: x for x in NORMALIZERS}
    kinds = [look_up(known, how.normalize, "normalizer")] if how.normalize else list(NORMALIZERS)
    return sampled(scores, kinds) if quick else whole(scores, kinds, how)


def sampled(scores: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the sample, in this process."""
    cells = pairwise()
    for score, kind in product(scores, kinds):
        chosen = [cell for cell in cells if (cell.score, cell.normalize) == (score, kind)]
        yield row_of(f"{score} × {kind}", (judge(cell) for cell in chosen), [])


def whole(
    scores: Sequence[str], kinds: Sequence[str], how: CellSettings
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all cells, each from a separate process."""

    def fresh(pair: tuple[str, str]) -> dict[str, Any]:
        words = [sys.executable, "-m", "benchmarks.cells", *pair]
        words += [] if how.memory else ["--no-memory"]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", **(memory.PROMPT if how.prompt else {})}
        done = subprocess.run(  # noqa: S603
            words, capture_output=True, text=True, env=settings, timeout=PATIENCE
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RegardError(f"the cells of {' × '.join(pair)} could not be computed: {last}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    with ThreadPoolExecutor(max(1, how.processes)) as pool:
        yield from pool.map(fresh, product(scores, kinds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: one row as JSON."""
    parser = argparse.ArgumentParser(description="The cells of one score and one normaliser.")
    parser.add_argument("score", choices=list(SCORES))
    parser.add_argument("normalize", choices=list(NORMALIZERS))
    parser.add_argument("--no-memory", action="store_true", help="parity alone")
    asked = parser.parse_args(arguments)
    megabytes = [] if asked.no_memory else grown(asked.score, asked.normalize)
    cells = [x for x in every() if (x.score, x.normalize) == (asked.score, asked.normalize)]
    row = row_of(f"{asked.score} × {asked.normalize}", map(judge, cells), megabytes)
    sys.stdout.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
