"""``regard check``: a row for each law, exit codes, JSON, and speed beside scaled-dot."""

import json
from pathlib import Path

import pytest

from regard.conformance import LAWS, find

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_score.py"
STRANGERS = Path(__file__).parents[2] / "conformance" / "strangers.py"
BROKEN = Path(__file__).parents[2] / "conformance" / "broken.py"


def test_the_example_keeps_every_law(regard):
    said = regard("check", f"{EXAMPLE}:Laplacian", "--quick")
    assert said.status == 0
    assert said.err.startswith("laws: ")
    assert "36 of 36" in said.err
    assert "35 laws hold, 0 fail, 1 do not apply" in said.out
    assert said.out.count("✓") == 35
    assert said.out.count("–") == 1
    assert "speed and memory: skipped" in said.out


def test_a_law_that_fails_is_said_in_numbers(regard):
    said = regard("check", f"{BROKEN}:CountsPadding", "--quick", "--json")
    assert said.status == 1
    found = json.loads(said.out)
    assert (found["kind"], found["speed"]) == ("score", None)
    assert [row["law"] for row in found["laws"]] == list(LAWS["score"])
    padding = next(row for row in found["laws"] if row["law"] == "padding")
    assert padding["outcome"] == "fails"
    assert "in padding changed the output by" in padding["says"]
    assert padding["numbers"]["difference"] > 1e-3
    assert found["failures"] == sum(row["outcome"] == "fails" for row in found["laws"]) >= 3
    table = regard("check", f"{BROKEN}:Raises")
    assert table.status == 1
    assert "✗" in table.out
    assert "raised ValueError: no idea" in table.out
    assert "speed and memory: the code does not run" in table.out
    rest = len(LAWS["score"]) - 1
    assert f":Raises: 0 laws hold, 1 fail, {rest} not checked\n" in table.out


@pytest.mark.parametrize(
    "name", ["scaled-dot", "rotary", "sink", "causal", "gated", "torch.nn.MultiheadAttention"]
)
def test_names(regard, name):
    said = regard("check", name, "--quick", "--json")
    assert said.status == (1 if name.startswith("torch") else 0)
    assert json.loads(said.out)["what"] == name


def test_a_mask_and_a_layer_of_ones_own(regard, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from regard import Mask, MultiHeadAttention\n"
        "print('hello')\n"
        "def far():\n"
        "    return Mask(lambda r, c: (r[..., :, None] - c[..., None, :]).abs() > 2)\n"
        "layer = MultiHeadAttention(12, 3, score='cosine')\n"
    )
    assert json.loads(regard("check", f"{file}:far", "--quick", "--json").out)["kind"] == "mask"
    found = json.loads(regard("check", f"{file}:layer", "--quick", "--json").out)
    assert (found["kind"], found["failures"]) == ("layer", 0)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("none.py:Mine", "none.py cannot be read"),
        (f"{EXAMPLE}:Laplace", "did you mean Laplacian"),
        (f"{EXAMPLE}:nn", "no laws for a module; pass a Score"),
        (f"{BROKEN}:past", "past cannot be called without arguments"),
        ("scaled_dot", "did you mean scaled-dot"),
        (str(EXAMPLE), "FILE.py:Name"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(regard, what, words):
    assert words in regard.refused("check", what)


def test_without_a_name_it_lists(regard):
    assert "sparsemax" in regard("check").out.splitlines()
    assert "scaled-dot" in json.loads(regard("check", "--json").out)


def test_speed_is_beside_scaled_dot(regard, monkeypatch):
    from regard.lab.cli import check

    monkeypatch.setattr(check, "BUDGET", 0.01)
    monkeypatch.setattr(check, "N", 64)
    said = regard("check", "cosine", "--json")
    speed = json.loads(said.out)["speed"]
    assert speed["against"] == "scaled-dot"
    assert speed["time_ratio"] == pytest.approx(speed["theirs_s"] / speed["ours_s"])
    assert 0 < speed["ours_s"] < 5
    assert 0 <= speed["ours_mb"] < 200
    words = check.says("mine", check.Speed("scaled-dot", 0.2, 0.1, 30.0, 4.0))
    assert "mine: 200.0 ms, 30 MB" in words
    assert words.endswith("2.00 times the time")
    monkeypatch.setattr(check, "PASS", 0.0)  # a slow subject is timed on fewer words
    monkeypatch.setattr(check, "LEAST", 32)
    monkeypatch.setattr(check, "fresh", lambda what, side, words: 0.0)
    assert check.measured("cosine", find("cosine")).words == 32
    layers = regard("check", "regard.MultiHeadAttention")
    assert "use regard bench attention" in layers.out


def test_the_command_writes_it_and_corrects_a_guess(regard, tmp_path):
    out = tmp_path / "issue.md"
    said = regard("check", f"{STRANGERS}:Einops", "--quick", "--report", out)
    assert said.status == 1
    assert said.out.startswith(
        f"{STRANGERS}:Einops: forward(x=x, context=memory, mask=may look (b, m))"
    )
    assert "## " not in out.read_text()
    assert "hidden keys changed the output of a query without visible keys" in out.read_text()
    wrong = regard("check", f"{STRANGERS}:Einops", "mask=hidden (b, m)", "--quick", "--json")
    assert wrong.status == 1
    assert '"padding 1e3", "outcome": "fails"' in wrong.out
    known = regard("check", "torch.nn:MultiheadAttention", "--quick")
    assert "called as in torch: forward(query=x" in known.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["torch.nn:Nothing"], "torch.nn has no Nothing"),
        (["no_such_package:Layer"], "pip install no-such-package"),
        ([f"{STRANGERS}:Einops", "mask=seen"], "write a meaning and a shape"),
        (["scaled-dot", "mask=hidden (b, m)"], "settings need TASK:MODEL, not scaled-dot"),
        (["scaled-dot", "--quick", "--report", "x.md"], "a report is of a module from elsewhere"),
    ],
)
def test_mistakes_about_a_module(regard, words, says):
    said = regard("check", *words)
    assert said.status == 2
    assert says in said.err
