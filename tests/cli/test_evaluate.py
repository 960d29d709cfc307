import json
from pathlib import Path

from .conftest import Command


def test_figures_of_the_test_split(regard: Command, trained: Path) -> None:
    said = regard("evaluate", trained)
    assert said.status == 0
    for word in ("1,000 texts", "accuracy", "95 % interval", "log loss", "calibration", "in truth"):
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
        (["evaluate", tmp_path], "holds no run"),
        (["evaluate", trained, "--data", data], "odd.csv:3"),
        (["evaluate", trained, "--label", "verdict"], "give it as --data FILE"),
        (["evaluate", trained, "--predictions", tmp_path / "no" / "x.jsonl"], "cannot write"),
    ):
        said = regard(*words)
        assert said.status == 2
        assert hint in said.err
        assert said.err.count("\n") == 1
        assert said.out == ""


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
        ([], "is 'positive' meant? labels=Positive:positive"),
        (["--labels", "pos:positive"], "no row has the label 'pos'; there are Positive"),
        (["--labels", "pos"], "give OLD:NEW"),
    ):
        said = regard(*words, *options)
        assert (said.status, said.err.count("\n"), hint in said.err) == (2, 1, True)
    said = regard("evaluate", trained, "--labels", "0:negative")
    assert "--labels renames those of a file: give it as --data FILE" in said.err
