"""Heads on fixed vectors beside scikit-learn's own search over C."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import PredefinedSplit, cross_val_score

from regard.core.errors import RegardError
from regard.lab.tasks.heads import NEVER, PENALTIES, fit_labels, fit_numbers, folds, log_loss


def blobs(labels, count, seed):
    draw = np.random.default_rng(seed)
    answers = draw.permutation(np.arange(count) % labels)
    centers = np.random.default_rng(9).normal(size=(labels, 5))
    vectors = centers[answers] + draw.normal(size=(count, 5)) * [1, 3, 0.1, 1, 0] + 3
    return vectors.astype(np.float64), answers


def scaled(vectors):
    centred = vectors - vectors.mean(0)
    return centred / np.sqrt((centred**2).sum(1).mean())


@pytest.mark.parametrize("labels", [2, 4])
def test_the_head_is_the_best_of_scikit_learns_cross_validation(labels):
    vectors, answers = blobs(labels, 120, 0)
    answers[::10] = (answers[::10] + 1) % labels  # wrong labels, which large C would learn
    vectors = np.hstack([vectors, np.random.default_rng(2).normal(size=(120, 10))])
    head = fit_labels(vectors, answers, labels)
    z = scaled(vectors)
    losses = {
        C: -cross_val_score(
            LogisticRegression(C=C, max_iter=2000, tol=1e-3),
            z,
            answers,
            cv=PredefinedSplit(folds(answers)),
            scoring="neg_log_loss",
        ).mean()
        for C in PENALTIES
    }
    assert head.inverse_penalty == min(losses, key=losses.__getitem__)
    assert PENALTIES[0] < head.inverse_penalty < PENALTIES[-1], "the test asks for a choice"
    model = LogisticRegression(C=head.inverse_penalty, max_iter=2000).fit(z, answers)
    logits = head(vectors)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    assert_allclose(odds / odds.sum(1, keepdims=True), model.predict_proba(z), atol=1e-3)
    assert head.loss == pytest.approx(log_loss(logits, answers).mean())


def test_weights_of_labels_are_weights_of_texts():
    vectors, answers = blobs(2, 60, 0)
    weights = np.array([1.0, 5.0])
    head = fit_labels(vectors, answers, 2, (10.0,), weights=weights)
    model = LogisticRegression(C=10.0, max_iter=2000)
    model.fit(scaled(vectors), answers, sample_weight=weights[answers])
    assert_allclose(head(vectors)[:, 1], model.decision_function(scaled(vectors)), atol=1e-2)


def test_a_label_without_a_text_is_never_predicted():
    vectors, answers = blobs(2, 40, 0)
    head = fit_labels(vectors, answers * 2, labels=3)
    assert head.bias[1] == NEVER
    assert set(head(vectors).argmax(1)) == {0, 2}
    with pytest.raises(RegardError, match="at least two labels, not 1; add texts with other"):
        fit_labels(vectors, answers * 0, labels=2)


def test_few_texts_and_labels_of_one_text_are_fitted():
    vectors, answers = blobs(3, 4, 0)
    assert fit_labels(vectors, answers, 3)(vectors).argmax(1).tolist() == answers.tolist()


def test_numbers_are_those_of_ridge_with_the_best_penalty():
    vectors, _ = blobs(2, 60, 0)
    numbers = vectors @ [1, 2, 3, 4, 5] + np.random.default_rng(1).normal(size=60) * 3
    head, z = fit_numbers(vectors, numbers), scaled(vectors)

    def left_out(penalty):
        errors = [
            numbers[i]
            - Ridge(1 / penalty).fit(np.delete(z, i, 0), np.delete(numbers, i)).predict(z[i][None])
            for i in range(60)
        ]
        return float((np.array(errors) ** 2).mean())

    assert head.inverse_penalty == pytest.approx(min(PENALTIES, key=left_out))
    model = Ridge(1 / head.inverse_penalty).fit(z, numbers)
    assert_allclose(head(vectors)[:, 0], model.predict(z), rtol=1e-6)
