"""The fourth reason: the accuracy of a small Transformer with each norm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.lab.data.synthetic import reviews
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.labs import Show
from regard.lab.labs.intervals import in_words, interval
from regard.lab.labs.lab import Findings
from regard.lab.labs.normalisation.norms import Labeller
from regard.lab.reports.findings import Cell

ARMS = ("layer norm", "batch norm", "no norm")
READ = ("running means", "the batch", "one by one")  # how BatchNorm gets statistics in the test
TEST = 600
RATE = 0.01  # of Adam


@dataclass(frozen=True)
class Reviews:
    """Built-in reviews as ids, 0 for padding, and labels."""

    ids: Int[Tensor, "texts words"]
    labels: Int[Tensor, " texts"]
    vocabulary: int


def data(train: int, seed: int) -> tuple[Reviews, Reviews]:
    """Return training and test reviews; all texts are different."""
    examples = reviews(train + TEST, seed)
    tokenizer = train_tokenizer("words", [e.text for e in examples[:train]], minimum=1)
    encoded = tokenizer.encode([example.text for example in examples])
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in encoded], batch_first=True)
    labels = torch.tensor([int(example.label == "positive") for example in examples])
    parts = slice(None, train), slice(train, None)
    first, second = (Reviews(ids[part], labels[part], len(tokenizer)) for part in parts)
    return first, second


def accuracy(model: nn.Module, texts: Reviews, read: str) -> float:
    """Return the accuracy, by running means, by statistics of batches of 32, or of single texts."""
    model.train(read != "running means")
    size = {"running means": 200, "the batch": 32, "one by one": 1}[read]
    ids = texts.ids[: 200 if read == "one by one" else None]
    with torch.no_grad():
        answers = torch.cat([model(part[:, : int((part > 0).sum(1).max())]).argmax(-1)
                             for part in ids.split(size)])  # fmt: skip
    return float((answers == texts.labels[: len(ids)]).double().mean())


def train(norm: str, batch: int, steps: int, width: int, layers: int, seed: int,
          texts: Reviews) -> nn.Module:  # fmt: skip
    """Train one network by Adam at a rate that falls to zero."""
    torch.manual_seed(seed)
    model = Labeller(texts.vocabulary, texts.ids.shape[1], width, layers, 2, norm).train()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(texts.ids), (batch,), generator=generator)
        ids = texts.ids[chosen]
        logits = model(ids[:, : int((ids > 0).sum(1).max())])
        loss = nn.functional.cross_entropy(logits, texts.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def ablation(batches: Sequence[int], steps: int, width: int, layers: int, seeds: Sequence[int],
             show: Show) -> Findings:  # fmt: skip
    """Reason 4: train with each norm at several batch sizes, on as many texts each."""
    training, test = data(4000, seeds[0])
    found: dict[tuple[str, int, str], list[float]] = {}
    runs = list(product(batches, ARMS, seeds))
    for i, (batch, norm, seed) in enumerate(runs):
        show(20 + 80 * i / len(runs), 100, f"{norm}, batches of {batch}")
        model = train(norm, batch, steps * max(batches) // batch, width, layers, seed, training)
        for read in READ if norm == "batch norm" else READ[:1]:
            found.setdefault((norm, batch, read), []).append(accuracy(model, test, read))
    return described(found, batches, len(seeds), steps * max(batches))


def described(
    found: Mapping[tuple[str, int, str], Sequence[float]],
    batches: Sequence[int],
    seeds: int,
    texts: int,
) -> Findings:
    """Return the table and the claims of the ablation."""
    rows: list[list[Cell]] = [
        [norm if norm != "batch norm" else f"batch norm, tested by {read}", str(batch),
         in_words(interval(values), times=100)]
        for (norm, batch, read), values in found.items()
    ]  # fmt: skip
    claims, leads = {}, {}
    for batch in batches:
        layer, normed = (
            np.array(found[norm, batch, READ[0]]) for norm in ("layer norm", "batch norm")
        )
        lead, low, _ = leads[batch] = [100 * value for value in interval(layer - normed)]
        claims[f"batches-{batch}"] = (lead, low > 0)
    small = batches[0]
    running, alone = (np.mean(found["batch norm", small, read]) for read in (READ[0], READ[2]))
    mismatch = 100 * float(running - alone)
    return Findings(
        {**claims, "mismatch": (mismatch, mismatch > 1)},
        {"leads": leads, "small": small, "texts": texts, "seeds": seeds, "test_texts": TEST},
        tables={"accuracy": (["norm", "batch", "accuracy"], rows)},
    )
