"""What a model that writes looks at in its source: the weights of the attention between both."""

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
    """By layer, in float32: what each word's row looks at in the source while `given` is read.

    ``given`` begins with the start symbol, so row t belongs to the word that is written t-th. A
    model without attention to its source answers nothing.
    """
    with record(model) as recording:
        model(source, source_lengths, given)
        return of_source(recording, len(source))


def of_source(recording: Recording, batch: int) -> dict[str, Weights]:
    """The layers of a recording that look at a source, by name; rows of several calls in a row."""
    rows: dict[str, list[Tensor]] = {}
    for name, seen in recording.layers:  # one call for all words, or one for each
        if name == "attention" or "memory_attention" in name:
            kept = table(seen).float()
            rows.setdefault(name, []).append(kept.reshape(batch, -1, *kept.shape[-2:]))
    return {name: torch.cat(parts, 2) for name, parts in rows.items()}
