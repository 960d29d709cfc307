"""``FILE.py:Name``: the class, or one line that says what is wrong."""

import pickle
import sys
from pathlib import Path

import pytest

from regard.attention import Mask, Score
from regard.errors import RegardError
from regard.plugins import is_part, load_object, load_part

SOURCE = """
from beside import SLOPE
from regard import Score

class Mine(Score):
    slope = SLOPE

class Other:
    pass

made = Mine()
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("SLOPE = 3")
    path = tmp_path / "my_score.py"
    path.write_text(SOURCE)
    yield path
    sys.modules.pop("beside", None)


def test_the_class_is_loaded_once_while_its_text_is_the_same(file):
    kind = load_part(f"{file}:Mine", Score, "score")
    assert issubclass(kind, Score)
    assert kind.slope == 3
    assert load_part(f"{file}:Mine", Score, "score") is kind
    file.write_text(SOURCE + "\nclass New(Mine): pass\n")
    assert load_part(f"{file}:Mine", Score, "score") is not kind
    assert isinstance(load_object(f"{file}:made"), Score)
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_nothing_is_written_and_no_path_stays(file):
    before = list(sys.path)
    load_part(f"{file}:Mine", Score, "score")
    assert sys.path == before
    assert {path.name for path in file.parent.iterdir()} - {"__pycache__"} == {
        "beside.py",
        "my_score.py",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Mime", "did you mean Mine"),
        ("Other", r"is no score: write `class Other\(regard.Score\):`"),
        ("made", "is a Mine, not a class: name the score class"),
        ("SLOPE", "is an int, not a class"),
        ("", "is named FILE.py:Name"),
    ],
)
def test_names(file, name, words):
    with pytest.raises(RegardError, match=words):
        load_part(f"{file}:{name}", Score, "score")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1 +", r"SyntaxError: .*\(line 1\)"),
        ("\n\n1 / 0", r"ZeroDivisionError: division by zero \(line 3\)"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "defines no class or function at all"),
    ],
)
def test_files_that_do_not_run(tmp_path, source, words):
    path = tmp_path / "bad.py"
    path.write_text(source)
    with pytest.raises(RegardError, match=words) as caught:
        load_part(f"{path}:Mine", Score, "score")
    assert "\n" not in str(caught.value)
    assert not [name for name in sys.modules if name.startswith("regard_part_bad")] or "x" in source


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(RegardError, match="cannot be read: No such file"):
        load_part(f"{tmp_path / 'none.py'}:Mine", Score, "score")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(RegardError, match="cannot be read"):
        load_part(f"{tmp_path / 'folder.py'}:Mine", Score, "score")


def test_the_example_is_a_part():
    example = Path(__file__).parent.parent / "examples" / "my_score.py"
    assert len(example.read_text().splitlines()) <= 15
    assert issubclass(load_part(f"{example}:Laplacian", Score, "score"), Score)
    with pytest.raises(RegardError, match="is no mask"):
        load_part(f"{example}:Laplacian", Mask, "mask")


def test_what_is_a_part():
    assert [is_part(x) for x in ("a.py:B", "C:\\a.py:B", "a.py", "dot", "x:y")] == [
        True,
        True,
        True,
        False,
        False,
    ]
