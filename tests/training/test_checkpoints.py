"""Checkpoints that do not fit: refused, put aside, and the one before is taken."""

import json

import pytest
import torch
from torch import nn

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.training.checkpoints import Checkpoint, Checkpoints, must_describe, weights
from regard.training.optimizer import AdamW


def saved(folder, steps=(2, 4)):
    kept = Checkpoints(folder)
    for step in steps:
        tensors = {"model": {"a": torch.full((2,), float(step))}, "best": {}}
        kept.save(Checkpoint(step, tensors, {"step": step}))
    return kept


def sealed(place, name, data):
    """Put other content into a file of a checkpoint, whose manifest then fits."""
    (place / name).write_bytes(data)
    manifest = json.loads((place / atomic_io.MANIFEST).read_text())
    manifest[name] = atomic_io.entry(data)
    (place / atomic_io.MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("model-1-of-1.safetensors", b"\x00" * 20),
        ("state.json", b"{"),
        ("state.json", b'{"step": NaN}'),
        ("state.json", b"[" * 5_000),
    ],
)
def test_content_that_is_unsound_though_its_hash_fits_is_put_aside(tmp_path, name, data):
    kept = saved(tmp_path)
    sealed(tmp_path / "step-4", name, data)
    found, says = kept.latest()
    assert found is not None
    assert found.step == 2
    assert found.tensors["model"]["a"].tolist() == [2.0, 2.0]
    assert "renamed to step-4.damaged" in says


def test_a_checkpoint_whose_manifest_lost_a_file_is_not_taken(tmp_path):
    kept = saved(tmp_path)
    manifest = json.loads((tmp_path / "step-4" / atomic_io.MANIFEST).read_text())
    del manifest["best-1-of-1.safetensors"]
    (tmp_path / "step-4" / atomic_io.MANIFEST).write_text(json.dumps(manifest))
    found, says = kept.latest()
    assert found is not None
    assert found.step == 2
    assert "'best-1-of-1.safetensors' is missing, or not in MANIFEST.json" in says


def test_the_state_of_an_optimizer_of_other_shapes_is_refused():
    model = nn.Linear(3, 2)
    state = AdamW(model, 0.1).state()
    other = {name: x[:1] if x.ndim else x for name, x in state.items()}
    with pytest.raises(RegardError, match=r"model or optimizer: mean/weight is \(1, 3\)"):
        AdamW(model, 0.1).load(other)


def test_settings_larger_than_the_weights_are_refused_before_memory_is_asked_for():
    shapes = {name: x.shape for name, x in weights(nn.Linear(8, 8)).items()}

    def build(width):
        return lambda: nn.Linear(width, width)

    must_describe({"width": 8, "layers": 2, "tie": True}, build(8), shapes, "x")
    with pytest.raises(RegardError, match="layers=3 is over 2"):
        must_describe({"layers": 3}, build(8), shapes, "x")
    with pytest.raises(RegardError, match="width=1000001 is over 1,000,000"):
        must_describe({"width": 1_000_001}, build(8), shapes, "x")
    with pytest.raises(RegardError, match=r"describes 1,000,001,000,000 numbers, the file has 72"):
        must_describe({"width": 1_000_000}, build(1_000_000), shapes, "x")


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(RegardError, match="file"):
        saved(tmp_path / "file" / "checkpoints")
