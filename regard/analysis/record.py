"""Recording of every attention layer of a model, without state in the layers."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.attention import Attended, Attention, Mechanism
from regard.attention.kernels.summary import Summary

#: Queries × keys above which a layer is stored as a summary and its inputs are released.
LONG = 1024 * 1024


@dataclass
class Recording:
    """The output of each `Attention` layer in the model's last forward pass, in call order.

    ``layers``: (name of the layer in the model, its output); weights are computed on access. For
    a call with more than `LONG` pairs per head it contains the `Summary`.
    """

    layers: list[tuple[str, Attended | Summary]] = field(default_factory=list)


@contextmanager
def record(model: nn.Module, *, long: int = LONG, top: int = 16) -> Iterator[Recording]:
    """Record, in this context, the output of every `Attention` layer of the model.

    A model without layers of regard is observed, see `regard.analysis.observe.observe`. Warn if a
    model has attention layers and nothing was recorded.

    A layer with more than ``long`` queries × keys is summarised by the ``top`` keys of each query,
    so that recording a model on a long text takes O(n) memory.

    >>> import torch
    >>> from regard.attention import MultiHeadAttention
    >>> model = MultiHeadAttention(6, 2)
    >>> with torch.no_grad(), record(model) as recording:
    ...     _ = model(torch.zeros(3, 5, 6))
    >>> [(name, tuple(attended.weights.shape)) for name, attended in recording.layers]
    [('attention', (3, 2, 5, 5))]
    """
    from regard.analysis.observe import Watch  # which records

    recording = Recording()
    foreign = not any(isinstance(x, Attention | Mechanism) for x in model.modules())
    calls = []

    def begin(*_: Any) -> None:
        calls.append(True)
        recording.layers.clear()

    with ExitStack() as stack:
        stack.enter_context(model.register_forward_pre_hook(begin))
        for name, layer in model.named_modules():
            # Linformer's keys are mixtures of tokens.
            if isinstance(layer, Attention) and layer.compress is None:
                keep = _keep(recording, name, long, top)
                stack.enter_context(layer.register_forward_hook(keep))
        if foreign:
            stack.enter_context(Watch(recording, long, top, {}).on(model))
        yield recording
    if foreign and any(isinstance(x, Attention) for x in model.modules()):  # since the first call
        recording.layers.clear()
    if calls and not recording.layers and (classes := others(model)):
        warnings.warn(
            f"nothing was recorded of {type(model).__name__}: {classes[0]} calls a kernel outside "
            "torch, or had no layer of regard before this call, as after register(); record again, "
            "or call regard.interop.attention_interface.replace(model) before",
            stacklevel=3,
        )


def others(model: nn.Module) -> list[str]:
    """Return the names of a model's attention classes from other packages."""
    kinds = {type(layer) for layer in model.modules()}
    return sorted(
        kind.__name__
        for kind in kinds
        if "attention" in kind.__name__.lower() and kind.__module__.partition(".")[0] != "regard"
    )


def table(seen: Attended | Summary) -> Tensor:
    """Return the weights (*batch, n, m); those missing from a summary are 0."""
    return seen.dense() if isinstance(seen, Summary) else seen.weights


def _keep(recording: Recording, name: str, long: int, top: int) -> Any:
    def hook(layer: nn.Module, inputs: Any, attended: Attended) -> None:
        recorded = attended.summary(top) if attended.shape[-2:].numel() > long else attended
        recording.layers.append((name, recorded))

    return hook
