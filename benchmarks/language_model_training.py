"""Pretraining and fine-tuning of language models by regard and by peers, in turns.

* ``pretrain`` and ``finetune``: assignment 5's network and data as minGPT's code trains them, which
  the assignment hands out: fp32, attention written out, every row padded to 128 characters.
* ``gpt``, ``bert``, ``t5``: Hugging Face's classes of the same sizes on the same batches, in fp32
  and in bf16.
* ``characters``: nanoGPT's configuration for a CPU, in equal seconds, by the final loss.

Speed counts real tokens, without padding.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from benchmarks import language_model_peers as peers
from benchmarks import nanogpt
from benchmarks.language_model_peers import BLOCK
from benchmarks.multiples import must_be_possible
from regard.core.errors import RegardError
from regard.core.memory import keep_freed_memory
from regard.core.settings import Settings, build, split
from regard.lab.data.fetch import present
from regard.lab.tasks import TASKS
from regard.training.loop import Training
from regard.training.precision import choose_device, choose_precision
from regard.training.settings import TrainingSettings

ROWS = 128  # of a batch of the assignment's pretraining
CASES = ("pretrain", "finetune", "gpt", "bert", "t5", "characters")
BORROWED = {"gpt": "language-modeling", "bert": "masked-modeling", "t5": "span-corruption"}
AIMS = {"pretrain": 5.0, "finetune": 8.0}
QUICK = {"rounds": 2, "seconds": 1.0, "steps": 100}
#: Of regard in its own precision beside transformers in two.
AIMS_OF = {"cpu": (("fp32", 1.5), ("bf16", 1.1)), "cuda": (("fp32", 1.5), ("bf16", 1.2))}
Step = Callable[[], int]  # one step of training: how many real tokens


class BenchSettings(Settings):
    """Settings: ``rounds`` turns of ``seconds`` each; ``case``: one of them, or all.

    ``steps`` are those of nanoGPT, whose seconds regard gets too. ``device=cuda`` has gpt, bert
    and t5 alone, whose peers run there. ``compile`` compiles regard's blocks in these three.
    """

    rounds: int = 5
    seconds: float = 4.0
    case: str = ""
    data: str = ""
    batch: int = 8_192
    steps: int = Field(2_000, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    compile: bool = False


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return a row for each contest: seconds for 1,000 real tokens of both, and their ratio."""
    (given,) = split(settings, BenchSettings)
    how = build(BenchSettings, {**(QUICK if quick else {}), **given})
    if how.case and how.case not in CASES:
        raise RegardError(f"case={how.case} is none of {', '.join(CASES)}")
    choose_device(how.device)  # an error if it is not there
    if how.device == "cuda" and how.case not in ("", *BORROWED):
        raise RegardError(f"case={how.case} has no peer on a GPU; choose {', '.join(BORROWED)}")
    keep_freed_memory()
    return _cases(how)


def _cases(how: BenchSettings) -> Iterator[dict[str, Any]]:
    on_cpu = how.device == "cpu"
    for name in ("pretrain", "finetune") if on_cpu else ():
        if how.case in ("", name):
            yield contest(name, how, ours(name, how), padded(name, how), "minGPT's way", AIMS[name])
    if how.case in ("", "characters") and on_cpu:
        for data in [how.data] if how.data else ["pydoc", *filter(present, ["birthplaces"])]:
            yield nanogpt.contest(data, how.steps)
    if find_spec("transformers") is None:
        return
    for name in ("gpt", "bert", "t5"):
        if how.case not in ("", name):
            continue
        for precision, aim in AIMS_OF[how.device]:
            theirs = borrowed(name, how, precision)
            yield contest(name, how, ours(name, how), theirs, f"transformers, {precision}", aim)


def contest(
    name: str, how: BenchSettings, mine: Step, theirs: Step, against: str, aim: float
) -> dict[str, Any]:
    """Time turns A B A B, after two steps of each side for allocation."""
    for step in (mine, theirs):
        step(), step()
    sides, wait = (mine, theirs), how.device == "cuda"
    turns = [tuple(pace(side, how.seconds, wait) for side in sides) for _ in range(how.rounds)]
    our_s, their_s = (1_000 * median(side) for side in zip(*turns, strict=True))
    ratio, sizes = median(b / a for a, b in turns), peers.SIZES
    block = sizes.width * (4 * sizes.width + 2 * sizes.feedforward)
    must_be_possible(6e3 * sizes.layers * block, min(our_s, their_s), how.device)
    return {
        "name": f"{name}: {sizes.layers} layers, width {sizes.width}, for 1,000 real tokens",
        "against": against,
        "ours_s": our_s,
        "theirs_s": their_s,
        "time_ratio": ratio,
        "ours_mb": None,
        "theirs_mb": None,
        "says": f"{1_000 / our_s:,.0f} and {1_000 / their_s:,.0f} real tokens/s; aim ≥ {aim:g}×",
        "reached": ratio >= aim,
    }


def pace(step: Step, seconds: float, wait: bool = False) -> float:
    """Return the seconds for a real token over the next steps, for a number of seconds.

    ``wait`` for a GPU at the end. Raise a RegardError if they have no tokens.
    """
    begun, tokens = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        tokens += step()
    if not tokens:
        raise RegardError(f"a turn of {seconds:g} s had no tokens")
    if wait:
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / tokens


def prepared(name: str, how: BenchSettings) -> Any:
    """Return the task of a case: birthplaces if available, or invented people; else pydoc."""
    if name in ("pretrain", "finetune"):
        data = how.data or ("birthplaces" if present("birthplaces") else "biographies")
        task = "birthplace-pretrain" if name == "pretrain" else "birthplace"
    else:
        data = how.data or "pydoc"
        task = BORROWED[name]
    entry = TASKS[task]
    return task, entry.prepare(entry.configure({"data": data, "length": BLOCK}))


def ours(name: str, how: BenchSettings) -> Step:
    """Return a step of regard's training, as in `regard train`."""
    task_name, task = prepared(name, how)
    entry = TASKS[task_name]
    model = entry.models[entry.model]
    sizes = {**vars(peers.SIZES), "length": BLOCK, "dropout": 0.1}
    torch.manual_seed(0)
    network = model.build(model.configure(sizes), **task.sizes)
    settings = build(TrainingSettings, {
        "batch_tokens": how.batch, "steps": 1_000_000, "device": how.device,
        "compile": how.compile,
    })  # fmt: skip
    training = Training(network, task, settings, choose_precision("auto", how.device))
    batches = _endless(lambda epoch: task.batches("train", tokens=how.batch, seed=0, epoch=epoch))

    def step() -> int:
        before = training.state.tokens
        training.update(next(batches))
        return training.state.tokens - before

    return step


def _endless(plan: Callable[[int], Sequence[Any]]) -> Iterator[Any]:
    for epoch in count():
        yield from plan(epoch)


def padded(name: str, how: BenchSettings) -> Step:
    """Return a step of minGPT's trainer: 128 rows (256 in fine-tuning) of 128 characters, most of
    may be padding, fp32, AdamW."""
    _, task = prepared(name, how)
    torch.manual_seed(0)
    model = peers.Padded(task.sizes["vocabulary"]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    rows = ROWS if name == "pretrain" else 2 * ROWS
    total = len(task.lengths("train", 0, 0))

    def shuffled(epoch: int) -> list[Any]:
        order = np.random.default_rng(epoch).permutation(total)
        chunks = [order[i : i + rows] for i in range(0, total, rows)]
        if name == "finetune":
            return chunks
        return [np.stack([c * 0, c * 0 + epoch, c], 1) for c in chunks]

    batches = _endless(shuffled)

    def step() -> int:
        batch = task.batch("train", next(batches))
        missing_columns = BLOCK - 1 - batch.tokens.shape[1]
        tokens = F.pad(batch.tokens, (0, max(missing_columns, 0)))[:, : BLOCK - 1]
        wanted = torch.where(batch.real, batch.wanted, 0)
        wanted = F.pad(wanted, (0, max(missing_columns, 0)))[:, : BLOCK - 1]
        loss = F.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten(), ignore_index=0)
        peers.descend(model, optimizer, loss)
        return int(batch.lengths.sum())

    return step


def borrowed(name: str, how: BenchSettings, precision: str) -> Step:
    """Return a step of Hugging Face's class of the same sizes, on regard's batches."""
    _, task = prepared(name, how)
    torch.manual_seed(0)
    model = peers.hugging_face(name, task.sizes["vocabulary"]).train().to(how.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    autocast = choose_precision(precision, how.device).autocast
    batches = _endless(lambda epoch: task.batches("train", tokens=how.batch, seed=0, epoch=epoch))

    def step() -> int:
        batch = task.batch("train", next(batches))
        given = {key: x.to(how.device) for key, x in peers.asked(name, batch).items()}
        with autocast(how.device):
            loss = model(**given).loss
        peers.descend(model, optimizer, loss)
        return int(batch.lengths.sum())

    return step
