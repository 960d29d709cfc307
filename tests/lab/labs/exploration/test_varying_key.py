"""Keys of varying norm: the draws, the shares of each head, the theory, the intervals."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.lab.labs.exploration.varying_key import (
    ExplorationSettings,
    cosine_of,
    cosine_share,
    draw,
    expected,
    head_shares,
    interval,
    measure,
    miss,
    moments,
    one_head,
    orthonormal,
    pair_share,
    resample,
    single_share,
)

N, D, BETA = 5, 7, 3.0


def test_keys_have_the_covariance_of_the_assignment() -> None:
    generator = torch.Generator().manual_seed(0)
    means = orthonormal(generator, D, N)
    even, varied = draw(generator, means, 0.04, 40_000)
    assert_close(varied[:, 1:], even[:, 1:])
    along, across = varied[:, 0] @ means[0], varied[:, 0] @ means[1]
    assert float(along.mean()) == pytest.approx(1, abs=0.02)
    assert float(along.var()) == pytest.approx(0.54, rel=0.04)
    assert float(across.var()) == pytest.approx(0.04, rel=0.04)
    assert float((even[:, 0] @ means[0]).var()) == pytest.approx(0.04, rel=0.04)


def test_shares_are_softmax_weights() -> None:
    generator = torch.Generator().manual_seed(1)
    means = orthonormal(generator, D, N)
    _, keys = draw(generator, means, 0.01, 6)
    q1, q2 = BETA * means[0], BETA * means[1]
    assert_close(one_head(keys, means, BETA), (keys @ (q1 + q2)).softmax(-1)[:, :2])
    both = torch.stack([(keys @ q1).softmax(-1), (keys @ q2).softmax(-1)], 1)
    assert_close(head_shares(keys, means, BETA), both)
    unit = keys / keys.norm(dim=-1, keepdim=True)
    wanted = (unit @ (q1 + q2)).softmax(-1)[:, :2]
    assert_close(one_head(keys, means, BETA, cosine_of(BETA)), wanted)


def test_theory_is_the_share_of_exact_keys() -> None:
    """α = 0 and the wobble at z: the formulas against a softmax written out."""
    z = torch.tensor([-2.0, -0.3, 0.0, 1.1], dtype=torch.float64)
    g = 1 + math.sqrt(0.5) * z
    scores = torch.zeros(4, N, dtype=torch.float64)
    scores[:, 0], scores[:, 1] = BETA * g, BETA
    assert_close(single_share(N, 0.0, BETA)(z), scores.softmax(-1)[:, 0])
    first = torch.zeros(4, N, dtype=torch.float64)
    first[:, 0] = BETA * g
    second = torch.zeros(4, N, dtype=torch.float64)
    second[:, 1] = BETA
    wanted = (first.softmax(-1)[:, 0] + second.softmax(-1)[:, 0]) / 2
    assert_close(pair_share(N, 0.0, BETA)(z), wanted)
    scores[:, 0] = BETA * torch.sign(g)
    assert_close(cosine_share(N, D, 0.0, BETA)(z), scores.softmax(-1)[:, 0])
    assert_close(single_share(N, 0.0, BETA, wobble=0.0)(z), torch.full_like(z, math.exp(BETA)) / (
        2 * math.exp(BETA) + N - 2))  # fmt: skip


def test_limits_of_a_long_query() -> None:
    """One head: a coin, variance ¼. Two: half the draws' sign, ¼ p(1 − p), p = Φ(−√2)."""
    p = 0.5 * math.erfc(1.0)
    assert moments(single_share(16, 0.0, 1e4))[1] == pytest.approx(0.25, abs=1e-3)
    assert moments(pair_share(16, 0.0, 1e4))[1] == pytest.approx(p * (1 - p) / 4, abs=1e-4)
    assert moments(cosine_share(16, 64, 0.0, 100.0))[1] == pytest.approx(p * (1 - p) / 4, abs=1e-4)
    assert moments(cosine_share(16, 64, 1e-4, 100.0))[0] < 0.49 * (1 - p)  # short keys are lost
    assert miss(16, 0.0, 1e9) == pytest.approx(p, abs=1e-6)
    assert expected(lambda z: z**4) == pytest.approx(3)


def test_intervals_cover_a_known_variance() -> None:
    """Of 40 samples of a known variance, an interval of 95 % misses few."""
    random = np.random.default_rng(0)
    hits = 0
    for seed in range(40):
        sample = random.normal(size=(400, 1)) * 2
        _, variances = resample(sample, seed, lambda share: None)
        found = interval(float(sample.var(ddof=1)), variances[:, 0])
        hits += found.low <= 4.0 <= found.high
    assert 33 <= hits <= 40


def test_measured_is_theory() -> None:
    shown: list[float] = []
    found = measure(ExplorationSettings(d=8, keys=6, beta=12.0, draws=3_000), shown.append)
    for arm in (found.even, found.single, found.pair, found.cosine):
        assert arm.holds, arm.name
        assert arm.shares.shape == (3_000, 2)
    assert found.single.variance.value == pytest.approx(0.206, abs=0.006)
    assert found.pair.variance.value == pytest.approx(0.0213, abs=0.003)
    assert found.ratio.low < found.single.theory / found.pair.theory < found.ratio.high
    assert found.missed == pytest.approx(found.missed_theory, abs=0.02)
    assert len(found.curves[0]) == len(found.curves[1]) == 13
    assert shown[-1] <= 1
    assert shown == sorted(shown)
