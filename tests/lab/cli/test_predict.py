import csv
import json
import math
import sys
from pathlib import Path

import pytest

from regard.lab import runs
from regard.lab.cli.answers import table_rows
from tests.lab.small_runs import trained_run

from .conftest import Command, Feed


def test_arguments(regard: Command, trained: Path) -> None:
    said = regard("predict", trained, "a good film", "", "two\nlines")
    assert said.status == 0
    lines = said.out.splitlines()
    assert len(lines) == 3
    for line in lines:
        label, chance = line.split("\t")
        assert label in ("negative", "positive")
        assert 0.5 <= float(chance) <= 1


def test_the_likeliest_labels(regard: Command, trained: Path) -> None:
    line = regard("predict", trained, "a good film", "--top", 3).out.strip().split("\t")
    assert sorted(line[::2]) == ["negative", "positive"]  # there are two
    assert float(line[1]) >= float(line[3])
    assert float(line[1]) + float(line[3]) == pytest.approx(1, abs=0.002)
    found = json.loads(regard("predict", trained, "a good film", "--top", 1, "--json").out)
    (answer,) = found["predictions"]
    best = {"label": line[0], "probability": answer["probabilities"][line[0]]}
    assert answer["top"] == [best]
    assert regard("predict", trained, "a good film", "--top", "-1").status == 2


def test_stdin_line_by_line(regard: Command, trained: Path, feed: Feed) -> None:
    feed("a good film\n\nein schlechter Film ☃\r\nno end".encode())
    piped = regard("predict", trained)
    assert piped.status == 0
    given = regard("predict", trained, "a good film", "", "ein schlechter Film ☃", "no end")
    assert piped.out == given.out
    assert piped.out.count("\n") == 4


def test_file_with_more_lines_than_a_chunk(regard: Command, trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_bytes(b"\xef\xbb\xbf" + b"a good film\na bad film\n" * 300)
    said = regard("predict", trained, "--file", file)
    lines = said.out.splitlines()
    assert len(lines) == 600
    assert set(lines[::2]) == {regard("predict", trained, "a good film").out.strip()}


def test_feather_files(regard: Command, trained: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    file, out = tmp_path / "texts.feather", tmp_path / "answers.csv"
    feather.write_feather(pyarrow.table({"text": ["a good film", None]}), file)
    assert regard("predict", trained, "--file", file, "--out", out).status == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["text"] for row in rows] == ["a good film", ""]
    assert rows[0]["label"] == regard("predict", trained, "a good film").out.split("\t")[0]


def test_json_is_one_object(regard: Command, trained: Path, feed: Feed) -> None:
    feed(b"a good film\n\n")
    found = json.loads(regard("predict", trained, "--json").out)
    assert found["labels"] == ["negative", "positive"]
    assert [row["text"] for row in found["predictions"]] == ["a good film", ""]
    for row in found["predictions"]:
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)


def test_a_language_model_goes_on_greedily_or_as_it_is_drawn(
    regard: Command, tmp_path: Path
) -> None:
    run = tmp_path / "goes"
    said = regard("train", "birthplace-pretrain", "--out", run, "steps=1", "width=8", "heads=2",
                  "layers=1", "feedforward=8", "length=16", "threads=1")  # fmt: skip
    notes = [
        "too short to tell: the budget ended after too few validations",
        "evaluated on its training texts, since validation=0 holds out none",
    ]
    assert said.out.startswith("\n".join([*notes, "train loss "]))
    assert regard("evaluate", run).out.startswith("\n".join([*notes, ""]))
    told = json.loads(regard("evaluate", run, "--json").out)
    assert (told["data"], told["notes"]) == ("train split", notes)
    (tmp_path / "new.txt").write_text("Ada Balby was born in Gomel\n" * 3)
    assert notes[1] not in regard("evaluate", run, "--data", tmp_path / "new.txt").out
    once = ["predict", run, "--temperature", 1.5, "--seed"]
    drawn = [regard(*once, seed, "Ada").out for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    said = regard("predict", run, "--best", 2, "Ada")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == ["1", "1"]
    said = regard("predict", run, "Ada Balby")
    assert (said.status, said.out.count("\n")) == (0, 1)
    assert "text:1: text is too long; its first 1 tokens are ignored\n" in said.err
    said = regard("predict", run, "--longest", 200, "Ada")
    assert said.err == "--longest 200: this run generates at most 15 tokens\n"
    told = regard.refused("predict", run, "--score", "a\tb")
    assert "--score needs a run that writes one text for another" in told


def test_an_open_ended_model_draws_by_a_seed_and_goes_past_its_context(
    regard: Command, tmp_path: Path
) -> None:
    run = tmp_path / "goes"
    said = regard("train", "language-modeling", "--data", "biographies", "--out", run, "steps=2",
                  "width=8", "heads=2", "layers=1", "feedforward=8", "length=16", "threads=1",
                  "examples=60", "tokenizer=characters")  # fmt: skip
    assert "%" not in said.err
    judged = json.loads(regard("evaluate", run, "--json").out)
    assert judged["perplexity"] == pytest.approx(math.exp(judged["loss"]))
    assert f"perplexity {judged['perplexity']:.2f}" in said.out

    def wrote(*options: object) -> str:
        return regard("predict", run, *options, "Ada").out.replace("[UNK]", "?")

    once = wrote()
    assert once == wrote() == wrote("--temperature", 0.8, "--seed", 0) != wrote("--seed", 1)
    assert wrote("--temperature", 0) == wrote("--beam", 1) != once
    assert len(once) <= 16 - 3 + 1
    several = regard("predict", run, "Bo", "Ada").out.splitlines()
    assert regard("predict", run, "Bo", "Cy").out.splitlines()[0] == several[0], (
        "alone or among others"
    )
    far = json.loads(regard("predict", run, "--longest", 100, "Ada", "--json").out)
    (answer,) = far["predictions"]
    letters = len(answer["written"].replace("[UNK]", "?"))
    assert 16 < letters <= 100
    assert letters >= 90 or answer["ended"]  # symbols that no text holds are not shown
    held = regard("predict", run, "--longest", 100, "--beam", 2, "Ada")
    assert held.err == "--longest 100: this run generates at most 15 tokens\n"
    assert len(held.out.replace("[UNK]", "?")) <= 16 - 3 + 1
    told = regard.refused("predict", run, "--temperature", 1, "--beam", 2, "Ada")
    assert "--beam and --temperature exclude each other" in told


def test_nothing_in_nothing_out(regard: Command, trained: Path, feed: Feed) -> None:
    feed(b"")
    said = regard("predict", trained)
    assert (said.status, said.out) == (0, "")


def test_mistakes(regard: Command, trained: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\nbad \xff\n")
    for words, hint in (
        (["predict", trained, "x", "--file", bad], "exclude each other"),
        (["predict", trained, "--file", tmp_path / "none.txt"], "No such file"),
        (["predict", trained, "--file", tmp_path], "Is a directory"),
        (["predict", tmp_path, "x"], "contains no run"),
        (["predict", trained, "--temperature", 0, "x"], "--temperature needs a run that generates"),
    ):
        assert hint in regard.refused(*words)
    said = regard("predict", trained, "--file", bad)
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "bad.txt:2: not UTF-8" in said.err


def test_bytes_that_are_no_text_become_question_marks(regard: Command, trained: Path) -> None:
    found = json.loads(regard("predict", trained, "caf\udce9", "--json").out)
    assert found["predictions"][0]["text"] == "caf?"


def test_a_table_is_answered_row_by_row(regard: Command, trained: Path, tmp_path: Path) -> None:
    texts = ["a good film", "", "two\nlines", 'it is "so" bad, really']
    given = regard("predict", trained, *texts)
    table, tabs, objects = (tmp_path / f"new.{end}" for end in ("csv", "tsv", "jsonl"))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "words"], *([i, text] for i, text in enumerate(texts))])
    objects.write_text("".join(json.dumps({"words": text}) + "\n" for text in texts))
    said = regard("predict", trained, "--file", table, "--text", "words")
    assert (said.status, said.out) == (0, given.out)
    assert regard("predict", trained, "--file", objects, "--text", "words").out == given.out
    tabs.write_text("a good film\n\nthe worst\n")  # a line for a text, as ever
    assert regard("predict", trained, "--file", tabs).out.count("\n") == 3
    column = tmp_path / "column.csv"
    column.write_text("words\na good film\n\nthe worst\n")
    said = regard("predict", trained, "--file", column, "--text", "words")
    assert said.out == regard("predict", trained, "a good film", "", "the worst").out
    lines = tmp_path / "new.ndjson"
    lines.write_text('{"words": "a good film"}\n{"words": null}\n')
    said = regard("predict", trained, "--file", lines, "--text", "words")
    assert said.out == regard("predict", trained, "a good film", "").out
    wrong = regard.refused("predict", trained, "--file", table)
    assert "new.csv:1: cannot find the text column; columns: 'id', 'words'" in wrong
    nowhere = regard.refused("predict", trained, "a film", "--text", "words")
    assert "--text names a table column; add --file" in nowhere


def test_answers_to_a_file(regard: Command, trained: Path, tmp_path: Path) -> None:
    file, out, lines = tmp_path / "x.csv", tmp_path / "x.jsonl", tmp_path / "x.tsv"
    file.write_text("text,n\n" + "".join(f"a {w} film,1\n" for w in ["good", "bad"] * 400))
    said = regard("predict", trained, "--file", file, "--out", out)
    assert (said.status, said.out) == (0, f"{out}: 800 texts\n")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in rows] == ["a good film", "a bad film"] * 400
    assert {*rows[0]} - {"unknown"} == {"text", "label", "probabilities"}
    assert regard("predict", trained, "--file", file, "--out", lines).status == 0
    assert lines.read_text() == regard("predict", trained, "--file", file).out
    said = regard("predict", trained, "--file", file, "--out", out, "--json")
    assert json.loads(said.out) == {"run": str(trained), "out": str(out), "texts": 800}


def test_unknown_words_are_named(regard: Command, trained: Path, tmp_path: Path) -> None:
    known = " ".join(runs.load(trained).task.tokenizer.vocabulary[2:4])
    said = regard("predict", trained, "zzz Qqq zzz", known)
    assert said.err == "text:1: unknown to the model: zzz, qqq\n"
    answers = json.loads(regard("predict", trained, "zzz Qqq", known, "--json").out)
    assert [x.get("unknown") for x in answers["predictions"]] == [["zzz", "qqq"], None]
    file, out = tmp_path / "x.txt", tmp_path / "x.csv"
    file.write_text(f"zzz\n{known}\nqqq {known}\n")
    said = regard("predict", trained, "--file", file, "--out", out)
    assert "2 of 3 texts have words that are unknown to the model" in said.err
    assert [line.rpartition(",")[2] for line in out.read_text().splitlines()] == [
        *("unknown", "zzz", "", "qqq")
    ]
    assert "unknown to the model: zzz\n" in regard("show", trained, f"zzz {known}").out
    assert json.loads(regard("show", trained, f"{known} zzz", "--json").out)["unknown"] == ["zzz"]
    assert runs.load(trained).predict(f"{known} zzz").unknown == ("zzz",)
    assert "unknown: zzz" in repr(runs.load(trained).predict(f"{known} zzz"))


def test_answers_as_a_csv(regard: Command, trained: Path, tmp_path: Path) -> None:
    texts, out = ["a good film", "", 'two\nlines, "so"'], tmp_path / "answers.CSV"

    def rows(*options: object) -> list[list[str]]:
        said = regard("predict", trained, *texts, "--out", out, *options)
        assert (said.status, said.out) == (0, f"{out}: 3 texts\n")
        with out.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    printed = [line.split("\t") for line in regard("predict", trained, *texts).out.splitlines()]
    head, *found = rows()
    assert head == ["text", "label", "probability", "unknown"]
    assert [row[0] for row in found] == texts
    assert [[label, f"{float(p):.3f}"] for _, label, p, _ in found] == printed
    head, *found = rows("--top", 3)
    two = ["label_2", "probability_2"]  # there are no more
    assert head == ["text", "label", "probability", *two, "unknown"]
    assert all(float(row[2]) + float(row[4]) == pytest.approx(1, abs=1e-5) for row in found)


def test_a_row_for_each_output() -> None:
    best = [{"written": "ja", "log_probability": -0.5}, {"written": "nein", "log_probability": -2}]
    best = [{**one, "unknown": ["x"]} for one in best]
    assert table_rows({"text": "yes", "best": best}) == [
        {"text": "yes", "rank": 1, "written": "ja", "log_probability": -0.5, "unknown": "x"},
        {"text": "yes", "rank": 2, "written": "nein", "log_probability": -2, "unknown": "x"},
    ]


def test_a_file_of_another_kind_is_refused(regard: Command, trained: Path, tmp_path: Path) -> None:
    told = regard.refused("predict", trained, "a", "--out", tmp_path / "answers.xlsx")
    assert "answers.xlsx: unknown format; give a name that ends in .csv" in told
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_older_answers(regard: Command, trained: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "x.txt", tmp_path / "x.jsonl"
    file.write_bytes(b"a good film\n" * 600 + b"\xff\n")
    out.write_text("older")
    told = regard.refused("predict", trained, "--file", file, "--out", out)
    assert "x.txt:601: not UTF-8" in told
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.jsonl", "x.txt"]
    told = regard.refused("predict", trained, "a", "--out", tmp_path / "no" / "x.jsonl")
    assert "cannot write" in told


def test_a_terminal_gets_a_bar(
    regard: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    from regard.lab.cli import predict

    seen: list[tuple[float, float]] = []

    @contextmanager
    def bar(what: str, shown: bool):
        yield lambda done, total, says, left=None: seen.append((done, total))

    monkeypatch.setattr(predict, "bar", bar)
    monkeypatch.setattr(predict.err, "_force_terminal", True)
    file = tmp_path / "x.txt"
    file.write_text("a good film\n" * 600)
    assert regard("predict", trained, "--file", file, "--out", tmp_path / "y").status == 0
    assert seen == [(512, 600), (600, 600)]


def test_the_column_of_the_training_is_read_and_empty_texts_are_counted(
    regard: Command, tmp_path: Path
) -> None:
    data, plain, out = (tmp_path / name for name in ("own.csv", "plain.csv", "x.npy"))
    rows = [("no text", f"a {word} film {i}", word) for i in range(20) for word in ("good", "bad")]
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "Words", "stars"), *rows])
    pairs = [f"data={data}", "text=words", "label=stars", "steps=2", "width=4", "threads=1"]
    trained_run(tmp_path / "run", "classification", "mean", pairs)
    said = regard("predict", tmp_path / "run", "--file", data, "--json")
    asked = [row["text"] for row in json.loads(said.out)["predictions"]]
    assert asked == [text for _, text, _ in rows]
    assert regard("embed", tmp_path / "run", data, "--out", out).status == 0
    plain.write_text("text,n\na good film,1\n,2\n  ,3\n")
    said = regard("predict", tmp_path / "run", "--file", plain)
    assert (said.out.count("\n"), said.status) == (3, 0)
    assert said.err == f"{plain}: empty texts: 2 of 3; their predictions are meaningless\n"


def test_without_onnxruntime_its_extra_is_named(
    regard: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for command in ("predict", "serve"):
        told = regard.refused(command, trained, *["text"][command == "serve" :], "--onnx")
        assert "needs onnxruntime" in told
        assert "'.[export]'" in told
