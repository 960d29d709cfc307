"""Tasks that test each kind of position, the small network that learns them, and a run.

Every network is trained from end to end on one question: a probe on frozen random weights would
measure the luck of those weights. Words are drawn at random for every batch, so that nothing can be
memorised, and a word says nothing about its position.
"""

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import (
    Mask,
    MultiHeadAttention,
    causal,
    input_positions,
    make_score,
    parsed,
    use,
)
from regard.attention.positions.trees import nodes, way

#: Probes by name, and the classes of an answer in a text of n words (0: one for each of n).
NEAR = 4  # the probe "distance" asks about so many words on each side
DEPTHS = 8
CLASSES = {"moved": 0, "begin": 0, "causal": 0, "begin, causal": 0, "distance": 2 * NEAR + 1,
           "depth": DEPTHS, "way": 2 * NEAR + 1}  # fmt: skip
OF_PAIRS = ("distance", "way")
OF_TREES = ("depth", "way")
HELD_OUT = 480  # texts, the same for all networks of a task
AT_ONCE = 16  # long texts whose weights are in memory at once


@dataclass(frozen=True)
class Experiment:
    """One network: its task ("copy" or a row of `CLASSES`), its positions, its seed, its sizes.

    ``length``: of the training texts; ``longest``: of the longest test text ("copy" only);
    ``back``: the distance to the word that is copied.
    """

    task: str
    position: str
    seed: int
    steps: int
    length: int
    longest: int
    back: int
    words: int
    width: int
    heads: int


@dataclass(frozen=True)
class Found:
    """The result of an experiment on held-out texts.

    ``right``: (texts,) of a probe, (texts, places) of "copy". ``elsewhere``: ``right`` for the
    same texts, moved on by their length ("distance" only). ``said``: counts of (true class,
    predicted class). For "copy", ``mass`` is the attention of the best head to the correct word at
    each place, and ``looks`` the attention of the last word over the distance, mean over heads.
    """

    right: NDArray[np.bool_]
    elsewhere: NDArray[np.bool_]
    said: NDArray[np.int64]
    mass: NDArray[np.float64]
    looks: NDArray[np.float64]
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Texts:
    """A batch: words, positions, the mask, trees, and the questions with their answers.

    ``labels`` and ``asked`` are (batch, n), or (batch, n, n) for questions about pairs.
    """

    tokens: Int[Tensor, "batch n"]
    where: Int[Tensor, "*batch n"]
    mask: Mask | None
    parents: Int[Tensor, "batch places"] | None
    labels: Int[Tensor, "batch n *n"]
    asked: Bool[Tensor, "batch n *n"]

    @property
    def tree(self) -> AbstractContextManager[None]:
        """The trees of these texts, if they have any."""
        return nullcontext() if self.parents is None else parsed(self.parents)


class Reader(nn.Module):
    """x = E[word] + p; x ← x + Attention(LN x); an answer at each place: MLP(LN x).

    There is one layer, so that the result is what one layer can learn.
    """

    def __init__(self, of: Experiment, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(of.words + 1, of.width)  # the last one is the start token
        self.positions = input_positions(of.position, of.width, length=of.longest)
        self.norm = nn.LayerNorm(of.width)
        self.attention = MultiHeadAttention(of.width, of.heads, position=of.position)
        self.answer = nn.Sequential(
            nn.LayerNorm(of.width), nn.Linear(of.width, 2 * of.width), nn.ReLU(),
            nn.Linear(2 * of.width, classes),
        )  # fmt: skip

    def forward(self, texts: Texts) -> Float[Tensor, "asked classes"]:
        """Return the logits of the question."""
        x = self.embedding(texts.tokens)
        if self.positions is not None:
            x = self.positions(x, texts.where)
        x = x + self.attention(self.norm(x), mask=texts.mask, positions=texts.where)
        logits: Tensor = self.answer(x[texts.asked])
        return logits


class Comparer(nn.Module):
    """The scores of a pair of words, one per head, and an answer from these alone."""

    def __init__(self, of: Experiment, classes: int) -> None:
        super().__init__()
        self.heads, narrow = of.heads, of.width // of.heads
        self.embedding = nn.Embedding(of.words + 1, of.width)
        self.positions = input_positions(of.position, of.width, length=of.longest)
        self.query, self.key = nn.Linear(of.width, of.width), nn.Linear(of.width, of.width)
        self.score = make_score("scaled-dot", of.position, narrow, narrow, heads=of.heads)
        self.answer = nn.Sequential(
            nn.Linear(of.heads, 64), nn.ReLU(), nn.Linear(64, classes)
        )  # no norm: it would remove the only number that ALiBi provides

    def forward(self, texts: Texts) -> Float[Tensor, "asked classes"]:
        """Return the logits of the requested pairs."""
        x = self.embedding(texts.tokens)
        if self.positions is not None:
            x = self.positions(x, texts.where)
        queries, keys = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), self.key(x))
        )
        where = texts.where
        scores = self.score.compare(
            self.score.prepare_queries(queries, where),
            self.score.prepare_keys(keys, where),
            (where, where),
        )
        logits: Tensor = self.answer(scores.movedim(1, -1)[texts.asked])
        return logits


def draw(of: Experiment, count: int, chance: torch.Generator, *, held_out: bool = False) -> Texts:
    """Draw the texts of a probe; the held-out texts of "moved" stand at every possible place."""
    n, task, at = of.length, of.task, torch.arange(of.length)
    everywhere = task == "moved" and held_out
    each = math.ceil(count / n) if everywhere else count
    tokens = torch.randint(of.words, (each, n), generator=chance)
    needs = of.position.startswith("tree") or task in OF_TREES
    trees = random_trees(each, n, chance) if needs else None
    if task == "moved":
        begin = torch.randint(n, (count,), generator=chance)
        if everywhere:
            begin, tokens = at.repeat(each), tokens.repeat_interleave(n, 0)
            trees = None if trees is None else trees.repeat_interleave(n, 0)
        where, middle = at + begin[:, None], (at == n // 2).expand(len(tokens), n)
        labels = begin[:, None].expand(len(tokens), n)
        return Texts(tokens, where, None, moved(trees, where, of.longest), labels, middle)
    if task.startswith("begin"):
        tokens[:, 0] = of.words
    queried, labels = torch.ones(count, n, dtype=torch.bool), at.expand(count, n)
    if task == "depth":
        assert trees is not None
        labels = nodes(trees)[..., 0].clamp(max=DEPTHS - 1)
    elif task in OF_PAIRS:
        apart = (at - at[:, None]).expand(count, n, n)
        inner = ((at >= NEAR) & (at < n - NEAR))[:, None]
        if task == "way":
            assert trees is not None
            ids, inner = nodes(trees), torch.ones(n, 1, dtype=torch.bool)
            apart = way(ids, ids, apart)
        queried, labels = (apart.abs() <= NEAR) & inner, apart + NEAR
    mask = causal() if task.endswith("causal") else None
    return Texts(tokens, at, mask, trees, labels, queried)


def further(texts: Texts, of: Experiment) -> Texts:
    """Return the texts with their positions increased by their length."""
    where = texts.where + of.length
    parents = moved(texts.parents, where.expand_as(texts.tokens), of.longest)
    return Texts(texts.tokens, where, texts.mask, parents, texts.labels, texts.asked)


def random_trees(count: int, words: int, chance: torch.Generator) -> Int[Tensor, "{count} {words}"]:
    """Draw parents: in a random order, each word depends on a random earlier one."""
    order = torch.rand(count, words, generator=chance).argsort(1)
    share = torch.rand(count, words, generator=chance)
    parents = torch.full((count, words), -1)
    for i in range(1, words):
        above = order.gather(1, (share[:, i : i + 1] * i).long())
        parents.scatter_(1, order[:, i : i + 1], above)
    return parents


def moved(
    parents: Tensor | None, where: Int[Tensor, "batch n"], places: int
) -> Int[Tensor, "batch {places}"] | None:
    """Return the trees moved with their words."""
    if parents is None:
        return None
    full = torch.full((len(parents), places), -1)
    return full.scatter_(1, where, torch.where(parents < 0, -1, parents + where[:, :1]))


def to_copy(of: Experiment, count: int, length: int, chance: torch.Generator) -> Texts:
    """Draw texts in which the answer for each word is the word ``back`` places before it."""
    tokens, at = torch.randint(of.words, (count, length), generator=chance), torch.arange(length)
    queried = (at >= of.back).expand(count, length)
    return Texts(tokens, at, causal(), None, tokens.roll(of.back, 1), queried)


def experiment(of: Experiment) -> Found:
    """Train a network and test it on held-out texts; equal seeds give equal bits."""
    began = time.perf_counter()
    with torch.random.fork_rng(devices=[]), use("exact"):
        torch.manual_seed(of.seed)
        classes = of.words if of.task == "copy" else CLASSES[of.task] or of.length
        kind = Comparer if of.task in OF_PAIRS else Reader
        network: Reader | Comparer = kind(of, classes)
        train(network, of)
        chance = torch.Generator().manual_seed(20_190_900)
        with torch.inference_mode():
            answered = (ask_copies if of.task == "copy" else ask)(network, of, chance)
    parameters = sum(p.numel() for p in network.parameters())
    return Found(*answered, parameters, time.perf_counter() - began)


def train(network: nn.Module, of: Experiment, rate: float = 0.01, batch: int = 12) -> None:
    """Train by Adam with 20 steps of warm-up and linear decay, on new texts at every step.

    Since texts are never repeated, many steps on few texts learn more in the same time.
    """
    adam = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
    chance = torch.Generator().manual_seed(of.seed + 1_000_003)
    for step in range(of.steps):
        for group in adam.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20) * (1 - step / of.steps)
        copies = of.task == "copy"
        texts = to_copy(of, batch, of.length, chance) if copies else draw(of, batch, chance)
        with texts.tree:
            logits = network(texts)
        adam.zero_grad()
        F.cross_entropy(logits, texts.labels[texts.asked]).backward()
        adam.step()


Answers = tuple[
    NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64],
    NDArray[np.float64],
]  # as `Found` has them  # fmt: skip


def ask(network: nn.Module, of: Experiment, chance: torch.Generator) -> Answers:
    """Evaluate held-out texts of a probe; one answer counts per text, for independence."""
    texts = draw(of, HELD_OUT, chance, held_out=True)
    pick = torch.rand(texts.asked.shape, generator=chance) * texts.asked
    one = pick.flatten(1).argmax(1, keepdim=True)
    confusion = np.zeros((0, 0), np.int64)
    rights = []
    for asked in [texts, further(texts, of)] if of.task == "distance" else [texts]:
        with asked.tree:
            answered = network(asked).argmax(-1)
        truth = asked.labels[asked.asked]
        right = torch.zeros(asked.asked.shape, dtype=torch.bool)
        right[asked.asked] = answered == truth
        rights.append(right.flatten(1).gather(1, one)[:, 0].numpy())
        if not confusion.size:
            classes = CLASSES[of.task] or of.length
            pairs = torch.bincount(truth * classes + answered, minlength=classes**2)
            confusion = pairs.reshape(classes, classes).numpy()
    return rights[0], rights[-1], confusion, np.zeros(0), np.zeros(0)


def ask_copies(network: nn.Module, of: Experiment, chance: torch.Generator) -> Answers:
    """Evaluate held-out texts of each length at every position."""
    assert isinstance(network, Reader)
    weights: list[Tensor] = []
    hook = network.attention.attention.register_forward_hook(
        lambda module, given, attended: weights.append(attended.weights.double().mean(0))
    )
    rights = []
    for _ in range(math.ceil(HELD_OUT / 3 / AT_ONCE)):
        texts = to_copy(of, AT_ONCE, of.longest, chance)
        right = network(texts).argmax(-1) == texts.labels[texts.asked]
        rights.append(right.view(AT_ONCE, -1))
    hook.remove()
    attention, right = torch.stack(weights).mean(0), torch.cat(rights)
    mass, looks = attention.diagonal(-of.back, -2, -1).amax(0), attention[:, -1].mean(0).flip(-1)
    none = np.zeros((0, 0), np.int64)
    return right.numpy(), right.numpy(), none, mass.numpy(), looks.numpy()


def work(of: Experiment, report: object) -> Found:
    """Run an experiment, as a job of `regard.lab.studies.launch`."""
    return experiment(of)


def most_frequent(said: Sequence[NDArray[np.int64]]) -> float:
    """Return the share of the most frequent answer, which is the accuracy of always giving it."""
    truth = np.sum([counts.sum(1) for counts in said], 0)
    return float(truth.max() / truth.sum())
