import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics as sklearn_metrics
from sklearn.dummy import DummyClassifier

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.classification import metrics
from regard.lab.tasks.classification.evaluation import label_evaluation
from regard.lab.tasks.evaluation import Evaluation, wilson

PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
LABELS = np.array([0, 1, 2, 1])


def test_accuracy_by_hand() -> None:
    assert metrics.correct(PROBABILITIES, LABELS).tolist() == [True, False, False, True]


@pytest.mark.parametrize(("hits", "trials"), [(0, 7), (3, 7), (7, 7), (22_415, 25_000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_is_scipys(hits: int, trials: int, level: float) -> None:
    theirs = binomtest(hits, trials).proportion_ci(level, method="wilson")
    assert wilson(hits, trials, level) == pytest.approx((theirs.low, theirs.high))


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


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


def test_unequal_numbers_are_refused() -> None:
    with pytest.raises(RegardError, match="4 predictions for 3 labels"):
        metrics.correct(PROBABILITIES, LABELS[:3])


def drawn(examples: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Uneven labels, and predictions that are right in two of three cases."""
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(classes, 0.5))
    labels = random.choice(classes, examples, p=shares)
    predicted = np.where(random.random(examples) < 0.67, labels, random.integers(0, classes))
    return predicted, labels


@pytest.mark.parametrize(("examples", "classes"), [(2, 2), (7, 3), (60, 5), (400, 30)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true", "ignore:A single label")
def test_scores_are_scikit_learns(examples: int, classes: int, seed: int) -> None:
    predicted, labels = drawn(examples, classes, seed)
    assert metrics.label_scores(predicted, labels, classes) == pytest.approx(
        {
            "accuracy": sklearn_metrics.accuracy_score(labels, predicted),
            "macro-F1": sklearn_metrics.f1_score(
                labels, predicted, average="macro", zero_division=0
            ),
            "balanced accuracy": sklearn_metrics.balanced_accuracy_score(labels, predicted),
        }
    )
    precision, recall, f1, support = sklearn_metrics.precision_recall_fscore_support(
        labels, predicted, labels=range(classes), zero_division=0
    )
    ours = metrics.by_class(predicted, labels, classes)
    assert ours.precision == pytest.approx(precision)
    assert ours.recall == pytest.approx(recall)
    assert ours.f1 == pytest.approx(f1)
    assert ours.support.tolist() == support.tolist()


def test_log_loss_is_scikit_learns() -> None:
    theirs = sklearn_metrics.log_loss(LABELS, PROBABILITIES, labels=[0, 1, 2])
    assert metrics.scores(PROBABILITIES, LABELS)["log loss"] == pytest.approx(theirs)


def test_a_class_that_nobody_names_counts_only_where_it_occurs() -> None:
    predicted, labels = np.array([0, 0, 1]), np.array([0, 0, 2])
    # F1: 1, 0 (said, never true), 0 (true, never said); class 3 occurs nowhere.
    found = metrics.label_scores(predicted, labels, 4)
    assert found["macro-F1"] == pytest.approx(1 / 3)
    assert found["balanced accuracy"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("metric", ["macro-f1", "balanced-accuracy"])
def test_pseudo_values_leave_out_each_example(metric: str) -> None:
    predicted, labels = drawn(4000, 4, 0)

    def score(predicted: np.ndarray, labels: np.ndarray, classes: int) -> float:
        return metrics.label_scores(predicted, labels, classes)[metrics.METRICS[metric]]

    whole = score(predicted, labels, 4)
    kept = [np.arange(4000) != i for i in range(60)]
    expected = [3999 * (whole - score(predicted[k], labels[k], 4)) for k in kept]
    found = metrics.pseudo_values(predicted, labels, 4, metric)[:60]
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert metrics.per_example(metric, predicted, labels, 4).mean() == pytest.approx(whole)


@pytest.mark.parametrize("metric", ["macro-f1", "balanced-accuracy"])
def test_pseudo_values_shrink_the_scores_of_classes(metric: str) -> None:
    # Class 0: 3 examples, 2 right; class 1: 2 examples, both right; class 2: false, never true.
    predicted, labels = np.array([0, 0, 2, 1, 1]), np.array([0, 0, 0, 1, 1])
    if metric == "balanced-accuracy":  # (2 + 2) / (3 + 4) and (2 + 2) / (2 + 4)
        expected = np.array([3 / 7 / 2, 3 / 7 / 2, -4 / 7 / 2, 1 / 3, 1 / 3]) / 2
    else:  # (4 + 2) / (5 + 4) and (4 + 2) / (4 + 4); class 2 costs the mean of 4/5 and 1
        expected = np.array([6 / 9 / 3, 6 / 9 / 3, -6 / 9 / 4 - 0.9, 0.5 / 2, 0.5 / 2]) / 3
    found = metrics.pseudo_values(predicted, labels, 3, metric)
    np.testing.assert_allclose(found, 4 * expected)


@pytest.mark.parametrize("metric", ["macro-f1", "balanced-accuracy"])
@pytest.mark.parametrize("rare", [0, 2, 3])
@pytest.mark.deep
def test_a_class_of_few_texts_is_no_evidence(metric: str, rare: int) -> None:
    random = np.random.default_rng(rare)
    ps = []
    for _ in range(400):
        labels = np.append(np.full(rare, 2), random.choice(2, 120 - rare, p=[0.6, 0.4]))
        right = random.random((2, 120)) < np.where(labels == 2, 0.5, 0.85)
        false = np.where(random.random((2, 120)) < 0.05, (labels + 1) % 3, labels == 0)
        a, b = (metrics.per_example(metric, said, labels, 3)[None]
                for said in np.where(right, labels, false))  # fmt: skip
        ps.append(compare_runs(a, b).p)
    assert np.mean(np.array(ps) < 0.05) <= 0.085
    assert np.mean(np.array(ps) < 0.005) <= 0.02


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], [0.9, 0.05, 0.03, 0.01, 0.01]])
@pytest.mark.parametrize("metric", ["macro-f1", "balanced-accuracy"])
def test_pseudo_values_spread_as_other_examples_would(shares: list[float], metric: str) -> None:
    """Also where some classes occur once or not at all: there rather too much than too little."""
    random, classes = np.random.default_rng(0), len(shares)
    scores, variances = [], []
    for _ in range(300):
        labels = random.choice(classes, 100, p=shares)
        predicted = np.where(random.random(100) < 0.7, labels, random.choice(classes, 100))
        values = metrics.pseudo_values(predicted, labels, classes, metric)
        scores.append(metrics.scores(np.eye(classes)[predicted], labels)[metrics.METRICS[metric]])
        variances.append(values.var(ddof=1) / 100)
    ratio = np.mean(variances) ** 0.5 / np.std(scores)
    assert 0.92 < ratio < (1.08 if min(shares) > 0.1 else 1.3)


def test_pseudo_values_of_another_metric_are_refused() -> None:
    with pytest.raises(RegardError, match="'log-loss' has no pseudo-values"):
        metrics.pseudo_values(LABELS, LABELS, 3, "log-loss")


@pytest.mark.parametrize("metric", list(metrics.METRICS))
def test_trivial_scores_are_those_of_a_dummy(metric: str) -> None:
    random = np.random.default_rng(3)
    train, labels = (random.choice(3, n, p=[0.7, 0.2, 0.1]) for n in (300, 4_000))
    counts = np.bincount(train, minlength=3)
    found = metrics.trivial(metric, counts.tolist(), labels)
    for name, strategy in (("majority class", "prior"), ("chance", "uniform")):
        dummy = DummyClassifier(strategy=strategy, random_state=0).fit(train[:, None], train)
        blind = labels[:, None] * 0
        if metric == "log-loss":
            expected = metrics.log_loss(dummy.predict_proba(blind), labels)
        else:
            said = dummy.predict(blind)
            expected = metrics.scores(np.eye(3)[said], labels)[metrics.METRICS[metric]]
        assert found[name] == pytest.approx(expected, abs=0.015 if name == "chance" else 1e-12)


def evaluated(metric: str, count: int = 4) -> Evaluation:
    """Evaluate the first examples of the probabilities above."""
    names = ["a", "b", "c"]
    examples = [Example("", names[label], "") for label in LABELS[:count]]
    return label_evaluation(names, examples, PROBABILITIES[:count], metric=metric)


def test_intervals_hold_the_value_and_stay_in_bounds() -> None:
    for metric, title in metrics.METRICS.items():
        found = evaluated(metric)
        assert 0 <= found.low < metrics.scores(PROBABILITIES, LABELS)[title] < found.high
        assert found.high <= (metrics.MOST_NATS if metric == "log-loss" else 1)
        assert evaluated(metric, 1).low == pytest.approx(
            0.2065 if metric == "accuracy" else 0, abs=1e-3
        )
    found = evaluated("log-loss")
    half = 1.959964 * metrics.losses(PROBABILITIES, LABELS).std(ddof=1) / 2
    assert found.high - found.low == pytest.approx(2 * half)
