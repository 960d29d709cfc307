"""Simulated runs of methods on test sets with known true scores.

**Labels.** Three classes, 70, 20 and 10 % of the examples. Example i of class c has the ease

    l[i] = EASE[c] + 4.966 z[i]                  in logits, z standard normal
    p[i] = 1 / (1 + exp(−l[i]))                  an average seed is right so often
    P(right[s, i]) = p[i] + (a[s, c] + effect) p[i] (1 − p[i]) / U[c],   U[c] = mean of p (1 − p)

a[s, c] is the effect of a seed on a class, in shares of its recall; it and the arm's effect change
uncertain examples and not easy ones. A wrong answer is the example's most tempting label. About
84 % of the answers are right, and two seeds of one method disagree on 9 % of the examples.

**Texts.** A sentence of 6 to 24 words, of which the share

    f[s, i] = 0.66 + 0.17 z[i] + a[s] + effect + 0.1 e[s, i]      clipped to 0.05 … 1

is also in its reference, and f^n of its n-grams; its length differs from the reference's by up to
two words. These are BLEU's sufficient statistics; the corpora have about 42 BLEU.

Methods of different kinds share only part of z: equally good on average, with other errors.
Examples of one group (of 20) share 70 % of every z, and half of the draws that decide whether a
seed is right, so that seeds and methods err by groups.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Integer, Shaped

from regard.lab.tasks.classification.metrics import METRICS, effects

SHARES = np.array([0.7, 0.2, 0.1])  # of the classes
EASE, EASE_SD = np.array([5.948, 4.5, 3.5]), 4.966
LUCK = np.array([0.004, 0.006, 0.008])  # standard deviations of a[s, c]
TEMPTS = np.array([[0.0, 2 / 3, 1 / 3], [0.8, 0.0, 0.2], [0.7, 0.3, 0.0]])  # [true, said]
OWN_SHARE = 0.3  # of the variance of z, in methods of different kind
GROUP, GROUP_SHARE = 20, 0.7
MATCH, MATCH_SD, NOISE, TEXT_LUCK = 0.66, 0.17, 0.1, 0.002
CLASSES = len(SHARES)

Random = np.random.Generator
Answers = Integer[np.ndarray, "studies arms seeds examples"]
Statistics = Float[np.ndarray, "numbers studies arms seeds examples"]


@dataclass(frozen=True)
class World:
    """The properties of the methods: whether their errors agree, and the spread of their seeds."""

    name: str
    own_share: float = 0.0
    luck: float = 1.0  # times LUCK


WORLDS = (World("one method"), World("several methods", OWN_SHARE))


@dataclass(frozen=True)
class Design:
    """The size of studies: their number, arms (the first is the reference), seeds, examples."""

    studies: int
    arms: int
    seeds: int
    examples: int
    grouped: bool = False

    @property
    def groups(self) -> Integer[np.ndarray, " examples"] | None:
        """Return the group of each example."""
        return np.arange(self.examples) // GROUP if self.grouped else None


def _normal(design: Design, arms: int, rng: Random) -> Float[np.ndarray, "studies arms 1 examples"]:
    """Draw standard normals of examples, correlated within groups."""
    shape = (design.studies, arms, 1, design.examples)
    z = rng.standard_normal(shape, dtype=np.float32)
    if design.grouped:
        size = (*shape[:3], -(-design.examples // GROUP))
        z *= (1 - GROUP_SHARE) ** 0.5
        shared = GROUP_SHARE**0.5 * rng.standard_normal(size, dtype=np.float32)
        z += np.repeat(shared, GROUP, -1)[..., : design.examples]
    return z


def _ease(
    world: World, design: Design, rng: Random
) -> Float[np.ndarray, "studies arms 1 examples"]:
    z = _normal(design, 1, rng)
    if world.own_share:
        own = _normal(design, design.arms, rng)
        z = np.float32((1 - world.own_share) ** 0.5) * z + np.float32(world.own_share**0.5) * own
    return z


def _uniform(design: Design, rng: Random) -> Float[np.ndarray, "studies arms seeds examples"]:
    """Draw uniform numbers; in groups half of them are their group's."""
    shape = (design.studies, design.arms, design.seeds, design.examples)
    u = rng.random(shape, dtype=np.float32)
    if design.grouped:
        shared = rng.random((*shape[:3], -(-design.examples // GROUP)), dtype=np.float32)
        own = 2 * u - 1
        u = np.where(own >= 0, own, np.repeat(shared, GROUP, -1)[..., : design.examples])
    return u


def _effects(design: Design, effect: float) -> Float[np.ndarray, "arms 1 1"]:
    """Return the effects: the second arm has one, the others are as good as the reference."""
    return np.asarray(effect * (np.arange(design.arms) == 1)[:, None, None])


def answers(
    world: World, design: Design, effect: float, rng: Random
) -> tuple[Shaped[np.ndarray, "studies examples"], Answers]:
    """Draw the labels of new test sets and the answers of new seeds of each arm."""
    labels = rng.choice(CLASSES, (design.studies, design.examples), p=SHARES).astype(np.int8)
    tempting = np.stack(
        [rng.choice(CLASSES, labels.shape, p=row).astype(np.int8) for row in TEMPTS]
    )
    wrong = np.take_along_axis(tempting, labels[None].astype(np.intp), 0)[0]
    ease = EASE.astype(np.float32)[labels][:, None, None] + EASE_SD * _ease(world, design, rng)
    chance = (1 / (1 + np.exp(-ease))).astype(np.float32)
    lucks = world.luck * LUCK * rng.standard_normal((design.studies, design.arms, design.seeds, 3))
    lucks = ((lucks + _effects(design, effect)) / uncertain()).astype(np.float32)
    at = labels[:, None, None].astype(np.intp)
    shape = (design.studies, design.arms, design.seeds, design.examples)
    moves = np.take_along_axis(lucks, np.broadcast_to(at, shape), -1)
    moves *= chance * (1 - chance)
    moves += chance
    right = _uniform(design, rng) < moves
    return labels, np.where(right, labels[:, None, None], wrong[:, None, None])


@lru_cache(maxsize=1)
def uncertain() -> Float[np.ndarray, " classes"]:
    """Return the mean of p (1 − p) of each class."""
    _, chance = _chances()
    return np.asarray((chance * (1 - chance)).mean(-1))


def _chances() -> tuple[Float[np.ndarray, " z"], Float[np.ndarray, "classes z"]]:
    """Return quantiles of z, and p at them by class."""
    from scipy.special import ndtri

    z = ndtri((np.arange(2000) + 0.5) / 2000)
    return z, 1 / (1 + np.exp(-EASE[:, None] - EASE_SD * z))


def confusions(
    world: World, effect: float, draws: int = 2_000
) -> Float[np.ndarray, "draws classes classes"]:
    """Compute the confusion shares[true, said] of seeds on infinitely many examples."""
    rng = np.random.default_rng(1)
    _, chance = _chances()
    moves = world.luck * LUCK * rng.standard_normal((draws // 2, CLASSES))
    moves = (np.concatenate([moves, -moves]) + effect) / uncertain()
    recall = np.stack(
        [np.clip(chance + move[:, None] * chance * (1 - chance), 0, 1).mean(-1) for move in moves]
    )
    wrong = (1 - recall)[..., None] * TEMPTS
    return np.asarray(SHARES[:, None] * (wrong + recall[..., None] * np.eye(CLASSES)))


def macro(
    metric: str, counts: Shaped[np.ndarray, "*cases classes classes"]
) -> Shaped[np.ndarray, "*cases"]:
    """Macro-F1, balanced accuracy or accuracy of confusion counts[true, said]."""
    counts = np.asarray(counts, dtype=np.float64)
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    if metric == "accuracy":
        return np.asarray(hits.sum(-1) / counts.sum((-2, -1)))
    whole = (
        counts.sum(-1) if metric == "balanced accuracy" else (counts.sum(-1) + counts.sum(-2)) / 2
    )
    shares = np.divide(hits, whole, out=np.zeros_like(hits), where=whole > 0)
    return np.asarray(shares.sum(-1) / (whole > 0).sum(-1))


def pseudo_values(
    metric: str, labels: Shaped[np.ndarray, "studies examples"], said: Answers
) -> Float[np.ndarray, "studies arms seeds examples"]:
    """Compute `regard.lab.tasks.classification.metrics.per_example` of many runs at once.

    A value depends only on the cell of the confusion counts, so a run has one per cell.
    """
    if metric == "accuracy":
        return np.asarray(said == labels[:, None, None])
    cells = CLASSES**2
    at = labels[:, None, None].astype(np.int32) * CLASSES + said
    runs = at.size // at.shape[-1]
    at += (np.arange(runs, dtype=np.int32) * cells).reshape(*at.shape[:-1], 1)
    counts = np.bincount(at.ravel(), minlength=runs * cells).reshape(runs, CLASSES, CLASSES)
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    name = {label: key for key, label in METRICS.items()}[metric]
    hit, missed, false = effects(name, hits, counts.sum(-1), counts.sum(-2))
    values = missed[:, :, None] + false[:, None]
    values[:, range(CLASSES), range(CLASSES)] = hit
    values *= said.shape[-1] - 1
    means = (values * counts).sum((1, 2)) / said.shape[-1]
    values += (macro(metric, counts) - means)[:, None, None]
    return np.asarray(values.astype(np.float32).ravel()[at])


def texts(world: World, design: Design, effect: float, rng: Random) -> Statistics:
    """Draw the sufficient statistics of new texts, as sacreBLEU orders them.

    Words of the output, words of the reference, matching n-grams, n-grams: 2 + 4 + 4 numbers.
    """
    wanted = rng.integers(6, 25, (design.studies, 1, 1, design.examples)).astype(np.float32)
    lucks = (
        world.luck * TEXT_LUCK * rng.standard_normal((design.studies, design.arms, design.seeds, 1))
    )
    lucks += _effects(design, effect)
    u = _uniform(design, rng)
    # A uniform draw of variance 1, whose last digits choose the length.
    share = np.float32(12**0.5 * NOISE) * (u - np.float32(0.5))
    share += np.float32(MATCH_SD) * _ease(world, design, rng)
    share += (MATCH + lucks).astype(np.float32)
    np.clip(share, 0.05, 1.0, out=share)
    said = wanted + np.floor((u * 4096) % 1 * 5) - 2
    found = np.empty((10, *share.shape), np.float32)
    found[0], found[1] = said, wanted
    matched = share.copy()
    for n in range(4):
        found[6 + n] = said - n
        np.rint(matched * found[6 + n], out=found[2 + n])
        matched *= share
    return found


def bleu(total: Shaped[np.ndarray, " numbers *runs"]) -> Shaped[np.ndarray, " *runs"]:
    """Return corpus BLEU as a share, from summed statistics with a match of every order."""
    product = (total[2] / total[6]) * (total[3] / total[7])
    product *= (total[4] / total[8]) * (total[5] / total[9])
    return np.asarray(np.sqrt(np.sqrt(product)) * np.exp(np.minimum(0, 1 - total[1] / total[0])))


def bleu_pseudo_values(found: Statistics) -> Float[np.ndarray, "studies arms seeds examples"]:
    """Compute what `Judgement.pseudo_values` of `regard.lab.tasks.writing.metrics` computes."""
    total = found.sum(-1, keepdims=True)  # whole numbers below 2^24, so exact
    whole, without = bleu(total), bleu(total - found)
    return np.asarray(whole + (found.shape[-1] - 1) * (without.mean(-1, keepdims=True) - without))


@lru_cache(maxsize=32)
def truth(metric: str, world: World, effect: float = 0.0) -> float:
    """Compute the expected metric of a seed on infinitely many examples."""
    if metric != "BLEU":
        return float(macro(metric, confusions(world, effect)).mean())
    steady = World("", 0.0, 0.0)
    lucks = world.luck * TEXT_LUCK * np.array([-(3**0.5), 0.0, 3**0.5])
    values = []
    for luck in lucks:  # three nodes of Gauss-Hermite: exact to the fifth power of the luck
        rng = np.random.default_rng(2)
        drawn = texts(steady, Design(1, 2, 1, 500_000), effect + float(luck), rng)
        values.append(float(bleu(drawn[:, 0, 1, 0].sum(-1, dtype=np.float64))))
    return float(np.dot([1 / 6, 2 / 3, 1 / 6], values))
