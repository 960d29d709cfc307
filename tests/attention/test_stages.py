"""Output stages against their formulas, in self-attention, with a memory, packed and wrong."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import Packing, causal, lengths, named_mechanism
from regard.core.errors import RegardError
from tests.attention.parts import drawn, redrawn

STAGED = "multi-head+gate-heads+exclusive"


def made(name: str, **settings: object) -> torch.nn.Module:
    torch.manual_seed(3)
    return redrawn(named_mechanism(name)(12, 4, **settings).double().eval(), 0.4)


@pytest.mark.parametrize("name", ["retention", "gla", "ssd", "delta"])
def test_what_is_left_of_the_first_word_is_not_rounding(name: str) -> None:
    """Its output is along its own value, and nothing of it remains."""
    layer, x = made(f"{name}+exclusive").float(), drawn(1, 6, 12).float()
    exact = layer(x, mask=causal()).detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x, mask=causal())
    limit = 0.02 * float(exact.abs().max())
    assert_close(rounded[:, 0].float(), exact[:, 0], atol=limit, rtol=0)


@pytest.mark.parametrize("shared", [None, 2])
def test_stages_are_their_formulas(shared: int | None) -> None:
    """In two texts, four heads and five words, one number after another."""
    layer, x = made(STAGED, key_value_heads=shared), drawn(2, 5, 12)
    q, k, v = (part.detach() for part in layer._project(x, 0, 3))
    gates = torch.sigmoid(x @ getattr(layer, "stage-gate-heads").weight.T
                          + getattr(layer, "stage-gate-heads").bias)  # fmt: skip
    heads = torch.zeros(2, 5, 4, 3, dtype=torch.float64)
    for text in range(2):
        for head in range(4):
            group = head // (4 // (shared or 4))
            for i in range(5):
                scores = torch.stack(
                    [q[text, head, i] @ k[text, group, j] / 3**0.5 for j in range(i + 1)]
                )
                y = scores.softmax(0) @ v[text, group, : i + 1]
                own = v[text, group, i] / v[text, group, i].norm()
                y = y - (y @ own) * own
                heads[text, i, head] = gates[text, i, head] * y
    assert_close(layer(x, mask=causal()), layer.output(heads.flatten(2)))


def test_exclusive_attention_of_a_word_alone_is_nothing() -> None:
    for name in ("multi-head", "latent", "linear", "delta", "kda", "delta-products-2", "gla"):
        layer = made(f"{name}+exclusive")
        found = layer(drawn(2, 1, 12), mask=causal())
        if name == "delta-products-2":  # what the first product wrote stays
            assert not torch.allclose(found, layer.output.bias.expand_as(found))
        else:
            assert_close(found, layer.output.bias.expand_as(found), atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", ["multi-head", "latent", "linear", "delta"])
def test_a_memory_has_no_values_of_the_queries(name: str) -> None:
    layer, plain = made(f"{name}+exclusive"), made(name)
    x, memory = drawn(2, 3, 12), drawn(2, 7, 12)
    assert_close(layer(x, memory, lengths([7, 4])), plain(x, memory, lengths([7, 4])))
    assert not torch.allclose(layer(x), plain(x))


@pytest.mark.parametrize("name", [STAGED, "delta+gate+exclusive", "latent+gate-heads+exclusive"])
def test_packed_rows_are_those_of_the_table(name: str) -> None:
    layer, x, sizes = made(name), drawn(2, 5, 12), torch.tensor([5, 3])
    packing = Packing(sizes, 5)
    table = layer(x, mask=causal() & lengths(sizes))
    rows = layer(packing.pack(x), mask=causal() & lengths(sizes), packing=packing)
    assert_close(rows, packing.pack(table))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("multi-head+exclusiv", "did you mean exclusive"),
        ("gated+gate", "gate is there already"),
        ("multi-head+gate+gate", "gate is there already"),
        ("multi-head+gate-3", "has other numbers"),
    ],
)
def test_stages_that_do_not_exist(name: str, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        named_mechanism(name)(12, 4)
