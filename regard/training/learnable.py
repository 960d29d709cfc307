"""The interface between the training loop and a task: batches, a loss, a validation score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.training.batches import plan_batches

B = TypeVar("B")
Split = Literal["train", "validation", "test"]
SPLITS: Final = ("train", "validation", "test")


class Learnable(ABC, Generic[B]):
    """The part of a task that the training loop uses: batches, a loss, a validation score.

    ``B`` is the type of a batch. The order of the data depends only on (seed, epoch), not on the
    state of a random generator or the number of processes.
    """

    metric: str
    #: The best possible score, at which patience counts although the loss still falls.
    perfect: ClassVar[float] = math.inf

    @abstractmethod
    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.integer]:
        """Return the number of tokens of each example of a split in this epoch."""

    def most_tokens(self, split: Split) -> int:
        """Return the number of tokens of the longest example of a split, over all epochs."""
        return int(self.lengths(split, 0, 0).max(initial=1))

    def batches(
        self,
        split: Split,
        *,
        tokens: int,
        seed: int,
        epoch: int,
        shuffle: bool = True,
        examples: int = 0,
    ) -> Sequence[NDArray[np.integer]]:
        """Return the indexes of each batch of an epoch, examples of similar length together.

        A batch has at most ``tokens`` tokens, padding included, and at most ``examples`` examples
        (0: no limit).
        """
        plan = plan_batches(
            self.lengths(split, seed, epoch),
            tokens=tokens,
            examples=examples,
            seed=seed,
            epoch=epoch,
            shuffle=shuffle,
        )
        return [self.named(indexes, seed, epoch) for indexes in plan]

    def named(self, indexes: NDArray[np.integer], seed: int, epoch: int) -> NDArray[np.integer]:
        """Return the keys of examples that `batch` expects; the indexes themselves by default."""
        return indexes

    @abstractmethod
    def batch(self, split: Split, indexes: NDArray[np.integer]) -> B:
        """Return the examples at these indexes as tensors."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: B) -> Tensor:
        """Return the number to minimise, a mean over the batch, or a vector of such means to add.

        A vector has one mean for each number of `items`.
        """

    def items(self, batch: B) -> Sequence[float]:
        """Return the number of items of each mean of `loss`; by default one, over the examples.

        With these weights, the means over the parts of a batch give the mean over the batch, so
        that several processes train as one. Override it if `loss` is a mean over something else.
        """
        return [len(cast(Any, batch).lengths)]

    @abstractmethod
    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric (larger is better) and the loss of a split, in evaluation mode."""
