"""Kernel regression as a scikit-learn estimator, for pipelines and grid searches."""

from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from regard.attention import Score
from regard.core.errors import RegardError, value_errors
from regard.nn.models.kernel_regression import (
    Kernel,
    NadarayaWatson,
    Step,
    error_of,
    learn,
    rule_of_thumb,
    shrinkage,
)

Numbers = NDArray[np.float64]
LEARN = "learn"
FAR = 1e100  # maximum distance in units, whose square is still finite
PAIRS = 2**23  # maximum pairs of a batch with all rows, if no batch size is given
ROWS = (32, 1024)  # minimum and maximum rows of such a batch


class KernelRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = Σᵢ K(x, xᵢ) yᵢ / Σᵢ K(x, xᵢ): the mean of the training y, weighted by nearness of x.

    Nadaraya 1964; Watson 1964. ``kernel`` is gaussian, epanechnikov, boxcar, cosine, dot, average
    or k-nearest, or a `Score` or its class, whose weights are a softmax of
    score(x / width, xᵢ / width). ``widths``, in the units of the columns, are one number, one per
    column, or "learn": gradient descent on the leave-one-out error, from ``start`` (widths; by
    default Silverman's rule) in ``steps`` steps of ``batch`` rows, each compared with all other
    rows. It learns a common factor of all widths, then each width. Since leave-one-out errors
    overfit many widths to few rows, the second part is shrunk by an amount chosen on three held-out
    parts; ``shrink=False`` learns each width directly. For
    kernels without a gradient, "learn" uses Silverman's rule alone. Memory is linear in the rows.

    Fitted attributes: ``widths_``, one per column; ``shrinkage_``, the kept share of the changes of
    single widths, from 0 (a common factor) to 1; ``history_``, a `Step` before the first step and
    after each, with w = 1 / width. A point without rows in reach
    (epanechnikov, boxcar) gets the mean of y.

    Raises: ``ValueError`` for an unknown kernel, for widths that are not above 0, and for X and y.

    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> model = KernelRegression().fit(x, np.sin(x[:, 0]))
    >>> bool(abs(model.predict([[3.0]])[0] - np.sin(3.0)) < 0.01)
    True
    """

    def __init__(
        self,
        kernel: str | Score | type[Score] = "gaussian",
        widths: str | float | Sequence[float] = LEARN,
        *,
        start: float | Sequence[float] | None = None,
        n_neighbors: int = 5,
        steps: int = 100,
        batch: int = 0,
        learning_rate: float = 0.3,
        shrink: bool = True,
        seed: int = 0,
    ) -> None:
        self.kernel = kernel
        self.widths = widths
        self.start = start
        self.n_neighbors = n_neighbors
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.shrink = shrink
        self.seed = seed

    @value_errors()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803, scikit-learn's name
        """Store X (rows, columns) and y (rows,) or (rows, outputs), and learn the widths."""
        self._check()
        kernel = Kernel.of(self.kernel)
        learns = isinstance(self.widths, str) and kernel.slopes
        checked: tuple[Numbers, Numbers] = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True,
            ensure_min_samples=2 if learns else 1,
        )  # fmt: skip
        rows, targets = checked[0], np.asarray(checked[1], dtype=np.float64)
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        # In units of powers of two, so that squares of tiny and huge numbers are finite.
        self._unit, self._unit_y = unit_of(rows), unit_of(targets.reshape(-1, 1))
        rows, targets = rows / self._unit, targets / self._unit_y
        # Centred, for floating-point precision; kernels of angles need the true origin.
        self._origin: Numbers = rows.mean(0) if kernel.centred else np.zeros(rows.shape[1])
        self._mean: Numbers = targets.mean(0)
        scale: Numbers = rows.std(0)
        # The deviation of a column of equal numbers consists of rounding errors.
        scale[scale <= 1e-12 * np.abs(rows).max(0, initial=0)] = 1
        self._scale = scale
        self._keys: Numbers = (rows - self._origin) / scale
        self._values: Numbers = targets - self._mean
        ready = self._start(kernel.reach)
        with torch.random.fork_rng(devices=[]):  # of a score that is built from its class
            torch.manual_seed(self.seed)
            self._model = NadarayaWatson(
                self.kernel, (scale / ready).tolist(), neighbors=self.n_neighbors
            )
        self.shrinkage_ = 1.0
        self.history_ = list(self._learn()) if learns else []
        self.widths_: Numbers = self._unit * (scale / self._model.log_w.detach().exp().numpy())
        self._model.requires_grad_(False)
        return self

    def predict(self, X: ArrayLike) -> Numbers:  # noqa: N803
        """Return the kernel-weighted mean of the training y at each row of X."""
        check_is_fitted(self)
        rows: Numbers = validate_data(self, X, dtype=np.float64, reset=False)
        with np.errstate(over="ignore"):
            scaled = np.clip(rows / self._unit, -FAR, FAR)
        arrays = (scaled - self._origin) / self._scale, self._keys, self._values
        queries, keys, values = (torch.from_numpy(np.ascontiguousarray(x)) for x in arrays)
        with torch.no_grad():
            predicted: Numbers = self._model(queries, keys, values).numpy() + self._mean
        predicted *= self._unit_y
        return predicted[:, 0] if self._flat else predicted

    @value_errors()
    def leave_one_out(self, rows: ArrayLike | None = None) -> Numbers:
        """Predict training rows, by number (default: all), each from all the other rows.

        Shapes as in `predict`. A row without others in reach gets the mean of the others' y.
        """
        check_is_fitted(self)
        chosen = None if rows is None else torch.as_tensor(np.asarray(rows, dtype=np.int64))
        last = len(self._keys) - 1
        if chosen is not None and bool(((chosen < 0) | (chosen > last)).any()):
            raise RegardError(f"row numbers must be between 0 and {last}")
        keys, values = torch.from_numpy(self._keys), torch.from_numpy(self._values)
        ones = torch.ones_like(values[:, :1])  # their mean is 0 if no row is in reach
        with torch.no_grad():
            predicted = self._model.leave_one_out(keys, torch.cat([values, ones], 1), chosen)
        predicted, alone = predicted[:, :-1], predicted[:, -1:] == 0
        targets = values if chosen is None else values[chosen]
        predicted = torch.where(
            alone, -targets / max(last, 1), predicted
        )  # the mean of the other rows' y
        result: Numbers = (predicted.numpy() + self._mean) * self._unit_y
        return result[:, 0] if self._flat else result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        # "average" ignores x, and the softmax of cosines, from −1 to 1, is nearly uniform.
        tags.regressor_tags.poor_score = str(self.kernel) in ("average", "cosine")
        return tags

    def _learn(self) -> Iterator[Step]:
        count = len(self._keys)
        batch = self.batch or min(max(PAIRS // count, ROWS[0]), ROWS[1])
        data = torch.from_numpy(self._keys), torch.from_numpy(self._values)
        how: dict[str, Any] = {
            "steps": self.steps,
            "batch": batch,
            "rate": self.learning_rate,
            "seed": self.seed,
        }
        model, number = self._model, 0
        variance = float(self._values.var(0).mean())
        shrinks = self.shrink and len(self._scale) > 1 and self.steps > 0
        for step in learn(model, *data, common=shrinks, **how):
            number = step.number
            yield self._step(number, step.w, step.loss * variance)
        if not shrinks:
            return
        self.shrinkage_ = shrinkage(model, *data, **how)
        common = model.log_w.detach().clone()
        for step in learn(model, *data, **how):
            if step.number:
                yield self._step(number + step.number, step.w, step.loss * variance)
        with torch.no_grad():
            model.log_w.copy_(common + self.shrinkage_ * (model.log_w - common))
        yield self._step(2 * number + 1, model.w.tolist(), error_of(model, *data))

    def _step(self, number: int, w: Sequence[float], error: float) -> Step:
        """Return a step in the units of X and y."""
        units = zip(w, self._scale * self._unit, strict=True)
        size = float(self._unit_y[0])
        return Step(number, tuple(float(a / s) for a, s in units), error * size * size)

    def _check(self) -> None:
        """Raise an error for invalid numbers."""
        for name, least in (("steps", 0), ("batch", 0), ("seed", 0), ("n_neighbors", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
                raise RegardError(f"{name} must be a whole number from {least}, not {value!r:.80}")
        if not isinstance(self.shrink, bool | np.bool_):
            raise RegardError(f"shrink must be True or False, not {self.shrink!r:.80}")
        rate = self.learning_rate
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < rate < np.inf:
            raise RegardError(f"learning_rate must be above 0 and finite, not {rate!r:.80}")

    def _start(self, reach: float) -> Numbers:
        """Return the user's widths, or those to start learning from."""
        name = "start" if isinstance(self.widths, str) else "widths"
        chosen = self.start if isinstance(self.widths, str) else self.widths
        if isinstance(self.widths, str) and self.widths != LEARN:
            raise RegardError(f"widths must be above 0 or {LEARN!r}, not {self.widths!r}")
        columns = len(self._scale)
        if chosen is None:
            thumb: Numbers = self._scale * reach * rule_of_thumb(len(self._keys), columns)
            return thumb
        try:
            widths = np.asarray(chosen, dtype=np.float64)
        except (TypeError, ValueError):
            raise RegardError(f"{name} must be numbers above 0, not {chosen!r:.80}") from None
        if widths.shape not in ((), (columns,)):
            raise RegardError(
                f"{name} must be one number, or one per column ({columns}), not {widths.size}"
            )
        if not (np.isfinite(widths) & (widths > 0)).all():
            raise RegardError(f"{name} must be above 0 and finite, not {chosen}")
        return np.broadcast_to(widths, (columns,)) / self._unit


def unit_of(x: Numbers) -> Numbers:
    """Return for each column the power of two up to its largest absolute value, 1 for zeros.

    >>> unit_of(np.array([[-5.0, 0.0, 1e-300], [3.0, 0.0, 0.0]]))[:2].tolist()
    [4.0, 1.0]
    """
    most = np.abs(x).max(0, initial=0)
    return np.ldexp(1.0, np.where(most > 0, np.frexp(most)[1] - 1, 0))
