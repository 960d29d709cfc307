"""The table, the picture and the page of a suggestion."""

import json
from pathlib import Path

from regard.core.atomic_io import make_folder, write_bytes
from regard.lab.reports.drawing import Chart
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table, write_findings
from regard.lab.studies.learning_curve import Forecast
from regard.lab.studies.suggest import Suggestion
from regard.lab.tasks import unit_of

FILE = "suggestion.json"
HOW = (
    "Points: rows held out, mean over the draws, with 95 % intervals. The last two points of a "
    "line are forecasts, with their 95 % prediction intervals."
)


def table(suggestion: Suggestion) -> Table:
    """Return a row for each arm: its name, its curve, and its forecasts with their intervals."""
    unit = unit_of(suggestion.metric)

    def cell(forecast: Forecast) -> str:
        value, low, high = (
            unit.write(1 - x) for x in (forecast.error, forecast.high, forecast.low)
        )
        return f"{value} ({low} to {high})"

    sizes = sorted({size for one in suggestion.candidates for size in one.curve.rows})
    rows = []
    for one in suggestion.candidates:
        known = dict(zip(one.curve.rows, one.curve.errors, strict=True))
        measured = [unit.write(1 - known[n]) if n in known else "–" for n in sizes]
        rows.append([one.name, *measured, cell(one.now), cell(one.twice)])
    trivial = unit.write(1 - suggestion.trivial)
    rows.append(["without the text", *[trivial] * len(sizes), trivial, trivial])
    heads = [f"{size:,} rows" for size in sizes]
    heads += [f"{times * suggestion.rows:,} (forecast)" for times in (1, 2)]
    return Table(f"{unit.heading(suggestion.metric)} of rows held out", ["arm", *heads], rows)


def chart(suggestion: Suggestion) -> Chart:
    """Draw the curve of each arm with its forecasts."""
    unit = unit_of(suggestion.metric)
    series = []
    models = [one.name.partition(":")[0] for one in suggestion.candidates]
    for look, one in enumerate(suggestion.candidates):
        points = [
            *(
                (n, e, max(e - 1.96 * d, 0.0), e + 1.96 * d)
                for n, e, d in zip(
                    one.curve.rows, one.curve.errors, one.curve.deviations, strict=True
                )
            ),
            *((f.rows, f.error, f.low, f.high) for f in (one.now, one.twice)),
        ]
        ends = [(1 - error, 1 - high, 1 - low) for _, error, low, high in points]
        model = one.name.partition(":")[0]
        name = model if models.count(model) == 1 else one.name
        series.append(Series.ranged(name, [p[0] for p in points], ends, look, times=unit.times))
    title, label = f"{suggestion.data}: learning curves", unit.heading(suggestion.metric)
    return line_chart(title, series, x_label="training rows", y_label=label, log_x=True)


def write(suggestion: Suggestion, folder: Path, command: str) -> Path:
    """Write ``suggestion.json``, ``curves.svg`` and ``report.html``, and return the last's path.

    Raises: the disk is full.
    """
    make_folder(folder)
    drawn, found = chart(suggestion), suggestion.json()
    text = json.dumps(found, ensure_ascii=False, indent=1, allow_nan=False)
    write_bytes(folder / FILE, text.encode(errors="replace"))
    drawn.drawing.save(folder / "curves.svg")
    record = {
        "task": suggestion.task,
        "data": suggestion.data,
        "question": f"Which method suits {suggestion.rows:,} labelled texts?",
        "answer": suggestion.verdict,
        "command": command,
    }
    section = Section(
        "Learning curves", suggestion.notes, [Figure(drawn, HOW)], [table(suggestion)]
    )
    return write_findings(record, [section], folder)
