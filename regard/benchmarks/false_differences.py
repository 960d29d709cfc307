"""How often a comparison finds what is not there: regard's statistics on simulated runs.

Each simulation draws a new test set and new seeds of two methods, and gives their right and wrong
answers to `regard.studies.statistics`, the code that judges real comparisons.

    l[i] = 5.948 + 4.966 z[i]                   how easy example i is, in logits
    p[i] = 1 / (1 + exp(−l[i]))                 an average seed is right 87 % of the time, and
                                                two seeds disagree on 8 % of the examples
    P(right[s, i]) = p[i] + (a[s] + effect) p[i] (1 − p[i])

a[s] is the luck of a seed, sized so that true accuracy varies by `seed_sd` from seed to seed; it
and the effect move what is uncertain and leave what is easy. Two methods of different kind share
only part of z: on average as good, wrong on other examples (seeds of the two disagree on 14.5 %).

    python -m regard.benchmarks.false_differences --simulations 2000 --json FILE
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from regard.studies.statistics import arm_interval, compare_runs

EASE, EASE_SD = 5.948, 4.966
ACCURACY, UNCERTAIN = 0.87, 0.04  # the means of p and of p (1 − p) that these two make
SEED_SD = 0.004
OWN_SHARE = 0.3  # of the variance of z, in methods of different kind
PLANTED = 0.01
RESAMPLES = 400
BOOTSTRAPPED = 500  # simulations that the bootstrap joins, as it is slow

Answers = Bool[np.ndarray, "seeds examples"]


@dataclass(frozen=True)
class World:
    """What is true of the two methods: their difference, and whether they err alike."""

    name: str
    difference: float = 0.0
    own_share: float = 0.0


WORLDS = (
    World("one method twice"),
    World("two methods, equally good", own_share=OWN_SHARE),
    World("one method, +1 point", PLANTED),
    World("two methods, +1 point", PLANTED, OWN_SHARE),
)


@dataclass(frozen=True)
class Case:
    """What came of the simulations of one world, at so many seeds and examples; shares of 1."""

    world: str
    difference: float
    examples: int
    seeds: int
    simulations: int
    found: float
    covered: float
    arm_covered: float
    half_width: float
    bootstrap_found: float


def answers(
    world: World, seeds: int, examples: int, seed_sd: float, rng: np.random.Generator
) -> tuple[Answers, Answers]:
    """Right and wrong of both methods on one new test set, with new seeds; the second is better."""
    shared = rng.standard_normal(examples, dtype=np.float32)
    drawn = []
    for effect in (0.0, world.difference):
        ease = shared
        if world.own_share:
            own = rng.standard_normal(examples, dtype=np.float32)
            ease = (1 - world.own_share) ** 0.5 * shared + world.own_share**0.5 * own
        chance = 1 / (1 + np.exp(-EASE - EASE_SD * ease))
        moves = (effect + seed_sd * rng.standard_normal((seeds, 1))) / UNCERTAIN
        right = chance + moves.astype(np.float32) * (chance * (1 - chance))
        drawn.append(rng.random((seeds, examples), dtype=np.float32) < right)
    return drawn[0], drawn[1]


class Bootstrap:
    """The usual paired bootstrap over seeds and examples, percentile interval: for contrast.

    The counts of a resample do not depend on the data, so they are drawn once.
    """

    def __init__(self, seeds: int, examples: int, rng: np.random.Generator) -> None:
        each = np.full(seeds, 1 / seeds)
        self.seeds = rng.multinomial(seeds, each, RESAMPLES).T.astype(np.float32) / seeds
        self.examples = np.empty((examples, RESAMPLES), np.float32)
        for column in range(RESAMPLES):
            drawn = rng.integers(examples, size=examples)
            self.examples[:, column] = np.bincount(drawn, minlength=examples) / examples

    def found(self, a: Answers, b: Answers) -> bool:
        """Whether the 95 % interval of the resampled differences leaves zero out."""
        differences = a.astype(np.float32) - b
        means = (self.seeds * (differences @ self.examples)).sum(axis=0)
        low, high = np.quantile(means, [0.025, 0.975])
        return bool(low > 0 or high < 0)


def simulate(
    world: World,
    *,
    seeds: int,
    examples: int,
    simulations: int,
    seed_sd: float = SEED_SD,
    bootstrapped: int = BOOTSTRAPPED,
    random_state: int = 0,
) -> Case:
    """Run the comparison `simulations` times where the truth is known, and count.

    >>> case = simulate(WORLDS[0], seeds=3, examples=200, simulations=20, bootstrapped=0)
    >>> case.simulations, 0 <= case.found <= 0.3
    (20, True)
    """
    rng = np.random.default_rng([random_state, WORLDS.index(world), seeds, examples])
    bootstrapped = min(bootstrapped, simulations)
    resampling = Bootstrap(seeds, examples, rng) if bootstrapped else None
    found = covered = arm_covered = bootstrap_found = 0
    half_width = 0.0
    for number in range(simulations):
        worse, better = answers(world, seeds, examples, seed_sd, rng)
        difference = compare_runs(better, worse)
        found += difference.found
        covered += difference.low <= world.difference <= difference.high
        half_width += (difference.high - difference.low) / 2
        _, low, high = arm_interval(worse)
        arm_covered += low <= ACCURACY <= high
        if resampling and number < bootstrapped:
            bootstrap_found += resampling.found(better, worse)
    return Case(
        world=world.name,
        difference=world.difference,
        examples=examples,
        seeds=seeds,
        simulations=simulations,
        found=found / simulations,
        covered=covered / simulations,
        arm_covered=arm_covered / simulations,
        half_width=half_width / simulations,
        bootstrap_found=bootstrap_found / bootstrapped if bootstrapped else -1.0,
    )


def promises(cases: Sequence[Case]) -> list[tuple[str, bool]]:
    """What regard promises of its comparisons, each with whether these simulations keep it."""
    same = [case for case in cases if not case.difference]
    planted = [case for case in cases if case.world == WORLDS[2].name and case.seeds >= 10]
    return [
        (
            "false differences are 5 % ± 1.5",
            bool(same) and all(abs(case.found - 0.05) <= 0.015 for case in same),
        ),
        (
            "the 95 % interval covers the truth 95 % ± 1.5 of the time",
            all(abs(case.covered - 0.95) <= 0.015 for case in cases),
        ),
        (
            "one point more is found 80 % of the time or more at 10 seeds",
            bool(planted) and all(case.found >= 0.8 for case in planted),
        ),
    ]


def table(cases: Sequence[Case]) -> str:
    """The cases as text, in per cent and points."""
    lines = [
        f"{'truth':<26}{'examples':>9}{'seeds':>6}{'found %':>9}{'covered %':>11}"
        f"{'arm covered %':>15}{'± points':>10}{'bootstrap found %':>19}"
    ]
    for case in cases:
        bootstrap = f"{100 * case.bootstrap_found:.1f}" if case.bootstrap_found >= 0 else ""
        lines.append(
            f"{case.world:<26}{case.examples:>9,}{case.seeds:>6}{100 * case.found:>9.1f}"
            f"{100 * case.covered:>11.1f}{100 * case.arm_covered:>15.1f}"
            f"{100 * case.half_width:>10.2f}{bootstrap:>19}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(description="False differences of simulated comparisons.")
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--examples", type=int, nargs="+", default=[2_000, 25_000])
    parser.add_argument("--seed-sd", type=float, default=SEED_SD)
    parser.add_argument("--no-bootstrap", action="store_true", help="leave the contrast out")
    parser.add_argument("--json", type=Path, help="write the cases there")
    asked = parser.parse_args(arguments)
    begun, cases = time.monotonic(), []
    for world in WORLDS:
        for examples in asked.examples:
            for seeds in asked.seeds:
                case = simulate(
                    world,
                    seeds=seeds,
                    examples=examples,
                    simulations=asked.simulations,
                    seed_sd=asked.seed_sd,
                    bootstrapped=0 if asked.no_bootstrap else BOOTSTRAPPED,
                )
                cases.append(case)
                show = table([case]).splitlines(keepends=True)
                sys.stdout.write("".join(show if len(cases) == 1 else show[1:]) + "\n")
                sys.stdout.flush()
    kept = promises(cases)
    for says, holds in kept:
        sys.stdout.write(f"{'holds' if holds else 'FAILS'}: {says}\n")
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{seconds:.0f} s\n")
    if asked.json:
        result = {
            "cases": [asdict(case) for case in cases],
            "claims": [{"says": says, "holds": holds} for says, holds in kept],
            "seconds": seconds,
        }
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
