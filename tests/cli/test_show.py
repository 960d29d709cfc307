import json
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli.show import coloured

from .conftest import Command

TEXT = "a film that isn't bad"
TOKENS = ["a", "film", "that", "is", "n't", "bad"]


def test_layers_in_words_and_numbers(regard: Command, trained: Path) -> None:
    said = regard("show", trained, TEXT)
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("transformer says: ")
    assert "\nlayer 1, mean of 2 heads" in said.out
    assert "layer 2, pool, 1 head, an even share is 0.167" in said.out
    assert said.out.count("most: ") == 2
    assert said.out.count("strongest: ") == 1  # a pool has one row
    assert lines[3].split() == TOKENS
    assert "\x1b" not in said.out  # plain where there is no terminal


def test_json_has_every_weight(regard: Command, trained: Path) -> None:
    found = json.loads(regard("show", trained, TEXT, "--json").out)
    first, second = found["layers"]
    assert first["tokens"] == TOKENS
    assert (len(first["weights"]), len(first["weights"][0])) == (2, 6)
    for row in first["weights"][1]:
        assert sum(row) == pytest.approx(1, abs=1e-5)
    mean = [sum(w[row][2] for w in first["weights"] for row in range(6)) / 12][0]
    assert first["received"][2] == pytest.approx(mean, abs=1e-6)
    assert sum(second["received"]) == pytest.approx(1, abs=1e-5)


def test_one_layer_and_one_head(regard: Command, trained: Path) -> None:
    whole = json.loads(regard("show", trained, TEXT, "--json").out)
    part = json.loads(regard("show", trained, TEXT, "--layer", 1, "--head", 2, "--json").out)
    (layer,) = part["layers"]
    assert layer["weights"] == whole["layers"][0]["weights"][1:]
    assert "head 2" in regard("show", trained, TEXT, "--layer", 1, "--head", 2).out


def test_mistakes(regard: Command, trained: Path) -> None:
    for words, hint in (
        (["--layer", 3], "attention layers 1 to 2"),
        (["--layer", 2, "--head", 2], "has heads 1 to 1"),
        (["--layer", 1, "--head", 3], "has heads 1 to 2"),
    ):
        said = regard("show", trained, TEXT, *words)
        assert said.status == 2
        assert hint in said.err
        assert said.err.count("\n") == 1
        assert said.out == ""
    assert "no word to look at" in regard("show", trained, "  ").err


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("mean", "mean of the words, 1 head, an even share is 0.333"),
        ("rnn", "rnn has no attention"),
        ("+cls", "[CLS] looks at: "),
        ("tfidf", "tfidf has no attention"),
    ],
)
def test_models_of_every_kind(regard: Command, tmp_path: Path, model: str, says: str) -> None:
    brief = ["examples=120", "seed=0"]
    if model != "tfidf":
        brief += ["steps=1", "width=8", "threads=1"]
    regard("train", "sentiment", "--model", model, "--out", tmp_path / "run", *brief)
    said = regard("show", tmp_path / "run", "a good film")
    assert said.status == 0
    assert says in said.out
    if model == "mean":
        assert "there is no token to look at" in regard("show", tmp_path / "run", " ").err


def test_colour_follows_weight() -> None:
    line = coloured(["low", "half", "most"], [0.01, 0.25, 0.5])
    shown = Console(force_terminal=True, color_system="truecolor", width=80)
    with shown.capture() as captured:
        shown.print(line)
    text = captured.get()
    assert "48;2;255;176;0mmost" in text.replace("\x1b[30;", "")
    assert "48;2;128;88;0mhalf" in text.replace("\x1b[37;", "")
    assert "\x1b" not in text.split("low")[0]
