"""Latent attention against its formula for each head, and what its cache holds."""

import pytest
import torch

from regard.attention import KeyValueCache, MultiHeadAttention, causal, named_mechanism
from regard.attention.mechanisms.latent import LatentAttention
from regard.attention.positions.rotary import rotate
from regard.core.errors import RegardError
from tests.attention.parts import drawn


@pytest.mark.parametrize("position", ["none", "rotary"])
def test_each_head_has_keys_and_values_of_the_latent_vector(position: str) -> None:
    torch.manual_seed(0)
    layer = LatentAttention(12, 3, latent=5, position=position).double()
    x, places = drawn(2, 7, 12), torch.arange(7)
    columns = 2 if position == "rotary" else 0
    asked = layer.project_queries(x).unflatten(-1, (3, 4 + columns))
    turned, latent = layer.project_latent(x).split([columns, 5], -1)
    heads = []
    for head in range(3):
        q, q_turned = asked[..., head, :].split([4, columns], -1)
        k, v = (latent @ up[head].T for up in (layer.up_keys, layer.up_values))
        scores = q @ k.mT
        if columns:
            scores = scores + rotate(q_turned, places) @ rotate(turned, places).mT
        hidden = places[None, :] > places[:, None]
        weights = (scores / (4 + columns) ** 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        heads.append(weights @ v)
    expected = layer.output(torch.cat(heads, -1))
    torch.testing.assert_close(layer(x, mask=causal()), expected)


@pytest.mark.parametrize("position", ["none", "rotary-base-500", "alibi", "kerple"])
def test_a_cache_of_latent_vectors_is_the_full_pass(position: str) -> None:
    torch.manual_seed(0)
    layer = LatentAttention(12, 3, position=position, score="soft-cap-5").double().eval()
    x, cache = drawn(2, 6, 12), KeyValueCache()
    with torch.no_grad():
        steps = [layer(part, mask=causal(), cache=cache) for part in x.split(2, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(x, mask=causal()))


def test_the_cache_holds_the_latent_vectors_alone() -> None:
    sizes = {}
    for name, more in (("latent", {}), ("multi-head", {}), ("multi-head", {"key_value_heads": 2})):
        layer, cache = named_mechanism(name)(64, 8, position="rotary", **more), KeyValueCache()
        layer(torch.zeros(1, 10, 64), mask=causal(), cache=cache)
        sizes[name, *more] = cache.numbers // 10
    assert sizes == {
        ("latent",): 16 + 4, ("multi-head",): 128, ("multi-head", "key_value_heads"): 32,
    }  # fmt: skip
    assert isinstance(named_mechanism("multi-head")(8, 2), MultiHeadAttention)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"score": "additive"}, "use score=scaled-dot or dot, .* not additive"),
        ({"score": "qk-norm"}, "not qk-norm"),
        ({"key_value_heads": 1}, "shares one latent key"),
        ({"compress": "linformer"}, "shares one latent key"),
        ({"value_width": 3}, "keys and values of the same input"),
        ({"position": "rotary-part-0.5"}, "leave part out"),
    ],
)
def test_what_it_does_not_take(settings: dict[str, object], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        LatentAttention(12, 3, **settings)
