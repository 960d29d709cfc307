"""The estimator: scikit-learn's own checks, units, defined results of odd data, mistakes."""

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import regard
from regard.attention import SCORES
from regard.core.errors import RegardError
from regard.lab.data.curve import curve
from regard.lab.runs.kernel_estimator import KernelRegression

CHECKED = [KernelRegression(steps=3), KernelRegression("boxcar"), KernelRegression("k-nearest")]
CHECKED += [KernelRegression("average")]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def points(count=60, seed=0):
    found = curve(count, seed)
    return found.x[:, None], found.y


def test_it_is_found_by_name():
    assert regard.KernelRegression is KernelRegression


def test_a_number_is_a_width_in_the_units_of_the_column():
    x, y = points()
    for factor in (1.0, 1e3, 1e-6):
        said = KernelRegression(widths=0.5 * factor).fit(x * factor + 7e4 * factor, y)
        found = said.predict([[2.0 * factor + 7e4 * factor]])[0]
        weights = np.exp(-(((x[:, 0] - 2.0) / 0.5) ** 2) / 2)
        assert found == pytest.approx((weights * y).sum() / weights.sum(), rel=1e-6)
        assert said.widths_ == pytest.approx([0.5 * factor])
        assert said.history_ == []


def test_learned_widths_follow_the_units_and_beat_the_rule():
    x, y = points()
    new, true = points(500, 9)
    learned = KernelRegression().fit(x, y)
    rule = KernelRegression(steps=0).fit(x, y)
    scaled = KernelRegression().fit(1000 * x - 5, 3 * y + 1)
    assert scaled.widths_ == pytest.approx(1000 * learned.widths_, rel=1e-3)
    assert rule.widths_ == pytest.approx(x.std() * (4 / 3 / 60) ** 0.2)
    assert learned.score(new, true) > rule.score(new, true) + 0.05
    assert len(learned.history_) == 101
    assert 1 / learned.history_[-1].w[0] == pytest.approx(learned.widths_[0])
    loss = np.square(rule.leave_one_out() - y).mean()
    assert learned.history_[0].loss == pytest.approx(loss)
    assert learned.history_[-1].loss < 0.9 * loss


def test_leaving_one_out_is_fitting_without_it():
    x, y = points(12)
    said = KernelRegression(widths=0.7).fit(x, y).leave_one_out([3, 8])
    for i, found in zip((3, 8), said, strict=True):
        rest = [j for j in range(12) if j != i]
        alone = KernelRegression(widths=0.7).fit(x[rest], y[rest]).predict(x[i : i + 1])
        assert found == pytest.approx(alone[0], abs=1e-12)


def test_several_outputs_and_columns():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3))
    y = np.stack([x[:, 0], -(x[:, 0] ** 2)], 1)
    model = KernelRegression(widths=[0.5, 2.0, 3.0]).fit(x, y)
    assert model.predict(x[:7]).shape == (7, 2)
    one = KernelRegression(widths=[0.5, 2.0, 3.0]).fit(x, y[:, 1])
    assert model.predict(x[:7])[:, 1] == pytest.approx(one.predict(x[:7]))


@pytest.mark.deep
def test_widths_of_columns_are_shrunk_where_rows_are_few_and_kept_where_they_tell():
    x, y = load_diabetes(return_X_y=True)
    train, held = np.arange(0, 442, 2), np.arange(1, 442, 2)
    few = KernelRegression().fit(x[train], y[train])
    kept, few_steps = few.history_[-1], few.history_[100]
    assert few.shrinkage_ < 0.6
    assert [step.number for step in few.history_] == list(range(202))
    assert 1 / np.array(kept.w) == pytest.approx(few.widths_)
    assert kept.loss == pytest.approx(np.square(few.leave_one_out() - y[train]).mean())
    common = KernelRegression(widths=list(1 / np.array(few_steps.w))).fit(x[train], y[train])
    errors = [np.square(model.predict(x[held]) - y[held]).mean() for model in (few, common)]
    assert errors[0] < 1.02 * errors[1]  # unshrunk it is 1.06 times as large
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, (300, 3))
    tells = KernelRegression().fit(x, np.sin(6 * x[:, 0]))
    assert tells.shrinkage_ > 0.6
    assert tells.widths_[1:].min() > 3 * tells.widths_[0]


def test_a_score_is_a_kernel():
    x, y = points()
    named = KernelRegression("gaussian", 0.5).fit(x, y).predict(x)
    for kernel in (SCORES["gaussian"], SCORES["gaussian"]()):
        model = clone(KernelRegression(kernel, 0.5)).fit(x, y)
        assert model.predict(x) == pytest.approx(named, abs=1e-12)
    additive = KernelRegression(SCORES["additive"], steps=9).fit(x, y)
    again = KernelRegression(SCORES["additive"], steps=9).fit(x, y)
    assert additive.predict(x).tolist() == again.predict(x).tolist()
    for wrong, says in (
        (SCORES["additive"](query_width=2, key_width=2), "widths 2 and 2, not 1 and 1"),
        (SCORES["gaussian"](heads=2), "a kernel has no heads; build its score without heads=2"),
        (int, "kernel must be one of .*, a Score or its class, not <class 'int'>"),
        (["gaussian"], "not .'gaussian'."),
        (None, "not None"),
    ):
        with pytest.raises(ValueError, match=says):
            KernelRegression(wrong).fit(x, y)


@pytest.mark.parametrize(("size", "size_y"), [(1e-200, 1), (1e160, 1), (1e-300, 1e250), (1e300, 1)])
def test_numbers_whose_squares_are_none(size, size_y):
    x, y = points()
    plain = KernelRegression(steps=20).fit(x, y)
    scaled = KernelRegression(steps=20).fit(x * size, y * size_y)
    assert scaled.predict(x * size) / size_y == pytest.approx(plain.predict(x), rel=1e-9)
    assert scaled.leave_one_out() / size_y == pytest.approx(plain.leave_one_out(), rel=1e-9)
    assert scaled.widths_ / size == pytest.approx(plain.widths_, rel=1e-9)
    assert np.isfinite(scaled.predict([[1e308], [-1e-308], [0.0]])).all()
    fixed = KernelRegression(widths=0.5 * size).fit(x * size, y)
    assert fixed.widths_ / size == pytest.approx([0.5])


def test_nothing_in_reach_is_the_mean():
    x, y = points()
    for kernel in ("epanechnikov", "boxcar"):
        model = KernelRegression(kernel, 0.5).fit(x, y)
        assert model.predict([[100.0]])[0] == pytest.approx(y.mean())
        assert model.predict([[2.0]])[0] > y.mean() + 0.5


def test_constant_columns_and_equal_rows_are_harmless():
    x, y = points()
    flat = np.concatenate([x, np.full_like(x, 0.1)], 1)
    alone, beside = KernelRegression().fit(x, y), KernelRegression().fit(flat, y)
    assert beside.predict(flat[:5]) == pytest.approx(
        KernelRegression(widths=beside.widths_[0]).fit(x, y).predict(x[:5])
    )
    assert alone.widths_[0] == pytest.approx(beside.widths_[0], rel=0.05)
    twice = KernelRegression().fit(np.repeat(x, 2, 0), np.repeat(y, 2))
    assert np.isfinite(twice.predict(x)).all()
    one = KernelRegression(widths=1.0).fit([[3.0]], [5.0])
    assert one.predict([[1.0], [3.0]]).tolist() == [5, 5]
    same = KernelRegression().fit(np.ones((9, 1)), np.arange(9.0))
    assert same.predict([[1.0]])[0] == pytest.approx(4)


def test_cosine_keeps_the_origin():
    x, y = points()
    assert KernelRegression("cosine", 1.0).fit(x, y).predict([[3.0]])[0] == pytest.approx(y.mean())


def test_many_rows_in_float32_say_the_same():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(9000, 2))
    y = np.sin(3 * x[:, 0]) + 1e6
    model = KernelRegression(widths=[0.05, 0.4]).fit(x, y)
    assert model.predict(x[:1000])[:50] == pytest.approx(model.predict(x[:50]), abs=2e-5)


def test_in_a_pipeline_and_a_grid_search():
    x, y = points()
    grid = {"kernelregression__n_neighbors": [1, 5, 40]}
    pipeline = make_pipeline(StandardScaler(), KernelRegression("k-nearest"))
    found = GridSearchCV(pipeline, grid).fit(x, y)
    assert found.best_params_["kernelregression__n_neighbors"] == 5
    theirs = make_pipeline(StandardScaler(), KNeighborsRegressor()).fit(x, y)
    assert found.predict(x + 0.01) == pytest.approx(theirs.predict(x + 0.01))


@pytest.mark.parametrize("widths", [0, -1.0, [1.0, 0.0], math.nan, math.inf])
def test_widths_are_above_zero(widths):
    x = np.random.default_rng(0).normal(size=(9, 2))
    with pytest.raises(RegardError, match="widths must be above 0 and finite, not"):
        KernelRegression(widths=widths).fit(x, x[:, 0])


def test_mistakes_are_named():
    x = np.random.default_rng(0).normal(size=(9, 2))
    for widths, says in (
        ([1.0, 2.0, 3.0], "one per column .2., not 3"),
        ("lern", "widths must be above 0 or 'learn', not 'lern'"),
        ([[1], [2, 3]], "widths must be numbers above 0"),
    ):
        with pytest.raises(RegardError, match=says):
            KernelRegression(widths=widths).fit(x, x[:, 0])
    for name, value, says in (
        ("steps", -1, "steps must be a whole number from 0, not -1"),
        ("batch", 1.5, "batch must be a whole number from 0, not 1.5"),
        ("n_neighbors", 0, "n_neighbors must be a whole number from 1, not 0"),
        ("shrink", "no", "shrink must be True or False, not 'no'"),
        ("learning_rate", 0, "learning_rate must be above 0 and finite, not 0"),
        ("start", "a", "start must be numbers above 0, not 'a'"),
    ):
        with pytest.raises(ValueError, match=says):
            KernelRegression(**{name: value}).fit(x, x[:, 0])
    with pytest.raises(RegardError, match="row numbers must be between 0 and 8"):
        KernelRegression().fit(x, x[:, 0]).leave_one_out([-1])
    with pytest.raises(RegardError, match="no kernel is called 'box'; did you mean boxcar"):
        KernelRegression("box").fit(x, x[:, 0])
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        KernelRegression().fit(x[:1], x[:1, 0])


def test_an_answer_does_not_depend_on_how_many_rows_are_asked() -> None:
    """Also of narrow widths: a kernel of width 1e-3 far from 0 leaves no digit of float32."""
    draw = np.random.default_rng(0)
    x, y = draw.uniform(0, 6, (3_000, 2)), draw.normal(size=3_000)
    model = KernelRegression(widths=2e-3).fit(x, y)
    asked = draw.uniform(0, 6, (3_000, 2))  # 9,000,000 pairs
    np.testing.assert_allclose(model.predict(asked)[:5], model.predict(asked[:5]), atol=1e-9)


@pytest.mark.parametrize("kernel", ["epanechnikov", "boxcar"])
def test_a_row_that_no_other_reaches_is_answered_without_its_own_y(kernel: str) -> None:
    x, y = np.array([[0.0], [0.1], [0.2], [100.0]]), np.array([1.0, 2.0, 3.0, 50.0])
    model = KernelRegression(kernel=kernel, widths=0.5).fit(x, y)
    said = model.leave_one_out()
    assert said[3] == pytest.approx(2.0)
    assert model.leave_one_out([3])[0] == pytest.approx(2.0)
    assert said[1] == pytest.approx(2.0)
