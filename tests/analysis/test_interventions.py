"""A head switched off, and states taken from another text: both exact."""

import pytest
import torch
from torch import Tensor, nn

from regard.analysis.interventions import (
    Head,
    Place,
    blocks,
    keep_states,
    layers_with_heads,
    patched,
    without_heads,
)
from regard.attention import MECHANISMS, MultiHeadAttention, named_mechanism
from regard.core.errors import RegardError
from regard.nn.models.settings import TextClassifierSettings
from regard.nn.models.text_classifier import TextClassifier

LENGTHS = torch.tensor([5])
ONE, OTHER = torch.tensor([[4, 5, 6, 7, 8]]), torch.tensor([[9, 3, 6, 2, 11]])


@pytest.mark.parametrize("name", list(MECHANISMS))
def test_a_head_off_is_zeros_in_the_output_projection(name: str) -> None:
    torch.manual_seed(0)
    layer = named_mechanism(name)(12, 3, length=7).eval()
    x = torch.randn(2, 7, 12)
    whole = layer(x)
    with without_heads(layer, [Head("", 2)]):
        off = layer(x)
    width = layer.output.in_features // 3
    with torch.no_grad():
        layer.output.weight[:, width : 2 * width] = 0
    torch.testing.assert_close(off, layer(x), atol=1e-6, rtol=0)
    assert (whole - off).abs().max() > 1e-3


def test_a_head_off_without_an_output_projection_is_zero() -> None:
    layer = MultiHeadAttention(6, 2, output_projection=False)
    x = torch.randn(1, 4, 6)
    with without_heads(layer, [Head("", 1)]):
        off = layer(x)
    assert off[..., :3].abs().max() == 0
    torch.testing.assert_close(off[..., 3:], layer(x)[..., 3:])


def classifier(layers: int = 2) -> TextClassifier:
    torch.manual_seed(1)
    settings = TextClassifierSettings.model_validate(
        {"width": 8, "heads": 2, "layers": layers, "init_std": 1.0}
    )
    return TextClassifier(settings, vocabulary=12, labels=3).eval()


@pytest.mark.parametrize("head", [Head("blocks.9.attention", 1), Head("blocks.0.attention", 3)])
def test_an_unknown_head_is_refused(head: Head) -> None:
    wrong = pytest.raises(RegardError, match=r"choose one of|has heads 1 to 2")
    with wrong, without_heads(classifier(), [head]):
        pass


def test_a_model_without_heads_is_refused() -> None:
    wrong = pytest.raises(RegardError, match="no attention by heads")
    with wrong, without_heads(nn.Linear(2, 2), [Head("", 1)]):
        pass


def test_names_of_recorded_layers_name_heads() -> None:
    model = classifier()
    name = next(iter(layers_with_heads(model)))
    answers = []
    for layer in (name, f"{name}.attention"):
        with without_heads(model, [Head(layer, 1)]):
            answers.append(model(ONE, LENGTHS))
    torch.testing.assert_close(answers[0], answers[1])
    assert (answers[0] - model(ONE, LENGTHS)).abs().max() > 1e-4


def states_of(model: nn.Module, tokens: Tensor) -> dict[Place, Tensor]:
    with torch.no_grad(), keep_states(model) as states:
        model(tokens, LENGTHS)
    return states


def test_a_text_patched_into_itself_changes_nothing() -> None:
    model = classifier()
    with patched(model, states_of(model, ONE)):
        again = model(ONE, LENGTHS)
    torch.testing.assert_close(again, model(ONE, LENGTHS), atol=1e-6, rtol=0)


def test_all_states_of_the_first_block_bring_the_other_answer() -> None:
    model = classifier()
    first = next(iter(blocks(model)))
    states = {first: states_of(model, OTHER)[first]}
    wanted, own = model(OTHER, LENGTHS), model(ONE, LENGTHS)
    with patched(model, states):
        torch.testing.assert_close(model(ONE, LENGTHS), wanted, atol=1e-6, rtol=0)
    with patched(model, states, [1]):
        part = model(ONE, LENGTHS)
    assert min((part - wanted).abs().max(), (part - own).abs().max()) > 1e-4


@pytest.mark.parametrize("projection", [True, False])
def test_a_head_patched_is_the_other_texts_head(projection: bool) -> None:
    torch.manual_seed(2)
    layer = MultiHeadAttention(6, 3, output_projection=projection)
    model = nn.ModuleDict({"layer": layer})
    one, other = torch.randn(2, 1, 4, 6)
    with torch.no_grad(), keep_states(model) as states:
        theirs = layer(other)
    kept = torch.cat([states[Head("layer", head)] for head in (1, 2, 3)], -1)
    whole = layer.output(kept) if projection else kept
    torch.testing.assert_close(whole, theirs, atol=1e-6, rtol=0)
    with torch.no_grad(), keep_states(model) as own:
        layer(one)
    mixed = torch.cat([own[Head("layer", 1)], kept[..., 2:4], own[Head("layer", 3)]], -1)
    wanted = layer.output(mixed) if projection else mixed
    with torch.no_grad(), patched(model, {Head("layer", 2): states[Head("layer", 2)]}):
        torch.testing.assert_close(layer(one), wanted, atol=1e-6, rtol=0)
        torch.testing.assert_close(layer(one), layer(one))
    with torch.no_grad(), patched(model, {Head("layer", 2): states[Head("layer", 2)]}, [3]):
        part = layer(one)
    torch.testing.assert_close(part[:, :3], layer(one)[:, :3], atol=1e-6, rtol=0)
    torch.testing.assert_close(part[:, 3], wanted[:, 3], atol=1e-6, rtol=0)


def test_a_head_patched_by_zeros_is_off() -> None:
    model = classifier()
    name = next(iter(layers_with_heads(model)))
    zeros = torch.zeros(1, 5, 4)
    with torch.no_grad(), patched(model, {Head(name, 2): zeros}):
        by_zeros = model(ONE, LENGTHS)
    with torch.no_grad(), without_heads(model, [Head(name, 2)]):
        torch.testing.assert_close(by_zeros, model(ONE, LENGTHS), atol=1e-6, rtol=0)
    no_head = pytest.raises(RegardError, match="has heads 1 to 2")
    with no_head, patched(model, {Head(name, 3): zeros}):
        pass


def test_states_that_do_not_fit_are_refused() -> None:
    model = classifier()
    states = states_of(model, OTHER)
    for options, message in (
        ({"states": {"blocks.7": ONE}}, "no block"),
        ({"states": states, "positions": [-1]}, "not in both"),
        ({"states": states, "positions": [9]}, "not in both"),
        ({"states": {"blocks.0": states["blocks.0"][:, :2]}}, "give positions"),
    ):
        with pytest.raises(RegardError, match=message), patched(model, **options):
            model(ONE, LENGTHS)
