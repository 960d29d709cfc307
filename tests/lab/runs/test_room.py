"""What does not fit into memory is told with the figures before it is allocated."""

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.core.errors import RegardError, UntrainableError
from regard.lab import runs
from regard.lab.runs.config import Config
from regard.lab.runs.room import Need, need, shape_of
from regard.lab.tasks import TASKS
from regard.training.settings import TrainingSettings

TINY = ["examples=120", "width=8", "heads=2", "layers=1", "feedforward=12", "threads=1", "steps=2"]


def free(megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.lab.runs.room.free_mb", lambda device="cpu": megabytes)


def test_need_is_counted_by_hand() -> None:
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(1000, 3000, bias=False), nn.ReLU())
    asked = TrainingSettings(batch_tokens=500)
    found = need(network, asked, True, 0)
    assert found.parameters == 3_000_000
    assert found.kept_mb == pytest.approx(5 * 4 * 3)  # weights, gradients, best, two of AdamW
    assert found.batch_mb == pytest.approx(500 * 4000 * 4 / 1e6)
    meant = asked.model_copy(update={"average": 0.9, "optimizer": "muon", "batch_size": 2})
    assert need(network, meant, True, 100).kept_mb == pytest.approx(5 * 4 * 3)
    assert need(network, meant, True, 100).tokens == 200
    assert need(network, asked, False, 0).kept_mb == pytest.approx(4 * 3)


@pytest.mark.parametrize(
    ("task", "model"),
    [
        (task, name)
        for task in ("classification", "dates", "masked-modeling")
        for name, entry in TASKS[task].models.items()
        if not entry.deterministic
    ],
)
def test_every_network_is_reckoned_without_its_numbers(task: str, model: str) -> None:
    config = Config.make(task, model)

    def build() -> nn.Module:
        network: nn.Module = config.entry.build(config.network, vocabulary=50, labels=2)
        return network

    found = shape_of(config, build)
    assert found is not None
    assert found.parameters == sum(parameter.numel() for parameter in build().parameters())


def test_a_network_with_parts_of_ones_own_is_not_reckoned(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import regard\nclass Mine(regard.Score):\n    name = 'mine'\n")

    def build() -> nn.Module:
        raise AssertionError("it is not made: its constructor may need numbers")

    config = Config.make("classification", "transformer", [f"score={file}:Mine"])
    assert shape_of(config, build) is None


def test_what_cannot_fit_is_refused_before_it_is_allocated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free(10_000, monkeypatch)
    wide = [*TINY[:1], "width=16384", "feedforward=65536"]
    says = r"does not fit into memory: [\d,]{11,} parameters take [\d,]+\.\d GB in training"
    with pytest.raises(UntrainableError, match=says):
        runs.forecast("classification", "transformer", wide)
    run = runs.start(tmp_path / "run", "classification", "transformer", wide)
    with pytest.raises(RegardError, match=r"and 10\.0 GB are free; use a smaller width"):
        next(run.train())
    assert not run.folder.begun


@pytest.mark.parametrize(
    ("pair", "says"),
    [("score=bahdanau", "did you mean additive"), ("width=16384", "does not fit into memory")],
)
def test_a_network_that_cannot_be_built_is_told_before_data_are_read(
    pair: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free(10_000, monkeypatch)
    data = tmp_path / "none.csv"
    with pytest.raises(RegardError, match=says):
        next(
            runs.start(
                tmp_path / "a", "classification", "transformer", [f"data={data}", pair]
            ).train()
        )
    with pytest.raises(RegardError, match=r"none\.csv"):
        next(runs.start(tmp_path / "b", "classification", "transformer", [f"data={data}"]).train())


def test_a_batch_that_may_not_fit_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    free(0.2, monkeypatch)
    notes = runs.forecast("classification", "transformer", [*TINY, "batch_tokens=8000"]).warnings
    assert any("this training may not fit into memory: " in note for note in notes)
    free(10_000, monkeypatch)
    assert runs.forecast("classification", "transformer", TINY).warnings == ()


def test_where_nobody_tells_of_memory_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    free(0.0, monkeypatch)
    large = Need(10**12, 1e9, 1e9, 8192, "cpu")
    large.check()
    assert large.warning == ""
