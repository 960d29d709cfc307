"""Training on a GPU: refused where there is none, and where there is one the same as here."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.core.errors import RegardError
from regard.lab import runs
from regard.nn.layers.device import device_of, to_device
from regard.training.checkpoints import weights
from regard.training.precision import choose_device, choose_precision

SMALL = ["width=16", "threads=1", "dropout=0", "steps=4", "save_every=2", "precision=fp32",
         "learning_rate=0.003"]  # fmt: skip
STACK = [*SMALL, "heads=2", "layers=1", "feedforward=24"]
WRITING = ["letters=3", "examples=400", "judged=20", "batch_tokens=224"]
KINDS = {
    **{name: ("classification", name, [*STACK, "length=40"]) for name in ("gpt", "bert", "t5")},
    "transformer": (
        "classification",
        "transformer",
        [*SMALL, "word_dropout=0", "length=40", "heads=2"],
    ),
    "rnn": ("classification", "rnn", [*SMALL, "word_dropout=0", "length=40"]),
    "cnn": ("classification", "cnn", [*SMALL, "word_dropout=0", "length=40"]),
    "bahdanau": ("reverse", "bahdanau", [*SMALL, *WRITING, "hidden=16"]),
    "writer": ("reverse", "transformer", [*STACK, *WRITING, "average=0.9"]),
    "next": ("language-modeling", "gpt", [*STACK, "length=40", "score=synthesizer"]),
    "masked": ("masked-modeling", "bert", [*STACK, "length=40"]),
    "spans": ("span-corruption", "t5", [*STACK, "length=40"]),
    "answers": ("birthplace", "gpt", [*STACK, "length=80", "position=rotary"]),
}


@dataclass(frozen=True)
class Two:
    tokens: Tensor
    lengths: Tensor


def test_a_batch_goes_where_the_model_is():
    batch = Two(torch.zeros(2, 3), torch.tensor([3, 1]))
    assert to_device(nn.Linear(2, 2), batch) is batch
    moved = to_device(nn.Linear(2, 2, device="meta"), batch)
    assert (moved.tokens.device.type, moved.lengths.device.type) == ("meta", "meta")
    assert moved.tokens.shape == (2, 3)
    assert device_of(nn.ReLU()).type == "cpu"


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RegardError, match=r"device=cuda: this torch .* use device=cpu"):
        choose_device("cuda")
    with pytest.raises(RegardError, match="device=cuda"):
        choose_precision("auto", "cuda")
    run = runs.open_or_start(tmp_path / "r", "classification", "mean", ["device=cuda", "steps=1"])
    with pytest.raises(RegardError, match="device=cuda"):
        next(run.train())
    assert not run.folder.checkpoints.steps()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_learns_what_a_processor_learns(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # of convolutions and LSTMs
    task, model, given = KINDS[kind]
    found = []
    for device in ("cpu", "cuda"):
        run = runs.open_or_start(tmp_path / device, task, model, [*given, f"device={device}"])
        told = list(run.train())
        assert runs.load(run.folder.path).predict("ABC") is not None
        found.append((weights(run.network), told[-1].loss, told[-1].validation_loss))
    (here, loss, judged), (there, its_loss, its_judged) = found
    assert (its_loss, its_judged) == (
        pytest.approx(loss, rel=1e-3),
        pytest.approx(judged, rel=1e-3),
    )
    assert "gpu" in run.folder.environment()
    for name, value in here.items():
        assert_close(there[name], value, atol=1e-3, rtol=1e-3, msg=name)


@pytest.mark.gpu
def test_a_training_on_a_gpu_goes_on_where_it_stopped(tmp_path):
    task, model, given = KINDS["writer"]
    whole, stopped = (
        runs.open_or_start(tmp_path / name, task, model, [*given, "device=cuda"])
        for name in ("whole", "stopped")
    )
    list(whole.train())
    training = stopped.train()
    assert [next(training).step for _ in range(3)] == [1, 2, 3]
    training.close()
    again = list(runs.load(tmp_path / "stopped").train())
    assert again[0].step == 3
    assert "Resumed from step 2" in again[0].note
    for name, value in weights(whole.network).items():
        assert_close(weights(runs.load(tmp_path / "stopped").network)[name], value,
                     atol=1e-3, rtol=1e-3)  # fmt: skip
