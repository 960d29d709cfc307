"""Scikit-learn estimators around a run: texts in, labels or numbers out.

With ``text="question,answer"`` or ``features="price,country"``, X is a DataFrame that has these
columns.

``fit`` trains a run in its own folder, like `regard.train`; ``estimator.run_`` is that run, for
attention, reports, the explorer and exports.
"""

import shutil
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from regard.core import atomic_io
from regard.core.errors import ArgumentError, RegardError, value_errors
from regard.core.settings import pairs
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import Example, Input, texts_of
from regard.lab.data.files import read_inputs
from regard.lab.data.frames import MISSING, Frame, is_frame
from regard.lab.data.label_lists import JOINT, joined
from regard.lab.data.labels import MOST
from regard.lab.data.sources import corpus_of, lacking
from regard.lab.data.splits import Side, hold_out
from regard.lab.data.tokenizers import sound
from regard.lab.runs.opening import load, open_or_start
from regard.lab.runs.run import Run
from regard.lab.tasks.classification.metrics import decided

LEAST = 2  # training texts
DATA = "X and y"  # the name of the data of a fitted estimator's run
#: Settings of files, which an estimator does not read.
OF_FILES = frozenset("data test label labels separator group duplicates".split())


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """The common base of `TextClassifier` and `TextRegressor`."""

    task: ClassVar[str]
    run_: Run
    _room: "weakref.finalize[..., Any]"

    def __init__(
        self, model: str = "transformer", *, validation: float = 0.1, **settings: Any
    ) -> None:
        self.model = model
        self.validation = validation
        self._settings = settings

    @classmethod
    def of(cls, run: Run | Path | str) -> Self:
        """Return a fitted estimator of a completed run or its folder.

        Raises: the run is not complete, or learned another task.
        """
        run = run if isinstance(run, Run) else load(run)
        run.must_be_complete()
        if run.config.task != cls.task:
            raise RegardError(
                f"{run.folder.path} learned {run.config.task}; {cls.__name__} needs a run of "
                f"{cls.task}"
            )
        estimator = cls(run.config.model)
        estimator.run_ = run
        estimator._describe()
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return model, validation and every setting that was given."""
        return {"model": self.model, "validation": self.validation, **self._settings}

    def set_params(self, **params: Any) -> Self:
        """Set the model, validation or settings of the run; `fit` checks their names."""
        for name in ("model", "validation"):
            if name in params:
                setattr(self, name, params.pop(name))
        self._settings = {**self._settings, **params}
        return self

    def save(self, folder: Path | str) -> Run:
        """Copy the run to a new folder and return it there. Raises: the folder exists."""
        check_is_fitted(self)
        place = Path(folder)
        if place.exists():
            raise RegardError(f"{place} already exists; give another folder")
        _write(place, _files(self.run_.folder.path))
        return load(place)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: the run is the bytes of its files."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_room", None)
        if "run_" in state:
            state["run_"] = _files(state["run_"].folder.path)
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        files = state.pop("run_", None)
        super().__setstate__(state)
        if files is not None:
            folder = self._new_room() / "run"
            _write(folder, files)
            self.run_ = load(folder)

    def _new_room(self) -> Path:
        """Return an empty folder that lives as long as the estimator."""
        if hasattr(self, "_room"):
            self._room()  # of an earlier fit
        room = mkdtemp(prefix="regard-")
        self._room = weakref.finalize(self, shutil.rmtree, room, ignore_errors=True)
        return Path(room)

    def _describe(self) -> None:
        """Set fitted attributes from the run."""

    def _train(self, texts: Sequence[str], answers: Sequence[str]) -> None:
        """Train a run on texts and their answers, which stay in memory."""
        if not isinstance(self.model, str):
            raise ArgumentError(f"model must be a name, not {self.model!r:.40}")
        if files := sorted(OF_FILES & self._settings.keys()):
            raise ArgumentError(f"{type(self).__name__} learns from X and y; remove {files[0]}=")
        rows = zip(texts, answers, strict=True)
        train, held = self._parts(
            [Example(text, answer, f"row {row}") for row, (text, answer) in enumerate(rows)]
        )
        # A run needs a test split at its end; here the caller tests the estimator.
        parts: dict[Side, list[Example]] = {"train": train, "validation": held, "test": held}
        numbers = self.task == TextRegressor.task
        several = self.task == MultilabelClassifier.task
        corpus = corpus_of(DATA, parts, [], duplicates="keep", numbers=numbers, several=several)
        corpus = replace(corpus, notes=())  # on texts that are in both
        given = {"data": DATA, **self._settings}
        run = open_or_start(self._new_room() / "run", self.task, self.model, pairs(given))
        for _ in run.train(corpus=corpus):
            pass
        run.task.corpus = corpus
        self.run_ = run

    def _parts(self, examples: list[Example]) -> tuple[list[Example], list[Example]]:
        """Split texts into training and validation texts; the latter select the best weights.

        Equal texts stay together, and every label is in the training part. Very few texts are used
        for both.
        """
        if not (isinstance(self.validation, Real) and 0 < self.validation < 1):
            raise ArgumentError(f"validation must be between 0 and 1, not {self.validation!r}")
        train, held = hold_out(examples, self.validation)
        known = {example.label for example in train}
        unknown = [example for example in held if example.label not in known]
        if self.task == MultilabelClassifier.task:
            unknown = lacking(train, held)
        if self.task != TextRegressor.task:
            rows = {example.source for example in unknown}
            train += unknown
            held = [example for example in held if example.source not in rows]
        if len(train) < LEAST or not held:
            return examples, examples
        return train, held

    def _answers(self, y: Any) -> NDArray[Any]:
        return np.asarray(column_or_1d(y, warn=True))

    def _texts(self, X: Any) -> list[str]:  # noqa: N803, scikit-learn's name
        """Return the inputs in X, by the columns of the fitted run."""
        return inputs_of(X, self.run_.task.columns)

    def _pairs(self, X: Any, y: ArrayLike) -> tuple[list[str], NDArray[Any]]:  # noqa: N803
        """Return texts and answers to train on.

        Raises: different or too small numbers of both; an empty or invalid text; a missing answer;
        several columns of y.
        """
        if y is None:
            raise ArgumentError("requires y to be passed, but the target y is None")
        text, features = (str(self._settings.get(key, "")) for key in ("text", "features"))
        texts, answers = inputs_of(X, Columns(text, features=features)), self._answers(y)
        if len(texts) != len(answers):
            raise ArgumentError(
                f"X has {len(texts)} texts and y has {len(answers)} answers; give one for each"
            )
        if len(texts) < LEAST:
            raise ArgumentError(f"{len(texts)} sample(s) given; a minimum of {LEAST} is required")
        for row, text in enumerate(texts):
            if not all(part.strip() for part in texts_of(text)):
                raise ArgumentError(f"row {row} of X is an empty text; drop it before training")
            if sound([text]) != [text]:
                raise ArgumentError(f"row {row} of X has an unpaired surrogate; decode it anew")
        for row, answer in enumerate(answers.tolist()):
            if not isinstance(answer, str) and str(answer) in MISSING:
                raise ArgumentError(f"row {row} of y is {answer}; drop rows without an answer")
        return texts, answers


@value_errors()
def inputs_of(X: Any, columns: Columns) -> list[str]:  # noqa: N803, scikit-learn's name
    """Return the texts of a list, an array, a series or a table with one column.

    With named columns, X is a DataFrame that has them, or a list of `Input`.

    Raises: ``ValueError``: one string, several columns, or a value that is not a string.

    >>> inputs_of(np.array([["a film"], ["another"]]), Columns())
    ['a film', 'another']
    """
    if columns.named and not (isinstance(X, list) and X and isinstance(X[0], Input)):
        if not is_frame(X):
            raise ArgumentError(
                f"text= and features= name columns of a DataFrame; X is {type(X).__name__}"
            )
        return list(read_inputs(Frame(X), columns))
    shape: Sequence[int] = getattr(X, "shape", (0,))
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable) or not shape:
        raise ArgumentError(f"give X as a list of texts, not {type(X).__name__}: [text]")
    if len(shape) > 1:
        if len(shape) != 2 or shape[1] != 1:
            raise ArgumentError(
                f"X must be one column of texts, not the shape {shape}; choose a column, "
                "or name columns of a DataFrame: text=, features="
            )
        X = np.asarray(X)[:, 0]
    texts = list(X)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ArgumentError(
                f"row {row} of X must be a text, not {text!r:.40}; drop or convert it"
            )
    return [text if isinstance(text, Input) else str(text) for text in texts]


class _LabelEstimator(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """The base of both classifiers.

    ``_columns`` has the place in ``classes_`` of each label of the run.
    """

    classes_: NDArray[Any]
    _columns: list[int]

    def _learn(self, texts: list[str], names: Sequence[str], answers: list[str]) -> Self:
        """Train on texts and their answers, written with a name for each of the classes."""
        self._train(texts, answers)
        order = {name: number for number, name in enumerate(names)}
        self._columns = [order[label] for label in self.run_.task.labels]
        return self

    def _describe(self) -> None:
        self.classes_ = np.array(self.run_.task.labels)
        self._columns = list(range(len(self.classes_)))

    def _probabilities(self, X: Any) -> NDArray[np.float64]:  # noqa: N803, scikit-learn's name
        """Return the run's probabilities (texts, classes), 0 for a class without a text."""
        check_is_fitted(self)
        texts = self._texts(X)
        rows = np.zeros((len(texts), len(self.classes_)))
        with self.run_.computing():
            rows[:, self._columns] = self.run_.task.probabilities(self.run_.model, texts)
        return rows


class TextClassifier(_LabelEstimator):
    """A text classifier for pipelines and searches: any model of ``regard train classification``.

    ``model`` is a name from `regard train classification --help`, a network or a baseline; further
    keywords are settings of the model, the data and the training (``width=64, epochs=3,
    vectors="glove", seed=1``), as in `regard.train`. ``validation`` is the share of the
    texts that selects the best weights, held out by a hash of the text.

    Fitted attributes: ``classes_``, ``run_`` (the `Run`). ``of`` makes an estimator of a run that
    was trained elsewhere; ``save`` keeps the run. Equal settings give equal predictions.

    Raises: ``ValueError`` for models, settings, X and y; it names the parameter or the row.

    >>> texts = ["a good film", "a fine film", "a bad film", "a dull film"] * 5
    >>> model = TextClassifier("nb-svm").fit(texts, [1, 1, 0, 0] * 5)
    >>> model.predict(["good", "dull"]).tolist(), model.predict_proba(["good"]).shape
    ([1, 0], (1, 2))
    """

    task = "classification"

    @value_errors()
    def fit(self, X: Any, y: ArrayLike) -> Self:  # noqa: N803, scikit-learn's name
        """Train on texts and their labels, of any type."""
        texts, labels = self._pairs(X, y)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ArgumentError(
                f"y has one class, {classes.tolist()[0]!r}; a classifier needs two or more"
            )
        names = sound([" ".join(str(label).split()) for label in classes])
        if len({*names}) < len(names) or "" in names:
            names = [str(number) for number in range(len(names))]
        self.classes_ = classes
        return self._learn(texts, names, [names[number] for number in numbers])

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the predicted label of each text."""
        rows = self.predict_proba(X)[:, self._columns]
        best = np.array(self._columns)[decided(rows, self.run_.task.threshold)]
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return probabilities (texts, classes), columns in the order of ``classes_``."""
        rows = self._probabilities(X)
        return np.asarray(
            rows / rows.sum(1, keepdims=True)
        )  # float32's rounding would fail "sums to 1"


class MultilabelClassifier(_LabelEstimator):
    """A classifier of texts with several labels each: any model of ``regard train multilabel``.

    ``y`` is a list with the labels of each text, or a matrix (texts, labels) of 0 and 1, as
    scikit-learn's ``MultiLabelBinarizer`` makes it; `predict` answers in the same form. Arguments
    and attributes are those of `TextClassifier`; the ``classes_`` of a matrix are its column
    numbers. ``score`` is the subset accuracy of a matrix.

    >>> texts = ["good acting", "good plot", "good acting and plot", "nothing"] * 10
    >>> y = [["acting"], ["plot"], ["acting", "plot"], []] * 10
    >>> model = MultilabelClassifier("tfidf").fit(texts, y)
    >>> model.predict(["plot and acting", "nothing"])
    [('acting', 'plot'), ()]
    """

    task = "multilabel"
    _matrix = False

    @value_errors()
    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803, scikit-learn's name
        """Train on texts and their labels, of any type."""
        texts, rows = self._pairs(X, y)
        self._matrix = getattr(y, "ndim", 1) == 2
        if self._matrix:
            classes: list[Any] = list(range(rows.shape[1]))
            chosen = [np.flatnonzero(row).tolist() for row in rows]
        else:
            classes = sorted({label for row in rows for label in row}, key=lambda x: (str(x), x))
            place = {label: number for number, label in enumerate(classes)}
            chosen = [[place[label] for label in row] for row in rows]
        if len({number for row in chosen for number in row}) < 2:
            raise ArgumentError("y has fewer than two labels; a multilabel classifier needs two")
        names = sound([" ".join(str(label).split()) for label in classes])
        if len({*names}) < len(names) or "" in names or any(JOINT in name for name in names):
            names = [str(number) for number in range(len(names))]
        self.classes_ = np.array(classes)
        return self._learn(texts, names, [joined(names[i] for i in row) for row in chosen])

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the labels of each text: a tuple, or a row of 0 and 1."""
        limits = np.ones(len(self.classes_))  # a column without a text is never predicted
        limits[self._columns] = self.run_.task.thresholds
        above = self.predict_proba(X) > limits
        if self._matrix:
            return above.astype(np.int64)
        return [tuple(self.classes_[row].tolist()) for row in above]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each label (texts, labels), in the order of ``classes_``."""
        return self._probabilities(X)

    def _answers(self, y: Any) -> NDArray[Any]:
        """Return a matrix of 0 and 1, or an array of lists. Raises: another form."""
        y = y.toarray() if hasattr(y, "toarray") else y
        if getattr(y, "ndim", 1) == 2:
            matrix = np.asarray(y)
            if not np.isin(matrix, (0, 1)).all():
                raise ArgumentError(
                    "y must be a matrix of 0 and 1, or a list of labels for each text"
                )
            return matrix
        answers = np.empty(len(y), dtype=object)
        for row, labels in enumerate(y):
            if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
                raise ArgumentError(
                    f"row {row} of y must be a list of labels, not {labels!r:.40}; for one label "
                    "per text use TextClassifier"
                )
            answers[row] = list(labels)
        return answers


class TextRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """A regressor on texts: any model of ``regard train regression``.

    Arguments and attributes are those of `TextClassifier`, without ``classes_``.

    >>> texts = [f"{'very ' * n}good" for n in (0, 1, 2, 3)] * 5
    >>> model = TextRegressor("ridge", penalty=0.1).fit(texts, [0.0, 1.0, 2.0, 3.0] * 5)
    >>> model.score(texts, [0.0, 1.0, 2.0, 3.0] * 5) > 0.9
    True
    """

    task = "regression"

    @value_errors()
    def fit(self, X: Any, y: ArrayLike) -> Self:  # noqa: N803
        """Train on texts and their numbers."""
        texts, answers = self._pairs(X, y)
        numbers = []
        for row, answer in enumerate(answers.tolist()):
            try:
                numbers.append(float(answer))
            except (TypeError, ValueError):
                raise ArgumentError(
                    f"row {row} of y must be a number, not {answer!r:.40}"
                ) from None
            if not abs(numbers[-1]) < MOST:
                raise ArgumentError(
                    f"row {row} of y is {answer}; numbers must be below {MOST:g}: scale y, or drop "
                    "the row"
                )
        if min(numbers) == max(numbers):
            raise ArgumentError(f"y is {numbers[0]} in every row; a regressor needs two numbers")
        self._train(texts, [repr(number) for number in numbers])
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return a number for each text."""
        check_is_fitted(self)
        with self.run_.computing():
            numbers = self.run_.task.predict_numbers(self.run_.model, self._texts(X))
        return np.asarray(numbers)


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files of a run's folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a run to a folder, the manifest last: it marks a run as complete."""
    for name in sorted(files, key=lambda name: name == atomic_io.MANIFEST):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_io.write_bytes(path, files[name])
