"""What a search over settings found, for the report and the terminal: ranges, best scores, cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from regard.reports.figures import Series, line_chart
from regard.reports.findings import Table
from regard.reports.markup import Html, tag
from regard.reports.scales import duration
from regard.tasks import unit_of
from regard.tasks.units import Unit

HOW = {
    "random": (
        "The expected best validation score after k trials: the default settings and k − 1 random "
        "draws, with replacement (Dodge et al. 2019, Show Your Work), so that it ends short of the "
        "best score found; bars are one standard deviation. A curve that still improves at its end "
        "asks for more trials; arms are fairly compared at equal k."
    ),
    "tpe": (
        "The best validation score after k trials, as the search went: TPE's draws depend on "
        "earlier ones, so that there is no expectation over their order."
    ),
}


class Scale(NamedTuple):
    """How scores on validation are written: a trial keeps a share, of a loss exp(−loss)."""

    metric: str
    unit: Unit

    @classmethod
    def of(cls, tuning: Mapping[str, Any]) -> "Scale":
        """The scale of a search's metric, as `runs.Run.validates` names it."""
        metric = "loss" if tuning["metric"] == "likelihood" else str(tuning["metric"])
        return cls(metric, unit_of(metric))

    @property
    def heading(self) -> str:
        """The metric and its unit."""
        return self.unit.heading(self.metric)

    def value(self, share: float) -> float:
        """The metric of a share: of a loss its nats."""
        return -math.log(max(share, 1e-300)) if self.unit.lower else share

    def spread(self, share: float, deviation: float) -> float:
        """The standard deviation of the metric where that of the share is small."""
        return deviation / max(share, 1e-300) if self.unit.lower else deviation

    def write(self, share: float | None) -> str:
        """The metric without its unit, a dash for none."""
        return "–" if share is None else self.unit.write(self.value(share))

    def gain(self, first: float | None, best: float) -> str:
        """By how much the best is better than the first."""
        if first is None:
            return "–"
        return self.unit.write(self.unit.better(self.value(best) - self.value(first)))


def section(tuning: Mapping[str, Any]) -> list[Html]:
    """Return the section of a report: the search's result, its curves, its cost and its space."""
    arms: Mapping[str, Mapping[str, Any]] = tuning["arms"]
    searched = {name: found for name, found in arms.items() if found.get("expected")}
    trials, sampler = int(tuning["trials"]), str(tuning["sampler"])
    intro = (
        f"Every arm had {trials} trials, the first with its default settings, each under the "
        f"budget of a run and judged on the validation split (sampler {sampler}, seed "
        f"{tuning['seed']}). The arms' seeds were trained with the best settings; no trial read "
        "the test split. A best score is the best of several and therefore too good: what the "
        "settings are worth, the test tells."
    )
    parts = [tag("h2", "Search"), tag("p", intro), search_table(tuning).html()]
    if searched:
        scale = Scale.of(tuning)
        curves = _curves(searched, scale)
        charts = tag("div", *(tag("figure", chart) for chart in curves), class_="grid")
        parts += [charts, tag("p", HOW[sampler], class_="note")]
        parts.append(_by_time(searched, scale))
    return [*parts, _space_table(arms).html(), *_failed(arms)]


def search_table(tuning: Mapping[str, Any]) -> Table:
    """Return a row for each arm: its default and best scores, the gain and the cost.

    >>> trial = {"validation": 0.5, "seconds": 2.0, "state": "complete"}
    >>> arm = {"trials": [trial, trial], "best": 0, "settings": {"ngrams": "2"}, "gain": 0.0,
    ...        "seconds": 4.0, "default": {"ngrams": "2"}}
    >>> print(search_table({"metric": "accuracy", "arms": {"tfidf": arm}}).text())
    searched  default  best  gain  failed  time of trials
    tfidf        50.0  50.0   0.0  0 of 2             4 s
    """
    heads = ["searched", "default", "best", "gain", "failed", "time of trials"]
    scale = Scale.of(tuning)
    rows = [[name, *_row(found, scale)] for name, found in tuning["arms"].items()]
    note = (
        f"Scores: validation {scale.heading}. Time is of training; trials run side by side, one "
        "thread each."
    )
    return Table("What the search found", heads, rows, note)


def _row(found: Mapping[str, Any], scale: Scale) -> list[str]:
    trials: Sequence[Mapping[str, Any]] = found["trials"]
    failed = sum(trial["state"] == "failed" for trial in trials)
    cost = [f"{failed} of {len(trials)}", duration(float(found["seconds"]))]
    first = trials[0]["validation"] if trials else None
    if "best" not in found:
        return [scale.write(first), "–", "–", *cost]
    best = trials[found["best"]]["validation"]
    return [scale.write(first), scale.write(best), scale.gain(first, best), *cost]


def best_settings(tuning: Mapping[str, Any]) -> dict[str, str]:
    """Return each arm's best settings in words, of those that were searched.

    >>> best_settings({"arms": {"tfidf": {"settings": {"ngrams": "2", "minimum": "1"}}}})
    {'tfidf': 'ngrams=2 minimum=1'}
    """
    return {
        name: " ".join(f"{key}={value}" for key, value in found["settings"].items())
        for name, found in tuning["arms"].items()
        if "settings" in found
    }


def _curves(arms: Mapping[str, Mapping[str, Any]], scale: Scale) -> list[Html]:
    """A small chart for each arm, on one scale, the others faint behind."""
    lines = {name: _series(name, found["expected"], scale) for name, found in arms.items()}
    every = list(lines.values())
    faint = [Series("", line.x, line.y, faint=True) for line in every]
    return [
        line_chart(name, [*faint, Series("", line.x, line.y, low=line.low, high=line.high)],
                   x_label="trials", y_label=f"best validation {scale.heading}", width=320,
                   height=230, like=every)
        for name, line in lines.items()
    ]  # fmt: skip


def _series(
    name: str, points: Sequence[Sequence[float]], scale: Scale, pace: float = 1.0
) -> Series:
    x = [pace * (k + 1) for k in range(len(points))]
    mean = [scale.unit.times * scale.value(point[0]) for point in points]
    spread = [scale.unit.times * scale.spread(*point) for point in points]
    low = [m - s for m, s in zip(mean, spread, strict=True)]
    high = [m + s for m, s in zip(mean, spread, strict=True)]
    return Series(name, x, mean, low=low, high=high)


def _by_time(arms: Mapping[str, Mapping[str, Any]], scale: Scale) -> Html:
    """All arms over the time that their trials take on average: who is best for a given cost."""
    lines = []
    for look, (name, found) in enumerate(arms.items()):
        pace = float(found["seconds"]) / len(found["trials"])
        line = _series(name, found["expected"], scale, pace)
        lines.append(Series(name, line.x, line.y, look=look))
    chart = line_chart(
        "Best validation score by time of the search", lines,
        x_label="seconds of training, of all trials so far (logarithmic)",
        y_label=f"best validation {scale.heading}", log_x=True,
    )  # fmt: skip
    how = "The same curves over the mean time of an arm's trials: an arm further left is cheaper."
    return tag("figure", tag("div", chart, class_="scroll"), tag("figcaption", how))


def _space_table(arms: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [name, key, where, found["default"].get(key, "–"), found.get("settings", {}).get(key, "–")]
        for name, found in arms.items()
        for key, where in found["space"].items()
    ]
    heads = ["arm", "setting", "range", "default", "best"]
    return Table("What was searched", heads, rows, "All other settings are as they were given.")


def _failed(arms: Mapping[str, Mapping[str, Any]]) -> list[Html]:
    """The trials that could not be trained, each with its settings and why."""
    rows = []
    for name, found in arms.items():
        for number, trial in enumerate(found["trials"]):
            if trial["state"] == "failed":
                drawn = " ".join(f"{key}={value}" for key, value in trial["settings"].items())
                rows.append([name, str(number), drawn or "default", str(trial["says"])])
    if not rows:
        return []
    return [Table("Trials that failed", ["arm", "trial", "settings", "why"], rows).html()]
