"""The estimators of texts: scikit-learn's own checks, its tools around them, and mistakes."""

import copy
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

import regard
from regard.core.errors import RegardError
from regard.lab.runs.estimators import TextClassifier, TextRegressor
from regard.lab.runs.kernel_estimator import KernelRegression

TEXTS = ["a good film", "a fine film", "a bad film", "a dull film"] * 10
LABELS = ["yes", "yes", "no", "no"] * 10
SMALL = {"width": 8, "heads": 2, "layers": 1, "feedforward": 8, "threads": 1}

#: Checks that read a class alone. The others feed arrays of numbers, which are no texts; they run
#: on the classes below, which write numbers as words.
WITHOUT_DATA = [
    "check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types",
    "check_estimator_repr", "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params", "check_mixin_order",
    "check_parameters_default_constructible", "check_get_params_invariance", "check_set_params",
]  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
def test_scikit_learns_checks_of_a_class(kind: type, name: str) -> None:
    getattr(estimator_checks, name)(kind.__name__, kind())


class Numbers:
    """Columns of numbers as words, so that scikit-learn's checks can feed their arrays."""

    def fit(self, X, y):
        X, y = validate_data(self, X, y, multi_output=True, dtype=np.float64)
        return super().fit(self.words(X), y)

    def _texts(self, X):
        if isinstance(X, list) and X and isinstance(X[0], str):
            return X
        return self.words(validate_data(self, X, reset=False, dtype=np.float64))

    def words(self, rows):
        return [" ".join(f"c{j}at{round(2 * x)}" for j, x in enumerate(row)) for row in rows]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = False
        tags.input_tags.two_d_array = True
        return tags


class NumbersClassifier(Numbers, TextClassifier):
    pass


class NumbersRegressor(Numbers, TextRegressor):
    pass


@parametrize_with_checks([NumbersClassifier("nb-svm", minimum=1), NumbersRegressor("ridge")])
def test_scikit_learns_checks_of_data(estimator, check):
    check(estimator)


def test_a_network_learns_and_its_probabilities_are_those_of_its_run() -> None:
    model = regard.TextClassifier("transformer", **SMALL, epochs=8, learning_rate=0.03)
    assert model.fit(TEXTS, LABELS).score(TEXTS, LABELS) == 1.0
    assert model.classes_.tolist() == ["no", "yes"]
    asked = ["a fine thing", "dull", ""]
    chances = model.predict_proba(asked)
    assert chances.sum(1) == pytest.approx(1)
    for row, answer in zip(chances, model.run_.predict(asked), strict=True):
        assert row == pytest.approx([answer.probabilities["no"], answer.probabilities["yes"]])
    again = clone(model).fit(TEXTS, LABELS)
    assert again.predict_proba(asked) == pytest.approx(chances, abs=1e-6)
    assert model.run_.attention("a fine film")[0].weights.shape[-1] == 3


@pytest.mark.parametrize("model", ["nb-svm", "mean"])
def test_a_fitted_estimator_is_pickled_with_its_run(model: str) -> None:
    fitted = TextClassifier(model, **(SMALL if model == "mean" else {})).fit(TEXTS, LABELS)
    chances, bytes_ = fitted.predict_proba(["good"]), pickle.dumps(fitted)
    folder = fitted.run_.folder.path
    del fitted
    assert not folder.exists(), "a folder lives as long as its estimator"
    for restored in (pickle.loads(bytes_), copy.deepcopy(pickle.loads(bytes_))):
        assert restored.predict_proba(["good"]) == pytest.approx(chances)
        assert restored.classes_.tolist() == ["no", "yes"]
    assert pickle.loads(pickle.dumps(TextClassifier(model, seed=3))).get_params()["seed"] == 3


def test_labels_of_any_type_keep_their_columns() -> None:
    texts = [f"word{i} and word{i}" for i in range(12)] * 6
    numbers = list(range(12)) * 6  # as text, 10 comes before 2
    model = TextClassifier("nb-svm").fit(np.array(texts)[:, None], np.array(numbers))
    assert model.classes_.dtype.kind == "i"
    assert model.predict(["word2", "word10", "word9"]).tolist() == [2, 10, 9]
    odd = TextClassifier("nb-svm").fit(TEXTS, ["a b" if x == "no" else "a  b" for x in LABELS])
    assert odd.predict(["bad", "good"]).tolist() == ["a b", "a  b"]
    assert TextClassifier("nb-svm").fit(TEXTS, [x == "yes" for x in LABELS]).predict(["bad"]) == [0]


def test_in_a_pipeline_a_search_and_a_cross_validation() -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    ours = make_pipeline(lower, TextClassifier("mean", **SMALL, steps=40, learning_rate=0.05))
    theirs = make_pipeline(lower, TfidfVectorizer(), LogisticRegression())
    shouted = [text.upper() for text in TEXTS]
    for pipeline in (ours, theirs):  # the same calls
        assert cross_val_score(pipeline, shouted, LABELS, cv=2).tolist() == [1.0, 1.0]
    search = GridSearchCV(
        ours, {"textclassifier__steps": [1, 40], "textclassifier__width": [8]}, cv=2
    ).fit(shouted, LABELS)
    assert search.best_params_ == {"textclassifier__steps": 40, "textclassifier__width": 8}
    assert search.predict(["a bad thing"]).tolist() == ["no"]


@pytest.mark.slow  # two processes import torch
def test_jobs_of_joblib() -> None:
    model = TextClassifier("nb-svm")
    assert cross_val_score(model, TEXTS, LABELS, cv=2, n_jobs=2).tolist() == [1.0, 1.0]


def test_numbers_of_texts() -> None:
    texts = [f"{'very ' * n}good" for n in range(5)] * 8
    numbers = np.array([10.0 + n for n in range(5)] * 8)
    for model in (
        TextRegressor("ridge", penalty=0.1),
        TextRegressor("mean", **SMALL, epochs=60, learning_rate=0.03),
    ):
        assert model.fit(texts, numbers).score(texts, numbers) > 0.7
        restored = pickle.loads(pickle.dumps(model))
        assert restored.predict(texts[:5]) == pytest.approx(model.predict(texts[:5]), rel=1e-5)


def test_runs_that_were_trained_elsewhere(tmp_path: Path) -> None:
    model = TextClassifier("mean", **SMALL, steps=20).fit(TEXTS, LABELS)
    saved = model.save(tmp_path / "saved")
    assert saved.predict("good").label == model.predict(["good"])[0]
    there = TextClassifier.of(tmp_path / "saved")
    assert there.predict_proba(TEXTS[:3]) == pytest.approx(model.predict_proba(TEXTS[:3]))
    assert there.model == "mean"
    with pytest.raises(RegardError, match="saved already exists; give another folder"):
        model.save(tmp_path / "saved")
    with pytest.raises(RegardError, match="learned classification; TextRegressor needs a run of r"):
        TextRegressor.of(saved)
    (tmp_path / "saved" / "MANIFEST.json").unlink()
    with pytest.raises(RegardError, match="is not complete"):
        TextClassifier.of(tmp_path / "saved")


def test_texts_are_held_out_by_their_words_and_every_label_is_trained_on() -> None:
    texts = [f"text {i}" for i in range(60)] * 2
    model = TextClassifier("nb-svm", validation=0.3).fit(texts, ["a", "b"] * 60)
    corpus = model.run_.task.corpus
    train, held = ([example.text for example in part] for part in (corpus.train, corpus.test))
    assert len(train) + len(held) == 120
    assert 0.15 < len(held) / 120 < 0.45
    assert not {*train} & {*held}
    few = TextClassifier("nb-svm", minimum=1).fit(["good", "bad"], [1, 0])
    assert few.predict(["good", "bad"]).tolist() == [1, 0]


@pytest.mark.deep
def test_what_no_file_could_hold_is_learned() -> None:
    long = [*TEXTS, "字" * 400_000]  # 1.2 MB of UTF-8
    model = TextClassifier("nb-svm", minimum=1).fit(long, [*LABELS, "long"])
    assert model.predict(["字字", "a dull film"]).tolist() == ["long", "no"]
    commas = [{"yes": "a,b", "no": "a"}[label] for label in LABELS]
    other = TextClassifier("nb-svm").fit(TEXTS, commas)  # equal settings, other data
    assert other.predict(["good", "bad"]).tolist() == ["a,b", "a"]
    assert model.predict(["bad"]) == ["no"]
    assert other.run_.evaluate().n == len(other.run_.task.corpus.test)
    each = TextClassifier("nb-svm", minimum=1).fit(
        [f"t{i}" for i in range(20)] * 2, [*range(20)] * 2
    )
    assert each.predict(["t7", "t13"]).tolist() == [7, 13]


#: Equal texts mean yes, unless the price is high.
QUESTIONS = pd.DataFrame(
    [
        (f"is it {asked}", f"it is {said}", price, "yes" if asked == said and price < 5 else "no")
        for asked in ("red", "blue", "green")
        for said in ("red", "blue", "green")
        for price in (1, 2, 8, 9)
    ]
    * 4,
    columns=["question", "answer", "price", "y"],
)
BOTH = {"text": "question,answer", "features": "price"}


@pytest.mark.parametrize("model", ["tfidf", "nb-svm"])
def test_two_texts_and_further_columns_of_a_frame(model: str) -> None:
    asked = QUESTIONS.drop(columns="y")
    fitted = TextClassifier(model, **BOTH).fit(asked, QUESTIONS.y)
    assert fitted.score(asked, QUESTIONS.y) == 1
    assert TextClassifier(model, text="question").fit(asked, QUESTIONS.y).score(
        asked, QUESTIONS.y
    ) < 0.9  # fmt: skip
    again = TextClassifier.of(fitted.run_)
    rows = asked.iloc[[0, 2, 4]]
    assert again.predict(rows.iloc[:, ::-1]).tolist() == ["yes", "no", "no"]
    with pytest.raises(ValueError, match="unknown column 'price'"):
        fitted.predict(asked[["question", "answer"]])


def test_a_network_reads_the_columns_of_a_frame() -> None:
    asked, y = QUESTIONS[["question", "price"]], np.where(QUESTIONS.price < 5, "low", "high")
    network = TextClassifier("mean", text="question", features="price", steps=60, **SMALL)
    assert network.fit(asked, y).score(asked, y) == 1


OTHER = [*TEXTS[1:]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: TextClassifier("lstm").fit(TEXTS, LABELS), "did you mean rnn"),
        (lambda: TextClassifier(3).fit(TEXTS, LABELS), "model must be a name, not 3"),
        (lambda: TextClassifier(wdth=8).fit(TEXTS, LABELS), "did you mean width"),
        (lambda: TextClassifier(validation=1).fit(TEXTS, LABELS), "between 0 and 1"),
        (lambda: TextClassifier(validation="a.csv").fit(TEXTS, LABELS), "between 0 and 1"),
        (lambda: TextClassifier(data="reviews").fit(TEXTS, LABELS), "from X and y; remove data="),
        (lambda: TextClassifier("nb-svm", minimum=99).fit(TEXTS, LABELS), "occurs 99 times"),
        (partial(TextClassifier().fit, "a film", ["x"]), "give X as a list of texts"),
        (partial(TextClassifier().fit, np.array("a film"), ["x"]), "give X as a list of texts"),
        (partial(TextClassifier().fit, TEXTS, LABELS[:-1]), "X has 40 texts and y has 39 answers"),
        (partial(TextClassifier().fit, [*OTHER, None], LABELS), "row 39 of X must be a text"),
        (partial(TextClassifier().fit, [*OTHER, np.nan], LABELS), "row 39 of X must be a text"),
        (partial(TextClassifier().fit, [" ", *OTHER], LABELS), "row 0 of X is an empty"),
        (partial(TextClassifier().fit, ["\ud800", *OTHER], LABELS), "row 0 of X has an unpaired"),
        (partial(TextClassifier().fit, TEXTS, ["x"] * 40), "y has one class, 'x'"),
        (partial(TextClassifier().fit, np.full((3, 2), "a"), [0, 1, 1]), "one column"),
        (partial(TextClassifier().fit, TEXTS, np.zeros((40, 2))), "1d array"),
        (partial(TextClassifier().fit, TEXTS, [None, *LABELS[1:]]), "row 0 of y is None"),
        (partial(TextClassifier().fit, TEXTS, [1.0, np.nan] * 20), "row 1 of y is nan"),
        (partial(TextRegressor("ridge").fit, TEXTS, [np.nan] * 40), "row 0 of y is nan"),
        (partial(TextRegressor("ridge").fit, TEXTS, [1, np.inf] * 20), "row 1 of y is inf"),
        (partial(TextRegressor("ridge").fit, TEXTS, [1, 1e150] * 20), "row 1 of y is 1e.150"),
        (
            partial(TextRegressor("ridge").fit, TEXTS, LABELS),
            "row 0 of y must be a number, not 'yes'",
        ),
        (partial(TextRegressor("ridge").fit, TEXTS, [5] * 40), "y is 5.0 in every row"),
        (partial(TextClassifier().predict, TEXTS), "not fitted yet"),
        (partial(TextClassifier(**BOTH).fit, TEXTS, LABELS), "of a DataFrame; X is list"),
        (partial(TextClassifier().fit, QUESTIONS, QUESTIONS.y), "choose a column, or name columns"),
        (partial(TextClassifier(text="x").fit, QUESTIONS, QUESTIONS.y), "unknown column 'x'"),
        (
            partial(TextClassifier(text="a").fit, pd.DataFrame({"a": ["x", None]}), [0, 1]),
            "row 1 of X is an empty",
        ),
        (partial(KernelRegression("gausian").fit, [[0.0], [1.0]], [0, 1]), "did you mean gaussian"),
        (partial(KernelRegression(widths=-1).fit, [[0.0], [1.0]], [0, 1]), "widths must be above"),
    ],
)
def test_mistakes_are_value_errors_that_name_rows_and_parameters(call, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        call()
    assert ".jsonl" not in str(raised.value)
    assert (
        isinstance(raised.value, RegardError)
        or "sklearn" in type(raised.value).__module__
        or ("1d array" in says)
    )
