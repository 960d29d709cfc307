"""Synthesizers against their formulas, one number at a time, and against assignment 5's layer."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from regard.attention import SCORES, KeyValueCache, MultiHeadAttention, attend, causal, make_score
from regard.attention.kernels.choose import use
from regard.core.errors import RegardError
from tests.attention.parts import KEYLESS, QUERYLESS, gradients, shifted

LENGTH = 11
every_synthesizer = pytest.mark.parametrize("name", KEYLESS)


def synthesizer(name, **options):
    """One for queries of width 3 and 11 positions, its parameters away from where they begin."""
    return shifted(SCORES[name](3, 5, length=LENGTH, **options).double())


def dense(score, q, i, j):
    total = score.bias[j, 0].item()
    for h in range(score.weight.shape[1]):
        unit = score.query_bias[0, h] + sum(q[c] * score.query_weight[c, h] for c in range(3))
        total += max(unit.item(), 0) * score.weight[j, h].item()
    return total


def random(score, q, i, j):
    return score.table[i, j].item()


def factorised(score, q, i, j):
    a, b = j % 4, j // 4
    of_a = score.a_bias[0, a] + sum(q[c] * score.a_weight[c, a] for c in range(3))
    of_b = score.b_bias[0, b] + sum(q[c] * score.b_weight[c, b] for c in range(3))
    return (of_a * of_b).item()


def factorised_random(score, q, i, j):
    assert score.rows.shape == score.columns.shape == (LENGTH, 8)
    return sum(score.rows[i, r].item() * score.columns[j, r].item() for r in range(8))


FORMULAS = {
    "synthesizer": dense,
    "synthesizer-random": random,
    "synthesizer-factorised": factorised,
    "synthesizer-factorised-random": factorised_random,
}


@every_synthesizer
@pytest.mark.parametrize("kernel", ["exact", "tiled", "fused"])
def test_formula(name, kernel):
    score, formula = synthesizer(name), FORMULAS[name]
    queries, keys = torch.randn(2, 4, 3).double(), torch.full((2, 6, 5), 1e3).double()
    values, rows, columns = torch.randn(2, 6, 7).double(), [3, 0, 9, 10], [1, 10, 4, 5, 8, 0]
    with use(kernel):
        attended = attend(
            queries,
            keys,
            values,
            score,
            query_positions=torch.tensor(rows),
            key_positions=torch.tensor(columns),
        )
    for b in range(2):
        each = zip(queries[b], rows, strict=True)
        scores = [[formula(score, q, i, j) for j in columns] for q, i in each]
        weights = torch.tensor(scores, dtype=torch.float64).softmax(-1)
        assert_close(attended.weights[b], weights, atol=1e-12, rtol=1e-12)
        assert_close(attended.output[b], weights @ values[b], atol=1e-12, rtol=1e-12)


def test_every_synthesizer_has_a_formula():
    assert set(FORMULAS) == set(KEYLESS)


class SynthesizerAttention(nn.Module):
    """CS224N, assignment 5: softmax(ReLU(XA_i + b_1)B_i + b_2)(XV_i) under a causal mask.

    As the assignment lays it out: one A for all heads side by side, B and b_2 shared by them, one
    position fewer than a block has characters.
    """

    def __init__(self, width, heads, block):
        super().__init__()
        self.heads = heads
        self.w1 = nn.Linear(width, width)
        self.w2 = nn.Parameter(torch.randn(width // heads, block - 1))
        self.b2 = nn.Parameter(torch.randn(block - 1))
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        hidden = F.relu(self.w1(x)).view(batch, time, self.heads, -1).transpose(1, 2)
        v = self.value(x).view(batch, time, self.heads, -1).transpose(1, 2)
        scores = hidden @ self.w2[:, :time] + self.b2[:time]
        past = torch.ones(time, time, dtype=torch.bool).tril()
        y = scores.masked_fill(~past, -1e10).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, time, width))


@pytest.mark.parametrize("time", [1, 6, 9])
def test_assignment_5(time):
    theirs = SynthesizerAttention(12, 3, block=10).double()
    ours = MultiHeadAttention(12, 3, score="synthesizer", length=9).double()
    score = ours.attention.score
    with torch.no_grad():
        # A is the layer's projection of queries, and the score adds nothing to it.
        query_rows, _, value_rows = ours.project.weight.split(12)
        query_bias, _, value_bias = ours.project.bias.split(12)
        for mine, other in (
            (query_rows, theirs.w1.weight),
            (query_bias, theirs.w1.bias),
            (value_rows, theirs.value.weight),
            (value_bias, theirs.value.bias),
            (score.query_weight, torch.eye(4).double()),
            (score.query_bias, torch.zeros(1).double()),
            (score.weight, theirs.w2.T),
            (score.bias, theirs.b2[:, None]),
        ):
            mine.copy_(other)
        ours.output.load_state_dict(theirs.proj.state_dict())
    x = torch.randn(2, time, 12, dtype=torch.float64, requires_grad=True)
    mine, other = ours(x, mask=causal()), theirs(x)
    assert_close(mine, other, atol=1e-12, rtol=1e-12)
    of_x, of_project, of_b, of_bias = gradients(
        mine, x, ours.project.weight, score.weight, score.bias
    )
    expected = gradients(other, x, theirs.w1.weight, theirs.value.weight, theirs.w2, theirs.b2)
    found = (of_x, of_project[:12], of_project[24:], of_b.sum(0).T, of_bias.sum(0)[:, 0])
    assert_close(found, expected, atol=1e-12, rtol=1e-12)
    assert (of_project[12:24] == 0).all()  # keys are not read


@every_synthesizer
def test_positions_may_differ_from_text_to_text(name):
    # packed texts, each counted from 0: positions have a batch of their own
    score = make_score(name, "none", 3, 5, heads=2, length=LENGTH).double()
    queries, keys = torch.randn(3, 2, 4, 3).double(), torch.randn(3, 2, 6, 5).double()
    values = torch.randn(3, 2, 6, 7).double()
    rows, columns = torch.randint(LENGTH, (3, 4)), torch.randint(LENGTH, (3, 6))

    def output(q, k, v, rows, columns, score=score):
        return attend(q, k, v, score, query_positions=rows, key_positions=columns).output

    for kernel in ("exact", "fused"):
        with use(kernel):
            whole = output(queries, keys, values, rows, columns)
        for i in range(3):
            assert_close(whole[i], output(queries[i], keys[i], values[i], rows[i], columns[i]))
    one_row = output(queries, keys, values, rows[0], columns)
    assert_close(one_row[2], output(queries[2], keys[2], values[2], rows[0], columns[2]))
    plain = make_score(name, "none", 3, 5, length=LENGTH).double()
    given = queries[:, 0], keys[:, 0], values[:, 0], rows, columns
    assert_close(output(*given, plain)[1], output(*(x[1] for x in given), plain))


def test_a_fixed_random_synthesizer_is_kept_but_not_trained():
    score = SCORES["synthesizer-random"](length=LENGTH, fixed=True, heads=2)
    assert not list(score.parameters())
    assert score.state_dict()["table"].shape == (2, LENGTH, LENGTH)
    x = torch.randn(3, 2, 5, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(attend(x, x, x, score, causal()).output.sum(), x)
    assert gradient.any()  # through the values


def test_factors_give_each_position_a_pair_of_its_own():
    # 16 = 4 · 4: tiled twice, j mod 4 and j mod 4 again, there would be four different scores
    for length, factors in ((16, (4, 4)), (11, (4, 3)), (1, (1, 1)), (2, (2, 1))):
        score = SCORES["synthesizer-factorised"](3, 3, length=length)
        assert (score.a, score.b) == factors
        queries, positions = torch.randn(1, 3), torch.arange(length)
        prepared = score.prepare_queries(queries, positions[:1])
        keys = score.prepare_keys(torch.randn(length, 3), positions)
        scores = score.compare(prepared, keys, (positions[:1], positions))
        assert len(scores.unique()) == length
    assert SCORES["synthesizer-factorised"](3, 3, length=12, a=6).b == 2


@every_synthesizer
def test_scores_begin_with_a_spread_that_sizes_do_not_move(name):
    for width, length in ((8, 40), (64, 300)):
        score, positions = SCORES[name](width, width, length=length), torch.arange(length)
        queries, keys = torch.randn(length, width), torch.randn(length, width)
        prepared = score.prepare_queries(queries, positions), score.prepare_keys(keys, positions)
        spread = score.compare(*prepared, (positions, positions)).std().item()
        assert spread == pytest.approx(1, rel=0.35)


@every_synthesizer
def test_mixed_precision_trains(name):
    layer = MultiHeadAttention(12, 3, score=name, length=LENGTH)
    x = torch.randn(2, 7, 12, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(x, mask=causal())
    assert_close(output.float(), layer(x, mask=causal()), atol=0.1, rtol=0.1)
    output.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    assert all(p.grad.any() for p in layer.attention.score.parameters())


@every_synthesizer
def test_a_longer_text_than_it_was_made_for_is_refused(name):
    layer = MultiHeadAttention(12, 3, score=name, length=4)
    says = f"score '{name}' has length=4, positions 0 to 3; positions 0 to 4 need a larger length"
    with pytest.raises(RegardError, match=says):
        layer(torch.randn(2, 5, 12))
    cache = KeyValueCache()
    layer(torch.randn(2, 4, 12), mask=causal(), cache=cache)
    with pytest.raises(RegardError, match="positions 4 to 4 need"):
        layer(torch.randn(2, 1, 12), mask=causal(), cache=cache)


@every_synthesizer
def test_what_has_to_be_told_is_asked_for(name):
    with pytest.raises(RegardError, match=f"score '{name}' has parameters for each position"):
        SCORES[name](3, 3)
    if name in QUERYLESS:
        assert SCORES[name](length=4).query_width is None
        return
    with pytest.raises(RegardError, match=f"score '{name}' has parameters; pass query_width="):
        SCORES[name](length=4)
    with pytest.raises(RegardError, match="takes queries and keys of widths 3 and 9"):
        attend(torch.ones(2, 4), torch.ones(2, 9), torch.ones(2, 9), SCORES[name](3, length=4))
