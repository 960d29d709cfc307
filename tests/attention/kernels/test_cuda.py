"""Every score on a GPU beside the exact path on the processor, forward and backward."""

import copy

import pytest
import torch
from torch.testing import assert_close

from benchmarks import gpu
from regard.attention import attend, causal, explain, make_score, use, window
from tests.attention.parts import EVERY_SCORE, gradients, inputs, score_of

pytestmark = pytest.mark.gpu
NAMED = {"none": lambda: None, "causal": causal, "window": lambda: window(9) & causal()}


@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "sum"])
@pytest.mark.parametrize("mask", NAMED)
@pytest.mark.parametrize("score", EVERY_SCORE)
def test_a_gpu_computes_the_formula(score, mask, normalize):
    here, made = inputs(65, 65), score_of(score)
    there = [x.detach().cuda().requires_grad_() for x in here]
    moved = copy.deepcopy(made).cuda()
    found = []
    for kernel, given, its_score in (("exact", here, made), ("tiled", there, moved)):
        with use(kernel):
            output = attend(*given, its_score, NAMED[mask](), normalize=normalize).output.cpu()
            found.append([output, *gradients(output, *given, *its_score.parameters())])
    for exact, tiled in zip(*found, strict=True):
        assert_close(tiled.cpu(), exact, atol=1e-9, rtol=1e-9)


def test_triton_tiles_and_strips_in_float32_and_bfloat16():
    rows = list(gpu.parity(dry=False))
    assert [row for row in rows if not row["reached"]] == []
    assert sum("triton" in row["name"] for row in rows) == 2 * len(gpu.CALLS)
    assert sum("fused" in row["name"] for row in rows) == 2 * len(gpu.STRIPS)


def test_a_plan_on_a_gpu_takes_triton_tiles():
    x, score = torch.zeros(1, 2, 2048, 8, device="cuda"), make_score("additive", "none", 8, 8)
    plan = explain(x, x, x, score.cuda())
    assert plan.kernel == "triton", plan
