"""Attention of any module is seen while it runs, and the module computes the same numbers."""

import gc
import math
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from regard.analysis.layer_attention import looked
from regard.analysis.maps import entropy
from regard.analysis.observe import Observed, observe
from regard.analysis.record import Recording, record, table
from regard.attention.kernels.summary import Summary
from regard.core.errors import RegardError

MODES = (torch.no_grad, torch.enable_grad, torch.inference_mode)
HIDDEN = torch.tensor([[False] * 5, [False, False, False, True, True], [False] * 5])


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def inputs(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, 5, 8, dtype=dtype)


def only(recording: Recording) -> Observed:
    ((_, seen),) = recording.layers
    assert isinstance(seen, Observed)
    return seen


class ValidLens(nn.Module):
    """Masked softmax as in a textbook: (batch · heads, n, m), heads known by the module around."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, valid_lens: Tensor) -> Tensor:
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        flat = scores.reshape(-1, scores.shape[-1])
        valid_lens = valid_lens.repeat_interleave(scores.shape[1])
        flat[torch.arange(flat.shape[1]) >= valid_lens[:, None]] = -1e6
        self.weights = F.softmax(flat.reshape(scores.shape), dim=-1)
        return torch.bmm(F.dropout(self.weights, 0.5, self.training), v)


class Textbook(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.attention, self.w = 2, ValidLens(), nn.Linear(8, 8)

    def forward(self, x: Tensor, valid_lens: Tensor) -> Tensor:
        h = self.w(x).reshape(*x.shape[:2], 2, 4).transpose(1, 2).reshape(-1, x.shape[1], 4)
        return self.attention(h, h, h, valid_lens.repeat_interleave(2))


class Notebook(nn.Module):
    """Projections, an einsum, a softmax module, a gate and an einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.attend = nn.Linear(8, 24), nn.Softmax(dim=-1)
        self.gate = torch.tensor([1.0, 0.5])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
        self.weights = self.attend(torch.einsum("bihd,bjhd->bhij", q, k))
        gated = self.weights * self.gate[:, None, None]
        return torch.einsum("bhij,bjhd->bihd", gated.to(v.dtype), v).flatten(2)


class Additive(nn.Module):
    """One query for each text, softmax over axis 1."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.weights = torch.softmax(self.score(x.tanh()).squeeze(-1), 1)
        return (self.weights.unsqueeze(1) @ x).squeeze(1)


class Flex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(8, 24), torch.randn(2, 5, 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5, device="cpu")
        score = lambda s, b, h, i, j: s + self.bias[h, i, j]  # noqa: E731
        return flex_attention(q, k, v, score_mod=score, block_mask=causal)

    def expected(self, x: Tensor) -> Tensor:
        q, k, _ = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / 2 + self.bias
        return scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1)


class Fused(nn.Module):
    """Two query heads share a key head."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, **self.options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_multihead_attention_are_those_it_returns(
    mode: type[AbstractContextManager[None]], dtype: torch.dtype, causal: bool
) -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype), inputs(dtype)
    mask = torch.ones(5, 5).triu(1).bool() if causal else None
    options: dict[str, Any] = {"key_padding_mask": HIDDEN, "attn_mask": mask}
    with mode():
        output = layer(x, x, x, need_weights=False, **options)[0]
        weights = layer(x, x, x, average_attn_weights=False, **options)[1]
        with observe(layer) as fused:
            again = layer(x, x, x, need_weights=False, **options)[0]
        with observe(layer) as explicit:
            layer(x, x, x, **options)
    assert torch.equal(output, again)
    assert only(fused).seen == "scaled_dot_product_attention"
    assert only(explicit).seen == "softmax"
    close = 1e-2 if dtype == torch.bfloat16 else 1e-6
    for recording in (fused, explicit):
        assert only(recording).weights.dtype == dtype
        assert_close(only(recording).weights, weights, atol=close, rtol=0)


def test_a_batch_on_the_second_axis() -> None:
    layer, x = nn.MultiheadAttention(8, 2), torch.randn(5, 3, 8)
    with observe(layer) as recording:
        weights = layer(x, x, x, average_attn_weights=False)[1]
    assert_close(only(recording).weights, weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_an_encoder_on_its_fast_path(mode: type[AbstractContextManager[None]]) -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, x = nn.TransformerEncoder(block, 2).eval(), inputs()
    with mode():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors are a prototype
            plain = encoder(x, src_key_padding_mask=HIDDEN)
        with observe(encoder) as recording:
            output = encoder(x, src_key_padding_mask=HIDDEN)
    assert_close(output[~HIDDEN], plain[~HIDDEN])
    assert [name for name, _ in recording.layers] == ["layers.0.self_attn", "layers.1.self_attn"]
    expected = encoder.layers[0].self_attn(
        x, x, x, key_padding_mask=HIDDEN, average_attn_weights=False
    )[1]
    assert_close(table(recording.layers[0][1]), expected, atol=1e-6, rtol=0)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Textbook, Notebook, Additive])
def test_softmaxes_of_notebooks(mode: type[AbstractContextManager[None]], kind: Any) -> None:
    model, x = kind(), inputs()
    arguments = (x, torch.tensor([2, 5, 1])) if kind is Textbook else (x,)
    with mode():
        torch.manual_seed(1)
        plain = model(*arguments)  # training: with dropout
        torch.manual_seed(1)
        with observe(model) as recording:
            output = model(*arguments)
    assert torch.equal(plain, output)
    ((name, seen),) = recording.layers
    assert name == ("attention" if kind is Textbook else "model")
    own = (model.attention if kind is Textbook else model).weights
    shape = (3, 1, 1, 5) if kind is Additive else (3, 2, 5, 5)
    assert_close(table(seen), own.reshape(shape), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_flex_attention(mode: type[AbstractContextManager[None]]) -> None:
    model, x = Flex(), inputs()
    with mode():
        warnings.simplefilter("ignore")
        plain = model(x)
        with observe(model) as recording:
            output = model(x)
        assert torch.equal(plain, output)
        assert only(recording).seen == "flex_attention"
        assert_close(only(recording).weights, model.expected(x), atol=1e-6, rtol=0)
        with observe(model, off={"model": [2]}):
            output = model(x)
    assert torch.equal(output[:, 0], plain[:, 0])
    assert not output[:, 1].any()


@pytest.mark.parametrize("mask", ["none", "bias", "allowed", "causal"])
@pytest.mark.parametrize("fused", [True, False])
def test_kernels_whose_heads_share_keys(mask: str, fused: bool) -> None:
    q, k, v = torch.randn(2, 4, 3, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 7)
    v = v[..., :6] if fused else v
    scores = q @ k.repeat_interleave(2, 1).mT * 0.3
    model, given = Fused(scale=0.3, is_causal=mask == "causal"), None
    if mask == "bias":
        given = torch.randn(3, 5)
        scores = scores + given
    if mask == "allowed":
        given = torch.rand(2, 1, 3, 5) > 0.3
        given[1, :, 2] = False  # a query without keys
        scores = scores.masked_fill(~given, -torch.inf)
    if mask == "causal":
        scores = scores.masked_fill(torch.ones(3, 5).triu(1).bool(), -torch.inf)
    with torch.no_grad(), observe(model) as recording:
        if fused:
            output = model(q, k, v, given)
        else:
            with sdpa_kernel(SDPBackend.MATH):
                output = model(q, k, v, given)
    assert only(recording).seen == ("scaled_dot_product_attention" if fused else "softmax")
    weights = only(recording).weights
    assert_close(weights, scores.softmax(-1).nan_to_num(0), atol=1e-6, rtol=0)
    assert_close(weights @ v.repeat_interleave(2, 1), output, atol=1e-5, rtol=0)


def test_training_with_dropout_and_gradients() -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x, gradients, outputs = inputs(), [], []
    for observed in (False, True):
        torch.manual_seed(1)
        block.zero_grad()
        if observed:
            with observe(block) as recording:
                output = block(x)
                output.square().sum().backward(retain_graph=True)
        else:
            output = block(x)
            output.square().sum().backward()
        outputs.append(output)
        gradients.append([parameter.grad.clone() for parameter in block.parameters()])
    assert torch.equal(*outputs)
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
    block.eval()
    expected = block.self_attn(x, x, x, average_attn_weights=False)[1]
    assert_close(only(recording).weights, expected, atol=1e-6, rtol=0)  # before dropout
    (slope,) = torch.autograd.grad(
        only(recording).weights[..., 0].sum(), block.self_attn.in_proj_bias
    )
    expected = torch.autograd.grad(expected[..., 0].sum(), block.self_attn.in_proj_bias)[0]
    assert_close(slope, expected, atol=1e-6, rtol=0)


class Distractors(nn.Module):
    """Softmaxes that are no attention: a router, a gate, class probabilities, a lookup, a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(8, 5), nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        probabilities = self.router(x).softmax(-1)
        best = probabilities.topk(2, -1)
        x = x + (best.values[..., None] * self.experts[best.indices]).sum(-2)
        x = x + probabilities @ self.experts
        x = x * x.softmax(-1)
        return x @ self.experts.mT @ self.experts + F.cross_entropy(x, torch.zeros(3, 8).long())


@pytest.mark.parametrize("mode", MODES)
def test_probabilities_are_no_attention(mode: type[AbstractContextManager[None]]) -> None:
    model = Distractors()
    with mode(), pytest.warns(UserWarning, match=r"nothing was observed of Distractors: .* values"):  # noqa: SIM117
        with observe(model) as recording:
            model(inputs())
    assert recording.layers == []


def test_an_autocast_parameter_is_a_parameter() -> None:
    model = Distractors()
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(UserWarning, match="nothing"):  # noqa: SIM117
        with observe(model):
            model(inputs())


@pytest.mark.parametrize("sink", ["first", "last"])
def test_a_sinks_column_is_cut_off(sink: str) -> None:
    class Sink(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            scores, own = q @ q.mT, torch.full((*q.shape[:-1], 1), 2.0)
            parts = (own, scores) if sink == "first" else (scores, own)
            weights = torch.cat(parts, -1).softmax(-1)
            self.weights = weights[..., 1:] if sink == "first" else weights[..., :-1]
            return self.weights @ q

    model = Sink()
    with observe(model) as recording:
        model(torch.randn(3, 2, 5, 4))
    assert_close(only(recording).weights, model.weights)


def test_calls_of_a_module_and_only_the_last_pass() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            x = self.inner(x, x, x)[0]
            return self.inner(x, memory, memory)[0]

    model = Twice()
    with torch.no_grad(), observe(model) as recording:
        model(torch.randn(1, 9, 8), torch.randn(1, 2, 8))
        model(torch.randn(2, 5, 8), torch.randn(2, 3, 8))
    shapes = {name: tuple(table(seen).shape) for name, seen in recording.layers}
    assert shapes == {"inner": (2, 2, 5, 5), "inner:2": (2, 2, 5, 3)}


@pytest.mark.parametrize("gradient", [False, True])
def test_heads_that_are_off(gradient: bool) -> None:
    model, x = Notebook(), inputs()
    with torch.set_grad_enabled(gradient):
        plain = model(x)
        with observe(model, off={"model": [1]}) as recording:
            output = model(x)
    assert not output[..., :4].any()
    assert torch.equal(output[..., 4:], plain[..., 4:])
    kept = only(recording).weights
    assert_close(kept.sum(-1), torch.ones(3, 2, 5))  # what the head would attend to
    if gradient:
        (slope,) = torch.autograd.grad(output[..., :4].sum(), model.qkv.weight)
        assert not slope.any()


@pytest.mark.parametrize("need_weights", [False, True])
def test_heads_of_a_layer_of_torch(need_weights: bool) -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), inputs()
    without = nn.MultiheadAttention(8, 2, batch_first=True)
    without.load_state_dict(layer.state_dict())
    with torch.no_grad():
        without.out_proj.weight[:, 4:] = 0
        with observe(nn.Sequential(nn.Identity(), layer), off={"1": [2]}):
            output = layer(x, x, x, need_weights=need_weights)[0]
        assert_close(output, without(x, x, x)[0], atol=1e-6, rtol=0)


def test_unknown_heads_and_layers() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    names = r"layers\.0\.self_attn, layers\.1\.self_attn"
    with torch.no_grad():
        with pytest.raises(RegardError, match=rf"'nobody' has no heads; choose one of {names}"):  # noqa: SIM117
            with observe(encoder, off={"nobody": [1]}):
                encoder(inputs())
        with pytest.raises(RegardError, match=r"head 3: layers\.0\.self_attn has heads 1 to 2"):  # noqa: SIM117
            with observe(encoder, off={"layers.0.self_attn": [3]}):
                encoder(inputs())
    fused = Fused()
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    with pytest.raises(RegardError, match=r"use torch\.no_grad\(\)"), observe(fused, off={"model": [1]}):  # fmt: skip # noqa: E501
        fused(q, q, q)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not encoder.layers[0]._forward_hooks


def test_a_failed_pass_is_forgotten() -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), inputs()
    with observe(layer) as recording:
        layer(x, x, x)
        with pytest.raises(AssertionError):
            layer(torch.zeros(3, 5, 7), x, x)
        layer(x, x, x)
        layer(x, x, x)
    assert only(recording).shape == (3, 2, 5, 5)


def test_long_texts_are_summed_up() -> None:
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), inputs()
    with torch.no_grad(), observe(layer, long=24, top=2) as recording:
        weights = layer(x, x, x, average_attn_weights=False)[1]
        layer(x, x, x, need_weights=False)
    ((_, summary),) = recording.layers
    assert isinstance(summary, Summary)
    best = weights.topk(2)
    assert_close(summary.weights, best.values)
    assert torch.equal(summary.indices.long(), best.indices)
    assert_close(summary.mass, weights.sum(-2))
    assert_close(summary.entropy, entropy(weights))


def test_strips_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.analysis.observe.LONG", 2 * 30)
    test_long_texts_are_summed_up()


def test_strips_of_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.analysis.observe.LONG", 8)
    q, k, bias = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(3, 5)
    model = Fused()
    with torch.no_grad(), observe(model, long=1) as recording:
        model(q, k, k, bias)
    ((_, summary),) = recording.layers
    assert_close(table(summary), (q @ k.mT / 2 + bias).softmax(-1))


def test_what_a_backward_pass_computes_again_is_no_call() -> None:
    class Checkpointed(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = checkpoint(super().forward, x, use_reentrant=True)
            return output

    model = Checkpointed(Notebook())
    with observe(model) as recording:
        model(inputs().requires_grad_()).sum().backward()
    assert [name for name, _ in recording.layers] == ["0"]


def test_weights_of_two_products_are_one_call() -> None:
    class Placed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = (x @ x.mT).softmax(-1)
            return weights @ x + weights @ x.sin()

    with observe(model := Placed()) as recording:
        model(inputs())
    assert only(recording).shape == (3, 1, 5, 5)


def test_heads_one_after_the_other() -> None:
    class Loop(nn.Module):
        num_heads = 3

        def forward(self, x: Tensor) -> Tensor:
            heads = x.unflatten(-1, (2, 4)).unbind(2)
            return torch.cat([(h @ h.mT).softmax(-1) @ h for h in heads], -1)

    with observe(model := Loop()) as recording:
        model(torch.randn(6, 5, 8))
    shapes = {name: tuple(table(seen).shape) for name, seen in recording.layers}
    assert shapes == {"model": (6, 1, 5, 5), "model:2": (6, 1, 5, 5)}


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_module_runs_uncompiled(fullgraph: bool) -> None:
    model, x = nn.Sequential(Notebook(), nn.Linear(8, 8)), inputs()
    compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
    with torch.no_grad(), observe(compiled) as recording:
        output = compiled(x)
    assert [name for name, _ in recording.layers] == ["0"]
    assert_close(output, model(x))


def test_changed_inputs_are_an_error() -> None:
    model, q = Fused(), torch.randn(1, 2, 3, 4)
    with observe(model) as recording:
        model(q, q, q)
    q.add_(1)
    with pytest.raises(RegardError, match="have changed"):
        _ = only(recording).weights


def test_nothing_is_kept_alive() -> None:
    model, x = Notebook(), inputs()
    with observe(model) as recording:
        model(x)
    weak, weights = weakref.ref(model), weakref.ref(only(recording).output)
    gc.disable()
    try:
        del model, recording
        assert weak() is None
        assert weights() is None
    finally:
        gc.enable()


def test_record_observes_models_without_layers_of_regard() -> None:
    model, x = Notebook(), inputs()
    with torch.no_grad(), record(model) as recording:
        model(x)
    (layer,) = looked(recording, list("abcde"))
    assert_close(torch.from_numpy(layer.weights), model.weights[0])


class Rows(nn.Module):
    """Attention whose softmax has other axes than (batch, heads, queries, keys)."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.num_heads, self.layout, self.qkv = 4, layout, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 2)).unbind(2)  # (batch, n, heads, width)
        scores = torch.einsum(f"bihd,bjhd->{self.layout}", q, k)
        self.weights = scores.softmax(self.layout.index("j"))
        return torch.einsum(f"{self.layout},bjhd->bihd", self.weights, v).flatten(-2)


@pytest.mark.parametrize("layout", ["bhij", "hbij", "ijbh"])
@pytest.mark.parametrize("batch", [1, 3])
def test_heads_and_rows_are_found_wherever_the_batch_stands(layout: str, batch: int) -> None:
    model, x = Rows(layout), torch.randn(batch, 5, 8)
    with observe(model) as recording:
        model(x)
    usual = torch.einsum(f"{layout}->bhij", model.weights)
    assert_close(only(recording).weights, usual)
    with observe(model, off={"model": [3]}):
        output = model(x).unflatten(-1, (4, 2))
    assert not output[:, :, 2].any()
    assert output[:, :, [0, 1, 3]].ne(0).all()
