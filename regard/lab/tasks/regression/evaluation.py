"""Predictions of numbers and their evaluation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.labels import number_of, why_no_number
from regard.lab.tasks import unit_of
from regard.lab.tasks.evaluation import Evaluation, groups_of, interval, must_have_examples
from regard.lab.tasks.regression import METRICS

Numbers = NDArray[np.float64]
GUESS = "training mean"  # the guess that ignores the text


@dataclass(frozen=True)
class Number:
    """The number that a model predicts for a text."""

    value: float
    unknown: tuple[str, ...] = ()  # words of the text that the model does not know

    def line(self) -> str:
        """Return the number with six significant digits."""
        return f"{self.value:.6g}"

    def phrase(self) -> str:
        """Return the number with four significant digits."""
        return f"{self.value:.4g}"

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        named = {"unknown": list(self.unknown)} if self.unknown else {}
        return {"value": self.value, **named}


def metric_of(name: str, predicted: Numbers, true: Numbers) -> float:
    """Compute R², MAE, RMSE or Spearman's ρ, by the metric's name in tables.

    R² = 1 − Σ (yᵢ − ŷᵢ)² / Σ (yᵢ − ȳ)²; ρ is Pearson's correlation of the ranks. If all true
    numbers are equal, R² and ρ are 0.

    >>> metric_of("MAE", np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    1.5
    """
    wrong = predicted - true
    if name == "MAE":
        return float(np.abs(wrong).mean())
    if name == "RMSE":
        return float(np.sqrt((wrong**2).mean()))
    if name == "R²":
        spread = 0.0 if all_equal(true) else float(((true - true.mean()) ** 2).sum())
        return 1 - float((wrong**2).sum()) / spread if spread else 0.0
    a, b = (x - x.mean() for x in (rankdata(predicted), rankdata(true)))
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else 0.0


def all_equal(numbers: Numbers) -> bool:
    """Return whether all numbers are equal up to rounding, even if their variance is not 0."""
    return bool(np.ptp(numbers) <= 8 * np.finfo(np.float64).eps * np.abs(numbers).max())


def pseudo_values(name: str, predicted: Numbers, true: Numbers) -> Numbers:
    """Return one number per example, larger is better, whose mean is the metric, or minus it.

    MAE: minus the absolute error. RMSE (negated) and R²: the jackknife's n θ − (n − 1) θ₋ᵢ
    (Miller 1974), shifted to have mean θ, in O(n). ρ: the influence of each example, which is the
    first-order term of the jackknife, shifted to have mean ρ, in O(n log n). With
    two examples for R², and four for ρ, the metric is often the same without any one of them: the
    last example then has the full value, so that t is 1 for any difference.
    """
    n, wrong = len(true), (predicted - true) ** 2
    if name == "MAE":
        return -np.abs(predicted - true)
    if n < {"RMSE": 2, "R²": 3}.get(name, 5):
        values = np.zeros(n)
        values[-1:] = n * (-1 if name == "RMSE" else 1) * metric_of(name, predicted, true)
        return values
    if name == "RMSE":
        whole, left = -np.sqrt(wrong.mean()), -np.sqrt((wrong.sum() - wrong) / (n - 1))
    elif name == "R²":
        # Without example i, the sum of squares is smaller by n/(n − 1) (yᵢ − ȳ)².
        spread = 0.0 if all_equal(true) else ((true - true.mean()) ** 2).sum()
        rest = spread - n / (n - 1) * (true - true.mean()) ** 2
        whole = metric_of(name, predicted, true)
        varied = rest > 1e-9 * spread  # otherwise the others are all equal, and their R² is 0
        left = np.where(varied, 1 - (wrong.sum() - wrong) / np.where(varied, rest, 1), 0)
    else:
        whole, influence = metric_of(name, predicted, true), _influence_on_rho(predicted, true)
        return np.asarray(whole + influence - influence.mean())
    values = n * whole - (n - 1) * left
    return np.asarray(values - values.mean() + whole, dtype=np.float64)


def _influence_on_rho(predicted: Numbers, true: Numbers) -> Numbers:
    """Compute the influence of each pair (x, y) on the rank correlation, up to a constant.

        (uᵢvᵢ + a_x(v)ᵢ + a_y(u)ᵢ) / √(s_u s_v)
            − ρ/2 ((uᵢ² + 2a_x(u)ᵢ) / s_u + (vᵢ² + 2a_y(v)ᵢ) / s_v)

    with u, v the centred ranks divided by n, s_u, s_v their variances (constants without ties), and
    a_x(w)ᵢ the sum of w where x > xᵢ, half of it where x = xᵢ, over n. Croux & Dehon 2010.
    """
    u, v = ((rank - rank.mean()) / len(rank) for rank in (rankdata(predicted), rankdata(true)))
    one, other = float(u.var()), float(v.var())
    if not one or not other:
        return np.zeros(len(u))
    size = math.sqrt(one * other)
    both = (u * v + _above(predicted, v) + _above(true, u)) / size
    ties = (u * u + 2 * _above(predicted, u)) / one + (v * v + 2 * _above(true, v)) / other
    return np.asarray(both - float((u * v).mean()) / size / 2 * ties)


def _above(x: Numbers, weights: Numbers) -> Numbers:
    """Return for each i the sum of weights with x > xᵢ, plus half of those with x = xᵢ, over n."""
    order = np.argsort(x, kind="stable")
    ordered, sums = x[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    first, last = (np.searchsorted(ordered, x, side=side) for side in ("left", "right"))
    return np.asarray((sums[-1] - 0.5 * (sums[first] + sums[last])) / len(x))


def number_evaluation(
    metric: str, examples: Sequence[Example], predicted: ArrayLike, mean: float
) -> Evaluation:
    """Evaluate predicted numbers; ``mean`` is the mean of the training numbers.

    The interval over examples, or groups of them, is that of `interval`. Raises: no
    examples; a label that is not a number.
    """
    must_have_examples(examples)
    true, numbers, unit = parsed(examples), np.asarray(predicted, np.float64), unit_of(metric)
    value, per_example = metric_of(metric, numbers, true), pseudo_values(metric, numbers, true)
    low, high = interval(
        per_example, value, unit.least, unit.most, fewest=3, groups=groups_of(examples)
    )
    return Evaluation(
        metric=metric,
        value=value,
        low=low,
        high=high,
        examples=examples,
        answers=numbers,
        row=lambda number: {"number": float(number)},
        correct=numbers == true,
        per_example=per_example,
        # Equal up to rounding.
        is_constant=bool(np.ptp(numbers) <= 1e-6 * np.ptp(true)) and not all_equal(true),
        other_metrics={
            name: metric_of(name, numbers, true) for name in METRICS.values() if name != metric
        },
        trivial={GUESS: metric_of(metric, np.full(len(true), mean), true)},
        remarks={GUESS: f"{metric} of predicting the training mean for every text"},
    )


def parsed(examples: Sequence[Example]) -> Numbers:
    """Return the number of each example. Raises: a label that is not a number, by file:line."""
    numbers = [number_of(example.label) for example in examples]
    for example, value in zip(examples, numbers, strict=True):
        if value is None:
            problem = why_no_number(example.label)
            if ";" not in problem:
                problem += (
                    "; name the column of the numbers by label=NAME (--label NAME for regard "
                    "evaluate), or learn labels with regard train classification"
                )
            raise RegardError(f"{example.source}: {problem}")
    return np.array(numbers, dtype=np.float64)
