"""Ranks over data sets: a published example, the numbers of two packages, and mistakes."""

import math
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.runs.convergence import CONVERGED
from regard.lab.studies.arms import Arm
from regard.lab.studies.ranks import (
    critical_difference,
    friedman,
    rank,
    ranks_of,
    read_ranks,
    signed_rank,
    wilcoxon_p,
)
from regard.lab.studies.result import ArmResult, Comparison

#: Demšar (2006), table 6: the AUC of four classifiers on 14 data sets. The last of "voting" is
#: printed as 0.975, the third too, with the ranks 2 and 3.
NAMES = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
AUC = np.array(
    [[0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
     [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
     [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
     [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
     [0.972, 0.981, 0.975, 0.9749], [0.957, 0.978, 0.946, 0.970]]
)  # fmt: skip


def test_the_example_of_demsar() -> None:
    ranks = ranks_of(AUC)
    assert ranks.mean(0) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    test = friedman(AUC)
    ties = 1 - (3 * (2**3 - 2) + 4**3 - 4) / (14 * 4 * (4**2 - 1))  # which the paper leaves out
    plain = test.chi_square * ties
    assert plain == pytest.approx(9.28, abs=0.005)
    assert 13 * plain / (14 * 3 - plain) == pytest.approx(3.69, abs=0.005)
    assert test.freedom == (3, 39)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert wilcoxon_p(AUC[:, 1] - AUC[:, 0]) == pytest.approx(0.011, abs=5e-4)  # z = −2.54


def test_the_numbers_of_autorank() -> None:
    # autorank 1.3.0: autorank(AUC, alpha=0.05, force_mode="nonparametric"), p that of χ²
    from scipy import stats

    test = friedman(AUC)
    assert stats.chi2.sf(test.chi_square, 3) == pytest.approx(0.016721580328441323)
    assert critical_difference(4, 14) == pytest.approx(1.2535512603486423, rel=1e-5)
    assert ranks_of(AUC).mean(0) == pytest.approx([3.142857, 2.0, 2.892857, 1.964286], abs=1e-6)
    assert test.f == pytest.approx(13 * test.chi_square / (42 - test.chi_square))
    assert test.p == pytest.approx(stats.f.sf(test.f, 3, 39))
    assert test.p == pytest.approx(0.01162, abs=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "probabilities"),
    [
        (3, 0, (0.96785, 0.03174, 0.00041)),
        (1, 0, (0.671336, 0.328664, 0.0)),
        (2, 0, (0.187826, 0.694788, 0.117386)),
        (3, 1, (0.270026, 0.727354, 0.00262)),
    ],
)
def test_the_probabilities_of_baycomp(
    a: int, b: int, probabilities: tuple[float, float, float]
) -> None:
    # baycomp 1.0.3: two_on_multiple(AUC[:, b], AUC[:, a], rope=0.01, nsamples=500_000,
    # random_state=1), right, rope and left
    assert signed_rank(AUC[:, a] - AUC[:, b], 0.01) == pytest.approx(probabilities, abs=0.005)
    assert signed_rank(AUC[:, b] - AUC[:, a], 0.01) == pytest.approx(probabilities[::-1], abs=0.005)


def test_equal_arms_and_arms_whose_order_never_changes() -> None:
    equal = np.full((6, 3), 0.5) + np.arange(6)[:, None] + np.array([0, 1e-15, -1e-15])
    assert friedman(equal) == friedman(np.zeros((6, 3)))
    assert (friedman(equal).p, friedman(equal).f) == (1.0, 0.0)
    assert wilcoxon_p(equal[:, 0] - equal[:, 1]) == 1.0
    assert signed_rank(np.zeros(6), 0.01) == (0.0, 1.0, 0.0)
    steady = friedman(np.arange(15.0).reshape(5, 3))
    assert math.isinf(steady.f)
    assert steady.p == pytest.approx((1 / 6) ** 4)
    ranks = rank(np.arange(15.0).reshape(5, 3), "abc", "accuracy", "ABCDE", 1.0)
    assert ranks.json()["friedman"]["f"] is None


@pytest.mark.parametrize(("data", "rate"), [(5, 0.065), (10, 0.053)])
def test_few_false_differences(data: int, rate: float) -> None:
    many = np.random.default_rng(4).standard_normal((2000, data, 4))  # of equal arms
    found = np.mean([friedman(scores).p < 0.05 for scores in many])
    assert found == pytest.approx(rate, abs=0.015)


def test_the_best_arm_is_first_and_differences_are_positive_if_it_is_better() -> None:
    ranks = rank(AUC, NAMES, "accuracy", [f"data-{n}" for n in range(14)], 1.0)
    assert [arm.name for arm in ranks.arms] == ["C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5"]
    assert len(ranks.pairs) == 6
    pair = next(one for one in ranks.pairs if (one.a, one.b) == ("C4.5+m+cf", "C4.5"))
    assert pair.difference == pytest.approx((AUC[:, 3] - AUC[:, 0]).mean())
    assert pair.a_better == pytest.approx(0.968, abs=0.005)
    ps = [wilcoxon_p(AUC[:, a] - AUC[:, b]) for a in range(4) for b in range(a)]
    assert min(one.p for one in ranks.pairs) == pytest.approx(6 * min(ps))  # Holm


def comparison(
    folder: Path, means: dict[str, float], metric: str = "accuracy", **about: str
) -> Path:
    """Save a comparison on a data set; an arm "rising" was not trained to the end."""
    folder.mkdir()
    arms = tuple(
        ArmResult(Arm(name, name), 3, mean, mean, mean, 1.0, None, None, None,
                  ended={"still rising" if name == "rising" else CONVERGED: 3})
        for name, mean in means.items()
    )  # fmt: skip
    about = {"data": folder.name, "fingerprint": f"of {folder.name}"} | about
    Comparison("classification", metric, arms, next(iter(means)), (), folder=folder,
               about=about).save()  # fmt: skip
    return folder


@pytest.fixture
def five(tmp_path: Path) -> list[Path]:
    return [
        comparison(tmp_path / f"set-{n}", {"mean": 0.8, "cnn": 0.82 + n / 50, "rising": 0.1})
        for n in range(5)
    ]


def test_comparisons_are_read(five: list[Path]) -> None:
    ranks = read_ranks(five)
    assert [(arm.name, arm.mean_rank) for arm in ranks.arms] == [
        ("cnn", 1.0), ("mean", 2.0), ("rising", 3.0)
    ]  # fmt: skip
    assert (ranks.delta, ranks.data[4], ranks.metric) == (1.0, "set-4", "accuracy")
    assert ranks.critical_difference == pytest.approx(critical_difference(3, 5))
    pair = ranks.pairs[0]
    assert (pair.a, pair.b, pair.difference) == ("cnn", "mean", pytest.approx(0.06))
    assert pair.p == pytest.approx(3 * 0.0625)
    assert pair.a_better > 0.95
    assert read_ranks(five, 30.0).pairs[0].equivalent > 0.95
    assert ranks.notes[0] == "rising on set-0: still rising"
    assert len(ranks.notes) == 5


def test_a_lower_loss_is_better(tmp_path: Path) -> None:
    folders = [
        comparison(tmp_path / f"{n}", {"rnn": 2.0 + n, "cnn": 1.5 + n}, "log loss")
        for n in range(6)
    ]
    ranks = read_ranks(folders)
    assert [(arm.name, arm.mean_rank, arm.mean) for arm in ranks.arms] == [
        ("cnn", 1.0, 4.0), ("rnn", 2.0, 4.5)
    ]  # fmt: skip
    assert (ranks.friedman, ranks.critical_difference) == (None, None)  # of two arms
    assert ranks.pairs[0].difference == 0.5
    assert ranks.pairs[0].p == 0.03125
    assert ranks.delta == 0.01


def test_bad_input_is_one_line(five: list[Path], tmp_path: Path) -> None:
    def says(folders: list[Path], delta: float | None = None) -> str:
        with pytest.raises(RegardError) as error:
            read_ranks(folders, delta)
        return str(error.value).replace(f"{tmp_path}/", "")

    means = {"mean": 0.8, "cnn": 0.9, "rising": 0.1}
    lone = comparison(tmp_path / "lone", {"mean": 0.8})
    other = comparison(tmp_path / "other", {"mean": 0.8, "rnn": 0.9})
    loss = comparison(tmp_path / "loss", means, "log loss")
    copy = comparison(tmp_path / "copy", means, fingerprint="of set-0")
    assert says(five[:1]) == "ranks need comparisons on at least 5 data sets, not 1"
    assert says([]) == "ranks need comparisons on at least 5 data sets, not 0"
    assert says([lone, *five]) == "lone has results of 1 arm; ranks need two or more"
    assert says([*five, other]) == (
        "other has the arms mean, rnn, but set-0 has mean, cnn, rising; "
        "compare the same arms on every data set"
    )
    assert says([*five, loss]) == (
        "loss has the metric log loss, but set-0 has accuracy; use one metric for all"
    )
    assert says([*five, copy]) == "set-0 and copy compare on the same data; give one of them"
    assert says([*five, five[2]]).startswith("set-2 and set-2 compare on the same data")
    assert says(five, -1.0) == "--delta -1: give a number above 0"
    assert says(five, math.nan) == "--delta nan: give a number above 0"
    assert "missing/comparison.json" in says([*five, tmp_path / "missing"])
    perplexities = [comparison(tmp_path / f"p{n}", means, "perplexity") for n in range(5)]
    assert says(perplexities) == "give --delta, the difference in perplexity that does not matter"
