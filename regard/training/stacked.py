"""Adam for networks stacked in the same parameters, each with its own learning rate."""

from collections.abc import Sequence

import torch
from torch import nn


class StackedAdam:
    """Adam (Kingma & Ba 2015, algorithm 1) for all stacked networks of a module at once.

    The first axis of every parameter is networks. Parameters and gradients become views of
    two long rows of numbers, so that a step is a few operations, not a few for each parameter.

    >>> layer = nn.Module()
    >>> layer.weight = nn.Parameter(torch.ones(2, 1))
    >>> adam = StackedAdam(layer, [0.1, 0.01])
    >>> layer.weight.sum().backward()
    >>> adam.step()
    >>> layer.weight.flatten().tolist()
    [0.8999..., 0.9900...]
    """

    def __init__(
        self,
        module: nn.Module,
        rates: Sequence[float],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.values = torch.cat([p.detach().flatten() for p in parameters])
        self.gradients = torch.zeros_like(self.values)
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        of_networks = self.values.new_tensor(rates)
        self.rates = torch.cat([of_networks.repeat_interleave(p[0].numel()) for p in parameters])
        self.betas, self.epsilon, self.steps = betas, epsilon, 0
        place = 0
        for parameter in parameters:
            mine = slice(place, place := place + parameter.numel())
            parameter.data = self.values[mine].view(parameter.shape)
            parameter.grad = self.gradients[mine].view(parameter.shape)

    def step(self, share: float = 1.0) -> None:
        """Make a step at this share of each network's rate, then zero the gradients."""
        self.steps += 1
        (one, two), g = self.betas, self.gradients
        self.mean.lerp_(g, 1 - one)
        self.square.mul_(two).addcmul_(g, g, value=1 - two)
        slope = (self.square / (1 - two**self.steps)).sqrt_().add_(self.epsilon)
        far = share / (1 - one**self.steps)
        self.values.addcmul_(self.mean.div(slope), self.rates, value=-far)
        g.zero_()
