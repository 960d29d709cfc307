"""The suggestion: paired draws, the arms it names, and what it refuses."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.synthetic import reviews
from regard.lab.reports.suggestion import chart
from regard.lab.studies import suggest
from regard.lab.studies.arms import Arm
from regard.lab.studies.learning_curve import LearningCurve
from regard.lab.studies.learning_draws import (
    Predictor,
    Rows,
    divisions,
    draw,
    sizes_for,
    stratified,
)
from regard.lab.studies.suggest import Candidate, in_words, rows_of
from regard.lab.tasks.units import Unit


def rows(count: int = 90, kinds: int = 3) -> Rows:
    texts = [f"text {i} of kind{i % kinds} and more" for i in range(count)]
    answers = np.arange(count) % kinds
    return Rows(texts, answers, tuple("abcdefghij"[:kinds]), np.arange(count), count)


def test_every_row_is_held_out_once_in_five_draws_and_units_stay_together() -> None:
    data = rows()
    units = 7 * (np.arange(90) // 2)  # rows of which a part was drawn have gaps
    parts = list(divisions(Rows(data.texts, data.answers, data.labels, units, 90), seed=3))
    assert len(parts) == 10
    for turn in (parts[:5], parts[5:]):
        assert sorted(np.concatenate([held for _, held in turn]).tolist()) == list(range(90))
        for train, held in turn:
            assert len(train) + len(held) == 90
            assert not {*units[train]} & {*units[held]}


def test_prefixes_have_the_share_of_every_label() -> None:
    strata = np.array([0] * 80 + [1] * 20)
    order = stratified(np.arange(100), strata, 5)
    assert sorted(order.tolist()) == list(range(100))
    for size in (10, 25, 50):
        assert abs((strata[order[:size]] == 1).sum() - 0.2 * size) <= 1


def test_sizes_double_and_end_at_the_largest() -> None:
    assert sizes_for(800) == [25, 50, 100, 200, 400, 800]
    assert sizes_for(60) == [25, 50, 60]
    assert sizes_for(32) == [16, 32]


@dataclass(frozen=True)
class Watched(Predictor):
    """A baseline that gives the label of every text, or always another one."""

    seen: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)

    def __call__(self, texts: list[str], answers: NDArray[Any], others: list[str]) -> NDArray[Any]:
        assert not {*texts} & {*others}
        self.seen.append((tuple(texts), tuple(others)))
        return np.array([(int(text.split()[1]) + self.model) % 3 for text in others])


def test_all_arms_learn_the_same_rows_and_are_scored_on_others() -> None:
    arms = [Arm(name, name) for name in "abc"]
    predictors = {
        "a": Watched(0, cheap=True), "b": Watched(1, cheap=True), "c": Watched(0, cheap=False)
    }  # fmt: skip
    right, wrong, network = draw(rows(), arms, predictors, 0, lambda *_: None)
    assert predictors["a"].seen == predictors["b"].seen
    assert len(predictors["a"].seen) == 10 * 3
    assert predictors["c"].seen == predictors["a"].seen[:9]  # three draws are enough to be slow
    assert list(right.rows) == [25, 50, 72]
    assert (set(right.errors), set(wrong.errors), network.errors[-1]) == ({0.0}, {1.0}, 0.0)
    assert right.highest == pytest.approx(2 / 3, abs=0.01)


def candidate(name: str, errors: list[float], rows: int) -> Candidate:
    sizes = [25, 50, 100, 200][: len(errors)]
    curve = LearningCurve(sizes, errors, np.diag([1e-5] * len(errors)).tolist(), 0.5)
    return Candidate(name, name, curve, curve.forecast(rows), curve.forecast(2 * rows))


def test_the_sentences() -> None:
    best = candidate("sentence", [0.2, 0.17, 0.14, 0.12], 240)
    slow = candidate("tfidf", [0.3, 0.25, 0.2, 0.165], 240)
    never = candidate("mean", [0.5, 0.5, 0.5, 0.5], 240)
    first, other, more, scratch = in_words([best, slow, never], 240, Unit(), "accuracy")
    assert first.startswith("With your 240 rows: sentence, 88.")
    assert " % (" in first
    needed = int(other.removeprefix("Tfidf would need some ").rstrip(".").replace(",", ""))
    assert 400 < needed < 7_000
    assert more.startswith("240 more labels would bring about 1.")
    assert scratch == "Training mean does not pay below 7,700 rows."


def test_real_rows_and_the_same_answer_twice(tmp_path: Path) -> None:
    path = tmp_path / "films.tsv"
    lines = [f"{example.label}\t{example.text}\n" for example in reviews(80, 3)]
    path.write_text("verdict\twords\n" + "".join(lines))
    source = DataSource(path, columns=Columns("words", "verdict"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(suggest.DEFAULTS, "classification", ("tfidf", "nb-svm"))
        found, again = (suggest.suggest(source, seed=1) for _ in range(2))
    assert found == again
    assert (found.task, found.rows, found.labels, found.draws) == ("classification", 80, 2, 10)
    assert found.best in ("tfidf", "nb-svm")
    assert any("sentence encoder" in note for note in found.notes)
    assert found.command.endswith(f"--model {found.best} text=words label=verdict")
    arms = found.json()["arms"]
    assert [forecast["rows"] for forecast in arms[0]["forecasts"]] == [80, 160]
    for arm in arms:
        for forecast in arm["forecasts"]:
            assert 0 <= forecast["low"] <= forecast["value"] <= forecast["high"] <= 1


def test_two_arms_of_a_model_have_two_names(tmp_path: Path) -> None:
    path = tmp_path / "films.csv"
    rows = (f'"{example.text}",{example.label}\n' for example in reviews(60, 3))
    path.write_text("text,label\n" + "".join(rows))
    arms = ["tfidf:ngrams=1", "tfidf:ngrams=2"]
    found = suggest.suggest(path, arms=arms, defaults=())
    assert {one.words for one in found.candidates} == set(arms)
    assert all(f">{name}</text>" in chart(found) for name in arms)


WORDS = [(f"w{n % 10}", f"w{n // 10}") for n in range(100)]


def test_two_texts_and_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"is it {a},it is {b},{n * n % 7},{n * n % 7 > 2}" for n, (a, b) in enumerate(WORDS)]
    path.write_text("\n".join(["asked,said,price,expensive", *rows, ""]))
    columns = Columns("asked,said", "expensive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(suggest.DEFAULTS, "classification", ("tfidf",))
        blind = suggest.suggest(DataSource(path, columns=columns))
        seen = suggest.suggest(DataSource(path, columns=replace(columns, features="price")))
    assert blind.candidates[0].curve.errors[-1] > 0.3
    assert seen.candidates[0].curve.errors[-1] == 0
    assert seen.command.endswith("text=asked,said label=expensive features=price")


def test_numbers_are_regression() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(suggest.DEFAULTS, "regression", ("ridge",))
        found = suggest.suggest("ratings")
    assert (found.task, found.metric, found.labels) == ("regression", "R²", 0)
    assert found.candidates[0].now.error < 0.5
    assert "R²" in found.sentences[0]


def test_named_data_never_give_their_test_part() -> None:
    _, task, read = rows_of(DataSource("reviews"))
    assert (task, read.total) == ("classification", 4_000)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("text,label\n" + "a film,good\nb film,bad\n" * 10, "20 rows are too few"),
        (
            "text,label\n" + "".join(f"film {i},good\n" for i in range(50)),
            "all rows have the label",
        ),
        ("text,label\n" + "a film,good\nb film,bad\n" * 30, "2 different texts or groups are too"),
        ("text\n" + "".join(f"film {i}\n" for i in range(50)), "suggest needs texts with labels"),
    ],
)
def test_unusable_data(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(RegardError, match=says):
        suggest.suggest(path)
    with pytest.raises(RegardError, match="no such file"):
        suggest.suggest(tmp_path / "none.csv")
