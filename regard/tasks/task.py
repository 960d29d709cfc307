"""The contract of a task: what is read, what is learned, and what a trained model is asked.

The training loop asks for batches, a loss and a judgement; runs, comparisons, reports and the
server ask for answers and their evaluation. None of them knows anything else of a task.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.layer_attention import LayerAttention
from regard.data.batches import plan_batches
from regard.data.conllu import is_conllu
from regard.errors import RegardError
from regard.tasks.evaluation import Evaluation

B = TypeVar("B")
Split = Literal["train", "validation", "test"]
SPLITS: Final = ("train", "validation", "test")


class Columns(NamedTuple):
    """Names of a file's columns where they are not found by themselves; new names for its labels.

    ``labels`` is written "old:new,…". Empty strings: what the training was told holds.
    """

    text: str = ""
    label: str = ""
    labels: str = ""


NAMED = Columns()  # as the training found them


class Answer(Protocol):
    """A model's answer to one input."""

    def line(self) -> str:
        """The answer on one line."""

    def told(self) -> str:
        """The answer in words."""

    def json(self) -> dict[str, Any]:
        """The answer as plain values."""


class Learnable(ABC, Generic[B]):
    """What the training loop asks for: batches, a loss, a judgement. ``B`` is what one batch is.

    The order of data is a function of (seed, epoch, rank) and of nothing in the state of a random
    generator.
    """

    metric: str

    @abstractmethod
    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.integer]:
        """Tokens of each example of a split, as this epoch has them."""

    def most_tokens(self, split: Split) -> int:
        """Tokens of the longest example of a split, in any epoch."""
        return int(self.lengths(split, 0, 0).max(initial=1))

    def batches(
        self,
        split: Split,
        *,
        tokens: int,
        seed: int,
        epoch: int,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
        examples: int = 0,
    ) -> Sequence[NDArray[np.integer]]:
        """Indexes of each batch of an epoch, of like length, at most ``tokens`` with padding, and
        at most so many ``examples`` (0: any number)."""
        plan = plan_batches(
            self.lengths(split, seed, epoch),
            tokens=tokens,
            examples=examples,
            seed=seed,
            epoch=epoch,
            shuffle=shuffle,
            rank=rank,
            world=world,
        )
        return [self.named(indexes, seed, epoch) for indexes in plan]

    def named(self, indexes: NDArray[np.integer], seed: int, epoch: int) -> NDArray[np.integer]:
        """What `batch` is given of the examples of a batch: their indexes, if that is enough."""
        return indexes

    @abstractmethod
    def batch(self, split: Split, indexes: NDArray[np.integer]) -> B:
        """The examples of these indexes as tensors."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Tensor:
        """A scalar to make small, a mean over the batch's examples."""

    @abstractmethod
    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """The metric (the larger the better) and the loss of a split, in evaluation mode."""


class Task(Learnable[B]):
    """A question with data to learn and to judge it by, and what a trained model is asked.

    Everything here is a pure function of the task's settings and of the arguments. Data are read
    when they are first asked for.

    ``tokenizer`` and ``facts`` are those of a run (`facts` returned them): with them a trained
    model is asked without any data. A ``model`` is a network, which is put into evaluation mode
    while it is asked, or a fitted baseline.
    """

    #: The data as they were found: their name, fingerprint and notes.
    corpus: Any
    #: Which tokens of a longer text are read.
    keeps: Literal["head", "tail", "ends"] = "head"
    #: Whether an answer ranks all labels by their probability: `Answer` has ``top`` then.
    ranks: ClassVar[bool] = False

    def __init__(
        self, settings: Any, tokenizer: Any = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.settings = settings
        self.known = facts or {}
        if tokenizer is not None:
            self.tokenizer = tokenizer

    def __repr__(self) -> str:
        """The task, its data, and how many examples these have once they were read."""
        said = [f"data={getattr(getattr(self, 'settings', None), 'data', '')!r}"]
        corpus = vars(self).get("corpus")
        parts = {name: getattr(corpus, name, None) for name in SPLITS}
        said += [f"{name}={len(part)}" for name, part in parts.items() if part is not None]
        return f"{type(self).__name__}({', '.join(said)})"

    @property
    def notes(self) -> list[str]:
        """Sentences about the data that a user should know before training."""
        return list(self.corpus.notes)

    def facts(self) -> dict[str, Any]:
        """What a run remembers of its data."""
        found = self.corpus
        return {"name": found.name, "fingerprint": found.fingerprint, "notes": self.notes}

    @property
    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """What a model is built for: its vocabulary, labels, symbols."""

    @property
    def validates(self) -> str:
        """The name of what `judge` measures: mostly the metric."""
        return self.metric

    @property
    def held_out(self) -> bool:
        """Whether the test split was left out of what is learned from."""
        return True

    @abstractmethod
    def predict(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        """The model's `Answer` to each input."""

    @abstractmethod
    def answer(self, model: Any) -> Evaluation:
        """The model's answers to the test split, judged."""

    @abstractmethod
    def restore(self, rows: bytes, name: str) -> Evaluation:
        """The evaluation whose `Evaluation.rows` were written to a file of this name.

        Errors: lines that are no such rows.
        """

    @abstractmethod
    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """The model's answers to a file, judged by what the file says.

        Errors: a bad row, by file:line; columns that such a file does not have.
        """

    @abstractmethod
    def attention(self, model: Any, text: str) -> list[LayerAttention]:
        """What each attention layer looks at in a text; nothing of a model without such layers.

        Errors: a text without tokens.
        """

    def at_work(self, model: Any, text: str) -> tuple[list[LayerAttention], int | None]:
        """What every layer looks at while the model answers a text.

        The number says how many tokens were read before any was written, where both stand in one
        text; else None.
        """
        return self.attention(model, text), None

    def best(self, model: Any, inputs: Sequence[Any], search: Any) -> list[list[Any]]:
        """The best answers to each input, best first, of a model that writes texts.

        ``search`` is how many, by the task's own search, or another `Search`. Errors: it writes
        none.
        """
        raise RegardError("this run writes no texts to choose from")

    def score(self, model: Any, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """How likely the model thinks each target, given its source. Errors: as `unscorable`."""
        self.unscorable(pairs)
        return []

    def unscorable(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Of each pair what keeps it from being scored; "" of those that can be.

        Errors: a task that does not write one text for another.
        """
        raise RegardError("--score is for runs that write one text for another; this is none")

    def read_file(self, path: Path) -> Iterable[Any] | None:
        """The inputs that a file of a kind of its own holds; None of a file of lines or columns.

        Errors: parsed sentences, by this task's choice.
        """
        if is_conllu(path):
            raise RegardError(
                f"{path}: parsed sentences are for runs whose answers are labels, numbers or tags"
            )
        return None

    def weigh(self, model: Any, text: str, answer: Any) -> Any:
        """What each word of a text adds to a baseline's answer. Errors: it weighs no words."""
        raise RegardError("this baseline weighs no single words: there is nothing to draw")

    @property
    @abstractmethod
    def room(self) -> int:
        """Tokens that are read of a text, at most."""

    @abstractmethod
    def whole(self, text: str) -> Sequence[Any] | NDArray[np.integer]:
        """All tokens of a text, whether they are read or not."""

    @abstractmethod
    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads, as its writer would recognise them."""

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are beyond those that the model reads."""
        return [max(0, len(self.whole(text)) - self.room) for text in texts]

    def operations(self, model: nn.Module, texts: Sequence[str]) -> int | None:
        """Operations of a forward pass for the text of median length; None if not counted."""
        return None

    def about(self) -> dict[str, Any]:
        """What else a list of answers tells, as plain values."""
        return {}

    def sample(self, every: int) -> list[int]:
        """The number of every so many examples of the train split."""
        return list(range(0, len(self.lengths("train", 0, 0)), every))

    def fit(self, baseline: Any, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to the examples of these numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no baselines")


def no_labels(columns: Columns) -> None:
    """Errors: labels are renamed where there are none."""
    if columns.labels:
        raise RegardError(
            "--labels renames labels, and what is learned here has none: leave it out"
        )


def must_be_split(name: str) -> None:
    """Errors: there is no split of this name."""
    if name not in SPLITS:
        raise RegardError(f"splits are train, validation and test, not {name!r:.40}")
