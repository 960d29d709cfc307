"""Value residual against loops over layers and words: stacks, caches, packing, networks."""

from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.attention import KeyValueCache, Packing, causal, lengths, named_mechanism
from regard.attention.kernels.linear import by_steps
from regard.attention.mechanisms.stages import FirstValues
from regard.core.errors import RegardError
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import (
    BERTSettings,
    GPTSettings,
    T5Settings,
    TextClassifierSettings,
    TransformerSettings,
)
from regard.nn.models.t5 import T5
from regard.nn.models.text_classifier import TextClassifier
from regard.nn.models.transformer import Transformer
from tests.attention.parts import drawn, redrawn
from tests.nn.test_depth import gradients

SIZES = (1, 63, 64, 65, 129)
NAMES = ("multi-head", "differential", "forgetting", "moba-16-2", "linear", "kda", "ssd")


def moved(module: nn.Module) -> nn.Module:
    """The module in float64, its parameters away from where they begin."""
    torch.manual_seed(2)
    return redrawn(module.double().eval(), 0.4)


def made(*names: str, **settings: object) -> nn.ModuleList:
    layers = [named_mechanism(f"{name}+value-residual")(12, 3, **settings) for name in names]
    return moved(nn.ModuleList(layers))


def run(layers: nn.ModuleList, x: Tensor, **given: object) -> Tensor:
    first = FirstValues()
    caches = given.pop("caches", [None] * len(layers))
    for layer, cache in zip(layers, caches, strict=True):
        x = x + layer(x, cache=cache, first_values=first, **given)
    return x


def words(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """What `run` returns for multi-head attention with a causal mask, one number after another."""
    first: list[list[Tensor]] = []
    for layer in layers:
        heads, groups, width = layer.heads, layer.groups, layer.head_width
        q, k, v = layer.project(x).split(layer.sizes, -1)
        own, before = getattr(layer, "stage-value-residual").amounts
        mixed = []
        for text in range(len(x)):
            mixed.append([])
            for i in range(x.shape[1]):
                earlier = first[text][i] if len(first) > text and i < len(first[text]) else None
                mixed[text].append(own * v[text, i] + before * (v[text, i] if earlier is None
                                                                else earlier))  # fmt: skip
        if not first:
            first = [list(rows) for rows in v]
        after = []
        for text in range(len(x)):
            for i in range(x.shape[1]):
                joined = []
                for head in range(heads):
                    at = slice(head * width, (head + 1) * width)
                    group = head // (heads // groups)
                    of = slice(group * width, (group + 1) * width)
                    scores = torch.stack([q[text, i, at] @ k[text, j, of] for j in range(i + 1)])
                    weights = (scores / width**0.5).softmax(0)
                    joined.append(sum(weights[j] * mixed[text][j][of] for j in range(i + 1)))
                after.append(x[text, i] + layer.output(torch.cat(joined)))
        x = torch.stack(after).view_as(x)
    return x


@pytest.mark.parametrize("shared", [3, 1])
@pytest.mark.parametrize("n", [1, 5])
def test_multi_head_is_the_formula(n: int, shared: int) -> None:
    layers = made(*["multi-head"] * 3, key_value_heads=shared)
    x = drawn(2, n, 12).requires_grad_()
    ours, exact = run(layers, x, mask=causal()), words(layers, x)
    assert_close(ours, exact)
    wanted = [x, *layers.parameters()]
    assert_close(gradients(ours, *wanted), gradients(exact, *wanted))


class Given(nn.Module):
    """A projection with numbers that were computed before."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        return self.values.reshape(*x.shape[:-1], -1)


@pytest.mark.parametrize("n", SIZES)
def test_a_recurrence_reads_the_mixed_values(n: int) -> None:
    """Beside plain layers whose values are mixed by hand, as loops over words."""
    names = ("kda", "delta-products-2", "delta-products-2", "kda")
    for first, second in (names[:1] * 2, names[1:3]):
        layers = made(first, second)
        x = drawn(2, n, 12).requires_grad_()
        ours = run(layers, x, mask=causal())
        exact, v1 = x, None
        for layer, name in zip(layers, (first, second), strict=True):
            v = layer.project_values(exact)
            v1 = v if v1 is None else v1
            own, before = getattr(layer, "stage-value-residual").amounts
            plain = named_mechanism(name)(12, 3).double().eval()
            plain.load_state_dict(layer.state_dict(), strict=False)
            for part, parameter in layer.named_parameters():  # of the same graph
                if not part.startswith(("stage", "project_values")):
                    *path, leaf = part.split(".")
                    owner = plain.get_submodule(".".join(path))
                    del owner._parameters[leaf]
                    setattr(owner, leaf, parameter)
            plain.project_values = Given(own * v + before * v1)
            with (
                patch("regard.attention.mechanisms.recurrent.by_chunks", by_steps),
                patch("regard.attention.mechanisms.recurrent.must_suit"),
            ):
                exact = exact + plain(exact, mask=causal())
        assert_close(ours, exact)
        wanted = [x, *layers.parameters()]
        assert_close(gradients(ours, *wanted), gradients(exact, *wanted))


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_packed_rows_are_those_of_the_table(name: str) -> None:
    layers = made(*[name] * 3)
    for n in SIZES if name in ("multi-head", "kda") else (65,):
        x = drawn(2, n, 12)
        with torch.no_grad():
            table = run(layers, x, mask=causal())
            caches = [KeyValueCache() for _ in layers]
            steps = [run(layers, one, mask=causal(), caches=caches) for one in x.split(1, 1)]
            assert_close(torch.cat(steps, 1), table)
            sizes = torch.tensor([n, max(1, n // 2)])
            packing, mask = Packing(sizes, n), causal() & lengths(sizes)
            rows = run(layers, packing.pack(x), mask=mask, packing=packing)
            assert_close(rows, packing.pack(run(layers, x, mask=mask)))


def test_padding_has_no_effect() -> None:
    layers, sizes = made("multi-head", "linear", "multi-head"), torch.tensor([7, 3])
    x = drawn(2, 7, 12)
    x[1, 3:] = torch.nan
    x.requires_grad_()
    output = run(layers, x, mask=lengths(sizes))[1, :3]
    alone = run(layers, x[1:, :3], mask=None)[0]
    assert_close(output, alone)
    slopes = gradients(output, x, *layers.parameters())
    assert_close(slopes[1:], gradients(alone, *layers.parameters()))
    assert not slopes[0][1, 3:].any()


NETWORKS = {
    "gpt": lambda name: GPT(GPTSettings(attention=name, **SMALL), 11),
    "bert": lambda name: BERT(BERTSettings(attention=name, **SMALL), 11),
    "transformer": lambda name: Transformer(TransformerSettings(attention=name, **SMALL), 11, 11),
    "t5": lambda name: T5(T5Settings(attention=name.replace("delta", "gated"), **SMALL), 11),
    **{
        block: lambda name, block=block: TextClassifier(
            TextClassifierSettings(attention=name, block=block, **SMALL), 11, 2
        )
        for block in ("plain", "residual", "pre-norm", "post-norm")
    },
}
SMALL = {"width": 8, "heads": 2, "layers": 3, "feedforward": 16, "length": 20}
BOTH = "multi-head+value-residual/delta+value-residual"


def called(model: nn.Module) -> Tensor:
    tokens, sizes = torch.tensor([[4, 5, 6, 3], [7, 8, 0, 0]]), torch.tensor([4, 2])
    if isinstance(model, GPT | BERT):
        states = model(tokens, sizes)
        return torch.cat([states[0], states[1, :2]])
    return model(tokens, sizes) if isinstance(model, TextClassifier) else model(
        tokens, sizes, torch.tensor([[0, 9, 3], [0, 3, 0]])
    )  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_hands_on_its_first_values(name: str) -> None:
    model = moved(NETWORKS[name](BOTH))
    amounts = [x for part, x in model.named_parameters() if part.endswith("amounts")]
    count = {"transformer": 9, "t5": 9}.get(name, 3)
    assert len(amounts) == count
    assert all(slope.any() for slope in gradients(called(model), *amounts))
    with torch.no_grad():
        mixed = called(model)
        for pair in amounts:
            pair.copy_(torch.tensor([1.0, 0.0]))
        plain = NETWORKS[name](BOTH.replace("+value-residual", "")).double().eval()
        plain.load_state_dict(model.state_dict(), strict=False)
        assert_close(called(model), called(plain))
        for pair in amounts:
            pair.copy_(torch.tensor([0.0, 1.0]))
    assert not torch.allclose(called(model), mixed)


@pytest.mark.parametrize("name", ["gpt", "transformer", "t5"])
def test_a_network_writes_step_by_step_what_it_reads(name: str) -> None:
    model = moved(NETWORKS[name](BOTH))
    read, sizes = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    target = torch.tensor([[0, 9, 3, 4], [0, 3, 5, 6]])
    with torch.no_grad():
        if name == "gpt":
            after = torch.tensor([[4, 5, 6, 9, 3, 4], [7, 8, 3, 5, 6, 0]])
            states = model.to_logits(model(after))
            expected = torch.stack([states[0, 2:6], states[1, 1:5]])
        else:
            expected = model.to_logits(model(read, sizes, target))
        writing = model.start(read, sizes)
        steps = [writing.step(tokens) for tokens in target.split(1, 1)]
    assert_close(torch.cat(steps, 1), expected)


def test_recomputed_blocks_have_the_same_gradients() -> None:
    from regard.training.blocks import blocks_of, recompute

    model = moved(NETWORKS["gpt"](BOTH)).train()
    for module in model.modules():
        module.dropout = 0.0
    exact = gradients(called(model), *model.parameters())
    for block in blocks_of(model):
        recompute(block)
    assert_close(gradients(called(model), *model.parameters()), exact)


def test_layers_must_have_as_many_columns() -> None:
    layers = made("multi-head", "delta-products-2")
    with pytest.raises(RegardError, match="24 columns of values and the first one 12"):
        run(layers, drawn(1, 4, 12))


def test_latent_attention_has_no_values_to_mix() -> None:
    with pytest.raises(RegardError, match=r"attention=latent .* leave out \+value-residual"):
        made("latent")
