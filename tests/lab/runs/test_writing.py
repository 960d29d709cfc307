"""A run that writes: trained, killed and resumed, judged, asked, looked into."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.cli.main import app
from regard.lab.data.pairs import Pair
from regard.lab.tasks.evaluation import read_rows
from regard.lab.tasks.writing.evaluation import Text, text_evaluation
from tests.lab.small_runs import finished

FEW = ["letters=3", "examples=3000", "width=24", "hidden=32", "dropout=0", "init_std=1",
       "steps=150", "judged=20", "learning_rate=0.01", "batch_tokens=224", "threads=1"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "r"
    return finished(runs.open_or_start(place, "reverse", "lab-6", FEW))


def test_a_run_learns_and_is_complete(trained):
    judged = trained.evaluate()
    assert judged.metric == "exact match"
    assert judged.value > 0.05, "chance is 1 of 17,576"
    assert judged.value == judged.correct.mean()
    assert trained.complete
    again = runs.load(trained.folder.path)
    said = again.predict(["ABC", "", "ZZY"])
    assert said[1] == Text("", 0.0, True), "a text without tokens is not asked about"
    assert again.predict("ABC").text == said[0].text


def test_stopped_and_resumed_to_the_same_bits(trained, tmp_path):
    steps = [*FEW, "save_every=7"]
    run = runs.open_or_start(tmp_path / "r", "reverse", "lab-6", steps)
    for progress in run.train():
        if progress.step == 30:
            break
    run = finished(runs.open_or_start(tmp_path / "r", "reverse", "lab-6", steps))
    ours, theirs = (x.folder.read(x.folder.weights) for x in (run, trained))
    assert ours == theirs


def test_attention_is_one_row_a_word_written(trained):
    (looked,) = trained.attention("ABC")
    assert looked.tokens == ["A", "B", "C"]
    assert looked.asking == [*trained.predict("ABC").text, "[END]"]
    assert looked.weights.shape == (1, len(looked.asking), 3)
    assert looked.weights.sum(-1) == pytest.approx(1, abs=1e-2)
    with pytest.raises(RegardError, match="this text has no tokens"):
        trained.attention("")


def test_spaces_around_a_text_are_no_part_of_it(trained):
    most = trained.task.room
    assert trained.left_out(["A" * most + "   ", " \t ABC ", "A" * (most + 2)]) == [0, 0, 2]
    assert trained.predict(" ABC  ") == trained.predict("ABC")
    assert trained.tokens(" ABC  ") == ["A", "B", "C"]


def test_a_file_of_pairs_is_judged(trained, tmp_path):
    file = tmp_path / "more.tsv"
    file.write_text("ABC\tCBA\nXYZ\tnever\n")
    judged = trained.evaluate(file)
    assert judged.n == 2
    assert judged.summary["exact"] == (trained.predict("ABC").text == "CBA") / 2
    assert not judged.correct[1]


def test_the_commands(trained, tmp_path):
    folder, ask = str(trained.folder.path), CliRunner()
    file = tmp_path / "in.txt"
    file.write_text("ABC\n\nQRS\n")
    out = ask.invoke(app, ["predict", folder, "--file", str(file)]).stdout
    assert out.splitlines() == [trained.predict(t).text for t in ("ABC", "", "QRS")]
    shown = ask.invoke(app, ["show", folder, "ABC"]).stdout
    assert f"prediction of lab-6: {trained.predict('ABC').text}  (ln p" in shown
    assert "[END]" in shown
    told = json.loads(ask.invoke(app, ["evaluate", folder, "--json"]).stdout)
    assert told["exact"] == trained.evaluate().summary["exact"]
    assert "nrefs:1" in ask.invoke(app, ["evaluate", folder]).stdout
    as_json = json.loads(ask.invoke(app, ["show", folder, "ABC", "--json"]).stdout)
    assert as_json["layers"][0]["asking"][-1] == "[END]"


def test_what_is_written_and_read_again_is_the_same():
    pairs = [Pair("Go.", "Va !", "a:1"), Pair("Hi.", "Salut !", "a:2")]
    written = [Text("Va !", -0.5, True), Text("Salut", -2.0, False)]
    examples = [pair.example for pair in pairs]
    judged = text_evaluation("BLEU", examples, written)
    assert judged.summary["exact"] == 0.5
    assert 0 <= judged.low <= judged.value <= judged.high <= 1
    assert read_rows(judged.rows(), "x", Text.of_row) == (examples, written)
    assert np.array_equal(judged.correct, [True, False])
    with pytest.raises(RegardError, match="x cannot be read"):
        read_rows(b'{"text": 1}\n', "x", Text.of_row)
    with pytest.raises(RegardError, match="there are no pairs to evaluate"):
        text_evaluation("BLEU", [], [])


def test_a_model_of_another_kind_is_refused(tmp_path):
    with pytest.raises(RegardError, match="no model is called 'tfidf'"):
        runs.open_or_start(tmp_path / "r", "reverse", "tfidf")
