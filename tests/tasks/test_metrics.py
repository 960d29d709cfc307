import numpy as np
import pytest
from scipy.stats import binomtest

from regard.errors import RegardError
from regard.tasks import metrics

PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
LABELS = np.array([0, 1, 2, 1])


def test_accuracy_by_hand() -> None:
    assert metrics.correct(PROBABILITIES, LABELS).tolist() == [True, False, False, True]
    assert metrics.accuracy(PROBABILITIES, LABELS) == 0.5


@pytest.mark.parametrize(("hits", "trials"), [(0, 7), (3, 7), (7, 7), (22_415, 25_000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_is_scipys(hits: int, trials: int, level: float) -> None:
    theirs = binomtest(hits, trials).proportion_ci(level, method="wilson")
    assert metrics.wilson(hits, trials, level) == pytest.approx((theirs.low, theirs.high))


def test_wilson_of_nothing_says_nothing() -> None:
    assert metrics.wilson(0, 0) == (0.0, 1.0)


def test_log_loss_by_hand() -> None:
    expected = -np.log([0.7, 0.3, 0.2, 0.8]).mean()
    assert metrics.log_loss(PROBABILITIES, LABELS) == pytest.approx(expected)


def test_log_loss_of_a_certain_mistake_is_finite() -> None:
    assert metrics.log_loss(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(12 * np.log(10))


def test_confusion_has_truth_in_rows() -> None:
    table = metrics.confusion(PROBABILITIES.argmax(1), LABELS, 3)
    assert table.tolist() == [[1, 0, 0], [0, 1, 1], [1, 0, 0]]


def test_calibration_by_hand() -> None:
    # Bins of width 1/2, in the upper one 0.7 right, 0.6 wrong, 0.5 wrong, 0.8 right.
    found = metrics.calibration(PROBABILITIES, LABELS, bins=2)
    assert found.count == (4,)
    assert found.confidence == pytest.approx((0.65,))
    assert found.accuracy == (0.5,)
    assert found.error == pytest.approx(0.15)


def test_calibration_weighs_bins_by_their_examples() -> None:
    probabilities = np.array([[1.0, 0.0]] * 3 + [[0.6, 0.4]])
    found = metrics.calibration(probabilities, np.array([0, 0, 0, 1]), bins=10)
    assert found.count == (1, 3)
    assert found.error == pytest.approx(0.6 / 4)


def test_calibration_of_the_calibrated_is_small() -> None:
    chance = np.random.default_rng(0)
    first = chance.uniform(size=20_000)
    labels = (chance.uniform(size=20_000) > first).astype(int)
    assert metrics.calibration(np.stack([first, 1 - first], 1), labels).error < 0.015


def test_most_confident_mistakes_come_surest_first() -> None:
    assert metrics.most_confident_mistakes(PROBABILITIES, LABELS) == [1, 2]
    assert metrics.most_confident_mistakes(PROBABILITIES, LABELS, count=1) == [1]


def test_unequal_numbers_are_refused() -> None:
    with pytest.raises(RegardError, match="4 predictions cannot be judged by 3 labels"):
        metrics.accuracy(PROBABILITIES, LABELS[:3])
