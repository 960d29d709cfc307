"""Several labels for each text: metrics against scikit-learn, thresholds, runs, estimators."""

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs

import regard
from regard.core.errors import ArgumentError, RegardError
from regard.lab import runs
from regard.lab.cli.answers import table_rows
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import Example
from regard.lab.runs.estimators import MultilabelClassifier
from regard.lab.tasks.heads import fit_each
from regard.lab.tasks.multilabel import METRICS
from regard.lab.tasks.multilabel.evaluation import (
    GUESS,
    guess,
    label_sets,
    per_example,
    scores,
    set_evaluation,
)
from tests.lab.small_runs import prepared, trained_run

LABELS = ["acting", "plot", "music"]
TINY = ["width=8", "heads=2", "layers=1", "feedforward=8", "steps=4", "threads=1", "examples=300"]
LIMITS = [0.4, 0.5, 0.6]


def drawn(count=60, seed=0):
    chance = np.random.default_rng(seed)
    return chance.random((count, 3)), chance.random((count, 3)) < [0.5, 0.3, 0.1]


def examples(truth):
    names = ("; ".join(sorted(np.array(LABELS)[row])) for row in truth)
    return [Example(f"text {i}", label, f"r.csv:{i + 2}") for i, label in enumerate(names)]


def evaluated(metric, truth, chances):
    return set_evaluation(metric, LABELS, examples(truth), chances, LIMITS, [30, 20, 5], 60)


def test_metrics_are_scikit_learns():
    chances, truth = drawn()
    values, predicted = scores(chances, truth, LIMITS)
    assert values == pytest.approx(
        {
            "micro-F1": theirs.f1_score(truth, predicted, average="micro"),
            "macro-F1": theirs.f1_score(truth, predicted, average="macro"),
            "mean average precision": theirs.average_precision_score(truth, chances),
            "subset accuracy": theirs.accuracy_score(truth, predicted),
        }
    )


@pytest.mark.parametrize("metric", METRICS.values())
def test_scores_of_texts_have_the_metric_as_mean_and_its_variance(metric):
    chances, truth = drawn(400, seed=1)
    value = scores(chances, truth, LIMITS)[0][metric]
    predicted = chances > np.array(LIMITS)
    numbers = per_example(metric, chances, predicted, truth, value)
    assert numbers.mean() == pytest.approx(value)
    chance = np.random.default_rng(2)
    draws = [chance.integers(0, 400, 400) for _ in range(300)]
    spread = np.std([scores(chances[d], truth[d], LIMITS)[0][metric] for d in draws])
    assert numbers.std(ddof=1) / 20 == pytest.approx(spread, rel=0.2)
    evaluation = evaluated(metric, truth, chances)
    assert evaluation.low < value < evaluation.high
    assert evaluation.high - evaluation.low == pytest.approx(3.92 * spread, rel=0.25)


def test_an_evaluation_has_each_label_and_survives_its_file():
    chances, truth = drawn()
    found = evaluated("micro-F1", truth, chances)
    row = found.json()["by_class"][0]
    predicted = chances[:, 0] > 0.4
    assert row["label"] == "acting"
    assert row["f1"] == pytest.approx(theirs.f1_score(truth[:, 0], predicted))
    assert (row["threshold"], row["support"]) == (0.4, truth[:, 0].sum())
    assert found.correct.tolist() == ((chances > LIMITS) == truth).all(1).tolist()
    written = json.loads(found.rows().split(b"\n")[0])
    names = set(np.array(LABELS)[chances[0] > LIMITS])
    assert set(written["labels"]) == names
    assert not evaluated("micro-F1", truth, np.zeros((60, 3))).learned
    assert evaluated("micro-F1", truth, np.zeros((60, 3))).is_constant
    assert evaluated("micro-F1", truth, truth * 1.0).learned


def test_the_guess_is_the_best_constant_answer():
    assert guess("micro-F1", [50, 40, 1], 100).tolist() == [True, True, False]
    assert guess("subset accuracy", [60, 40, 1], 100).tolist() == [True, False, False]
    assert guess("macro-F1", [50, 40, 1], 100).all()
    truth = np.array([[True, False, False]] * 3 + [[False, True, False]])
    assert evaluated("micro-F1", truth, truth * 1.0).trivial == {GUESS: pytest.approx(2 / 3)}


def test_an_answer_is_its_labels():
    answer, none = label_sets(LABELS, np.array([[0.7, 0.2, 0.9], [0.1, 0.1, 0.1]]), LIMITS)
    assert answer.labels == ("music", "acting")
    assert (answer.line(), none.line()) == ("music\t0.900\tacting\t0.700", "")
    assert answer.phrase() == "music 90.0%, acting 70.0%"
    assert none.phrase() == "no label"
    assert none.json() == {"labels": [], "probabilities": dict.fromkeys(LABELS, 0.1)}
    assert table_rows({"text": "x", **answer.json()}) == [
        {
            "text": "x",
            "labels": "music; acting",
            "probability of acting": 0.7,
            "probability of plot": 0.2,
            "probability of music": 0.9,
            "unknown": "",
        }
    ]


def test_heads_of_each_label_are_scikit_learns():
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    chance = np.random.default_rng(0)
    x = chance.normal(size=(200, 4))
    y = (x[:, :2] + chance.normal(size=(200, 2)) > [0, 1]).astype(int)
    head = fit_each(x, y, (3.0,))
    scale = np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())
    model = OneVsRestClassifier(LogisticRegression(C=3.0)).fit((x - x.mean(0)) / scale, y)
    expected = model.decision_function((x - x.mean(0)) / scale)
    assert head(x) == pytest.approx(expected, abs=1e-3)
    bare = fit_each(x, np.stack([y[:, 0], 0 * y[:, 0], 0 * y[:, 0] + 1], 1), (1.0, 3.0))
    assert bare(x)[:, 1:].tolist() == [[-100.0, 100.0]] * 200


def lists(path, count=240):
    rows = []
    for number in range(count):
        names = [x for i, x in enumerate(LABELS) if number >> i & 1]
        rows.append(f"good {' '.join(names)} number {number},{';'.join(names)}")
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_a_baseline_learns_lists_of_a_file(tmp_path):
    data = lists(tmp_path / "r.csv")
    run = trained_run(tmp_path / "run", "multilabel", "tfidf", [f"data={data}"])
    assert run.evaluate().value > 0.95
    assert run.predict("good plot and music").labels in (("plot", "music"), ("music", "plot"))
    assert run.predict("number").labels == ()
    chosen = json.loads((tmp_path / "run" / "env.json").read_text())["decision"]["thresholds"]
    assert runs.load(tmp_path / "run").task.thresholds == chosen
    given = [f"data={data}", "threshold=0.3"]
    bare = trained_run(tmp_path / "fixed", "multilabel", "tfidf", given)
    assert bare.task.thresholds == [0.3] * 3
    more = lists(tmp_path / "more.csv", 9)
    assert run.evaluate(more).n == 9
    more.write_text("text,label\na film,plot;cast\n")
    with pytest.raises(RegardError, match=r"more.csv:2: unknown label 'cast'; the model learned"):
        run.evaluate(more)
    with pytest.raises(RegardError, match="--labels renames labels"):
        run.task.evaluate(run.model, more, Columns(labels="a:b"))
    assert any(note.endswith("without a label") for note in run.task.known["notes"])


def test_a_network_learns_and_its_thresholds_are_of_validation(tmp_path):
    run = trained_run(tmp_path / "run", "multilabel", "transformer", TINY)
    task = run.task
    with run.computing():
        again = task.decide(run.model)["thresholds"]
        judged = task.probabilities(run.model, "validation")
    assert again == pytest.approx(task.thresholds, abs=1e-6)
    truth = task.answers("validation") > 0
    assert scores(judged, truth, again)[0]["macro-F1"] >= scores(judged, truth, 0.5)[0]["macro-F1"]
    assert run.evaluate().value == pytest.approx(run.task.answer(run.model).value)
    logits = torch.from_numpy(task.outputs(run.network, ["a good plot"]))
    assert run.predict("a good plot").probabilities["plot"] == pytest.approx(
        float(logits.sigmoid()[0, task.labels.index("plot")])
    )


def test_bad_settings_are_refused(tmp_path):
    for setting, why in (
        ("threshold=2", "give chosen, or a probability between 0 and 1"),
        ("threshold=best", "give chosen, or a probability between 0 and 1"),
        ("metric=accuracy", "metric='accuracy'"),
        ("separator=", "separator"),
    ):
        with pytest.raises(RegardError, match=why):
            runs.start(tmp_path / "run", "multilabel", "tfidf", [setting])
    with pytest.raises(RegardError, match="reviews has no texts with several labels"):
        _ = prepared("multilabel", data="reviews").corpus


TEXTS = ["good acting", "good plot", "good acting and plot", "nothing"] * 10
SETS = [["acting"], ["plot"], ["acting", "plot"], []] * 10


def test_an_estimator_takes_lists_and_matrices(tmp_path):
    matrix = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]] * 10)
    model = regard.MultilabelClassifier("tfidf").fit(TEXTS, matrix)
    assert model.predict(TEXTS).tolist() == matrix.tolist()
    assert model.predict_proba(["plot"])[0, 2] == 0
    assert model.score(TEXTS, matrix) == 1
    named = MultilabelClassifier("tfidf").fit(TEXTS, SETS)
    assert [set(x) for x in named.predict(TEXTS[:4])] == [set(x) for x in SETS[:4]]
    named.save(tmp_path / "saved")
    there = MultilabelClassifier.of(tmp_path / "saved")
    assert there.predict(TEXTS[:4]) == named.predict(TEXTS[:4])
    odd = MultilabelClassifier("tfidf").fit(TEXTS, [[f"{x}; {x}" for x in each] for each in SETS])
    assert odd.predict(["good plot"]) == [("plot; plot",)]


@pytest.mark.parametrize(
    ("y", "why"),
    [
        (["acting"] * 40, "row 0 of y must be a list of labels, not 'acting'"),
        ([["acting"]] * 40, "y has fewer than two labels"),
        (np.full((40, 2), 2), "y must be a matrix of 0 and 1"),
        (SETS[:-1], "X has 40 texts and y has 39 answers"),
    ],
)
def test_answers_of_another_form_are_refused(y, why):
    with pytest.raises(ArgumentError, match=why):
        MultilabelClassifier("tfidf").fit(TEXTS, y)
