"""Recording of every attention layer of a model, without state in the layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.attention import Attended, Attention
from regard.attention.kernels.summary import Summary

#: Queries × keys above which a layer's weights are summed up at once and its inputs let go.
LONG = 1024 * 1024


@dataclass
class Recording:
    """The output of each `Attention` layer in the model's last forward pass, in call order.

    ``layers``: (the layer's name in the model, what it answered); weights are computed when
    they are asked for. Of a call with more than `LONG` pairs a head it holds the `Summary`.
    """

    layers: list[tuple[str, Attended | Summary]] = field(default_factory=list)


@contextmanager
def record(model: nn.Module, *, long: int = LONG, top: int = 16) -> Iterator[Recording]:
    """Record, in this context, the output of every `Attention` layer of the model.

    A layer with more than ``long`` queries × keys is summed up by its ``top`` keys a query, so that
    a whole model on a long text takes O(n) memory.

    >>> import torch
    >>> from regard.attention import MultiHeadAttention
    >>> model = MultiHeadAttention(6, 2)
    >>> with torch.no_grad(), record(model) as recording:
    ...     _ = model(torch.zeros(3, 5, 6))
    >>> [(name, tuple(attended.weights.shape)) for name, attended in recording.layers]
    [('attention', (3, 2, 5, 5))]
    """
    recording = Recording()
    handles: list[RemovableHandle] = [
        model.register_forward_pre_hook(lambda *_: recording.layers.clear())
    ]
    for name, layer in model.named_modules():
        # What Linformer's queries look at are mixtures, and no words.
        if isinstance(layer, Attention) and layer.compress is None:
            handles.append(layer.register_forward_hook(_keep(recording, name, long, top)))
    try:
        yield recording
    finally:
        for handle in handles:
            handle.remove()


def table(seen: Attended | Summary) -> Tensor:
    """The weights, (\\*batch, n, m); of a summary those that it names, 0 elsewhere."""
    return seen.dense() if isinstance(seen, Summary) else seen.weights


def _keep(recording: Recording, name: str, long: int, top: int) -> Any:
    def hook(layer: nn.Module, inputs: Any, attended: Attended) -> None:
        seen = attended.summary(top) if attended.shape[-2:].numel() > long else attended
        recording.layers.append((name, seen))

    return hook
