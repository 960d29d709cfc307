"""The plan is a pure function of the call."""

import torch

from regard.attention import SCORES, make_score
from regard.attention.kernels.choose import asked, explain, plan, use


def test_plans():
    def kernel(**call):
        return plan(**{"inner_product": True, "normalize": "softmax", "keys": 300, **call}).kernel

    assert kernel() == "fused"
    assert kernel(inner_product=False) == "exact"
    assert kernel(normalize="other") == "exact"
    assert kernel(finite=False) == "exact"
    assert kernel(dropout=0.1) == "plain"
    assert kernel(dtype=torch.bfloat16) == "plain"
    assert kernel(dtype=torch.bfloat16, device="cuda") == "fused"
    assert kernel(dtype=torch.bfloat16, keys=513) == "fused"
    assert kernel(asked="exact", dropout=0.1) == "exact"
    assert kernel(asked="fused", dropout=0.1) == "plain"
    assert kernel(asked="fused", finite=False) == "exact"


def test_use_asks_inside_its_block_alone():
    assert asked() is None
    with use("plain"):
        assert asked() == "plain"
        with use("exact"):
            assert asked() == "exact"
        assert asked() == "plain"
    assert asked() is None


def test_explain_says_why():
    x = torch.zeros(2, 5, 4)
    assert explain(x, x, SCORES["additive"](4, 4)) == "exact: the score is no inner product"
    assert explain(x, x, make_score("cosine", "rotary")).startswith("fused: an inner product")
    assert explain(x, x, make_score("dot", "alibi")) == "exact: the score is no inner product"
