"""Pretraining on one's own texts before a task with few labels; data of these kinds by name."""

import json

import pytest
from typer.testing import CliRunner

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.cli.main import app
from regard.lab.data.sources import load_corpus
from tests.lab.small_runs import finished, stop_after

SMALL = ["width=16", "heads=2", "layers=1", "feedforward=24", "length=30", "threads=1"]


def texts(folder):
    path = folder / "many.txt"
    words = "film plot actor story scene good bad dull fine long".split()
    lines = [
        f"a {words[i % 10]} {words[(i * 3) % 10]} {words[(i * 7) % 9]} {i % 5}" for i in range(200)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def reviews(folder):
    path = folder / "many.txt"
    path.write_text("\n".join(x.text for x in load_corpus("reviews").train[:200]) + "\n")
    return str(path)


def done(words):
    """What a command says that ends well."""
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    return said.output


def pretraining(folder, task, model, *given):
    way, settings = runs.way_of(task, model, *given)
    return runs.open_or_start(folder, way, model, settings)


def test_a_pretraining_takes_sizes_and_tokens_of_the_task(tmp_path):
    given = [*SMALL, "seed=3", "epochs=7", "learning_rate=0.1", "data=reviews", "vocabulary=99"]
    run = pretraining(tmp_path / "a", "classification", "bert", texts(tmp_path), given, ["steps=4"])
    config = run.config
    assert (config.task, config.model) == ("masked-modeling", "bert")
    assert config.network.width == 16
    assert (config.data.tokenizer, config.data.vocabulary, config.data.length) == ("words", 99, 30)
    assert config.data.data == texts(tmp_path)
    assert config.training.seed == 3
    assert config.training.learning_rate == 1e-3, "the task's own rate is not that of pretraining"
    assert config.training.budget == ("steps", 4.0)


def test_what_judges_the_task_is_not_read_before(tmp_path):
    def without(*given, texts="many.txt"):
        run = pretraining(
            tmp_path / str(len(given)) / texts, "classification", "gpt", texts, [*SMALL, *given]
        )
        return run.config.data.without, run.config.data.without_text

    assert without("data=few.csv", "text=says") == ("few.csv", "says")
    assert without("data=few.csv", "text=says", "test=held.csv") == ("held.csv", "says")
    assert without("data=imdb") == ("imdb", "")
    assert without(texts="reviews") == ("", ""), "by name its own test is left out already"
    own = str(tmp_path / "x" / ".." / "few.csv")
    given = [f"data={tmp_path / 'few.csv'}", "test=held.csv"]
    assert without(*given, texts=own) == ("held.csv", "")
    with pytest.raises(RegardError, match="which includes its test split; give the test as a file"):
        without(given[0], texts=own)


def test_what_cannot_be_pretrained_is_refused(tmp_path):
    for task, model in (("classification", "mean"), ("translation", "t5")):
        with pytest.raises(RegardError, match="cannot be pretrained on texts"):
            pretraining(tmp_path / "a", task, model, "reviews")
    with pytest.raises(RegardError, match="no setting is called 'stesp'; did you mean steps"):
        pretraining(tmp_path / "a", "classification", "gpt", "reviews", [], ["stesp=3"])


def test_the_command_pretrains_then_fine_tunes(tmp_path):
    many = reviews(tmp_path)
    words = ["train", "classification", "--pretrain-on", many, "--pretrain-budget", "3 steps"]
    words += ["--out", str(tmp_path / "run"), "--budget", "2 steps", "examples=200", *SMALL]
    assert "pretrained: loss" in done(words)
    run, before = runs.load(tmp_path / "run"), runs.load(tmp_path / "run-pretrained")
    assert run.complete
    assert before.complete
    assert run.config.model == "bert"
    assert run.config.training.init == str(tmp_path / "run-pretrained")
    assert run.folder.environment()["init"]["taken"] > 1_000
    assert "is already complete" in done(words)


def test_a_forecast_tells_of_the_pretraining_too_and_refuses_what_it_would(tmp_path):
    def command(*words):
        out = ["--out", str(tmp_path / "run"), "--dry-run", "examples=200", *SMALL]
        return ["train", "classification", "--pretrain-on", *words, *out]

    many = texts(tmp_path)
    said = done(command(many, "--pretrain-budget", "3 steps"))
    assert said.index("masked-modeling") < said.index("bert on classification")
    assert not (tmp_path / "run-pretrained").exists()
    found = json.loads(CliRunner().invoke(app, command(many, "--json")).stdout)
    assert found["task"] == "classification"
    assert found["pretraining"]["task"] == "masked-modeling"
    for words, says in (
        ([many, "--model", "transformer"], "cannot be pretrained on texts"),
        (["nope.jsonl"], "nope.jsonl"),
    ):
        refused = CliRunner().invoke(app, command(*words))
        assert isinstance(refused.exception, RegardError)
        assert says in str(refused.exception)


def test_an_ended_pretraining_waits_for_the_task(tmp_path):
    many = reviews(tmp_path)
    words = ["train", "classification", "--pretrain-on", many, "--pretrain-budget", "9 steps"]
    words += ["--out", str(tmp_path / "run"), "--budget", "2 steps", "examples=200"]
    words += [*SMALL, "optimizer=muon"]
    given = ["examples=200", *SMALL, "optimizer=muon", "steps=2"]
    often = ["steps=9", "save_every=1"]
    before = pretraining(tmp_path / "run-pretrained", "classification", "bert", many, given, often)
    assert before.config.training.optimizer == "muon"
    stop_after(before, 4)
    said = done([*words, "--end"])
    assert "ended by --end after 33% of its budget" in said
    assert "run the same command without --end" in said
    assert not (tmp_path / "run").exists()
    done(words)
    assert runs.load(tmp_path / "run").complete
    assert runs.load(tmp_path / "run-pretrained").ended == pytest.approx(3 / 9)


def test_rows_of_data_are_printed():
    lines = done(["data", "rows", "birthplace", "--count", "2", "length=48"]).splitlines()
    assert lines[0].startswith("data has ")
    assert [line[:3] for line in lines[1:]] == ["x: ", "y: ", "x: ", "y: "]
    assert len(lines[1]) == len(lines[2]) == 3 + 47
    assert "⁇" in lines[1]
    refused = CliRunner().invoke(app, ["data", "rows", "classification"])
    assert isinstance(refused.exception, RegardError)
    assert "has no rows to print" in str(refused.exception)


def test_predictions_of_questions_are_one_a_line(tmp_path):
    given = [*SMALL, "steps=1"]
    finished(runs.open_or_start(tmp_path / "run", "birthplace", "gpt", given))
    questions = tmp_path / "q.tsv"
    questions.write_text("Where was A born?\nWhere was B born?\n")
    for name in ("p.txt", "p.jsonl"):
        words = ["evaluate", str(tmp_path / "run"), "--data", str(questions)]
        said = done([*words, "--predictions", str(tmp_path / name)])
        assert "the questions have no reference answers" in said
        written = (tmp_path / name).read_text().splitlines()
        assert len(written) == 2
        assert written[0].startswith("{") == (name == "p.jsonl")
    asked = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--json"])
    assert '"baseline": 0.06' in asked.output
