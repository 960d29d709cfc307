import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.analysis.record import record
from regard.attention import sinusoidal
from regard.errors import RegardError
from tests.models.tiny import make

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
    model = make("attention-pool", spread=1.0).eval()
    t = words(model)
    p = softmax(t @ model.pool.query[0])
    assert p.max() > 0.3  # else the test would pass a mean
    assert_close(model(TOKENS, LENGTHS)[0], linear(model.to_labels, p @ t))


def test_query_from_mean_by_hand() -> None:
    model = make("query-from-mean", spread=1.0).eval()
    t = words(model)
    p = softmax(t @ linear(model.pool.to_query, t.mean(0)))
    pooled = p @ linear(model.pool.to_values, t)
    assert_close(model(TOKENS, LENGTHS)[0], linear(model.to_labels, pooled))


@pytest.mark.parametrize("name", ["self-attention", "+residual", "+positions", "+cls"])
def test_the_seeds_rungs_are_literal(name: str) -> None:
    """Three layers of x' = g(f(x)) or g(x + f(LN x)), written out from the seed."""
    model = make(name, spread=1.0, seed=2).eval()
    x = words(model)
    if name == "+cls":
        x = torch.cat([model.cls[None], x])
    if name in ("+positions", "+cls"):
        x = x + sinusoidal(torch.arange(len(x)), 8)
    assert len(model.blocks) == 3
    for block in model.blocks:
        residual = name in ("+residual", "+cls")
        normed = block.norm(x) if residual else x
        q, k, v = (linear_part(block.attention, normed, part) for part in range(3))
        seen = softmax(q @ k.T / 8**0.5) @ v
        x = torch.relu(linear(block.to_next, x + seen if residual else seen))
    pooled = x[0] if name == "+cls" else x.mean(0)
    expected = linear(model.to_labels, pooled)
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
    assert model.blocks[0].feedforward.widen.weight.shape == (7, 12)
    assert model.positions.table.shape == (23, 12)
    assert make("+cls", position="learned", length=23).positions.table.shape == (24, 8)


def test_a_text_as_long_as_the_setting_fits_behind_cls() -> None:
    model = make("+cls", position="learned", length=5)
    assert model(TOKENS, LENGTHS).isfinite().all()


def test_positions_between_words_need_a_layer() -> None:
    with pytest.raises(RegardError, match="layers=0 has none"):
        make("mean", position="rotary")
    assert make("mean", position="sinusoidal") is not None


def test_misspelled_parts_are_named() -> None:
    with pytest.raises(RegardError, match="did you mean additive"):
        make("transformer", score="aditive")
    with pytest.raises(RegardError, match="did you mean rotary"):
        make("transformer", position="rotery")
    with pytest.raises(RegardError, match="pool='meen'"):
        make("transformer", pool="meen")
