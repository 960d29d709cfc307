import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.analysis.record import record
from regard.attention import (
    MECHANISMS,
    NORMALIZERS,
    POSITIONS,
    SCORES,
    MultiHeadAttention,
    Score,
    causal,
    global_tokens,
    sinusoidal,
    window,
)
from regard.attention import lengths as up_to
from regard.core.errors import RegardError
from regard.lab.tasks.models import MODELS
from regard.nn.models.settings import BETWEEN_PAIRS
from tests.attention.parts import BOUNDED, fits
from tests.nn.models.tiny import make, stir

TOKENS = torch.tensor([[5, 3, 9, 3, 12]])
LENGTHS = torch.tensor([5])


def words(model: torch.nn.Module) -> Tensor:
    return model.embedding.weight[TOKENS[0]]


def linear(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def softmax(scores: Tensor) -> Tensor:
    return torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)


def test_mean_by_hand() -> None:
    model = make("mean").eval()
    assert_close(model(TOKENS, LENGTHS)[0], linear(model.to_labels, words(model).mean(0)))


def test_attention_pool_by_hand() -> None:
    model = make("attention-pool", init_std=1.0).eval()
    t = words(model)
    p = softmax(t @ model.pool.query[0])
    assert p.max() > 0.3  # else the test would pass a mean
    assert_close(model(TOKENS, LENGTHS)[0], linear(model.to_labels, p @ t))


def test_query_from_mean_by_hand() -> None:
    model = make("query-from-mean", init_std=1.0).eval()
    t = words(model)
    p = softmax(t @ linear(model.pool.to_query, t.mean(0)))
    pooled = p @ linear(model.pool.to_values, t)
    assert_close(model(TOKENS, LENGTHS)[0], linear(model.to_labels, pooled))


@pytest.mark.parametrize("init_std", [1.0, 0.3])
@pytest.mark.parametrize(
    "name", ["self-attention", "+residual", "+positions", "+residual+positions", "+cls"]
)
def test_the_seeds_rungs_are_literal(name: str, init_std: float) -> None:
    """Three layers of x' = g(f(x)) or g(x + f(LN x)), written out from the seed.

    Sines are as large as the words: x = init_std · (e + pe), at init_std=1 the seed's x + pe.
    """
    model = make(name, init_std=init_std, seed=2).eval()
    x = words(model)
    if name == "+cls":
        x = torch.cat([model.cls[None], x])
    if "positions" in name or name == "+cls":
        x = x + init_std * sinusoidal(torch.arange(len(x)), 8)
    assert len(model.blocks) == 3
    for block in model.blocks:
        residual = "residual" in name or name == "+cls"
        normed = block.norm(x) if residual else x
        q, k, v = (linear_part(block.attention, normed, part) for part in range(3))
        seen = softmax(q @ k.T / 8**0.5) @ v
        x = torch.relu(linear(block.to_next, x + seen if residual else seen))
    pooled = x[0] if name == "+cls" else x.mean(0)
    expected = linear(model.to_labels, pooled)
    assert_close(model(TOKENS, LENGTHS)[0], expected, atol=1e-6, rtol=1e-5)


def test_the_literal_transformer_is_torchs() -> None:
    """block=post-norm activation=relu: Vaswani et al. 2017, as torch's encoder layer has it."""
    settings = {"block": "post-norm", "activation": "relu", "position": "sinusoidal"}
    model = make("transformer", layers=1, heads=2, pool="mean", init_std=1.0, **settings).eval()
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 19, 0.0, batch_first=True).eval()
    attention, feedforward = model.blocks[0].attention, model.blocks[0].feedforward
    ours = [attention.work.project, attention.work.output, feedforward.work.widen,
            feedforward.work.narrow, attention.norm, feedforward.norm]  # fmt: skip
    own = [tensor for layer in ours for tensor in (layer.weight, layer.bias)]
    assert len(own) == len(list(theirs.parameters()))
    with torch.no_grad():
        for old, tensor in zip(theirs.parameters(), own, strict=True):
            old.copy_(tensor)
    x = words(model) + sinusoidal(torch.arange(5), 8)
    expected = linear(model.to_labels, theirs(x[None])[0].mean(0))
    assert_close(model(TOKENS, LENGTHS)[0], expected, atol=1e-6, rtol=1e-5)


def linear_part(attention: torch.nn.Module, x: Tensor, part: int) -> Tensor:
    """q, k or v of self-attention with one head: rows of one weight, in that order."""
    rows = slice(8 * part, 8 * part + 8)
    return x @ attention.project.weight[rows].T + attention.project.bias[rows]


def test_every_attention_is_recorded() -> None:
    shapes = {
        "mean": [],
        "attention-pool": [(1, 1, 5)],
        "query-from-mean": [(1, 1, 5)],
        "self-attention": [(1, 1, 5, 5)] * 3,
        "+cls": [(1, 1, 6, 6)] * 3,
        "transformer": [(1, 4, 5, 5)] * 3 + [(1, 1, 5)],
    }
    for name, expected in shapes.items():
        model = make(name).eval()
        with torch.no_grad(), record(model) as recording:
            model(TOKENS[:, :2], torch.tensor([2]))
            model(TOKENS, LENGTHS)
        found = [tuple(attended.weights.shape) for _, attended in recording.layers]
        assert found == expected, name


def test_the_sizes_are_the_settings() -> None:
    sizes = {"width": 12, "heads": 3, "layers": 2, "feedforward": 7, "length": 23}
    model = make("transformer", position="learned", **sizes)
    assert len(model.blocks) == 2
    assert model.blocks[0].feedforward.work.widen.weight.shape == (7, 12)
    assert model.positions.table.shape == (23, 12)
    assert make("+cls", position="learned", length=23).positions.table.shape == (24, 8)


def test_a_text_as_long_as_the_setting_fits_behind_cls() -> None:
    model = make("+cls", position="learned", length=5)
    assert model(TOKENS, LENGTHS).isfinite().all()


def test_positions_between_words_need_a_layer() -> None:
    with pytest.raises(RegardError, match="layers=0 does not have; use layers=1"):
        make("mean", position="rotary")
    assert make("mean", position="sinusoidal") is not None


PADDED = torch.tensor([[5, 3, 9, 3, 12, 7], [4, 8, 11, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
SIZES = torch.tensor([6, 3, 0])

PARTS = [
    *({"score": score} for score in SCORES if score not in ("dot", "scaled-dot")),
    *({"pool_score": score} for score in SCORES if score != "dot"),
    *({"normalize": normalize} for normalize in NORMALIZERS if normalize != "softmax"),
    {"pattern": "causal"},
    {"pattern": "window-1"},
    {"pattern": "dilated-1-2+global-1"},
    {"pattern": "bigbird-1"},
    {"compress": "linformer"},
    {"compress": "linformer-3"},
    {"compress": "linformer-3", "position": "sinusoidal"},
    {"key_value_heads": 1},
    {"key_value_heads": 2},
    {"attention_dropout": 0.5},
    *({"attention": name} for name in MECHANISMS if name not in ("multi-head", "moba")),
    {"attention": "moba-2-1"},
]


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        pytest.param(name, chosen, id=",".join([name, *(f"{k}={v}" for k, v in chosen.items())]))
        for chosen in PARTS
        for name in ("transformer", "+cls")
        if name == "transformer" or "pool_score" not in chosen  # the pool of +cls compares nothing
    ],
)
def test_every_mechanism_by_name(name: str, chosen: dict[str, object]) -> None:
    """It computes something of its own, padding changes nothing, and it can be trained."""
    sizes = {"heads": 4, "layers": 2, "length": 7}
    model = stir(make(name, **{"init_std": 1.0, **sizes, **chosen}))
    logits = model(PADDED, SIZES)
    logits.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    without = {key for key, _ in stir(make(name, **sizes)).named_parameters()}
    added = [p for key, p in model.named_parameters() if key not in without]
    if not BOUNDED & {chosen.get("score"), chosen.get("pool_score")}:
        assert all(p.grad is not None and p.grad.any() for p in added)
    model.eval()
    with torch.no_grad():
        logits = model(PADDED, SIZES)
        for i, size in enumerate(SIZES):
            alone = model(PADDED[i : i + 1, : max(size, 1)], SIZES[i : i + 1])
            assert_close(alone[0], logits[i], atol=1e-5, rtol=1e-5)
        plain = stir(make(name, **{"init_std": 1.0, **sizes})).eval()(PADDED, SIZES)
    if "attention_dropout" in chosen or "top-k" in chosen.values():
        assert_close(logits, plain)  # dropout is for training, and no text has over 16 words
    else:
        assert (logits - plain).abs()[:2].max() > 1e-4


def test_the_settings_reach_the_layers() -> None:
    model = make(
        "transformer",
        heads=4,
        key_value_heads=2,
        normalize="sparsemax",
        attention_dropout=0.25,
        compress="linformer-5",
        length=23,
        pool_score="additive",
    )
    for block in model.blocks:
        assert block.attention.work.groups == 2
        assert block.attention.work.attention.normalize.name == "sparsemax"
        assert block.attention.work.attention.dropout == 0.25
        assert block.attention.work.attention.compress.key_projection.shape == (5, 23)
    assert model.pool.attention.normalize.name == "sparsemax"
    assert model.pool.attention.dropout == 0
    assert (
        make("+cls", compress="linformer", length=23).blocks[0].attention.attention.compress.length
        == 24
    )
    assert (
        make("+cls", score="synthesizer", length=23).blocks[0].attention.attention.score.length
        == 24
    )


@pytest.mark.parametrize(
    ("pattern", "mask"),
    [("causal", causal()), ("window-1+global-1", window(1) | global_tokens(1))],
)
def test_a_pattern_is_joined_with_the_lengths(pattern: str, mask: object) -> None:
    model = make("+cls", pattern=pattern).eval()
    seen = []
    model.blocks[0].attention.register_forward_pre_hook(
        lambda layer, args, kwargs: seen.append(kwargs["mask"]), with_kwargs=True
    )
    model(PADDED, SIZES)
    where = torch.arange(7)  # CLS stands in front
    expected = mask.allows(where, where) & up_to(SIZES + 1).allows(where, where)
    assert torch.equal(seen[0].allows(where, where), expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("position", POSITIONS)
def test_settings_refuse_what_the_layer_would(score: str, position: str) -> None:
    if not fits(score, position):
        return
    in_score = issubclass(POSITIONS[position] or Score, Score)
    of_score = {"score": score, "position": position if in_score else "none", "length": 9}
    chosen = {"score": score, "position": position, "compress": "linformer"}
    if position not in BETWEEN_PAIRS and "synthesizer" not in score:
        MultiHeadAttention(8, 2, compress="linformer", **of_score)
        MODELS["transformer"].configure(chosen)
        return
    with pytest.raises(RegardError, match="compress mixes the keys of all positions"):
        MultiHeadAttention(8, 2, compress="linformer", **of_score)
    with pytest.raises(RegardError, match="compress=linformer mixes all words before attention"):
        MODELS["transformer"].configure(chosen)


def test_settings_that_do_not_fit_are_refused_before_anything_is_built() -> None:
    for chosen, says in (
        ({"compress": "linformer", "pattern": "causal"}, "pattern=causal cannot mask some"),
        ({"layers": 0, "compress": "linformer"}, "which layers=0 does not have"),
        ({"layers": 0, "pattern": "window-4"}, "which layers=0 does not have"),
        ({"key_value_heads": 3}, "key_value_heads=3 does not divide heads=4"),
        ({"attention_dropout": 1}, "attention_dropout=1"),
    ):
        with pytest.raises(RegardError, match=says):
            MODELS["transformer"].configure(chosen)


def test_misspelled_parts_are_named() -> None:
    with pytest.raises(RegardError, match="did you mean sparsemax"):
        make("transformer", normalize="sparsmax")
    with pytest.raises(RegardError, match="did you mean window-64"):
        make("transformer", pattern="windw-3")
    with pytest.raises(RegardError, match="did you mean linformer"):
        make("transformer", compress="linfomer-3")
    with pytest.raises(RegardError, match="did you mean additive"):
        make("transformer", score="aditive")
    with pytest.raises(RegardError, match="did you mean rotary"):
        make("transformer", position="rotery")
    with pytest.raises(RegardError, match="pool='meen'"):
        make("transformer", pool="meen")
