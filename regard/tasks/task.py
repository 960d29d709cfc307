"""What the training loop asks of a task: batches, a loss, a judgement. It knows nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batches import plan_batches
from regard.errors import RegardError

B = TypeVar("B")
Split = Literal["train", "validation", "test"]
SPLITS: Final = ("train", "validation", "test")


class Task(ABC, Generic[B]):
    """A question with data to learn and to judge it by. ``B`` is what one batch is.

    Everything here is a pure function of the task's settings and of the arguments: the order of
    data in (seed, epoch, rank), nothing in the state of a random generator.
    """

    metric: str
    #: The data as they were found: their name, fingerprint and notes.
    corpus: Any
    #: Which tokens of a longer text are read.
    keeps: ClassVar[Literal["head", "tail"]] = "head"

    @property
    def notes(self) -> list[str]:
        """Sentences about the data that a user should know before training."""
        return list(self.corpus.notes)

    def facts(self) -> dict[str, Any]:
        """What a run remembers of its data."""
        found = self.corpus
        return {"name": found.name, "fingerprint": found.fingerprint, "notes": self.notes}

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


def must_be_split(name: str) -> None:
    """Errors: there is no split of this name."""
    if name not in SPLITS:
        raise RegardError(f"splits are train, validation and test, not {name!r:.40}")
