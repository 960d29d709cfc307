"""``regard plot``, `regard.plot` and the method `plot` of runs and comparisons draw one chart."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import regard
from regard.core.errors import RegardError
from regard.lab.cli.plot import plot as command
from regard.lab.reports.comparison import write_report
from regard.lab.reports.plots import COMPARISON, RUN, chart_of
from regard.lab.studies.arms import Arm
from regard.lab.studies.result import ArmResult, Comparison, read_comparison
from tests.lab.reports.conftest import Make


@pytest.fixture
def folder(made: Make) -> Path:
    """A comparison's folder with its record."""
    comparison, folder = made()
    comparison["command"] = ["regard", "lab", "sentiment"]
    (folder / "comparison.json").write_text(json.dumps(comparison))
    return folder


def test_a_run_has_its_validation_and_its_losses(trained: Path, tmp_path: Path) -> None:
    assert set(RUN) == {"validation", "loss"}
    run = regard.load(trained)
    ax = Figure().subplots()
    assert run.plot(ax=ax) is ax
    rows = [row for row in run.metrics() if row["validation"] is not None]
    assert ax.lines[0].get_ydata().tolist() == [100 * row["validation"] for row in rows]
    assert ax.get_ylabel() == "validation, accuracy, %"
    kind, chart = chart_of(trained, "loss")
    assert kind == "loss"
    assert "training from" in chart
    assert "validation from" in chart
    command(trained, tmp_path / "curve.pdf")
    assert (tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")


def test_a_comparison_has_the_charts_of_its_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_report(read_comparison(folder), folder).read_text()
    for kind in ("intervals", "cost"):
        command(folder, tmp_path / f"{kind}.svg", kind, json=True)  # type: ignore[arg-type]
        said = json.loads(capsys.readouterr().out)
        assert said == {
            "folder": str(folder), "kind": kind, "plot": str(tmp_path / f"{kind}.svg"),
            "bytes": (tmp_path / f"{kind}.svg").stat().st_size,
        }  # fmt: skip
        assert chart_of(folder, kind)[1] in text
    assert chart_of(folder)[0] == "intervals"
    ax = regard.plot(folder, Figure().subplots(), "learning")
    assert len(ax.lines) == 6, "three seeds of two arms"
    assert [text.get_text() for text in ax.texts] == ["mean", "transformer"]


def test_a_comparison_in_a_notebook_draws_itself() -> None:
    arms = tuple(
        ArmResult(Arm(name, name), 2, mean, mean - 0.1, mean + 0.1, 1.0, None, None, None)
        for name, mean in (("mean", 0.7), ("transformer", 0.8))
    )
    comparison = Comparison("classification", "accuracy", arms, "mean", ())
    ax = comparison.plot(Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["mean", "transformer"]
    assert ax.get_xlabel() == "accuracy, %"


def test_what_cannot_be_plotted_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"no numbers to plot: no search$"):
        chart_of(folder, "search")
    with pytest.raises(RegardError, match=r"no plot of .* is called 'loss'.*intervals"):
        chart_of(folder, "loss")
    with pytest.raises(RegardError, match="does not exist; give a run or a comparison"):
        chart_of(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RegardError, match=r"nothing to plot, neither config.toml nor comparison"):
        chart_of(tmp_path / "empty")
    with pytest.raises(RegardError, match=r"the name must end in \.pdf, \.png or \.svg"):
        command(folder, tmp_path / "figure.gif")
    assert list(COMPARISON) == ["intervals", "learning", "cost", "search"]
