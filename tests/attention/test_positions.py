"""Positions: the formulas, the rotation, the bias at the moment of decoding."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    POSITIONS,
    SCORES,
    KeyValueCache,
    MultiHeadAttention,
    Score,
    attend,
    causal,
    input_positions,
    make_score,
    sinusoidal,
    use,
)
from regard.attention.positions import RelativeKeys
from regard.attention.positions.biases import Alibi, RelativeBias, t5_bucket
from regard.attention.positions.rotary import rotate
from regard.attention.positions.sines import rotation
from regard.core.errors import RegardError
from regard.core.trusted import trust

IN_SCORES = [name for name, kind in POSITIONS.items() if kind and issubclass(kind, Score)]


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sinusoidal_by_the_formula(width):
    table = sinusoidal(torch.arange(40), width, torch.float64)
    for i in (0, 1, 7, 39):
        for h in range(width):
            if h % 2 == 0:
                expected = math.sin(i / 10000 ** (h / width))
            else:
                expected = math.cos(i / 10000 ** ((h - 1) / width))
            assert table[i, h].item() == pytest.approx(expected, abs=1e-14)
    assert sinusoidal(torch.arange(40), width).dtype == torch.float32


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("shift", [1, 5, -3])
def test_a_rotation_moves_one_position_to_another(width, shift):
    positions = torch.arange(3, 8193)
    here = sinusoidal(positions, width, torch.float64)
    there = sinusoidal(positions + shift, width, torch.float64)
    matrix = rotation(shift, width)
    for j in range(width // 2):
        angle = shift / 10000 ** (2 * j / width)
        cos, sin = math.cos(angle), math.sin(angle)
        turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
        pair = slice(2 * j, 2 * j + 2)
        assert (matrix[pair, pair] - turn).abs().max() < 1e-15
        assert matrix[pair].count_nonzero() == 4
        assert (here[:, pair] @ turn.T - there[:, pair]).abs().max() < 1e-12
    even = width - width % 2
    assert ((here @ matrix.T - there)[:, :even]).abs().max() < 1e-12
    assert matrix[even:, even:].tolist() == [[1]] * (width % 2)
    assert rotation(shift, 1).tolist() == [[1]]


def test_sinusoidal_positions_are_added():
    module = input_positions("sinusoidal", 6)
    for n in (3, 9, 4):
        assert_close(
            module(torch.ones(2, n, 6)) - 1, sinusoidal(torch.arange(n), 6).expand(2, n, 6)
        )
    positions = torch.tensor([[5, 6, 7], [0, 1, 2]])
    assert_close(module(torch.ones(2, 3, 6), positions) - 1, sinusoidal(positions, 6))
    double = module.double()(torch.zeros(1, 4, 6, dtype=torch.float64))
    assert torch.equal(double[0], sinusoidal(torch.arange(4), 6, torch.float64))
    assert not module.state_dict()


def test_a_change_of_dtype_leaves_the_table_of_sines_as_long_as_it_was():
    module = input_positions("sinusoidal", 6)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        module(torch.zeros(1, 9, 6, dtype=dtype))
    assert len(module.table) == 9


def test_threads_of_several_dtypes_share_a_table_of_sines():
    module, before = input_positions("sinusoidal", 6), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def added(i: int) -> None:
        dtype = (torch.float32, torch.float64)[i % 2]
        n = 1 + i % 50
        given = module(torch.zeros(1, n, 6, dtype=dtype))[0]
        assert torch.equal(given, sinusoidal(torch.arange(n), 6, dtype))

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(added, range(300)))
    finally:
        sys.setswitchinterval(before)


def test_learned_positions_are_rows_of_a_table():
    module = input_positions("learned", 6, length=5)
    x = torch.zeros(2, 4, 6)
    assert torch.equal(module(x)[1], module.table[:4])
    positions = torch.tensor([[4, 0, 0, 1], [3, 2, 1, 0]])
    assert torch.equal(module(x, positions), module.table[positions])
    with pytest.raises(RegardError, match="end at length=5, but the input needs 6"):
        module(torch.zeros(2, 6, 6))
    with pytest.raises(RegardError, match="end at length=5, but the input needs 8"):
        module(x, positions + 3)
    with pytest.raises(RegardError, match="length="):
        input_positions("learned", 6)


def test_two_kinds_in_one_table():
    kinds = {name: input_positions(name, 4, length=9) is not None for name in POSITIONS}
    added = {"sinusoidal", "learned", "tree-depth"}
    assert {name for name, there in kinds.items() if there} == added
    for name in POSITIONS:
        wrapped = type(make_score("dot", name, 4, 4)) is not SCORES["dot"]
        assert wrapped == (name not in (*added, "none"))


@pytest.mark.parametrize("width", [6, 7])
def test_rotary_turns_pairs(width):
    x = torch.randn(5, width, dtype=torch.float64)
    positions, half = torch.tensor([0, 1, 2, 100, 7]), width // 2
    turned = rotate(x, positions)
    for i, position in enumerate(positions.tolist()):
        for h in range(half):
            angle = position / 10000 ** (h / half)
            a, b = x[i, h].item(), x[i, h + half].item()
            assert turned[i, h].item() == pytest.approx(a * math.cos(angle) - b * math.sin(angle))
            assert turned[i, h + half].item() == pytest.approx(
                b * math.cos(angle) + a * math.sin(angle)
            )
    assert torch.equal(turned[:, 2 * half :], x[:, 2 * half :])


def zero(score: Score) -> torch.Tensor:
    """What is added to scores of 0 for 6 positions."""
    x = torch.zeros(1, score.heads, 6, 4)
    positions = torch.arange(6)
    compared = score.compare(
        score.prepare_queries(x, positions),
        score.prepare_keys(x, positions),
        (positions, positions),
    )
    return compared[0]


def test_alibi_by_the_formula():
    added = zero(make_score("scaled-dot", "alibi", 4, 4, heads=8))
    for head in range(8):
        for i in range(6):
            for j in range(6):
                assert added[head, i, j].item() == -(2.0 ** -(head + 1)) * abs(i - j)
    six = Alibi(SCORES["dot"](heads=6)).slopes.flatten().tolist()
    assert six == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]


def t5_reference(relative, bidirectional, buckets=32, farthest=128):
    """Raffel et al.'s code, one number at a time."""
    first, n = 0, -relative
    if bidirectional:
        buckets //= 2
        if n < 0:
            first, n = buckets, -n
    else:
        n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    far = exact + int(math.log(n / exact) / math.log(farthest / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets(bidirectional):
    distances = torch.arange(-300, 301)
    expected = [t5_reference(d, bidirectional) for d in distances.tolist()]
    assert t5_bucket(distances, 32, 128, bidirectional).tolist() == expected


def test_t5_bias_is_looked_up_by_distance():
    score = RelativeBias(SCORES["dot"](4, 4, heads=2), buckets=8, farthest=4)
    added = zero(score)
    for i in range(6):
        for j in range(6):
            bucket = t5_reference(j - i, True, 8, 4)
            assert torch.equal(added[:, i, j], score.bias[:, bucket])


def test_relative_keys_by_the_formula():
    score = RelativeKeys(SCORES["scaled-dot"](3, 3), farthest=2).double()
    q, k = (torch.randn(n, 3, dtype=torch.float64) for n in (5, 7))
    weights = attend(q, k, k, score).weights
    scores = torch.empty(5, 7, dtype=torch.float64)
    for i in range(5):
        for j in range(7):
            a = score.distance_keys[max(-2, min(2, j - (i + 2))) + 2]
            scores[i, j] = q[i] @ (k[j] + a) / math.sqrt(3)
    assert_close(weights, torch.softmax(scores, -1))
    with pytest.raises(RegardError, match="give its score query_width="):
        RelativeKeys(SCORES["dot"]())


@pytest.mark.parametrize("position", ["alibi", "t5-bias"])
def test_the_bias_has_its_size_when_decoding(position):
    # A bias that broadcasts from one row vanishes or doubles in cached steps elsewhere.
    layer = MultiHeadAttention(8, 2, position=position).double()
    with torch.no_grad():
        layer.project.weight[:8] = 0  # no query, so the bias alone decides
        layer.project.bias[:8] = 0
        for parameter in layer.attention.score.parameters():
            parameter.normal_(std=2)
    seen = []
    layer.attention.register_forward_hook(lambda module, given, attended: seen.append(attended))
    x, cache = torch.randn(1, 9, 8, dtype=torch.float64), KeyValueCache()
    for i in range(9):
        layer(x[:, i : i + 1], mask=causal(), cache=cache)
    bias = zero_bias(layer.attention.score, 9)
    for i, attended in enumerate(seen):
        assert_close(attended.weights[0, :, 0], torch.softmax(bias[:, i, : i + 1], -1))
    assert bias.std() > 0.1


def zero_bias(score, n):
    positions, x = torch.arange(n), torch.zeros(1, 2, n, 4, dtype=torch.float64)
    return score.compare(x, x, (positions, positions))[0]


@pytest.mark.parametrize(
    "position", ["rotary", "alibi", "t5-bias", "relative-keys", "disentangled", "tree-keys"]
)
def test_positions_of_a_batch(position):
    layer = MultiHeadAttention(8, 2, position=position).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 3, 4], [3, 7, 8, 20, 21]])
    whole = layer(x, positions=positions)
    for i in range(2):
        alone = layer(x[i : i + 1], positions=positions[i])
        assert_close(whole[i : i + 1], alone)
    assert not torch.allclose(whole[1], layer(x)[1])


@pytest.mark.parametrize(
    "position", ["alibi", "t5-bias", "relative-keys", "disentangled", "tree-keys"]
)
def test_one_query_asks_texts_that_stand_elsewhere(position):
    score = make_score("scaled-dot", position, 4, 4, heads=2).double()
    q, k = (torch.randn(b, 2, n, 4, dtype=torch.float64) for b, n in ((1, 5), (3, 7)))
    positions = torch.arange(7) + torch.tensor([[0], [4], [9]])
    whole = attend(q, k, k, score, key_positions=positions).output
    for i in range(3):
        alone = attend(q, k[i : i + 1], k[i : i + 1], score, key_positions=positions[i]).output
        assert_close(whole[i : i + 1], alone)


def test_a_score_of_the_users_own_by_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from regard import Score\n\n\nclass Near(Score):\n"
        "    def compare(self, queries, keys, positions):\n"
        "        return -(queries[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)\n\n\n"
        "class Odd(Near):\n    def __init__(self, steepness):\n        super().__init__()\n"
    )
    trust(path)
    made = make_score(f"{path}:Near", "alibi", 6, 6, heads=2)
    x = torch.randn(1, 2, 3, 6)
    expected = -(x[..., :, None, :] - x[..., None, :, :]).abs().sum(-1)
    positions = (torch.arange(3), torch.arange(3))
    assert torch.equal(made.inner.compare(x, x, positions), expected)
    with pytest.raises(RegardError, match=r"cannot be built as Odd\(query_width"):
        make_score(f"{path}:Odd", "none", 6, 6)
    with pytest.raises(RegardError, match="did you mean Near"):
        make_score(f"{path}:Naer")


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("position", IN_SCORES)
def test_keys_that_texts_share_have_the_positions_of_each(position, heads, axes, kernel):
    made = make_score("scaled-dot", position, 8, 8, heads=heads, length=9)
    of_heads = (heads,) if heads else ()
    queries, keys = torch.randn(3, *of_heads, 5, 8), torch.randn(1, *of_heads, 5, 8)
    positions = torch.arange(5) + torch.arange(3)[:, None]
    wanted = torch.cat([
        attend(row[None], keys, keys, made, query_positions=at, key_positions=at).output
        for row, at in zip(queries, positions, strict=True)
    ])  # fmt: skip
    shared = keys if axes == 3 else keys[0]
    with use(kernel):
        found = attend(
            queries, shared, shared, made, query_positions=positions, key_positions=positions
        ).output
    assert_close(found, wanted, atol=1e-5, rtol=1e-5)
