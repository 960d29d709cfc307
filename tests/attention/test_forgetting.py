"""The forgetting attention beside its formula: kernels, lengths, dtypes, caches, beams, masks."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from regard.attention import (
    KeyValueCache,
    MultiHeadAttention,
    causal,
    dense,
    documents,
    lengths,
    named_mechanism,
    prefix,
    use,
    window,
)
from regard.attention.mechanisms.forgetting import FACTORS, ForgettingAttention, digits
from regard.core.errors import RegardError
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings, T5Settings
from regard.nn.models.t5 import T5
from tests.attention.parts import drawn, redrawn


def made(**settings: object) -> ForgettingAttention:
    torch.manual_seed(3)
    layer = named_mechanism("forgetting")(12, 4, **settings).double()
    assert isinstance(layer, ForgettingAttention)
    with torch.no_grad():
        layer.gate.weight.normal_()
        layer.gate.bias.normal_()
    return layer


def by_hand(
    layer: ForgettingAttention,
    x: Tensor,
    memory: Tensor | None = None,
    to_weights: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1),
) -> Tensor:
    """One text (n, width): causal self-attention, or over a whole memory; pair by pair."""
    heads, groups, width = layer.heads, layer.groups, layer.head_width
    y = x if memory is None else memory
    every = layer.project.weight.split(layer.sizes), layer.project.bias.split(layer.sizes)
    q, k, v = (F.linear(z, w, b) for z, w, b in zip((x, y, y), *every, strict=True))
    q, k, v = (z.unflatten(-1, (-1, width)).transpose(0, 1) for z in (q, k, v))
    gates = (y @ layer.gate.weight.T + layer.gate.bias).sigmoid()
    outputs = []
    for head in range(heads):
        group = head // (heads // groups)
        rows = []
        for i in range(len(x)):
            last = i if memory is None else len(y) - 1
            scores = [
                q[head, i] @ k[group, j] / width**0.5 + gates[j + 1 : last + 1, group].log().sum()
                for j in range(last + 1)
            ]
            rows.append(to_weights(torch.stack(scores)) @ v[group, : last + 1])
        outputs.append(torch.stack(rows))
    result: Tensor = layer.output(torch.cat(outputs, -1))
    return result


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("kernel", ["exact", "plain", "fused", "tiled"])
def test_it_is_its_formula_with_its_gradients(groups: int, kernel: str) -> None:
    layer, x = made(key_value_heads=groups), drawn(7, 12).requires_grad_()
    of = [x, *layer.parameters()]
    with use(kernel):
        found = layer(x[None], mask=causal())[0]
    expected, upstream = by_hand(layer, x), drawn(7, 12)
    assert_close(found, expected)
    slopes = (torch.autograd.grad((y * upstream).sum(), of) for y in (found, expected))
    assert_close(*slopes)


def test_torchs_fused_kernel_serves_it() -> None:
    from regard.attention.kernels import choose

    plans = []
    layer, original = made(), choose.plan
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(choose, "plan", lambda of: plans.append(original(of)) or plans[-1])
        layer(drawn(1, 64, 12), mask=causal())
    assert [plan.kernel for plan in plans] == ["fused"]


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_another_normaliser_reads_the_whole_sum(kernel: str) -> None:
    """Softmax alone would not see a number that is the same for all keys of a query."""
    layer, x = made(normalize="softmax-plus-one"), drawn(7, 12)
    expected = by_hand(layer, x, to_weights=lambda s: s.exp() / (1 + s.exp().sum()))
    with use(kernel):
        assert_close(layer(x[None], mask=causal())[0], expected)


def test_a_memory_is_read_after_its_last_word() -> None:
    layer, x, memory = made(normalize="softmax-plus-one"), drawn(3, 12), drawn(5, 12)
    expected = by_hand(layer, x, memory, lambda s: s.exp() / (1 + s.exp().sum()))
    assert_close(layer(x[None], memory[None])[0], expected)
    padded = torch.cat([memory, drawn(2, 12)])[None]
    assert_close(layer(x[None], padded, lengths([5]))[0], expected)
    cache = KeyValueCache(fixed=True)
    steps = [layer(row[None, None], padded, lengths([5]), cache=cache)[0] for row in x]
    assert_close(torch.cat(steps), expected)
    itself = layer(x[None])[0]
    assert_close(itself, by_hand(layer, x, x, lambda s: s.exp() / (1 + s.exp().sum())))
    assert_close(layer(x[None], mask=causal() | prefix([3]))[0], itself)


def test_an_open_gate_forgets_nothing() -> None:
    layer, x = made(position="rotary"), drawn(2, 9, 12)
    plain = MultiHeadAttention(12, 4, position="rotary").double()
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "gate" not in k})
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(100.0)
    assert_close(layer(x, mask=causal()), plain(x, mask=causal()))


def test_a_shut_gate_forgets_all_before_it() -> None:
    layer, x = made(), drawn(1, 9, 12)
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(-1e4)
        found = layer(x, mask=causal())
        value = layer.project(x)[..., 24:]
        assert_close(found, layer.output(value))


LONG, LAST = 4096, 64


def last_rows(layer: ForgettingAttention, x: Tensor) -> Tensor:
    """The formula as it is written, for the last rows."""
    q, k, v = layer.project(x).unflatten(-1, (12, 3)).transpose(1, 2).split(4, 1)
    sums = F.logsigmoid(layer.gate(x)).mT.cumsum(-1)
    scores = q[:, :, -LAST:] @ k.mT / 3**0.5 + sums[:, :, -LAST:, None] - sums[:, :, None]
    later = torch.ones(LAST, x.shape[1]).triu(x.shape[1] - LAST + 1).bool()
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    result: Tensor = layer.output((weights @ v).transpose(1, 2).flatten(-2))
    return result


@pytest.mark.parametrize("bias", [0.0, -3.0])
@torch.no_grad()
def test_far_words_are_as_exact_as_near_ones(bias: float) -> None:
    """The sums reach thousands, where a float32 number keeps three decimals."""
    layer, x = made(), drawn(1, LONG + LAST, 12)
    layer.gate.weight.mul_(0.5)
    layer.gate.bias.fill_(bias)
    assert -F.logsigmoid(layer.gate(x)).sum(1).max() > 3_000
    expected = last_rows(layer, x)
    layer, x = layer.float(), x.float()
    assert (last_rows(layer, x) - expected).abs().max() > 5e-5
    found = {"whole": layer(x, mask=causal())}
    with use("tiled"):
        found["tiled"] = layer(x, mask=causal())
    cache = KeyValueCache()
    parts = [layer(part, mask=causal(), cache=cache) for part in x.split([LONG, *[1] * LAST], 1)]
    found["steps"] = torch.cat(parts, 1)
    for output in found.values():
        assert_close(output[:, -LAST:].double(), expected, atol=4e-5, rtol=0)  # of 5e-6 to 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_whole_digits_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    sums = torch.tensor(
        [0, 0.5, 255, 65535.75, 7e4, 1.6e7, -0.25, -7e4, -1.6e7], dtype=torch.float64
    )
    columns = digits(sums)
    factors = torch.tensor(FACTORS, dtype=torch.float64)
    assert_close((columns * factors).sum(-1), sums, atol=0, rtol=0)
    assert torch.equal(columns.to(dtype).double(), columns)
    assert torch.equal(factors.to(dtype).double(), factors)
    assert ((columns * sums.unsqueeze(-1)) >= 0).all(), "digits that cancel would round"
    near = torch.tensor([[70000.0, 70001.5], [1e7, 1e7 + 3]], dtype=torch.float64)
    a, b = (digits(x).to(dtype).double() @ factors for x in near.unbind(-1))
    assert_close(b - a, torch.tensor([1.5, 3.0], dtype=torch.float64), atol=0, rtol=0)
    far = digits(torch.tensor([1e9, 1e12, -1e9, -1e12], dtype=torch.float64)).to(dtype)
    assert far.isfinite().all()
    assert torch.equal(far[::2], far[1::2]), "beyond the largest sum nothing more is forgotten"


def test_half_precision_is_near() -> None:
    layer, x = made(), drawn(2, 600, 12)
    exact = layer(x, mask=causal())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = layer.float()(x.float(), mask=causal())
    assert (rounded - exact).abs().mean() < 0.02 * exact.abs().mean()


@pytest.mark.parametrize("junk", [7.0, torch.nan, torch.inf])
def test_padding_forgets_nothing(junk: float) -> None:
    layer, x = made(position="rotary"), drawn(2, 6, 12)
    alone = layer(x, mask=causal())
    behind = torch.cat([x, torch.full((2, 3, 12), junk)], 1).requires_grad_()
    found = layer(behind, mask=causal() & lengths([6, 6]))[:, :6]
    assert_close(found, alone)
    found.sum().backward()
    assert behind.grad is not None
    assert behind.grad.isfinite().all()
    assert layer.gate.weight.grad is not None
    assert layer.gate.weight.grad.isfinite().all()
    ahead = torch.cat([torch.full((2, 3, 12), junk, dtype=torch.float64), x], 1)
    real = dense(torch.arange(9)[None] >= 3)
    at = torch.arange(-3, 6)
    assert_close(layer(ahead, mask=causal() & real, positions=at)[:, 3:], alone)
    cache = KeyValueCache()
    with torch.no_grad():
        layer(ahead[:, :5], mask=causal() & dense(real_of(5)), positions=at[:5], cache=cache)
        steps = [
            layer(
                ahead[:, i : i + 1],
                mask=causal() & dense(real_of(i + 1)),
                positions=at[i : i + 1],
                cache=cache,
            )
            for i in range(5, 9)
        ]
    assert_close(torch.cat(steps, 1), alone[:, 2:])


def real_of(n: int) -> Tensor:
    return torch.arange(n)[None] >= 3


def test_texts_in_one_row_are_as_alone() -> None:
    layer, x = made(position="rotary"), drawn(1, 7, 12)
    which = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    at = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    found = layer(x, mask=causal() & documents(which, which), positions=at)
    for start, end in pairwise((0, 3, 7)):
        assert_close(found[:, start:end], layer(x[:, start:end], mask=causal()))


def test_beams_within_a_window() -> None:
    """The rows of a step continue their parents, though the window joins the mask of the beams."""
    torch.manual_seed(0)
    settings = GPTSettings(width=12, heads=3, layers=2, feedforward=16, length=16,
                           attention="forgetting", pattern="window-3", dropout=0.0)  # fmt: skip
    model = redrawn(GPT(settings, 11).double().eval())
    prompt = torch.tensor([[4, 5, 6, 7]])
    writing = model.start(prompt, torch.tensor([4]))
    writing.step(torch.zeros(1, 2, dtype=torch.long))
    writing.step(torch.tensor([[1, 2]]), torch.tensor([[0, 0]]))
    found = writing.step(torch.tensor([[3, 8]]), torch.tensor([[1, 0]]))
    for row, words in enumerate(([2, 3], [1, 8])):
        text = torch.cat([prompt, torch.tensor([words])], 1)
        assert_close(found[0, row], model.to_logits(model(text))[0, -1])


def test_a_window_hides_and_forgets() -> None:
    layer, x = made(), drawn(1, 8, 12)
    whole = layer(x, mask=causal() & window(2))
    assert_close(whole[:, 2:3], by_hand(layer, x[0, :3])[2:][None])
    assert_close(whole[:, 7:], by_hand(layer, x[0, 5:])[2:][None])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"compress": "linformer-2"}, "which compress mixes"),
        ({"score": "additive"}, "needs an inner product.*not Additive"),
        ({"position": "alibi"}, "needs an inner product.*not Alibi"),
        ({"score": "scaled-dot+soft-cap-9"}, "needs an inner product.*not SoftCap"),
    ],
)
def test_what_has_no_columns(settings: dict[str, object], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        named_mechanism("forgetting")(12, 4, **settings)


def test_a_causal_mask_is_of_a_text_itself() -> None:
    with pytest.raises(RegardError, match="needs self-attention, and there are 3 queries and 5"):
        made()(drawn(1, 3, 12), drawn(1, 5, 12), causal())


def test_t5_takes_it_with_positions_that_are_products() -> None:
    small = {"width": 12, "heads": 3, "layers": 1, "feedforward": 16, "attention": "forgetting"}
    with pytest.raises(RegardError, match="not RelativeBias"):
        T5(T5Settings(**small), 11)
    model = T5(T5Settings(**small, position="rotary", dropout=0.0), 11).double().eval()
    source, sizes = torch.tensor([[4, 5, 6], [8, 9, 0]]), torch.tensor([3, 2])
    target = torch.tensor([[0, 3, 4], [0, 6, 7]])
    whole = model.to_logits(model(source, sizes, target))
    writing = model.start(source, sizes)
    steps = [writing.step(target[:, i : i + 1]) for i in range(3)]
    assert_close(torch.cat(steps, 1), whole)
