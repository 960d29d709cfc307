"""Splits of texts with one answer per text, as token ids, and their batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.lab.data.examples import Example
from regard.training.batches import pad

T = TypeVar("T")
Trees = list[NDArray[np.int32]] | None  # None: texts without trees


@dataclass(frozen=True)
class TokenIds:
    """Texts as token ids (int32)."""

    ids: list[NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each text."""
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)


@dataclass(frozen=True)
class Encoded(TokenIds):
    """A split as truncated token ids, with label numbers and the original examples.

    ``trees``: for parsed sentences, the index of each word's head, −1 for a root. ``features``:
    the numbers of further columns.
    """

    labels: NDArray[Any]
    examples: list[Example]
    trees: Trees = None
    features: Float[np.ndarray, "texts numbers"] | None = None


@dataclass(frozen=True)
class Batch:
    """A batch of padded token ids, with the length of each row and the label numbers.

    ``parents``: for parsed sentences, the index of each word's head; −1 for roots and padding.
    ``features``: the numbers of further columns.
    """

    tokens: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]
    parents: Int[Tensor, "batch time"] | None = None
    features: Float[Tensor, "batch numbers"] | None = None


def parents_of(trees: Trees, indexes: NDArray[np.integer]) -> Int[Tensor, "batch time"] | None:
    """Return the trees of the texts at these indexes as a batch."""
    return None if trees is None else pad([trees[i] + 1 for i in indexes])[0] - 1


def batch_of(encoded: Encoded, indexes: NDArray[np.integer]) -> Batch:
    """Return the texts at these indexes as tensors."""
    tokens, lengths = pad([encoded.ids[index] for index in indexes])
    labels = torch.from_numpy(encoded.labels[indexes])
    parents, features = parents_of(encoded.trees, indexes), encoded.features
    rows = None if features is None else torch.from_numpy(features[indexes]).float()
    return Batch(tokens, lengths, labels, parents, rows)


def plain(text: str | Example) -> str:
    """Return the text of an example, or a plain text unchanged."""
    return text.text if isinstance(text, Example) else text


def joined(
    parts: Sequence[Sequence[T]], between: Sequence[T], length: int, keep: str
) -> Sequence[T]:
    """Return at most ``length`` tokens of one text, or of two with ``between`` between them.

    The longer of two texts is truncated first, and then both equally, the first keeping one token
    more if need be (``longest_first`` of Hugging Face). ``keep``: see `truncate`.

    >>> joined([[1, 2, 3, 4, 5], [6, 7]], [0], 6, "head")
    [1, 2, 3, 0, 6, 7]
    >>> joined([[1, 2, 3], [4, 5, 6]], [0], 4, "tail")
    [2, 3, 0, 6]
    """
    if len(parts) == 1:
        return truncate(parts[0], length, keep)
    first, second = parts
    room = max(length - len(between), 0)
    most = max(room - len(second), room - room // 2)  # tokens of the first text
    first = truncate(first, most, keep)
    return [*first, *between, *truncate(second, room - len(first), keep)]


def truncate(ids: Sequence[T], length: int, keep: str) -> Sequence[T]:
    """Return at most ``length`` tokens: the "head", the "tail", or both "ends".

    With "ends" and an odd length, the head gets one token more.

    >>> truncate([1, 2, 3, 4, 5, 6], 3, "ends")
    [1, 2, 6]
    """
    if len(ids) <= length:
        return ids
    if keep == "head":
        return ids[:length]
    if keep == "tail":
        return ids[len(ids) - length :]
    tail = length // 2
    return [*ids[: length - tail], *ids[len(ids) - tail :]]
