"""Triton tiles in the interpreter beside the exact path, forward and backward, in float32."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from examples.my_score import Laplacian
from regard.attention import (
    SCORES,
    Score,
    attend,
    causal,
    dense,
    explain,
    lengths,
    make_score,
    others,
    use,
    window,
)
from regard.attention.kernels import triton as tiles
from regard.attention.kernels.triton import launch
from regard.core.errors import RegardError
from tests.attention.parts import gradients

WIDTH = 3


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """The interpreter, and blocks so small that a few rows fill several."""
    pytest.importorskip("triton")
    monkeypatch.setattr(tiles, "INTERPRETED", True)
    monkeypatch.setattr(launch, "BLOCK", 4)


def both(
    score, mask=None, normalize="softmax", *, n=5, m=6, scale=1.0, dropout=0.0, heads=1, batch=1
):
    """Output and gradients by the exact path and by Triton."""
    queries, keys, values = (
        (scale * torch.randn(batch, heads, size, width)).requires_grad_()
        for size, width in ((n, WIDTH), (m, WIDTH), (m, 2))
    )
    of = (queries, keys, values, *score.parameters())
    found = []
    for kernel in ("exact", "triton"):
        torch.manual_seed(7)
        with use(kernel):
            attended = attend(queries, keys, values, score, mask, normalize=normalize,
                              dropout=dropout)  # fmt: skip
            plan = explain(queries, keys, values, score, mask, normalize=normalize)
        assert plan.kernel == kernel, plan
        found.append([attended.output, *gradients(attended.output, *of)])
    return zip(*found, strict=True)


def agree(pairs, tolerance=1e-5):
    for exact, ours in pairs:
        atol = tolerance * max(1.0, float(exact.detach().abs().max()))
        assert_close(ours, exact, atol=atol, rtol=tolerance)


def score_of(name, position="none", heads=1):
    score = make_score(name, position, WIDTH, WIDTH, heads=heads)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return score


SLOW = pytest.mark.slow  # the interpreter takes a second for a call


@pytest.mark.parametrize(
    "name",
    ["additive", *(pytest.param(x, marks=SLOW) for x in ("dot", "cosine", "general", "boxcar"))],
)
def test_scores(name):
    agree(both(score_of(name)))


@pytest.mark.parametrize("normalize", ["entmax15", pytest.param("sparsemax", marks=SLOW)])
def test_sparse_normalisers(normalize):
    agree(both(score_of("additive"), window(3) & causal(), normalize, scale=2.0))


@pytest.mark.parametrize(
    "mask",
    [
        window(2) & causal(),
        causal() & lengths([6, 0]),
        pytest.param(lengths([5, 0]), marks=SLOW),
        pytest.param(others(), marks=SLOW),
        pytest.param(dense(torch.arange(60).view(2, 5, 6) % 3 > 0), marks=SLOW),
    ],
    ids=str,
)
def test_masks_and_rows_that_see_nothing(mask):
    agree(both(score_of("dot", "alibi"), mask, batch=2))


def test_a_score_of_a_user():
    agree(both(Laplacian(WIDTH, WIDTH, heads=2), heads=2))


def test_coordinates_as_a_bias():
    class Near(Score):
        """q·k − w ‖x − y‖², the last two columns being coordinates."""

        def __init__(self):
            super().__init__()
            self.slope = nn.Parameter(torch.tensor(0.5))

        def prepare_queries(self, queries, positions):
            return queries[..., :1], queries[..., 1:]

        prepare_keys = prepare_queries

        def compare(self, queries, keys, positions):
            (q, x), (k, y) = queries, keys
            apart = (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)
            return q @ k.mT - self.slope * apart

    agree(both(Near(), causal()))


@SLOW
def test_a_stack_of_wrappers():
    agree(both(score_of("scaled-dot+soft-cap-5", "alibi", heads=2), causal(), heads=2))


def test_large_scores():
    agree(both(score_of("dot"), scale=40.0), 1e-5)


@SLOW
def test_single_rows():
    agree(both(score_of("additive"), n=1))
    agree(both(score_of("additive"), m=1))


@pytest.mark.parametrize("normalize", ["softmax", pytest.param("entmax15", marks=SLOW)])
def test_dropout_drops_the_weights_that_the_exact_path_drops(normalize):
    agree(both(score_of("dot", "alibi"), causal(), normalize, dropout=0.4))


def test_a_lengths_mask_of_other_lengths_needs_no_other_program(monkeypatch):
    from regard.attention.kernels.triton import kept

    score, traced = score_of("additive"), []
    real = kept.program_of
    monkeypatch.setattr(kept, "program_of", lambda *a: traced.append(a) or real(*a))
    x = torch.randn(2, 1, 5, WIDTH)
    for valid, traces in (([5, 2], 1), ([3, 4], 1)):
        with use("triton"):
            assert explain(x, x, x, score, lengths(valid)).kernel == "triton"
        assert len(traced) == traces
    score.note = 3  # another attribute is another program
    with use("triton"):
        explain(x, x, x, score, lengths([3, 4]))
    assert len(traced) == 2


def test_what_has_no_tile_is_computed_by_strips_and_says_why():
    class Sorted(Score):
        def compare(self, queries, keys, positions):
            return (queries.sort(-1).values @ keys.mT).cumsum(-1)

    class Asks(Score):
        def compare(self, queries, keys, positions):
            scores = queries @ keys.mT
            return scores if bool(scores.sum() > 0) else -scores

    x = torch.randn(1, 200, WIDTH)
    for score, why in ((Sorted(), "it uses sort"), (Asks(), "cannot be traced"),
                       (make_score("dot", "t5-bias"), "float64")):  # fmt: skip
        plan = explain(x, x, x, score, normalize="sparsemax")
        assert plan.kernel == "tiled"
        assert why in plan.why
    double, alibi = x.double(), make_score("dot", "alibi")
    assert "float64" in explain(double, double, double, alibi, normalize="sparsemax").why
    plan = explain(x, x, x, make_score("dot", "alibi"), normalize="top-k-4")
    assert "do not know the normaliser top-k" in plan.why
    assert explain(x, x, x, alibi, normalize="sparsemax").kernel == "triton"
    assert explain(x, x, x, "dot").kernel == "fused"


def test_without_interpreter_and_gpu_strips_compute(monkeypatch):
    monkeypatch.setattr(tiles, "INTERPRETED", False)
    x = torch.randn(1, 200, WIDTH)
    plan = explain(x, x, x, make_score("dot", "alibi"), normalize="sparsemax")
    assert plan.kernel == "tiled"
    assert "Triton" not in plan.why


def test_a_second_derivative_is_refused():
    x = torch.randn(1, 3, WIDTH, requires_grad=True)
    with use("triton"):
        output = attend(x, x, x, make_score("dot", "alibi")).output
    with pytest.raises(RegardError, match="differentiable once"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_has_a_tile_or_a_reason(name):
    x = torch.randn(1, 2, 200, WIDTH)
    made = make_score(name, "none", WIDTH, WIDTH, heads=2, length=200)
    plan = explain(x, x, x, made, normalize="sparsemax")
    assert plan.kernel == "triton" or "no Triton tile: " in plan.why


def test_the_text_holds_nothing_of_the_user():
    class Evil(Score):
        """__import__('os')."""

        def __init__(self):
            super().__init__()
            self.word = "'); import os  #"
            self.weird_name = nn.Parameter(torch.ones(()))

        def compare(self, queries, keys, positions):
            return self.weird_name * (queries[..., :, None, :] - keys[..., None, :, :]).sum(-1)

    from regard.attention.arguments import Arguments
    from regard.attention.computation import Computation

    x = torch.randn(1, 5, WIDTH)
    job = launch.job_of(Computation.of(Arguments(x, x, x, Evil())).call, None)
    assert "weird" not in job.program.text
    assert "import os" not in job.program.text
    assert job.program.text.count("import") == 2


@pytest.mark.slow
def test_all_kernels_compile_for_a_gpu():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.attention.kernels.triton_targets"],
        capture_output=True, text=True, check=True,
        env={**os.environ, "TRITON_INTERPRET": "0"},
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 21
