"""Tab completion by the protocol that the scripts of bash, zsh and fish use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard import attention
from regard.cli import completion

CODE = (
    "import sys; sys.argv = ['regard']\n"
    "from regard.cli.main import main\n"
    "try: main()\n"
    "finally: assert 'torch' not in sys.modules, 'torch was loaded'"
)


def complete(line: str, shell: str = "bash", folder: Path | None = None) -> list[str]:
    """Return what a shell is offered at the end of a line; bash splits words at each ``=``."""
    split = line.replace("=", " = ") if shell == "bash" else line
    place = len(split.split()) - (0 if split.endswith(" ") and not line.endswith("=") else 1)
    asked = {
        "_REGARD_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": split,
        "COMP_CWORD": str(place),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
    )
    assert "torch was loaded" not in done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "some", "never"),
    [
        ("regard ", {"train", "runs", "init"}, {"TASK"}),
        ("regard train ", {"classification", "translation"}, {"transformer"}),
        ("regard train classification --model t", {"transformer", "t5", "tfidf"}, {"rnn"}),
        ("regard train translation --model b", {"bahdanau"}, {"bert"}),
        ("regard compare classification --arms rnn,c", {"rnn,cnn"}, {"rnn,rnn"}),
        ("regard train classification --data r", {"reviews"}, {"imdb"}),
        ("regard train classification le", {"length=", "learning_rate="}, {"score="}),
        ("regard train classification score=ad", {"additive"}, {"dot"}),
        ("regard train classification normalize=", {"softmax", "entmax15"}, {"dot"}),
        ("regard train classification seed=1 optimizer=", {"adamw", "muon"}, {"1"}),
        ("regard compare classification position=al", {"alibi", "alibi-signed"}, {"rotary"}),
        ("regard train classification pattern=w", {"window-64"}, {"causal"}),
        ("regard train translation metric=", {"exact", "bleu"}, {"accuracy"}),
        ("regard train classification metric=", {"accuracy", "macro-f1"}, {"bleu"}),
        ("regard train reverse bidirectional=", {"0", "1"}, {"2"}),
        ("regard runs ", {"list", "compare", "delete", "tag"}, {"train"}),
    ],
)
def test_bash(line: str, some: set[str], never: set[str]) -> None:
    offered = set(complete(line))
    assert some <= offered
    assert not never & offered


def test_zsh_and_fish_take_a_whole_word_and_meanings() -> None:
    line = "regard train classification score=add"
    assert '"score=additive"' in complete(line, "zsh")[0]
    assert complete(line, "fish") == ["score=additive"]
    (meant,) = complete("regard train classification pool_s", "fish")
    assert meant.startswith("pool_score=\tattention score of the pool")


def test_folders_of_runs(tmp_path: Path) -> None:
    for name in ("runs/mine", "runs/deep/other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
    assert complete("regard evaluate ", folder=tmp_path) == ["runs/deep/other", "runs/mine"]
    assert complete("regard runs tag runs/m", folder=tmp_path) == ["runs/mine"]
    assert complete("regard show nowhere/", folder=tmp_path) == [""]


@pytest.mark.parametrize("line", ["regard trian cla", "regard train nonsense sc", "regard x=y="])
def test_a_line_with_mistakes_is_no_error(line: str) -> None:
    complete(line)


@pytest.mark.parametrize("key", completion.TABLES)
def test_names_read_from_the_text_are_those_of_the_table(key: str) -> None:
    table = getattr(attention, completion.TABLES[key][1])
    if key == "pattern":
        examples = [name for row in table for name in table[row].examples]
        assert completion.names_of(key) == examples
    else:
        assert completion.names_of(key) == list(table)
    assert completion.GROUPS[completion.TABLES[key][1]] == table.group
