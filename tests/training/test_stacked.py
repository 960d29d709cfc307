"""Adam for a stack: torch's Adam on each network, at that network's rate."""

import torch
from torch import nn
from torch.testing import assert_close

from regard.training.stacked import StackedAdam


class Two(nn.Module):
    def __init__(self, networks: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(networks, 3, 2, generator=draw))
        self.unused = nn.Parameter(torch.ones(networks, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).tanh().square().sum()


def test_each_network_steps_as_torch_does() -> None:
    rates, stacked = (0.1, 0.003), Two(2)
    start = stacked.weight.detach().clone()
    adam = StackedAdam(stacked, rates)
    xs = torch.randn(4, 2, 5, 3)
    for x in xs:
        stacked(x).backward()
        adam.step()
    for i, rate in enumerate(rates):
        alone = Two(1)
        alone.weight.data = start[i : i + 1].clone()
        theirs = torch.optim.Adam([alone.weight], lr=rate)
        for x in xs:
            theirs.zero_grad()
            alone(x[i : i + 1]).backward()
            theirs.step()
        assert_close(stacked.weight[i : i + 1], alone.weight)
    assert stacked.unused.tolist() == [[1.0], [1.0]]


def test_a_share_of_the_rate() -> None:
    full, part = Two(1), Two(1)
    for network, share in ((full, 1.0), (part, 0.25)):
        before = network.weight.detach().clone()
        adam = StackedAdam(network, [0.1])
        network(torch.ones(1, 5, 3)).backward()
        adam.step(share)
        assert_close(
            (network.weight - before).abs(),
            torch.full((1, 3, 2), 0.1 * share),
            rtol=1e-3,
            atol=1e-5,
        )
