"""Curves of replications: scores over training steps and over test lengths."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import regard
from regard.lab.labs.collection import finished
from regard.lab.labs.comparison import Result
from regard.lab.labs.intervals import in_words, interval
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.markup import Html

Curve = tuple[list[int], list[float]]
Lengths = Mapping[str, Mapping[int, Sequence[float]]]


@dataclass(frozen=True)
class Curves:
    """Validation score and training loss of every seed, over steps."""

    validation: Sequence[Curve]
    loss: Sequence[Curve]

    def first(self, share: float) -> list[float]:
        """Return the first step of each seed whose validation score exceeds a share, or NaN."""
        return [_first(one, lambda score: score > share) for one in self.validation]

    def learned(self, nats: float) -> list[float]:
        """Return the first step of each seed whose training loss is below ``nats``, or NaN."""
        return [_first(one, lambda loss: loss < nats) for one in self.loss]

    def rises(self) -> list[float]:
        """Return for each seed the steps from 10 to 90 % of its gain, over those up to 10 %.

        Below 1 the score rises in less time than it stood still before. It is about 21 for an
        exponential approach without a plateau, and NaN without a gain.
        """
        ratios = []
        for steps, scores in self.validation:
            gain = max(scores, default=0.0) - scores[0] if scores else 0.0
            if gain <= 0:
                ratios.append(float("nan"))
                continue
            first, last = (
                next(x for x, y in zip(steps, scores, strict=True) if y >= scores[0] + share * gain)
                for share in (0.1, 0.9)
            )
            ratios.append((last - first) / max(first, 1))
        return ratios


def curves_of(result: Result) -> dict[str, Curves]:
    """Return the curves of each arm."""
    curves = {}
    for one in result.arms:
        runs = [regard.load(folder).metrics() for folder in finished(one)]
        curves[one.name] = Curves(
            [_column(rows, "validation") for rows in runs], [_column(rows, "loss") for rows in runs]
        )
    return curves


def _first(curve: Curve, reached: Callable[[float], bool]) -> float:
    return next((float(x) for x, y in zip(*curve, strict=True) if reached(y)), float("nan"))


def _column(rows: Sequence[Mapping[str, float]], name: str) -> Curve:
    kept = [row for row in rows if row.get(name) is not None]
    return [int(row["step"]) for row in kept], [float(row[name]) for row in kept]


def learning_chart(curves: Mapping[str, Curves], title: str) -> Html:
    """Draw the validation score of every seed over the steps."""
    series = [
        Series(name if i == 0 else "", steps, [100 * y for y in scores], look=look, faint=i > 0)
        for look, (name, one) in enumerate(curves.items())
        for i, (steps, scores) in enumerate(one.validation)
    ]
    return line_chart(title, series, x_label="step", y_label="validation score, %")


def learning_findings(curves: Mapping[str, Curves], title: str) -> Findings:
    """Draw the validation score of every seed over the steps."""
    return Findings({}, {"drawn": "learning"}, {"learning": learning_chart(curves, title)})


def lengths_findings(scores: Lengths, title: str) -> Findings:
    """Draw the scores of each arm over the test length, and list them."""
    series, rows = [], []
    for look, (name, by_length) in enumerate(scores.items()):
        means = map(interval, by_length.values())
        ends = [(mean, max(0.0, low), min(1.0, high)) for mean, low, high in means]
        series.append(Series.ranged(name, list(by_length), ends, look, times=100))
        rows.append([name, *(in_words(end, times=100) for end in ends)])
    lengths = list(next(iter(scores.values()), {}))
    chart = line_chart(title, series, x_label="test length", y_label="score, %", log_x=True)
    tables = {"by-length": (["arm", *map(str, lengths)], rows)}
    return Findings({}, {"drawn": "lengths", "title": title}, {"lengths": chart}, tables)
