"""Disentangled attention beside a loop over pairs and beside transformers' DeBERTa."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.attention import MultiHeadAttention, attend, causal, explain, lengths, make_score, use
from regard.attention.positions.disentangled import Disentangled
from regard.attention.scores import Dot
from regard.core.errors import RegardError
from tests.attention.parts import drawn


@pytest.mark.parametrize("name", ["scaled-dot", "dot", "cosine"])
def test_each_pair_is_its_formula(name: str) -> None:
    torch.manual_seed(0)
    score = make_score(name, "disentangled-2", 3, 3, heads=2).double()
    assert isinstance(score, Disentangled)
    q, k = drawn(2, 4, 3), drawn(2, 7, 3, seed=1)
    rows, columns = torch.arange(2, 6), torch.arange(7)
    prepared = score.prepare_queries(q, rows), score.prepare_keys(k, columns)
    found = score.compare(*prepared, (rows, columns)).detach()
    scale = {"scaled-dot": 3**-0.5, "dot": 1.0, "cosine": 1.0}[name]
    for head in range(2):
        for i in range(4):
            for j in range(7):
                d = max(-2, min(2, j - (i + 2))) + 2
                a, b = (x[head, d].detach() for x in (score.distance_keys, score.distance_queries))
                x, y = q[head, i], k[head, j]
                content = x @ y / (x.norm() * y.norm()) if name == "cosine" else scale * x @ y
                expected = (content + scale * (x @ a + y @ b)) / math.sqrt(3)
                assert float(found[head, i, j]) == pytest.approx(float(expected), abs=1e-12)


def test_it_is_the_attention_of_deberta() -> None:
    """The weights of transformers' layer, without log buckets; its rows are those of i − j."""
    deberta = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    from transformers import DebertaV2Config

    torch.manual_seed(0)
    farthest, width, heads = 4, 12, 3
    config = DebertaV2Config(
        hidden_size=width,
        num_attention_heads=heads,
        relative_attention=True,
        position_buckets=-1,
        max_relative_positions=farthest,
        pos_att_type=["c2p", "p2c"],
        share_att_key=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = deberta.DisentangledSelfAttention(config).double().eval()
    ours = MultiHeadAttention(
        width, heads, position=f"disentangled-{farthest}", output_projection=False
    ).double()
    rows = drawn(2 * farthest, width, seed=2)
    apart = torch.arange(-farthest, farthest + 1)  # j − i
    at = (farthest - apart).clamp(0, 2 * farthest - 1)
    state = ours.state_dict()
    projections = theirs.query_proj, theirs.key_proj, theirs.value_proj
    state["project.weight"] = torch.cat([x.weight for x in projections])
    state["project.bias"] = torch.cat([x.bias for x in projections])
    for name, projection in (("keys", theirs.pos_key_proj), ("queries", theirs.pos_query_proj)):
        by_head = projection(rows)[at].unflatten(-1, (heads, -1)).transpose(0, 1)
        state[f"attention.score.distance_{name}"] = by_head
    ours.load_state_dict(state)
    x, valid = drawn(2, 11, width, seed=3), torch.tensor([11, 6])
    seen = torch.arange(11) < valid[:, None]
    expected, _ = theirs(x, seen[:, None, None], rel_embeddings=rows)
    for kernel in ("exact", "tiled"):
        with use(kernel):
            assert_close(ours(x, mask=lengths(valid)), expected)


def test_heads_that_share_keys_have_their_own_rows() -> None:
    torch.manual_seed(0)
    score = make_score("scaled-dot", "disentangled-3", 4, 4, heads=4).double()
    x = drawn(1, 4, 9, 4)
    few = x[:, :2]
    many = few.repeat_interleave(2, 1)
    for kernel in ("exact", "tiled"):
        with use(kernel):
            found = attend(x, few, few, score, causal()).output
        assert_close(found, attend(x, many, many, score, causal()).output)


def test_it_is_computed_in_strips() -> None:
    score = make_score("scaled-dot", "disentangled", 8, 8, heads=2)
    x = torch.zeros(1, 2, 4096, 8)
    plan = explain(x, x, x, score, causal())
    assert plan.kernel == "tiled"
    assert plan.megabytes < 64  # a table of the weights alone has 134


@pytest.mark.parametrize(
    ("name", "says"),
    [("disentangled-0", "a distance of at least 1, not 0"), ("disentangled-1.5", "not 1.5")],
)
def test_a_distance_that_is_none(name: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        make_score("dot", name, 4, 4)


def test_it_needs_a_width() -> None:
    with pytest.raises(RegardError, match="give its score query_width="):
        Disentangled(Dot())
