import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.cli.evaluate import show, show_errors
from regard.lab.data.examples import Example
from regard.lab.reports.mistakes import confusion_drawn
from regard.lab.tasks.classification.evaluation import by_label, label_evaluation
from regard.lab.tasks.evaluation import Evaluation

from .conftest import Command


def judged(names: Sequence[str], answers: Sequence[tuple[int, int]]) -> Evaluation:
    """Answers as pairs of the true and the said label's number."""
    examples = [Example("a text", names[true], f"x.csv:{i}") for i, (true, _) in enumerate(answers)]
    chances = np.eye(len(names))[[said for _, said in answers]]
    return label_evaluation(names, examples, chances)


def many(count: int) -> Evaluation:
    """Label k has count − k texts; of 0 two are said to be 1, of 3 one to be 2."""
    right = [(k, k) for k in range(count) for _ in range(count - k)]
    return judged([f"class {k}" for k in range(count)], [(0, 1), (0, 1), (3, 2), *right])


def test_of_many_labels_the_largest_and_the_most_confused_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = many(150)
    by_class, pairs = found.tables
    assert [row[0] for row in by_class[1:21]] == [f"class {k}" for k in range(20)]
    assert by_class[21:] == [["… and 130 more", *[""] * 5]]
    assert by_class[1][-1] == "152"
    assert pairs[1:] == [
        ["2 × predicted class 1, true class 0"], ["1 × predicted class 2, true class 3"]
    ]  # fmt: skip
    show(found, "a file")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    assert "… and 130 more" in "\n".join(lines)
    assert lines[-1] == "all labels and pairs: --json, or regard report RUN"
    assert found.json()["confused"] == [
        {"true": "class 0", "predicted": "class 1", "count": 2},
        {"true": "class 3", "predicted": "class 2", "count": 1},
    ]
    assert len(found.json()["by_class"]) == len(by_label(found.summary)) - 1 == 150


def test_a_confusion_is_printed_where_it_has_room() -> None:
    wide = ["a label of many words", "another of as many words", "a third that is not short"]
    assert judged(["no", "yes", "so"], [(0, 1), (1, 1)]).tables[1][1] == ["no", "0", "1", "0"]
    (_, pairs) = judged(wide, [(0, 1), (1, 1), (2, 2)]).tables
    assert pairs[1:] == [[f"1 × predicted {wide[1]}, true {wide[0]}"]]
    assert len(judged(wide, [(0, 0)]).tables) == 1  # nothing was confused
    several = [(k, (k + 1) % 14) for k in range(14)]
    assert judged([f"label {k}" for k in range(14)], several).tables[1][-1] == [
        "… and 4 more pairs"
    ]


def test_the_report_has_the_whole_confusion() -> None:
    found = many(150)
    figure, pairs = confusion_drawn(
        "Confusion", found.summary["labels"], found.summary["confusion"], "of a test"
    )
    assert "150 by 150 cells" in figure
    assert "All 2 confused pairs of labels" in pairs
    assert "class 3" in pairs
    named = [f"label {k}" for k in range(14)]
    counts = np.diag(2 * np.arange(1, 15)) + np.eye(14, k=1, dtype=int)
    picture = confusion_drawn("Confusion", named, counts, "of a test")[0]
    assert picture.index(">label 13<") < picture.index(">label 12<") < picture.index(">label 0<")
    (few,) = confusion_drawn("Confusion", ["a", "b"], [[1, 2], [3, 4]], "of a test")
    assert "b predicted as a: 3" in few
    assert confusion_drawn("Confusion", ["a"], [[1]], "of a test") == []


def test_a_strange_label_is_told_beside_a_few_that_are_known() -> None:
    names = [f"{'long ' * 20}{k}" for k in range(500)]
    with pytest.raises(RegardError, match="x:1: unknown label 'new'") as refused:
        label_evaluation(names, [Example("a", "new", "x:1")], np.ones((1, 500)))
    assert str(refused.value).endswith("and 490 more")
    assert len(str(refused.value)) < 600


def test_figures_of_the_test_split(regard: Command, trained: Path) -> None:
    said = regard("evaluate", trained)
    assert said.status == 0
    for word in (
        "1,000 texts",
        "accuracy",
        "95 % interval",
        "log loss",
        "calibration",
        "predicted",
    ):
        assert word in said.out
    found = json.loads(regard("evaluate", trained, "--json").out)
    assert found["n"] == 1_000
    assert sum(map(sum, found["confusion"])) == 1_000
    assert f"{found['value']:.2%}" in said.out
    assert f"{found['scores']['log loss']:.4f} nats" in said.out
    assert f"{found['trivial']['majority class']:.2%}" in said.out
    assert [row["label"] for row in found["by_class"]] == ["negative", "positive"]
    recall = f"{found['by_class'][0]['recall']:.1%}"
    assert any(
        line.split()[:1] == ["negative"] and recall in line for line in said.out.splitlines()
    )


def test_another_file_and_its_predictions(regard: Command, trained: Path, tmp_path: Path) -> None:
    data, answers = tmp_path / "more.csv", tmp_path / "answers.jsonl"
    data.write_text("words,verdict\na good film,positive\na bad film,negative\n")
    said = regard(
        "evaluate", trained, "--data", data, "--text", "words", "--label", "verdict",
        "--predictions", answers, "--json",
    )  # fmt: skip
    assert said.status == 0
    found = json.loads(said.out)
    assert (found["n"], found["data"]) == (2, str(data))
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [row["label"] for row in rows] == ["positive", "negative"]
    assert rows[0]["source"] == "more.csv:2"
    assert found["value"] == sum(row["label"] == row["predicted"] for row in rows) / 2


def test_mistakes(regard: Command, trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "odd.csv"
    data.write_text("text,label\na good film,positive\nodd,neutral\n")
    for words, hint in (
        (["evaluate", tmp_path / "none"], "does not exist"),
        (["evaluate", tmp_path], "contains no run"),
        (["evaluate", trained, "--data", data], "odd.csv:3"),
        (["evaluate", trained, "--label", "verdict"], "add --data FILE"),
        (["evaluate", trained, "--predictions", tmp_path / "no" / "x.jsonl"], "cannot write"),
    ):
        assert hint in regard.refused(*words)


def test_labels_of_a_file_by_other_names(regard: Command, trained: Path, tmp_path: Path) -> None:
    data = tmp_path / "more.csv"
    data.write_text("text,label\na good film,1\na bad film,0\n")
    words = ["evaluate", trained, "--data", data, "--json"]
    said = regard(*words, "--labels", "0:negative,1:positive")
    assert said.status == 0
    assert [row["support"] for row in json.loads(said.out)["by_class"]] == [1, 1]
    (tmp_path / "few").mkdir()
    for name, text in (("negative", "a bad film\nbad\n"), ("positive", "good\n")):
        (tmp_path / "few" / f"{name}.txt").write_text(text)
    said = regard("evaluate", trained, "--data", tmp_path / "few", "--json")
    assert [row["support"] for row in json.loads(said.out)["by_class"]] == [2, 1]
    data.write_text("text,label\na good film,Positive \n")
    for options, hint in (
        ([], "did you mean 'positive'? labels=Positive:positive"),
        (["--labels", "pos:positive"], "no row has the label 'pos'; labels: Positive"),
        (["--labels", "pos"], "expected OLD:NEW"),
    ):
        assert hint in regard.refused(*words, *options)
    told = regard.refused("evaluate", trained, "--labels", "0:negative")
    assert "--labels needs a file: add --data FILE" in told


def test_the_worst_errors_are_the_most_confident(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [Example(f"text\n{i} \x1b[2J", "no", f"x.csv:{i}") for i in range(4)]
    chances = np.array([[0.4, 0.6], [0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    found = label_evaluation(["no", "yes"], texts, chances)
    assert [row["source"] for row in found.worst(2)] == ["x.csv:1", "x.csv:3"]
    show_errors(found, 9)
    printed = capsys.readouterr().out
    assert "predicted yes, true no: text 1 \\x1b[2J  (x.csv:1)\n" in printed
    assert printed.count("predicted yes") == 3
    right = label_evaluation(["no", "yes"], texts[2:3], chances[2:3])
    show_errors(right, 9)
    assert "no answer is listed as wrong" in capsys.readouterr().out


def test_errors_of_a_run(regard: Command, trained: Path) -> None:
    found = json.loads(regard("evaluate", trained, "--errors", 3, "--json").out)
    wrong = sum(map(sum, found["confusion"])) - sum(
        row[i] for i, row in enumerate(found["confusion"])
    )
    assert len(found["errors"]) == min(3, wrong)
    assert all(row["true"] != row["predicted"] for row in found["errors"])
    assert regard("evaluate", trained, "--errors", -1).status == 2
