"""Chains and paths of layers for which they are known."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.analysis.dependence import layers_between_ends, longest_chain, steps_between_ends


def test_the_longest_of_several_chains_counts() -> None:
    x = torch.ones(3, requires_grad=True)
    short, long = x.exp(), x
    for _ in range(7):
        long = long.sin()
    assert longest_chain(short + long) == 8
    assert longest_chain(torch.ones(2)) == 0, "nothing was recorded"


def test_a_chain_may_be_longer_than_the_stack_of_python() -> None:
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + y
    assert longest_chain(y) == 5000, "y + y has two edges to one node"


def near(reach: int) -> nn.Conv1d:
    torch.manual_seed(0)
    return nn.Conv1d(3, 3, 2 * reach + 1, padding=reach).double()


@pytest.mark.parametrize(("reach", "n"), [(1, 9), (2, 9), (2, 10), (3, 31)])
def test_convolutions_pile_up(reach: int, n: int) -> None:
    layer = near(reach)
    found = layers_between_ends(lambda i: lambda x: layer(x.mT).mT, n, 3)
    assert found == math.ceil((n - 1) / reach)


def test_layers_may_differ() -> None:
    def doubled(i: int) -> object:
        return lambda x: x + torch.cat([torch.zeros_like(x[:, : 2**i]), x[:, : -(2**i)]], 1)

    assert layers_between_ends(doubled, 17, 2) == 5  # type: ignore[arg-type]


def test_what_never_gets_there_is_infinite() -> None:
    def ahead(x: Tensor) -> Tensor:
        return torch.cat([x[:, 1:], x[:, :1]], 1) * 0 + x

    assert layers_between_ends(lambda i: ahead, 6, 2) == math.inf


@pytest.mark.parametrize("n", [2, 5, 64])
def test_an_rnn_needs_every_step(n: int) -> None:
    torch.manual_seed(0)
    rnn = nn.RNN(3, 4, batch_first=True).double()
    assert steps_between_ends(rnn, torch.randn(1, n, 3).double()) == n
