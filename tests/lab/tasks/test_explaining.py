"""The numbers behind an answer: what they are in every task, and that gradients add up to them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard.analysis.attribution import (
    Explainable,
    attention_gradients,
    attributed,
    integrated_gradients,
)
from regard.core.errors import RegardError
from regard.lab.data.tokenizers import train_tokenizer
from regard.lab.tasks import TASKS
from regard.lab.tasks.explaining import visible
from regard.lab.tasks.writing.searching import Writes
from regard.nn.layers.device import evaluation_mode

SIZES: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "feedforward": 24, "dropout": 0}
RECURRENT: dict[str, Any] = {"width": 12, "hidden": 12, "dropout": 0}
FEW = {"examples": "200"}
PIECES = {"data": "biographies", "length": "20", "validation": "0.1"}
STRINGS = {"letters": "5", "examples": "300"}
TEXT = "not a bad film at all"
CASES: dict[str, tuple[str, str, dict[str, str], dict[str, Any], str]] = {
    "label": ("classification", "transformer", FEW, SIZES, TEXT),
    "label of a recurrent network": ("classification", "rnn", FEW, RECURRENT, TEXT),
    "label of a body": ("classification", "bert", FEW, SIZES, TEXT),
    "tags": ("tagging", "transformer", FEW, SIZES, "Ada saw Paris in May ."),
    "puzzle": ("induction", "gpt", {"examples": "60", "held_out": "20"}, SIZES, "s3 s1 s7 s3"),
    "next word": ("language-modeling", "gpt", PIECES, SIZES, "Ada was born"),
    "masked word": ("masked-modeling", "bert", PIECES, SIZES, "Ada was [MASK] in [MASK]"),
    "span": ("span-corruption", "t5", PIECES, SIZES, "Ada was <extra_id_0> Paris"),
    "answer": (
        "birthplace",
        "gpt",
        {"length": "64"},
        {**SIZES, "length": 64},
        "Where was Ada born?",
    ),
    "string": ("reverse", "transformer", STRINGS, SIZES, "ABCDE"),
    "string, tied": ("reverse", "transformer", STRINGS, {**SIZES, "tie": True}, "ABCDE"),
    "string by Bahdanau": ("reverse", "bahdanau", STRINGS, RECURRENT, "ABCDE"),
    "string by Luong": ("reverse", "luong-general", STRINGS, RECURRENT, "ABCDE"),
    "string without attention": ("reverse", "gru", STRINGS, RECURRENT, "ABCDE"),
}


def built(case: str) -> tuple[Any, nn.Module, str]:
    """The task of a case, an untrained network with clear answers, and its text."""
    name, model, settings, sizes, text = CASES[case]
    kind = TASKS[name]
    task = kind.prepare(kind.configure(settings))
    if name == "birthplace":
        questions = [pair.source for pair in task.corpus.train]
        task.tokenizer = train_tokenizer("characters", [*task.corpus.texts, *questions], minimum=1)
    entry = kind.models[model]
    torch.manual_seed(1)
    network: nn.Module = entry.build(entry.configure(sizes), **task.sizes)
    with torch.no_grad():
        for parameter in network.parameters():  # at first, a sublayer may add zero
            parameter += 0.2 * torch.randn_like(parameter)
    return task, network.eval(), text


@pytest.mark.parametrize("case", CASES)
def test_integrated_gradients_add_up_for_every_task(case: str) -> None:
    task, network, text = built(case)
    found: Explainable = task.explainable(network, text)
    last = len(found.scalars) - 1
    for choice in sorted({0, found.default, last // 2, last}):
        _, scalar = found.choose(choice)
        result = integrated_gradients(scalar, 512 if case == "span" else 256)
        whole = result.output - result.baseline
        assert result.values.shape == (len(scalar.tokens),)
        assert abs(whole) > 1e-4, scalar.name
        assert result.values.sum() == pytest.approx(whole, rel=0.03, abs=2e-4), scalar.name
        with torch.no_grad():
            assert result.output == pytest.approx(scalar.forward(1).item(), abs=1e-4)
    said = task.attribute(network, text).json()
    missing = sum(said["integrated_gradients"]) - (said["output"] - said["baseline"])
    assert abs(missing) <= 0.003 * sum(map(abs, said["integrated_gradients"])) + 1e-4
    assert said["choice"] == found.default
    assert said["choices"] == [scalar.name for scalar in found.scalars]
    assert sum(said["sizes"]) == len(said["tokens"]) == len(said["integrated_gradients"])
    attends = case not in ("label of a recurrent network", "string without attention")
    assert (said["attention_gradients"] is not None) == attends
    with pytest.raises(RegardError, match=f"choices 0 to {last}"):
        task.attribute(network, text, last + 1)


def test_the_numbers_are_those_of_the_answers() -> None:
    task, network, text = built("tags")
    (log_probs,), (answer,) = task.log_probabilities(network, [text]), task.predict(network, [text])
    for place, scalar in enumerate(task.explainable(network, text).scalars):
        word, tag = answer.words[place], answer.tags[place]
        assert scalar.name == f"tag of word {place + 1}, {word}: {tag}"
        assert number(scalar) == pytest.approx(log_probs[place].max(), abs=1e-5)

    task, network, text = built("label")
    outputs = task.outputs(network, [text])[0]
    found = task.explainable(network, text)
    assert [s.name for s in found.scalars] == [f"logit of {label}" for label in task.labels]
    assert found.default == outputs.argmax()
    assert [number(s) for s in found.scalars] == pytest.approx(outputs.tolist(), abs=1e-4)


@pytest.mark.parametrize("case", ["answer", "span", "string", "string by Bahdanau"])
def test_the_whole_output_is_as_likely_as_the_written_text(case: str) -> None:
    task, network, text = built(case)
    assert isinstance(task, Writes)
    found = task.explainable(network, text)
    *words, whole = found.scalars
    assert len(words) > 1
    assert (found.default, whole.name) == (0, "the whole output")
    assert number(whole) == pytest.approx(
        task.predict(network, [text])[0].log_probability, abs=1e-3
    )
    assert sum(map(number, words)) == pytest.approx(number(whole), abs=1e-3)
    first = task.next_words(network, text)[0]
    assert number(words[0]) == pytest.approx(math.log(first.probability), abs=1e-4)
    assert words[0].name == f"output word 1, {visible(first.token)}"


def test_next_words_and_words_of_the_text() -> None:
    task, network, text = built("next word")
    found, ahead = task.explainable(network, text), task.next_words(network, text)
    assert len(ahead) == 5
    for scalar, word in zip(found.scalars, ahead, strict=False):
        assert scalar.name == f"next word: {visible(word.token)} ({word.probability:.1%})"
        assert number(scalar) == pytest.approx(math.log(word.probability), abs=1e-4)
    ids = task.request(text, 1).source
    with torch.no_grad():
        logits = network.to_logits(network(torch.from_numpy(ids)[None].long()))[0].float()
    logits[:, 0] = -math.inf
    wanted = logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
    own = found.scalars[5:]
    assert [number(s) for s in own] == pytest.approx(wanted.tolist(), abs=1e-4)
    assert [len(s.tokens) for s in own] == [*range(1, len(ids))]


def test_masked_words_are_those_filled_in() -> None:
    task, network, text = built("masked word")
    (filled,) = task.fill(network, [text])
    scalars = task.explainable(network, text).scalars
    assert sum(map(number, scalars)) == pytest.approx(filled.log_probability, abs=1e-4)
    assert [scalar.name.split(":")[0] for scalar in scalars] == ["[MASK] 1", "[MASK] 2"]
    with pytest.raises(RegardError, match=r"replace a word by \[MASK\]"):
        task.explainable(network, "Ada was born")


@pytest.mark.parametrize("case", ["label", "tags", "string"])
def test_a_text_without_tokens_is_refused(case: str) -> None:
    task, network, _ = built(case)
    with pytest.raises(RegardError, match=r"has no (words|tokens), so there is nothing"):
        task.attribute(network, " ")


@pytest.mark.parametrize("case", ["string", "string by Bahdanau", "span"])
def test_attention_times_gradient_of_the_source_and_of_what_was_written(case: str) -> None:
    task, network, text = built(case)
    found = task.explainable(network, text)
    choice = min(2, len(found.scalars) - 1)
    _, scalar = found.choose(choice)
    with evaluation_mode(network):
        rows = attention_gradients(network, scalar)
        whole = attributed(network, found, choice)
    read, written = map(len, scalar.texts)
    assert all(np.isfinite(row).all() for _, row in rows)
    total = sum(row for _, row in whole.layers)
    assert len(total) == read + written
    if case == "string by Bahdanau":  # one call for each written word
        assert len(rows) == written
        assert (total[read:] == 0).all()
        np.testing.assert_allclose(total[:read], sum(row for _, row in rows))
        slope = by_difference(network, network.attention, scalar, read)
        np.testing.assert_allclose(total[:read], slope, atol=2e-3, rtol=5e-2)
    else:
        own = [row for name, row in rows if name.startswith("decoder") and "memory" not in name]
        others = [row for name, row in rows if "memory" in name or not name.startswith("decoder")]
        np.testing.assert_allclose(total[read:], sum(own))
        np.testing.assert_allclose(total[:read], sum(others))
        assert abs(total[read:]).max() > 0


def by_difference(network: nn.Module, layer: nn.Module, scalar: Any, keys: int) -> list[float]:
    """How much f moves when the memory's value at each key is scaled, the key staying as it is."""
    moved = []
    for key in range(keys):
        ends = []
        for step in (0.02, -0.02):

            def scale(_: Any, inputs: tuple[Any, ...], at: int = key, by: float = step) -> Any:
                values = inputs[2].clone()
                if values.shape[-2]:
                    values[..., at, :] *= 1 + by
                return (*inputs[:2], values, *inputs[3:])

            handle = layer.register_forward_pre_hook(scale)
            with torch.no_grad():
                ends.append(scalar.forward(1).double().item())
            handle.remove()
        moved.append((ends[0] - ends[1]) / 0.04)
    return moved


def number(scalar: Any) -> float:
    with torch.no_grad():
        return float(scalar.forward(1))
