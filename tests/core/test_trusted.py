"""A run folder of a stranger executes nothing."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.core.errors import RegardError
from regard.core.trusted import VARIABLE
from regard.lab import runs
from regard.lab.cli.main import before_all, main
from regard.lab.data.sources import load_corpus
from regard.lab.runs.build import build_once
from regard.lab.runs.config import Config
from regard.lab.web.registry import Registry
from tests.lab.small_runs import trained_run

RAN = "RAN"
SCORE = """
import os
import regard
with open(os.environ["RAN"], "a") as ran:
    ran.write("x")

class Mine(regard.Score):
    def compare(self, queries, keys, positions):
        return -(queries.unsqueeze(-2) - keys.unsqueeze(-3)).abs().sum(-1)
"""
TINY = ["width=8", "heads=2", "layers=1", "steps=2", "length=20"]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete run with a score of its own, made by another user; ran.txt tells if it runs."""
    monkeypatch.setenv(RAN, str(tmp_path / "made.txt"))
    with monkeypatch.context() as other:
        other.setenv("XDG_CONFIG_HOME", str(tmp_path / "their configuration"))
        other.setenv(VARIABLE, "")
        (tmp_path / "mine.py").write_text(SCORE)
        own = [*TINY, f"score={tmp_path}/mine.py:Mine"]
        trained_run(tmp_path / "run", "classification", "transformer", own)
    for name in [name for name in sys.modules if name.startswith("regard_part_mine")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv(RAN, str(tmp_path / "ran.txt"))
    monkeypatch.setenv(VARIABLE, "")
    return tmp_path / "run"


@pytest.mark.parametrize(
    "command",
    [
        "predict {run} good",
        "show {run} good",
        "evaluate {run}",
        "report {run}",
        "export {run} --to huggingface --out {run}-out",
        "train classification --config {run} --out {run}-again",
        "train classification --init {run} --out {run}-after",
    ],
)
def test_no_command_executes_what_a_run_names(
    theirs: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["regard", *command.format(run=theirs).split()])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    score = theirs.parent / "mine.py"
    assert f"names {score}, a Python file that you have not trained with" in capsys.readouterr().err
    assert not (theirs.parent / "ran.txt").exists()


def test_python_and_the_explorer_refuse_it_too(theirs: Path) -> None:
    with pytest.raises(RegardError, match=r"add --trust .*mine\.py \(in Python: regard\.trust\("):
        regard.load(theirs)
    (listed,) = Registry({"theirs": theirs}).listed()
    assert "--trust" in listed["error"]
    with pytest.raises(RegardError, match="would execute the file"):
        Registry({"theirs": theirs}).model("theirs")
    assert not (theirs.parent / "ran.txt").exists()


def test_a_file_that_is_trusted_by_name_runs_in_another_process(theirs: Path) -> None:
    """And for this command alone: the next one is refused again."""
    words = ["predict", str(theirs), "good", "--json"]
    trusting = [*words, "--trust", str(theirs.parent / "mine.py")]
    answers = [
        subprocess.run(
            [sys.executable, "-m", "regard", *line], capture_output=True, text=True, check=False
        )
        for line in (trusting, words)
    ]
    assert [answer.returncode for answer in answers] == [0, 2], answers[0].stderr
    assert json.loads(answers[0].stdout)
    assert (theirs.parent / "ran.txt").read_text() == "x"


def test_what_was_trained_with_here_is_opened_as_before(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = tmp_path / "mine.py"
    trained_run(tmp_path / "own", "classification", "transformer", [*TINY, f"score={score}:Mine"])
    monkeypatch.setenv(VARIABLE, "")  # as in another process
    assert regard.load(theirs).config.network.model_dump()["score"] == f"{score}:Mine"
    score.write_text(SCORE + "# edited\n")
    with pytest.raises(RegardError, match="with this content"):
        regard.load(theirs)
    regard.trust(score)
    with pytest.raises(RegardError, match="has changed since"):
        regard.load(theirs).predict(["good"])


def test_trust_is_of_a_place_and_a_content(theirs: Path, tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere" / "mine.py"
    copied.parent.mkdir()
    copied.write_text(SCORE)
    regard.trust(copied)
    with pytest.raises(RegardError, match="in this place"):
        Config.read(theirs)
    regard.trust(tmp_path / "mine.py")
    assert Config.read(theirs).model == "transformer"


def test_a_configuration_folder_that_cannot_be_written_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RAN, os.devnull)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    (tmp_path / "mine.py").write_text(SCORE)
    own = [*TINY, f"score={tmp_path}/mine.py:Mine"]
    run = runs.start(tmp_path / "own", "classification", "transformer", own)
    assert [progress.step for progress in run.train()] == [1, 2]
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(RegardError, match="--trust"):
        regard.load(tmp_path / "own")


def test_a_file_that_appears_after_its_run_was_opened_does_not_run(
    theirs: Path, tmp_path: Path
) -> None:
    score = tmp_path / "mine.py"
    text = score.read_text()
    score.unlink()
    run = regard.load(theirs)  # it names nothing that could run
    score.write_text(text)
    with pytest.raises(RegardError, match="would execute the file"):
        build_once(run.config)
    with pytest.raises(RegardError, match="would execute the file"):
        _ = run.network
    assert not (tmp_path / "ran.txt").exists()


def test_options_of_every_command_stand_anywhere_before_two_dashes() -> None:
    assert before_all(["show", "a", "--trust"]) == ["show", "a", "--trust"]
    assert before_all(["show", "--", "--trust", "b"]) == ["show", "--", "--trust", "b"]


def test_a_part_that_computes_when_it_is_made_is_opened_as_it_was_trained(tmp_path: Path) -> None:
    """It reads numbers, keeps infinite ones, and remembers a table between networks."""
    (tmp_path / "own.py").write_text(
        "import functools, torch, regard\n"
        "@functools.cache\n"
        "def table(n):\n"
        "    return torch.arange(n).float()\n"
        "class Own(regard.Score):\n"
        "    def __init__(self, *given, **named):\n"
        "        super().__init__(*given, **named)\n"
        "        self.scale = float(torch.hann_window(8).sum())\n"
        "        self.steps = table(8)\n"
        "        self.register_buffer('hidden', torch.full((4,), -torch.inf))\n"
        "    def compare(self, queries, keys, positions):\n"
        "        return queries @ keys.mT / self.scale + 0 * self.steps.sum()\n"
    )
    own = [*TINY, f"score={tmp_path}/own.py:Own"]
    trained_run(tmp_path / "run", "classification", "transformer", own)
    said = runs.load(tmp_path / "run").predict("a good film")
    assert sum(said.probabilities.values()) == pytest.approx(1, abs=1e-5)


PARTS = """
import os
from regard.attention import Mask, Normalizer, Pattern, Wrapper
with open(os.environ["RAN"], "a") as ran:
    ran.write("x")

class Place(Wrapper):
    pass

class Normalize(Normalizer):
    def forward(self, scores):
        return scores.softmax(-1).nan_to_num(0)

near = Pattern(("near-1",), lambda length, n: Mask(
    lambda rows, columns: (rows[..., :, None] - columns[..., None, :]).abs() <= n))
"""


@pytest.mark.parametrize(
    "setting",
    ["position={}:Place", "normalize={}:Normalize", "pattern={}:near-2",
     "pattern=window-1+{}:near-2", "attention={}:Place"],
)  # fmt: skip
def test_no_kind_of_part_that_a_strangers_run_names_is_executed(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, own = tmp_path / "ran.txt", tmp_path / "parts.py"
    monkeypatch.setenv(RAN, str(ran))
    own.write_text(PARTS)
    monkeypatch.setenv(VARIABLE, "")
    key, _, value = setting.format(own).partition("=")
    config = Config.make("classification", "transformer", TINY)
    (tmp_path / "run").mkdir()
    text = config.toml().decode()
    before = f'{key} = "{config.network.model_dump()[key]}"'
    assert before in text
    path = tmp_path / "run" / "config.toml"
    path.write_text(text.replace(before, f'{key} = "{value}"'))
    with pytest.raises(RegardError, match=r"names .*parts\.py, a Python file that you have not"):
        Config.read(tmp_path / "run")
    with pytest.raises(RegardError, match="would execute the file"):  # where it is looked up
        build_once(replace(config, network=config.network.model_copy(update={key: value})))
    assert not ran.exists()
    regard.trust(own)
    assert Config.read(tmp_path / "run").network.model_dump()[key] == value
    if key == "attention":
        with pytest.raises(RegardError, match="is not an attention: write"):
            build_once(Config.read(tmp_path / "run"))
    else:
        build_once(Config.read(tmp_path / "run"))
    assert ran.read_text() == "x"


def test_a_data_set_of_a_stranger_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, own = tmp_path / "ran.txt", tmp_path / "rows.py"
    monkeypatch.setenv(RAN, str(ran))
    read = "lambda: [(f'a {i}', 'xy'[i % 2]) for i in range(40)]"
    rows = f"rows = DataSet('', 'classification', read={read})"
    writes = SCORE.split("class")[0]
    own.write_text(f"{writes}\nfrom regard.lab.data.named import DataSet\n{rows}\n")
    monkeypatch.setenv(VARIABLE, "")
    config = Config.make("classification", "mean", [*TINY[:1], "data=reviews"])
    (tmp_path / "run").mkdir()
    text = config.toml().decode().replace('data = "reviews"', f'data = "{own}:rows"')
    (tmp_path / "run" / "config.toml").write_text(text)
    with pytest.raises(RegardError, match=r"names .*rows\.py, a Python file that you have not"):
        Config.read(tmp_path / "run")
    with pytest.raises(RegardError, match="would execute the file"):
        load_corpus(f"{own}:rows")
    assert not ran.exists()
    named = Config.make("classification", "mean", [f"data={own}:rows"])  # the user named it
    assert list(named.named.values())[-1] == f"{own}:rows"
    assert len(load_corpus(f"{own}:rows").train) > 0
    assert ran.exists()
