"""Comparison of a sequence model's attention weights with known alignments."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from torch import nn

from regard.analysis.alignment import source_weights
from regard.lab.data.pairs import Pair
from regard.lab.tasks.writing.metrics import Aligned, alignment_error
from regard.nn.layers.device import to_device

if TYPE_CHECKING:
    from regard.lab.tasks.writing.task import Sequences

Weights = Float[np.ndarray, "heads target source"]
Truth = Bool[np.ndarray, "target source"]


def align(task: "Sequences", model: nn.Module, pairs: Sequence[Pair]) -> list[Aligned | None]:
    """Return the alignment error of each pair while the model reads its target.

    The weights are the mean over all heads of all layers that attend to the source. Pairs without a
    known alignment, or not tokenized into characters, get None. The list is empty if all pairs
    would get None, or if the model does not attend to its source.
    """
    errors = {
        place: alignment_error(np.mean([seen.mean(0) for seen in layers.values()], 0), truth)
        for place, layers, truth in weighed(task, model, pairs)
    }
    return [errors.get(place) for place in range(len(pairs))] if errors else []


def weighed(
    task: "Sequences", model: nn.Module, pairs: Sequence[Pair], rows: int = 64
) -> Iterator[tuple[int, dict[str, Weights], Truth]]:
    """Yield index, weights by layer and true alignment of pairs with a known alignment.

    The weights (heads, target, source) are computed while the model reads the target. Pairs that
    are not tokenized into characters are skipped; a model without cross-attention yields nothing.
    """
    truths = [pair.alignment() for pair in pairs]
    source, target = (task.encode([getattr(pair, side) for pair in pairs])
                      for side in ("source", "target"))  # fmt: skip
    aligned = [
        (i, truth)
        for i, truth in enumerate(truths)
        if truth is not None and truth.any() and truth.shape == (len(target[i]), len(source[i]))
    ]
    for start in range(0, len(aligned), rows):
        chosen = aligned[start : start + rows]
        batch = task.tensors([source[i] for i, _ in chosen], [target[i] for i, _ in chosen])
        batch = to_device(model, batch)
        layers = source_weights(model, batch.source, batch.source_lengths, batch.decoder_input)
        if not layers:
            return
        for row, (i, truth) in enumerate(chosen):
            n, m = truth.shape
            tables = {name: seen[row, :, :n, :m].cpu().numpy() for name, seen in layers.items()}
            yield i, tables, truth
