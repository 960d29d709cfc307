"""Metrics in other programs: TensorBoard's files read back, and trackers of other packages."""

import importlib
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs.track import TRACKED, TRACKERS

TINY = ["width=8", "steps=25", "evaluate_every=10", "examples=100", "threads=1"]


PACKAGE = Path(__file__).parents[3] / "examples" / "trackers"


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of examples/trackers, installed as far as Python knows."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "regard_trackers-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: regard-trackers\nVersion: 1\n")
    points = project["entry-points"]["regard.trackers"]
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (info / "entry_points.txt").write_text(f"[regard.trackers]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(PACKAGE))
    importlib.invalidate_caches()
    monkeypatch.setattr(TRACKERS, "rows", dict(TRACKERS.rows))
    TRACKERS.__dict__.pop("_points", None)
    yield
    TRACKERS.__dict__.pop("_points", None)
    sys.modules.pop("regard_trackers", None)


def trained(folder: Path, track: str, model: str = "mean", steps: int = 0) -> runs.Run:
    """A run, trained to its end or for so many steps."""
    settings = TINY if model == "mean" else ["examples=100"]
    run = runs.open_or_start(folder, "classification", model, [*settings, f"track={track}"])
    training = run.train()
    for progress in training:
        if progress.step == steps:
            training.close()
            break
    return run


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """The numbers of TensorBoard's event files, by name and step, as TensorBoard shows them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: {e.step: e.value for e in events.Scalars(name)} for name in names}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
@pytest.mark.parametrize("stops", [0, 13])
def test_tensorboard_has_the_numbers_of_the_log(tmp_path: Path, stops: int) -> None:
    if stops:  # interrupted, and resumed from its first step
        trained(tmp_path / "run", "tensorboard", steps=stops)
        runs.load(tmp_path / "run")
    run = trained(tmp_path / "run", "tensorboard")
    found = scalars(tmp_path / "run")
    assert {*found} == {*TRACKED}
    for name in TRACKED:
        rows = {row["step"]: row[name] for row in run.metrics() if row[name] is not None}
        assert rows.keys() == found[name].keys(), name
        assert found[name] == pytest.approx(rows, rel=1e-6), name
    assert [*found["validation"]] == [10, 20, 25]
    assert run.evaluate().value > 0, "the event files are in the manifest"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_a_baseline_is_tracked_too_and_tracking_changes_no_result(tmp_path: Path) -> None:
    run = trained(tmp_path / "nb", "tensorboard", "nb-svm")
    assert [*scalars(tmp_path / "nb")["validation"].values()] == pytest.approx(
        [run.metrics()[-1]["validation"]]
    )
    with_it, without = trained(tmp_path / "a", "tensorboard"), trained(tmp_path / "b", "none")
    assert with_it.folder.weights.read_bytes() == without.folder.weights.read_bytes()
    assert not (tmp_path / "b" / "tensorboard").exists()
    resumed = runs.open_or_start(tmp_path / "a", "classification", "mean", TINY)
    assert resumed.complete, "another track= is the same run"


@pytest.mark.usefixtures("trackers")
@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_tracker_is_one_line_before_the_first_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RegardError, match=f"^track={name} needs {name}, which is not") as caught:
        trained(tmp_path / "run", name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"no tracker is called 'tensorbord'; did you mean tens"):
        trained(tmp_path / "run", "tensorbord")
    with pytest.raises(RegardError, match=r"there are: none, tensorboard$"):
        trained(tmp_path / "run", "mlflow")


@pytest.mark.usefixtures("trackers")
def test_a_tracker_of_an_installed_package_is_listed() -> None:
    assert list(TRACKERS) == ["none", "tensorboard", "mlflow", "wandb"]


def test_a_tracker_of_ones_own_file(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", f"{PACKAGE.parent / 'my_tracker.py'}:Lines")
    lines = (tmp_path / "run" / "steps.txt").read_text().splitlines()
    assert lines == [f"{row['step']}: loss {row['loss']:.3f}" for row in run.metrics()]


class Recorder:
    """Stands for a client of MLflow and a run of W&B: it notes every call."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.calls: list[tuple[Any, ...]] = [("made", given, named)]
        self.id = ""

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            self.calls.append((name, given, named))
            info = types.SimpleNamespace(run_id="r1")
            return types.SimpleNamespace(info=info, experiment_id="7")

        return call


@pytest.mark.usefixtures("trackers")
def test_what_mlflow_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package is asked by ``python -m benchmarks.trackers``."""
    clients = []

    def client(uri: str) -> Recorder:
        clients.append(Recorder(uri))
        return clients[-1]

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(MlflowClient=client))
    trained(tmp_path / "run", "mlflow", steps=12)
    trained(tmp_path / "run", "mlflow")
    first, second = (each.calls for each in clients)
    assert first[0][1] == (f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}",)
    params = {call[1][1]: call[1][2] for call in first if call[0] == "log_param"}
    assert params["training.steps"] == 25
    assert params["model"] == "mean"
    assert first[-1][:2] == ("set_terminated", ("r1", "KILLED"))
    assert second[1] == ("update_run", ("r1",), {"status": "RUNNING"})
    assert not [call for call in second if call[0] in ("create_run", "log_param")]
    steps = [call[2]["step"] for call in second if call[:2] and call[1][1:2] == ("validation",)]
    assert steps == [10, 20, 25]
    assert second[-1][:2] == ("set_terminated", ("r1", "FINISHED"))


@pytest.mark.usefixtures("trackers")
def test_what_weights_and_biases_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def init(**named: Any) -> Recorder:
        made.append(Recorder(**named))
        made[-1].id = "w1"
        return made[-1]

    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    trained(tmp_path / "run", "wandb", steps=12)
    trained(tmp_path / "run", "wandb")
    first, run = made
    assert first.calls[0][2]["id"] is None
    assert run.calls[0][2]["id"] == "w1", "a resumed training continues its run"
    assert first.calls[-1] == ("finish", (), {"exit_code": 1})
    given = run.calls[0][2]
    assert (given["mode"], given["dir"], given["project"]) == (
        "offline", str(tmp_path / "run"), "regard"
    )  # fmt: skip
    assert given["config"]["training.track"] == "wandb"
    logged = [call for call in run.calls if call[0] == "log"]
    assert [call[2]["step"] for call in logged] == [1, 10, 20, 25]
    assert run.calls[-1] == ("finish", (), {"exit_code": 0})
