"""What the page and the API ask of a model: `Subject`. A run is one; others can be made to be."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch

from regard.data.batches import pad
from regard.decoding import Limits as Lengths
from regard.decoding import Writer, Written
from regard.decoding.sampling import nucleus, pick
from regard.decoding.stepwise import begun, without
from regard.errors import RegardError
from regard.runs import Looked, Run, WriterRun


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
        self.kind = "sequences" if isinstance(run, WriterRun) else "classification"

    def count(self, text: str) -> int:
        """Tokens of a text, before any is cut off; of a baseline its words."""
        if self.run.config.entry.kind == "baseline":
            return len(text.split())
        return len(self.run.task.tokenizer.encode([text])[0])

    def predict(self, texts: list[str], best: int = 1) -> list[dict[str, Any]]:
        """An answer to each text, as plain values; of a writer with ``best`` further ones."""
        if isinstance(self.run, WriterRun):
            found = self.run.best(texts, best)
            return [
                {**answers[0].json(), **({"best": [x.json() for x in answers]} if best > 1 else {})}
                for answers in found
            ]
        return [answer.json() for answer in self.run.predict(texts)]

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
        """What the run writes for a text, word by word.

        Each step runs for itself, so that another request may be answered between two of them.

        Errors: a run that labels texts; settings that `decoding.sample` does not take.
        """
        if not isinstance(self.run, WriterRun):
            raise RegardError(f"{self.name} labels texts and writes none; ask /predict")
        if not 0 < drawing.top_p <= 1 or drawing.top_k < 0 or drawing.temperature < 0:
            raise RegardError("temperature ≥ 0, top_k ≥ 0 and 0 < top_p ≤ 1 are what is drawn by")
        task, model = self.run.task, self.run.network
        source = task.encode([text])
        if not len(source[0]):
            return
        lengths = Lengths(longest=min(2 * task.settings.length, drawing.most))
        yield from _write(cast(Writer, model), source, task, lengths, drawing)


def _write(
    model: Writer, source: Sequence[Any], task: Any, lengths: Lengths, drawing: Drawing
) -> Iterator[Piece]:
    with torch.no_grad():  # not around a yield, where it would be the caller's too
        tokens, sizes = pad(source)
        writing = model.start(tokens, sizes)
        places = torch.Generator().manual_seed(drawing.seed)
        last, words = begun(1), list[int]()
    total = 0.0
    for _ in range(int(lengths.of(sizes)[0])):
        with torch.no_grad():
            chances = without(writing.step(last)[:, 0], task.end, False)
            last = _choose(chances, drawing, places)
            gained = float(chances[0, int(last)])
        if int(last) == task.end:
            return
        words.append(int(last))
        total += gained
        text = task.decode(Written(tuple(words), total, total, False))
        yield Piece(task.tokenizer.tokens(words[-1:])[0], float(torch.tensor(gained).exp()), text)


def _choose(chances: torch.Tensor, drawing: Drawing, places: torch.Generator) -> torch.Tensor:
    if drawing.temperature == 0:
        return chances.argmax(-1, keepdim=True)
    shares, words = nucleus(chances, drawing.temperature, drawing.top_k, drawing.top_p)
    place = torch.rand(1, 1, generator=places, dtype=shares.dtype)
    return words.gather(1, pick(shares, place))


def opened(name: str, folder: Path) -> Subject:
    """The run in a folder as a subject. Errors: it is not complete."""
    from regard.runs import load

    run = load(folder)
    if not run.complete:
        raise RegardError(f"the run {name} is not complete; train it to its end first")
    return RunSubject(name, run)


Open = Callable[[str, Path], Subject]
