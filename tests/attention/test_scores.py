"""Each score against its formula, written out with plain loops."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from regard.attention import SCORES, Acceleration, Mask, Score, attend, lengths, make_score
from regard.attention.kernels.choose import use
from regard.core.errors import RegardError
from tests.attention.parts import KEYLESS, shifted

WINDOWS = ["epanechnikov", "boxcar"]
#: Differences and sums of what is large beside them: computed in float32 on purpose.
FINER = [*WINDOWS, "gaussian", "additive"]


def dot(score, q, k):
    return sum(a * b for a, b in zip(q, k, strict=True))


def scaled_dot(score, q, k):
    return dot(score, q, k) / math.sqrt(len(q))


def cosine(score, q, k):
    return dot(score, q, k) / math.sqrt(dot(score, q, q) * dot(score, k, k))


def cosine_temperature(score, q, k):
    return math.exp(score.temperature.item()) * cosine(score, q, k)


def gaussian(score, q, k):
    w = score.inverse_width.item()
    return -0.5 * sum((w * (a - b)) ** 2 for a, b in zip(q, k, strict=True))


def u_squared(score, q, k):
    w = score.inverse_width.item()
    return sum((w * (a - b)) ** 2 for a, b in zip(q, k, strict=True))


def epanechnikov(score, q, k):
    return 0.75 * max(1 - u_squared(score, q, k), 0)


def boxcar(score, q, k):
    return 0.5 if u_squared(score, q, k) <= 1 else 0.0


def general(score, q, k):
    W = score.weight.tolist()
    return sum(q[i] * W[i][j] * k[j] for i in range(len(q)) for j in range(len(k)))


def additive(score, q, k):
    W_q, W_k = score.query_weight.tolist(), score.key_weight.tolist()
    w, b = score.weight.flatten().tolist(), score.bias.flatten().tolist()
    total = 0.0
    for h in range(len(w)):
        of_query = sum(W_q[i][h] * q[i] for i in range(len(q)))
        of_key = sum(W_k[j][h] * k[j] for j in range(len(k)))
        total += w[h] * math.tanh(of_query + of_key + b[h])
    return total


FORMULAS = {
    "dot": dot,
    "scaled-dot": scaled_dot,
    "general": general,
    "additive": additive,
    "cosine": cosine,
    "cosine-temperature": cosine_temperature,
    "gaussian": gaussian,
    "epanechnikov": epanechnikov,
    "boxcar": boxcar,
}


def literally(formula, score, queries, keys, values):
    """Σⱼ softmax(score(q, kⱼ)) vⱼ, one number at a time."""
    rows = []
    for q in queries.tolist():
        raised = [math.exp(formula(score, q, k)) for k in keys.tolist()]
        weights = [e / sum(raised) for e in raised]
        rows.append(
            [sum(w * v[c] for w, v in zip(weights, values.tolist(), strict=True)) for c in range(4)]
        )
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("kernel", ["exact", "plain", "fused"])
def test_formula(name, kernel):
    key_width = 5 if name in ("general", "additive") else 3
    score = shifted(SCORES[name](3, key_width).double(), 0.5)
    queries = torch.randn(2, 6, 3, dtype=torch.float64)
    keys = torch.randn(2, 7, key_width, dtype=torch.float64)
    values = torch.randn(2, 7, 4, dtype=torch.float64)
    with use(kernel):
        output = attend(queries, keys, values, score).output
    for i in range(2):
        expected = literally(FORMULAS[name], score, queries[i], keys[i], values[i])
        assert_close(output[i], expected, atol=1e-12, rtol=1e-12)


def test_every_row_of_the_table_has_a_formula():
    assert not set(FORMULAS) & set(KEYLESS)  # these have theirs in test_synthesizer.py
    assert set(FORMULAS) | set(KEYLESS) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
def test_heads_have_their_own_parameters(name):
    score = shifted(SCORES[name](3, 3, heads=2, length=5).double(), 0.5)
    x = torch.randn(4, 2, 5, 3, dtype=torch.float64)
    whole = attend(x, x, x, score).output
    for head in range(2):
        one = SCORES[name](3, 3, length=5).double()
        one.load_state_dict(
            {
                key: value[head].view(one.state_dict()[key].shape)
                for key, value in score.state_dict().items()
            }
        )
        part = x[:, head]
        assert_close(attend(part, part, part, one).output, whole[:, head])


@pytest.mark.parametrize("name", [n for n in SCORES if n not in FINER])
def test_scores_keep_the_precision_of_their_queries(name):
    score = make_score(name, query_width=8, key_width=8, heads=2, length=5)
    queries, keys, positions = *torch.randn(2, 3, 2, 5, 8, dtype=torch.bfloat16), torch.arange(5)
    with torch.autocast("cpu", torch.bfloat16):
        found = score.prepare_queries(queries, positions), score.prepare_keys(keys, positions)
    kinds = {x.dtype for one in found for x in ([one] if torch.is_tensor(one) else one)}
    assert kinds == {torch.bfloat16}


def test_additive_takes_hidden_units():
    score = SCORES["additive"](3, 5, hidden=11)
    assert score.query_weight.shape == (3, 11)
    assert SCORES["additive"](3, 5).query_weight.shape == (3, 5)


def test_gaussian_far_from_zero_keeps_its_digits():
    # Quarters of years: in float32 the squares of 2000 leave little of such a difference.
    near = torch.arange(40).view(2, -1, 1) / 8
    far, values, score = near + 2000, torch.randn(2, 20, 2), SCORES["gaussian"]()
    expected = attend(near, near, values, score).output
    assert_close(attend(far, far, values, score).output, expected, atol=1e-6, rtol=0)
    hidden = far.clone()
    hidden[0, :3] = -1e6  # nobody sees it, so it is no place to measure from
    mask = Mask(lambda rows, columns: columns[..., None, :] >= 3)
    masked = attend(far, hidden, values, score, mask).output
    expected = attend(near, near, values, score, mask).output
    assert_close(masked, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["scaled-dot", "general", "cosine-temperature", "gaussian"])
def test_scores_begin_with_a_spread_that_the_width_does_not_move(name):
    spread = 1.5**0.5 if name == "gaussian" else 1  # of w²q·k 1, of w²‖q‖²/2 another half
    for width in (16, 256):
        score = SCORES[name](width, width)
        q, k, positions = torch.randn(200, width), torch.randn(200, width), torch.arange(200)
        prepared = score.prepare_queries(q, positions), score.prepare_keys(k, positions)
        scores = score.compare(*prepared, (positions, positions))
        assert (scores - scores.mean(0)).std().item() == pytest.approx(spread, rel=0.2)


def test_temperature_is_one_a_head_and_starts_where_scaled_dot_is():
    assert SCORES["cosine-temperature"](16, 16).temperature.exp().item() == pytest.approx(4)
    assert SCORES["cosine-temperature"]().temperature.exp().item() == 1
    assert SCORES["cosine-temperature"](16, 16, heads=3).temperature.shape == (3, 1, 1)


def test_gaussian_starts_where_scaled_dot_is():
    assert SCORES["gaussian"](16, 16).inverse_width.item() == pytest.approx(0.5)
    assert SCORES["gaussian"]().inverse_width.item() == 1


@pytest.mark.parametrize(
    "name", ["dot", "scaled-dot", "cosine", "cosine-temperature", "gaussian", *WINDOWS]
)
def test_one_width(name):
    says = (
        f"score {name!r} needs queries and keys of the same width, not 5 and 7; "
        "use 'general' or 'additive'"
    )
    with pytest.raises(RegardError) as error:
        SCORES[name](5, 7)
    assert str(error.value) == says
    with pytest.raises(RegardError) as error:
        attend(torch.ones(2, 5), torch.ones(3, 7), torch.ones(3, 4), SCORES[name]())
    assert str(error.value) == says


@pytest.mark.parametrize("name", ["general", "additive"])
def test_widths_are_those_it_was_made_for(name):
    with pytest.raises(RegardError, match="takes queries and keys of widths 5 and 7, not 7 and 5"):
        attend(torch.ones(2, 7), torch.ones(3, 5), torch.ones(3, 4), SCORES[name](5, 7))
    with pytest.raises(RegardError, match="pass query_width and key_width"):
        SCORES[name]()
    assert SCORES[name](5).key_width == 5


def test_unknown_names_offer_the_nearest():
    with pytest.raises(RegardError, match="did you mean additive"):
        make_score("aditive", "none", 3, 3)
    with pytest.raises(RegardError, match="did you mean rotary"):
        make_score("dot", "rotari", 3, 3)


class Nearest(Score):
    """A user's own score: −Σ |q − k|, the prepare methods left as they are."""

    def compare(self, queries, keys, positions):
        return -(queries[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)


def test_a_users_score_is_a_class_with_compare():
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    weights = attend(x, x, x, Nearest()).weights
    expected = torch.softmax(-torch.cdist(x, x, p=1), -1)
    assert_close(weights, expected)
    wrapped = make_score("dot", "alibi", 3, 3)
    wrapped.inner = Nearest()
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    expected = torch.softmax(-torch.cdist(x, x, p=1) - distance * 2**-8, -1)
    assert_close(attend(x, x, x, wrapped).weights, expected)
    with use("tiled"):
        assert_close(attend(x, x, x, wrapped).output, expected @ x)


class Told(Acceleration):
    """What a user knows of a score: a quicker way, here with a mark of its own, and a dtype."""

    def fast_compare(self, score, queries, keys, positions):
        return score.compare(queries, keys, positions) - 50 * (positions[1] == 0)

    def needs_upcast(self, score, queries, keys):
        return queries.dtype == torch.float32


def test_a_users_acceleration_is_taken_by_tiles_alone():
    class Marked(Nearest):
        acceleration = Told()

    x = torch.randn(2, 5, 3)
    distances = torch.cdist(x.double(), x.double(), p=1)
    with use("exact"):
        attended = attend(x, x, x, Marked())
    assert_close(attended.weights, torch.softmax(-distances, -1).float(), atol=1e-7, rtol=1e-7)
    for score in (Marked(), wrapped := make_score(Marked, "alibi", 3, 3)):
        with use("tiled"):
            output = attend(x, x, x, score).output
        if score is wrapped:
            distances = distances + (torch.arange(5)[:, None] - torch.arange(5)).abs() * 2**-8
        wanted = torch.softmax(-distances[..., 1:], -1).float() @ x[..., 1:, :]
        assert_close(output, wanted, atol=1e-6, rtol=1e-6)


class OnlyNear(Score):
    """−∞ beyond a distance of 1: counts as masked."""

    def compare(self, queries, keys, positions):
        far = torch.cdist(queries, keys) > 1
        return (queries @ keys.mT).masked_fill(far, -torch.inf)


def test_a_score_of_minus_infinity_is_masked():
    queries = torch.tensor([[[0.0], [9.0]]], requires_grad=True)
    keys = torch.tensor([[[0.5], [3.0]]])
    attended = attend(queries, keys, torch.tensor([[[2.0], [4.0]]]), OnlyNear())
    assert attended.output.flatten().tolist() == [2, 0]
    assert attended.weights.tolist() == [[[1, 0], [0, 0]]]
    (gradient,) = torch.autograd.grad(attended.output.sum(), queries)
    assert gradient.isfinite().all()


def test_a_score_without_compare_says_so():
    with pytest.raises(NotImplementedError, match="Score has no compare"):
        attend(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3), Score())


@pytest.mark.parametrize("name", ["cosine", "cosine-temperature"])
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float16, 300), (torch.bfloat16, 300), (torch.float32, 1e30)]
)
def test_directions_of_long_and_of_zero_vectors(name: str, dtype: torch.dtype, size: float) -> None:
    """A norm whose square leaves the dtype's range made all weights equal, a hidden zero NaN."""
    queries, keys, values = (torch.randn(1, 6, 8).to(dtype) for _ in range(3))
    queries, keys[0, 5] = queries * size, 0
    made, mask = SCORES[name](8, 8), lengths([5])
    wide = [x.double() for x in (queries, keys, values)]
    wanted = attend(*wide, copy.deepcopy(made).double(), mask=mask).output
    for kernel in ("exact", "tiled", "fused"):
        with use(kernel):
            found = attend(queries, keys, values, made.to(dtype), mask=mask).output
        assert_close(found.double(), wanted, atol=0.02, rtol=0.02)
