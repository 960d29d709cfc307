"""Puzzles as tasks: their metrics, their models, their runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.examples import Example
from regard.lab.runs import Config
from regard.lab.tasks import TASKS
from regard.lab.tasks.symbols import PUZZLES
from regard.lab.tasks.symbols.task import SymbolTask
from regard.lab.tasks.tagging.evaluation import Tags, tag_evaluation, word_counts
from tests.lab.small_runs import finished, prepared

TINY = ("examples=200", "held_out=30", "steps=3", "width=8", "threads=1")
SMALL = {"examples": 60, "held_out": 20}
ASKED = [
    Example("a b c", "_ x y", "p:1"),
    Example("a b c", "_ _ x", "p:2"),
    Example("b b c", "_ x x", "p:3"),
]
SAID = [["_", "x", "x"], ["_", "_", "x"], ["_", "y", "y"]]


def small(name: str, **given: object) -> SymbolTask:
    task = prepared(name, **({} if name == "modular-addition" else SMALL), **given)
    assert isinstance(task, SymbolTask)
    return task


def test_only_positions_with_an_answer_count() -> None:
    judged = tag_evaluation("accuracy", ASKED, SAID, "x", SymbolTask.scoring)
    assert word_counts(*SymbolTask.scoring.counted(ASKED, SAID)).tolist() == [
        [1, 2, 2],
        [1, 1, 1],
        [0, 2, 2],
    ]
    assert judged.value == pytest.approx(2 / 5)
    assert judged.other_metrics == {"exact match": pytest.approx(1 / 3)}
    assert judged.trivial == {"most frequent answer": pytest.approx(4 / 5)}
    assert judged.summary["kinds"] == {
        "x": {"right": 2, "said": 3, "true": 4},
        "y": {"right": 0, "said": 2, "true": 1},
    }
    assert judged.per_example.mean() == pytest.approx(2 / 5)
    assert not judged.is_constant
    exact = tag_evaluation("exact match", ASKED, SAID, "x", SymbolTask.scoring)
    assert exact.value == pytest.approx(1 / 3)
    assert exact.per_example.tolist() == [0, 1, 0]
    assert exact.other_metrics == {"accuracy": pytest.approx(2 / 5)}
    assert exact.trivial == {"most frequent answer": pytest.approx(2 / 3)}
    assert judged.line().endswith("3 examples), exact match 33.3%")
    assert judged.words()[1] == ("most frequent answer", "80.00%  (x everywhere)")
    constant = [["_", "x", "x"], ["_", "_", "x"], ["_", "x", "x"]]
    assert tag_evaluation("accuracy", ASKED, constant, "x", SymbolTask.scoring).is_constant
    assert Tags(("a", "b"), ("_", "x")).phrase() == "b/x"
    again = small("mqar").restore(judged.rows(), "rows")
    assert (again.value, again.answers) == (judged.value, judged.answers)


@pytest.mark.parametrize("name", PUZZLES)
def test_every_answer_is_a_label_of_its_position(name: str) -> None:
    task = small(name)
    batch = task.batch("train", np.arange(5))
    for row, example in enumerate(task.train.examples[:5]):
        tags = example.label.split(" ")
        said = [task.labels[i] if i >= 0 else "_" for i in batch.labels[row, : len(tags)]]
        assert said == tags
        read = [task.tokenizer.vocabulary[i] for i in batch.tokens[row, : len(tags)]]
        assert read == example.words
    assert sum(task.counts.values()) == sum((x >= 0).sum() for x in task.train.labels)
    assert len(task.validation) == len(task.test)


def test_the_loss_is_the_cross_entropy_of_the_answers_alone() -> None:
    task = small("mqar", symbols=16, pairs=2, train_length=12)
    config = Config.make("mqar", "gpt", ["width=8", "symbols=16", "pairs=2"])
    torch.manual_seed(0)
    network = config.entry.build(config.network, **task.sizes)
    batch = task.batch("train", np.arange(4))
    logits = network(batch.tokens, batch.lengths)
    total = [
        F.cross_entropy(logits[row, at], batch.labels[row, at])
        for row, at in (batch.labels >= 0).nonzero().tolist()
    ]
    torch.testing.assert_close(task.loss(network, batch), torch.stack(total).mean())
    accuracy, loss = task.judge(network, "validation")
    said = task.tag(network, "validation")
    examples = task.validation.examples
    assert task.evaluation(examples, said).value == accuracy
    plain = super(SymbolTask, task).tag(network, examples)
    assert task.evaluation(examples, plain).answers == task.evaluation(examples, said).answers
    assert 0 < loss < 4


@pytest.mark.parametrize("name", PUZZLES)
def test_each_is_trained_and_tested(name: str, tmp_path: Path) -> None:
    own = [pair for pair in TINY if name != "modular-addition" or not pair.startswith(("ex", "he"))]
    run = runs.start(tmp_path / name, name, TASKS[name].model, own)
    assert list(run.train())
    evaluation = run.evaluate()
    assert evaluation.unit == "examples"
    assert 0 <= evaluation.value <= 1
    text = run.task.test.examples[0].text
    (answer,) = runs.load(tmp_path / name).predict([text])
    assert len(answer.tags) == len(text.split(" "))
    assert {*answer.tags} <= {*run.task.labels}


@pytest.mark.parametrize("model", ["transformer", "rnn", "cnn", "most-frequent-tag"])
def test_other_models_read_puzzles_that_do_not_contain_the_answers(
    model: str, tmp_path: Path
) -> None:
    pairs = ["examples=200", "held_out=30", "train_length=12", "symbols=16", "pairs=2"]
    pairs += [] if model == "most-frequent-tag" else ["steps=2", "threads=1"]
    run = runs.start(tmp_path / model, "mqar", model, pairs)
    assert list(run.train())
    assert 0 <= run.evaluate().value <= 1


@pytest.mark.parametrize("name", ["induction", "sorting", "reversing"])
def test_models_that_look_ahead_are_not_offered_where_they_would_see_the_answer(name: str) -> None:
    assert TASKS[name].settings().puzzle().contains_answers
    with pytest.raises(RegardError, match="no model is called 'transformer'"):
        Config.make(name, "transformer")


@pytest.mark.deep
def test_two_layers_recall(tmp_path: Path) -> None:
    run = runs.start(
        tmp_path / "run",
        "mqar",
        "gpt",
        ["symbols=8", "pairs=2", "train_length=8", "examples=4000", "held_out=200", "width=32",
         "steps=600", "batch_size=32", "learning_rate=5e-3", "threads=1"],
    )  # fmt: skip
    finished(run)
    assert run.evaluate().value > 0.9


def test_a_test_may_be_longer_than_training() -> None:
    task = small("sorting", train_length=5, shortest=3, test_length=9)
    assert {len(ids) for ids in task.train.ids} == {6, 8, 10}
    assert {len(ids) for ids in task.test.ids} == {18}


def test_data_that_is_not_its_own_and_sizes_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(
        RegardError, match=r"mqar generates its examples and cannot read data=x\.csv"
    ):
        prepared("mqar", data="x.csv").facts()
    with pytest.raises(RegardError, match="an example has 64 symbols, but models read length=40"):
        prepared("mqar", length=40).facts()
    with pytest.raises(RegardError, match="shortest=9 is more than train_length=8; set shortest=0"):
        prepared("sorting", shortest=9, train_length=8).facts()


def test_test_examples_that_are_in_train_are_told() -> None:
    (note,) = small("reversing", symbols=2, train_length=2).notes
    assert note == "20 of 20 test examples are also in train"
