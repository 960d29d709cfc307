"""Kernel regression against double loops and scikit-learn, and how w is learned."""

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from torch.testing import assert_close

from regard.core.errors import RegardError
from regard.lab.data.curve import curve
from regard.nn.models.kernel_regression import (
    KERNELS,
    NadarayaWatson,
    batches,
    error_of,
    learn,
    rule_of_thumb,
    search,
)

W = (0.7, 1.9)


def given(keys: int = 13) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Five queries, some keys, three values each."""
    return tuple(torch.randn(n, d, dtype=torch.float64) for n, d in ((5, 2), (keys, 2), (keys, 3)))


def curve_points(count: int = 50, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    points = curve(count, seed)
    y = torch.tensor(points.y)[:, None]
    return torch.tensor(points.x)[:, None], y - y.mean()


def squares(q, k):
    return sum((w * (a - b)) ** 2 for w, a, b in zip(W, q, k, strict=True))


def angle(q, k):
    wq, wk = ([w * x for w, x in zip(W, v, strict=True)] for v in (q, k))
    dot = sum(a * b for a, b in zip(wq, wk, strict=True))
    return dot / math.hypot(*wq) / math.hypot(*wk), dot


WEIGHTS = {
    "average": lambda q, k: 1.0,
    "gaussian": lambda q, k: math.exp(-squares(q, k) / 2),
    "epanechnikov": lambda q, k: 0.75 * max(1 - squares(q, k), 0),
    "boxcar": lambda q, k: 0.5 * (squares(q, k) <= 1),
    "cosine": lambda q, k: math.exp(angle(q, k)[0]),
    "dot": lambda q, k: math.exp(angle(q, k)[1]),
}


@pytest.mark.parametrize("kernel", WEIGHTS)
def test_every_kernel_is_its_double_loop(kernel):
    queries, keys, values = given(40)
    said = NadarayaWatson(kernel, W)(queries, keys, values)
    for q, row in zip(queries.tolist(), said.tolist(), strict=True):
        weights = [WEIGHTS[kernel](q, k) for k in keys.tolist()]
        total = sum(weights) or 1
        for c in range(3):
            mean = sum(w * v[c] for w, v in zip(weights, values.tolist(), strict=True)) / total
            assert row[c] == pytest.approx(mean, abs=1e-12)


def test_every_kernel_is_tested():
    assert set(WEIGHTS) | {"k-nearest"} == set(KERNELS)


def test_the_nearest_are_those_of_scikit_learn():
    queries, keys, values = given(400)
    said = NadarayaWatson("k-nearest", W, neighbors=7)(queries, keys, values)
    scale = torch.tensor(W, dtype=torch.float64)
    theirs = KNeighborsRegressor(7).fit((keys * scale).numpy(), values.numpy())
    assert_close(said, torch.tensor(theirs.predict((queries * scale).numpy())))


def test_fewer_keys_than_neighbours_are_all_of_them():
    queries, keys, values = given(3)
    said = NadarayaWatson("k-nearest", W, neighbors=7)(queries, keys, values)
    assert_close(said, values.mean(0).expand(5, 3))


@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "cosine", "dot"])
def test_leaving_one_out_is_predicting_without_it_and_its_gradient_is_the_slope(kernel):
    _, keys, values = given(9)
    model = NadarayaWatson(kernel, W)
    said = model.leave_one_out(keys, values)
    for i in range(9):
        rest = [j for j in range(9) if j != i]
        assert_close(said[i], model(keys[i : i + 1], keys[rest], values[rest])[0])
    rows = torch.tensor([7, 2])
    assert_close(model.leave_one_out(keys, values, rows), said[rows])
    (slope,) = torch.autograd.grad(said.square().sum(), model.log_w)
    for i in range(2):
        ends = []
        for step in (-1e-6, 1e-6):
            w = [x * math.exp(step * (i == j)) for j, x in enumerate(W)]
            ends.append(NadarayaWatson(kernel, w).leave_one_out(keys, values).square().sum())
        assert slope[i].item() == pytest.approx(
            (ends[1] - ends[0]).item() / 2e-6, rel=1e-5, abs=1e-7
        )


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_the_learned_w_is_the_best_of_a_grid(seed):
    x, y = curve_points(seed=seed)
    model = NadarayaWatson()
    walk = list(learn(model, x, y, steps=100))
    tried = search(
        lambda w: error_of(NadarayaWatson(w=w), x, y), [1.0], np.exp(np.arange(-1, 3, 0.04))
    )
    (best,), low = min(tried, key=lambda found: found[1])
    assert walk[-1].w[0] == pytest.approx(best, rel=0.06)
    assert error_of(model, x, y) < low * 1.002
    assert [step.number for step in walk] == list(range(101))
    assert walk[0].w == (1.0,)
    assert walk[0].loss == pytest.approx(error_of(NadarayaWatson(), x, y) / y.var(0, False).item())


def test_batches_learn_the_same_and_the_same_seed_the_same_bits():
    x, y = curve_points(200)
    found = []
    for batch, seed in ((200, 0), (50, 0), (50, 0), (50, 1)):
        model = NadarayaWatson()
        found.append([step.w[0] for step in learn(model, x, y, batch=batch, seed=seed)][-1])
    assert found[1] == pytest.approx(found[0], rel=0.15)
    assert found[1] == found[2]
    assert found[1] != found[3]


def test_what_says_nothing_gets_no_say():
    x, y = curve_points(200)
    noise = torch.randn(200, 1, dtype=torch.float64)
    flat = torch.zeros_like(noise)
    *_, last = learn(NadarayaWatson(w=[1, 1, 1]), torch.cat([x, noise, flat], 1), y, steps=150)
    assert last.w[0] > 3
    assert last.w[1] < 0.7
    assert last.w[2] == pytest.approx(1)


def test_equal_keys_and_equal_values_are_harmless():
    x = torch.tensor([[1.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    y = torch.tensor([[1.0], [3.0], [5.0], [7.0]], dtype=torch.float64)
    assert_close(NadarayaWatson(w=[9.0]).leave_one_out(x, y)[0], torch.tensor([4.0]).double())
    for wanted in (y, torch.ones_like(y)):
        assert all(math.isfinite(step.loss) for step in learn(NadarayaWatson(), x, wanted, steps=9))


def test_rows_of_batches_are_passes_over_all():
    some = batches(10, 5, seed=3)
    for _ in range(3):
        assert sorted(torch.cat([next(some), next(some)]).tolist()) == list(range(10))
    assert next(batches(4, 9, 0)).tolist() == [0, 1, 2, 3]


def test_a_search_goes_by_half_steps():
    tried = list(
        search(lambda w: (math.log(w[0] / 3)) ** 2 + abs(w[1] - 1), [1, 1], [0.5, 1, 2, 4], 3)
    )
    assert len(tried) == 2 * (4 + 2 + 2)
    assert [w[0] for w, _ in tried[8:10]] == pytest.approx([4 / 2**0.5, 4 * 2**0.5])
    best, low = min(tried, key=lambda found: found[1])
    assert best[0] == pytest.approx(2**1.5)
    assert best[1] == 1
    assert low < 0.01


def test_mistakes_are_named():
    with pytest.raises(RegardError, match="no kernel is called 'gausian'; did you mean gaussian"):
        NadarayaWatson("gausian")
    for w in ([0.0], [-1.0], [math.nan], [math.inf], []):
        with pytest.raises(RegardError, match="w must be above 0 and finite"):
            NadarayaWatson(w=w)
    with pytest.raises(RegardError, match="k must be at least 1"):
        NadarayaWatson("k-nearest", neighbors=0)
    x, y = curve_points(5)
    for kernel in ("boxcar", "average", "k-nearest"):
        with pytest.raises(RegardError, match=f"{kernel} has no gradient in w"):
            next(learn(NadarayaWatson(kernel), x, y))
    with pytest.raises(RegardError, match="requires two rows or more, not 1"):
        next(learn(NadarayaWatson(), x[:1], y[:1]))


def test_the_rule_of_thumb_is_silvermans():
    assert rule_of_thumb(100, 1) == pytest.approx(1.0592 * 100**-0.2, rel=1e-4)
    assert rule_of_thumb(1000, 2) == pytest.approx(1000 ** (-1 / 6))


def test_kernels_at_their_reach_smooth_alike():
    x = torch.linspace(-10, 10, 4001, dtype=torch.float64)[:, None]
    at = torch.zeros(1, 1, dtype=torch.float64)
    worth = {}
    for name in ("gaussian", "epanechnikov", "boxcar"):
        weights = NadarayaWatson(name, [1 / KERNELS[name].reach]).weights(at, x)[0]
        # Canonical bandwidths: roughness^(1/5) · variance^(−2/5) is the scale of a kernel.
        variance = (weights * x[:, 0] ** 2).sum()
        roughness = weights.square().sum() / 0.005
        worth[name] = (variance**2 / roughness).item()
    assert worth["epanechnikov"] == pytest.approx(worth["gaussian"], rel=0.01)
    assert worth["boxcar"] == pytest.approx(worth["gaussian"], rel=0.01)
