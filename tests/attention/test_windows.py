"""The kernels of bounded reach: sums by a double loop, the edge, digits, gradients."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import SCORES, attend, others, use
from regard.attention.scores.windows import Window

KERNELS = {"epanechnikov": lambda u: 0.75 * max(1 - u * u, 0), "boxcar": lambda u: (u <= 1) / 2}


def loop(kernel, w, queries, keys, values):
    """Σ K(w‖q − kᵢ‖) vᵢ / Σ K, one number at a time; zeros where no key is in reach."""
    rows = []
    for q in queries.tolist():
        far = [sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) ** 0.5 for k in keys.tolist()]
        weights = [kernel(w * u) for u in far]
        total = sum(weights) or 1
        rows.append([sum(a * v for a, v in zip(weights, values.tolist(), strict=True)) / total])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_divided_by_their_sum(name, kernel):
    queries, keys = (torch.randn(n, 3, dtype=torch.float64) for n in (9, 13))
    queries[4] += 50  # nothing in its reach
    values = torch.randn(13, 1, dtype=torch.float64)
    score = SCORES[name](inverse_width=0.625).double()
    with use(kernel):
        output = attend(queries, keys, values, score, normalize="sum").output
    assert_close(
        output, loop(KERNELS[name], 0.625, queries, keys, values[:, 0]), atol=1e-14, rtol=0
    )
    assert (output[4] == 0).all()
    assert (output != 0).sum() >= 7


def test_epanechnikov_learns_its_width_and_boxcar_cannot():
    keys, values = torch.randn(11, 2).double(), torch.randn(11, 1).double()
    slopes = {}
    for name in KERNELS:
        score = SCORES[name](2, 2).double()
        for kernel in ("exact", "tiled"):
            with use(kernel):
                output = attend(keys, keys, values, score, others(), normalize="sum").output
            (slope,) = (
                torch.autograd.grad(output.square().sum(), score.inverse_width)
                if output.requires_grad
                else (torch.zeros(()).double(),)
            )
            slopes[name, kernel] = slope
    assert_close(slopes["epanechnikov", "exact"], slopes["epanechnikov", "tiled"])
    assert slopes["epanechnikov", "exact"].abs() > 0.01
    assert slopes["boxcar", "exact"] == slopes["boxcar", "tiled"] == 0


def test_an_edge_far_from_zero_keeps_its_digits():
    # In float32 the squares of 2000 differ by quarters; these keys are a hundredth within reach.
    near = torch.tensor([[0.0], [0.375], [0.5], [0.625]])
    values = torch.tensor([[1.0], [2.0], [3.0], [100.0]])
    for name in KERNELS:
        score = SCORES[name](inverse_width=1 / 0.51)
        at_zero = attend(near[:1], near, values, score, normalize="sum").output
        far = attend(near[:1] + 2000, near + 2000, values, score, normalize="sum").output
        assert_close(far, at_zero, atol=1e-6, rtol=0)
        assert far < 3


@pytest.mark.parametrize("offset", [0.0, 40.0, 500.0])
def test_products_decide_the_edge_as_differences_do(offset):
    # On a lattice many pairs are exactly at the edge; far from zero a product needs float64.
    queries = torch.randint(-1, 2, (2, 300, 16)).float() + offset
    keys, values = queries.flip(-2), torch.randn(2, 300, 3)
    for name in KERNELS:
        found = []
        for kernel in ("exact", "tiled"):
            score = SCORES[name](16, 16, inverse_width=0.25)
            given = [x.clone().requires_grad_() for x in (queries, keys, values)]
            with use(kernel):
                attended = attend(*given, score, normalize="sum")
                output = attended.output
            of = [*given, score.inverse_width] if name == "epanechnikov" else [given[2]]
            found.append([output, *torch.autograd.grad(output.cos().sum(), of)])
        assert 0.01 < (attended.weights > 0).double().mean() < 0.9
        assert_close(found[1], found[0], atol=5e-5, rtol=5e-5)


def test_a_compiled_graph_has_no_statement_for_each_column():
    score = SCORES["epanechnikov"](64, 64)
    x, places = torch.randn(5, 64), (torch.arange(5), torch.arange(5))
    graph = torch.export.export(_Compared(score), (x, x), strict=True)
    assert len(graph.graph.nodes) < 40
    assert_close(graph.module()(x, x), score.compare(x, x, places))


class _Compared(torch.nn.Module):
    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, q, k):
        return self.score.compare(q, k, (torch.arange(5), torch.arange(5)))


def test_half_precision_finds_the_same_keys():
    queries, keys, values = (torch.randn(n, d).bfloat16() for n, d in ((9, 3), (200, 3), (200, 1)))
    score = SCORES["boxcar"](inverse_width=0.5)
    ours = attend(queries, keys, values, score, normalize="sum").weights
    exact = attend(queries.double(), keys.double(), values.double(), score.double(),
                   normalize="sum").weights  # fmt: skip
    assert torch.equal(ours > 0, exact > 0)


def test_where_they_start_unit_variance_is_in_reach():
    for width in (1, 16, 256):
        score = SCORES["boxcar"](width, width)
        x, y = torch.randn(100, width), torch.randn(100, width)
        positions = torch.arange(100), torch.arange(100)
        u = score.compare(
            score.prepare_queries(x, positions[0]), score.prepare_keys(y, positions[1]), positions
        )
        assert (u > 0).double().mean() > 0.7
    assert SCORES["epanechnikov"]().inverse_width.item() == 1


def test_a_window_without_a_kernel_says_so():
    with pytest.raises(NotImplementedError, match="Window has no kernel"):
        attend(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3), Window())
