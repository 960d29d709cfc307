"""The sum of shifted products beside torch's convolution, and where only torch's may run."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention.kernels.convolution import convolve


def by_torch(x, taps):
    """Torch's convolution of each column."""
    flat = x.reshape(-1, *x.shape[-2:]).mT
    return F.conv1d(flat, taps.T.unsqueeze(1), groups=x.shape[-1]).mT.reshape(
        *x.shape[:-2], -1, x.shape[-1]
    )


@pytest.mark.parametrize("shape", [(3, 4), (4, 1), (2, 9, 5), (2, 3, 65, 7)])
@pytest.mark.parametrize("taps", [1, 3])
def test_it_is_torchs_convolution(shape, taps):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    by = torch.randn(taps, shape[-1], dtype=torch.float64, requires_grad=True)
    ours, theirs = convolve(x, by), by_torch(x, by)
    assert_close(ours, theirs)
    upstream = torch.randn_like(ours)
    slopes = [torch.autograd.grad(y, [x, by], upstream) for y in (ours, theirs)]
    assert_close(*slopes)


def test_second_derivatives():
    x, taps = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (6, 4))
    assert torch.autograd.gradgradcheck(convolve, (x, taps))


def test_transforms_have_torchs_own():
    x, taps = torch.randn(5, 8, 3), torch.randn(4, 3)
    assert_close(torch.func.vmap(convolve, in_dims=(0, None))(x, taps), by_torch(x, taps))
    slope = torch.func.grad(lambda y: convolve(y, taps).sum())(x)
    again = x.clone().requires_grad_()
    assert_close(slope, torch.autograd.grad(by_torch(again, taps).sum(), again)[0])
