"""Rotary positions: their options, scalings beside transformers' own, xPos and PoPE."""

import math

import pytest
import torch

from regard.attention import attend, causal, make_score, use
from regard.attention.kernels.native import library
from regard.attention.positions import rotary
from regard.attention.positions.rotary import Pope, Rotary, XPos, rotate, speeds_of
from regard.attention.scores import Dot, ScaledDot
from regard.core.errors import RegardError
from tests.attention.parts import drawn

PLACES = torch.arange(6)


def test_windows_of_a_series_are_rotated_as_copies_are() -> None:
    windows = torch.randn(200, generator=torch.Generator().manual_seed(0)).unfold(-1, 100, 1)[:60]
    score = make_score("scaled-dot", "rotary", 100, 100)
    assert windows.stride() == (1, 1)
    found, expected = (attend(x, x, torch.eye(60), score).output
                       for x in (windows, windows.contiguous()))  # fmt: skip
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "scaling"),
    [
        ("rotary-base-500000", {"rope_type": "default", "rope_theta": 5e5}),
        ("rotary-linear-4", {"rope_type": "linear", "factor": 4.0}),
        ("rotary-yarn-4-2048", {"rope_type": "yarn", "factor": 4.0,
                                "original_max_position_embeddings": 2048}),
        ("rotary-base-500000-llama3-8-1024",
         {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024, "rope_theta": 5e5}),
    ],
)  # fmt: skip
def test_speeds_are_those_of_transformers(name: str, scaling: dict[str, object]) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=128, num_attention_heads=2, max_position_embeddings=8192,
        rope_parameters={"rope_theta": 1e4, **scaling},
    )  # fmt: skip
    kind = str(scaling["rope_type"])
    if kind == "default":
        expected, factor = LlamaRotaryEmbedding(config).inv_freq, 1.0
    else:
        expected, factor = utils.ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    score = make_score("dot", name, 64, 64)
    assert isinstance(score, Rotary)
    torch.testing.assert_close(score.speeds(64).float(), expected, rtol=2e-6, atol=0)
    x = torch.ones(1, 64, dtype=torch.float64)
    assert float(score.turn(x, torch.zeros(1))[0, 0]) == pytest.approx(factor)


def test_a_part_of_the_columns_is_rotated() -> None:
    score, x = make_score("dot", "rotary-part-0.5", 8, 8), drawn(6, 8)
    turned = score.prepare_queries(x, PLACES)
    assert isinstance(turned, torch.Tensor)
    assert torch.equal(turned[:, 4:], x[:, 4:])
    assert torch.equal(turned[:, :4], rotate(x[:, :4], PLACES))


def test_ntk_scaling_slows_the_slowest_columns_by_the_factor() -> None:
    scaled = Rotary(Dot(), ntk=4.0).speeds(16)
    assert float(scaled[0]) == 1.0
    assert float(scaled[-1] / speeds_of(16)[-1]) == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rotary-base-0.5", "needs a base above 1"),
        ("rotary-part-1.5", "at most 1"),
        ("rotary-linear-2-ntk-2", "takes one scaling, not linear and ntk"),
        ("rotary-linear-0.5", "a factor and a length of at least 1"),
        ("rotary-yarn-4", "other numbers than its part takes: it may be followed by -base-NUMBER"),
        ("rotary-9", "other numbers than its part takes"),
        ("rotary-speed-9", "other numbers than its part takes"),
        ("alibi-3", "it takes none"),
        ("rotory-base-9", "no position is called 'rotory-base-9'"),
    ],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        make_score("scaled-dot", name, 8, 8)


def test_xpos_is_its_formula_and_depends_on_distances_alone() -> None:
    score, q, k = XPos(Dot(6, 6)), drawn(6, 6), drawn(6, 6, seed=1)
    prepared = score.prepare_queries(q, PLACES), score.prepare_keys(k, PLACES)
    found = score.compare(*prepared, (PLACES, PLACES))
    zeta = [(h / 3 + 0.4) / 1.4 for h in range(3)]
    for i in range(6):
        for j in range(6):
            total = 0.0
            for h in range(3):
                angle = (i - j) * 10_000 ** (-h / 3)
                same = q[i, h] * k[j, h] + q[i, h + 3] * k[j, h + 3]
                cross = q[i, h + 3] * k[j, h] - q[i, h] * k[j, h + 3]
                turned = same * math.cos(angle) - cross * math.sin(angle)
                total += float(turned) * zeta[h] ** ((i - j) / 512)
            assert float(found[i, j]) == pytest.approx(total, abs=1e-12)
    away = torch.tensor([1000]) + PLACES
    moved = score.prepare_queries(q, away), score.prepare_keys(k, away)
    torch.testing.assert_close(score.compare(*moved, (away, away)), found)
    with pytest.raises(RegardError, match="use score=scaled-dot, not additive, or rotary"):
        make_score("additive", "xpos", 4, 4)
    with pytest.raises(RegardError, match="positions up to 32,768, not 40,000"):
        score.prepare_queries(q[:1], torch.tensor([40_000]))


def test_pope_is_its_formula() -> None:
    score = Pope(ScaledDot(4, 4, heads=2)).double()
    with torch.no_grad():
        score.shift.copy_(-drawn(2, 1, 4, seed=3).abs())
    q, k = drawn(2, 6, 4), drawn(2, 6, 4, seed=1)
    prepared = score.prepare_queries(q, PLACES), score.prepare_keys(k, PLACES)
    found = score.compare(*prepared, (PLACES, PLACES))
    lengths = [torch.nn.functional.softplus(x) for x in (q, k)]
    speeds = 10_000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    apart = (PLACES[None, :] - PLACES[:, None])[..., None] * speeds
    for head in range(2):
        turned = (apart + score.shift[head, 0]).cos()
        products = lengths[0][head][:, None] * lengths[1][head][None] * turned
        torch.testing.assert_close(found[head], products.sum(-1) / 2)
    assert score.acceleration.inner_product
    x = drawn(1, 2, 6, 4)
    with use("fused"):
        fused = attend(x, x, x, score, causal(), heads=2).output
    with use("tiled"):
        torch.testing.assert_close(attend(x, x, x, score, causal(), heads=2).output, fused)
    with pytest.raises(RegardError, match="use score=scaled-dot, not cosine"):
        make_score("cosine", "pope", 4, 4)
    with pytest.raises(RegardError, match="give its score query_width="):
        make_score("dot", "pope")


def test_yarn_slows_the_columns_that_turn_less_than_once_in_the_trained_length():
    """Column i turns 2048 · 10000^(−i/32) / 2π times: 32 times at 8.1, once at 20.1."""
    plain = 10_000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    speeds = Rotary(Dot(), yarn=(4.0, 2048.0)).speeds(64)
    torch.testing.assert_close(speeds[:9], plain[:9])
    torch.testing.assert_close(speeds[21:], plain[21:] / 4)
    share = (14 - 8) / (21 - 8)
    torch.testing.assert_close(speeds[14], plain[14] * (share / 4 + 1 - share))


LAYOUTS = {
    "heads of a projection": lambda x: x.transpose(1, 2),  # (2, heads, 7, width), rows apart
    "a part of the columns": lambda x: x.transpose(1, 2)[..., :9],
    "no heads": lambda x: x[0, :, 0],
    "one text": lambda x: x[0].transpose(0, 1).contiguous(),
    "five axes": lambda x: x[:, None].transpose(2, 3),
}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_rotated_in_one_pass_as_by_the_formula(layout, each, monkeypatch):
    monkeypatch.setattr(rotary, "MANY", 1)
    whole = drawn(2, 7, 3, 12)
    x = LAYOUTS[layout](whole).requires_grad_()
    places = torch.arange(7) + 3
    if each and x.ndim == 4:  # positions of each text, the same for all heads
        places = torch.stack([places, places + 90]).unsqueeze(1)
    found = []
    for kernel in ("exact", "fused"):
        with use(kernel):
            y = rotate(x, places, factors=2.0)
        (slope,) = torch.autograd.grad(y.cos().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), x)
        (plain,) = torch.autograd.grad(rotate(x, places).sum(), x)  # a gradient without strides
        found.append((y, slope, second, plain))
    assert library("rows") is None or layout == "five axes" or "Rotated" in y.grad_fn.name()
    torch.testing.assert_close(found[1], found[0], atol=1e-12, rtol=1e-12)
