"""Two real processes that train one network."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import PrefixStore

import regard
from regard.core.errors import RegardError
from regard.lab import runs
from regard.training.checkpoints import Checkpoints
from regard.training.loop import TrainingSettings, train
from regard.training.ranks import Ranks, place
from regard.training.sharded import rows
from regard.training.stopping import StoppedError, asked_to_stop, deferred, stoppable
from regard.training.watchdog import Watchdog, attempt
from tests.training.together import trained
from tests.training.toys import Bag, Toy

ROOT = Path(regard.__file__).parents[1]
#: A rank that fails in its own way after three steps.
FAILING = """
import os, signal
from regard.training.ranks import ranks
from regard.training.loop import TrainingSettings, train
from tests.training.toys import Bag, Toy
with ranks().guarded():
    for progress in train(Bag(), Toy(), TrainingSettings(steps=100000, threads=1)):
        if progress.step == 3 and ranks().rank == 1:
            {way}
"""


def together(
    *words: str, count: int = 2, seconds: float = 300
) -> list[subprocess.CompletedProcess[str]]:
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
        out, error = process.communicate(timeout=seconds)
        ended.append(subprocess.CompletedProcess(process.args, process.returncode, out, error))
    return ended


def alike(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Losses, validations and weights of two trainings in float64 differ by rounding only."""
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours["validations"], theirs["validations"], rtol=0, atol=1e-10)
    assert ours["weights"].keys() == theirs["weights"].keys()
    for name, values in ours["weights"].items():
        np.testing.assert_allclose(values, theirs["weights"][name], rtol=0, atol=1e-8, err_msg=name)


def test_two_processes_train_as_one_and_hand_over_to_one(tmp_path: Path) -> None:
    saved = f"checkpoints={tmp_path / 'saved'}"
    harder = "optimizer=muon accumulate=2 activation_checkpointing=1 average=0.5".split()
    low = "precision=bf16 batch_size=3 accumulate=2".split()
    first, second = together(
        "-m", "tests.training.together", str(tmp_path / "out.json"), "strategy=ddp",
        "--", "strategy=fsdp2", *harder, "--", "strategy=fsdp2", "save_every=3", "until=7", saved,
        "--", "strategy=fsdp2", *low, "--", "strategy=ddp", *low,
    )  # fmt: skip
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    ddp, fsdp2, interrupted, *in_bf16 = json.loads((tmp_path / "out.json").read_text())
    np.testing.assert_allclose(*(each["losses"] for each in in_bf16), rtol=0, atol=0.05)
    alone = trained({})
    alike(ddp, alone)
    alike(fsdp2, trained(dict(word.split("=") for word in harder)))
    assert len(ddp["losses"]) == 10
    assert len(interrupted["losses"]) == 7

    names = {path.name for path in (tmp_path / "saved" / "step-6").iterdir()}
    assert {"model-1-of-2.safetensors", "optimizer-2-of-2.safetensors", "state.json"} <= names
    resumed = trained({"checkpoints": tmp_path / "saved", "save_every": 3})
    assert resumed["note"] == "Resumed from step 6."
    alike(
        {**resumed, "losses": []}, {**alone, "losses": [], "validations": alone["validations"][-2:]}
    )
    np.testing.assert_allclose(resumed["losses"][1:], alone["losses"][7:], rtol=0, atol=1e-10)
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_what_layers_hand_on_and_indexers_learn_in_two_processes(tmp_path: Path) -> None:
    given = ["attention=dsa-3+value-residual", "accumulate=2"]
    first, second = together(
        "-m", "tests.training.together", str(tmp_path / "out.json"), "strategy=ddp", *given,
        "--", "strategy=fsdp2", "activation_checkpointing=1", *given,
    )  # fmt: skip
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    alone = trained({"attention": "dsa-3+value-residual"})
    assert sum("value-residual" in name for name in alone["weights"]) == 2
    assert sum(name.endswith("depth.query") for name in alone["weights"]) == 3
    for each in json.loads((tmp_path / "out.json").read_text()):
        alike(each, alone)


def sweep(place: Path, world: int, sizes: Sequence[tuple[int, int]], steps: int) -> float:
    """The largest difference of a loss or weight from one process, for (batch size, accumulate)."""
    cases = [
        {"strategy": s, "batch_size": b, "accumulate": a, "steps": steps, "batch_tokens": 1000}
        for s in ("ddp", "fsdp2")
        for b, a in sizes
    ]
    words = [["--", *(f"{name}={value}" for name, value in case.items())] for case in cases]
    command = ["-m", "tests.training.together", str(place), *chain(*words)]
    processes = together(*command, count=world, seconds=20 * len(cases) + 60)
    assert not any(x.returncode for x in processes), processes[0].stderr
    alone = {b: trained({**cases[0], "batch_size": b, "accumulate": 1}) for b, _ in sizes}
    worst = 0.0
    for case, result in zip(cases, json.loads(place.read_text()), strict=True):
        expected = alone[case["batch_size"]]
        alike(result, expected)
        pairs = [(result["losses"], expected["losses"])]
        pairs += [(x, expected["weights"][name]) for name, x in result["weights"].items()]
        worst = max(worst, *(float(np.abs(np.subtract(x, y)).max()) for x, y in pairs))
    return worst


def test_two_processes_share_batches_that_do_not_divide(tmp_path: Path) -> None:
    assert sweep(tmp_path / "out.json", 2, [(1, 2), (3, 2), (5, 3)], 3) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_batch_size_trains_as_one_process(tmp_path: Path, world: int) -> None:
    sizes = [(b, a) for a in (1, 2, 3) for b in range(1, 2 * world * a + 1)]
    worst = sweep(tmp_path / "out.json", world, sizes, 6)
    print(f"{world} processes: {2 * len(sizes)} trainings, largest difference {worst:.1e}")
    assert worst < 1e-10


#: A network that leaves out its first block if its examples have no word 3.
CHOOSING = """
import torch
from regard.training.loop import TrainingSettings, train
from regard.training.precision import Precision
from tests.training.together import Odd
from tests.training.toys import Toy

class Choosing(Odd):
    def forward(self, tokens, lengths):
        every = self.inner.blocks
        self.inner.blocks = every if (tokens == 3).any() else every[1:]
        try:
            return super().forward(tokens, lengths)
        finally:
            self.inner.blocks = every

settings = TrainingSettings(batch_size=2, steps=30, strategy="{strategy}", threads=1)
list(train(Choosing().double(), Toy(), settings, precision=Precision("fp32", "")))
"""


def test_a_network_that_chooses_its_blocks_trains_by_ddp_and_is_refused_by_fsdp2() -> None:
    refused = together("-c", CHOOSING.format(strategy="fsdp2"))
    assert all(x.returncode for x in refused)
    assert any("use strategy=ddp" in x.stderr for x in refused)
    assert [x.returncode for x in together("-c", CHOOSING.format(strategy="ddp"))] == [0, 0]


def test_a_run_is_trained_by_two_and_told_by_one(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    tiny = (
        "width=8 steps=6 examples=200 batch_tokens=600 evaluate_every=3 threads=1 dropout=0 "
        "word_dropout=0 precision=fp32"
    ).split()
    words = ["-m", "regard", "train", "classification", "--model", "transformer"]
    first, second = together(*words, "--out", out, *tiny)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "test accuracy" in first.stdout
    assert second.stdout == second.stderr == ""
    environment = json.loads((tmp_path / "run" / "env.json").read_text())
    assert (environment["processes"], environment["strategy"]) == (2, "ddp")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 3, 6]
    assert not (tmp_path / "run" / "checkpoints").exists()

    both = runs.load(out)
    alone = runs.start(tmp_path / "alone", "classification", "transformer", tiny)
    for _ in alone.train():
        pass
    for name, x in both.network.state_dict().items():
        torch.testing.assert_close(x, alone.network.state_dict()[name], atol=1e-4, rtol=1e-3)
    texts = ["a good film", "a bad film"]
    for ours, theirs in zip(both.predict(texts), alone.predict(texts), strict=True):
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-3)
    refused, _ = together(*words[:5], "tfidf", "--out", f"{out}-2", "examples=200")
    assert "tfidf cannot be trained by several processes" in refused.stderr


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("raise ValueError('no more memory')", "rank 1: ValueError: no more memory"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGKILL)", "rank 1 died or was", marks=pytest.mark.slow
        ),
    ],
)
def test_the_others_end_and_say_which_rank_failed_and_why(way: str, reason: str) -> None:
    first, second = together("-c", FAILING.format(way=way))
    assert first.returncode == 70
    assert f"error: rank 0 ends: {reason}" in first.stderr
    assert second.returncode not in (0, 70)


def test_a_stop_signal_saves_a_checkpoint_from_which_training_goes_on(tmp_path: Path) -> None:
    settings, undisturbed = TrainingSettings(steps=20, threads=1, batch_tokens=30), Bag()
    list(train(undisturbed, Toy(), settings))
    training = train(Bag(), Toy(), settings, Checkpoints(tmp_path))
    with stoppable():
        assert [progress.step for progress in islice(training, 6)][-1] == 6
        os.kill(os.getpid(), signal.SIGUSR1)
        assert next(training).step == 7
        with pytest.raises(StoppedError, match="SIGUSR1 after step 7; a checkpoint is saved"):
            next(training)
    assert Checkpoints(tmp_path).steps() == [7]
    resumed = Bag()
    list(train(resumed, Toy(), settings, Checkpoints(tmp_path)))
    for name, x in undisturbed.state_dict().items():
        assert torch.equal(x, resumed.state_dict()[name]), name


def test_a_stop_signal_outside_of_a_training_raises_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stoppable():
        with deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked_to_stop() == "SIGTERM"
        with pytest.raises(StoppedError, match="stopped by SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
    assert asked_to_stop() == ""


def test_a_stop_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.lab.cli import main

    def stopped(**attributes: object) -> None:
        raise StoppedError("stopped by SIGTERM")

    monkeypatch.setattr(main, "app", stopped)
    monkeypatch.setattr(sys, "argv", ["regard", "train", "x"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 75


@pytest.mark.parametrize(
    ("environment", "here"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "a"}, (2, 4)),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "MASTER_ADDR": "a"}, (3, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),  # the script of a job, before srun
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
    ],
)
def test_the_place_comes_from_torchrun_or_slurm(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], here: tuple[int, int]
) -> None:
    only(monkeypatch, environment)
    assert place() == here


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 and WORLD_SIZE=2 are invalid"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1 and WORLD_SIZE=2 are invalid"),
        ({"RANK": "a", "WORLD_SIZE": "2"}, "RANK=a and WORLD_SIZE=2 are invalid"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "RANK=0 and WORLD_SIZE=two are invalid"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, "export MASTER_ADDR="),
    ],
)
def test_a_place_that_is_none(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], says: str
) -> None:
    only(monkeypatch, environment)
    with pytest.raises(RegardError, match=says):
        place()


def only(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Set these variables and none of the others that say where a process is."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", *(x for x in os.environ if "SLURM" in x)):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_one_process_computes_everything_itself() -> None:
    alone = Ranks()
    with alone.sharing(), alone.guarded():
        results = alone.divide([1, 2, 3], lambda x: {"square": np.array(x * x)})
    assert [int(each["square"]) for each in results] == [1, 4, 9]
    assert alone.total(1.5, 2.0) == [1.5, 2.0]
    assert alone.collect("key", "text") == ["text"]


def test_a_process_that_dies_in_its_first_second_is_missed() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, 1, True)
    Watchdog(store, 1, 2)
    assert PrefixStore(attempt(), store).get("beat/1") == b"0"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_rows_of_all_processes_are_the_tensor(count: int, world: int) -> None:
    x = torch.arange(count * 2).reshape(count, 2)
    parts = [rows(x, rank, world) for rank in range(world)]
    assert torch.equal(torch.cat(parts), x)
    chunks = torch.chunk(x, world)
    for part, chunk in zip(parts, chunks, strict=False):
        assert torch.equal(part, chunk)
