"""The verdicts of studies that add seeds: against scipy, by hand, and in simulated studies."""

import math

import numpy as np
import pytest
from scipy import stats

from regard.lab.studies.statistics import (
    Difference,
    compare_runs,
    holm,
    written_margin,
)
from regard.lab.studies.stopping import anytime_p, decide, level, looks

LOOKS = looks(3, 30)


def pair(gains: np.ndarray, name: str = "cnn", unit: str = "points") -> Difference:
    """The difference of an arm with these gains by seed, the same for all test examples."""
    table = np.repeat(gains[:, None], 1000, axis=1)
    return compare_runs(table, np.zeros_like(table), (name, "rnn"), unit=unit)


def verdict(gains: np.ndarray, margin: float, declared: tuple[int, ...] = ()) -> Difference:
    return decide([pair(gains)], margin, [(len(gains), declared or (len(gains),))])[0]


def test_with_one_look_the_numbers_are_those_of_scipy() -> None:
    gains = np.array([0.004, -0.002, 0.007, 0.001, 0.003])
    found = verdict(gains, 0.01)
    assert found.p == pytest.approx(stats.ttest_1samp(gains, 0).pvalue)
    upper = stats.ttest_1samp(gains, 0.01, alternative="less").pvalue
    lower = stats.ttest_1samp(gains, -0.01, alternative="greater").pvalue
    assert found.p_equivalent == pytest.approx(max(upper, lower))
    half = stats.sem(gains) * stats.t.ppf([0.975, 0.95], 4)
    assert (found.low, found.high) == pytest.approx(
        (gains.mean() - half[0], gains.mean() + half[0])
    )
    assert found.inner == pytest.approx((gains.mean() - half[1], gains.mean() + half[1]))
    assert found.verdict == "equivalent"


@pytest.mark.parametrize(
    ("mean", "margin", "expected"),
    [(0.02, 0.01, "different"), (0.001, 0.01, "equivalent"), (0.004, 0.004, "undecided"),
     (-0.02, 0.01, "different"), (-0.001, 0.01, "equivalent")],
)  # fmt: skip
def test_the_verdict_is_that_of_the_intervals(mean: float, margin: float, expected: str) -> None:
    gains = mean + 0.004 * np.array([1.0, -1.0, 1.0, -1.0, 0.0])
    found = verdict(gains, margin, (3, 4, 5))
    assert found.verdict == expected
    assert (found.low > 0 or found.high < 0) == (expected == "different")
    inside = -margin < found.inner[0] and found.inner[1] < margin
    assert inside == (expected == "equivalent")
    assert math.isclose(found.mean, gains.mean())


def test_a_difference_that_does_not_matter_is_still_a_difference() -> None:
    found = verdict(0.002 + 1e-4 * np.array([1.0, -1.0, 0.5, -0.5]), 0.01, (3, 4))
    assert found.p_equivalent < 0.05
    assert found.verdict == "different"


def test_one_seed_is_about_two_models() -> None:
    right = np.ones((1, 2000), bool)
    found = decide([compare_runs(right, right, ("a", "b"))], 0.01, [(1, (1,))])[0]
    assert found.verdict == "equivalent"
    assert found.sentence.startswith("a and b are equivalent within 1 point: 0.00 points (90 %: ")
    assert found.sentence.endswith("; one seed: two models, not two methods")
    assert compare_runs(right, ~right).verdict is None  # without a margin


def test_the_levels_use_up_the_error_rate_and_grow_with_the_root_of_the_seeds() -> None:
    levels = np.array([level(0.05, n, LOOKS) for n in LOOKS])
    assert levels / levels[-1] == pytest.approx(np.sqrt(np.array(LOOKS) / 30))
    gains = np.random.default_rng(1).standard_normal((40_000, 30))  # not the simulation's own
    any_look = np.zeros(len(gains), bool)
    for seeds, at in zip(LOOKS, levels, strict=True):
        any_look |= stats.ttest_1samp(gains[:, :seeds], 0, axis=1).pvalue < at
    assert any_look.mean() == pytest.approx(0.05, abs=0.004)


def test_the_p_of_any_look_is_the_level_that_it_reaches() -> None:
    for alpha in (0.3, 0.05, 0.01):
        for seeds in (3, 12, 30):
            assert anytime_p(level(alpha, seeds, LOOKS), seeds, LOOKS) == pytest.approx(
                alpha, rel=0.01
            )
    assert anytime_p(1e-9, 30, LOOKS) == pytest.approx(1e-9 * sum((n / 30) ** 0.5 for n in LOOKS))
    assert anytime_p(1.0, 3, LOOKS) == 1
    assert math.isnan(anytime_p(float("nan"), 3, LOOKS))


def test_holm_adjusts_both_errors_over_the_family() -> None:
    rng = np.random.default_rng(2)
    arms = [pair(x, str(i)) for i, x in enumerate(0.003 * rng.standard_normal((3, 6)))]
    alone = [decide([one], 0.01, [(6, (3, 6))])[0] for one in arms]
    family = decide(arms, 0.01, [(6, (3, 6))] * 3)
    assert [one.p for one in family] == holm([one.p for one in alone])
    assert [one.p_equivalent for one in family] == holm([one.p_equivalent for one in alone])
    assert {one.family for one in family} == {3}


def test_the_looks_are_each_a_quarter_later() -> None:
    assert looks(5, 5) == (5,)
    assert looks(2, 9) == (2, 3, 4, 5, 6, 7, 8, 9)
    assert looks(10, 20) == (10, 12, 15, 18, 20)


def test_the_sentences_name_the_margin_and_the_seeds() -> None:
    steady = 0.001 * np.array([1.0, -1.0, 0.5, -0.5, 0.0])
    equal = verdict(steady, 0.01, (3, 4, 5))
    assert equal.sentence.startswith(
        "cnn and rnn are equivalent within 1 point: 0.00 points (90 %: −0.1"
    )
    assert equal.sentence.endswith(", 5 seeds)")
    better = verdict(0.05 + steady, 0.01, (3, 4, 5))
    assert better.sentence.startswith("cnn beats rnn by 5.00 points (4.8")
    assert better.sentence.endswith("p < 0.001, 5 seeds)")
    open_ = verdict(20 * steady, 0.01, (3, 4, 5))
    assert open_.sentence.startswith("cnn and rnn are undecided: 0.0 points (−2.")
    assert open_.sentence.endswith(", 5 seeds), not within ±1 point")
    assert written_margin(0.005, "points") == "0.5 points"
