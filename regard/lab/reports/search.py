"""Results of a hyperparameter search for report and terminal: ranges, best scores, cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from regard.lab.reports.drawing import Chart
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Table
from regard.lab.reports.markup import Html, tag
from regard.lab.reports.scales import duration
from regard.lab.tasks import unit_of
from regard.lab.tasks.units import Unit

HOW = {
    "random": (
        "Expected best validation score after k trials: the default settings and k − 1 random "
        "draws with replacement (Dodge et al. 2019, Show Your Work), so the curve ends below the "
        "best score found. Bars are one standard deviation. If a curve still improves at its end, "
        "run more trials; compare arms at equal k."
    ),
    "tpe": (
        "Best validation score after k trials, in the order of the search. TPE's draws depend on "
        "earlier ones, so an expectation over their order is not defined."
    ),
    "grid": "Best validation score after k trials: the default settings, then the grid in order.",
}


class Scale(NamedTuple):
    """The scale of validation scores: trials store a share, which is exp(−loss) for a loss."""

    metric: str
    unit: Unit

    @classmethod
    def of(cls, tuning: Mapping[str, Any]) -> "Scale":
        """Return the scale of a search's metric, as `runs.Run.validates` names it."""
        metric = "loss" if tuning["metric"] == "likelihood" else str(tuning["metric"])
        return cls(metric, unit_of(metric))

    @property
    def heading(self) -> str:
        """Return the metric and its unit."""
        return self.unit.heading(self.metric)

    def value(self, share: float) -> float:
        """Convert a stored share to the metric; a loss to nats."""
        return -math.log(max(share, 1e-300)) if self.unit.lower else share

    def spread(self, share: float, deviation: float) -> float:
        """Convert a small standard deviation of the share to one of the metric."""
        return deviation / max(share, 1e-300) if self.unit.lower else deviation

    def write(self, share: float | None) -> str:
        """Return the metric without its unit, or a dash for None."""
        return "–" if share is None else self.unit.write(self.value(share))

    def gain(self, first: float | None, best: float) -> str:
        """Return the improvement of the best score over the first."""
        if first is None:
            return "–"
        return self.unit.write(self.unit.better(self.value(best) - self.value(first)))


def section(tuning: Mapping[str, Any]) -> list[Html]:
    """Return the report's section on the search: results, curves, cost and ranges."""
    arms: Mapping[str, Mapping[str, Any]] = tuning["arms"]
    trials, sampler = int(tuning["trials"]), str(tuning["sampler"])
    intro = (
        f"Every arm had {trials} trials, the first with its default settings, each with the budget "
        f"of a run and scored on the validation split (sampler {sampler}, seed {tuning['seed']}). "
        "The seeds of each arm were then trained with its best settings; no trial read the test "
        "split. The best validation score is biased upwards by selection; the test score is not."
    )
    parts = [tag("h2", "Hyperparameter search"), tag("p", intro), search_table(tuning).html()]
    chart = by_time(tuning)
    if chart is not None:
        curves = _curves(searched(tuning), Scale.of(tuning))
        charts = tag("div", *(tag("figure", curve) for curve in curves), class_="grid")
        parts += [charts, tag("p", HOW[sampler], class_="note")]
        how = "The same curves over k times the arm's mean trial time: left is cheaper."
        parts.append(Figure(chart, how).html())
    return [*parts, _space_table(arms).html(), *_failed(arms)]


def searched(tuning: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the arms whose search has a result."""
    return {name: arm for name, arm in tuning["arms"].items() if arm.get("expected")}


def search_table(tuning: Mapping[str, Any]) -> Table:
    """Return a table of each arm's default and best scores, gain and cost.

    >>> trial = {"validation": 0.5, "seconds": 2.0, "state": "complete"}
    >>> arm = {"trials": [trial, trial], "best": 0, "settings": {"ngrams": "2"}, "gain": 0.0,
    ...        "seconds": 4.0, "default": {"ngrams": "2"}}
    >>> print(search_table({"metric": "accuracy", "arms": {"tfidf": arm}}).text())
    searched  default  best  gain  failed  time of trials
    tfidf        50.0  50.0   0.0  0 of 2             4 s
    """
    heads = ["searched", "default", "best", "gain", "failed", "time of trials"]
    scale = Scale.of(tuning)
    rows = [[name, *_row(arm, scale)] for name, arm in tuning["arms"].items()]
    note = (
        f"Scores: validation {scale.heading}. Time: training time; trials run in parallel with one "
        "thread each."
    )
    return Table("Search results", heads, rows, note)


def _row(arm: Mapping[str, Any], scale: Scale) -> list[str]:
    trials: Sequence[Mapping[str, Any]] = arm["trials"]
    failed = sum(trial["state"] == "failed" for trial in trials)
    cost = [f"{failed} of {len(trials)}", duration(float(arm["seconds"]))]
    first = trials[0]["validation"] if trials else None
    if "best" not in arm:
        return [scale.write(first), "–", "–", *cost]
    best = trials[arm["best"]]["validation"]
    return [scale.write(first), scale.write(best), scale.gain(first, best), *cost]


def best_settings(tuning: Mapping[str, Any]) -> dict[str, str]:
    """Return the best values of each arm's searched settings, as text.

    >>> best_settings({"arms": {"tfidf": {"settings": {"ngrams": "2", "minimum": "1"}}}})
    {'tfidf': 'ngrams=2 minimum=1'}
    """
    return {
        name: " ".join(f"{key}={value}" for key, value in arm["settings"].items())
        for name, arm in tuning["arms"].items()
        if "settings" in arm
    }


def _curves(arms: Mapping[str, Mapping[str, Any]], scale: Scale) -> list[Html]:
    """Draw a small chart for each arm on a common scale, the other arms in grey."""
    lines = {name: _series(name, arm["expected"], scale) for name, arm in arms.items()}
    every = list(lines.values())
    faint = [Series("", line.x, line.y, faint=True) for line in every]
    return [
        line_chart(name, [*faint, Series("", line.x, line.y, low=line.low, high=line.high)],
                   x_label="trials", y_label=f"best validation {scale.heading}", width=320,
                   height=230, same_scale=every)
        for name, line in lines.items()
    ]  # fmt: skip


def _series(
    name: str, points: Sequence[Sequence[float]], scale: Scale, pace: float = 1.0
) -> Series:
    x = [pace * (k + 1) for k in range(len(points))]
    scaled = [(scale.value(point[0]), scale.spread(*point)) for point in points]
    ends = [(mean, mean - deviation, mean + deviation) for mean, deviation in scaled]
    return Series.ranged(name, x, ends, times=scale.unit.times)


def by_time(tuning: Mapping[str, Any]) -> Chart | None:
    """Draw all arms over the time of their trials, to compare them at equal cost.

    None if no search has a result.
    """
    arms, scale, lines = searched(tuning), Scale.of(tuning), []
    for look, (name, arm) in enumerate(arms.items()):
        pace = float(arm["seconds"]) / len(arm["trials"])
        line = _series(name, arm["expected"], scale, pace)
        lines.append(Series(name, line.x, line.y, look=look))
    if not lines:
        return None
    return line_chart(
        "Best validation score by search time", lines,
        x_label="training time of all trials so far, s (log scale)",
        y_label=f"best validation {scale.heading}", log_x=True,
    )  # fmt: skip


def _space_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [name, key, text, arm["default"].get(key, "–"), arm.get("settings", {}).get(key, "–")]
        for name, arm in arms.items()
        for key, text in arm["space"].items()
    ]
    heads = ["arm", "setting", "range", "default", "best"]
    return Table("Search space", heads, rows, "All other settings keep their values.")


def _failed(arms: Mapping[str, Mapping[str, Any]]) -> list[Html]:
    """Return a table of the failed trials with their settings and errors."""
    rows = []
    for name, arm in arms.items():
        for number, trial in enumerate(arm["trials"]):
            if trial["state"] == "failed":
                drawn = " ".join(f"{key}={value}" for key, value in trial["settings"].items())
                rows.append([name, str(number), drawn or "default", str(trial["says"])])
    if not rows:
        return []
    return [Table("Failed trials", ["arm", "trial", "settings", "error"], rows).html()]
