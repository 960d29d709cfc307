"""The kernels in C++ beside the formulas in torch, and what happens without a compiler."""

import itertools
import os
import platform
import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from regard.attention import NORMALIZERS, SCORES, attend, causal, explain, make_score, use
from regard.attention.kernels import additive, native
from regard.attention.kernels.choose import Constants, using
from regard.attention.kernels.compiled import can_compile, compiling
from regard.attention.kernels.linear import Inputs, by_chunks, by_steps
from regard.attention.kernels.summary import heaviest
from regard.attention.normalizer import Backward

needs_compiler = pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
SEARCHES = ["sparsemax", "entmax15", "entmax", "top-k", "stick-breaking"]


def rows(columns, dtype):
    """Rows of scores: usual, hidden in part, with equal numbers, very large, and hidden."""
    scores = 3 * torch.randn(2, 3, 5, columns, dtype=dtype)
    scores[0, :, 1, columns // 2 :] = -torch.inf
    scores[:, :, 2] = scores[:, :, 2].round()
    scores[:, :, 3] *= 1e3
    scores[1, :, 4] = -torch.inf
    return scores


@needs_compiler
@pytest.mark.parametrize("columns", [1, 7, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SEARCHES)
def test_normalisers(name, dtype, columns):
    normalizer = NORMALIZERS[name](3).to(dtype)
    scores, upstream = rows(columns, dtype), torch.randn(2, 3, 5, columns, dtype=dtype)
    parameters = tuple(x.detach() for x in normalizer.parameters())
    found = []
    for fast in (True, False):
        with compiling(fast), torch.no_grad():
            statistics = normalizer.statistics(scores)
            weights = normalizer.weights(scores, statistics)
            slopes = normalizer.gradient(
                Backward(weights, upstream, scores, statistics, parameters)
            )
            found.append([weights, *slopes])
    tolerance = 2e-5 if dtype == torch.float32 else 1e-11
    assert_close(*found, atol=tolerance, rtol=tolerance)


@needs_compiler
@pytest.mark.parametrize("name", SEARCHES)
def test_an_unknown_score_makes_its_row_unknown(name):
    normalizer, scores = NORMALIZERS[name](), torch.randn(3, 40)
    scores[1, 5] = torch.nan
    with compiling(True), torch.no_grad():
        weights = normalizer.weights(scores, normalizer.statistics(scores))
    assert weights[1, 5].isnan()
    assert not weights[[0, 2]].isnan().any()


@needs_compiler
@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 13, 5), (5, 70, 64), (33, 130, 37)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_additive_scores(sizes, dtype):
    n, m, hidden = sizes
    q, k = (torch.randn(2, x, hidden, dtype=dtype, requires_grad=True) for x in (n, m))
    w = torch.randn(2, hidden, 1, dtype=dtype, requires_grad=True)
    q.data[0, 0] *= 100  # beyond the range of the exponentials
    upstream, found = torch.randn(2, n, m, dtype=dtype), []
    for fast in (True, False):
        with compiling(fast):
            scores = additive.scores(q, k, w)
            found.append([scores, *torch.autograd.grad(scores, (q, k, w), upstream)])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    assert_close(*found, atol=tolerance, rtol=tolerance)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_additive_scores_of_saturated_units(dtype):
    # The product of two such terms is beyond the range of the dtype.
    edge = additive.RANGE[dtype][0]
    q = edge * torch.tensor([[1.0, 1.0, -1.0], [1.0, 0.0, 1.0]], dtype=dtype)[None]
    k = edge * torch.tensor([[2.0, 2.0, 2.0], [-1.0, 2.0, -1.0]], dtype=dtype)[None]
    w = torch.tensor([1.0, -2.0, 4.0], dtype=dtype)[None, :, None]
    with compiling(True):
        scores = additive.scores(q, k, w)
    assert_close(scores, torch.tensor([[[3.0, -6.0], [3.0, -2.0]]], dtype=dtype))


@needs_compiler
@pytest.mark.parametrize("n", [1, 63, 64, 65, 129])
@pytest.mark.parametrize("strong", [1.0, 30.0])
@pytest.mark.parametrize("with_rate", [False, True])
def test_decays_per_column(n, strong, with_rate):
    shape = (2, 3, n, 16)
    q, k = (torch.nn.functional.normalize(torch.randn(shape).double(), dim=-1) for _ in range(2))
    values, decay = torch.randn(2, 3, n, 8).double(), -strong * torch.rand(shape).double() ** 4
    rate = torch.rand(2, 3, n, 1).double() if with_rate else None
    given, found = [q, k, values, decay, rate], []
    with using(Constants(native_hidden=1)):
        for compute, dtype in itertools.product((by_steps, by_chunks), (torch.double, torch.float)):
            leaves = [None if x is None else x.to(dtype).requires_grad_() for x in given]
            output, state = compute(Inputs(*leaves))
            of = [x for x in leaves if x is not None]
            slopes = torch.autograd.grad(output.cos().sum() + state.square().sum(), of)
            found.append([x.double() for x in (output, state, *slopes)])
    for steps, _, chunks, single in zip(*found, strict=True):
        assert_close(chunks, steps, atol=1e-12, rtol=1e-12)
        assert_close(single, steps, atol=2e-5, rtol=2e-5)


@needs_compiler
@pytest.mark.parametrize("columns", [1, 16])
@pytest.mark.parametrize("every", [2, 3])
def test_a_query_after_several_rows(every, columns):
    q, k = (torch.nn.functional.normalize(torch.randn(2, n, 16).double(), dim=-1)
            for n in (50, 50 * every))  # fmt: skip
    decay, rate = (
        -torch.rand(2, 50 * every, columns).double(),
        torch.rand(2, 50 * every, 1).double(),
    )
    given, found = [q, k, torch.randn(2, 50 * every, 8).double(), decay, 2 * rate], []
    for compute in (by_steps, by_chunks):
        leaves = [x.clone().requires_grad_() for x in given]
        with using(Constants(native_hidden=1)):
            output, state = compute(Inputs(*leaves))
        slopes = torch.autograd.grad(output.cos().sum() + state.square().sum(), leaves)
        found.append([output, state, *slopes])
    assert found[0][0].shape == (2, 50, 8)
    assert_close(found[1], found[0], atol=1e-11, rtol=1e-11)


@needs_compiler
def test_a_large_call_runs_in_c_plus_plus(monkeypatch):
    called = []
    real = native.call

    def spy(function, *arguments):
        called.append(function)
        return real(function, *arguments)

    monkeypatch.setattr("regard.attention.kernels.additive.native", spy)
    monkeypatch.setattr("regard.attention.normalizers.sparse.call", spy)
    monkeypatch.setattr(native, "call", spy)  # of whole rows
    given = [torch.randn(2, 4, 200, 16, requires_grad=True) for _ in range(3)]
    score = SCORES["additive"](16, 16, heads=4)
    found = []
    for kernel in ("tiled", "exact"):
        with use(kernel), using(Constants(native_hidden=1)):
            output = attend(*given, score, causal(), normalize="entmax15").output
        found.append([output, *torch.autograd.grad(output.square().sum(), given)])
    assert {"forward", "backward", "newton", "raised", "slopes"} <= set(called)
    assert_close(*found, atol=1e-5, rtol=1e-4)


def test_without_a_compiler_torch_computes(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(native, "compiler", lambda: None)
    native.library.cache_clear()
    try:
        q, k, w = (torch.randn(2, n, 5) for n in (9, 13, 1))
        with compiling(True):
            assert native.library("additive") is None
            assert_close(additive.scores(q, k, w.mT), additive.scores(q, k, w.mT))
        monkeypatch.setattr(native, "compiler", lambda: "/bin/false")
        native.library.cache_clear()
        with pytest.warns(UserWarning, match="rows.cpp could not be compiled, so slower"):
            assert native.library("rows") is None
        assert not list(tmp_path.rglob("*.so"))
    finally:
        native.library.cache_clear()


@needs_compiler
def test_two_processes_may_compile_at_once(tmp_path):
    code = "from regard.attention.kernels import native; assert native.library('decays')"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert [x.suffix for x in (tmp_path / "regard" / "compiled").iterdir()] == [".so"]


@needs_compiler
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="not an x86 processor")
def test_numbers_below_the_least_are_zero_inside_alone():
    tiny = torch.full((2**16,), 1e-39)

    def kept():
        return (tiny * 1.0).count_nonzero().item()

    assert kept() == len(tiny)
    with native.flushing(tiny):
        assert kept() == 0  # in all threads
        with native.flushing(tiny):
            assert kept() == 0
        assert kept() == 0
        with native.flushing(tiny, pairs=1):
            assert kept() == 0
    assert kept() == len(tiny)
    with native.flushing(tiny, pairs=1):  # too few pairs
        assert kept() == len(tiny)
    with native.flushing(tiny.to("meta")):
        assert kept() == len(tiny)


@needs_compiler
@pytest.mark.parametrize("columns", [3, 64, 127, 128, 131, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_largest_of_rows(columns, dtype, monkeypatch):
    monkeypatch.setattr("regard.attention.kernels.summary.SEARCH", 2**30)  # few pay, too
    x = torch.randn(5, columns, dtype=dtype)
    x[0], x[1, ::3], x[2, 1] = 0.5, -torch.inf, torch.nan
    x[3, 5:] = -1000  # fewer than k are larger
    k = min(16, columns)
    values, places = heaviest(x, k)
    expected = x.topk(k, -1).values
    expected[2] = torch.nan
    assert torch.equal(values.nan_to_num(7), expected.nan_to_num(7))
    known = torch.tensor([0, 1, 3, 4])
    assert torch.equal(x.gather(-1, places)[known], expected[known])
    assert places[0].unique().numel() == k


@needs_compiler
def test_a_strip_of_a_large_call_is_in_cpp():
    x = torch.zeros(2, 3)
    for least, whole, strip in ((100, False, False), (100, True, True), (0, True, False)):
        with using(Constants(native_hidden=least)), compiling(whole):
            assert (native.library_for("distances", x, 99) is not None) == strip
    q = torch.zeros(1, 8, 256, 8)
    assert explain(q, q, q, make_score("scaled-dot", "t5-bias", 8, 8, heads=8), causal()).compiled
    assert not explain(q, q, q, "scaled-dot", causal()).compiled
