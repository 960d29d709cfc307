"""The figures of the kernel regression lab."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.lab.data.curve import truth
from regard.lab.labs.kernel_regression.arms import AVERAGE, LEARNED, Lab
from regard.lab.labs.kernel_regression.points import Numbers, Points, variance
from regard.lab.reports.figures import Row, Series, interval_chart, line_chart
from regard.lab.reports.findings import Cell, film
from regard.lab.reports.maps import heat_map
from regard.lab.reports.markup import Html
from regard.lab.runs.kernel_estimator import KernelRegression
from regard.nn.models.kernel_regression import KERNELS, NadarayaWatson

ALONG = 160  # points at which a curve is drawn
FRAMES = 14
SHOWN = 400  # points of a cloud
SQUARE = 60  # rows of a heat map
RESIDUALS = 4  # columns over which residuals are drawn
PEERS = ("KNeighborsRegressor", "KernelRidge")


def fits(lab: Lab, rows: Sequence[Sequence[Cell]]) -> dict[str, Html]:
    """Return the errors of all arms, and the fitted curves or predictions over true values."""
    errors = interval_chart(
        f"What each arm leaves of the variance of {lab.points.target}",
        [_row(cells) for cells in rows], x_label="% of the variance at held-out points",
        reference=lab.fixed,
    )  # fmt: skip
    if len(lab.w) > 1:
        return {"errors": errors, **_said_and_true(lab)}
    first = [AVERAGE, lab.fixed, LEARNED]
    second = ["Epanechnikov", "boxcar", "k-nearest", "KernelRidge"]
    what = f"{lab.points.target} over {lab.points.names[0]}"
    fixed, learned = _residuals(lab, 0)
    return {
        "errors": errors,
        "fits": _fit_chart(lab, "The average, the fixed w, the learned w", first),
        "other-kernels": _fit_chart(lab, f"Other kernels: {what}", second),
        "residuals-fixed": fixed,
        "residuals-0": learned,
    }


def _row(cells: Sequence[Cell]) -> Row:
    name, mean, low, high = str(cells[0]), *(float(x) for x in cells[1:4])
    return Row(name, mean, low, high, "baseline" if name in PEERS else "attention")


def _along(points: Points) -> Numbers:
    return np.linspace(points.x[:, 0].min(), points.x[:, 0].max(), ALONG)


def _thinned(rows: NDArray[np.intp], most: int = SHOWN) -> NDArray[np.intp]:
    """Return at most so many of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows)), dtype=np.intp)]


def _cloud(points: Points) -> Series:
    some = _thinned(np.argsort(points.x[:, 0], kind="stable"))
    return Series("", list(points.x[some, 0]), list(points.y[some]), faint=True, dots=True)


def _truth(points: Points) -> list[Series]:
    if not points.built_in:
        return []
    along = _along(points)
    return [Series("", list(along), list(truth(along)), faint=True)]


def _fit_chart(lab: Lab, title: str, names: Sequence[str]) -> Html:
    along = _along(lab.points)
    lines = [
        Series(name, list(along), list(lab.fitted[name].model.predict(along[:, None])), look=i)
        for i, name in enumerate(names)
    ]
    return line_chart(
        title, [_cloud(lab.points), *_truth(lab.points), *lines],
        x_label=lab.points.names[0], y_label=lab.points.target,
    )  # fmt: skip


def _residuals(lab: Lab, place: int) -> list[Html]:
    """Return the residuals over one column, for the fixed and the learned w."""
    x = lab.points.new_x[:, place]
    some = _thinned(np.argsort(x, kind="stable"))
    series = {
        name: Series(
            "", list(x[some]), list((lab.points.new_y - lab.fitted[name].said)[some]), dots=True
        )
        for name in (lab.fixed, LEARNED)
    }
    zero = Series("", [float(x.min()), float(x.max())], [0.0, 0.0], faint=True)
    column = lab.points.names[place]
    return [
        line_chart(
            f"Residuals: {name}", [zero, one], x_label=column, y_label="true − said", width=330,
            height=250, same_scale=list(series.values()),
        )
        for name, one in series.items()
    ]  # fmt: skip


def _said_and_true(lab: Lab) -> dict[str, Html]:
    some = _thinned(np.arange(len(lab.points.new_y)))
    true = lab.points.new_y[some]
    ends = [float(true.min()), float(true.max())]
    clouds = {
        name: Series("", list(true), list(lab.fitted[name].said[some]), dots=True)
        for name in (lab.fixed, LEARNED)
    }
    return {
        key: line_chart(
            f"Said and true: {name}", [Series("", ends, ends, faint=True), cloud],
            x_label=f"{lab.points.target}, true", y_label="said",
            width=330, height=290, same_scale=list(clouds.values()),
        )
        for key, (name, cloud) in zip(("said-fixed", "said-learned"), clouds.items(), strict=True)
    }  # fmt: skip


def learning(lab: Lab) -> dict[str, Html]:
    """Return the figures of the training: w by step, the criterion over w, the fit, the weights."""
    history = lab.learned.history_
    steps = [float(step.number) for step in history]
    per = lab.points.scale if len(lab.w) > 1 else np.ones(1)
    lines = [
        Series(name if len(lab.w) > 1 else "w", steps,
               [step.w[i] * float(per[i]) for step in history], look=i)
        for i, name in enumerate(lab.points.names)
    ]  # fmt: skip
    unit = "w per standard deviation" if len(lab.w) > 1 else "w"
    walk = line_chart("w while it is learned", lines, x_label="step", y_label=unit, log_y=True)
    if len(lab.w) > 1:
        return {"walk": walk}
    return {"film": _film(lab), "walk": walk, "criterion": _criterion(lab), **_weights(lab)}


def _film(lab: Lab) -> Html:
    history = lab.learned.history_
    last = len(history) - 1
    # More frames while w still changes.
    chosen = sorted(
        {round(last * (i / (FRAMES - 1)) ** 2.5) for i in range(FRAMES)} | set(range(3))
    )
    along = _along(lab.points)
    frames: list[tuple[str, list[float]]] = []
    for number in chosen[: last + 1]:
        step = history[number]
        model = KernelRegression(widths=1 / step.w[0]).fit(lab.points.x, lab.points.y)
        predicted = model.predict(along[:, None])
        frames.append((f"step {step.number}: w = {step.w[0]:.2f}", list(predicted)))
    like = [Series("", list(along), y) for _, y in frames]
    pictures = [
        (says, line_chart(
            "The fit while w is learned",
            [_cloud(lab.points), *_truth(lab.points), Series("fit", list(along), y, look=2)],
            x_label=lab.points.names[0], y_label=lab.points.target, same_scale=like,
        ))
        for says, y in frames
    ]  # fmt: skip
    return film("The fit while w is learned", pictures)


def _criterion(lab: Lab) -> Html:
    tried = sorted((w[0], error) for w, error in lab.grid.tried)
    spread = variance(lab.points.y)
    x = [w for w, _ in tried]
    lines = [Series("leaving one out", x, [100 * e / spread for _, e in tried], look=0)]
    if lab.points.small:
        itself = []
        for w in x[::3]:
            fitted = KernelRegression(widths=1 / w).fit(lab.points.x, lab.points.y)
            wrong = fitted.predict(lab.points.x) - lab.points.y
            itself.append(100 * float(np.square(wrong).mean()) / spread)
        lines.append(Series("asking itself too", x[::3], itself, look=1))
    mark = Series(
        "", [lab.w[0]], [100 * lab.grid.learned / spread], look=2, dots=True,
        low=[0.0], high=[100 * lab.grid.learned / spread],
    )  # fmt: skip
    return line_chart(
        "The error that w is learned by", [*lines, mark],
        x_label="w, one over the width", y_label="% of the variance of y left", log_x=True,
    )  # fmt: skip


def _weights(lab: Lab) -> dict[str, Html]:
    """Return the heat map of the weights among points sorted by x."""
    some = _thinned(np.argsort(lab.points.x[:, 0], kind="stable"), SQUARE)
    rows = torch.from_numpy(lab.points.x[some])
    span = (0.0, float(len(some) - 1))
    charts = {}
    both = {"fixed": (lab.fixed, lab.points.unit), "learned": (LEARNED, lab.learned.widths_)}
    for key, (name, widths) in both.items():
        model = NadarayaWatson("gaussian", list(1 / widths)).requires_grad_(False)
        charts[f"weights-{key}"] = heat_map(
            f"Weights: {name}", model.weights(rows, rows).numpy(),
            x_label="key, by x", y_label="query, by x", x_span=span, y_span=span, width=330,
        )  # fmt: skip
    return charts


def columns(lab: Lab) -> dict[str, Html]:
    """Return the charts of w per standard deviation of each column, and of the residuals."""
    late = lab.learned.history_[-max(2, len(lab.learned.history_) // 4) :]
    rows = []
    for i, name in enumerate(lab.points.names):
        scale = float(lab.points.scale[i])
        values = [step.w[i] * scale for step in late]
        rows.append(Row(name, lab.w[i] * scale, min(values), max(values)))
    chart = interval_chart(
        "w of each column", rows, x_label="w per standard deviation of the column"
    )
    places = range(min(len(rows), RESIDUALS))
    return {"columns": chart, **{f"residuals-{i}": _residuals(lab, i)[1] for i in places}}


def shapes() -> Html:
    """Return the chart of three kernels over the distance, at widths that smooth equally."""
    u = np.linspace(0, 3, 121)
    reach = {name: KERNELS[name].reach for name in ("epanechnikov", "boxcar")}
    lines = [
        Series("Gaussian", list(u), list(np.exp(-np.square(u) / 2)), look=0),
        Series("Epanechnikov", list(u), list(np.maximum(1 - (u / reach["epanechnikov"]) ** 2, 0)),
               look=1),
        Series("boxcar", list(u), list((u <= reach["boxcar"]).astype(float)), look=2),
    ]  # fmt: skip
    return line_chart(
        "How much a point counts, by its distance", lines,
        x_label="distance, in widths of the Gaussian", y_label="K, as a share of K(0)",
    )  # fmt: skip
