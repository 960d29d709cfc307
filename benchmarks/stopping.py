"""Errors and seeds of studies that add seeds until a claim is decided, simulated.

Each study compares two methods after 3, 4, … 30 seeds by the rule of
`regard.lab.studies.stopping`, and ends as soon as they are different or equivalent within δ. The
true difference is 0, δ/2, δ or 2δ; that of a seed is drawn beside it.

A family compares four arms with one reference: every p is adjusted by Holm at every look, and only
the pairs that are undecided get more seeds. Its four true differences are alike, or one of each.

    python -m benchmarks.stopping --studies 2000 --json FILE
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from regard.core.atomic_io import write_json
from regard.lab.studies.statistics import holm
from regard.lab.studies.stopping import anytime_p, level, looks
from regard.lab.tasks.estimates import CONFIDENCE, components
from regard.lab.tasks.null_distribution import p_values

LOOKS = looks(3, 30)
TRUE = (0.0, 0.5, 1.0, 2.0)  # in δ
FAMILIES = (*((one,) * 4 for one in TRUE), TRUE)  # four arms against one
ALPHA = 1 - CONFIDENCE
PROMISED = ALPHA + 0.01
CHUNK = 100  # studies at once

Rng = np.random.Generator
Tables = Float[np.ndarray, "studies seeds examples"]


@dataclass(frozen=True)
class World:
    """Where differences come from: the draw of seeds of variance 1, and its scale in δ.

    `examples` of a test split have an effect of their own on all seeds, with this standard
    deviation of their mean, in δ; with none of them a seed is one number. Worlds that are not
    `promised` show where Student's t errs. `reference` is the share of the variance that comes from
    the reference, which the pairs of a family have in common.
    """

    name: str
    scale: float
    draw: Callable[[Rng, tuple[int, ...]], Shaped[np.ndarray, "..."]] = Rng.standard_normal
    examples: int = 0
    shared: float = 0.0
    promised: bool = True
    reference: float = 0.5


def heavy(rng: Rng, size: tuple[int, ...]) -> Shaped[np.ndarray, "..."]:
    """Draw Student's t with 3 degrees of freedom, scaled to the variance 1."""
    return np.asarray(rng.standard_t(3, size) / 3**0.5)


def skewed(rng: Rng, size: tuple[int, ...]) -> Shaped[np.ndarray, "..."]:
    """Draw exponential numbers, moved to the mean 0: now and then a training goes astray."""
    return np.asarray(1 - rng.exponential(size=size))


WORLDS = (
    World("normal, σ = δ/2", 0.5),
    World("normal, σ = δ", 1.0),
    World("normal, σ = 2δ", 2.0),
    World("heavy tails (t₃), σ = δ", 1.0, heavy),
    World("skewed (exponential), σ = δ", 1.0, skewed, promised=False, reference=0.0),
    World("σ = δ, and 200 test examples ± 0.3 δ", 1.0, examples=200, shared=0.3),
)


@dataclass(frozen=True)
class Case:
    """The shares of decisions of simulated studies, and the mean number of seeds.

    `naive`: how often any look has p < 5 %.
    """

    world: str
    true: float
    different: float
    equivalent: float
    undecided: float
    seeds: float
    naive: float

    @property
    def wrong(self) -> float:
        """Return the share of wrong decisions; between 0 and δ none is wrong."""
        if self.true == 0:
            return self.different
        return self.equivalent if self.true >= 1 else 0.0


@dataclass(frozen=True)
class FamilyCase:
    """The results of simulated families of four pairs; the shares without "false" are of pairs.

    `false_different`: the share of families in which any pair without a difference is called
    different; `false_equivalent`: in which any pair with a difference of δ or more is called
    equivalent. They are None if the family has no such pair.
    """

    world: str
    true: tuple[float, ...]
    false_different: float | None
    false_equivalent: float | None
    different: float
    equivalent: float
    undecided: float
    seeds: float

    @property
    def wrong(self) -> float:
        """Return the larger share of wrong families."""
        return max(self.false_different or 0.0, self.false_equivalent or 0.0)


def draw(world: World, true: float, studies: int, rng: Rng) -> Tables:
    """Draw the differences of studies by seed and example, with δ = 1."""
    gains = true + world.scale * world.draw(rng, (studies, LOOKS[-1], 1))
    if not world.examples:
        return np.repeat(gains, 2, axis=2)
    size = world.shared * world.examples**0.5
    noise = rng.standard_normal((studies, LOOKS[-1], world.examples))
    return np.asarray(
        gains + size * rng.standard_normal((studies, 1, world.examples)) + size * noise
    )


def decisions(tables: Tables) -> tuple[Shaped[np.ndarray, "studies looks"], ...]:
    """Return whether each look finds a difference, an equivalence within 1, and p < 5 %."""
    columns: list[list[Shaped[np.ndarray, " studies"]]] = [[], [], []]
    for seeds in LOOKS:
        p, outside = both_p(tables, seeds)
        columns[0].append(p < level(ALPHA, seeds, LOOKS))
        columns[1].append(outside < level(2 * ALPHA, seeds, LOOKS))
        columns[2].append(p < ALPHA)
    return tuple(np.stack(column, axis=1) for column in columns)


def both_p(tables: Tables, seeds: int) -> tuple[Shaped[np.ndarray, " studies"], ...]:
    """Return the usual two-sided p of no difference and of one at the nearer end of ±1."""
    mean, from_seeds, from_examples = components(tables[:, :seeds])
    parts = (from_seeds, from_examples, seeds - 1.0, tables.shape[2] - 1.0)
    room = 1 - np.abs(mean)
    return p_values(mean, *parts), np.where(room > 0, p_values(room, *parts), 1.0)


def family(world: World, true: Sequence[float], studies: int, seed: int = 0) -> FamilyCase:
    """Simulate families: one pair for each of the true differences, decided as one."""
    rng = np.random.default_rng([seed, *(round(2 * one) for one in true)])
    verdicts, seeds = [], []
    for begun in range(0, studies, CHUNK):
        size = min(CHUNK, studies - begun)
        shared = world.reference**0.5 * draw(world, 0.0, size, rng)
        own = (1 - world.reference) ** 0.5
        tables = [one + shared + own * draw(world, 0.0, size, rng) for one in true]
        p = np.array([[both_p(table, n) for n in LOOKS] for table in tables])
        for study in np.moveaxis(p, -1, 0):
            ends = decide_family(study)
            verdicts.append(ends[0])
            seeds.append(ends[1])
    different, equivalent = (np.array(verdicts) == word for word in ("different", "equivalent"))
    none, much = (np.array(true) == 0, np.array(true) >= 1)
    return FamilyCase(
        world.name,
        tuple(true),
        float(different[:, none].any(1).mean()) if none.any() else None,
        float(equivalent[:, much].any(1).mean()) if much.any() else None,
        float(different.mean()),
        float(equivalent.mean()),
        float((~different & ~equivalent).mean()),
        float(np.mean(seeds)),
    )


def decide_family(p: Float[np.ndarray, "pairs looks 2"]) -> tuple[list[str], list[int]]:
    """Return the verdict of each pair of a family, and its seeds, by the usual p at all looks.

    As `regard.lab.studies.compare`: an undecided pair gets more seeds, a decided one keeps its p.
    """
    open_pairs, stops = [*range(len(p))], [0] * len(p)
    small = [[1.0, 1.0] for _ in p]
    verdicts: list[str] = []
    for look, count in enumerate(LOOKS):
        for pair in open_pairs:
            stops[pair] = count
            usual, outside = (anytime_p(one, count, LOOKS) for one in p[pair, look])
            small[pair] = [usual, outside / 2]
        both = (holm(side) for side in zip(*small, strict=True))
        verdicts = [
            "different" if a < ALPHA else "equivalent" if b < ALPHA else "undecided"
            for a, b in zip(*both, strict=True)
        ]
        open_pairs = [pair for pair in open_pairs if verdicts[pair] == "undecided"]
        if not open_pairs:
            break
    return verdicts, stops


def simulate(world: World, true: float, studies: int, seed: int = 0) -> Case:
    """Simulate studies, each until it is decided or has no seeds left."""
    rng = np.random.default_rng([seed, round(2 * true)])
    parts = []
    for begun in range(0, studies, CHUNK):
        different, equivalent, naive = decisions(
            draw(world, true, min(CHUNK, studies - begun), rng)
        )
        decided = different | equivalent
        end = np.where(decided.any(1), decided.argmax(1), len(LOOKS) - 1)
        rows = np.arange(len(end))
        parts.append(
            np.stack(
                [different[rows, end], equivalent[rows, end] & ~different[rows, end],
                 ~decided.any(1), np.array(LOOKS)[end], naive.any(1)]
            )
        )  # fmt: skip
    return Case(world.name, true, *map(float, np.concatenate(parts, axis=1).mean(1)))


def table(cases: Sequence[Case]) -> str:
    """Return the cases as a table in Markdown."""
    lines = [
        "| seeds' differences | true | different | equivalent | undecided | seeds "
        "| p < 5 % at any look |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for one in cases:
        shares = (one.different, one.equivalent, one.undecided)
        cells = " | ".join(f"{100 * share:.1f}" for share in shares)
        lines.append(
            f"| {one.world} | {one.true:g} δ | {cells} | {one.seeds:.1f} | {100 * one.naive:.1f} |"
        )
    return "\n".join(lines)


def family_table(cases: Sequence[FamilyCase]) -> str:
    """Return the families as a table in Markdown."""
    lines = [
        "| seeds' differences | true, δ | false different | false equivalent | different "
        "| equivalent | undecided | seeds |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for one in cases:
        shares = [one.false_different, one.false_equivalent]
        shares += [one.different, one.equivalent, one.undecided]
        cells = " | ".join("–" if share is None else f"{100 * share:.1f}" for share in shares)
        same = len({*one.true}) == 1
        true = f"{one.true[0]:g}, all" if same else ", ".join(f"{x:g}" for x in one.true)
        lines.append(f"| {one.world} | {true} | {cells} | {one.seeds:.1f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate all cases; print the table; return the number of broken promises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    begun = time.perf_counter()
    cases = [
        simulate(world, true, options.studies, options.seed) for world in WORLDS for true in TRUE
    ]
    families = [
        family(world, true, options.studies, options.seed) for world in WORLDS for true in FAMILIES
    ]
    print(table(cases))
    print(f"\n{family_table(families)}")
    promised = {world.name for world in WORLDS if world.promised}
    every: list[Case | FamilyCase] = [*cases, *families]
    broken = [one for one in every if one.wrong > PROMISED and one.world in promised]
    for one in broken:
        print(f"broken: {one.world}, {one.true} δ: {100 * one.wrong:.1f} % are wrong")
    print(f"{time.perf_counter() - begun:.0f} s")
    if options.json:
        rows = {"cases": [*map(asdict, cases)], "families": [*map(asdict, families)]}
        write_json(options.json, {**rows, "broken": len(broken)})
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
