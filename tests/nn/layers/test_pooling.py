import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention import SCORES, make_score
from regard.nn.layers.pooling import (
    AttentionPool,
    FirstPool,
    MaxPool,
    MeanPool,
    QueryFromMeanPool,
    mean_over_time,
)

X = torch.tensor([[[1.0, -2.0], [3.0, 4.0], [50.0, 50.0]], [[-6.0, -5.0], [9.0, 9.0], [7.0, 7.0]]])
LENGTHS = torch.tensor([2, 1])


def pools(width: int) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "mean": MeanPool(),
        "max": MaxPool(),
        "attention": AttentionPool(width, make_score("dot", "none", width, width)),
        "query-from-mean": QueryFromMeanPool(width, make_score("dot", "none", width, width)),
    }


def test_mean_by_hand() -> None:
    assert MeanPool()(X, LENGTHS).tolist() == [[2.0, 1.0], [-6.0, -5.0]]


def test_maximum_by_hand() -> None:
    assert MaxPool()(X, LENGTHS).tolist() == [[3.0, 4.0], [-6.0, -5.0]]


def test_first_by_hand() -> None:
    assert FirstPool()(X, LENGTHS).tolist() == [[1.0, -2.0], [-6.0, -5.0]]


def test_attention_with_a_learned_query_by_hand() -> None:
    pool = AttentionPool(2, make_score("dot", "none", 2, 2))
    with torch.no_grad():
        pool.query.copy_(torch.tensor([[0.5, 0.25]]))
    # q·t₁ = 0 and q·t₂ = 2.5.
    first, second = torch.tensor([0.0, 2.5]).softmax(0)
    expected = torch.stack([first * X[0, 0] + second * X[0, 1], X[1, 0]])
    assert_close(pool(X, LENGTHS), expected)


def test_query_from_the_mean_by_hand() -> None:
    torch.manual_seed(1)
    pool = QueryFromMeanPool(2, make_score("dot", "none", 2, 2))
    text = X[0, :2]
    query = pool.to_query.weight @ text.mean(0) + pool.to_query.bias
    weights = torch.exp(text @ query) / torch.exp(text @ query).sum()
    values = text @ pool.to_values.weight.T + pool.to_values.bias
    assert_close(pool(X, LENGTHS)[0], weights @ values)


@pytest.mark.parametrize("name", pools(2))
def test_nothing_is_read_beyond_a_text(name: str) -> None:
    pool = pools(6)[name]
    torch.manual_seed(2)
    x, lengths = torch.randn(4, 7, 6), torch.tensor([7, 3, 1, 5])
    expected = torch.stack([pool(x[i : i + 1, :n], lengths[i : i + 1])[0]
                            for i, n in enumerate(lengths.tolist())])  # fmt: skip
    assert_close(pool(x, lengths), expected, atol=1e-6, rtol=1e-6)
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = 1e4
    assert_close(pool(x, lengths), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", pools(2))
def test_an_empty_text_makes_zeros_and_finite_gradients(name: str) -> None:
    pool = pools(6)[name]
    x = torch.randn(2, 3, 6, requires_grad=True)
    pooled = pool(x, torch.tensor([0, 2]))
    assert pooled[0].count_nonzero() == 0
    pooled.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad[0].count_nonzero() == 0
    assert all(parameter.grad.isfinite().all() for parameter in pool.parameters())


@pytest.mark.parametrize("score", SCORES)
def test_any_score_may_pool(score: str) -> None:
    torch.manual_seed(3)
    for kind in (AttentionPool, QueryFromMeanPool):
        pool = kind(6, make_score(score, "none", 6, 6, length=5))
        pooled = pool(torch.randn(4, 5, 6), torch.tensor([5, 2, 1, 4]))
        assert pooled.shape == (4, 6)
        assert pooled.isfinite().all()


def test_the_mean_of_float64_stays_float64() -> None:
    assert mean_over_time(X.double(), LENGTHS).dtype == torch.float64
