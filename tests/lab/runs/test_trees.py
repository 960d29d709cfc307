"""Trees reach models: parsed sentences from a file to the positions that go by their trees."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.examples import Example
from regard.lab.reports.run import write_run_report
from regard.lab.runs.config import Config
from regard.lab.studies.compare import compare
from regard.lab.studies.job import train_and_score
from regard.lab.tasks.classification.task import Classification
from regard.lab.tasks.settings import ClassificationSettings
from tests.attention.parts import shifted
from tests.lab.cli.conftest import call
from tests.lab.data.test_conllu import sentence, written
from tests.lab.small_runs import finished, trained_run
from tests.lab.studies.declare import checked

TINY = ["width=16", "layers=1", "heads=2", "feedforward=16", "dropout=0", "word_dropout=0",
        "pool=mean", "minimum=1", "batch_tokens=256", "learning_rate=0.02", "threads=1",
        "precision=fp32"]  # fmt: skip


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of any words: those of "flat" hang on the first, those of "deep" in a chain."""
    random, text = Random(0), ""
    for number in range(240):
        words = [f"w{random.randrange(20)}" for _ in range(random.randrange(4, 8))]
        deep = bool(number % 2)
        heads = [0, *((i if deep else 1) for i in range(1, len(words)))]
        text += sentence(*zip(words, heads, strict=True), label="deep" if deep else "flat")
    return written(tmp_path_factory.mktemp("parses"), text)


@pytest.fixture(scope="module")
def trained(parses: Path, tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    given = [*TINY, f"data={parses}", "position=tree-depth", "steps=40"]
    place = tmp_path_factory.mktemp("trees") / "run"
    return finished(runs.start(place, "classification", "transformer", given))


def task(parses: Path, **changes: object) -> Classification:
    return Classification(ClassificationSettings(data=str(parses), minimum=1, **changes))


def test_a_batch_holds_the_trees_of_its_sentences(parses):
    one = task(parses)
    indexes = np.array([0, 3, 5])
    batch = one.batch("train", indexes)
    for i, index in enumerate(indexes):
        example = one.train.examples[index]
        size = int(batch.lengths[i])
        assert size == len(example.words)
        assert tuple(batch.parents[i, :size].tolist()) == example.parents
        assert bool((batch.parents[i, size:] == -1).all())


@pytest.mark.parametrize(
    ("keep", "parents"),
    [("head", [-1, 0, 1]), ("tail", [-1, 0, 1]), ("ends", [-1, 0, 1])],
)
def test_what_is_cut_off_leaves_a_tree(parses, keep, parents):
    one = task(parses, length=3, truncate=keep)
    example = Example("w1 w2 w3 w4 w5", "deep", "", parents=(-1, 0, 1, 2, 3))
    ids, trees = one.read([example])
    assert (len(ids[0]), trees[0].tolist()) == (3, parents)
    flat = Example("w1 w2 w3 w4 w5", "flat", "", parents=(-1, 0, 0, 0, 0))
    assert one.read([flat])[1][0].tolist() == ([-1] * 3 if keep == "tail" else [-1, 0, 0])


ABLE = ["+cls", "transformer", "gpt", "bert", "t5"]


@pytest.mark.parametrize(
    ("model", "position"),
    [("mean", "tree-depth"), *((m, p) for m in ABLE for p in ("tree-keys", "tree-depth"))],
)
def test_every_model_that_has_positions_sees_the_tree(parses, model, position):
    one = task(parses)
    given = ["width=8", f"data={parses}", "minimum=1", f"position={position}"]
    given += [] if model == "mean" else ["heads=2", "layers=1"]
    config = runs.Config.make("classification", model, given)
    torch.manual_seed(0)
    network = shifted(config.entry.build(config.network, **one.sizes))
    words = "w1 w2 w3 w4"
    trees = [(-1, 0, 1, 2), (-1, 0, 0, 0), (-1, 0, 1, 2)]
    deep, flat, again = one.probabilities(
        network, [Example(words, "", "", parents=x) for x in trees]
    )
    assert abs(deep - flat).max() > 1e-4
    assert deep == pytest.approx(again, abs=1e-6)
    padded = [Example(words, "", "", parents=trees[0]), Example("w1 " * 6 + "w1", "", "", "",
              (-1, 0, 1, 2, 3, 4, 5))]  # fmt: skip
    assert one.probabilities(network, padded)[0] == pytest.approx(deep, abs=1e-5)
    with pytest.raises(RegardError, match="this model needs the parse tree of each text"):
        one.probabilities(network, [words])


def test_a_model_learns_what_only_the_tree_tells(parses, trained, tmp_path):
    assert trained.evaluate().value > 0.9
    again = trained.evaluate(parses)
    assert again.n == 240
    assert again.value > 0.9
    given = [*TINY, f"data={parses}", "position=rotary", "steps=40"]
    plain = trained_run(tmp_path / "plain", "classification", "transformer", given)
    assert plain.evaluate().value < 0.75
    assert plain.predict("w1 w2 w3").label in ("deep", "flat")


def test_texts_without_trees_are_refused(trained, tmp_path):
    loaded = runs.load(trained.folder.path)
    with pytest.raises(
        RegardError, match=r"these texts have none; give parsed sentences in a \.conllu"
    ):
        loaded.predict("w1 w2 w3")
    with pytest.raises(RegardError, match=r"in a \.conllu file"):
        loaded.attention("w1 w2 w3")
    (tmp_path / "rows.csv").write_text("text,label\nw1 w2,deep\nw3 w4,flat\n")
    with pytest.raises(RegardError, match=r"in a \.conllu file"):
        loaded.evaluate(tmp_path / "rows.csv")
    assert ">Attention</h2>" not in write_run_report(loaded).read_text()


def test_the_commands(trained, parses, tmp_path, capsys):
    folder = trained.folder.path
    file = written(tmp_path, sentence(("w1", 0), ("w2", 1), ("w3", 2), ("w4", 3), ("w5", 4)))
    assert call("predict", folder, "--file", file, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["predictions"]
    assert (answer["text"], answer["label"]) == ("w1 w2 w3 w4 w5", "deep")
    assert call("evaluate", folder, "--data", parses, "--json") == 0
    assert json.loads(capsys.readouterr().out)["n"] == 240
    assert call("predict", folder, "w1 w2") == 2
    assert "give parsed sentences in a .conllu file" in " ".join(capsys.readouterr().err.split())
    given = [*TINY, f"data={parses}", "position=tree-depth", "steps=40", "--out", folder]
    assert call("train", "classification", "--model", "transformer", *given) == 0
    said = capsys.readouterr().out
    assert f"next: regard predict {folder} --file FILE.conllu" in " ".join(said.split())
    assert "regard show" not in said
    file.write_text("1\tw1\t_\t_\t_\t_\t7\t_\t_\t_\n")
    assert call("predict", folder, "--file", file) == 2
    assert "s.conllu:1: HEAD is 7" in " ".join(capsys.readouterr().err.split())


def test_arms_with_and_without_the_tree(parses, tmp_path):
    study = checked(
        "classification",
        "transformer:position=rotary;transformer:position=tree-keys;tfidf",
        seeds=1,
        out=tmp_path / "out",
        overrides=[*TINY, f"data={parses}", "steps=3"],
    )
    for job in study.jobs():
        train_and_score(job.task, lambda *said: None)
    assert len(compare(study).arms) == 3


@pytest.mark.parametrize("position", ["tree-depth", "tree-keys"])
@pytest.mark.parametrize(
    ("task", "model", "given", "says"),
    [
        (
            "classification",
            "transformer",
            [],
            "reads the tree of each text, and the data of classification",
        ),
        (
            "classification",
            "transformer",
            ["data=r.csv"],
            r"and r\.csv of classification have none; give",
        ),
        (
            "classification",
            "t5",
            ["data=a.conllu", "test=b.csv"],
            r"a\.conllu and b\.csv of classification",
        ),
        ("language-modeling", "gpt", [], "the data of language-modeling have none"),
    ],
)
def test_positions_along_trees_need_data_with_trees(position, task, model, given, says):
    with pytest.raises(RegardError, match=says):
        runs.Config.make(task, model, [f"position={position}", *given])


def test_tokens_that_cut_words_are_refused(parses):
    with pytest.raises(RegardError, match="tokenizer=bpe splits words, but a CoNLL-U"):
        task(parses, tokenizer="bpe", vocabulary=400).train  # noqa: B018


def test_a_validation_file_without_trees_is_refused_before_the_training() -> None:
    given = ["data=x.conllu", "test=y.conllu", "position=tree-keys"]
    assert Config.make("classification", "transformer", [*given, "validation=0.2"])
    with pytest.raises(
        RegardError, match=r"x\.conllu and y\.conllu and dev\.csv of classification"
    ):
        Config.make("classification", "transformer", [*given, "validation=dev.csv"])
