"""Train a tiny Transformer in float64, as one of several processes or alone: losses and weights.

    python -m tests.training.together OUT.json strategy=ddp steps=10 … [-- strategy=fsdp2 …]

Each list of settings after ``--`` is a further training; ``until`` interrupts it after so many
steps, and ``attention`` is a mechanism below attention over depth. The first process writes
OUT.json: for each training the losses of its steps, its validations and the final weights.
"""

import json
import sys
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.lab.runs.build import build_network
from regard.lab.runs.config import Config
from regard.training.checkpoints import Checkpoints
from regard.training.loop import SMOOTH, TrainingSettings, train
from regard.training.precision import Precision
from regard.training.ranks import ranks
from tests.training.toys import WORDS, Toy

NETWORK = ["width=8", "heads=2", "layers=2", "feedforward=12", "dropout=0", "word_dropout=0",
           "length=16"]  # fmt: skip
USUAL = {"batch_tokens": 60, "learning_rate": 0.01, "threads": 1, "seed": 3, "steps": 10}


class Odd(nn.Module):
    """A text classifier with a parameter without axes, and layers that no or few texts use."""

    def __init__(self, *more: str) -> None:
        super().__init__()
        config = Config.make("classification", "transformer", [*NETWORK, *more])
        self.inner = build_network(config, vocabulary=WORDS, labels=2)
        self.scale, self.unused = nn.Parameter(torch.tensor(1.0)), nn.Linear(3, 3)
        self.rare = nn.Linear(2, 2)
        self.register_buffer("offset", torch.tensor([0.1, -0.1]))

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(tokens, lengths)
        if (few := tokens[:, 0] == 3).any():
            logits = torch.where(few[:, None], self.rare(logits), logits)
        return logits * self.scale + self.offset


def trained(settings: dict[str, Any]) -> dict[str, Any]:
    """Train once; return losses, validations and weights."""
    place, until = settings.pop("checkpoints", ""), int(settings.pop("until", 1000))
    precision, attention = settings.pop("precision", "fp32"), settings.pop("attention", "")
    across = ["block=pre-norm", "residual=depth-attention", f"attention={attention}"]
    torch.manual_seed(0)
    model = Odd(*(across if attention else [])).to(
        torch.float64 if precision == "fp32" else torch.float32
    )
    asked, losses, before = TrainingSettings(**{**USUAL, **settings}), [], 0.0
    checkpoints = Checkpoints(Path(place)) if place else None
    training = train(model, Toy(), asked, checkpoints, precision=Precision(precision, ""))
    steps = list(islice(training, until))
    training.close()
    for progress in steps:
        mean = progress.loss * (1 - SMOOTH**progress.step)
        losses.append((mean - SMOOTH * before) / (1 - SMOOTH))  # but the first after a resume
        before = mean
    weights = {name: x.tolist() for name, x in model.state_dict().items()}
    validations = [x.validation_loss for x in steps if x.validation_loss is not None]
    return {"losses": losses, "validations": validations, "weights": weights, "note": steps[0].note}


def check_divided() -> None:
    """Divide fewer items than there are processes, none, and within the work on an item."""

    def work(count: int) -> dict[str, NDArray[np.int64]]:
        inner = ranks().divide(range(count), lambda x: {"x": np.array(x)})
        return {"sum": np.array(sum(int(each["x"]) for each in inner))}

    with ranks().sharing():
        assert ranks().divide([], work) == []
        for counts in ([5], [5, 3, 0]):
            sums = [int(each["sum"]) for each in ranks().divide(counts, work)]
            assert sums == [count * (count - 1) // 2 for count in counts]


def main() -> None:
    """Train as often as the command line says."""
    out, *words = sys.argv[1:]
    check_divided()
    results = []
    for split, group in groupby(words, key=lambda word: word == "--"):
        if not split:
            results.append(trained(dict(word.split("=", 1) for word in group)))
    if ranks().first:
        Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
