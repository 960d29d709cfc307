"""``FILE.py:Name``: the class, or one line that says what is wrong."""

import pickle
import sys

import pytest

from regard.attention import SCORES, Score
from regard.core.errors import RegardError
from regard.core.plugins import load_object
from regard.core.trusted import trust

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
    trust(path)
    yield path
    sys.modules.pop("beside", None)


def test_the_class_is_loaded_once_while_its_text_is_the_same(file):
    kind = SCORES[f"{file}:Mine"]
    assert issubclass(kind, Score)
    assert kind.slope == 3
    assert SCORES[f"{file}:Mine"] is kind
    file.write_text(SOURCE + "\nclass New(Mine): pass\n")
    trust(file)
    assert SCORES[f"{file}:Mine"] is not kind
    assert isinstance(load_object(f"{file}:made"), Score)
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_nothing_is_written_and_no_path_stays(file):
    before = list(sys.path)
    SCORES[f"{file}:Mine"]
    assert sys.path == before
    assert {path.name for path in file.parent.iterdir()} - {"__pycache__"} == {
        "beside.py",
        "my_score.py",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Mime", "did you mean Mine"),
        ("Other", r"is not a score: write `class Other\(regard.attention.Score\):`"),
        ("made", "is a Mine, not a class: name the score class"),
        ("SLOPE", "is an int, not a class"),
        ("", "name your own part as FILE.py:Name"),
    ],
)
def test_names(file, name, words):
    with pytest.raises(RegardError, match=words):
        SCORES[f"{file}:{name}"]


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
    trust(path)
    with pytest.raises(RegardError, match=words) as caught:
        SCORES[f"{path}:Mine"]
    assert "\n" not in str(caught.value)
    assert not [name for name in sys.modules if name.startswith("regard_part_bad")] or "x" in source


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(RegardError, match="cannot be read: No such file"):
        SCORES[f"{tmp_path / 'none.py'}:Mine"]
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(RegardError, match="cannot be read"):
        SCORES[f"{tmp_path / 'folder.py'}:Mine"]
