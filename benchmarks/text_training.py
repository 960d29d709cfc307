"""Training a text classifier: regard's `transformer` and `torch.nn.TransformerEncoder`.

The peer is trained as in tutorials: random batches of 32 reviews, padded to the longest,
fp32, Adam, a key-padding mask, dropout 0.1 everywhere the layer puts it. Both have the same
width, layers, heads, feed-forward width, vocabulary and texts. Speed counts real tokens (without
padding), in rounds that alternate between the two, each round the same number of tokens.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.multiples import must_be_possible
from regard.attention import sinusoidal
from regard.core.errors import RegardError
from regard.core.memory import keep_freed_memory
from regard.core.settings import Settings, build, split
from regard.lab.tasks.classification.task import Classification
from regard.lab.tasks.encoded import Encoded
from regard.lab.tasks.models import MODELS
from regard.lab.tasks.settings import ClassificationSettings
from regard.nn.layers.device import device_of
from regard.nn.layers.embedding import inside
from regard.nn.models.settings import TextClassifierSettings
from regard.training.batches import pad
from regard.training.loop import Progress, TrainingSettings, train
from regard.training.precision import choose_device

PEER_BATCH = 32
PEER_RATE = 1e-3  # Adam's default, the tutorials' choice
NEVER = 1 << 30
ENDLESS = 10_000  # epochs: a turn must not meet the end of the texts


class BenchSettings(Settings):
    """Settings: `rounds` turns of `round_tokens` real tokens each.

    `epoch=1` then trains both for a whole epoch from new weights, and evaluates them on the test.
    """

    rounds: int = 5
    round_tokens: int = 40_000
    epoch: bool = False


@dataclass(frozen=True)
class Contest:
    """One task, one set of sizes, two trainers."""

    task: Classification
    sizes: TextClassifierSettings
    training: TrainingSettings

    def ours(self, epochs: int = 1) -> tuple[nn.Module, Iterator[int]]:
        """Return regard's model and its training, an iterator of each step's real tokens."""
        torch.manual_seed(self.training.seed)
        training = self.training.model_copy(update={"epochs": epochs})
        model = MODELS["transformer"].build(
            self.sizes, vocabulary=len(self.task.tokenizer), labels=len(self.task.labels)
        )
        return model, tokens_of(train(model, self.task, training))

    def theirs(self, epochs: int = 1) -> tuple[nn.Module, Iterator[int]]:
        """Return the peer and its training in the same form."""
        torch.manual_seed(self.training.seed)
        model = Tutorial(len(self.task.tokenizer), len(self.task.labels), self.sizes)
        model.to(choose_device(self.training.device))
        return model, train_tutorial(model, self.task.train, self.training.seed, epochs)


class Tutorial(nn.Module):
    """The peer: embedding, sinusoidal positions, `nn.TransformerEncoder`, mean, linear."""

    def __init__(self, vocabulary: int, labels: int, sizes: TextClassifierSettings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, sizes.width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(
            sizes.width, sizes.heads, sizes.feedforward, dropout=0.1, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, sizes.layers, enable_nested_tensor=False)
        self.to_labels = nn.Linear(sizes.width, labels)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits (batch, labels)."""
        x = self.embedding(tokens)
        x = x + sinusoidal(torch.arange(tokens.shape[1], device=x.device), x.shape[-1], x.dtype)
        real = inside(lengths, tokens.shape[1])
        x = self.encoder(x, src_key_padding_mask=~real)
        mean = (x * real[..., None]).sum(1) / lengths.clamp(min=1)[:, None]
        logits: Tensor = self.to_labels(mean)
        return logits


def train_tutorial(model: nn.Module, data: Encoded, seed: int, epochs: int = 1) -> Iterator[int]:
    """Train as in tutorials; yield the real tokens of each step."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=PEER_RATE)
    device = device_of(model)
    draw = np.random.default_rng(seed)
    orders = (draw.permutation(len(data)) for _ in range(epochs))
    for chosen in (order[i : i + PEER_BATCH] for order in orders
                   for i in range(0, len(order), PEER_BATCH)):  # fmt: skip
        tokens, lengths = pad([data.ids[i] for i in chosen])
        wanted = torch.from_numpy(data.labels[chosen]).to(device)
        loss = F.cross_entropy(model(tokens.to(device), lengths.to(device)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield int(lengths.sum())


def tokens_of(steps: Iterable[Progress]) -> Iterator[int]:
    """Yield the real tokens of each step of regard's training."""
    before = 0
    for progress in steps:
        yield progress.tokens - before
        before = progress.tokens


def turn(steps: Iterator[int], enough: int, device: str = "cpu") -> float:
    """Return the seconds per real token of the next steps, for a number of tokens.

    Raise a RegardError if there are fewer: a turn without work measures nothing.
    """
    begun, tokens = time.perf_counter(), 0
    for now in steps:
        tokens += now
        if tokens >= enough:
            break
    else:
        raise RegardError(f"a turn had {tokens:,} tokens, not {enough:,}: the training ended")
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / tokens


def must_have_trained(model: nn.Module, seconds: float, device: str = "cpu") -> None:
    """Raise an error if 1,000 tokens took less than the products of the model's linear layers."""
    layers = [x for x in model.modules() if isinstance(x, nn.Linear)]
    must_be_possible(6e3 * sum(x.weight.numel() for x in layers), seconds, device)


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return seconds per 1,000 real tokens of both, and errors after one epoch with ``epoch``.

    `settings`: key=value of the task (data, length, ...), of the sizes (width, layers, heads,
    feedforward), of the training, and of `BenchSettings`.
    """
    entry = MODELS["transformer"]
    data, network, training, bench = split(
        settings, ClassificationSettings, entry.settings, TrainingSettings, BenchSettings
    )
    how = build(BenchSettings, {**({"rounds": 2} if quick else {}), **bench})
    sizes = entry.configure(network)
    assert isinstance(sizes, TextClassifierSettings)
    contest = Contest(
        Classification(build(ClassificationSettings, data)),
        sizes,
        build(TrainingSettings, {"epochs": 1, "evaluate_every": NEVER, **training}),
    )
    keep_freed_memory()
    return contested(contest, how)


def contested(contest: Contest, how: BenchSettings) -> Iterator[dict[str, Any]]:
    """Yield each case as soon as it is measured: the whole epoch takes many minutes."""
    yield speed(contest, how)
    if how.epoch:
        yield after_an_epoch(contest)


def speed(contest: Contest, how: BenchSettings) -> dict[str, Any]:
    """Return a case: median seconds per 1,000 real tokens of turns A B A B."""
    (model, ours), (_, theirs) = contest.ours(ENDLESS), contest.theirs(ENDLESS)
    next(ours), next(theirs)  # the first step allocates
    enough, device = how.round_tokens, contest.training.device
    turns = [(turn(ours, enough, device), turn(theirs, enough, device)) for _ in range(how.rounds)]
    our_s, their_s = (1000 * median(side) for side in zip(*turns, strict=True))
    must_have_trained(model, min(our_s, their_s), device)
    sizes, task = contest.sizes, contest.task
    return {
        "name": f"training `transformer` on {task.corpus.name}, {sizes.layers} layers, width "
        f"{sizes.width}, {sizes.heads} heads, texts up to {task.settings.length} tokens; "
        "per 1,000 real tokens",
        "against": "nn.TransformerEncoder, random batches of 32 padded to the longest",
        "ours_s": our_s,
        "theirs_s": their_s,
        "time_ratio": median(b / a for a, b in turns),
        "ours_mb": None,
        "theirs_mb": None,
        "ours_tokens_per_s": 1000 / our_s,
        "theirs_tokens_per_s": 1000 / their_s,
    }


def after_an_epoch(contest: Contest) -> dict[str, Any]:
    """Return a case: the time of a whole epoch each, and the test accuracy after it."""
    task, results = contest.task, []
    for model, steps in (contest.ours(), contest.theirs()):
        begun = time.perf_counter()
        for _ in steps:
            pass
        seconds = time.perf_counter() - begun
        results.append((seconds, float(task.answer(model).correct.mean())))
    (our_s, our_accuracy), (their_s, their_accuracy) = results
    says = f"test accuracy {our_accuracy:.1%} and the peer's {their_accuracy:.1%}"
    return {
        "name": f"one epoch on {task.corpus.name}",
        "against": "nn.TransformerEncoder",
        "ours_s": our_s,
        "theirs_s": their_s,
        "time_ratio": their_s / our_s,
        "ours_mb": None,
        "theirs_mb": None,
        "says": says,
        "ours_accuracy": our_accuracy,
        "theirs_accuracy": their_accuracy,
    }
