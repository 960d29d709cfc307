"""What a search over settings found, for the report and the terminal: ranges, best scores, cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.reports.figures import Series, line_chart
from regard.reports.findings import Table
from regard.reports.markup import Html, tag
from regard.reports.scales import duration

HOW = {
    "random": (
        "The expected best validation score after k trials: the default settings and k − 1 random "
        "draws, with replacement (Dodge et al. 2019, Show Your Work), so that it ends below the "
        "best score found; bars are one standard deviation. A curve that still rises at its end "
        "asks for more trials; arms are fairly compared at equal k."
    ),
    "tpe": (
        "The best validation score after k trials, as the search went: TPE's draws depend on "
        "earlier ones, so that there is no expectation over their order."
    ),
}


def section(tuning: Mapping[str, Any]) -> list[Html]:
    """Return the section of a report: the search's result, its curves, its cost and its space."""
    arms: Mapping[str, Mapping[str, Any]] = tuning["arms"]
    searched = {name: found for name, found in arms.items() if found.get("expected")}
    trials, sampler = int(tuning["trials"]), str(tuning["sampler"])
    intro = (
        f"Every arm had {trials} trials, the first with its default settings, each under the "
        f"budget of a run and judged on the validation split (sampler {sampler}, seed "
        f"{tuning['seed']}). The arms' seeds were trained with the best settings; no trial read "
        "the test split. A best score is the highest of several and therefore too high: what the "
        "settings are worth, the test tells."
    )
    parts = [tag("h2", "Search"), tag("p", intro), search_table(tuning).html()]
    if searched:
        charts = tag("div", *(tag("figure", chart) for chart in _curves(searched)), class_="grid")
        parts += [charts, tag("p", HOW[sampler], class_="note")]
        parts.append(_by_time(searched))
    return [*parts, _space_table(arms).html(), *_failed(arms)]


def search_table(tuning: Mapping[str, Any]) -> Table:
    """Return a row for each arm: its default and best scores, the gain and the cost.

    >>> trial = {"validation": 0.5, "seconds": 2.0, "state": "complete"}
    >>> arm = {"trials": [trial, trial], "best": 0, "settings": {"ngrams": "2"}, "gain": 0.0,
    ...        "seconds": 4.0, "default": {"ngrams": "2"}}
    >>> print(search_table({"arms": {"tfidf": arm}}).text())
    searched  default  best  gain  failed  time of trials
    tfidf        50.0  50.0   0.0  0 of 2             4 s
    """
    heads = ["searched", "default", "best", "gain", "failed", "time of trials"]
    rows = [[name, *_row(found)] for name, found in tuning["arms"].items()]
    note = "Validation scores × 100. Time is of training; trials run side by side, one thread each."
    return Table("What the search found", heads, rows, note)


def _row(found: Mapping[str, Any]) -> list[str]:
    trials: Sequence[Mapping[str, Any]] = found["trials"]
    failed = sum(trial["state"] == "failed" for trial in trials)
    cost = [f"{failed} of {len(trials)}", duration(float(found["seconds"]))]
    first = _score(trials[0]["validation"]) if trials else "–"
    if "best" not in found:
        return [first, "–", "–", *cost]
    best = _score(trials[found["best"]]["validation"])
    return [first, best, _score(found["gain"]), *cost]


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


def _score(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}".replace("-", "−")


def _curves(arms: Mapping[str, Mapping[str, Any]]) -> list[Html]:
    """A small chart for each arm, on one scale, the others faint behind."""
    lines = {name: _series(name, found["expected"]) for name, found in arms.items()}
    every = list(lines.values())
    faint = [Series("", line.x, line.y, faint=True) for line in every]
    return [
        line_chart(name, [*faint, Series("", line.x, line.y, low=line.low, high=line.high)],
                   x_label="trials", y_label="best validation score", width=320, height=230,
                   like=every)
        for name, line in lines.items()
    ]  # fmt: skip


def _series(name: str, points: Sequence[Sequence[float]], pace: float = 1.0) -> Series:
    x = [pace * (k + 1) for k in range(len(points))]
    mean = [100 * point[0] for point in points]
    spread = [100 * point[1] for point in points]
    low = [m - s for m, s in zip(mean, spread, strict=True)]
    high = [m + s for m, s in zip(mean, spread, strict=True)]
    return Series(name, x, mean, low=low, high=high)


def _by_time(arms: Mapping[str, Mapping[str, Any]]) -> Html:
    """All arms over the time that their trials take on average: who is best for a given cost."""
    lines = []
    for look, (name, found) in enumerate(arms.items()):
        pace = float(found["seconds"]) / len(found["trials"])
        line = _series(name, found["expected"], pace)
        lines.append(Series(name, line.x, line.y, look=look))
    chart = line_chart(
        "Best validation score by time of the search", lines,
        x_label="seconds of training, of all trials so far (logarithmic)",
        y_label="best validation score", log_x=True,
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
