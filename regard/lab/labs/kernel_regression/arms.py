"""The arms of the kernel regression lab: how each is chosen and fitted."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from regard.lab.labs import Show
from regard.lab.labs.kernel_regression.points import (
    KernelRegressionSettings,
    Numbers,
    Points,
    variance,
)
from regard.lab.runs.kernel_estimator import KernelRegression
from regard.nn.models.kernel_regression import KERNELS, search

AVERAGE, LEARNED, GRID = "average", "Gaussian, learned", "Gaussian, grid"
FINE = np.exp(np.arange(-2.4, 4.21, 0.05))  # of w, for one dimension
COARSE = 2.0 ** np.arange(-3, 4)  # for several, refined twice
PAIRS = 6e8  # that a grid search may compare
ASKED = 1000  # rows of a grid search at most
FOLDS = 5
MOST_NEIGHBORS = 100
RIDGE_ROWS, RIDGE_CHOICE = 2000, 400  # of KernelRidge, whose memory is n²: fitted on, chosen on


@dataclass(frozen=True)
class Arm:
    """A way to predict, how it was chosen, and its learned parameters."""

    name: str
    chosen: str
    fit: Callable[[], Any] = field(repr=False)
    family: str = "attention"
    parameters: int = 0
    searched: float = 0.0  # seconds spent before the fit


def fixed_name(how: KernelRegressionSettings) -> str:
    """Return the arm of the Gaussian whose w is given."""
    return f"Gaussian, w = {how.w:g}"


@dataclass(frozen=True)
class Fitted:
    """A fitted arm: its predictions for held-out points, and their cost."""

    arm: Arm
    model: Any
    said: Numbers
    seconds: float


@dataclass(frozen=True)
class Grid:
    """The search for w: each tried w with its leave-one-out error, the best, and the learned."""

    tried: Sequence[tuple[tuple[float, ...], float]]
    best: tuple[float, ...]
    low: float
    learned: float
    rows: int

    @property
    def ratio(self) -> float:
        """Return the error of the learned width divided by the best error."""
        return self.learned / self.low if self.low > 0 else 1.0


@dataclass(frozen=True)
class Lab:
    """The results of all arms."""

    points: Points
    how: KernelRegressionSettings
    fitted: Mapping[str, Fitted]
    grid: Grid
    without: Sequence[float] = field(default=())  # held-out error without each column

    def errors(self, name: str) -> Numbers:
        """Return the squared errors of an arm on held-out points, as shares of y's variance."""
        wrong = self.fitted[name].said - self.points.new_y
        spread = variance(self.points.new_y)
        return np.square(wrong) / spread

    @property
    def learned(self) -> KernelRegression:
        """The Gaussian whose w was learned."""
        model: KernelRegression = self.fitted[LEARNED].model
        return model

    @property
    def fixed(self) -> str:
        """The name of the Gaussian whose w was given."""
        return fixed_name(self.how)

    @property
    def w(self) -> tuple[float, ...]:
        """The learned w."""
        return tuple(float(w) for w in 1 / self.learned.widths_)


def arms(points: Points, how: KernelRegressionSettings) -> list[Arm]:
    """Return the compared arms without the Gaussian of the grid, which the search adds."""
    unit, dimensions = list(points.unit), points.x.shape[1]

    def fitted(kernel: str, widths: Any, **more: Any) -> Callable[[], KernelRegression]:
        regression = KernelRegression(
            kernel, widths, shrink=False, steps=how.steps, batch=how.batch, seed=how.seed, **more
        )
        return lambda: regression.fit(points.x, points.y)

    neighbors = how.neighbors or best_neighbors(points, how.seed)
    by = "as set" if how.neighbors else f"k = {neighbors}: least leave-one-out error"
    start = "from w = 1" if how.w == 1 else f"from w = {how.w:g}"
    learned = f"by gradient, leaving one out, {start}"
    rows = [
        Arm(AVERAGE, "nothing to choose", fitted("average", unit)),
        Arm(fixed_name(how), "as set", fitted("gaussian", unit)),
        Arm(LEARNED, learned, fitted("gaussian", "learn", start=unit), parameters=dimensions),
        Arm("dot", "no width: the inner product", fitted("dot", unit)),
        Arm("cosine", "no width: direction alone", fitted("cosine", unit)),
    ]
    if points.small:
        reach = list(points.unit * KERNELS["epanechnikov"].reach)
        rows.append(
            Arm("Epanechnikov", learned, fitted("epanechnikov", "learn", start=reach),
                parameters=dimensions)
        )  # fmt: skip
    spread = list(points.scale)
    nearest = fitted("k-nearest", spread, n_neighbors=neighbors)
    return [
        *rows,
        Arm("k-nearest", by, nearest),
        Arm("KNeighborsRegressor", by, partial(peer_neighbors, points, neighbors), "baseline"),
        Arm("KernelRidge", *ridge(points, how.seed)),
    ]


def best_neighbors(points: Points, seed: int) -> int:
    """Return the k with the least leave-one-out error of some points, of all k up to a hundred."""
    from sklearn.neighbors import NearestNeighbors

    count = len(points.x)
    most = min(MOST_NEIGHBORS, count - 1)
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:ASKED])
    scaled = points.x / points.scale
    near = NearestNeighbors(n_neighbors=most + 1).fit(scaled)
    neighbors = near.kneighbors(scaled[rows], return_distance=False)
    itself = neighbors == rows[:, None]
    itself[~itself.any(1), -1] = True  # where as many others have the same x
    others = neighbors[~itself].reshape(len(rows), most)
    means = points.y[others].cumsum(1) / np.arange(1, most + 1)
    errors = np.square(means - points.y[rows, None]).mean(0)
    return int(errors.argmin()) + 1


def peer_neighbors(points: Points, neighbors: int) -> Any:
    """Return scikit-learn's nearest neighbours, with columns in standard deviations."""
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    neighbors = min(neighbors, len(points.x))
    pipeline = make_pipeline(StandardScaler(), KNeighborsRegressor(n_neighbors=neighbors))
    return pipeline.fit(points.x, points.y)


def ridge(points: Points, seed: int) -> tuple[str, Callable[[], Any], str]:
    """Return scikit-learn's kernel ridge: its choice, its fit and its family.

    Its memory is n² and its time n³, so it learns from a share of many points.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    draw = np.random.default_rng(seed)
    rows = draw.permutation(len(points.x))
    some, few = np.sort(rows[:RIDGE_ROWS]), np.sort(rows[:RIDGE_CHOICE])

    def fit() -> Any:
        inner = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf"))
        centred = TransformedTargetRegressor(inner, transformer=StandardScaler())
        before = "regressor__kernelridge__"
        grid = {f"{before}gamma": 10.0 ** np.arange(-2, 2.5, 0.5),
                f"{before}alpha": 10.0 ** np.arange(-3, 1.5)}  # fmt: skip
        folds = KFold(FOLDS, shuffle=True, random_state=seed)
        chosen = GridSearchCV(
            centred, grid, cv=folds, scoring="neg_mean_squared_error", refit=False
        )
        chosen.fit(points.x[few], points.y[few])
        return centred.set_params(**chosen.best_params_).fit(points.x[some], points.y[some])

    says = f"γ and α by {FOLDS}-fold cross-validation"
    if len(points.x) > RIDGE_CHOICE:
        says += f" on {len(few):,} points, then fitted on {len(some):,}: its memory is n²"
    return says, fit, "baseline"


def compute(points: Points, how: KernelRegressionSettings, show: Show) -> Lab:
    """Fit the arms, search for w, then leave out one column after the other."""
    chosen = arms(points, how)
    total = len(chosen) + 4
    fitted: dict[str, Fitted] = {}

    def take(arm: Arm) -> None:
        show(len(fitted), total, arm.name)
        begin = time.perf_counter()
        model = arm.fit()
        predicted = np.asarray(model.predict(points.new_x))
        spent = time.perf_counter() - begin + arm.searched
        fitted[arm.name] = Fitted(arm, model, predicted, spent)

    for arm in chosen:
        take(arm)
    learned = fitted[LEARNED].model
    begin = time.perf_counter()
    grid = by_grid(points, how, learned, lambda: show(len(fitted), total, "grid search"))
    searched = time.perf_counter() - begin
    take(given(GRID, "gaussian", [1 / w for w in grid.best], points, len(grid.tried), searched))
    for name in ("epanechnikov", "boxcar"):
        shown = "Epanechnikov" if name == "epanechnikov" else name
        if shown not in fitted:
            take(windowed(name, shown, points, list(learned.widths_), how))
    without = []
    if points.x.shape[1] > 1:
        spread = variance(points.new_y)
        for place in range(points.x.shape[1]):
            show(total - 1, total, f"without {points.names[place]}")
            blind = learned.widths_.copy()
            blind[place] = 1e6 * points.scale[place]  # so wide that all distances look equal
            outputs = made("gaussian", list(blind), points).predict(points.new_x)
            without.append(float(np.square(outputs - points.new_y).mean()) / spread)
    return Lab(points, how, fitted, grid, without)


def made(kernel: str, widths: Sequence[float], points: Points) -> KernelRegression:
    """Return a kernel of given widths over all the points."""
    return KernelRegression(kernel, list(widths)).fit(points.x, points.y)


def given(
    name: str, kernel: str, widths: Sequence[float], points: Points, tried: int, searched: float
) -> Arm:
    """Return the arm of a search."""
    chosen = f"least leave-one-out error of {tried}"
    return Arm(name, chosen, lambda: made(kernel, widths, points), searched=searched)


def criterion(
    kernel: str, points: Points, rows: Numbers, tell: Callable[[], None]
) -> Callable[[Sequence[float]], float]:
    """Return the mean square leave-one-out error of these rows, as a function of w."""

    def error(w: Sequence[float]) -> float:
        tell()
        predicted = made(kernel, [1 / x for x in w], points).leave_one_out(rows)
        return float(np.square(predicted - points.y[rows]).mean())

    return error


def by_grid(
    points: Points,
    how: KernelRegressionSettings,
    learned: KernelRegression,
    tell: Callable[[], None],
) -> Grid:
    """Search w from a start, by the criterion that also trains w."""
    dimensions = points.x.shape[1]
    factors, sweeps = (FINE, 1) if dimensions == 1 and points.small else (COARSE, 3)
    times = (len(factors) + 2 * (sweeps - 1)) * dimensions
    most = int(np.clip(PAIRS / len(points.x) / times, 64, ASKED))
    rows = np.random.default_rng(how.seed).permutation(len(points.x))[:most]
    error = criterion("gaussian", points, np.sort(rows), tell)
    tried = list(search(error, list(1 / points.unit), [float(f) for f in factors], sweeps))
    best, low = min(tried, key=lambda found: found[1])
    return Grid(tried, best, low, error(list(1 / learned.widths_)), len(rows))


def windowed(
    kernel: str, name: str, points: Points, widths: Sequence[float], how: KernelRegressionSettings
) -> Arm:
    """Fit a kernel of bounded reach; its width is searched for few points, else the Gaussian's."""
    reach = KERNELS[kernel].reach
    if points.small:
        rows = np.random.default_rng(how.seed).permutation(len(points.x))[:ASKED]
        error = criterion(kernel, points, np.sort(rows), lambda: None)
        start = [1 / (reach * width) for width in widths]
        begin = time.perf_counter()
        tried = list(search(error, start, [float(f) for f in 2.0 ** np.arange(-2, 2.1, 0.25)]))
        best, _ = min(tried, key=lambda found: found[1])
        searched = time.perf_counter() - begin
        return given(name, kernel, [1 / w for w in best], points, len(tried), searched)
    alike = [reach * width for width in widths]
    chosen = f"{reach:g} × the Gaussian's learned width"
    return Arm(name, chosen, lambda: made(kernel, alike, points))
