"""Logistic regression on states that an encoder has computed: the head of a frozen encoder."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression

from regard.errors import RegardError

#: Values of C that are tried, from the strongest penalty on.
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
NEVER = -100.0  # bias of a label without a text
States = Float[np.ndarray, "texts width"]
Labels = Int[np.ndarray, " texts"]


class Head(NamedTuple):
    """Logits = states · weightᵀ + bias; C, and the mean loss of both sides in nats."""

    weight: Float[np.ndarray, "labels width"]
    bias: Float[np.ndarray, " labels"]
    inverse_penalty: float
    loss: float
    held_loss: float


def fit_head(
    states: States,
    answers: Labels,
    held: States,
    held_answers: Labels,
    labels: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    weights: Float[np.ndarray, " labels"] | None = None,
) -> Head:
    """Fit multinomial logistic regression to standardised states.

    z = (s − mean) / std by the training states; max Σ log softmax(W z + b)[answer] − ‖W‖² / 2C by
    scikit-learn. C is the one with the lowest mean negative log-likelihood of the held-out states;
    larger ones are not tried once it has risen. Mean and std are folded into ``weight`` and
    ``bias``, which take the states as they are. `weights` of the labels weigh the training texts.
    Deterministic.

    Errors: `RegardError`: training states of fewer than two labels.

    >>> states = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> answers = np.array([0, 0, 1, 1])
    >>> head = fit_head(states, answers, states, answers, labels=2)
    >>> (states @ head.weight.T + head.bias).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    known = np.unique(answers)
    if len(known) < 2:
        raise RegardError(
            f"frozen learns to tell labels apart, and its texts have {len(known)}; give texts of "
            "two or more"
        )
    mean, std = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    std[std < 1e-6] = 1.0  # a state that never changes says nothing
    scaled = (states - mean) / std
    model = LogisticRegression(max_iter=2000, warm_start=True)
    each = None if weights is None else np.asarray(weights)[answers]
    best: Head | None = None
    for penalty in penalties:
        model.set_params(C=penalty).fit(scaled, answers, sample_weight=each)
        weight, bias = _folded(model, labels, mean, std)
        loss = _loss(held @ weight.T + bias, held_answers)
        if best is not None and loss >= best.held_loss:
            break
        best = Head(weight, bias, penalty, _loss(states @ weight.T + bias, answers), loss)
    assert best is not None
    return best


def _folded(
    model: LogisticRegression, labels: int, mean: np.ndarray, std: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a row for every label: of two, scikit-learn has one, for the second."""
    weight, bias = np.zeros((labels, len(mean))), np.full(labels, NEVER)
    bias[model.classes_] = 0.0
    columns = model.classes_[-len(model.coef_) :]
    weight[columns] = model.coef_ / std
    bias[columns] = model.intercept_ - weight[columns] @ mean
    return weight, bias


def _loss(logits: np.ndarray, answers: np.ndarray) -> float:
    """Mean negative log-likelihood, in nats."""
    shifted = logits - logits.max(1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-chances[np.arange(len(answers)), answers].mean())
