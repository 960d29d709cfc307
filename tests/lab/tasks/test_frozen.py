"""The head of a frozen encoder beside scikit-learn's own pipeline."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from regard.core.errors import RegardError
from regard.lab.tasks.frozen import NEVER, PENALTIES, fit_head


def blobs(labels, count, seed):
    draw = np.random.default_rng(seed)
    answers = np.arange(count) % labels
    centers = np.random.default_rng(9).normal(size=(labels, 5))
    states = centers[answers] + draw.normal(size=(count, 5)) * [1, 10, 0.1, 1, 0] + 3
    return states.astype(np.float32), answers


def softmax(logits):
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


@pytest.mark.parametrize("labels", [2, 4])
def test_probabilities_are_those_of_scikit_learn(labels):
    states, answers = blobs(labels, 120, 0)
    held, held_answers = blobs(labels, 60, 1)
    head = fit_head(states, answers, held, held_answers, labels, [0.1])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    expected = model.fit(states.astype(np.float64), answers).predict_proba(held)
    found = softmax(held @ head.weight.T + head.bias)
    assert_allclose(found, expected, atol=1e-3)
    chances = found[np.arange(60), held_answers]
    assert_allclose(head.validation_loss, -np.log(chances).mean(), atol=1e-9)


def test_the_penalty_is_the_best_of_those_tried_on_what_is_held_out():
    states, answers = blobs(3, 60, 0)
    answers[::4] = (answers[::4] + 1) % 3  # a quarter is wrong: who trusts it all is punished
    held, held_answers = blobs(3, 300, 1)
    losses = {
        C: fit_head(states, answers, held, held_answers, 3, [C]).validation_loss for C in PENALTIES
    }
    head = fit_head(states, answers, held, held_answers, 3)
    assert head.inverse_penalty == min(losses, key=losses.__getitem__)
    assert PENALTIES[0] < head.inverse_penalty < PENALTIES[-1], "the test asks for a choice"
    assert head.validation_loss == pytest.approx(min(losses.values()), abs=1e-3)


def test_a_label_without_a_text_is_never_said():
    states, answers = blobs(2, 40, 0)
    head = fit_head(states, answers * 2, states, answers * 2, labels=3)
    assert head.bias[1] == NEVER
    assert set((states @ head.weight.T + head.bias).argmax(1)) == {0, 2}
    with pytest.raises(
        RegardError, match="at least two labels, not 1; add texts with other labels"
    ):
        fit_head(states, answers * 0, states, answers, labels=2)
