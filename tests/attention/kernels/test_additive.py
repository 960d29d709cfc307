"""The rational form beside tanh itself, at every size and range."""

import os
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from regard.attention import SCORES, attend, use
from regard.attention.kernels import additive
from regard.attention.kernels.compiled import can_compile


def literal(q, k, w):
    return (torch.tanh(q[..., :, None, :] + k[..., None, :, :]) @ w[..., None, :, :]).squeeze(-1)


def made(size, dtype=torch.float64, rows=9, columns=13):
    q, k = torch.randn(3, 2, rows, 5, dtype=dtype), torch.randn(3, 2, columns, 5, dtype=dtype)
    return (
        (q * size).requires_grad_(),
        (k * size).requires_grad_(),
        torch.randn(2, 5, 1, dtype=dtype, requires_grad=True),
    )


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_and_gradients(size, dtype):
    given, tolerance = made(size, dtype), 2e-5 if dtype == torch.float32 else 1e-9
    if size == 1e3:  # opposite pairs, where tanh is not ±1 though both sides are far out of range
        given[1].data[..., :4, :] = -given[0].data[..., :4, :] + 0.3
    upstream = torch.randn(3, 2, 9, 13, dtype=dtype)
    ours, exact = additive.scores(*given), literal(*given)
    assert_close(ours, exact, atol=tolerance, rtol=tolerance)
    assert_close(
        torch.autograd.grad(ours, given, upstream),
        torch.autograd.grad(exact, given, upstream),
        atol=10 * tolerance,
        rtol=10 * tolerance,
    )


@pytest.mark.parametrize("side", [0, 1])
def test_nan_reaches_the_outputs_that_see_it(side):
    q, k, v = torch.randn(3, 800, 8)
    (q, k)[side][3] = torch.nan
    found = attend(q, k, v, SCORES["additive"](8, 8)).output.isnan().all(-1)
    assert found.tolist() == [side == 1 or i == 3 for i in range(800)]


def test_gradients_in_float64():
    given = made(1.0, rows=3, columns=4)
    assert torch.autograd.gradcheck(additive.scores, given)


def test_a_weight_without_heads():
    q, k, _ = made(1.0)
    w = torch.randn(5, 1, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(3, 2, 9, 13, dtype=torch.float64)
    ours = torch.autograd.grad(additive.scores(q, k, w), (q, k, w), upstream)
    exact = torch.autograd.grad(literal(q, k, w), (q, k, w), upstream)
    assert_close(ours, exact)


def test_a_row_out_of_range_changes_no_other():
    q, k, w = made(1.0, torch.float32)
    before = additive.scores(q, k, w).detach().clone()
    q.data[1, 0, 4, 2] = 500.0
    after = additive.scores(q, k, w)
    assert_close(after, literal(q, k, w), atol=1e-5, rtol=1e-5)
    after = after.detach()
    after[1, 0, 4] = before[1, 0, 4]
    assert torch.equal(after, before)


COMPILED = """
import torch
from regard.attention.kernels import additive
from regard.attention.kernels.compiled import compiling

torch.manual_seed(0)
given = [torch.randn(*s, requires_grad=True) for s in ((3, 2, 65, 5), (3, 2, 127, 5), (2, 5, 1))]
upstream, found = torch.randn(3, 2, 65, 127), []
for wanted in (False, True):
    with compiling(wanted):
        scores = additive.scores(*given)
    found.append([scores, *torch.autograd.grad(scores, given, upstream)])
print(max(float(((a - b).abs().max() / a.abs().max()).detach()) for a, b in zip(*found)))
"""


@pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
def test_compiled_strips_are_the_eager_ones(tmp_path):
    # In a process of its own: what checks the shapes in tests is nothing to compile. And with a
    # cache of its own: torch's does not tell code apart that was compiled under another
    # ATEN_CPU_CAPABILITY, and takes it.
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5
    assert done.stderr == ""


def test_attention_at_a_thousand():
    torch.manual_seed(1)
    score = SCORES["additive"](6, 6, heads=2)
    given = [torch.randn(2, 2, n, 6) * 1e3 for n in (65, 129, 129)]
    found = []
    for kernel in ("exact", "tiled"):
        with use(kernel):
            found.append(attend(*given, score).output)
    assert_close(found[1], found[0], atol=0.02, rtol=1e-4)
