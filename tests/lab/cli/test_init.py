"""``regard init``: a configuration file that ``regard train --config`` takes as it is."""

import json
import tomllib
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data.guess import guess

from .conftest import Command


def reviews(folder: Path, name: str = "reviews.csv") -> Path:
    path = folder / name
    rows = [
        f"{i},a {'good' if i % 3 else 'bad'} film number {i} of many,{'yes' if i % 3 else 'no'}"
        for i in range(90)
    ]
    path.write_text("\n".join(["id,what they wrote,verdict", *rows]) + "\n")
    return path


def test_the_written_file_is_trained_with(regard: Command, here: Path) -> None:
    reviews(here)
    said = regard("init", "reviews.csv")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[-2:] == [
        "next: regard suggest reviews.csv '--text=what they wrote' --label=verdict",
        "then: regard train classification --config reviews.toml --dry-run",
    ]
    assert "'what they wrote', whose values are the longest" in said.out
    assert "'verdict', whose values repeat" in said.out
    text = Path("reviews.toml").read_text()
    values = tomllib.loads(text)
    assert (values["data"]["text"], values["data"]["label"]) == ("what they wrote", "verdict")
    blocks = text.split("\n\n")
    settings = [block for block in blocks if "=" in block.splitlines()[-1]]
    assert len(settings) > 40
    assert [block for block in settings[1:] if not block.startswith("# ")] == []
    small = ("width=8", "heads=2", "layers=1", "feedforward=8", "threads=1", "precision=fp32")
    words = ("train", "classification", "--config", "reviews.toml", *small)
    assert regard(*words, "--dry-run").status == 0
    trained = regard(*words, "--budget", "3 steps", "--out", "run", "--json")
    assert (trained.status, json.loads(trained.out)["steps"]) == (0, 3)


def test_nothing_is_replaced_without_force(regard: Command, tmp_path: Path) -> None:
    data, out = reviews(tmp_path), tmp_path / "mine.toml"
    out.write_text("mine")
    assert "add --force" in regard.refused("init", data, "--out", out)
    assert out.read_text() == "mine"
    assert regard("init", data, "--out", out, "--force").status == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize(
    ("name", "content", "task", "settings"),
    [
        ("a.jsonl", '{"text": "so it is", "stars": 1}\n' * 3, "classification", ("text", "stars")),
        ("a.tsv", "source\ttarget\nein Hund\ta dog\n", "translation", ("source", "target")),
        ("a.csv", "n,words\n1,a text here\n2,another one\n", "language-modeling", ("words",)),
        ("a.tsv", "ein Hund\ta dog\nzwei Hunde\ttwo dogs\n", "translation", ()),
        ("a.csv", "a good film,yes\na dull film,no\n" * 3, "classification", ("1", "2")),
        ("a.csv", "words,yes\n" + "a film,a\nno film,b\n" * 3, "classification", ("words", "yes")),
        ("a.txt", "some text\nand more\n", "language-modeling", ()),
        ("a.txt", "yes\tsome text\nno\tand more\n", "classification", ()),
        ("a.conll", "A\tO\n\nB\tO\n", "tagging", ()),
    ],
)
def test_the_task_is_guessed(
    tmp_path: Path, name: str, content: str, task: str, settings: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(content)
    found = guess(str(tmp_path / name))
    assert (found.task, tuple(found.settings.values())) == (task, settings)


def test_many_labels_are_guessed_if_training_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for kinds, task in ((60, "classification"), (90, "language-modeling")):
        rows = "".join(f"a longer text no {i},intent {i % kinds}\n" for i in range(300))
        path.write_text(f"question,intent\n{rows}")
        assert guess(str(path)).task == task


def test_columns_of_parquet_are_guessed(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"n": [1, 2, 3, 4], "words": ["a b c d"] * 4, "good": ["yes", "no", "no", "yes"]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    found = guess(str(tmp_path / "a.parquet"))
    assert found.settings == {"text": "words", "label": "good"}


def test_numbers_that_hardly_repeat_are_for_regression(regard: Command, tmp_path: Path) -> None:
    data = tmp_path / "prices.csv"
    rows = "".join(f"a house of {i} rooms,{i * 1.37}\n" for i in range(90))
    data.write_text(f"text,target\n{rows}")
    said = regard("init", data, "--label", "target", "--out", tmp_path / "x.toml", "--json")
    found = json.loads(said.out)
    assert (found["task"], said.status) == ("regression", 0)
    assert any("hardly repeat" in reason for reason in found["reasons"])


def test_control_characters_of_the_data_reach_neither_file_nor_terminal(
    regard: Command, tmp_path: Path
) -> None:
    data = tmp_path / "odd.csv"
    data.write_text("a\x1b[2Jb,label\nsome text,x\nother text,x\nsome more,y\n")
    said = regard("init", data, "--out", tmp_path / "x.toml")
    assert said.status == 0
    assert "\x1b" not in said.out + (tmp_path / "x.toml").read_text()
    assert "a\\x1b[2Jb" in said.out
    loaded = tomllib.loads((tmp_path / "x.toml").read_text())
    assert loaded["data"]["text"] == "a\x1b[2Jb"


def test_mistakes(regard: Command, tmp_path: Path) -> None:
    data, empty, strange = reviews(tmp_path), tmp_path / "e.csv", tmp_path / "x.docx"
    empty.write_text("")
    strange.write_text("x")
    for words, hint in (
        ((tmp_path / "none.csv",), "no such file"),
        ((empty,), "the file is empty"),
        ((strange,), "unsupported file type"),
        ((data, "--text", "verdit"), "unknown column 'verdit'; columns: 'id'"),
        ((data, "--task", "clasification"), "did you mean classification"),
        ((data, "--model", "trasformer"), "did you mean transformer"),
    ):
        assert hint in regard.refused("init", *words, "--out", tmp_path / "new.toml")
        assert not (tmp_path / "new.toml").exists()
    (tmp_path / "h.csv").write_text("a,b\n")
    with pytest.raises(RegardError, match="no rows below"):
        guess(str(tmp_path / "h.csv"))
