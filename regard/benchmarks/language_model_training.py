"""Pretraining and fine-tuning of language models beside how others train them, turn by turn.

* ``pretrain`` and ``finetune``: assignment 5's network and data as minGPT's code trains them, which
  the assignment hands out: fp32, attention written out, every row padded to 128 characters.
* ``gpt``, ``bert``, ``t5``: Hugging Face's classes of the same sizes on the same batches, in fp32
  and in bf16.

What is counted is real tokens: padding is no work done.
"""

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import RegardError
from regard.models import MODELS_FOR
from regard.settings import Settings, build, split
from regard.tasks import TASKS
from regard.training.loop import Training
from regard.training.memory import keep_freed_memory
from regard.training.precision import choose_precision
from regard.training.settings import TrainingSettings

BLOCK = 128
ROWS = 128  # of a batch of the assignment's pretraining
CASES = ("pretrain", "finetune", "gpt", "bert", "t5")
BORROWED = {"gpt": "language-modeling", "bert": "masked-modeling", "t5": "span-corruption"}
AIMS = {"pretrain": 5.0, "finetune": 8.0}
AIM_FP32, AIM_BF16 = 1.5, 1.1
Step = Callable[[], int]  # one step of training: how many real tokens


class BenchSettings(Settings):
    """How much to measure: ``rounds`` turns of ``seconds`` each; ``case``: one of them, or all."""

    rounds: int = 5
    seconds: float = 4.0
    case: str = ""
    data: str = ""
    batch: int = 8_192


@dataclass(frozen=True)
class Sizes:
    """Of all networks here: assignment 5's."""

    width: int = 256
    heads: int = 8
    layers: int = 4
    feedforward: int = 1_024


SIZES = Sizes()


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """A row for each contest: seconds for 1,000 real tokens of both, and their ratio."""
    (given,) = split(settings, BenchSettings)
    how = build(BenchSettings, {**({"rounds": 2, "seconds": 1.0} if quick else {}), **given})
    if how.case and how.case not in CASES:
        raise RegardError(f"case={how.case} is none of {', '.join(CASES)}")
    keep_freed_memory()
    return _cases(how)


def _cases(how: BenchSettings) -> Iterator[dict[str, Any]]:
    for name in ("pretrain", "finetune"):
        if how.case in ("", name):
            yield contest(name, how, ours(name, how), padded(name, how), "minGPT's way", AIMS[name])
    if find_spec("transformers") is None:
        return
    for name in ("gpt", "bert", "t5"):
        if how.case not in ("", name):
            continue
        for precision, aim in (("fp32", AIM_FP32), ("bf16", AIM_BF16)):
            theirs = borrowed(name, how, precision)
            yield contest(name, how, ours(name, how), theirs, f"transformers, {precision}", aim)


def contest(
    name: str, how: BenchSettings, mine: Step, theirs: Step, against: str, aim: float
) -> dict[str, Any]:
    """Turns A B A B; each side has made two steps before, which allocate."""
    for step in (mine, theirs):
        step(), step()
    turns = [(pace(mine, how.seconds), pace(theirs, how.seconds)) for _ in range(how.rounds)]
    our_s, their_s = (1_000 * median(side) for side in zip(*turns, strict=True))
    ratio = median(b / a for a, b in turns)
    return {
        "name": f"{name}: {SIZES.layers} layers, width {SIZES.width}, for 1,000 real tokens",
        "against": against,
        "ours_s": our_s,
        "theirs_s": their_s,
        "time_ratio": ratio,
        "ours_mb": None,
        "theirs_mb": None,
        "says": f"{1_000 / our_s:,.0f} and {1_000 / their_s:,.0f} real tokens/s; aim ≥ {aim:g}×",
        "reached": ratio >= aim,
    }


def pace(step: Step, seconds: float) -> float:
    """Seconds for a real token over the next steps, until so many seconds have passed."""
    begun, tokens = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        tokens += step()
    return (time.perf_counter() - begun) / tokens


def prepared(name: str, how: BenchSettings) -> Any:
    """The task of a case: birthplaces if they are here, or invented people; pydoc for the rest."""
    from regard.data.fetch import present

    if name in ("pretrain", "finetune"):
        data = how.data or ("birthplaces" if present("birthplaces") else "biographies")
        task = "birthplace-pretrain" if name == "pretrain" else "birthplace"
    else:
        data = how.data or "pydoc"
        task = {"gpt": "language-modeling", "bert": "masked-modeling", "t5": "span-corruption"}[
            name
        ]
    entry = TASKS[task]
    return task, entry.prepare(entry.configure({"data": data, "length": BLOCK}))


def ours(name: str, how: BenchSettings) -> Step:
    """A step of regard's training, as `regard train` makes it."""
    task_name, task = prepared(name, how)
    entry = TASKS[task_name]
    model = MODELS_FOR[entry.kind][entry.model]
    sizes = {**vars(SIZES), "length": BLOCK, "dropout": 0.1}
    torch.manual_seed(0)
    network = model.build(model.configure(sizes), **task.sizes)
    settings = build(TrainingSettings, {"batch_tokens": how.batch, "steps": 1_000_000})
    training = Training(network, task, settings, choose_precision())
    batches = _endless(lambda epoch: _plan(task, how.batch, epoch))

    def step() -> int:
        before = training.state.tokens
        training.update(next(batches))
        return training.state.tokens - before

    return step


def _plan(task: Any, tokens: int, epoch: int) -> Sequence[Any]:
    plan: Sequence[Any] = task.batches("train", tokens=tokens, seed=0, epoch=epoch)
    return plan


def _endless(plan: Callable[[int], Sequence[Any]]) -> Iterator[Any]:
    for epoch in count():
        yield from plan(epoch)


class Padded(nn.Module):
    """minGPT's decoder: three projections, a table of scores, a triangle of −∞. Karpathy 2020."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        width = SIZES.width
        self.words, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.1)
        self.places = nn.Parameter(torch.zeros(1, BLOCK, width))
        self.blocks = nn.Sequential(*(PaddedBlock() for _ in range(SIZES.layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at every position, padding too."""
        x = self.drop(self.words(tokens) + self.places[:, : tokens.shape[1]])
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class PaddedBlock(nn.Module):
    """One of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        width = SIZES.width
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.key, self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.drops = nn.ModuleList([nn.Dropout(0.1), nn.Dropout(0.1)])
        self.inner = nn.Sequential(
            nn.Linear(width, SIZES.feedforward),
            nn.GELU(),
            nn.Linear(SIZES.feedforward, width),
            nn.Dropout(0.1),
        )
        self.triangle: Tensor
        self.register_buffer("triangle", torch.tril(torch.ones(1, 1, BLOCK, BLOCK)))

    def forward(self, x: Tensor) -> Tensor:
        """The next layer's states."""
        x = x + self.attend(self.norms[0](x))
        found: Tensor = x + self.inner(self.norms[1](x))
        return found

    def attend(self, x: Tensor) -> Tensor:
        """softmax(q kᵀ / √d + mask) v, as it is written."""
        batch, time, width = x.shape
        q, k, v = (
            part(x).view(batch, time, SIZES.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        scores = scores.masked_fill(self.triangle[..., :time, :time] == 0, -1e10)
        found = self.drops[0](F.softmax(scores, -1)) @ v
        out: Tensor = self.drops[1](self.out(found.transpose(1, 2).reshape(batch, time, width)))
        return out


def padded(name: str, how: BenchSettings) -> Step:
    """A step of minGPT's trainer: 128 rows (256 in fine-tuning) of 128 characters, most of which
    may be padding, fp32, AdamW."""
    _, task = prepared(name, how)
    torch.manual_seed(0)
    model = Padded(task.sizes["vocabulary"]).train()
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
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return int(batch.lengths.sum())

    return step


def borrowed(name: str, how: BenchSettings, precision: str) -> Step:
    """A step of Hugging Face's class of the same sizes, on the batches that regard takes."""
    _, task = prepared(name, how)
    torch.manual_seed(0)
    model = hugging_face(name, task.sizes["vocabulary"]).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    autocast = choose_precision(precision).autocast
    batches = _endless(lambda epoch: _plan(task, how.batch, epoch))

    def step() -> int:
        batch = task.batch("train", next(batches))
        with autocast():
            loss = model(**asked(name, batch)).loss
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return int(batch.lengths.sum())

    return step


def hugging_face(name: str, vocabulary: int) -> Any:
    """GPT-2, BERT with both heads, T5 1.1, in regard's sizes."""
    hf: Any = importlib.import_module("transformers")

    width, heads, layers, inner = vars(SIZES).values()
    if name == "gpt":
        return hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=vocabulary, n_positions=BLOCK, n_embd=width, n_layer=layers,
                n_head=heads, n_inner=inner, attn_pdrop=0.0,
                bos_token_id=0, eos_token_id=0,
            )
        )  # fmt: skip
    if name == "bert":
        return hf.BertForPreTraining(
            hf.BertConfig(
                vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, intermediate_size=inner,
                max_position_embeddings=BLOCK, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=vocabulary, d_model=width, d_kv=width // heads, d_ff=inner,
            num_layers=layers, num_heads=heads, feed_forward_proj="gated-gelu",
            tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def asked(name: str, batch: Any) -> dict[str, Tensor]:
    """A batch of regard's in Hugging Face's words; −100 is not asked about."""
    wanted = torch.where(batch.real, batch.wanted, -100)
    if name == "t5":
        time = batch.source.shape[1]
        seen = torch.arange(time) < batch.source_lengths[:, None]
        return {
            "input_ids": batch.source,
            "attention_mask": seen.long(),
            "decoder_input_ids": batch.given,
            "labels": wanted,
        }
    seen = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    if name == "gpt":  # its loss shifts labels by one itself
        labels = torch.cat([torch.full_like(wanted[:, :1], -100), wanted[:, :-1]], 1)
        return {"input_ids": batch.tokens, "labels": labels}
    return {
        "input_ids": batch.tokens,
        "attention_mask": seen.long(),
        "token_type_ids": batch.types,
        "labels": wanted,
        "next_sentence_label": batch.elsewhere,
    }
