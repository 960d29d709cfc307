"""The statistics against numbers by hand, scipy, and the corners where variance vanishes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from regard.core.errors import RegardError
from regard.lab.studies.statistics import (
    Difference,
    compare_runs,
    holm,
    judge,
)
from regard.lab.tasks.estimates import Estimate, arm_interval, components, effective, estimate
from regard.lab.tasks.null_distribution import p_values, smallest


def table(*rows: str) -> np.ndarray:
    """Right and wrong as strings of 1 and 0, a row a seed."""
    return np.array([[c == "1" for c in row] for row in rows])


def test_no_claim_is_made_of_an_arm_that_was_not_trained_to_its_end() -> None:
    right = np.random.default_rng(5).random((3, 400)) < 0.9
    wrong = right & (np.random.default_rng(6).random((3, 400)) < 0.7)
    found = compare_runs(right, wrong, ("cnn", "rnn"))
    assert found.claimed
    assert found.sentence.startswith("cnn beats rnn by ")
    loser = replace(found, untrained=("rnn",))
    assert loser.significant
    assert not loser.claimed
    assert loser.sentence.startswith("cnn is ahead of rnn by ")
    assert loser.sentence.endswith("; rnn was not trained to the end: no claim about the methods")
    winner = replace(found, untrained=("cnn",), steps={"cnn": 1200, "rnn": 900})
    assert not winner.claimed  # nor may an arm that is still rising beat another
    assert winner.sentence.startswith("cnn after 1,200 steps is ahead of rnn after 900 steps by ")
    assert winner.sentence.endswith("; cnn was not trained to the end: no claim about the methods")
    both = replace(found, untrained=("cnn", "rnn"))
    assert "; neither was trained to the end: no claim about the methods" in both.sentence
    stuck = replace(found, untrained=("cnn", "rnn"), stuck=("rnn",))
    assert (
        "; rnn never left the trivial answer, cnn was not trained to the end: no claim"
        in stuck.sentence
    )
    assert all("beats" not in one.sentence for one in (loser, winner, both, stuck))
    alike = replace(found, mean=0.001, p=0.8, untrained=("rnn",))
    assert alike.sentence.startswith("no evidence of a difference between cnn and rnn: ")
    assert alike.sentence.endswith("; not trained to the end: rnn")
    alike = replace(alike, stuck=("rnn",))
    assert alike.sentence.endswith("; not trained to the end: rnn (never left the trivial answer)")


def test_the_components_by_hand() -> None:
    # mean 0.5; means by seed 0.5, 0, 1; means by example 2/3, 1/3
    # V_seeds = var(0.5, 0, 1) / 3 = 0.25 / 3; V_examples = (1/18) / 2 = 1/36
    # what is left: squares 1.5 − 2·0.5 − 3·(2/36) = 1/3, over (2·1) and 6 -> V_both = 1/36
    found = estimate(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    assert found.mean == 0.5
    assert found.from_seeds == pytest.approx(0.25 / 3)
    # with 2 examples 1 / (1 + 1/4) of V_examples is kept
    assert found.from_examples == pytest.approx(1 / 36 / 1.25)
    assert (found.seeds_freedom, found.examples_freedom) == (2, 1)


def test_example_variance_is_added_once() -> None:
    # every seed agrees with itself on what is hard: no interaction
    scores = np.array([[1.0, 1, 0, 0], [2, 2, 1, 1], [3, 3, 2, 2]])
    found = estimate(scores)
    assert (found.from_seeds, found.from_examples) == pytest.approx((1 / 3, (1 / 3) / 4))
    assert found.variance == pytest.approx(1 / 3 + 1 / 12)


def test_interaction_is_not_counted_twice() -> None:
    # Latin square: seeds equal, examples equal, everything is interaction
    found = estimate(np.eye(4))
    assert found.variance == pytest.approx(0)
    assert (found.seeds_freedom, found.examples_freedom) == (3, 3)


def test_groups_by_hand() -> None:
    # Mean 1/4. Sums of x − mean by group: (3/4 + 3/4, −1/4 · 2, −1/2) = 3/2, −1/2, −1 … of sizes
    # 2, 2, 4: squares over 1 − size/8 are 3 and 1/3. The last is larger than Σ size²/8 = 3, so its
    # square is divided by 1 − 2 · 4/8 + 24/64 = 3/8. All over 8² -> V_examples
    scores = np.array([[1.0, 1, 0, 0, 0, 0, 0, 0]])
    found = estimate(scores, np.array([5, 5, 1, 1, 3, 3, 3, 3]))
    assert found.from_examples == pytest.approx((3 + 1 / 3 + 8 / 3) / 64)
    assert found.from_seeds == 0
    assert found.examples_freedom == pytest.approx(64 / 24 - 1)


def test_groups_of_one_are_no_groups() -> None:
    rng = np.random.default_rng(8)
    scores = rng.random((3, 40)) + rng.random(40)
    alone = estimate(scores, rng.permutation(40))
    assert vars(alone) == pytest.approx(vars(estimate(scores)))


def test_the_interaction_of_seeds_and_groups_is_the_seeds_doubt() -> None:
    # Each seed has its own luck with each group: doubt about seeds, none about groups.
    rng = np.random.default_rng(9)
    scores = np.repeat(rng.standard_normal((200, 50)), 8, axis=1)
    found = estimate(scores, np.repeat(np.arange(50), 8))
    assert found.from_seeds == pytest.approx(1 / 200 / 50, rel=0.2)
    assert found.from_examples < found.from_seeds
    # … and with each example counted alone the same, as interaction never enters twice
    assert estimate(scores).from_seeds == pytest.approx(found.from_seeds)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 1, 1), (9, 4, 3, 2, 2, 1, 1)])
def test_few_examples_or_groups_find_little_that_is_not_there(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(20)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    freedom = effective(np.array(sizes)) - 1
    for seeds in (5, 10):
        for by_seed, by_group, by_both in [(0, 1, 0), (0, 1, 1), (1, 1, 1), (0.3, 0, 1), (0, 0, 1)]:
            shape = (2000, seeds, len(sizes))
            gains = by_seed * rng.standard_normal((2000, seeds, 1))
            gains = gains + by_group * rng.standard_normal((2000, 1, len(sizes)))
            gains = (gains + by_both * rng.standard_normal(shape))[..., groups]
            p = p_values(*components(gains, groups), seeds - 1.0, freedom)
            assert (p < 0.05).mean() <= 0.065
            assert (p < 0.005).mean() <= 0.011


def test_doubled_examples_tell_nothing_new_where_the_groups_say_so() -> None:
    rng = np.random.default_rng(10)
    easy = rng.random((2, 1, 60))
    a, b = rng.random((2, 3, 60)) < 0.3 + 0.65 * easy
    once = compare_runs(a, b)
    groups = np.repeat(np.arange(60), 2)
    twice = [np.repeat(x, 2, axis=1) for x in (a, b)]
    grouped = compare_runs(*twice, groups=groups)
    assert (grouped.low, grouped.high, grouped.p) == pytest.approx((once.low, once.high, once.p))
    assert compare_runs(*twice).high < once.high - 0.005
    assert arm_interval(twice[0], groups) == pytest.approx(arm_interval(a), abs=0.003)


def test_unequal_groups_cover_the_truth() -> None:
    rng = np.random.default_rng(11)
    sizes = np.maximum(1, np.round(10 * np.exp(rng.standard_normal(40)))).astype(int)
    groups = np.repeat(np.arange(40), sizes)
    means = 0.9 * rng.standard_normal((1500, 1, 40))[..., groups]
    scores = means + 0.4 * rng.standard_normal((1500, 1, len(groups)))
    mean, _, variance = components(scores, groups)
    freedom = effective(sizes) - 1
    assert 10 < freedom < 30
    covered = np.abs(mean) < stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    assert covered.mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(5, int), "all test examples are of one group"),
        (np.arange(4), "groups number every test example: 4 do not fit 5 examples"),
    ],
)
def test_groups_that_do_not_fit(groups: np.ndarray, message: str) -> None:
    with pytest.raises(RegardError, match=message):
        compare_runs(np.ones((2, 5), bool), np.zeros((2, 5), bool), groups=groups)


def test_many_tables_at_once_are_each_table() -> None:
    rng = np.random.default_rng(12)
    scores = rng.random((4, 2, 3, 30)) + rng.random((4, 2, 1, 30))
    for groups in (None, rng.integers(0, 9, 30)):
        mean, seeds, examples = components(scores, groups)
        for at in np.ndindex(4, 2):
            one = estimate(scores[at], groups)
            assert (mean[at], seeds[at], examples[at]) == pytest.approx(
                (one.mean, one.from_seeds, one.from_examples)
            )


def test_many_examples_of_pure_seed_noise_are_the_paired_t_of_scipy() -> None:
    by_seed = np.array([0.010, 0.022, 0.004, 0.013, -0.002])
    scores = np.repeat(by_seed[:, None], 50, axis=1)
    expected = stats.ttest_1samp(by_seed, 0)
    interval = expected.confidence_interval(0.95)
    found = compare_runs(scores, np.zeros_like(scores))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_one_seed_is_the_paired_t_over_examples() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((1, 400)) < 0.9, rng.random((1, 400)) < 0.8
    expected = stats.ttest_rel(a[0].astype(float), b[0].astype(float))
    found = compare_runs(a, b, ("cnn", "mean"))
    assert found.p == pytest.approx(expected.pvalue)
    assert found.low == pytest.approx(expected.confidence_interval(0.95).low)
    assert found.sentence.startswith("cnn beats mean by ")
    assert found.sentence.endswith("; one seed: two models, not two methods")


def test_two_arms_without_seeds_are_the_paired_t_over_examples() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.random(300) < 0.85, rng.random(300) < 0.8
    expected = stats.ttest_rel(a.astype(float), b.astype(float))
    found = compare_runs(np.tile(a, (5, 1)), np.tile(b, (5, 1)), ("nb-svm", "tfidf"))
    assert found.p == pytest.approx(expected.pvalue)
    assert found.high == pytest.approx(expected.confidence_interval(0.95).high)
    assert "two models" not in found.sentence


def test_an_arm_without_seeds_beside_one_with_them() -> None:
    fixed = np.tile(table("1101101110"), (3, 1))
    trained = table("1111101110", "1101111111", "1101101111")
    found = compare_runs(trained, fixed, ("rnn", "tfidf"))
    by_seed = np.array([0.1, 0.2, 0.1])
    assert found.mean == pytest.approx(by_seed.mean())
    assert found.high - found.mean > stats.t.ppf(0.975, 9) * by_seed.std(ddof=1) / 3**0.5
    assert 0 < found.p < 1


def test_equal_arms_differ_by_nothing() -> None:
    same = table("110111", "111011", "011111")
    found = compare_runs(same, same, ("a", "b"))
    assert (found.mean, found.p) == (0, 1)
    assert found.high == -found.low == pytest.approx(stats.t.ppf(0.975, 5) / 8)
    assert found.sentence == (
        "no evidence of a difference between a and b: 0.0 points (−32.1 to 32.1, p = 1); "
        "a difference of 46.8 points would have been found 4 times in 5"
    )


@pytest.mark.parametrize(("examples", "p"), [(2, 0.156), (3, 0.038), (4, 0.009)])
def test_a_few_examples_that_differ_alike_are_little_evidence(examples: int, p: float) -> None:
    found = compare_runs(np.ones((1, examples)), np.zeros((1, examples)))
    assert found.p == pytest.approx(p, abs=0.001)
    groups = np.repeat(np.arange(examples), 20)
    right = np.ones((1, 20 * examples), bool)
    for one, other in ((right, ~right), (1.0 * right, 0.0 * right)):
        assert compare_runs(one, other, groups=groups).p == pytest.approx(p, abs=0.001)


def test_arms_that_differ_by_rounding_differ_by_nothing() -> None:
    a = np.random.default_rng(0).random((3, 50)) * 7
    found = compare_runs(a * (1 + 2**-52), a)
    assert (found.mean, found.p, found.significant) == (0, 1, False)


def test_arms_opposed_everywhere_stay_between_one_and_minus_one() -> None:
    found = compare_runs(np.ones((2, 5), bool), np.zeros((2, 5), bool))
    assert found.mean == 1
    assert 0.5 < found.low < 1
    assert found.high == 1
    assert 0 < found.p < 0.05


@pytest.mark.parametrize("scores", [np.zeros((3, 4)), np.full((3, 4), 2.5), np.eye(4)])
def test_scores_without_variance_give_numbers(scores: np.ndarray) -> None:
    found = compare_runs(scores, np.zeros_like(scores))
    values = [found.mean, found.low, found.high, found.p, *arm_interval(scores)]
    assert all(map(math.isfinite, values))
    json.dumps(values, allow_nan=False)
    # Four examples that differ alike: t is at most 6, with 3 degrees of freedom.
    assert found.p == pytest.approx(1.0 if scores.max() == 0 else 0.00927, abs=1e-5)


def test_the_arms_interval_is_wilsons_where_there_is_no_seed() -> None:
    right = np.zeros((1, 2001), bool)
    right[0, :1740] = True
    mean, low, high = arm_interval(right)
    wilson = stats.binomtest(1740, 2001).proportion_ci(0.95, "wilson")
    assert mean == 1740 / 2001
    assert (low, high) == pytest.approx((wilson.low, wilson.high), abs=3e-5)  # t for normal
    assert arm_interval(np.tile(right, (5, 1))) == pytest.approx((mean, low, high))


def test_the_arms_interval_grows_with_the_luck_of_seeds() -> None:
    rng = np.random.default_rng(5)
    easy = rng.random(1000)
    steady = np.stack([easy < 0.8] * 3)
    shaky = np.stack([easy < 0.8 + luck for luck in (-0.03, 0.0, 0.03)])
    narrow, wide = arm_interval(steady), arm_interval(shaky)
    assert narrow[1] > wide[1]
    assert narrow[2] < wide[2]


def test_an_arm_without_mistakes_is_not_held_to_be_perfect() -> None:
    assert arm_interval(np.ones((3, 50), bool)) == pytest.approx((1.0, 0.925, 1.0), abs=0.001)
    assert arm_interval(np.zeros((3, 50), bool)) == pytest.approx((0.0, 0.0, 0.075), abs=0.001)


def test_holm_by_hand_and_by_scipys_neighbour() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.03]) == [0.03]


def test_a_family_is_judged_together() -> None:
    rng = np.random.default_rng(6)
    arms = {"tfidf": np.tile(rng.random(500) < 0.8, (3, 1))}
    for name, accuracy in (("good", 0.97), ("alike", 0.8), ("bad", 0.6)):
        arms[name] = rng.random((3, 500)) < accuracy
    others = ("good", "alike", "bad")
    alone = [compare_runs(arms[name], arms["tfidf"], (name, "tfidf")) for name in others]
    family = judge(arms, [(name, "tfidf") for name in others])
    assert [d.p for d in family] == pytest.approx(holm([d.p for d in alone]))
    assert [(d.low, d.high) for d in family] == [(d.low, d.high) for d in alone]
    assert [d.family for d in family] == [3, 3, 3]
    says = [d.sentence for d in family]
    assert says[0].startswith("good beats tfidf by ")
    assert says[1].startswith("no evidence of a difference between alike and tfidf: ")
    assert says[2].startswith("tfidf beats bad by ")
    assert all(", Holm over 3)" in text for text in says)
    could = 100 * family[1].smallest
    assert says[1].endswith(
        f"; a difference of {could:.1f} points would have been found 4 times in 5"
    )
    assert family[1].smallest == alone[1].estimate.smallest(3) > 1.2 * alone[1].smallest
    assert says[0].endswith(")")


@pytest.mark.parametrize(
    ("difference", "says"),
    [
        (
            (0.012, 0.004, 0.020, 0.004, 11),
            "a beats b by 1.2 points (0.4 to 2.0, p = 0.004, Holm over 11)",
        ),
        ((-0.012, -0.020, -0.004, 0.004, 1), "b beats a by 1.2 points (0.4 to 2.0, p = 0.004)"),
        (
            (-0.003, -0.011, 0.005, 0.42, 2),
            "no evidence of a difference between a and b: "
            "−0.3 points (−1.1 to 0.5, p = 0.42, Holm over 2)",
        ),
        (
            (0.012, 0.002, 0.022, 0.07, 3),
            "no evidence of a difference between a and b: "
            "1.2 points (0.2 to 2.2, p = 0.070, Holm over 3; the interval stands alone)",
        ),
        ((0.0008, 0.0002, 0.0014, 0.0001, 1), "a beats b by 0.08 points (0.02 to 0.14, p < 0.001)"),
    ],
)
def test_verdicts_in_words(difference: tuple[float, float, float, float, int], says: str) -> None:
    mean, low, high, p, family = difference
    assert Difference("a", "b", mean, low, high, p, 5, 1000, family).sentence == says


def test_scores_that_are_no_accuracy_have_no_points() -> None:
    a = np.array([[0.31, 0.35, 0.33], [0.30, 0.36, 0.34], [0.31, 0.35, 0.35]])
    assert (
        compare_runs(a, a - 0.2, ("x", "y")).sentence
        == "x beats y by 0.2 (0.0279 to 0.372, p = 0.038)"
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 5), (3, 4)), ((3, 5), (2, 5)), ((5,), (5,)), ((1, 1), (1, 1)), ((3, 0), (3, 0))],
)
def test_tables_that_do_not_pair(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(RegardError):
        compare_runs(np.zeros(a, bool), np.zeros(b, bool))


def test_p_and_interval_agree() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        seeds, examples = int(rng.integers(1, 6)), int(rng.integers(3, 60))
        a, b = rng.random((2, seeds, examples)) < rng.random(2)[:, None, None]
        found = compare_runs(a, b)
        assert found.significant == (found.low > 0 or found.high < 0)
        assert 0 <= found.p <= 1


def test_an_estimates_interval_is_students_t_of_its_seeds() -> None:
    found = Estimate(0.1, 0.01, 0.0, 2, 99)
    assert found.half == pytest.approx(0.1 * stats.t.ppf(0.975, 2), rel=1e-4)
    assert found.p == pytest.approx(2 * stats.t.sf(1.0, 2), rel=1e-4)


def test_the_smallest_difference_is_as_often_too_large_as_too_small() -> None:
    drawn = 0.7 * np.random.default_rng(0).chisquare(1, 60)
    told = np.array([Estimate(0.0, float(seeds), 0.3, 1, 400).smallest() for seeds in drawn])
    assert 0.35 < (told > smallest(0.05, 0.7, 0.3, 1, 400)).mean() < 0.65


def test_too_few_seeds_say_so() -> None:
    a = np.arange(50) < np.array([[46], [26]])  # seeds of 92 and of 52 %
    found = compare_runs(a, np.tile(np.arange(50) < 36, (2, 1)))
    assert found.smallest > 1
    assert found.sentence.endswith("; even 100 points would not have been found 4 times in 5")


def test_seeds_of_equal_means_that_answer_differently_are_not_one_seed() -> None:
    b = np.tile(np.arange(1000) < 800, (2, 1))
    a = b.copy()
    a[0, 790:830] = True  # 30 right answers more, on other examples than …
    a[1, 780:800], a[1, 850:900] = False, True
    gains = a.mean(1) - b.mean(1)
    assert gains[0] == gains[1] == pytest.approx(0.03)
    found = compare_runs(a, b)
    assert found.estimate.from_seeds == 1 / (4 * 2 * 1000**2)
    alone = replace(found.estimate, from_seeds=0.0)
    assert found.p > 10 * alone.p
    same = compare_runs(np.tile(a[:1], (2, 1)), b)
    assert same.estimate.from_seeds < 1e-30  # one arm without seeds beside another


def test_a_difference_without_its_estimate_names_no_smallest() -> None:
    found = Difference("a", "b", 0.01, -0.01, 0.03, 0.3, 3, 100)
    assert found.smallest is None
    assert found.sentence.endswith("p = 0.30)")


def test_a_p_that_is_no_number_does_not_depend_on_the_order() -> None:
    nan = float("nan")
    for ps in ([nan, 0.01, 0.03], [0.01, nan, 0.03], [0.03, 0.01, nan]):
        adjusted = dict(zip(map(str, ps), holm(ps), strict=True))
        assert adjusted == {
            "0.01": pytest.approx(0.03),
            "0.03": pytest.approx(0.06),
            "nan": pytest.approx(nan, nan_ok=True),
        }
    scores = np.full((3, 4), nan)
    found = compare_runs(scores, scores)
    assert not found.significant
    assert "p unknown" in found.sentence
