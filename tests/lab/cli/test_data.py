import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.core.errors import RegardError
from regard.lab.cli.data import app
from regard.lab.data.birthplaces import load_birthplaces
from regard.lab.data.fetch import present
from regard.lab.tasks.symbols import PUZZLES

BIRTHPLACES = present("birthplaces")


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*words):
    result = CliRunner().invoke(app, list(map(str, words)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_list(tmp_path):
    (tmp_path / "eng-fra").mkdir()
    (tmp_path / "eng-fra" / "fra.txt").touch()
    text = run("list", "--data-dir", tmp_path).stdout
    assert f"stored in: {tmp_path / 'eng-fra'}" in text
    assert "not downloaded; regard data fetch imdb (84 MB)" in text
    rows = json.loads(run("list", "--json", "--data-dir", tmp_path).stdout)["data"]
    assert [row["name"] for row in rows] == [
        *(
            "reviews",
            "film-sentences",
            "reviews-zh",
            "reverse",
            "biographies",
            "pydoc",
            "dates",
            "ratings",
            "praise",
            "entities",
        ),
        *PUZZLES,
        *("imdb", "glove", "multi30k", "eng-fra", "birthplaces"),
    ]
    built_in = 10 + len(PUZZLES)
    assert [row["where"] for row in rows[: built_in + 1]] == [*["built in"] * built_in, None]
    assert [row["used_for"] for row in rows[2:6]] == [
        *("classification", "translation", "birthplace", "pretraining")
    ]


def test_check(tmp_path):
    path = tmp_path / "r.csv"
    films = "".join(f"a good film no {i},5\na bad film no {i},1\n" for i in range(9))
    path.write_text(f"words,stars\na good film,5\na bad film,1\n,1\n{films}")
    found = run("check", path, "--text", "words", "--length", "2")
    assert "r.csv:4: the text is empty" in found.stdout
    assert found.exit_code == 0
    strict = run("check", path, "--text", "words", "--strict", "--json")
    assert strict.exit_code == 1
    assert json.loads(strict.stdout)["problems"] == ["rows: 1 row without text or label"]
    path.write_text(f"text,label\n{films}")
    assert run("check", path, "--test", path, "--strict").exit_code == 1
    near = run("check", path, "--strict", "--json")
    assert not [x for x in json.loads(near.stdout)["problems"] if "nearly contained" not in x]


@pytest.mark.parametrize(
    ("labels", "options", "command"),
    [
        ("yes no", ["--label=label"], "suggest {} --label=label"),
        ("1 2", ["--numbers"], "suggest {} --task=regression"),
        ("x;y y;z x y z", [], "train multilabel --data={} 'separator=;'"),
        ("x y", ["--labels=x:p,y:n"], "train classification --data={} labels=x:p,y:n"),
    ],
)
def test_the_next_step_fits_the_data(tmp_path, labels, options, command):
    path, given = tmp_path / "r.csv", labels.split() * 20
    rows = "".join(f"text no {i},{label}\n" for i, label in enumerate(given))
    path.write_text(f"text,label\n{rows}")
    last = run("check", path, *options).stdout.splitlines()[-1]
    assert last == f"next: regard {command.format(path)}"


def test_the_next_step_of_tags_is_to_train(tmp_path):
    path = tmp_path / "r.conll"
    path.write_text("a X\nb Y\n\nc X\n")
    said = run("check", path).stdout
    assert said.splitlines()[-1] == f"next: regard train tagging --data={path}"


def test_check_by_group(tmp_path):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("text,label,by\na,1,ann\nb,2,bob\n")
    test.write_text("text,label,by\nc,1,bob\nd,2,eve\n")
    found = run("check", train, "--test", test, "--group", "by", "--strict")
    assert found.exit_code == 1
    assert "! 1 group in both train and test; training keeps them in both" in found.stdout
    assert run("check", train, "--test", test, "--strict").exit_code == 0


@pytest.mark.parametrize("task", ["classification", "dates"])
def test_a_task_without_rows_says_what_looks_at_its_data(task):
    with pytest.raises(RegardError) as caught:
        run("rows", task)
    assert str(caught.value) == (
        f"{task} has no rows to print; use regard train {task} --dry-run, or regard data check "
        "for a file"
    )


ROWS = [  # as assignment 5 prints them
    ("Where was Khatchig Mouradian born?⁇Lebanon⁇", 33),
    ("Where was Jacob Henry Studer born?⁇Columbus⁇", 33),
    ("Where was John Stephen born?⁇Glasgow⁇", 27),
    ("Where was Georgina Willis born?⁇Australia⁇", 30),
]


def test_rows_of_birthplace_are_those_that_the_assignment_prints():
    if BIRTHPLACES is None:
        pytest.skip("birthplaces are not here")
    lines = run("rows", "birthplace", "--data", "birthplaces", f"data_dir={BIRTHPLACES}").stdout
    expected = ["data has 418352 characters, 256 unique."]
    for question, hidden in ROWS:
        row = question.ljust(128, "□")  # y is x one place later, hidden up to the answer
        expected += [f"x: {row[:-1]}", f"y: {'□' * hidden}{row[1 + hidden :]}"]
    assert lines.splitlines() == expected
    pretraining = run(
        "rows", "birthplace-pretrain", "--data", "birthplaces", f"data_dir={BIRTHPLACES}"
    )
    assert pretraining.stdout.splitlines()[0] == expected[0]


def test_rows_keep_the_order_of_the_file_whatever_is_held_out():
    first = json.loads(run("rows", "birthplace", "--count", "20", "--json").stdout)["rows"]
    again = run("rows", "birthplace", "validation=0.9", "--count", "20", "--json").stdout
    assert json.loads(again)["rows"] == first
    questions = [pair.source for pair in load_birthplaces("biographies").train]
    assert [row["x"].partition("⁇")[0] for row in first] == questions[:20]


def test_mistakes_are_errors_of_one_line(tmp_path):
    with pytest.raises(RegardError, match="no data set is called 'imbd'"):
        run("fetch", "imbd")
    with pytest.raises(RegardError, match="no such file"):
        run("check", tmp_path / "none.csv")


def test_fetch_of_what_is_here_downloads_nothing(tmp_path, monkeypatch):
    import hashlib

    from regard.lab.data.named import DATA, RemoteFile, Source

    file = RemoteFile("https://canonical.invalid/x.bin", 3, hashlib.sha256(b"abc").hexdigest())
    monkeypatch.setitem(DATA.rows, "tiny", Source("", "", (file,), "", "", ("x.bin",)))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "x.bin").write_bytes(b"abc")
    text = run("fetch", "tiny", "--data-dir", tmp_path).stdout
    assert text == f"{tmp_path / 'tiny' / 'x.bin'}: 3 bytes, checked\n"
    result = json.loads(run("fetch", "tiny", "--json", "--data-dir", tmp_path).stdout)
    assert result == {"name": "tiny", "files": [str(tmp_path / "tiny" / "x.bin")]}


def test_no_torch_is_loaded():
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom regard.lab.cli.data import app\n"
        "assert CliRunner().invoke(app, ['check', 'reviews']).exit_code == 0\n"
        "assert CliRunner().invoke(app, ['list']).exit_code == 0\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_check_with_files_beside_it(tmp_path):
    for label in ("neg", "pos"):
        (tmp_path / f"{label}.txt").write_text(f"a {label} film\nthe other {label} film\n")
    beside = tmp_path / "beside.csv"
    beside.write_text("text,label\nA neg film,0\nnew,pos\n")
    words = ["check", tmp_path / "neg.txt,pos.txt".replace(",", f",{tmp_path}/"), "--json"]
    found = run(*words, "--validation", beside, "--labels", "0:neg")
    assert found.exit_code == 0
    findings = json.loads(found.stdout)
    assert [part["labels"] for part in findings["parts"]] == [
        {"neg": 2, "pos": 2},
        {"neg": 1, "pos": 1},
    ]
    assert findings["problems"] == [
        "1 text in both train and validation; training drops them from train",
        "neg.txt,pos.txt: all 2 rows with the label 'neg' would be in the test part, so training "
        "would not see it; add rows of it or remove it, or give a test file with test=FILE",
    ]
    with pytest.raises(RegardError, match="expected OLD:NEW,OLD:NEW"):
        run(*words, "--labels", "0")
    with pytest.raises(RegardError, match="no such file"):
        run(*words, "--validation", tmp_path / "none.csv")


@pytest.fixture
def numbers(tmp_path):
    for name in ("a", "b"):
        rows = (json.dumps({"body": f"{name} {i} is a number"}) for i in range(300))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    return f"{tmp_path}/*.jsonl"


def test_tokenize_writes_once_and_then_verifies(numbers):
    words = ("tokenize", "--data", numbers, "text=body", "--processes", 1)
    said = json.loads(run(*words, "--json").stdout)
    assert said["shards"] == 2
    assert sum(said["documents"].values()) == 600
    again = run(*words)
    assert f"{said['folder']}: checksums verified" in again.stdout
    assert "next: regard train language-modeling text=body 'data=" in again.stdout
    path = Path(said["folder"]) / "00001.train.ids"
    path.write_bytes(b"\5\0" + path.read_bytes()[2:])
    with pytest.raises(RegardError, match=r"00001\.train\.ids: damaged: its sha256 differs"):
        run(*words)


def test_tokenize_is_for_what_does_not_fit(numbers, tmp_path):
    with pytest.raises(RegardError, match="these texts fit into memory"):
        run("tokenize", "--data", tmp_path / "a.jsonl")
    with pytest.raises(RegardError, match="unknown column 'text'"):
        run("tokenize", "--data", numbers, "text=text")
    with pytest.raises(RegardError, match="vocabulary"):
        run("tokenize", "--data", numbers, "vocabulry=3")
