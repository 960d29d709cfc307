"""Source-target alignments: the cross-attention weights of a model that generates text."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.analysis.record import Recording, record, table

Weights = Float[Tensor, "batch heads written read"]


@torch.no_grad()
def source_weights(
    model: nn.Module,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    given: Int[Tensor, "batch written"],
) -> dict[str, Weights]:
    """Return each layer's cross-attention weights in float32 while `given` is read.

    ``given`` begins with the start symbol, so row t belongs to the t-th generated word. Empty for a
    model without cross-attention.
    """
    with record(model) as recording:
        model(source, source_lengths, given)
        return of_source(recording, len(source))


def of_source(recording: Recording, batch: int) -> dict[str, Weights]:
    """Return the cross-attention layers of a recording by name, calls concatenated."""
    rows: dict[str, list[Tensor]] = {}
    for name, seen in recording.layers:  # one call for all words, or one for each
        if is_across(name):
            weights = table(seen).float()
            rows.setdefault(name, []).append(weights.reshape(batch, -1, *weights.shape[-2:]))
    return {name: torch.cat(parts, 2) for name, parts in rows.items()}


def is_across(name: str) -> bool:
    """Return whether a layer of a sequence-to-sequence model attends to the source.

    >>> is_across("decoder.0.memory_attention.work.attention"), is_across("decoder.0.attention")
    (True, False)
    """
    return name == "attention" or "memory_attention" in name
