"""How texts are looked for once a model can write: greedily, by beam, by drawing, or given."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.analysis.layer_attention import LayerAttention
from regard.data.batches import pad
from regard.decoding import (
    Limits,
    Sliding,
    Writer,
    Written,
    beam,
    forced,
    greedy,
    sample,
    side_by_side,
)
from regard.errors import RegardError
from regard.layers.device import device_of, evaluation_mode
from regard.models.text_baselines import TextBaseline
from regard.tasks.task import Task
from regard.tasks.writing.evaluation import Text
from regard.tasks.writing.streaming import LONGEST, WriteRequest, reread

B = TypeVar("B")
ROWS = 64  # texts that are written side by side

Ids = NDArray[np.integer]


MOST = 100_000  # tokens of a text that is written


@dataclass(frozen=True)
class Search:
    """``beam`` texts are gone on with (1: greedy), with a length ``penalty``; ``best`` are given.

    With a ``temperature`` above 0 each word is drawn instead, of the ``top_k`` likeliest (0: all)
    that make up a share of ``top_p``; ``best`` are then so many draws, the likeliest first.
    ``longest``: the most tokens of a text (0: the task's own limit), `MOST` at most. More than the
    task's limit are written by a model alone that goes on with a text and by no beam: past its
    context by a window (`regard.decoding.Sliding`). ``behind``: how many texts were written before
    these, so that parts of a long file are not drawn alike.

    Errors: fewer than one text or token; a penalty or temperature that is no finite number of 0 or
    more, a share of nothing; a setting of drawing without a temperature.
    """

    beam: int = 1
    penalty: float = 0.6
    best: int = 1
    longest: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    behind: int = 0

    def __post_init__(self) -> None:
        least = {"beam": 1, "best": 1, "longest": 0, "temperature": 0, "penalty": 0, "top_k": 0}
        for name, low in {**least, "seed": 0, "behind": 0}.items():
            if not low <= (given := getattr(self, name)) < math.inf:
                raise RegardError(f"{name} is a number of {low} or more, not {given:g}")
            if name == "longest" and given > MOST:
                raise RegardError(f"longest is {MOST:,} tokens at most, not {given:,}")
            if name not in ("temperature", "penalty") and not isinstance(given, int):
                raise RegardError(f"{name} is a whole number, not {given:g}")
        if not 0 < self.top_p <= 1:
            raise RegardError(f"top_p is a share above 0 and at most 1, not {self.top_p:g}")
        if not self.temperature and (self.top_k or self.top_p != 1 or self.seed):
            raise RegardError("top_k, top_p and seed go with a temperature: temperature=1 draws")

    def slides(self, context: int) -> bool:
        """Whether it may go past a context of so many tokens: not by a beam, nor past none."""
        return bool(context > 1 and self.longest) and (
            self.temperature > 0 or self.beam == self.best == 1
        )


class Writes(Task[B], Generic[B]):
    """A task whose model writes texts."""

    #: Whether what is written stands behind what is read, in one text; else it is another text.
    behind: ClassVar[bool] = False

    @property
    def context(self) -> int:
        """Tokens that are read at once of a text that can be gone on with without end; else 0."""
        return 0

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """What a network is built for; its ``vocabulary`` is what it writes."""

    @property
    @abstractmethod
    def end(self) -> int:
        """The symbol at which what is written ends."""

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """How much is written."""

    @property
    def search(self) -> Search:
        """How texts are looked for if nothing else is said: greedily."""
        return Search()

    @abstractmethod
    def prompts(self, texts: Sequence[str]) -> Sequence[Ids]:
        """What is read of each text before anything is written."""

    @abstractmethod
    def names(self, ids: Sequence[int]) -> list[str]:
        """The readable token of each id."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """What was written, as a text."""

    def write(
        self, model: nn.Module, texts: Sequence[str], search: Search | None = None
    ) -> list[list[Written]]:
        """What the model writes for each text, best first; nothing for one without tokens."""
        found = self.prompts(texts)
        plan, limits = search or self.search, self.limits
        return write(model, found, plan, end=self.end, limits=limits, context=self.context)

    def best(self, model: Any, texts: Sequence[str], search: int | Search) -> list[list[Text]]:
        """The best texts for each, best first: so many by the task's own search, or by another."""
        plan = replace(self.search, best=search) if isinstance(search, int) else search
        if not isinstance(model, nn.Module):
            return self._by_baseline(model, texts, plan)
        return [
            [Text(self.decode(x.tokens), x.log_probability, x.ended) for x in several]
            for several in self.write(model, texts, plan)
        ]

    def _by_baseline(
        self, model: TextBaseline, texts: Sequence[str], plan: Search
    ) -> list[list[Text]]:
        """What a baseline writes, which it is sure of: ln p = 0. Errors: it is to draw."""
        if plan.temperature:
            raise RegardError(f"{model.name} draws no words: leave --temperature and the like out")
        found = model.write([text.strip() for text in texts], plan.best)
        return [[Text(text, 0.0, True) for text in several] for several in found]

    def predict(self, model: Any, inputs: Sequence[str]) -> list[Text]:
        """What the model writes for each text; nothing for one without tokens.

        A language model begins a text for one without tokens.
        """
        return [several[0] for several in self.best(model, inputs, 1)]

    def request(self, text: str, most: int) -> WriteRequest:
        """What the model is given to write from, and at most so many tokens to write."""
        (source,) = self.prompts([text])
        context = self.context if self.context > 1 else 0
        lengths = replace(self.limits, longest=min(self.limits.longest, most))
        if context:
            lengths = Limits(ratio=0.0, more=most, longest=most)
        return WriteRequest(
            source,
            self.end,
            self.sizes["vocabulary"],
            lengths,
            self.names,
            self.decode,
            self.behind,
            context=context,
        )

    def at_work(self, model: nn.Module, text: str) -> tuple[list[LayerAttention], int | None]:
        """What every layer looks at while the model writes, by the search that it is judged by."""
        asked = self.request(text, LONGEST)
        if not len(asked.source):
            return self.attention(model, text), None
        ((best,),) = self.write(model, [text])
        written = [*best.tokens, *([asked.end] if best.ended else [])]
        found = reread(model, asked, written)
        return found.layers, found.read


@torch.no_grad()
def write(
    model: nn.Module,
    sources: Sequence[Ids],
    search: Search,
    *,
    end: int,
    limits: Limits,
    context: int = 0,
) -> list[list[Written]]:
    """The ``best`` texts of each source, best first: batches of like length, longest first.

    Answers come in the order of the sources; of one without tokens the model is not asked. A source
    has the same texts alone or among others; what is drawn depends on its place. With a ``context``
    of so many tokens ``search.longest`` may go past it: see `Search`.
    """
    slides = search.slides(context)
    if search.longest:
        most = search.longest if slides else min(search.longest, limits.longest)
        limits = replace(limits, longest=most)
        limits = replace(limits, ratio=0.0, more=most) if slides else limits
    sizes = np.array([len(ids) for ids in sources])
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    found = [[Written((), 0.0, 0.0, True)] for _ in sources]
    writer, device = cast(Writer, model), device_of(model)
    if slides:
        writer = cast(Writer, Sliding(writer, context))

    def batch(start: int) -> list[list[Written]]:
        tokens, lengths = pad([sources[i] for i in order[start : start + ROWS]])
        asked = (tokens.to(device), lengths.to(device))
        if search.temperature:
            numbers = order[start : start + ROWS] + search.behind
            return _drawn(writer, asked, search, end, limits, numbers.tolist())
        if search.beam == search.best == 1:
            return [[x] for x in greedy(writer, *asked, end=end, limits=limits)]
        return beam(
            writer,
            *asked,
            end=end,
            size=max(search.beam, search.best),
            penalty=search.penalty,
            best=search.best,
            limits=limits,
        )

    starts = range(0, len(order), ROWS)
    with evaluation_mode(model):
        written = map(batch, starts) if device.type != "cpu" else side_by_side(batch, starts)
        for place, several in zip(order, chain.from_iterable(written), strict=True):
            found[place] = several
    return found


def _drawn(
    writer: Writer,
    asked: tuple[torch.Tensor, torch.Tensor],
    search: Search,
    end: int,
    limits: Limits,
    numbers: Sequence[int],
) -> list[list[Written]]:
    """So many draws of each text, the likeliest first; each draw has a seed of its own."""
    seeds = np.random.SeedSequence(search.seed).generate_state(search.best, np.uint32)
    draws = [
        sample(
            writer,
            *asked,
            end=end,
            limits=limits,
            temperature=search.temperature,
            top_k=search.top_k,
            top_p=search.top_p,
            seed=int(seed),
            texts=numbers,
        )
        for seed in seeds
    ]
    return [
        sorted(several, key=lambda text: -text.log_probability)
        for several in zip(*draws, strict=True)
    ]


@torch.no_grad()
def score(
    model: nn.Module, sources: Sequence[Ids], targets: Sequence[Ids], *, end: int
) -> list[Written]:
    """How likely the model thinks each target, its end included, in the order of the pairs."""
    order = np.argsort([-len(ids) for ids in targets], kind="stable")
    found: dict[int, Written] = {}
    writer, device = cast(Writer, model), device_of(model)
    with evaluation_mode(model):
        for start in range(0, len(order), ROWS):
            chosen = order[start : start + ROWS].tolist()
            tokens, lengths = pad([sources[i] for i in chosen])
            given = [[int(token) for token in targets[i]] for i in chosen]
            scored = forced(writer, tokens.to(device), lengths.to(device), given, end=end)
            found.update(zip(chosen, scored, strict=True))
    return [found[i] for i in range(len(order))]
