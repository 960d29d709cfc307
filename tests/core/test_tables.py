"""Parts by name: regard's rows, entry points of packages, and files of the user's own."""

import importlib
import sys
from copy import copy
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from regard.attention import MECHANISMS, NORMALIZERS, PATTERNS, POSITIONS, SCORES
from regard.conformance import conform
from regard.core.errors import RegardError, look_up
from regard.core.tables import Table
from regard.core.trusted import trust
from regard.lab import runs
from regard.lab.labs import LABS
from regard.lab.runs.checking import network_of
from regard.lab.runs.config import Config
from regard.lab.studies.arms import parse_arm
from regard.lab.tasks import TASKS
from regard.lab.tasks.models import ModelEntry

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL, TASK = f"{EXAMPLES / 'my_model.py'}:bag", f"{EXAMPLES / 'my_task.py'}:focal"
TINY = ["examples=200", "steps=4", "threads=1"]


def numbers(group: str = "regard.numbers") -> Table[int]:
    return Table({"one": 1}, group, int, "number")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with entry points, installed as far as Python knows."""
    (tmp_path / "more_numbers.py").write_text("two = 2\nthree = 'three'\n")
    info = tmp_path / "more_numbers-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more-numbers\nVersion: 1\n")
    points = "one = more_numbers:two\ntwo = more_numbers:two\nthree = more_numbers:three\n"
    (info / "entry_points.txt").write_text(f"[regard.numbers]\n{points}gone = gone:x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "more_numbers", raising=False)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("package")
def test_entry_points_stand_behind_the_rows() -> None:
    table = numbers()
    assert list(table) == ["one", "two", "three", "gone"]
    assert (table["one"], table["two"], len(table)) == (1, 2, 4)
    assert numbers("regard.others").get("two") is None
    with pytest.raises(RegardError, match="three is a str, not a number: name an int"):
        table["three"]
    with pytest.raises(RegardError, match=r"the number 'gone' of gone:x cannot be loaded: Module"):
        table["gone"]
    with pytest.raises(RegardError, match="no number is called 'tow'; did you mean two"):
        look_up(table, "tow", "number")


def test_a_file_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nfour = 4\nfive = 'five'\n")
    with pytest.raises(RegardError, match="a Python file that you have not trained with"):
        numbers()[f"{path}:four"]
    assert not (tmp_path / "ran").exists()
    trust(path)
    assert numbers()[f"{path}:four"] == 4
    with pytest.raises(RegardError, match="is a str, not a number"):
        numbers()[f"{path}:five"]
    with pytest.raises(RegardError, match="defines no six"):
        numbers()[f"{path}:six"]


def test_a_model_of_ones_own_is_trained_opened_compared_and_checked(tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", "classification", MODEL, [*TINY, "width=8"])
    assert list(run.train())
    loaded = runs.load(tmp_path / "run")
    assert loaded.predict("a fine film").label == run.predict("a fine film").label
    arm = parse_arm(f"{MODEL}:width=8")
    assert (arm.model, arm.overrides) == (MODEL, ("width=8",))
    subject = network_of(f"classification:{MODEL}")
    assert subject is not None
    assert [v for v in conform(subject) if v.outcome == "fails"] == []
    with pytest.raises(
        RegardError, match="Bag needs settings, vectors, which has no default; name a ModelEntry"
    ):
        runs.start(tmp_path / "other", "classification", f"{EXAMPLES / 'my_model.py'}:Bag", TINY)


def test_a_task_of_ones_own_is_learned(tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run", TASK, "mean", [*TINY, "width=8"])
    assert list(run.train())
    assert runs.load(tmp_path / "run").evaluate().metric == "accuracy"
    assert type(run.task).__name__ == "Focal"
    assert network_of(f"{TASK}:mean") is not None


def test_a_strangers_run_executes_nothing(tmp_path: Path) -> None:
    own = tmp_path / "model.py"
    own.write_text((EXAMPLES / "my_model.py").read_text())
    run = runs.start(tmp_path / "run", "classification", f"{own}:bag", [*TINY, "width=8"])
    assert list(run.train())
    ran = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(ran)!r}, 'w').close()\n" + own.read_text())
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace(str(own), str(evil)))
    with pytest.raises(RegardError, match=r"evil.py, a Python file that you have not trained"):
        Config.read(tmp_path / "run")
    with pytest.raises(RegardError, match=r"evil.py, a Python file that you have not trained"):
        runs.load(tmp_path / "run")
    assert not ran.exists()


def test_rows_by_module_are_loaded_when_they_are_asked_for() -> None:
    table: Table[float] = Table(
        {"pi": "math:pi", "name": "os:sep"}, "regard.numbers", float, "number"
    )
    assert list(table) == ["pi", "name"]
    assert 3 < table["pi"] < 4
    with pytest.raises(RegardError, match="name is a str, not a number: name a float"):
        table["name"]


@pytest.mark.parametrize(
    "table", [SCORES, NORMALIZERS, POSITIONS, PATTERNS, MECHANISMS, LABS, TASKS]
)
def test_entry_points_are_read_only_for_a_list_or_an_unknown_name(
    table: Table[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("theirs", "no_such_module:x", group)]

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    fresh = copy(table)
    vars(fresh).pop("_points", None)
    first = next(iter(table.rows))
    assert first in fresh
    fresh[first]
    assert asked == []
    with pytest.raises(RegardError, match="did you mean theirs"):
        look_up(fresh, "thiers", table.what)
    assert asked == [table.group]


def test_every_task_has_models_of_one_kind() -> None:
    for entry in TASKS.values():
        assert all(isinstance(model, ModelEntry) for model in entry.models.values())


def test_a_run_opens_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    settings = [*TINY, "width=8", "data=my_data.py:orders"]
    run = runs.start(tmp_path / "run", "my_task.py:focal", "my_model.py:bag", settings)
    assert list(run.train())
    label = run.predict("late box").label
    monkeypatch.chdir(tmp_path)
    opened = runs.load(Path("run"))
    assert opened.predict("late box").label == label
    assert opened.config.model == f"{EXAMPLES / 'my_model.py'}:bag"
    assert opened.evaluate().value == run.evaluate().value
    assert Config.make("classification", "rnn", ["data=a.csv"]).named["data"] == "a.csv"


def test_a_wrong_name_in_a_file_lists_its_objects() -> None:
    path = EXAMPLES / "my_data.py"
    trust(path)
    with pytest.raises(RegardError, match="did you mean orders"):
        importlib.import_module("regard.core.plugins").load_object(f"{path}:order")
