"""Batches of texts of similar length, planned from the lengths alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 50  # batches sorted together: little padding, yet random
CPU_TOKENS, TOKENS = 4_096, 16_384  # of a batch without gradients, on a CPU and elsewhere


def plan_batches(
    lengths: Sequence[int] | NDArray[np.integer],
    *,
    tokens: int,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    examples: int = 0,
) -> list[NDArray[np.int64]]:
    """Split the indexes 0 … len(lengths) − 1 into batches of at most `tokens`, with padding.

    A batch also has at most `examples` examples, unless that is 0.

    The examples are shuffled, sorted by length inside windows of some 50 batches, split where
    count × longest would exceed `tokens`, and the batches are shuffled. Each index
    occurs in exactly one batch. The plan is a pure function of the arguments, so a run resumes at
    (epoch, step) without further state, and all processes of a training know the same plan.
    Without `shuffle` the batches run from the shortest to the longest example.

    Raises: a length above `tokens`.

    >>> [batch.tolist() for batch in
    ...  plan_batches([5, 2, 9, 1], tokens=10, seed=0, epoch=0, shuffle=False)]
    [[3, 1], [0], [2]]
    >>> [batch.tolist() for batch in
    ...  plan_batches([5, 2, 9, 1], tokens=99, examples=3, seed=0, epoch=0, shuffle=False)]
    [[3, 1, 0], [2]]
    """
    sizes = np.maximum(np.asarray(lengths, dtype=np.int64), 1)
    if not len(sizes):
        return []
    if sizes.max() > tokens:
        raise RegardError(
            f"a text of {sizes.max()} tokens does not fit into batches of {tokens} tokens; "
            "increase the batch size or truncate the texts"
        )
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    if shuffle:
        window = max(1, WINDOW * tokens // int(np.ceil(sizes.mean())))
        window = min(window, WINDOW * examples) if examples else window
        order = _sorted_in_windows(random.permutation(len(sizes)), sizes, window)
    else:
        order = np.argsort(sizes, kind="stable")
    batches = _cut(order, sizes, tokens, examples or len(order))
    if shuffle:
        batches = [batches[i] for i in random.permutation(len(batches))]
    return batches


def sorted_batches(
    lengths: Sequence[int] | NDArray[np.integer], device: str = "cpu", *, tokens: int = TOKENS
) -> list[NDArray[np.int64]]:
    """Return batches for a pass without gradients, from the shortest example to the longest.

    At most `tokens` with padding, on a CPU at most `CPU_TOKENS`: larger batches are not faster
    there and have more padding. A longer example is a batch of its own.

    >>> [batch.tolist() for batch in sorted_batches([5, 2, 9, 1], tokens=5)]
    [[3, 1], [0], [2]]
    """
    sizes = np.maximum(np.asarray(lengths, dtype=np.int64), 1)
    most = min(tokens, CPU_TOKENS) if device == "cpu" else tokens
    order = np.argsort(sizes, kind="stable")
    return _cut(order, sizes, most, len(order)) if len(order) else []


def _sorted_in_windows(
    order: NDArray[np.int64], sizes: NDArray[np.int64], window: int
) -> NDArray[np.int64]:
    """Sort windows by length, alternately up and down, so that neighbours have similar ends."""
    parts = []
    for turn, start in enumerate(range(0, len(order), window)):
        part = order[start : start + window]
        part = part[np.argsort(sizes[part], kind="stable")]
        parts.append(part[::-1] if turn % 2 else part)
    return np.concatenate(parts)


def _cut(
    order: NDArray[np.int64], sizes: NDArray[np.int64], tokens: int, examples: int
) -> list[NDArray[np.int64]]:
    starts, longest = [0], 0
    for place, size in enumerate(sizes[order].tolist()):
        longest = max(longest, size)
        count = place - starts[-1] + 1
        if count > 1 and (count > examples or longest * count > tokens):
            starts.append(place)
            longest = size
    return np.split(order, starts[1:])


def pad(sequences: Sequence[Sequence[int] | NDArray[np.integer]]) -> "tuple[Tensor, Tensor]":
    """Return zero-padded token ids (batch, time) and the lengths (batch,), both int64.

    >>> tokens, lengths = pad([[5, 6, 7], [8]])
    >>> tokens.tolist(), lengths.tolist()
    ([[5, 6, 7], [8, 0, 0]], [3, 1])
    """
    import torch

    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    tokens = np.zeros((len(sequences), max(1, lengths.max(initial=0))), dtype=np.int64)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(tokens), torch.from_numpy(lengths)
