"""Average precision and its pseudo-values against scikit-learn, and thresholds by trying them."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from regard.lab.tasks.ranking import average_precision_values, average_precisions, best_threshold


def drawn(count, *, ties, seed=0):
    chance = np.random.default_rng(seed)
    scores = chance.random((count, 3))
    truth = chance.random((count, 3)) < [0.5, 0.3, 0.0]
    truth[:3, :2] = True
    return (scores.round(1) if ties else scores), truth


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [6, 80])
def test_average_precision_is_scikit_learns(count, ties):
    scores, truth = drawn(count, ties=ties)
    ours = average_precisions(scores, truth)
    theirs = [average_precision_score(truth[:, k], scores[:, k]) for k in range(2)]
    assert ours[:2] == pytest.approx(theirs)
    assert np.isnan(ours[2])


@pytest.mark.parametrize("ties", [False, True])
def test_pseudo_values_leave_out_each_text(ties):
    scores, truth = drawn(30, ties=ties)
    rest = [np.arange(30) != j for j in range(30)]
    expected = np.zeros(30)
    for k in range(2):
        value = average_precision_score(truth[:, k], scores[:, k])
        left = [average_precision_score(truth[r, k], scores[r, k]) for r in rest]
        jackknife = 30 * value - 29 * np.array(left)
        expected += (jackknife - jackknife.mean() + value) / 2
    assert average_precision_values(scores, truth) == pytest.approx(expected)


def test_a_single_text_with_a_label_has_the_whole_value():
    scores, truth = np.array([[0.9], [0.8]]), np.array([[False], [True]])
    assert average_precision_values(scores, truth).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("ties", [False, True])
def test_the_best_threshold_is_found(ties):
    scores, truth = drawn(80, ties=ties, seed=3)
    p, true = scores[:, 1], truth[:, 1]

    def f1(threshold):
        above = p > threshold
        return 2 * (above & true).sum() / (above.sum() + true.sum())

    found = best_threshold(p, true, lambda hits, cut: 2 * hits / (cut + true.sum()))
    assert f1(found) == pytest.approx(max(f1(t) for t in np.linspace(0, 1, 4001)))


def test_equal_scores_take_the_threshold_nearest_to_half():
    p = np.array([0.2, 0.4, 0.6, 0.8])
    assert best_threshold(p, p > 0, lambda hits, cut: np.zeros(len(cut))) == 0.5
    assert best_threshold(np.array([1.0, 1.0]), p[:2] > 0, lambda hits, cut: hits) == 0.5
