"""Threads that share a layer leave it as it was, and get its answers."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import regard
from regard.attention import use

THREADS, CALLS = 4, 12


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Threads take turns every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("score", "normalize"),
    [("additive", "softmax"), ("scaled-dot", "entmax"), ("gaussian", "sink")],
)
def test_a_layer_that_threads_share_keeps_its_parameters(score: str, normalize: str) -> None:
    layer = regard.MultiHeadAttention(8, 2, score=score, normalize=normalize)
    before = dict(layer.named_parameters())
    x = torch.randn(2, 7, 8)
    wanted_gradient = torch.ones(2, 7, 8)

    def pass_through(_: int = 0) -> tuple[torch.Tensor, list[torch.Tensor]]:
        own = x.clone().requires_grad_()
        with use("tiled"):
            output = layer(own)
        found = torch.autograd.grad(output, [own, *layer.parameters()], wanted_gradient)
        return output.detach(), list(found)

    alone = pass_through()
    with ThreadPoolExecutor(THREADS) as pool:
        for output, gradients in pool.map(pass_through, range(THREADS * CALLS)):
            torch.testing.assert_close(output, alone[0])
            torch.testing.assert_close(gradients, alone[1])
    after = dict(layer.named_parameters())
    assert list(after) == list(before)
    for name, parameter in before.items():
        assert after[name] is parameter, f"{name} is another tensor now"
        assert isinstance(after[name], nn.Parameter)
