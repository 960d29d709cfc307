import json
import shutil
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from regard.analysis.interventions import Head, layers_with_heads, without_heads
from regard.lab import runs
from regard.lab.cli.main import app
from regard.lab.cli.show import coloured
from tests.lab.small_runs import finished

from .conftest import Command

TEXT = "a film that isn't bad"
TOKENS = ["a", "film", "that", "is", "n't", "bad"]


def test_layers_in_words_and_numbers(regard: Command, trained: Path) -> None:
    said = regard("show", trained, TEXT)
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("prediction of transformer: ")
    assert "\nlayer 1, mean of 2 heads" in said.out
    assert "layer 2, pool, 1 head, uniform weight 0.167" in said.out
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


def test_heads_switched_off_change_the_answer_and_the_weights(
    regard: Command, trained: Path
) -> None:
    whole = json.loads(regard("show", trained, TEXT, "--json").out)
    part = json.loads(regard("show", trained, TEXT, "--without-heads", "1.1, 1.2", "--json").out)
    run = runs.load(trained)
    names = layers_with_heads(run.network)
    with without_heads(run.network, [Head(name, head) for name in names for head in (1, 2)]):
        wanted = run.predict(TEXT).json()
        pool = run.attention(TEXT)[1].weights.tolist()
    assert part["probabilities"] == wanted["probabilities"] != whole["probabilities"]
    assert part["before"]["probabilities"] == whole["probabilities"]
    assert part["layers"][1]["weights"] == pool != whole["layers"][1]["weights"]
    said = regard("show", trained, TEXT, "--without-heads", "1.1,1.2").out.splitlines()
    assert said[0].startswith("prediction of transformer with all heads: ")
    answer = f"prediction of transformer without heads 1.1,1.2: {run_phrase(wanted)}"
    assert said[1].partition("; unknown to the model: ")[0] == answer
    assert run.predict(TEXT).json()["probabilities"] == whole["probabilities"]


def run_phrase(answer: dict[str, Any]) -> str:
    return f"{answer['label']}, {answer['probabilities'][answer['label']]:.1%} sure"


def test_mistakes(regard: Command, trained: Path) -> None:
    for words, hint in (
        (["--layer", 3], "choose 1 to 2"),
        (["--layer", 2, "--head", 2], "choose 1 to 1"),
        (["--layer", 1, "--head", 3], "choose 1 to 2"),
        (["--open"], "add --out FILE.html"),
        (["--without-heads", "x"], "'x' is not LAYER.HEAD; write 1.2,2.1"),
        (["--without-heads", "1.1,"], "'' is not LAYER.HEAD"),
        (["--without-heads", "3.1"], "no layer 3; choose 1 to 2"),
        (["--without-heads", "0.1"], "no layer 0; choose 1 to 2"),
        (["--without-heads", "1.3"], "has heads 1 to 2"),
        (["--without-heads", "2.1"], "'pool.attention' has no heads"),
    ):
        assert hint in regard.refused("show", trained, TEXT, *words)
    assert "this text has no words" in regard.refused("show", trained, "  ")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("mean", "mean of the words, 1 head, uniform weight 0.333"),
        ("rnn", "rnn has no attention"),
        ("+cls", "[CLS] attends to: "),
        ("tfidf", "with its share of word pairs, to the score of "),
    ],
)
def test_models_of_every_kind(regard: Command, tmp_path: Path, model: str, says: str) -> None:
    brief = ["examples=120", "seed=0"]
    if model != "tfidf":
        brief += ["steps=1", "width=8", "threads=1"]
    regard("train", "classification", "--model", model, "--out", tmp_path / "run", *brief)
    said = regard("show", tmp_path / "run", "a good film")
    assert said.status == 0
    assert says in said.out
    if model == "mean":
        assert "contains no tokens" in regard("show", tmp_path / "run", " ").err


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that count words, in two folders of one folder."""
    home = tmp_path_factory.mktemp("home")
    for model in ("tfidf", "nb-svm"):
        run = runs.start(
            home / model / "seed-0", "classification", model, ["examples=120", "minimum=1"]
        )
        finished(run)
    return home


@pytest.mark.parametrize("model", ["tfidf", "nb-svm"])
def test_what_words_add_to_a_score(
    regard: Command, counted: Path, tmp_path: Path, model: str
) -> None:
    run, text = counted / model / "seed-0", "A wonderful film, a truly bad plot"
    found = json.loads(regard("show", run, text, "--json").out)
    words = [row["word"] for row in found["words"]]
    assert words == ["a", "wonderful", "film", ",", "a", "truly", "bad", "plot"]
    assert sum(row["weight"] for row in found["words"]) + found["bias"] == pytest.approx(
        found["score"]
    )
    assert found["score"] >= 0  # of two labels the one that is said
    assert found["layers"] == []
    said = regard("show", run, text, "--out", tmp_path / "w.html").out
    best = max(found["terms"], key=lambda row: row["weight"])
    assert f"for: {best['term']} {best['weight']:+.3f}" in said
    page = (tmp_path / "w.html").read_text()
    assert "Words and pairs of words" in page
    assert f"Contribution of each word to the score of {found['label']}" in page
    assert regard("show", run, text, "--out", tmp_path / "w.svg").status == 0
    assert (tmp_path / "w.svg").read_text().startswith("<?xml")
    assert "no word of this text occurred" in regard("show", run, "zzz").out
    for given, hint in (([" "], "contains no words"), ([text, "--layer", 1], "has no layers")):
        assert hint in regard.refused("show", run, *given)


def test_a_folder_above_runs_names_them(regard: Command, counted: Path, trained: Path) -> None:
    for command in ("predict", "show", "evaluate", "report"):
        said = regard.refused(
            command, counted, *(["a film"] if command in ("predict", "show") else [])
        )
        assert "is not a run but contains 2: nb-svm/seed-0, tfidf/seed-0" in said
        assert said.endswith(f"for example regard {command} {counted / 'nb-svm' / 'seed-0'}\n")
    rows = [{"folder": "tfidf", "mean": 0.7}, {"folder": "nb-svm", "mean": 0.6}]
    record = counted / "comparison.json"
    for metric, best in (("accuracy", "tfidf"), ("log loss", "nb-svm")):
        record.write_text(json.dumps({"metric": metric, "arms": rows}))
        assert runs.below(counted)[0] == counted / best / "seed-0"
    record.unlink()
    assert runs.below(trained) == []
    shutil.copytree(trained, counted / "transformer")
    said = regard.refused("show", counted, "a film")  # the first that attends
    assert said.endswith(f"regard show {counted / 'transformer'}\n")
    shutil.rmtree(counted / "transformer")


def test_colour_follows_weight() -> None:
    line = coloured(["low", "half", "most"], [0.01, 0.25, 0.5])
    shown = Console(force_terminal=True, color_system="truecolor", width=80)
    with shown.capture() as captured:
        shown.print(line)
    text = captured.get()
    assert "48;2;255;176;0mmost" in text.replace("\x1b[30;", "")
    assert "48;2;128;88;0mhalf" in text.replace("\x1b[37;", "")
    assert "\x1b" not in text.split("low")[0]
    with shown.capture() as captured:
        shown.print(coloured(["against", "for"], [-0.1, 0.2], signed=True))
    text = captured.get()
    assert "48;2;80;150;255mfor" in text.replace("\x1b[30;", "")
    assert "48;2;128;88;0magainst" in text.replace("\x1b[37;", "")


def test_a_page_is_opened_on_request(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or False)
    page = tmp_path / "look at.html"
    call = ["show", str(trained), "a good film", "--out", str(page), "--open"]
    found = CliRunner().invoke(app, call)
    assert asked == [f"file://{tmp_path}/look%20at.html"]
    assert f"no browser was found; open file://{tmp_path}/look%20at.html" in found.stderr
    CliRunner().invoke(app, ["report", str(trained), "--out", str(tmp_path / "r.html"), "--open"])
    assert asked[1:] == [f"file://{tmp_path}/r.html"]


def test_an_encoder_is_shown_by_attribution(regard: Command, tmp_path: Path) -> None:
    brief = ["examples=120", "seed=0", "steps=2", "width=8", "heads=2", "layers=2", "threads=1"]
    regard("train", "classification", "--model", "bert", "--out", tmp_path / "run", *brief)
    run, text = runs.load(tmp_path / "run"), "a film, a dull film"
    found = json.loads(regard("show", tmp_path / "run", text, "--json").out)
    own = run.attribute(text)
    assert [word["word"] for word in found["words"]] == ["[CLS]", *run.tokens(text), "[SEP]"]
    weights = [word["weight"] for word in found["words"]]
    assert weights == pytest.approx(own.gradients.values.tolist(), abs=1e-6)
    assert found["bias"] + sum(weights) == pytest.approx(own.gradients.output, abs=1e-3)
    assert found["score"] == pytest.approx(found["bias"] + sum(weights))
    assert {"film (3)", "film (7)"} & {term["term"] for term in found["terms"]}
    said = regard("show", tmp_path / "run", text, "--out", tmp_path / "x.svg").out
    assert f"\ncontribution of each word to {own.choices[own.choice]}:" in said
    assert "<svg" in (tmp_path / "x.svg").read_text()
    for words in (["--attention"], ["--layer", 1], ["--without-heads", "1.1"]):
        assert "layer 1, " in regard("show", tmp_path / "run", text, *words).out
    assert "this text has no words" in regard("show", tmp_path / "run", " ").err
