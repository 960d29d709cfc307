"""Does a training fit into the memory? Reckoned before anything is allocated."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from regard.errors import UntrainableError
from regard.memory import free_mb
from regard.parts import digests
from regard.runs.config import Config
from regard.training.settings import MOST_TOKENS, TrainingSettings

NUMBER = 4  # bytes: weights and optimizer are in fp32
MOMENTS = {"adamw": 2, "muon": 1}  # numbers that an optimizer keeps of each weight


@dataclass(frozen=True)
class Need:
    """The memory of a training, about, in MB (10⁶ bytes).

    ``kept_mb`` holds weights, gradients, the optimizer's numbers, the best weights and their mean;
    ``batch_mb`` what a step on a batch of ``tokens`` keeps for its backward pass.
    """

    parameters: int
    kept_mb: float
    batch_mb: float
    tokens: int
    device: str

    @property
    def figures(self) -> str:
        """The figures as a sentence, with what is free."""
        return (
            f"{self.parameters:,} parameters take {_gb(self.kept_mb)} in training (weights, "
            f"gradients, optimizer), a batch of {self.tokens:,} tokens about {_gb(self.batch_mb)} "
            f"more, and {_gb(free_mb(self.device))} are free"
        )

    def check(self) -> None:
        """Errors: what is kept alone is more than what is free."""
        free = free_mb(self.device)
        if free and self.kept_mb > free:
            raise UntrainableError(
                f"this network does not fit into the memory: {self.figures}; take a smaller width, "
                "fewer layers or a smaller vocabulary"
            )

    @property
    def warning(self) -> str:
        """A sentence if the batch may not fit beside the rest, else ""."""
        free = free_mb(self.device)
        if not free or self.kept_mb + self.batch_mb <= free:
            return ""
        return f"this training may not fit into the memory: {self.figures}; take a smaller batch"


def need(network: nn.Module, settings: TrainingSettings, trained: bool, length: int) -> Need:
    """Reckon the memory of a training from a network, which may be one on torch's meta device.

    ``trained``: not frozen. ``length``: tokens of the longest text, 0 if there is no such bound.
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
    kept, batch = times * parameters * NUMBER / 1e6, wide * tokens * NUMBER / 1e6
    return Need(parameters, kept, batch if trained else 0.0, tokens, settings.device)


def shape_of(config: Config, build: Callable[[], nn.Module]) -> Need | None:
    """Reckon from a network that ``build`` makes on torch's meta device: it has no numbers.

    None where it has parts of a user's own, whose constructors may need numbers, or keep them.
    """
    if digests(config.named):
        return None
    with torch.device("meta"):
        network = build()
    length = int(getattr(config.network, "length", 0))
    return need(network, config.training, not config.entry.frozen, length)


def _gb(megabytes: float) -> str:
    return f"{megabytes / 1e3:,.1f} GB"
