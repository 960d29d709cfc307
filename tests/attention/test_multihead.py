"""MultiHeadAttention against torch's, and what it takes beyond it."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.attention import (
    SCORES,
    KeyValueCache,
    MultiHeadAttention,
    Score,
    attend,
    causal,
    lengths,
    make_score,
    others,
)
from regard.core.errors import RegardError


def pair(width=12, heads=3, **widths):
    """The same weights in both, biases away from zero."""
    theirs = nn.MultiheadAttention(width, heads, batch_first=True, **widths).double()
    named = {"kdim": "key_width", "vdim": "value_width"}
    ours = MultiHeadAttention(width, heads, **{named[k]: v for k, v in widths.items()}).double()
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        theirs.out_proj.bias.normal_()
        if ours.packed:
            ours.project.weight.copy_(theirs.in_proj_weight)
            ours.project.bias.copy_(theirs.in_proj_bias)
        else:
            biases = theirs.in_proj_bias.chunk(3)
            for ours_part, name, bias in zip(
                (ours.project_queries, ours.project_keys, ours.project_values),
                "qkv",
                biases,
                strict=True,
            ):
                ours_part.weight.copy_(getattr(theirs, f"{name}_proj_weight"))
                ours_part.bias.copy_(bias)
        ours.output.weight.copy_(theirs.out_proj.weight)
        ours.output.bias.copy_(theirs.out_proj.bias)
    return ours, theirs


def parameter_gradients(module):
    if isinstance(module, nn.MultiheadAttention):
        weight = module.in_proj_weight
        parts = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        whole = [weight.grad] if weight is not None else [p.grad for p in parts]
        return [
            *whole,
            module.in_proj_bias.grad,
            module.out_proj.weight.grad,
            module.out_proj.bias.grad,
        ]
    if module.packed:
        whole, bias = [module.project.weight.grad], module.project.bias.grad
    else:
        parts = (module.project_queries, module.project_keys, module.project_values)
        whole, bias = [p.weight.grad for p in parts], torch.cat([p.bias.grad for p in parts])
    return [*whole, bias, module.output.weight.grad, module.output.bias.grad]


@pytest.mark.parametrize("kind", ["self", "cross", "keys and values", "widths"])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_torch(kind, masked):
    ours, theirs = pair(**({"kdim": 5, "vdim": 7} if kind == "widths" else {}))
    x = torch.randn(2, 6, 12, dtype=torch.float64, requires_grad=True)
    sizes = {"self": (6, 12, 12), "widths": (8, 5, 7)}.get(kind, (8, 12, 12))
    keys = torch.randn(2, sizes[0], sizes[1], dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, sizes[0], sizes[2], dtype=torch.float64, requires_grad=True)
    if kind == "self":
        given, whole = (x,), (x, x, x)
    elif kind == "cross":
        given, whole = (x, keys), (x, keys, keys)
    else:
        given = whole = (x, keys, values)
    valid = torch.tensor([sizes[0], 4])
    padding = torch.arange(sizes[0]) >= valid[:, None] if masked else None
    mask = lengths(valid) if masked else None
    mine = ours(*given[:2], mask=mask, values=values if len(given) == 3 else None)
    other = theirs(*whole, key_padding_mask=padding, need_weights=False)[0]
    assert_close(mine, other, atol=1e-12, rtol=1e-12)
    upstream = torch.randn_like(mine)
    found = torch.autograd.grad(mine, given, upstream, retain_graph=True)
    expected = torch.autograd.grad(other, given, upstream, retain_graph=True)
    assert_close(found, expected, atol=1e-11, rtol=1e-11)
    mine.backward(upstream)
    other.backward(upstream)
    assert_close(parameter_gradients(ours), parameter_gradients(theirs), atol=1e-11, rtol=1e-11)


def test_equals_torch_in_float32_and_causal():
    ours, theirs = pair()
    ours, theirs = ours.float(), theirs.float()
    x = torch.randn(2, 6, 12)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    other = theirs(x, x, x, attn_mask=hidden, need_weights=True, average_attn_weights=False)
    seen = []
    ours.attention.register_forward_hook(lambda module, given, attended: seen.append(attended))
    assert_close(ours(x, mask=causal()), other[0], atol=1e-6, rtol=1e-6)
    assert_close(seen[0].weights, other[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("score", SCORES)
def test_self_attention_is_cross_attention_to_oneself(score):
    layer = MultiHeadAttention(12, 3, score=score, position="alibi", length=5).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    for memory in (x, x.clone()):
        for values in (None, x, x.clone()):
            assert_close(layer(x, memory, values=values), layer(x))


def test_no_batch_and_many_batch_axes():
    layer = MultiHeadAttention(12, 3).double()
    x = torch.randn(2, 4, 5, 12, dtype=torch.float64)
    whole = layer(x, mask=causal())
    assert whole.shape == x.shape
    assert_close(whole[1, 2], layer(x[1, 2], mask=causal()))
    sizes = torch.tensor([[5, 1, 2, 3], [4, 5, 5, 1]])
    assert_close(layer(x, mask=lengths(sizes))[1, 0], layer(x[1, 0], mask=lengths(4)))


def test_batch_equal_to_heads():
    layer = MultiHeadAttention(12, 3).double()
    x = torch.randn(3, 5, 12, dtype=torch.float64)
    whole = layer(x, mask=lengths([1, 5, 3]))
    for i, size in enumerate([1, 5, 3]):
        assert_close(whole[i], layer(x[i], x[i, :size]))  # cut off instead of masked


@pytest.mark.parametrize("groups", [1, 3])
def test_grouped_heads_are_shared(groups):
    layer = MultiHeadAttention(12, 6, key_value_heads=groups).double()
    assert layer.project.weight.shape == (12 + 2 * groups * 2, 12)
    full = MultiHeadAttention(12, 6).double()
    with torch.no_grad():
        q, k, v = layer.project.weight.split(layer.sizes)
        shared = [
            x.view(groups, 2, 12).repeat_interleave(6 // groups, 0).view(12, 12) for x in (k, v)
        ]
        full.project.weight.copy_(torch.cat([q, *shared]))
        full.output.load_state_dict(layer.output.state_dict())
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert_close(layer(x, mask=causal()), full(x, mask=causal()))


def test_head_width_and_no_output_projection():
    layer = MultiHeadAttention(10, 3, head_width=4, output_projection=False, bias=False)
    x = torch.randn(2, 5, 10)
    assert layer(x).shape == (2, 5, 12)
    assert layer.project.bias is None
    q, k, v = (
        (x @ part.T).view(2, 5, 3, 4).transpose(1, 2) for part in layer.project.weight.split(12)
    )
    expected = attend(q, k, v, SCORES["scaled-dot"]()).output
    assert_close(layer(x), expected.transpose(1, 2).reshape(2, 5, 12))


def test_a_score_is_taken_as_it_is():
    layer = MultiHeadAttention(12, 4, score=SCORES["dot"](), key_value_heads=2)
    x = torch.randn(2, 5, 12)
    assert layer(x, mask=lengths([5, 2])).shape == (2, 5, 12)
    named = MultiHeadAttention(12, 4, score="dot", key_value_heads=2)
    named.load_state_dict(layer.state_dict())
    assert_close(layer(x, mask=lengths([5, 2])), named(x, mask=lengths([5, 2])))


def test_a_class_of_ones_own_is_made_for_the_layer_as_a_name_is():
    found = []
    for score in ("additive", SCORES["additive"]):
        torch.manual_seed(0)
        found.append(MultiHeadAttention(12, 3, score=score, position="rotary"))
    x = torch.randn(2, 5, 12)
    assert found[1].attention.score.inner.heads == 3
    assert torch.equal(found[0](x), found[1](x))


def test_padding_that_is_nan_stays_out_of_weights_and_gradients():
    layer = MultiHeadAttention(12, 3).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    layer(x, mask=lengths([5, 3]))[1, :3].sum().backward()
    expected = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    bad = x.clone()
    bad[1, 3:] = torch.nan
    layer(bad, mask=lengths([5, 3]))[1, :3].sum().backward()
    assert_close([p.grad for p in layer.parameters()], expected)


def test_a_row_that_nobody_sees_may_ask_all_the_same():
    """Under a strictly causal mask the last row is no key; beside a NaN elsewhere it still asks."""
    layer = MultiHeadAttention(12, 3).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    mask = causal() & others() & lengths([5, 3])
    expected = layer(x, mask=mask)
    bad = x.clone()
    bad[1, 3:] = torch.nan
    assert_close(layer(bad, mask=mask)[0], expected[0])


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("size", [1e20, 1e38])
def test_padding_may_be_very_large(score, size):
    layer = MultiHeadAttention(12, 3, score=score, length=5)
    x = torch.randn(2, 5, 12)
    expected = layer(x, mask=lengths([5, 3]))[1, :3]
    bad = x.clone()
    bad[1, 3:] = size
    bad[1, 4] = -size
    found = layer(bad, mask=lengths([5, 3]))[1, :3]
    assert_close(found, expected, atol=1e-5, rtol=1e-4)
    found.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize("score", SCORES)
def test_a_fixed_cache_prepares_its_memory_once(score):
    layer = MultiHeadAttention(12, 3, score=score, length=7).double()
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    memory, mask = torch.randn(2, 7, 12, dtype=torch.float64), lengths([7, 3])
    positions, cache = torch.arange(4), KeyValueCache(fixed=True)
    full = layer(x, memory, mask=mask, positions=positions)
    steps = [
        layer(x[:, i : i + 1], memory, mask=mask, cache=cache, positions=positions[i : i + 1])
        for i in range(4)
    ]
    assert len(cache) == 7
    assert_close(torch.cat(steps, 1), full)


def test_dropout_in_training_alone():
    layer = MultiHeadAttention(12, 3, dropout=0.5)
    x = torch.randn(2, 5, 12)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_errors():
    with pytest.raises(RegardError, match="heads=3; use a width of 9 or 12, or set head_width"):
        MultiHeadAttention(10, 3)
    with pytest.raises(RegardError, match="heads=4 is not divisible by key_value_heads=3"):
        MultiHeadAttention(12, 4, key_value_heads=3)
    with pytest.raises(RegardError, match="has 2 heads, but the layer has 3"):
        MultiHeadAttention(12, 3, score=SCORES["dot"](heads=2))

    class Narrow(Score):
        def __init__(self, width):
            super().__init__(width)

    with pytest.raises(RegardError, match=r"Narrow cannot be built as Narrow\(query_width"):
        MultiHeadAttention(8, 2, score=Narrow)
    with pytest.raises(RegardError, match="wrap the Score in its position yourself"):
        MultiHeadAttention(12, 3, score=make_score("dot"), position="alibi")


class Adapter(nn.Module):
    """What a low-rank adapter puts in the place of a linear layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.more = nn.Linear(base.in_features, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.more(x)


def merged(layer: MultiHeadAttention) -> MultiHeadAttention:
    """The same layer with the adapter's weights added to the base's."""
    made = copy.deepcopy(layer)
    adapter = made.project
    adapter.base.weight.data += adapter.more.weight.data
    made.project = adapter.base
    return made


@pytest.mark.parametrize("values", [True, False])
def test_what_stands_in_the_place_of_the_projection_is_asked(values: bool) -> None:
    layer = MultiHeadAttention(8, 2)
    queries, keys = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    own = torch.randn(2, 5, 8) if values else None
    layer.project = Adapter(layer.project)
    assert_close(layer(queries, keys, values=own), merged(layer)(queries, keys, values=own))


def test_cross_attention_is_quantized_and_its_hooks_are_called() -> None:
    layer, seen = MultiHeadAttention(8, 2), []
    queries, keys = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    wanted = layer(queries, keys)
    handle = layer.project.register_forward_hook(lambda *_: seen.append(1))
    assert_close(layer(queries, keys), wanted)
    assert len(seen) == 2  # queries; keys and values
    handle.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its API moves
        quantized = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, torch.qint8)
    assert_close(quantized(queries, keys), wanted, atol=0.05, rtol=0.05)


def test_a_forward_of_a_projections_own_is_asked() -> None:
    """As accelerate's offloading replaces it."""
    layer, queries, keys = MultiHeadAttention(8, 2), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    wanted, forward = layer(queries, keys), layer.project.forward
    layer.project.forward = lambda x: 2 * forward(x)
    assert not torch.allclose(layer(queries, keys), wanted)


def test_values_in_the_place_of_a_mask_are_told_their_name() -> None:
    x = torch.randn(1, 3, 4)
    with pytest.raises(RegardError, match=r"pass values by name, layer\(queries, keys, values=…\)"):
        MultiHeadAttention(4, 2)(x, x, x)
