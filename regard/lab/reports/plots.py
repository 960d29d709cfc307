"""The charts of a run or a comparison by kind, for ``regard plot`` and for axes in notebooks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError, look_up
from regard.lab.reports import search
from regard.lab.reports.comparison import Story, cost, intervals, learning
from regard.lab.reports.drawing import Chart
from regard.lab.reports.evidence import arms_of
from regard.lab.reports.figures import Series, line_chart
from regard.lab.runs import Run, below, load
from regard.lab.runs.config import CONFIG
from regard.lab.studies.result import FILE, Comparison, read_comparison
from regard.lab.tasks import unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSSES = ("likelihood", "log loss")  # validated as exp(−loss)


def plot(thing: Run | Comparison | Path | str, ax: "Axes | None" = None, kind: str = "") -> "Axes":
    """Draw a run, a comparison or the folder of one by matplotlib and return the axes.

    `kind` is a key of `RUN` or `COMPARISON`, by default the first for which there are numbers; `ax`
    are the axes to draw on, by default those of a new figure.

    Raises: a folder with neither; an unknown kind; no numbers of this kind.

    >>> plot("runs/none")
    Traceback (most recent call last):
    regard.core.errors.RegardError: runs/none does not exist; give a run or a comparison
    """
    return chart_of(thing, kind)[1].drawing.plot(ax)


def chart_of(thing: Run | Comparison | Path | str, kind: str = "") -> tuple[str, Chart]:
    """Return the kind of the chart that `plot` draws, and the chart. Raises: as `plot`."""
    content = content_of(thing)
    charts: Mapping[str, Callable[[Any], Chart | None]] = COMPARISON
    if isinstance(content, Run):
        folder, charts = content.folder.path, RUN
    else:
        folder = content.folder
    chosen = {kind: look_up(charts, kind, f"plot of {folder}")} if kind else charts
    for name, draw in chosen.items():
        if (chart := draw(content)) is not None:
            return name, chart
    raise RegardError(f"{folder} has no numbers to plot: no {' and no '.join(chosen)}")


def content_of(thing: Run | Comparison | Path | str) -> Run | Story:
    """Return a run, or the content of a comparison's report."""
    if isinstance(thing, Run):
        return thing
    if isinstance(thing, Comparison):
        folder, record = thing.folder, thing.record()
    else:
        folder = Path(thing)
        if (folder / CONFIG).exists():
            return load(folder)
        if not (folder / FILE).exists():
            raise RegardError(_nothing_in(folder))
        record = read_comparison(folder)
    return Story(record, folder, arms_of(record, folder))


def _nothing_in(folder: Path) -> str:
    if not folder.exists():
        return f"{folder} does not exist; give a run or a comparison"
    inside = below(folder)
    hint = f"; choose one of its {len(inside)} runs, such as {inside[0]}" if inside else ""
    return f"{folder} has nothing to plot, neither {CONFIG} nor {FILE}{hint}"


def _validation(run: Run) -> Chart | None:
    """Draw the validation score of a run over its steps."""
    unit, metric = unit_of(run.validates), run.validates
    if metric in LOSSES:
        return None
    line = _column(run, "validation").times(unit.times)
    label = f"validation, {unit.heading(metric)}"
    return line_chart(_title(run), [line], x_label="steps", y_label=label) if line.x else None


def _loss(run: Run) -> Chart | None:
    """Draw the losses of a run over its steps: a running mean in training, and in validation."""
    columns = {"training": "loss", "validation": "validation_loss"}
    lines = [
        Series(name, line.x, line.y, look=look)
        for look, (name, column) in enumerate(columns.items())
        if (line := _column(run, column)).x
    ]
    return line_chart(_title(run), lines, x_label="steps", y_label="loss") if lines else None


def _column(run: Run, name: str) -> Series:
    rows = [row for row in run.metrics() if row.get(name) is not None]
    return Series("", [row["step"] for row in rows], [row[name] for row in rows])


def _title(run: Run) -> str:
    return f"{run.config.model} on {run.config.task}"


def _intervals(story: Story) -> Chart | None:
    return intervals(story) if story.scored else None


def _search(story: Story) -> Chart | None:
    tuning = story.comparison.get("tuning")
    return search.by_time(tuning) if isinstance(tuning, Mapping) else None


#: The charts of a run and of a comparison by kind; each is None without numbers.
RUN: Mapping[str, Callable[[Run], Chart | None]] = {"validation": _validation, "loss": _loss}
COMPARISON: Mapping[str, Callable[[Story], Chart | None]] = {
    "intervals": _intervals,
    "learning": learning,
    "cost": cost,
    "search": _search,
}
