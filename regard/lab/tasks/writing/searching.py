"""Decoding of texts: greedy, beam search, sampling, and scoring of given texts."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable
from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
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
from regard.decoding.beam import MOST_PENALTY
from regard.lab.tasks import explaining
from regard.lab.tasks.task import Task
from regard.lab.tasks.text_baselines import TextBaseline
from regard.lab.tasks.writing.evaluation import Text
from regard.lab.tasks.writing.streaming import LONGEST, NextWord, WriteRequest, next_words, reread
from regard.nn.layers.device import device_of, evaluation_mode, to_device
from regard.training.batches import pad
from regard.training.interface import Interface
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

B = TypeVar("B")
ROWS = 64  # texts decoded in one batch

Ids = NDArray[np.integer]


MOST = 100_000  # maximum tokens of a written text


@dataclass(frozen=True)
class Search:
    """Settings of decoding; the default is greedy search.

    ``beam``: beam size, 1 for greedy search. ``penalty``: length penalty of beam search. ``best``:
    number of texts to return, best first. ``temperature``: if above 0, sample each token from the
    ``top_k`` most probable (0: all) and, among them, the most probable with total probability
    ``top_p``; ``best`` is then the number of samples. ``longest``: maximum tokens of a text (0: the
    task's limit), at most `MOST`. Only a decoder that continues a text, without beam search,
    exceeds the task's limit, by a sliding window (`regard.decoding.Sliding`). ``behind``: number of
    texts written earlier, so that parts of a long file get different random numbers.

    Raises: ``beam`` or ``best`` below 1; a negative or infinite number; ``longest`` above `MOST`;
    ``penalty`` above `MOST_PENALTY`; ``top_p`` outside (0, 1]; a sampling setting without a
    temperature.
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
            if not low <= (value := getattr(self, name)) < math.inf:
                raise RegardError(f"{name} must be at least {low} and finite, not {value:g}")
            if name == "longest" and value > MOST:
                raise RegardError(f"longest must be at most {MOST:,} tokens, not {value:,}")
            if name == "penalty" and value > MOST_PENALTY:
                raise RegardError(f"penalty must be at most {MOST_PENALTY:g}, not {value:g}")
            if name not in ("temperature", "penalty") and not isinstance(value, int):
                raise RegardError(f"{name} must be a whole number, not {value:g}")
        if not 0 < self.top_p <= 1:
            raise RegardError(f"top_p must be above 0 and at most 1, not {self.top_p:g}")
        if not self.temperature and (self.top_k or self.top_p != 1 or self.seed):
            raise RegardError("top_k, top_p and seed need sampling; set temperature above 0")

    def slides(self, context: int) -> bool:
        """Return whether texts may exceed a context: not with a beam, nor without a context."""
        return bool(context > 1 and self.longest) and (
            self.temperature > 0 or self.beam == self.best == 1
        )


class Writes(Task[B], Generic[B]):
    """A task whose models write texts."""

    writes: ClassVar[Literal["on", "another"]] = "another"
    answers_in_texts = True

    @property
    def interface(self) -> Interface:  # type: ignore[override]
        """Return how networks are called: they predict each token from those before it."""
        return Interface(self.writes, "token", "vocabulary", left_to_right=True)

    @property
    def context(self) -> int:
        """Return the context length of a model that can continue a text indefinitely, else 0."""
        return 0

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the sizes for which a network is built; ``vocabulary`` is that of its output."""

    @property
    @abstractmethod
    def end(self) -> int:
        """Return the id of the symbol that ends a written text."""

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """Return the limits of the length of written texts."""

    @property
    def search(self) -> Search:
        """Return the default search, which is greedy."""
        return Search()

    @property
    def temperature(self) -> float:
        return self.search.temperature

    def search_by(self, chosen: Mapping[str, Any]) -> Search:
        return replace(self.search, **chosen)

    @abstractmethod
    def prompts(self, texts: Sequence[str]) -> Sequence[Ids]:
        """Return the token ids that a model reads of each text before it writes."""

    @abstractmethod
    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the readable token of each id."""

    def write(
        self, model: nn.Module, texts: Sequence[str], search: Search | None = None
    ) -> list[list[Written]]:
        """Write texts for each input, best first; an input without tokens gets an empty text."""
        prompts = self.prompts(texts)
        plan, limits = search or self.search, self.limits
        return write(model, prompts, plan, end=self.end, limits=limits, context=self.context)

    def best(self, model: Any, texts: Sequence[str], search: int | Search) -> list[list[Text]]:
        """Return the best texts for each input; ``search`` is their number or another `Search`."""
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
        """Return the texts of a baseline, with ln p = 0. Raises: sampling."""
        if plan.temperature:
            raise RegardError(
                f"{model.name} cannot sample; leave --temperature, --top-k, --top-p and --seed out"
            )
        written = model.write([text.strip() for text in texts], plan.best)
        return [[Text(text, 0.0, True) for text in several] for several in written]

    def predict(self, model: Any, inputs: Sequence[str]) -> list[Text]:
        """Write a text for each input.

        For an input without tokens a language model begins a new text; other models write nothing.
        """
        return [several[0] for several in self.best(model, inputs, 1)]

    @torch.no_grad()
    def mean_loss(
        self, model: nn.Module, split: Split, tokens: int, loss: Callable[[nn.Module, B], Tensor]
    ) -> float:
        """Return the mean of ``loss`` over the `items` of a split, in evaluation mode."""

        def work(indexes: NDArray[np.integer]) -> Arrays:
            batch = to_device(model, self.batch(split, indexes))
            (count,) = self.items(batch)
            return {"sums": np.array([float(loss(model, batch)) * count, count])}

        total = items = 0.0
        with evaluation_mode(model):
            for result in ranks().divide(self.fixed_batches(split, tokens), work):
                nats, count = result["sums"].tolist()
                total += nats
                items += count
        return total / max(items, 1)

    def request(self, text: str, most: int) -> WriteRequest:
        """Return the request to write at most ``most`` tokens for a text."""
        (source,) = self.prompts([text])
        context = self.context if self.context > 1 else 0
        lengths = replace(self.limits, longest=min(self.limits.longest, most))
        if context:
            lengths = Limits(ratio=0.0, more=most, longest=most)
        return WriteRequest(
            source,
            (self.end,),
            self.sizes["vocabulary"],
            lengths,
            self.names,
            self.decode,
            self.writes == "on",
            context=context,
        )

    def at_work(self, model: nn.Module, text: str) -> tuple[list[LayerAttention], int | None]:
        """Return the attention weights of each layer while the model writes by `search`."""
        request = self.request(text, LONGEST)
        if not len(request.source):
            return self.attention(model, text), None
        ((best,),) = self.write(model, [text])
        written = [*best.tokens, *(request.ends if best.ended else [])]
        result = reread(model, request, written)
        return result.layers, result.read

    def next_words(self, model: Any, text: str, count: int = 5) -> list[NextWord]:
        """Return the likeliest first words that a network writes for a text."""
        if not isinstance(model, nn.Module):
            return []
        with evaluation_mode(model):
            return next_words(model, self.request(text, 1), count)

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return ln p of each word that the model writes by `search`, and of the whole output.

        Raises: a text without tokens.
        """
        request = self.request(text, LONGEST)
        ((best,),) = self.write(model, [text])
        written = [*best.tokens, *(request.ends if best.ended else [])]
        return explaining.outputs(model, request, written if len(request.source) else [])


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
    """Write the ``best`` texts for each source, best first.

    Batches have sources of similar length, longest first; results are in the order of the sources.
    A source without tokens gets an empty text. The texts of a source do not depend on the other
    sources; samples depend on its index. ``search.longest`` may exceed a ``context``: see `Search`.
    """
    slides = search.slides(context)
    if search.longest:
        most = search.longest if slides else min(search.longest, limits.longest)
        limits = replace(limits, longest=most)
        limits = replace(limits, ratio=0.0, more=most) if slides else limits
    sizes = np.array([len(ids) for ids in sources])
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    texts = [[Written((), 0.0, 0.0, True)] for _ in sources]
    writer, device = cast(Writer, model), device_of(model)
    if slides:
        writer = Sliding(writer, context)

    def batch(start: int) -> list[list[Written]]:
        tokens, lengths = pad([sources[i] for i in order[start : start + ROWS]])
        prompts = (tokens.to(device), lengths.to(device))
        if search.temperature:
            numbers = order[start : start + ROWS] + search.behind
            return _drawn(writer, prompts, search, end, limits, numbers.tolist())
        if search.beam == search.best == 1:
            return [[x] for x in greedy(writer, *prompts, end=end, limits=limits)]
        return beam(
            writer,
            *prompts,
            end=end,
            size=max(search.beam, search.best),
            penalty=search.penalty,
            best=search.best,
            limits=limits,
        )

    def batches(starts: Sequence[int]) -> list[Arrays]:
        written = map(batch, starts) if device.type != "cpu" else side_by_side(batch, starts)
        return [as_arrays(several) for several in written]

    starts = range(0, len(order), ROWS)
    with evaluation_mode(model):
        written = chain.from_iterable(map(from_arrays, ranks().divide_all(starts, batches)))
    for place, several in zip(order, written, strict=True):
        texts[place] = several
    return texts


def as_arrays(texts: Sequence[Sequence[Written]]) -> Arrays:
    """Return the texts written for each source as arrays, which processes can exchange."""
    each = list(chain.from_iterable(texts))
    return {
        "several": np.array([len(several) for several in texts]),
        "sizes": np.array([len(x.tokens) for x in each]),
        "tokens": np.array([i for x in each for i in x.tokens], np.int64),
        "numbers": np.array([[x.log_probability, x.score, x.ended] for x in each]).reshape(-1, 3),
    }


def from_arrays(arrays: Arrays) -> list[list[Written]]:
    """Return the texts of `as_arrays`.

    >>> texts = [[Written((5, 6), -0.5, -0.25, True)], [Written((), -1.0, -1.0, False)]]
    >>> from_arrays(as_arrays(texts)) == texts
    True
    """
    tokens = iter(arrays["tokens"].tolist())
    each = iter(
        Written(tuple(islice(tokens, size)), likelihood, score, bool(ended))
        for size, (likelihood, score, ended) in zip(
            arrays["sizes"].tolist(), arrays["numbers"].tolist(), strict=True
        )
    )
    return [list(islice(each, several)) for several in arrays["several"].tolist()]


def _drawn(
    writer: Writer,
    prompts: tuple[torch.Tensor, torch.Tensor],
    search: Search,
    end: int,
    limits: Limits,
    numbers: Sequence[int],
) -> list[list[Written]]:
    """Sample ``best`` texts for each source, most probable first, each with its own seed."""
    seeds = np.random.SeedSequence(search.seed).generate_state(search.best, np.uint32)
    draws = [
        sample(
            writer,
            *prompts,
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
    """Compute the probability of each target, its end included, in the order of the pairs."""
    order = np.argsort([-len(ids) for ids in targets], kind="stable")
    scores: dict[int, Written] = {}
    writer, device = cast(Writer, model), device_of(model)
    with evaluation_mode(model):
        for start in range(0, len(order), ROWS):
            chosen = order[start : start + ROWS].tolist()
            tokens, lengths = pad([sources[i] for i in chosen])
            wanted = [[int(token) for token in targets[i]] for i in chosen]
            scored = forced(writer, tokens.to(device), lengths.to(device), wanted, end=end)
            scores.update(zip(chosen, scored, strict=True))
    return [scores[i] for i in range(len(order))]
