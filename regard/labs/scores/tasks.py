"""The three tasks of the scores lab, and how one arm is trained on one of them: all seeds at once.

Every arm of a task has the same network around its score and normaliser, the same first numbers
there, the same examples in the same order (by seed), as many steps, and the same choice of
learning rates, made on validation examples; the test examples are one fixed set.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import NORMALIZERS, TopK
from regard.data.puzzles import PAD, Examples, recall, sorting
from regard.data.sources import load_corpus
from regard.errors import look_up
from regard.memory import keep_freed_memory
from regard.models.stacked import Reads, StackedEncoder
from regard.training.schedules import factor
from regard.training.stacked import StackedAdam

HELD = {"validation": 1_000_001, "test": 1_000_003}  # seeds of examples that nobody trains on
CURVE, GLANCE = 6, 50  # looks on the way, each at so many validation examples
AT_ONCE = 100  # examples a network answers in one pass


@dataclass(frozen=True)
class Task:
    """A task: its network and budget, its training examples by seed, its held-out ones by name.

    An example is right when all its answers are. ``sines``, ``width``, ``steps`` and ``batch`` were
    chosen on other examples than the test's, so that scaled-dot × softmax learns recall and all
    arms end in a minute on two cores.
    """

    name: str
    asks: str
    symbols: int
    answers: int
    length: int
    reads: Reads
    sines: float
    width: int
    steps: int
    batch: int
    draw: Callable[[int, int], Examples]
    held: Callable[[int, str], Examples]


@dataclass(frozen=True)
class Budget:
    """The budget of every arm: ``effort`` times the steps of its task, each seed at each rate.

    ``held``: validation examples, and test examples; ``keep``: keys that top-k keeps, fewer than
    its usual 16, as these tasks have hardly more.
    """

    seeds: int
    rates: tuple[float, ...]
    effort: float = 1.0
    held: int = 300
    keep: int = 4


@dataclass(frozen=True)
class Arm:
    """A score and a normaliser on a task."""

    task: str
    score: str
    normalizer: str

    @property
    def short(self) -> str:
        """Its name among the arms of one task."""
        return f"{self.score} × {self.normalizer}"

    @property
    def name(self) -> str:
        """Its name among all."""
        return f"{self.task}: {self.short}"


@dataclass(frozen=True)
class Work:
    """The job of a worker."""

    arm: Arm
    budget: Budget


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of an arm.

    ``right``: seeds × test examples, at the ``rate`` that was best on validation examples;
    ``parts``: the share of single answers that are right, by seed; ``validation``: by rate, the
    mean over seeds; ``curve``: (steps, validation accuracy). ``seconds`` and ``megabytes`` are for
    one network, its share of the stack: time of training steps, and what a step keeps for its
    backward pass beside parameters, gradients and Adam's two means.
    """

    arm: Arm
    right: NDArray[np.bool_]
    parts: tuple[float, ...]
    rate: float
    validation: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    seconds: float
    megabytes: float
    parameters: int


def train(work: Work, report: Callable[[float, str], None]) -> Trained:
    """Train all seeds × rates of an arm as one stack, choose the rate, and answer the test."""
    torch.set_num_threads(1)
    keep_freed_memory()
    arm, budget, task = work.arm, work.budget, task_of(work.arm.task)
    steps = max(1, round(budget.effort * task.steps))
    network, rates = networks_of(task, work)
    adam = StackedAdam(network, rates)
    drawn = [task.draw(steps * task.batch, seed) for seed in range(budget.seeds)]
    examples = stacked([alike(one, task.batch) for one in drawn])
    copies = torch.arange(budget.seeds).repeat(len(budget.rates))
    held, looks = (
        task.held(budget.held, "validation"),
        {round(steps * i / CURVE) for i in range(CURVE)},
    )
    curve, seconds, kept = [], 0.0, Kept()
    for step in range(steps):
        begun = time.perf_counter()
        batch = rows_for(examples, slice(step * task.batch, (step + 1) * task.batch), copies)
        with kept if step == 0 else nullcontext():
            loss = loss_of(network, batch)
        loss.backward()
        adam.step(factor("cosine", (step + 0.5) / steps, 0.1))
        seconds += time.perf_counter() - begun
        if step + 1 in looks:
            right = answers(network, held[:GLANCE]).all(-1)
            curve.append((step + 1, right.float().mean(-1)))
            report((step + 1) / steps, arm.short)
    accuracy = answers(network, held).all(-1).float().mean(-1)
    curve.append((steps, accuracy))
    by_rate = accuracy.view(len(budget.rates), budget.seeds).mean(-1)
    best = int(by_rate.argmax())
    mine = slice(best * budget.seeds, (best + 1) * budget.seeds)
    right = answers(network, task.held(budget.held, "test"))[mine]
    return Trained(
        arm,
        right.all(-1).numpy(),
        tuple(right.float().mean((1, 2)).tolist()),
        budget.rates[best],
        tuple(by_rate.tolist()),
        tuple((step, float(share[mine].mean())) for step, share in curve),
        seconds / len(rates),
        (kept.bytes + 4 * adam.values.nbytes) / len(rates) / 1e6,
        network.numbers,
    )


def networks_of(task: Task, work: Work) -> tuple[StackedEncoder, list[float]]:
    """Return each seed's network once for each rate, and the rate of each."""
    budget = work.budget
    network = StackedEncoder(
        list(range(budget.seeds)) * len(budget.rates),
        symbols=task.symbols,
        answers=task.answers,
        length=task.length,
        width=task.width,
        score=work.arm.score,
        normalize=partial(normalizer, work.arm.normalizer, budget.keep),
        reads=task.reads,
        sines=task.sines,
    )
    return network, [rate for rate in budget.rates for _ in range(budget.seeds)]


def normalizer(name: str, keep: int, heads: int) -> Normalizer:
    """Return a normaliser by name; top-k keeps fewer keys than its usual 16, which are all."""
    kind = look_up(NORMALIZERS, name, "normaliser")
    return TopK(heads, k=keep) if kind is TopK else kind(heads)


def rows_for(examples: Examples, rows: slice, seeds: Tensor) -> Examples:
    """Return these rows of the data of each network's seed."""
    lengths = None if examples.lengths is None else examples.lengths[:, rows][seeds]
    tokens, targets = examples.tokens[:, rows][seeds], examples.targets[:, rows][seeds]
    return trimmed(Examples(tokens, targets, lengths))


def loss_of(network: StackedEncoder, batch: Examples) -> Tensor:
    """Return the sum over networks of each one's mean cross-entropy, so none dilutes another."""
    logits = network(batch.tokens, batch.lengths)
    mean = F.cross_entropy(logits.flatten(0, 2), batch.targets.flatten())
    return mean * network.networks


@torch.no_grad()
def answers(network: StackedEncoder, examples: Examples) -> Bool[Tensor, "networks n asked"]:
    """Return which answers are right; all networks are asked the same."""
    correct = []
    for first in range(0, len(examples), AT_ONCE):
        some = examples[first : first + AT_ONCE]
        some = rows_for(
            stacked([some]), slice(None), torch.zeros(network.networks, dtype=torch.long)
        )
        correct.append(network(some.tokens, some.lengths).argmax(-1) == some.targets)
    return torch.cat(correct, 1)


def stacked(parts: Sequence[Examples]) -> Examples:
    """Return examples of several seeds as (seeds, examples, …)."""
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return Examples(
        torch.stack([part.tokens for part in parts]),
        torch.stack([part.targets for part in parts]),
        torch.stack(lengths) if lengths else None,
    )


def alike(examples: Examples, batch: int) -> Examples:
    """Return texts of about one length in each batch, so that few columns are padding.

    Eight batches at a time are sorted by length, then done in an order that is the same for all
    seeds, whose networks are padded together.
    """
    if examples.lengths is None:
        return examples
    order, draw = [], torch.Generator().manual_seed(0)
    for rows in torch.arange(len(examples)).split(8 * batch):
        batches = rows[examples.lengths[rows].argsort(stable=True)].split(batch)
        order += [batches[i] for i in torch.randperm(len(batches), generator=draw)]
    return examples[torch.cat(order)]


def trimmed(batch: Examples) -> Examples:
    """Return the tokens without columns that are padding in all rows."""
    if batch.lengths is None:
        return batch
    return Examples(batch.tokens[..., : int(batch.lengths.max())], batch.targets, batch.lengths)


class Kept:
    """Counts the bytes that operations inside the block keep for their backward pass."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def __enter__(self) -> "Kept":
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._count, lambda x: x)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.hooks.__exit__(*error)

    @property
    def bytes(self) -> int:
        """So far; memory that several operations keep counts once, parameters do not."""
        return sum(self.places.values())

    def _count(self, x: Tensor) -> Tensor:
        if not isinstance(x, nn.Parameter):
            storage = x.untyped_storage()
            self.places[storage.data_ptr()] = storage.nbytes()
        return x


def held_out(make: Callable[..., Examples], count: int, part: str) -> Examples:
    """Return fresh examples of a stream of their own."""
    return make(count, HELD[part])


@cache
def reviews() -> tuple[Mapping[str, Examples], int]:
    """Return the built-in reviews as word ids: train, validation, test, and the vocabulary size.

    The last 500 texts of the train part are for validation.
    """
    corpus = load_corpus("reviews")
    words = [re.findall(r"[\w']+|[^\w\s]", e.text.lower()) for e in (*corpus.train, *corpus.test)]
    known = {word: i for i, word in enumerate(sorted({w for text in words for w in text}), 1)}
    lengths = torch.tensor([len(text) for text in words])
    tokens = torch.full((len(words), int(lengths.max())), PAD)
    for row, text in enumerate(words):
        tokens[row, : len(text)] = torch.tensor([known[word] for word in text])
    targets = torch.tensor([[corpus.labels.index(e.label)] for e in (*corpus.train, *corpus.test)])
    whole, train = Examples(tokens, targets, lengths), len(corpus.train)
    parts = {
        "train": whole[: train - 500],
        "validation": whole[train - 500 : train],
        "test": whole[train:],
    }
    return parts, len(known) + 1


def drawn_reviews(count: int, seed: int) -> Examples:
    """Yield batches of passes through the train part, each in a new order."""
    train = reviews()[0]["train"]
    draw = torch.Generator().manual_seed(seed)
    passes = -(-count // len(train))
    order = torch.cat([torch.randperm(len(train), generator=draw) for _ in range(passes)])
    return train[order[:count]]


def held_reviews(count: int, part: str) -> Examples:
    """Return the last so many of a part, or all there are."""
    return reviews()[0][part][-count:]


@cache
def task_of(name: str) -> Task:
    """Return a task by name."""
    return TASKS[name]()


def _recall() -> Task:
    return Task(
        "recall", "eight key-value pairs, then one of the keys: which value was beside it?",
        symbols=33, answers=16, length=17, reads="last", sines=0.5, width=32, steps=220, batch=32,
        draw=recall, held=partial(held_out, recall),
    )  # fmt: skip


def _sorting() -> Task:
    draw = partial(sorting, symbols=8)
    return Task(
        "sorting", "eight symbols, each one of eight and some of them twice: write them in order",
        symbols=9, answers=8, length=8, reads="each", sines=1.2, width=24, steps=180, batch=16,
        draw=draw, held=partial(held_out, draw),
    )  # fmt: skip


def _reviews() -> Task:
    parts, symbols = reviews()
    return Task(
        "reviews", "a film review in which word order and negation decide: praise or blame?",
        symbols=symbols, answers=2, length=parts["train"].tokens.shape[1], reads="mean",
        sines=0.7, width=16, steps=220, batch=16, draw=drawn_reviews, held=held_reviews,
    )  # fmt: skip


TASKS: dict[str, Callable[[], Task]] = {
    "recall": _recall,
    "sorting": _sorting,
    "reviews": _reviews,
}
