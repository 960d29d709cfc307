"""Estimate whether a training fits into memory, before anything is allocated."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from regard.core.errors import UntrainableError
from regard.core.memory import free_mb
from regard.core.names import is_elsewhere
from regard.core.plugins import digests
from regard.lab.runs.config import Config
from regard.nn.layers.device import without_numbers
from regard.training.settings import MOST_TOKENS, TrainingSettings

NUMBER = 4  # bytes: weights and optimizer are in fp32
MOMENTS = {"adamw": 2, "muon": 1}  # values that an optimizer stores per weight


@dataclass(frozen=True)
class Need:
    """The approximate memory of a training, in MB (10⁶ bytes).

    ``kept_mb``: weights, gradients, optimizer state, the best weights and their mean.
    ``batch_mb``: the activations stored for the backward pass of a batch of ``tokens``.
    """

    parameters: int
    kept_mb: float
    batch_mb: float
    tokens: int
    device: str

    @property
    def figures(self) -> str:
        """Return the memory needed and free, as a sentence."""
        return (
            f"{self.parameters:,} parameters take {_gb(self.kept_mb)} in training (weights, "
            f"gradients, optimizer), a batch of {self.tokens:,} tokens about {_gb(self.batch_mb)} "
            f"more, and {_gb(free_mb(self.device))} are free"
        )

    def check(self) -> None:
        """Raise an error if ``kept_mb`` alone exceeds the free memory."""
        free = free_mb(self.device)
        if free and self.kept_mb > free:
            raise UntrainableError(
                f"this network does not fit into memory: {self.figures}; use a smaller width, "
                "fewer layers or a smaller vocabulary"
            )

    @property
    def warning(self) -> str:
        """Return a warning if the batch may not fit as well, else ""."""
        free = free_mb(self.device)
        if not free or self.kept_mb + self.batch_mb <= free:
            return ""
        return f"this training may not fit into memory: {self.figures}; use a smaller batch"


def need(network: nn.Module, settings: TrainingSettings, trained: bool, length: int) -> Need:
    """Estimate the memory of a training from a network, which may be on torch's meta device.

    ``trained``: not frozen. ``length``: maximum tokens of a text, 0 if unbounded.
    """
    parameters = sum(parameter.numel() for parameter in network.parameters())
    times = 3 + MOMENTS[settings.optimizer] + (settings.average > 0) if trained else 1
    tokens = settings.batch_tokens or MOST_TOKENS
    if settings.batch_size and length:
        tokens = min(tokens, settings.batch_size * length)
    wide = sum(
        part.in_features + part.out_features
        for part in network.modules()
        if isinstance(part, nn.Linear)
    )
    stored, batch = times * parameters * NUMBER / 1e6, wide * tokens * NUMBER / 1e6
    return Need(parameters, stored, batch if trained else 0.0, tokens, settings.device)


def shape_of(config: Config, build: Callable[[], nn.Module]) -> Need | None:
    """Estimate from a network that ``build`` builds on torch's meta device, without allocation.

    None if it uses the user's own code, whose constructors may need or store real tensors.
    """
    if digests(config.parts) or is_elsewhere(config.model):
        return None
    with without_numbers():
        network = build()
    length = int(getattr(config.network, "length", 0))
    return need(network, config.training, not config.entry.frozen, length)


def _gb(megabytes: float) -> str:
    return f"{megabytes / 1e3:,.1f} GB"
