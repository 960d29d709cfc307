"""Rates of false differences: regard's statistics on simulated runs.

Each simulation draws a new test set and new seeds of twelve equally good methods
(`benchmarks.simulated_runs`) and compares eleven of them with the first, through
`regard.lab.studies.statistics`, the code of real comparisons. The families of 1 and 4
comparisons are the first of the eleven, studies of 2, 3 and 5 seeds the first of the ten.
A second simulation makes one method better by a point, and counts how often it is found.

    python -m benchmarks.false_differences --simulations 2000 --json FILE
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Shaped

from benchmarks.simulated_runs import (
    WORLDS,
    Design,
    World,
    answers,
    bleu_pseudo_values,
    pseudo_values,
    texts,
    truth,
)
from regard.lab.studies.statistics import at_least
from regard.lab.tasks.estimates import components, effective, group_sizes
from regard.lab.tasks.null_distribution import p_values, reach, smallest

METRICS = ("accuracy", "macro-F1", "balanced accuracy", "BLEU")
FAMILIES = (1, 4, 11)
SEEDS = (2, 3, 5, 10)
EXAMPLES = 1_000
PLANTED = 0.01
LEVEL = 0.05
CHUNK = 500_000  # scores at once

Scores = Shaped[np.ndarray, "studies arms seeds examples"]


@dataclass(frozen=True)
class Study:
    """The results of many simulated studies of one size, one entry each, as shares of 1.

    `p` of each comparison, whether its interval `covered` the true value, and the first arm's too;
    `naive` is the first p with groups ignored.
    """

    p: Float[np.ndarray, "studies comparisons"]
    covered: Bool[np.ndarray, "studies comparisons"]
    arm_covered: Bool[np.ndarray, " studies"]
    naive: Float[np.ndarray, " studies"]
    from_seeds: Float[np.ndarray, "studies comparisons"]
    from_examples: Float[np.ndarray, "studies comparisons"]


@dataclass(frozen=True)
class Case:
    """The results of the simulations of one metric, world and number of seeds; shares of 1.

    `found` is how often a family of 1, 4 and 11 comparisons found a difference without one,
    `tail` how often p < 0.001 without a difference, `power` how often the planted one was found
    among as many; `naive` is ``found[0]`` with groups ignored; `half_width` and `smallest` are of
    the mean variances of one comparison.
    """

    metric: str
    world: str
    grouped: bool
    seeds: int
    simulations: int
    found: tuple[float, ...]
    tail: float
    covered: float
    arm_covered: float
    planted_covered: float
    power: tuple[float, ...]
    half_width: float
    smallest: float
    naive: float


def drawn(
    world: World, design: Design, effect: float, rng: np.random.Generator, metrics: Sequence[str]
) -> Iterator[tuple[str, Scores]]:
    """Yield simulated scores by metric; those of labels are of the same answers."""
    classified = [metric for metric in metrics if metric != "BLEU"]
    if classified:
        labels, said = answers(world, design, effect, rng)
        for metric in classified:
            yield metric, pseudo_values(metric, labels, said)
    if "BLEU" in metrics:
        yield "BLEU", bleu_pseudo_values(texts(world, design, effect, rng))


def judge(metric: str, scores: Scores, design: Design, world: World, effect: float) -> Study:
    """Compare all arms with the first, as `compare_runs` does, in many studies at once."""
    groups = design.groups
    right = truth(metric, world)
    gains = np.zeros(design.arms - 1)
    gains[0] = truth(metric, world, effect) - right
    seeds_freedom = scores.shape[2] - 1.0
    examples_freedom = effective(group_sizes(groups, design.examples)) - 1
    freedoms = (seeds_freedom, examples_freedom)
    differences = np.subtract(scores[:, 1:], scores[:, :1], dtype=np.float32)
    mean, from_seeds, from_examples = components(differences, groups)
    if metric == "accuracy":
        from_seeds, from_examples = at_least(differences, from_seeds, from_examples)
    parts = (from_seeds, from_examples, *freedoms)
    naive = mean[:, 0], from_seeds[:, 0], from_examples[:, 0]
    if groups is not None:
        naive = components(differences[:, 0])
    return Study(
        p_values(mean, *parts),
        p_values(mean - gains, *parts) >= LEVEL,
        _covers(metric, *components(scores[:, 0], groups), *freedoms, right),
        p_values(*naive, seeds_freedom, design.examples - 1.0),
        from_seeds,
        from_examples,
    )


def _covers(
    metric: str,
    mean: Float[np.ndarray, " studies"],
    from_seeds: Float[np.ndarray, " studies"],
    from_examples: Float[np.ndarray, " studies"],
    seeds_freedom: float,
    examples_freedom: float,
    right: float,
) -> Bool[np.ndarray, " studies"]:
    """Return whether `arm_interval` contains the true value; for accuracy, Wilson's."""
    gap = mean - right
    if metric == "accuracy":
        gap = gap * np.sqrt(mean * (1 - mean) / (right * (1 - right)))
    parts = (from_seeds, from_examples, seeds_freedom, examples_freedom)
    return np.asarray(p_values(gap, *parts) >= LEVEL)


def simulate(
    world: World,
    *,
    grouped: bool,
    effect: float = 0.0,
    arms: int = 1 + FAMILIES[-1],
    seeds: Sequence[int] = SEEDS,
    examples: int = EXAMPLES,
    simulations: int,
    metrics: Sequence[str] = METRICS,
    random_state: int = 0,
) -> Mapping[tuple[str, int], Study]:
    """Simulate studies and evaluate them, by metric and number of seeds.

    >>> studies = simulate(WORLDS[0], grouped=False, arms=3, seeds=(3,), simulations=20,
    ...                    examples=200, metrics=("accuracy",))
    >>> studies["accuracy", 3].p.shape
    (20, 2)
    """
    key = [random_state, WORLDS.index(world), grouped, examples, arms, round(1e6 * effect)]
    rng = np.random.default_rng(key)
    parts: dict[tuple[str, int], list[Study]] = {}
    at_once = max(1, CHUNK // (arms * max(seeds) * examples))
    for begun in range(0, simulations, at_once):
        studies = min(at_once, simulations - begun)
        design = Design(studies, arms, max(seeds), examples, grouped)
        for metric, scores in drawn(world, design, effect, rng, metrics):
            for count in seeds:
                study = judge(metric, scores[:, :, :count], design, world, effect)
                parts.setdefault((metric, count), []).append(study)
    return {key: _joined(studies) for key, studies in parts.items()}


def _joined(studies: Sequence[Study]) -> Study:
    return Study(
        *(np.concatenate([getattr(s, name) for s in studies]) for name in vars(studies[0]))
    )


def cases(
    world: World,
    grouped: bool,
    simulations: int,
    *,
    seeds: Sequence[int] = SEEDS,
    examples: int = EXAMPLES,
    metrics: Sequence[str] = METRICS,
) -> list[Case]:
    """Simulate a world without and with a planted difference, and count."""
    run = partial(
        simulate,
        world,
        grouped=grouped,
        seeds=seeds,
        examples=examples,
        simulations=simulations,
        metrics=metrics,
    )
    same, planted = run(), run(effect=PLANTED, arms=2)
    freedom = effective(group_sizes(Design(1, 1, 1, examples, grouped).groups, examples)) - 1
    found = []
    for (metric, count), study in same.items():
        other = planted[metric, count]
        parts = (float(study.from_seeds.mean()), float(study.from_examples.mean()))
        found.append(
            Case(
                metric,
                world.name,
                grouped,
                count,
                simulations,
                found=tuple(float((study.p[:, :k].min(1) < LEVEL / k).mean()) for k in FAMILIES),
                tail=float((study.p < 0.001).mean()),
                covered=float(study.covered.mean()),
                arm_covered=float(study.arm_covered.mean()),
                planted_covered=float(other.covered.mean()),
                power=tuple(float((other.p[:, 0] < LEVEL / k).mean()) for k in FAMILIES),
                half_width=float(reach(LEVEL, *parts, count - 1.0, freedom)),
                smallest=smallest(LEVEL, *parts, count - 1.0, freedom),
                naive=float((study.naive < LEVEL).mean()),
            )
        )
    return found


def promises(found: Sequence[Case]) -> list[tuple[str, bool]]:
    """Return regard's promises about comparisons, each with whether these simulations keep it."""
    more = [case for case in found if case.seeds > 2]
    shares = [s for c in more for s in (c.covered, c.planted_covered, c.arm_covered)]
    two = [s for c in found for s in (c.covered, c.planted_covered, c.arm_covered)]
    return [
        (
            "families find a false difference at most 5 % + 1.5 of the time",
            all(share <= 0.065 for case in found for share in case.found),
        ),
        (
            "the 95 % intervals cover the truth 95 % ± 1.5 of the time with 3 seeds or more",
            all(abs(share - 0.95) <= 0.015 for share in shares),
        ),
        (
            "the 95 % intervals cover the truth at least 93.5 % of the time, always",
            all(share >= 0.935 for share in two),
        ),
    ]


def table(found: Sequence[Case]) -> str:
    """Return the cases as a Markdown table, in per cent and points."""
    heads = [
        "metric",
        "seeds",
        *(f"found of {k}" for k in FAMILIES),
        "p < 0.001",
        "covered",
        "planted covered",
    ]
    heads += ["arm covered", "± points", "smallest", *(f"power of {k}" for k in FAMILIES)]
    heads += ["groups ignored"] if any(case.grouped for case in found) else []
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    for case in found:
        numbers = [case.covered, case.planted_covered, case.arm_covered]
        cells = [case.metric, str(case.seeds), *(f"{100 * share:.1f}" for share in case.found)]
        cells += [f"{100 * case.tail:.2f}", *(f"{100 * number:.1f}" for number in numbers)]
        cells += [f"{100 * case.half_width:.2f}", f"{100 * case.smallest:.1f}"]
        cells += [f"{100 * number:.1f}" for number in case.power]
        cells += [f"{100 * case.naive:.1f}"] if case.grouped else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description="False differences of simulated comparisons.")
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS)
    parser.add_argument("--json", type=Path, help="write the cases there")
    asked = parser.parse_args(arguments)
    begun, found = time.process_time(), list[Case]()
    for world in WORLDS:
        for grouped in (False, True):
            here = cases(
                world,
                grouped,
                asked.simulations,
                seeds=asked.seeds,
                examples=asked.examples,
                metrics=asked.metrics,
            )
            found += here
            kind = "groups of 20" if grouped else "no groups"
            sys.stdout.write(f"\n{world.name}, {kind}\n\n{table(here)}\n")
            sys.stdout.flush()
    kept = promises(found)
    sys.stdout.write("\n")
    for says, holds in kept:
        sys.stdout.write(f"{'holds' if holds else 'FAILS'}: {says}\n")
    seconds = time.process_time() - begun
    sys.stdout.write(f"{seconds:.0f} s of one processor\n")
    if asked.json:
        result = {
            "cases": [asdict(case) for case in found],
            "claims": [{"says": says, "holds": holds} for says, holds in kept],
            "seconds": seconds,
        }
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(holds for _, holds in kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
