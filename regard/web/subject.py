"""What the page and the API ask of a model: `Subject`. A run is one; others can be made to be."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch

from regard.data.batches import pad
from regard.decoding import Limits as Lengths
from regard.decoding import Writer
from regard.decoding.sampling import nucleus, pick
from regard.decoding.stepwise import begun, without
from regard.errors import RegardError
from regard.runs import ClassifierRun, Looked, Run, WriterRun
from regard.tasks.language_modeling import NextToken
from regard.tasks.sequences import Sequences


class Piece(NamedTuple):
    """A token that was written, its probability, and the text as it now stands."""

    token: str
    probability: float
    text: str


class Drawing(NamedTuple):
    """How tokens are chosen: at temperature 0 the likeliest, else drawn as `decoding.sample` does.

    ``most``: tokens at most.
    """

    most: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Subject(Protocol):
    """A model that can be asked. Whatever has these methods can be served and looked at."""

    name: str
    kind: str  # "classification" or "sequences"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off."""

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """An answer to each text, as plain values; of a writer the `best` texts."""

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at; nothing of a model without one."""

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """A text token by token. Errors: the model does not write."""

    @property
    def residual(self) -> float:
        """The share that passes beside a layer's attention, for `rollout`."""


class RunSubject:
    """A complete run of regard's, asked through its own methods."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run
        self.kind = "classification" if isinstance(run, ClassifierRun) else "sequences"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off; of a baseline its words."""
        if self.run.config.entry.kind == "baseline":
            return len(text.split())
        return len(self.run.task.tokenizer.encode([text])[0])

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """An answer to each text, as plain values; of a writer with ``best`` further ones."""
        if best == 1:
            return [answer.json() for answer in self.run.predict(texts)]
        if not isinstance(self.run, WriterRun):
            raise RegardError(f"{self.name} gives one answer to a text; ask without best")
        found = self.run.best(texts, best)
        return [{**answers[0].json(), "best": [x.json() for x in answers]} for answers in found]

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at; of a baseline nothing."""
        if self.run.config.entry.kind == "baseline" or not self.run.tokens(text):
            return []
        return self.run.attention(text)

    @property
    def residual(self) -> float:
        """0 for blocks without a residual connection, else a half."""
        return 0.0 if getattr(self.run.config.network, "block", "") == "plain" else 0.5

    def write(self, text: str, drawing: Drawing) -> Iterator[Piece]:
        """What the run writes for a text, token by token where its model does so.

        Each step runs for itself, so that another request may be answered between two of them.

        Errors: a run that labels texts; settings that `decoding.sample` does not take.
        """
        if self.kind == "classification":
            raise RegardError(f"{self.name} labels texts and writes none; ask /predict")
        if not 0 < drawing.top_p <= 1 or drawing.top_k < 0 or drawing.temperature < 0:
            raise RegardError("temperature ≥ 0, top_k ≥ 0 and 0 < top_p ≤ 1 are what is drawn by")
        asked = _asked(self.run.task, text, drawing.most)
        if asked is None:  # it fills in what is missing, all at once
            said = self.run.predict([text])[0]
            yield Piece(said.text, math.exp(min(said.log_probability, 0.0)), said.text)
        elif len(asked.source[0]):
            yield from write(cast(Writer, self.run.network), asked, drawing)


class Asked(NamedTuple):
    """What a model is given to write from, and how its tokens are read."""

    source: Sequence[Any]
    end: int
    lengths: Lengths
    names: Callable[[list[int]], list[str]]
    text: Callable[[list[int]], str]


def _asked(task: Any, text: str, most: int) -> Asked | None:
    """Of a task that writes token by token; None of one that does not."""
    if isinstance(task, Sequences):
        lengths = Lengths(longest=min(2 * task.settings.length, most))
        words, cut = task.tokenizer, task.encode([text])
        return Asked(cut, task.end, lengths, words.tokens, words.decode)
    if isinstance(task, NextToken):
        room = task.settings.length // 2
        lengths = Lengths(ratio=0.0, more=room, longest=min(room, most))
        return Asked([task.read(text)[-room:]], task.end, lengths, task.names, task.decode)
    return None


def write(model: Writer, asked: Asked, drawing: Drawing) -> Iterator[Piece]:
    """A text token by token, each step for itself."""
    with torch.no_grad():  # not around a yield, where it would be the caller's too
        tokens, sizes = pad(asked.source)
        writing = model.start(tokens, sizes)
        places = torch.Generator().manual_seed(drawing.seed)
        last, words = begun(1), list[int]()
    for _ in range(int(asked.lengths.of(sizes)[0])):
        with torch.no_grad():
            chances = without(writing.step(last)[:, 0], asked.end, False)
            last = _choose(chances, drawing, places)
            gained = float(chances[0, int(last)])
        if int(last) == asked.end:
            return
        words.append(int(last))
        yield Piece(asked.names(words[-1:])[0], math.exp(gained), asked.text(words))


def _choose(chances: torch.Tensor, drawing: Drawing, places: torch.Generator) -> torch.Tensor:
    if drawing.temperature == 0:
        return chances.argmax(-1, keepdim=True)
    shares, words = nucleus(chances, drawing.temperature, drawing.top_k, drawing.top_p)
    place = torch.rand(1, 1, generator=places, dtype=shares.dtype)
    return words.gather(1, pick(shares, place))


def opened(name: str, folder: Path) -> Subject:
    """The run in a folder as a subject, or the model in Hugging Face's layout.

    Errors: a run that is not complete; a model that regard does not read.
    """
    from regard.runs import load
    from regard.web import pretrained

    if pretrained.is_pretrained(folder):
        return pretrained.opened(name, folder)
    run = load(folder)
    if not run.complete:
        raise RegardError(f"the run {name} is not complete; train it to its end first")
    return RunSubject(name, run)


Open = Callable[[str, Path], Subject]
