"""Mechanisms with a state: their formulas, masks, memories, caches and beams."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from regard.analysis.record import record
from regard.attention import (
    MECHANISMS,
    KeyValueCache,
    causal,
    dense,
    lengths,
    named_mechanism,
    window,
)
from regard.attention.mechanisms.recurrent import StateAttention
from regard.attention.scores import Dot
from regard.core.errors import RegardError
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings, TransformerSettings
from regard.nn.models.transformer import Transformer
from tests.attention.parts import drawn, redrawn

STATES = [name for name, kind in MECHANISMS.items() if kind and issubclass(kind, StateAttention)]
STATES += ["delta-reach-2-products-3", "linear+exclusive+gate", "delta-products-2+exclusive+gate"]
over_states = pytest.mark.parametrize("name", STATES)


def made(name: str, **settings: object) -> StateAttention:
    torch.manual_seed(3)
    layer = named_mechanism(name)(12, 3, **settings).double().eval()
    assert isinstance(layer, StateAttention)
    return redrawn(layer, 0.4)


def heads(x: Tensor) -> Tensor:
    """(n, heads · 4) as (heads, n, 4)."""
    return x.unflatten(-1, (-1, 4)).transpose(0, 1)


def normed(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("linear", lambda x: F.elu(x) + 1),
        ("linear-relu", F.relu),
        ("linear-softmax", lambda x: x.softmax(-1)),
    ],
)
def test_linear_attention_is_its_formula(name, feature):
    layer, x = made(name), drawn(7, 12)
    q, k = (feature(heads(p(x))) for p in (layer.project_queries, layer.project_keys))
    weights = q @ k.mT
    for mask, allowed in ((causal(), torch.ones(7, 7).tril()), (None, torch.ones(7, 7))):
        shown = weights * allowed
        shown = shown / shown.sum(-1, keepdim=True).clamp(min=1e-300)
        expected = (shown @ heads(layer.project_values(x))).transpose(0, 1).flatten(1)
        with record(layer) as recording:
            assert_close(layer(x, mask=mask), layer.output(expected))
        assert_close(recording.layers[0][1].weights, shown)


def steps(q, k, v, decay, rate=None):
    """Σ by the recurrence, for heads (heads, n, 4); decay is (heads, n, …).

    With rate, (heads, n, products, 1), keys and values are (heads, n, products, 4).
    """
    state, outputs = torch.zeros(len(q), 4, 4, dtype=q.dtype), []
    for t in range(q.shape[1]):
        state = decay[:, t].unsqueeze(-1) * state
        if rate is None:
            state = state + torch.einsum("hk,hv->hkv", k[:, t], v[:, t])
        for i in range(0 if rate is None else rate.shape[2]):
            gap = v[:, t, i] - torch.einsum("hk,hkv->hv", k[:, t, i], state)
            state = state + torch.einsum("hk,hv->hkv", k[:, t, i], rate[:, t, i] * gap)
        outputs.append(torch.einsum("hk,hkv->hv", q[:, t], state))
    return torch.stack(outputs, 1)


def convolved(layer, x):
    joined = torch.cat(
        [layer.project_queries(x), layer.project_keys(x), layer.project_values(x)], 1
    )
    mixed = torch.zeros_like(joined)
    for i in range(4):
        mixed[3 - i :] += joined[: len(x) - 3 + i] * layer.taps[i]
    return [heads(part) for part in F.silu(mixed).split(layer.sizes, -1)]


@pytest.mark.parametrize(
    "name",
    [
        "retention",
        "gla",
        "delta",
        "delta-reach-2",
        "delta-products-3",
        "deltanet-reach-2",
        "kda",
        "ssd",
    ],
)
def test_each_recurrence_is_its_formula(name):
    layer, x = made(name), drawn(9, 12)
    projections = layer.project_queries, layer.project_keys, layer.project_values
    rate = skip = None
    if name in ("retention", "gla"):
        q, k, v = (heads(p(x)) for p in projections)
    else:
        q, k, v = convolved(layer, x)
    if name == "retention":
        decay = torch.tensor([1 - 2.0**-5, 1 - 2.0**-6, 1 - 2.0**-7], dtype=torch.float64)
        decay = decay[:, None, None].expand(3, 9, 1)
    elif name == "gla":
        decay = heads(layer.decay[1](layer.decay[0](x)).sigmoid() ** (1 / 16))
    elif name.startswith("deltanet"):
        decay = torch.ones(3, 9, 1, dtype=torch.float64)
    else:
        step = F.softplus(layer.step(x)).unflatten(-1, (3, -1)).transpose(0, 1)
        decay = (-layer.log_speed.exp()[:, None, None] * step).exp()
    if name.startswith(("delta", "kda")):
        q, k = (y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
        rate = layer.rate(x).sigmoid().unflatten(-1, (-1, 3)).permute(2, 0, 1).unsqueeze(-1)
        rate = (2 if "reach" in name else 1) * rate  # heads, words, products, 1
        k, v = (y.unflatten(0, (-1, 3)).movedim(0, 2) for y in (k, v))
    if name == "ssd":
        assert len(q) == len(k) == 1
        q, k = q.expand(3, -1, -1), k.expand(3, -1, -1)
        skip, v = layer.skip[:, None, None] * v, step * v
    output = steps(q / 2, k, v, decay, rate)  # scaled-dot: 4 columns
    gate = (torch.sigmoid if name == "kda" else F.silu)(layer.gate(x))
    if skip is not None:
        expected = layer.gain * normed(gate * (output + skip).transpose(0, 1).flatten(1))
    else:
        expected = gate * (layer.gain * normed(output)).transpose(0, 1).flatten(1)
    assert_close(layer(x, mask=causal()), layer.output(expected), rtol=1e-6, atol=1e-6)


@over_states
def test_without_order_the_past_and_the_future_count_alike(name):
    layer, x = made(name), drawn(2, 6, 12)
    assert_close(layer(x.flip(1)), layer(x).flip(1))


@over_states
def test_padding_on_either_side_changes_nothing(name):
    layer, x = made(name, position="rotary"), drawn(2, 6, 12)
    padded = torch.cat([x, torch.full((2, 3, 12), torch.nan)], 1)
    for mask in (lengths([6, 6]), causal() & lengths([6, 6])):
        alone = None if mask.kind == "keys" else causal()
        assert_close(layer(padded, mask=mask)[:, :6], layer(x, mask=alone))
    ahead = torch.cat([torch.full((2, 3, 12), 5.0, dtype=torch.float64), x], 1)
    hidden = dense(torch.arange(9)[None] >= 3)
    for mask in (hidden, causal() & hidden):
        alone = None if mask is hidden else causal()
        found = layer(ahead, mask=mask, positions=torch.arange(-3, 6))[:, 3:]
        assert_close(found, layer(x, mask=alone))


@over_states
def test_a_memory_is_read_whole_and_once(name):
    layer, x, memory = made(name), drawn(2, 3, 12), drawn(2, 7, 12)
    whole = layer(x, memory, lengths([7, 4]))
    assert_close(whole[1], layer(x[1], memory[1, :4]))
    cache = KeyValueCache(fixed=True)
    parts = [layer(part, memory, lengths([7, 4]), cache=cache) for part in x.split(1, 1)]
    assert_close(torch.cat(parts, 1), whole)
    assert len(cache) == 7
    before = layer(x, memory.flip(1))
    same = torch.allclose(before, layer(x, memory))
    assert same == name.startswith("linear")


@over_states
def test_the_cache_does_not_grow(name):
    layer, cache = made(name), KeyValueCache()
    layer(drawn(2, 5, 12), mask=causal(), cache=cache)
    numbers = cache.numbers
    layer(drawn(2, 50, 12), mask=causal(), cache=cache)
    assert cache.numbers == numbers
    assert len(cache) == 55
    cache.keep(torch.tensor([1]))
    assert cache.numbers == numbers // 2
    with pytest.raises(RegardError, match="add causal"):
        layer(drawn(1, 2, 12), cache=cache)


@pytest.mark.parametrize(
    "name",
    [
        *MECHANISMS,
        "moba-2-2",
        "delta-products-2",
        "delta/multi-head",
        "multi-head/kda",
        "latent+exclusive",
        "multi-head+exclusive+gate-heads/delta+exclusive",
    ],
)
def test_beams_after_prompts_of_several_lengths(name):
    torch.manual_seed(0)
    settings = GPTSettings(width=12, heads=3, layers=2, feedforward=16, length=16,
                           attention=name, dropout=0.0)  # fmt: skip
    model = redrawn(GPT(settings, 11).double().eval())
    prompts, sizes = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), torch.tensor([4, 2])
    writing = model.start(prompts, sizes)
    first = writing.step(torch.zeros(2, 3, dtype=torch.long))
    assert first.shape == (2, 3, 11)
    chosen = [torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[7, 8, 9], [1, 2, 3]])]
    parents = torch.tensor([[2, 0, 0], [1, 1, 2]])
    writing.step(chosen[0], torch.zeros(2, 3, dtype=torch.long))
    found = writing.step(chosen[1], parents)
    writing.keep(torch.tensor([1]))
    last = writing.step(torch.tensor([[5, 5, 5]]), torch.tensor([[2, 1, 0]]))
    for text in range(2):
        for row in range(3):
            words = [*prompts[text, : sizes[text]], chosen[0][text, parents[text, row]],
                     chosen[1][text, row]]  # fmt: skip
            expected = model.to_logits(model(torch.stack(words)[None]))[0, -1]
            assert_close(found[text, row], expected)
            if text == 1:
                more = torch.stack([*words, torch.tensor(5)])[None]
                assert_close(last[0, 2 - row], model.to_logits(model(more))[0, -1])


@pytest.mark.parametrize(
    "name", [*MECHANISMS, "moba-2-2", "delta-products-2", "multi-head+exclusive+gate"]
)
def test_a_translator_writes_step_by_step_what_it_reads_at_once(name):
    torch.manual_seed(0)
    settings = TransformerSettings(width=12, heads=3, layers=1, feedforward=16, tie=False,
                                   attention=name, dropout=0.0)  # fmt: skip
    model = redrawn(Transformer(settings, 11, 12).double().eval())
    source, sizes = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), torch.tensor([4, 2])
    target = torch.tensor([[0, 3, 4, 5], [0, 6, 7, 8]])
    whole = model.to_logits(model(source, sizes, target))
    writing = model.start(source, sizes)
    found = [writing.step(target[:, i : i + 1]) for i in range(4)]
    assert_close(torch.cat(found, 1), whole)


@over_states
def test_it_learns_from_every_parameter(name):
    layer, x = made(name), drawn(2, 6, 12)
    layer(x, mask=causal()).square().sum().backward()
    for label, parameter in layer.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label
        assert parameter.grad.abs().max() > 0, label


@over_states
def test_half_precision_computes_the_recurrence_in_single(name):
    layer, x = made(name).float(), drawn(2, 70, 12).float()
    exact = layer(x, mask=causal())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer(x, mask=causal())
    assert (rounded - exact).abs().mean() < 0.05 * exact.abs().mean()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"normalize": "sparsemax"}, "normalize=sparsemax does not apply"),
        ({"compress": "linformer-2"}, "compress=linformer-2 does not apply"),
        ({"dropout": 0.1}, "dropout=0.1 does not apply"),
        ({"score": "additive"}, "needs an inner product"),
        ({"position": "t5-bias"}, "needs an inner product"),
        ({"score": Dot()}, "takes a score by name or class, not built"),
        ({"head_width": None, "heads": 5}, "width=12 is not divisible by heads=5"),
    ],
)
def test_what_a_state_cannot_hold(settings, says):
    with pytest.raises(RegardError, match=says):
        named_mechanism("retention")(12, **{"heads": 3, **settings})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("delta-reach-3", "reach above 0 and at most 2, not 3"),
        ("delta-reach-0", "reach above 0 and at most 2, not 0"),
        ("delta-products-0", "integer of products ≥ 1, not 0"),
        ("kda-products-1.5", "integer of products ≥ 1, not 1.5"),
        ("delta-2", "-reach-NUMBER, -products-NUMBER"),
    ],
)
def test_options_of_the_delta_rule_that_do_not_exist(name, says):
    with pytest.raises(RegardError, match=says):
        named_mechanism(name)(12, 3)


def test_features_are_compared_by_their_product():
    with pytest.raises(RegardError, match="use score=scaled-dot, not cosine"):
        named_mechanism("linear")(12, 3, score="cosine")
    with pytest.raises(RegardError, match="takes a score by name or class, not built"):
        named_mechanism("linear")(12, 3, score=Dot())


def test_masks_that_skip_words_are_refused():
    for mask in (window(2), causal() & window(2), causal() | lengths([3])):
        with pytest.raises(RegardError, match="attention=retention reads words in order"):
            made("retention")(drawn(1, 4, 12), mask=mask)
    with pytest.raises(RegardError, match="reads all of a memory"):
        made("gla")(drawn(1, 4, 12), drawn(1, 4, 12), causal())
