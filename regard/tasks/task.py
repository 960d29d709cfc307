"""What the training loop asks of a task: batches, a loss, predictions. It knows nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

B = TypeVar("B")
Split = Literal["train", "validation", "test"]


class Task(ABC, Generic[B]):
    """A question with data to learn and to judge it by. ``B`` is what one batch is.

    Everything here is a pure function of the task's settings and of the arguments: the order of
    data in (seed, epoch, rank), nothing in the state of a random generator.
    """

    metric: str

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The answers there are; a label's number is its place here."""

    @abstractmethod
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
    ) -> Sequence[NDArray[np.integer]]:
        """The indexes of each batch of one epoch, at most ``tokens`` with padding in each."""

    @abstractmethod
    def batch(self, split: Split, indexes: NDArray[np.integer]) -> B:
        """The examples of these indexes as tensors."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Tensor:
        """A scalar to make small, a mean over the batch's examples."""

    @abstractmethod
    def predict(
        self, model: nn.Module, what: Split | Sequence[str], *, tokens: int = 16_384
    ) -> NDArray[np.float32]:
        """(examples, labels) probabilities, in the order of the split or of the texts."""

    @abstractmethod
    def answers(self, split: Split) -> NDArray[np.integer]:
        """The true label numbers of a split, in its order."""
