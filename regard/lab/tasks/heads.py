"""Linear heads on fixed vectors: logistic regression and ridge regression of scikit-learn."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num
from scipy.special import log_softmax

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

#: Candidate values of C for vectors of mean squared length 1. Smaller ones predict the most
#: frequent label, and with few texts their loss is the smallest by chance.
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
FOLDS = 5
NEVER = -100.0  # bias of a label without a text
Vectors = Float[np.ndarray, "texts width"]
Labels = Int[np.ndarray, " texts"]


class Head(NamedTuple):
    """A fitted head: outputs = vectors · weightᵀ + bias.

    ``inverse_penalty`` is C; ``loss`` is the mean loss of the vectors that it was fitted to.
    """

    weight: Float[np.ndarray, "outputs width"]
    bias: Float[np.ndarray, " outputs"]
    inverse_penalty: float
    loss: float

    def __call__(self, vectors: Vectors) -> Float[np.ndarray, "texts outputs"]:
        """Return the outputs of vectors."""
        return np.asarray(vectors @ self.weight.T + self.bias)


def fit_labels(
    vectors: Vectors,
    answers: Labels,
    labels: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    weights: Float[np.ndarray, " labels"] | None = None,
) -> Head:
    """Fit multinomial logistic regression.

    The vectors x are centred and scaled to z = (x − mean) / s with s² the mean of ‖x − mean‖², so C
    does not depend on the encoder; scikit-learn maximises Σ log softmax(W z + b)[answer] −
    ‖W‖² / 2C. C is the candidate with the smallest loss in a cross-validation of 5 folds, in which
    each label is spread evenly; the fit with it is on all vectors. Mean and s are folded into
    ``weight`` and ``bias``. ``weights`` are the labels' weights in the loss. Deterministic.

    Raises: `RegardError`: answers of fewer than two labels.

    >>> x, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> fit_labels(x, y, labels=2)(x).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    if (known := len(np.unique(answers))) < 2:
        raise RegardError(
            f"a classifier requires training texts with at least two labels, not {known}; add "
            "texts with other labels"
        )
    mean, scale = _scaling(vectors)
    scaled = (vectors - mean) / scale
    each = None if weights is None else np.asarray(weights)[answers]
    best = _smallest(penalties, lambda c: _held_out_loss(scaled, answers, labels, c, each))
    head = _fit(scaled, answers, labels, best, each)
    loss = float(log_loss(head(scaled), answers).mean())
    return _unscaled(head, mean, scale)._replace(loss=loss)


def fit_each(
    vectors: Vectors,
    answers: Num[np.ndarray, "texts labels"],
    penalties: Sequence[float] = PENALTIES,
) -> Head:
    """Fit logistic regression for each label against the rest, scaled as in `fit_labels`.

    ``answers`` has 1 where a text has a label. The outputs are the log odds of the labels; they
    share C, which has the smallest loss over all labels in the cross-validation of `fit_labels`.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5)
    >>> (fit_each(x, x)(x) > 0).astype(float).tolist() == x.tolist()
    True
    """
    mean, scale = _scaling(vectors)
    return _unscaled(one_against_rest((vectors - mean) / scale, answers, penalties), mean, scale)


def one_against_rest(
    features: Any, answers: Num[np.ndarray, "texts labels"], penalties: Sequence[float]
) -> Head:
    """Fit `fit_each` to features that are scaled already, dense or sparse.

    A label that no text has, or every text, is predicted with the constant log odds ∓100.
    """
    columns = list(answers.T.astype(np.int64))
    known = [column for column in columns if 0 < column.sum() < len(column)]
    best = _smallest(
        penalties, lambda c: sum(_held_out_loss(features, column, 2, c) for column in known)
    )
    weight, bias = np.zeros((len(columns), features.shape[1])), np.full(len(columns), NEVER)
    for number, column in enumerate(columns):
        if column.all():
            bias[number] = -NEVER
        elif column.any():
            head = _fit(features, column, 2, best)
            weight[number], bias[number] = head.weight[1], head.bias[1]
    outputs = np.asarray(features @ weight.T + bias)
    return Head(
        weight, bias, best, float(np.logaddexp(0, np.where(answers, -outputs, outputs)).mean())
    )


def _fit(
    features: Any,
    answers: Labels,
    labels: int,
    penalty: float,
    each: np.ndarray | None = None,
    tolerance: float = 1e-4,
) -> Head:
    """Fit logistic regression; ``each`` are weights of the texts."""
    from sklearn.linear_model import LogisticRegression  # takes a second to import

    model = LogisticRegression(C=penalty, max_iter=2000, tol=tolerance)
    return Head(*weights_of(model.fit(features, answers, each), labels), penalty, 0.0)


def _held_out_loss(
    features: Any, answers: Labels, labels: int, penalty: float, each: np.ndarray | None = None
) -> float:
    """Return the total loss of all texts in a cross-validation."""
    fold, loss = folds(answers), 0.0
    for held in range(FOLDS):
        rows = fold != held
        if len(np.unique(answers[rows])) > 1 and not rows.all():
            weights = None if each is None else each[rows]
            head = _fit(features[rows], answers[rows], labels, penalty, weights, 1e-3)
            loss += float(log_loss(head(features[~rows]), answers[~rows]).sum())
    return loss


def _smallest(penalties: Sequence[float], loss: Callable[[float], float]) -> float:
    """Return the penalty before the first that does not reduce the loss."""
    best, smallest = penalties[0], np.inf
    for penalty in penalties if len(penalties) > 1 else ():
        if (value := loss(penalty)) >= smallest:
            break
        smallest, best = value, penalty
    return best


def _unscaled(head: Head, mean: Float[np.ndarray, " width"], scale: float) -> Head:
    """Return a head that was fitted to scaled vectors, for the vectors as they are."""
    weight = head.weight / scale
    return head._replace(weight=weight, bias=head.bias - weight @ mean)


def fit_numbers(
    vectors: Vectors, numbers: Float[np.ndarray, " texts"], penalties: Sequence[float] = PENALTIES
) -> Head:
    """Fit ridge regression, min Σ (w·z + b − y)² + ‖w‖² / C, to vectors scaled as in `fit_labels`.

    C is the candidate with the smallest squared error when each text is left out once (Hoerl &
    Kennard 1970; scikit-learn's RidgeCV).

    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> fit_numbers(x, np.array([1.0, 3.0, 5.0, 7.0]))(x).round(1).ravel().tolist()
    [1.0, 3.0, 5.0, 7.0]
    """
    from sklearn.linear_model import RidgeCV

    mean, scale = _scaling(vectors)
    scaled = (vectors - mean) / scale
    model = RidgeCV(alphas=[1 / penalty for penalty in penalties]).fit(scaled, numbers)
    weight = model.coef_[None] / scale
    loss = float(((model.predict(scaled) - numbers) ** 2).mean())
    return Head(weight, model.intercept_ - weight @ mean, 1 / model.alpha_, loss)


def folds(answers: Num[np.ndarray, " texts"]) -> Int[np.ndarray, " texts"]:
    """Return the fold of each text, 0 to 4: the texts of each label in turn, in their order.

    >>> folds(np.array([0, 1, 0, 1, 1, 0])).tolist()
    [0, 3, 1, 4, 0, 2]
    """
    fold = np.empty(len(answers), dtype=np.int64)
    fold[np.argsort(answers, kind="stable")] = np.arange(len(answers)) % FOLDS
    return fold


def weights_of(
    model: "LogisticRegression", labels: int, never: float = NEVER
) -> tuple[Float[np.ndarray, "labels width"], Float[np.ndarray, " labels"]]:
    """Return a row of weights and a bias for every label, ``never`` for one without a text.

    For two labels, scikit-learn fits only the second.
    """
    weight, bias = np.zeros((labels, model.coef_.shape[1])), np.full(labels, never)
    bias[model.classes_] = 0.0
    columns = model.classes_[-len(model.coef_) :]
    weight[columns], bias[columns] = model.coef_, model.intercept_
    return weight, bias


def log_loss(
    logits: Float[np.ndarray, "texts labels"], answers: Labels
) -> Float[np.ndarray, " texts"]:
    """Return the negative log-likelihood of each answer, in nats."""
    return np.asarray(-log_softmax(logits, axis=1)[np.arange(len(answers)), answers])


def _scaling(vectors: Vectors) -> tuple[Float[np.ndarray, " width"], float]:
    """Return the mean and the root of the mean squared distance from it."""
    mean = vectors.mean(0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - mean) ** 2).sum(1).mean()))
    return mean, scale if scale > 1e-6 else 1.0
