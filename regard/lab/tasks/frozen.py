"""Logistic regression on the states of a frozen encoder."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

#: Candidate values of C, from the strongest penalty to the weakest.
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
NEVER = -100.0  # bias of a label without a text
States = Float[np.ndarray, "texts width"]
Labels = Int[np.ndarray, " texts"]


class Head(NamedTuple):
    """A fitted head: logits = states · weightᵀ + bias.

    ``inverse_penalty`` is C; ``loss`` and ``validation_loss`` are mean losses in nats.
    """

    weight: Float[np.ndarray, "labels width"]
    bias: Float[np.ndarray, " labels"]
    inverse_penalty: float
    loss: float
    validation_loss: float


def fit_head(
    states: States,
    answers: Labels,
    validation: States,
    validation_answers: Labels,
    labels: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    weights: Float[np.ndarray, " labels"] | None = None,
) -> Head:
    """Fit multinomial logistic regression to standardised states.

    z = (s − mean) / std with mean and std of the training states; scikit-learn maximises Σ log
    softmax(W z + b)[answer] − ‖W‖² / 2C. The search over C stops when the mean negative
    log-likelihood of the validation states rises, and keeps the best. Mean and std are folded into
    ``weight`` and ``bias``, so the head takes unscaled states. `weights` are the labels' weights
    in the loss. The result is deterministic.

    Raises: `RegardError`: training states of fewer than two labels.

    >>> states = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> answers = np.array([0, 0, 1, 1])
    >>> head = fit_head(states, answers, states, answers, labels=2)
    >>> (states @ head.weight.T + head.bias).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    known = np.unique(answers)
    if len(known) < 2:
        raise RegardError(
            f"frozen requires training texts with at least two labels, not {len(known)}; add texts "
            "with other labels"
        )
    mean, std = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    std[std < 1e-6] = 1.0  # a constant state
    scaled = (states - mean) / std
    model = LogisticRegression(max_iter=2000, warm_start=True)
    each = None if weights is None else np.asarray(weights)[answers]
    best: Head | None = None
    for penalty in penalties:
        model.set_params(C=penalty).fit(scaled, answers, sample_weight=each)
        weight, bias = _folded(model, labels, mean, std)
        loss = _loss(validation @ weight.T + bias, validation_answers)
        if best is not None and loss >= best.validation_loss:
            break
        best = Head(weight, bias, penalty, _loss(states @ weight.T + bias, answers), loss)
    assert best is not None
    return best


def _folded(
    model: "LogisticRegression", labels: int, mean: np.ndarray, std: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a row for every label; for two labels, scikit-learn fits only the second."""
    weight, bias = np.zeros((labels, len(mean))), np.full(labels, NEVER)
    bias[model.classes_] = 0.0
    columns = model.classes_[-len(model.coef_) :]
    weight[columns] = model.coef_ / std
    bias[columns] = model.intercept_ - weight[columns] @ mean
    return weight, bias


def _loss(logits: np.ndarray, answers: np.ndarray) -> float:
    """Return the mean negative log-likelihood, in nats."""
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_probabilities[np.arange(len(answers)), answers].mean())
