"""Error rates of small studies, and of the marks of unfinished trainings.

    python -m benchmarks.calibration [marks power groups classes smallest] [--random-state N]

* `marks`: flat validation curves with noise of an AR(1) process that count as still rising, of all;
  `power`: curves that rise by a multiple of the noise in the second half of their validations.
* `groups`: studies without a difference, with few groups or examples. A score is the sum of normal
  effects of the seed, the group, both and the example, in several mixtures; the worst is shown.
* `classes`: two equally good models and a class of two or three texts.
* `smallest`: the difference that a study reports as detectable, and the one that 80 % of studies
  find.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float

from regard.lab.runs.convergence import still_rising
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.classification.metrics import per_example
from regard.lab.tasks.estimates import Estimate, components, effective
from regard.lab.tasks.null_distribution import p_values, reach

SEEDS = (1, 2, 3, 5, 10)
COUNTS = (4, 5, 6, 8, 10, 20, 30, 50)
CORRELATIONS = (0.0, 0.4, 0.7, 0.8)
RISES = (2, 4, 8, 16)  # in standard deviations of the noise
#: Standard deviations of the effects of seed, group, both, and example by seed.
MIXTURES = (
    (0, 1, 0, 0),
    (0, 0, 1, 0),
    (0.3, 0, 1, 0.5),
    (1, 1, 1, 0),
    (0.1, 0.5, 0.5, 1),
    (0, 0, 0, 1),
)
Random = np.random.Generator
Row = Sequence[object]


def noise(
    curves: int, count: int, correlation: float, rng: Random
) -> Float[np.ndarray, "curves count"]:
    """Draw stationary AR(1) noise of variance 1."""
    drawn = rng.standard_normal((curves, count))
    for i in range(1, count):
        fresh = (1 - correlation**2) ** 0.5
        drawn[:, i] = correlation * drawn[:, i - 1] + fresh * drawn[:, i]
    return drawn


def rising(rise: float, count: int, correlation: float, curves: int, rng: Random) -> float:
    """Return the share of curves that count as rising; the noise has one point."""
    steps = [100 * (i + 1) for i in range(count)]
    line = rise * np.arange(count) / (count / 2)
    scores = 0.8 + 0.01 * (line + noise(curves, count, correlation, rng))
    return float(np.mean([still_rising(steps, list(row)) for row in scores]))


def marks(rng: Random, many: int) -> Iterator[Row]:
    """Yield the share of flat curves that count as rising."""
    yield "correlation", *(f"{count} validations" for count in COUNTS)
    for correlation in CORRELATIONS:
        found = (rising(0, count, correlation, many, rng) for count in COUNTS)
        yield correlation, *(f"{100 * share:.1f}" for share in found)


def power(rng: Random, many: int) -> Iterator[Row]:
    """Yield the share of rising curves that count as rising."""
    yield "correlation", "rise / noise", *(f"{count} validations" for count in COUNTS)
    for correlation in CORRELATIONS[:3]:
        for rise in RISES:
            found = (rising(rise, count, correlation, many // 3, rng) for count in COUNTS)
            yield correlation, rise, *(f"{100 * share:.0f}" for share in found)


def sizes_of(kind: str, groups: int) -> list[int]:
    """Return the sizes of groups: examples alone, equal, falling, or one of half of all."""
    return {
        "examples": [1] * groups,
        "equal": [5] * groups,
        "falling": [max(1, 24 // (i + 1)) for i in range(groups)],
        "one large": [4 * (groups - 1), *[4] * (groups - 1)],
    }[kind]


def groups(rng: Random, many: int) -> Iterator[Row]:
    """Yield false differences, per cent at 5 % and at 0.5 %, at the worst of the mixtures."""
    yield "groups", "sizes", *(f"{seeds} seed{'s' * (seeds > 1)}" for seeds in SEEDS)
    for kind in ("examples", "equal", "falling", "one large"):
        for count in (2, 3, 4, 10):
            sizes = np.array(sizes_of(kind, count))
            found = (_worst(sizes, seeds, many, rng) for seeds in SEEDS)
            yield count, kind, *(f"{100 * a:.1f} / {100 * b:.2f}" for a, b in found)


def _worst(sizes: np.ndarray, seeds: int, many: int, rng: Random) -> tuple[float, float]:
    at = np.repeat(np.arange(len(sizes)), sizes)
    rates = []
    for seed, group, both, example in MIXTURES:
        # One seed compares two models, whose difference is their own.
        gains = seed * (seeds > 1) * rng.standard_normal((many, seeds, 1))
        gains = gains + (group * rng.standard_normal((many, 1, len(sizes))))
        gains = (gains + both * rng.standard_normal((many, seeds, len(sizes))))[..., at]
        gains = gains + example * rng.standard_normal((many, seeds, len(at)))
        p = p_values(*components(gains, at), seeds - 1.0, effective(sizes) - 1)
        rates.append(((p < 0.05).mean(), (p < 0.005).mean()))
    return max(rates)


def classes(rng: Random, many: int) -> Iterator[Row]:
    """Yield false differences of macro-F1 and balanced accuracy with a rare class."""
    from scipy.special import ndtr

    yield "metric", "texts of the class", "its recall", "1 seed", "3 seeds"
    for metric in ("macro-f1", "balanced-accuracy"):
        for rare in (0, 1, 2, 3):
            for recall in (0.5, 0.85):
                cells = []
                for seeds in (1, 3):
                    ps = []
                    for _ in range(many // 4):
                        labels = np.append(
                            np.full(rare, 2), rng.choice(2, 200 - rare, p=[0.6, 0.4])
                        )
                        shape = (2, seeds, 200)
                        easy = 0.5**0.5 * (rng.standard_normal(200) + rng.standard_normal(shape))
                        right = ndtr(easy) < np.where(labels == 2, recall, 0.85)
                        other = np.where(rng.random(shape) < 0.05, (labels + 1) % 3, labels == 0)
                        said = np.where(right, labels, other)
                        a, b = (
                            np.stack([per_example(metric, row, labels, 3) for row in rows])
                            for rows in said
                        )
                        ps.append(compare_runs(a, b).p)
                    p = np.array(ps)
                    cells.append(f"{100 * (p < 0.05).mean():.1f} / {100 * (p < 0.005).mean():.2f}")
                yield metric, rare, recall, *cells


def smallest(rng: Random, many: int) -> Iterator[Row]:
    """Yield the detectable differences of studies, as multiples of what 80 % of them find."""
    yield "seeds", "share of the seeds", "truth", "lower quartile", "median", "upper quartile"
    for seeds in (2, 3, 5, 10):
        for share in (0.3, 0.7):
            freedom = seeds - 1.0
            drawn = share * rng.chisquare(freedom, many) / freedom
            bound = reach(0.05, drawn, 1 - share, freedom, 500)
            means = rng.standard_normal(many)
            low, high = 0.0, 1000.0
            for _ in range(50):
                middle = (low + high) / 2
                found = (np.abs(means + middle) > bound).mean() >= 0.8
                low, high = (low, middle) if found else (middle, high)
            said = [
                Estimate(0.0, one, 1 - share, freedom, 500).smallest() for one in drawn[: many // 8]
            ]
            ratios = np.quantile(said, [0.25, 0.5, 0.75]) / high
            yield seeds, share, *(f"{x:.2f}" for x in (high, *ratios))


TABLES: dict[str, Callable[[Random, int], Iterator[Row]]] = {
    "marks": marks,
    "power": power,
    "groups": groups,
    "classes": classes,
    "smallest": smallest,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="False marks and differences of small studies.")
    parser.add_argument("tables", nargs="*", default=[], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--simulations", type=int, default=2000, help="of each cell")
    parser.add_argument("--random-state", type=int, default=0)
    asked = parser.parse_args(arguments)
    for number, (name, table) in enumerate(TABLES.items()):
        if asked.tables and name not in asked.tables:
            continue
        rng = np.random.default_rng([asked.random_state, number])
        sys.stdout.write(f"\n{name}\n\n")
        for i, row in enumerate(table(rng, asked.simulations)):
            sys.stdout.write(f"| {' | '.join(map(str, row))} |\n")
            sys.stdout.write("" if i else f"|{'---|' * len(row)}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
