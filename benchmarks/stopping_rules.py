"""Rules by which a study may stop adding seeds: the seeds they use and the claims they decide.

Every rule is a level of p for each look; all keep the error rate at 5 % over the looks. The
studies are those of `benchmarks.stopping` with normal differences.

    python -m benchmarks.stopping_rules --studies 4000
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Shaped
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr

from benchmarks.stopping import ALPHA, LOOKS, WORLDS, draw
from regard.lab.studies.stopping import level

PATHS = 100_000
Levels = Float[np.ndarray, " looks"]
P = Float[np.ndarray, "paths looks"]


def p_of(gains: Shaped[np.ndarray, "studies seeds"], distance: float = 0.0, sign: int = 1) -> P:
    """Return the two-sided p of each look; with a distance, of a mean that far off on one side."""
    columns = []
    for seeds in LOOKS:
        some = gains[:, :seeds]
        t = (distance + sign * some.mean(1)) / (some.std(1, ddof=1) / seeds**0.5)
        columns.append(2 * stdtr(seeds - 1, -np.abs(t) if not distance else -t))
    return np.asarray(np.minimum(np.stack(columns, axis=1), 1.0))


def spent(alpha: float, null: P, spend: Callable[[float], float]) -> Levels:
    """Return the levels that use up `alpha` as a share of the last look's seeds (Lan & DeMets)."""
    alive, used, levels = np.ones(len(null), bool), 0, []
    for look, seeds in enumerate(LOOKS):
        more = round(alpha * spend(seeds / LOOKS[-1]) * len(null)) - used
        levels.append(np.partition(null[alive, look], more)[more] if more > 0 else 0.0)
        ends = alive & (null[:, look] < levels[-1])
        used, alive = used + int(ends.sum()), alive & ~ends
    return np.array(levels)


def equal(alpha: float, null: P) -> Levels:
    """Return one level for all looks: Pocock (1977)."""
    return np.full(len(LOOKS), np.quantile(null.min(1), alpha))


def divided(alpha: float) -> Levels:
    """Return levels whose sum is `alpha`, in the proportions of Pocock's spending."""
    return np.asarray(alpha * np.diff([0.0, *(pocock(seeds / LOOKS[-1]) for seeds in LOOKS)]))


def sequence(alpha: float, width: float = 1.0) -> Levels:
    """Return the levels at which the evidence of a mixture of effects is 1/alpha (Lai 1976).

    The effects have the variance `width` times that of a seed's difference.
    """

    def evidence(t: float, seeds: int) -> float:
        wide = 1 + seeds * width
        ratio = (1 + t * t / (seeds - 1)) / (1 + t * t / ((seeds - 1) * wide))
        return float(wide**-0.5 * ratio ** (seeds / 2) - 1 / alpha)

    return np.array(
        [2 * stdtr(n - 1, -brentq(evidence, 0, 1e6, args=(n,))) if evidence(1e6, n) > 0 else 0.0
         for n in LOOKS]
    )  # fmt: skip


def pocock(share: float) -> float:
    """Return the share of the error rate that Lan & DeMets spend like Pocock."""
    return float(np.log(1 + (math.e - 1) * share))


def rules() -> Mapping[str, tuple[Levels, Levels]]:
    """Return the levels of each rule, for differences and for equivalence."""
    null = p_of(np.random.default_rng(0).standard_normal((PATHS, LOOKS[-1])))
    named: dict[str, Callable[[float], Levels]] = {
        "growing as √n (in use)": lambda alpha: np.array([level(alpha, n, LOOKS) for n in LOOKS]),
        "equal (Pocock 1977)": lambda alpha: equal(alpha, null),
        "spending as Pocock's (Lan & DeMets 1983)": lambda alpha: spent(alpha, null, pocock),
        "spending as O'Brien & Fleming's": lambda alpha: spent(
            alpha, null, lambda t: float(2 * ndtr(ndtri(alpha / 2) / t**0.5) / alpha)
        ),
        "α divided among the looks": divided,
        "confidence sequence (Lai 1976)": sequence,
    }
    return {name: (rule(ALPHA), rule(2 * ALPHA)) for name, rule in named.items()}


def judge(gains: Shaped[np.ndarray, "studies seeds"], levels: tuple[Levels, Levels]) -> list[float]:
    """Return the shares found different and equivalent within 1, and the mean seeds."""
    different = p_of(gains) < levels[0]
    outside = np.maximum(p_of(gains, 1.0), p_of(gains, 1.0, -1))
    decided = different | (outside < levels[1])
    end = np.where(decided.any(1), decided.argmax(1), len(LOOKS) - 1)
    found = different[np.arange(len(end)), end]
    return [found.mean(), (decided.any(1) & ~found).mean(), np.array(LOOKS)[end].mean()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the rules; return how many exceed 6 % of false differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--studies", type=int, default=4000)
    options = parser.parse_args(arguments)
    print("| levels | false differences | seeds at 0 | at δ | at 2δ | decided at 0, σ = 2δ |")
    print("|---|--:|--:|--:|--:|--:|")
    broken = 0
    for name, levels in rules().items():
        rows = {}
        for world in WORLDS[1:3]:
            for true in (0.0, 1.0, 2.0):
                rng = np.random.default_rng([1, round(true)])
                rows[world.scale, true] = judge(
                    draw(world, true, options.studies, rng)[:, :, 0], levels
                )
        false = max(rows[scale, 0.0][0] for scale in (1.0, 2.0))
        seeds = " | ".join(f"{rows[1.0, true][2]:.1f}" for true in (0.0, 1.0, 2.0))
        wide = sum(rows[2.0, 0.0][:2])
        print(f"| {name} | {100 * false:.1f} | {seeds} | {100 * wide:.0f} |")
        broken += false > ALPHA + 0.01
    return broken


if __name__ == "__main__":
    sys.exit(main())
