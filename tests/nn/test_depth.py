"""Attention over depth against a loop over layers and words: caches, packing, every network."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.attention import KeyValueCache, causal
from regard.core.errors import RegardError
from regard.nn.layers.depth import EPSILON
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
from regard.training.blocks import blocks_of, recompute
from tests.attention.parts import redrawn

SIZES = (1, 63, 64, 65, 129)
SMALL = {
    "width": 8, "heads": 2, "layers": 3, "feedforward": 16, "length": 130, "dropout": 0.0,
    "residual": "depth-attention",
}  # fmt: skip
NETWORKS = {
    "gpt": lambda: GPT(GPTSettings(**SMALL), 11),
    "bert": lambda: BERT(BERTSettings(norm="pre", **SMALL), 11),
    "transformer": lambda: Transformer(TransformerSettings(**SMALL), 11, 11),
    "t5": lambda: T5(T5Settings(**SMALL), 11),
    "classifier": lambda: TextClassifier(
        TextClassifierSettings(block="pre-norm", **SMALL, word_dropout=0), 11, 2
    ),
}


def moved(name: str) -> nn.Module:
    """A network in float64, its parameters away from where they begin."""
    torch.manual_seed(2)
    return redrawn(NETWORKS[name]().double().eval(), 0.4)


def gradients(output: Tensor, *wanted: Tensor) -> list[Tensor]:
    loss = (output * torch.arange(output.numel()).view_as(output).cos()).sum()
    return list(torch.autograd.grad(loss, wanted))


def step_by_step(model: GPT, tokens: Tensor) -> Tensor:
    """The states of GPT, one word after another with caches."""
    caches = [KeyValueCache() for _ in model.blocks]
    with torch.no_grad():
        steps = [
            model.read(one, causal(), torch.tensor([[at]]), caches)
            for at, one in enumerate(tokens.split(1, 1))
        ]
    return torch.cat(steps, 1)


def averaged(outputs: list[Tensor], query: Tensor) -> Tensor:
    """The average of the outputs of one text, one word after another."""
    rows = []
    for t in range(outputs[0].shape[1]):
        seen = [output[0, t] for output in outputs]
        scores = [query @ v / (v.square().mean() + EPSILON).sqrt() for v in seen]
        weights = torch.stack(scores).softmax(0)
        rows.append(sum(weight * v for weight, v in zip(weights, seen, strict=True)))
    return torch.stack(rows)[None]


def by_words(model: GPT, tokens: Tensor) -> Tensor:
    """The states of GPT, with one average after another."""
    outputs = [model.embed(tokens)]
    for block in model.blocks:
        for layer in (block.attention, block.feedforward):
            x = outputs[0]
            if layer.depth.query is not None:
                x = averaged(outputs, layer.depth.query)
            given = {"mask": causal()} if layer is block.attention else {}
            outputs.append(layer.work(layer.norm(x), **given))
    return model.norm(averaged(outputs, model.blocks[-1].end.query))


@pytest.mark.parametrize("n", SIZES)
def test_gpt_is_the_formula_and_its_steps(n: int) -> None:
    model = moved("gpt")
    tokens = torch.randint(0, 11, (1, n), generator=torch.Generator().manual_seed(n))
    ours, exact = model(tokens), by_words(model, tokens)
    assert_close(ours, exact)
    assert_close(gradients(ours, *model.parameters()), gradients(exact, *model.parameters()))
    assert_close(step_by_step(model, tokens), exact)


def test_the_weights_are_uniform_at_first() -> None:
    model = GPT(GPTSettings(**SMALL), 11)
    for block in model.blocks:  # pre-norm blocks begin with outputs of zero
        nn.init.normal_(block.attention.work.output.weight)
        nn.init.normal_(block.feedforward.work.narrow.weight)
    outputs = []
    for part in model.modules():
        if hasattr(part, "depth"):
            part.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    tokens = torch.tensor([[4, 5, 6]])
    states = model(tokens)
    mean = torch.stack([model.embed(tokens), *outputs]).mean(0)
    assert len(outputs) == 6
    assert_close(states, model.norm(mean))


READ, LENGTHS = torch.tensor([[4, 5, 6, 3], [7, 8, 0, 0]]), torch.tensor([4, 2])
TARGET, WRITTEN = torch.tensor([[0, 9, 3], [0, 3, 0]]), torch.tensor([3, 2])


def called(model: nn.Module, rows: slice = slice(None)) -> Tensor:
    read, sizes = READ[rows], LENGTHS[rows]
    read = read[:, : int(sizes.max())]
    if isinstance(model, Transformer | T5):
        return model(read, sizes, TARGET[rows][:, : int(WRITTEN[rows].max())], WRITTEN[rows])
    output = model(read, sizes)
    if isinstance(model, TextClassifier):
        return output
    return torch.cat([row[:size] for row, size in zip(output, sizes, strict=True)])


@pytest.mark.parametrize("name", NETWORKS)
def test_texts_are_as_they_are_alone_in_every_network(name: str) -> None:
    """With padding, and in the Transformer without it, in packed rows."""
    model = moved(name)
    both = called(model)
    alone = [called(model, slice(0, 1)), called(model, slice(1, 2))]
    if isinstance(model, T5):  # its states are those of the padded table
        both = torch.cat([both[:3], both[3:5]])
    assert_close(both, torch.cat(alone).view_as(both))
    weights = list(model.parameters())
    loose = torch.autograd.grad(both.square().sum(), weights, allow_unused=True)
    queries = [g for (key, _), g in zip(model.named_parameters(), loose, strict=True)
               if key.endswith(("depth.query", "end.query"))]  # fmt: skip
    assert len(queries) == {"transformer": 6 + 9, "t5": 6 + 9}.get(name, 6)
    assert all(g is not None and g.any() for g in queries)


@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_a_decoder_writes_step_by_step_what_it_reads(name: str) -> None:
    model = moved(name)
    with torch.no_grad():
        expected = model.to_logits(model(READ, LENGTHS, TARGET))
        writing = model.start(READ, LENGTHS)
        steps = [writing.step(tokens) for tokens in TARGET.split(1, 1)]
    assert_close(torch.cat(steps, 1), expected)


@pytest.mark.parametrize("name", ["gpt", "transformer"])
def test_recomputed_blocks_have_the_same_gradients(name: str) -> None:
    model = moved(name).train()
    used = [x for x in model.parameters() if x.requires_grad]
    exact = gradients(called(model), *used)
    for block in blocks_of(model):
        recompute(block)
    assert_close(gradients(called(model), *used), exact)


@pytest.mark.parametrize(
    "build",
    [
        lambda: BERT(BERTSettings(**SMALL), 11),
        lambda: TextClassifier(TextClassifierSettings(**SMALL), 11, 2),
        lambda: TextClassifier(TextClassifierSettings(**SMALL | {"layers": 0}), 11, 2),
    ],
)
def test_it_needs_pre_norm_blocks(build: object) -> None:
    with pytest.raises(RegardError, match=r"residual=depth-attention weighs .* pre-norm blocks"):
        build()
