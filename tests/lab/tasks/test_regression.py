"""A text in, a number out: metrics by hand, the task on real files, and the baseline."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn import linear_model
from sklearn import metrics as theirs

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.data.examples import Example
from regard.lab.data.synthetic import ratings
from regard.lab.labs.kernel_regression.points import variance
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks import unit_of
from regard.lab.tasks.regression import METRICS, RidgeSettings
from regard.lab.tasks.regression.evaluation import (
    GUESS,
    metric_of,
    number_evaluation,
    parsed,
    pseudo_values,
)
from regard.lab.tasks.regression.task import Ridge
from regard.lab.tasks.writing.streaming import Drawing
from regard.lab.web.registry import find
from regard.lab.web.served_model import opened
from tests.lab.small_runs import prepared, trained_run

DRAWN = np.random.default_rng(0)
TRUE = DRAWN.normal(5, 2, 40)
SAID = 0.6 * TRUE + DRAWN.normal(0, 1, 40)
TINY = ("examples=300", "epochs=1", "width=8", "threads=1")


def test_metrics_are_scikit_learns() -> None:
    assert metric_of("R²", SAID, TRUE) == pytest.approx(theirs.r2_score(TRUE, SAID))
    assert metric_of("MAE", SAID, TRUE) == pytest.approx(theirs.mean_absolute_error(TRUE, SAID))
    expected = theirs.root_mean_squared_error(TRUE, SAID)
    assert metric_of("RMSE", SAID, TRUE) == pytest.approx(expected)
    expected = stats.spearmanr(TRUE, SAID).statistic
    assert metric_of("Spearman's ρ", SAID, TRUE) == pytest.approx(expected)
    assert metric_of("R²", SAID, np.ones(40)) == metric_of("Spearman's ρ", SAID, np.ones(40)) == 0


@pytest.mark.parametrize("name", METRICS.values())
def test_each_example_adds_what_the_others_are_without_it(name: str) -> None:
    sign = -1 if unit_of(name).lower else 1
    found = pseudo_values(name, SAID, TRUE)
    assert found.mean() == pytest.approx(sign * metric_of(name, SAID, TRUE))
    left = np.array([metric_of(name, np.delete(SAID, i), np.delete(TRUE, i)) for i in range(40)])
    slow = 40 * metric_of(name, SAID, TRUE) - 39 * left
    apart = np.abs((found - found.mean()) - sign * (slow - slow.mean())).max()
    # Of ρ the first term alone is known; the rest falls with n.
    assert apart < (0.15 * slow.std() if name == "Spearman's ρ" else 1e-9)
    assert pseudo_values(name, SAID[:2], TRUE[:2]).shape == (2,)


def test_the_r2_of_equal_numbers_is_0_in_the_jackknife_too() -> None:
    true, said = np.array([0.0, 0, 0, 0, 1]), np.array([0.1, 0.2, 0.1, 0.1, 0.6])
    left = [metric_of("R²", np.delete(said, i), np.delete(true, i)) for i in range(5)]
    assert left[-1] == 0
    slow = 5 * metric_of("R²", said, true) - 4 * np.array(left)
    found = pseudo_values("R²", said, true)
    assert found - found.mean() == pytest.approx(slow - slow.mean())


@pytest.mark.parametrize("value", [0.3, 1 / 3, 3.7, 2.0, 1e-200, 1.1e30, -0.7])
def test_equal_numbers_have_no_spread_though_their_variance_rounds_to_some(value: float) -> None:
    true, said = np.full(10, value), value * (1 + 0.01 * np.arange(10))
    almost = np.append(true, np.nextafter(value, 2 * value))
    for name in ("R²", "Spearman's ρ"):
        assert metric_of(name, said, true) == 0
    assert metric_of("R²", np.append(said, 0), almost) == 0
    assert np.abs(pseudo_values("R²", np.append(said, 0), almost)).max() == 0


def test_the_variance_of_equal_points_is_one() -> None:
    assert variance(np.full(10, 0.3)) == variance(np.array([0.1 + 0.2, 0.3])) == 1
    assert variance(np.array([1.0, 3.0])) == 1
    assert variance(np.array([1.0, 5.0])) == 4


def test_a_few_texts_in_perfect_order_are_no_evidence() -> None:
    for n in (2, 3, 4):
        up = np.arange(float(n))
        for name in ("R²", "Spearman's ρ"):
            a, b = (pseudo_values(name, said, up)[None] for said in (up, -up))
            assert a.mean() == pytest.approx(1)
            assert compare_runs(a, b).p > 0.005


def test_an_evaluation_is_restored_from_its_rows() -> None:
    examples = [Example(f"text {i}", f"{x!r}", f"f:{i}", "g") for i, x in enumerate(TRUE.tolist())]
    judged = number_evaluation("MAE", examples, SAID, 5.0)
    assert judged.low < judged.value < judged.high
    assert judged.trivial == {GUESS: pytest.approx(np.abs(TRUE - 5).mean())}
    facts = {"mean": 5.0, "deviation": 1.0}
    task = prepared("regression", None, facts, metric="mae")
    again = task.restore(judged.rows(), "p")
    assert (again.value, again.examples) == (judged.value, judged.examples)
    assert json.loads(json.dumps(judged.json()))["metric"] == "MAE"
    assert judged.line().startswith("MAE ")
    assert not judged.is_constant
    assert number_evaluation("R²", examples, np.ones(40), 5.0).is_constant
    with pytest.raises(RegardError, match=r"p cannot be read: KeyError\('number'\)"):
        task.restore(b'{"text": "a", "label": "1", "source": "s"}\n', "p")
    with pytest.raises(RegardError, match="there are no examples to evaluate"):
        number_evaluation("R²", [], np.zeros(0), 0.0)


@pytest.mark.parametrize("label", ["good", "1,000,5", "inf", "0x1"])
def test_labels_that_are_no_numbers_are_named(label: str) -> None:
    with pytest.raises(RegardError, match=f"r.csv:7: '{label}' is not a number; name the column"):
        parsed([Example("a", "1", "r.csv:6"), Example("b", label, "r.csv:7")])
    assert parsed([Example("a", "−2", ""), Example("b", "1e-3", "")]).tolist() == [-2, 1e-3]


@pytest.mark.parametrize(
    ("label", "remedy"),
    [
        ("nan", "if it means a missing value, remove the row"),
        ("NA", "if it means a missing value, remove the row"),
        ("−1,5", "write it with a decimal point: −1.5"),
    ],
)
def test_labels_that_are_nearly_numbers_get_a_remedy(label: str, remedy: str) -> None:
    with pytest.raises(RegardError, match=f"r.csv:6: '{label}' is not a number; {remedy}$"):
        parsed([Example("a", label, "r.csv:6")])


def test_ridge_is_scikit_learns_and_weighs_words(tmp_path: Path) -> None:
    texts = [example.text for example in ratings(200, 1)]
    numbers = np.array([float(example.label) for example in ratings(200, 1)])
    model = Ridge(RidgeSettings(minimum=1), 1)
    with pytest.raises(RegardError, match="ridge is not fitted"):
        model.scores(texts)
    model.fit(texts, numbers)
    solved = linear_model.Ridge(alpha=1.0, solver="sparse_cg", tol=1e-8)
    features = model.features(model.count(texts))
    expected = solved.fit(features, numbers).predict(features)
    np.testing.assert_allclose(model.scores(texts)[:, 0], expected, atol=1e-3)
    model.save(tmp_path)
    again = Ridge.load(tmp_path)
    np.testing.assert_array_equal(again.scores(texts), model.scores(texts))
    found = again.shares(texts[0], 0, "the number")
    assert found.weights.sum() + found.bias == pytest.approx(model.scores(texts[:1])[0, 0])


def test_a_file_of_numbers_is_learned_judged_and_asked(tmp_path: Path) -> None:
    data = tmp_path / "r.csv"
    rows = [f'"{example.text}",{example.label}' for example in ratings(400, 2)]
    data.write_text("\n".join(["review,stars", *rows]))
    given = [f"data={data}", "text=review", "label=stars", "metric=mae"]
    run = runs.start(tmp_path / "ridge", "regression", "ridge", given)
    (told,) = run.train()
    judged = run.evaluate()
    assert run.validates == "gain in MAE"
    assert told.validation == pytest.approx(0.1, abs=0.15)
    assert judged.value < judged.trivial[GUESS]
    data.rename(tmp_path / "other.csv")
    loaded = runs.load(tmp_path / "ridge")
    assert loaded.evaluate().value == judged.value
    assert loaded.evaluate(tmp_path / "other.csv").n == 400
    path = tmp_path / "ridge" / "env.json"
    told = path.read_text()
    path.write_text(told.replace('"deviation": ', '"deviation": -'))
    with pytest.raises(RegardError, match=r"env.json: deviation"):
        runs.load(tmp_path / "ridge").evaluate()
    path.write_text(told)
    good, bad = loaded.predict(["A joy. What a wonderful film!", "A mess. What a dull film!"])
    assert good.value > bad.value
    with pytest.raises(RegardError, match="--labels renames labels, but this task has none"):
        loaded.evaluate(tmp_path / "other.csv", labels="a:b")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("review,stars\nfine,4\nbad,two\n")
    with pytest.raises(RegardError, match=r"wrong.csv:3: 'two' is not a number"):
        loaded.evaluate(wrong)


@pytest.mark.parametrize("model", ["mean", "cnn", "gpt", "transformer"])
def test_networks_learn_numbers_and_come_back(tmp_path: Path, model: str) -> None:
    run = runs.start(
        tmp_path / "run", "regression", model, [*TINY, *["layers=1"] * (model == "gpt")]
    )
    rows = list(run.train())
    assert rows[-1].validation is not None
    loaded = runs.load(tmp_path / "run")
    judged = loaded.evaluate()
    assert judged.n == 1_000
    said = [answer.value for answer in loaded.predict([x.text for x in judged.examples[:50]])]
    np.testing.assert_allclose(said, judged.answers[:50], rtol=1e-3, atol=1e-3)


def test_equal_numbers_and_other_data_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "r.csv"
    data.write_text("text,label\n" + "\n".join(f"text number {i},{i % 2}" for i in range(60)))
    task = prepared("regression", None, data=data)
    assert task.scale == pytest.approx((0.5, 0.5), abs=0.2)
    with pytest.raises(RegardError, match="reviews has no numbers; it is for classification"):
        _ = prepared("regression", data="reviews").corpus
    with pytest.raises(RegardError, match="ratings has no texts with labels; it is for regression"):
        _ = prepared("classification", data="ratings").corpus


def test_a_server_answers_with_the_number(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run", "regression", "mean", TINY)
    (told,) = find([tmp_path]).listed()
    assert (told["answers_in_texts"], told["writes"], told["labels"]) == (False, "", [])
    subject = opened("run", tmp_path / "run")
    (answer,) = subject.predict(["A joy."])
    assert answer == {"value": run.predict("A joy.").value}
    with pytest.raises(RegardError, match="run does not generate text; use /predict"):
        next(subject.write("A joy.", Drawing(5)))
    assert find([tmp_path]).examples("run")


def test_ties_and_few_texts_give_finite_numbers() -> None:
    draw = np.random.default_rng(1)
    spreads, told = [], []
    for _ in range(200):  # 5 % of the truths are 1: many ties
        true = (draw.random(500) < 0.05).astype(float)
        said = true + draw.normal(0, 1, 500)
        spreads.append(metric_of("Spearman's ρ", said, true))
        told.append(pseudo_values("Spearman's ρ", said, true).std(ddof=1) / 500**0.5)
    assert np.mean(told) == pytest.approx(np.std(spreads), rel=0.15)
    odd = np.full(50, 0.3)
    odd[0] += 0.1
    assert np.abs(pseudo_values("R²", odd + draw.normal(0, 0.1, 50), odd)).max() < 1e4
    for metric in METRICS.values():
        one = number_evaluation(metric, [Example("a", "1", "f:1")], np.ones(1), 0.0)
        json.dumps(one.json(), allow_nan=False)
    task = prepared("regression", None, {"mean": 1e308})
    row = b'{"text": "a", "label": "1", "source": "s", "number": "inf"}\n'
    with pytest.raises(RegardError, match="p cannot be read"):
        task.restore(row, "p")
    with pytest.raises(RegardError, match=r"env.json: mean is 1e\+308"):
        _ = task.scale


def test_a_baseline_is_forecast() -> None:
    told = runs.forecast("regression", "ridge", ["examples=400"])
    assert (told.steps, told.test) == (1, 1_000)
    assert told.parameters > 100
