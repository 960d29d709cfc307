"""Curves of replications: scores over training steps and over test lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import regard
from regard.labs.comparison import Result
from regard.labs.replications.outcomes import half_widths
from regard.reports.figures import Series, line_chart
from regard.reports.findings import Figure, Section, Table

Curve = tuple[list[int], list[float]]
Lengths = Mapping[str, Mapping[int, Sequence[float]]]


@dataclass(frozen=True)
class Curves:
    """Validation score and training loss of every seed, over steps."""

    validation: Sequence[Curve]
    loss: Sequence[Curve]

    def first(self, share: float) -> list[float]:
        """Return the first step of each seed whose validation score exceeds a share, or NaN."""
        return [
            next((float(x) for x, y in zip(*one, strict=True) if y > share), float("nan"))
            for one in self.validation
        ]

    def learned(self, nats: float) -> list[float]:
        """Return the first step of each seed whose training loss is below ``nats``, or NaN."""
        return [
            next((float(x) for x, y in zip(*one, strict=True) if y < nats), float("nan"))
            for one in self.loss
        ]

    def steepest(self, part: float = 0.1) -> list[float]:
        """Return the share of each seed's total gain within the steepest ``part`` of its steps."""
        shares = []
        for steps, scores in self.validation:
            if len(steps) < 3 or scores[-1] == scores[0]:
                shares.append(float("nan"))
                continue
            window = part * (steps[-1] - steps[0])
            grid = np.linspace(steps[0], steps[-1], 200)
            ends = np.interp(grid + window, steps, scores)
            gains = ends - np.interp(grid, steps, scores)
            shares.append(float(gains.max() / (max(scores) - scores[0])))
        return shares


def curves_of(result: Result) -> dict[str, Curves]:
    """Return the curves of each arm."""
    curves = {}
    for one in result.arms:
        runs = [regard.load(folder).metrics() for folder in one.folders]
        curves[one.name] = Curves(
            [_column(rows, "validation") for rows in runs], [_column(rows, "loss") for rows in runs]
        )
    return curves


def _column(rows: Sequence[Mapping[str, float]], name: str) -> Curve:
    kept = [row for row in rows if row.get(name) is not None]
    return [int(row["step"]) for row in kept], [float(row[name]) for row in kept]


def learning_section(curves: Mapping[str, Curves], title: str, text: str) -> Section:
    """Draw the validation score of every seed over the steps."""
    series = [
        Series(name if i == 0 else "", steps, [100 * y for y in scores], look=look, faint=i > 0)
        for look, (name, one) in enumerate(curves.items())
        for i, (steps, scores) in enumerate(one.validation)
    ]
    chart = line_chart(title, series, x_label="step", y_label="validation score, %")
    return Section(title, [text], [Figure(chart, "Seed 0 in colour, the other seeds faint.")])


def lengths_section(scores: Lengths, title: str, text: str, published: str = "") -> Section:
    """Draw the scores of each arm over the test length, and list them."""
    series, rows = [], []
    for look, (name, by_length) in enumerate(scores.items()):
        ends = {n: half_widths(values) for n, values in by_length.items()}
        series.append(
            Series(
                name, list(ends), [100 * mean for mean, _, _ in ends.values()], look=look,
                low=[100 * max(0.0, low) for _, low, _ in ends.values()],
                high=[100 * min(1.0, high) for _, _, high in ends.values()],
            )
        )  # fmt: skip
        cells = [
            f"{100 * mean:.1f} ({100 * max(0.0, low):.1f} to {100 * min(1.0, high):.1f})"
            for mean, low, high in ends.values()
        ]
        rows.append([name, *cells])
    lengths = list(next(iter(scores.values()), {}))
    chart = line_chart(title, series, x_label="test length", y_label="score, %", log_x=True)
    table = Table(f"{title}: % (95 %)", ["arm", *map(str, lengths)], rows, published)
    return Section(title, [text], [Figure(chart, "Means over seeds with 95 % intervals.")], [table])
