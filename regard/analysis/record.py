"""See what every attention layer of a model did, without the layers keeping anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from regard.attention import Attended, Attention


@dataclass
class Recording:
    """What each `Attention` layer answered in the model's last forward pass, in order of calls.

    ``layers``: (the layer's name in the model, what it answered); weights are computed when
    they are asked for.
    """

    layers: list[tuple[str, Attended]] = field(default_factory=list)


@contextmanager
def record(model: nn.Module) -> Iterator[Recording]:
    """While inside, keep what every `Attention` layer of the model answers.

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
        if isinstance(layer, Attention):
            handles.append(layer.register_forward_hook(_keep(recording, name)))
    try:
        yield recording
    finally:
        for handle in handles:
            handle.remove()


def _keep(recording: Recording, name: str) -> Any:
    def hook(layer: nn.Module, inputs: Any, attended: Attended) -> None:
        recording.layers.append((name, attended))

    return hook
