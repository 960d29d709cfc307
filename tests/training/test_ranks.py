"""Two real processes that train one network."""

import json
import os
import socket
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

import regard
from regard.errors import RegardError
from regard.training.loop import Training, TrainingSettings, seeded, step_seed
from regard.training.precision import choose_precision
from regard.ranks import Ranks, ranks
from tests.training.toys import Bag, Toy

ROOT = Path(regard.__file__).parents[1]
SETTINGS = {"epochs": 3, "batch_tokens": 30, "learning_rate": 0.01, "threads": 1, "seed": 3}
SCRIPT = f"""
import sys
from safetensors.torch import save_file
from regard.training.loop import TrainingSettings, train
from tests.training.toys import Bag, Toy
model = Bag()
told = list(train(model, Toy(), TrainingSettings(**{SETTINGS!r})))
save_file(dict(model.state_dict()), sys.argv[1])
print(told[-1].step, told[-1].tokens, f"{{told[-1].loss:.6f}} {{told[-1].best:.6f}}")
"""


def together(*words: str, count: int = 2) -> list[subprocess.CompletedProcess[str]]:
    """The same command in so many processes, as torchrun starts them; {rank} in its words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(count):
        place = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
        env = os.environ | place | {"MASTER_PORT": str(port), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *(word.replace("{rank}", str(rank)) for word in words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=env, cwd=ROOT, **pipes))
    ended = []
    for process in started:
        out, error = process.communicate(timeout=120)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    return ended


class Second(Ranks):
    """The first of two processes, where the other's gradients, loss and tokens are given."""

    def hear(self, model: Bag, loss: torch.Tensor, tokens: int) -> None:
        self.__dict__.update(other=[p.grad for p in model.parameters()], said=(loss.item(), tokens))

    def average(self, model: torch.nn.Module) -> None:
        for p, other in zip(model.parameters(), self.other, strict=True):
            p.grad = (p.grad + other) / 2

    def total(self, *numbers: float) -> list[float]:
        return [a + b for a, b in zip(numbers, self.said, strict=True)]


def test_two_processes_take_the_steps_of_their_mean_gradient(tmp_path: Path) -> None:
    first, second = together("-c", SCRIPT, str(tmp_path / "{rank}.safetensors"))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout
    ours, theirs = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name

    model, task, settings = Bag(), Toy(), TrainingSettings(**SETTINGS)
    training = Training(model, task, settings, choose_precision("auto", "cpu"))
    training.ranks, best = Second(0, 2), (-1.0, -1.0)
    for epoch in range(3):
        plans = [
            task.batches("train", tokens=30, seed=3, epoch=epoch, rank=rank, world=2)
            for rank in (0, 1)
        ]
        count = training.state.plan = min(map(len, plans))
        training.state.epoch, training.state.position = epoch, 0
        for mine, other in list(zip(*plans, strict=False))[:count]:
            batch, copy = task.batch("train", other), deepcopy(model).train()
            copy.zero_grad()
            with seeded(step_seed(3, training.state.step, 1)):
                with training.precision.autocast("cpu"):
                    loss = task.loss(copy, batch)
                loss.backward()
            training.ranks.hear(copy, loss, int(batch.lengths.sum()))
            training.update(mine)
            if training.validation_due():
                metric, nats = task.judge(model, "validation")
                if (metric, -nats) > best:
                    best, kept = (metric, -nats), deepcopy(model.state_dict())
    assert first.stdout.split()[:2] == [str(training.state.step), str(training.state.tokens)]
    for name, value in kept.items():
        assert_close(ours[name], value, atol=1e-6, rtol=1e-6)


def test_a_run_is_trained_by_two_and_told_by_one(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    tiny = "width=8 steps=6 examples=200 batch_tokens=600 evaluate_every=3 threads=1".split()
    words = [
        "-m",
        "regard",
        "train",
        "classification",
        "--model",
        "transformer",
        "--out",
        out,
        *tiny,
    ]
    first, second = together(*words)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "test accuracy" in first.stdout
    assert second.stdout == second.stderr == ""
    environment = json.loads((tmp_path / "run" / "env.json").read_text())
    assert environment["processes"] == 2
    assert (tmp_path / "run" / "MANIFEST.json").exists()
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 3, 6]
    (tmp_path / "run" / "MANIFEST.json").unlink()
    alone = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert alone.returncode == 2
    assert "the processes of" in alone.stderr
    refused, _ = together(*words[:5], "tfidf", "--out", f"{out}-2", "examples=200")
    assert "tfidf cannot be trained by several processes" in refused.stderr


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("-1", "2"), ("a", "2"), ("0", "two")])
def test_a_place_that_is_none(monkeypatch: pytest.MonkeyPatch, rank: str, world: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    ranks.cache_clear()
    try:
        with pytest.raises(RegardError, match=f"RANK={rank} and WORLD_SIZE={world} are invalid"):
            ranks()
    finally:
        monkeypatch.undo()
        ranks.cache_clear()
