"""The losses of regard's and nanoGPT's character language models after equal seconds.

nanoGPT is built and trained as its README says for a CPU: ``train_shakespeare_char`` with 4 layers,
width 128, blocks of 64, batches of 12 and 2,000 steps (Karpathy 2022). Both sides read one train
split, take turns by slices of the 2,000 steps, and are evaluated on one validation split, cut into
the same blocks.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.language_model_peers import descend
from regard.core.settings import build
from regard.lab.tasks import TASKS
from regard.lab.tasks.models import DECODERS
from regard.training.loop import Training
from regard.training.precision import choose_precision
from regard.training.settings import MOST_TOKENS, TrainingSettings

BLOCK, BATCH, WARMUP = 64, 12, 100
RATE, LEAST_RATE = 1e-3, 1e-4
WIDTH, HEADS, LAYERS = 128, 4, 4
SLICES = 20  # turns of each side
SPREAD = 0.02

#: regard's side: the same network but for rotary positions, trained in regard's way. Its batch
#: and rate were chosen on other texts (the built-in reviews).
NETWORK = {
    "width": WIDTH, "heads": HEADS, "layers": LAYERS, "feedforward": 4 * WIDTH, "length": BLOCK,
    "position": "rotary", "dropout": 0.0,
}  # fmt: skip
TRAINED = {"learning_rate": 4e-3, "batch_tokens": 2_048, "schedule": "linear", "weight_decay": 0.1}


def contest(data: str, steps: int = 2_000) -> dict[str, Any]:
    """Train both for the time of nanoGPT's steps; return the row of the table."""
    entry = TASKS["language-modeling"]
    task: Any = entry.prepare(entry.configure({"data": data, "length": BLOCK}))
    peer = NanoGPT(task.sizes["vocabulary"])
    theirs = steps_of(peer, torch.from_numpy(task.stream("train")).long(), steps)
    ours = Ours(task)
    ours_s = theirs_s = 0.0
    slices = [steps * (i + 1) // SLICES - steps * i // SLICES for i in range(SLICES)]
    for place, count in enumerate(slices):
        begun = time.perf_counter()
        for _ in range(count):
            next(theirs)
        spent = time.perf_counter() - begun
        theirs_s += spent
        # Each slice is as long as theirs was; what the one before ran over is taken off.
        ours_s += ours.train_for(max(theirs_s - ours_s, 0.0), place / SLICES, (place + 1) / SLICES)
    our_loss, their_loss = (loss(model, task) for model in (ours.training.model, peer))
    return {
        "name": f"characters: {LAYERS} layers, width {WIDTH}, block {BLOCK}, {data}",
        "against": f"nanoGPT's CPU configuration, {steps:,} steps",
        "ours_s": ours_s,
        "theirs_s": theirs_s,
        "time_ratio": theirs_s / ours_s,
        "ours_mb": None,
        "theirs_mb": None,
        "our_loss": our_loss,
        "their_loss": their_loss,
        "says": f"validation loss {our_loss:.3f} and {their_loss:.3f} nats a character, "
        f"{ours.training.state.tokens:,} and {steps * BATCH * BLOCK:,} characters read; aim: lower",
        "reached": our_loss < their_loss,
    }


def loss(model: nn.Module, task: Any) -> float:
    """Return the nats per character on the validation split, in independent blocks, in fp32."""
    _, nats = task.judge(model, "validation", tokens=MOST_TOKENS)
    return float(nats)


class Ours:
    """regard's training, whose clock is the elapsed share of the seconds."""

    def __init__(self, task: Any) -> None:
        model = DECODERS["gpt"]
        torch.manual_seed(0)
        network = model.build(model.configure(NETWORK), **task.sizes)
        settings = build(TrainingSettings, {**TRAINED, "minutes": 1.0})
        self.training = Training(network, task, settings, choose_precision())
        self.batches = self._endless()

    def train_for(self, seconds: float, first: float, last: float) -> float:
        """Train for a number of seconds between two shares of the schedule; return the seconds."""
        begun, gone = time.perf_counter(), 0.0
        while gone < seconds:
            self.training.state.seconds = 60 * (first + (last - first) * gone / seconds)
            self.training.update(next(self.batches))
            gone = time.perf_counter() - begun
        return gone

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.training.plan()
            self.training.state.epoch += 1


class NanoGPT(nn.Module):
    """nanoGPT's network: pre-norm blocks without biases, GELU, one matrix for words in and out."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList(NanoBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                last = name.endswith(("out.weight", "narrow.weight"))
                nn.init.normal_(weight, std=SPREAD / math.sqrt(2 * LAYERS) if last else SPREAD)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the states for `to_logits`."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        states: Tensor = self.norm(x)
        return states

    def to_logits(self, states: Tensor) -> Tensor:
        """Return the products with the word vectors."""
        return F.linear(*self.logit_parts(states))

    def logit_parts(self, states: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return states, matrix and no bias, for the task's evaluation."""
        return states, self.words.weight, None


class NanoBlock(nn.Module):
    """x ← x + Attention(LN x), x ← x + MLP(LN x), with one matrix for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.three = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The next layer's states."""
        batch, time_, _ = x.shape
        q, k, v = (
            part.view(batch, time_, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.three(self.norms[0](x)).split(WIDTH, 2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, time_, WIDTH))
        narrow: Tensor = self.narrow(F.gelu(self.widen(self.norms[1](x))))
        return x + narrow


def rate_at(step: int, steps: int) -> float:
    """Return nanoGPT's rate: a linear rise, then a cosine down to a tenth."""
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    share = (step - WARMUP) / max(steps - WARMUP, 1)
    return LEAST_RATE + 0.5 * (1 + math.cos(math.pi * share)) * (RATE - LEAST_RATE)


def steps_of(model: NanoGPT, stream: Tensor, steps: int) -> Iterator[float]:
    """Yield the losses of its trainer: fp32, random blocks, AdamW with β₂ = 0.99, clipping at 1."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.99),
    )
    generator = torch.Generator().manual_seed(1337)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        starts = torch.randint(len(stream) - BLOCK, (BATCH,), generator=generator)
        rows = torch.stack([stream[i : i + BLOCK + 1] for i in starts])
        logits = model.to_logits(model(rows[:, :-1]))
        found = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        descend(model, optimizer, found)
        yield found.item()
