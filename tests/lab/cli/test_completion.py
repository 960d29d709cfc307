"""Tab completion by the protocol that the scripts of bash, zsh and fish use."""

import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard import attention
from regard.lab.cli import completion

ROOT = Path(__file__).parents[3]
CODE = (
    "import sys; sys.argv = ['regard']\n"
    "from regard.lab.cli.main import main\n"
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
    meant, default = complete("regard train classification pool_s", "fish")
    assert meant.startswith("pool_score=\tattention score of the pool")
    assert default == "pool_score=dot\tdefault"  # of one match a shell would end the word
    assert complete("regard train classification tes")[1] == "test=…"


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
    assert f"regard.{completion.TABLES[key][1].lower()}" == table.group


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="no bash")
def test_an_interactive_bash_completes_after_the_installation(tmp_path: Path) -> None:
    import pty

    command = tmp_path / "regard"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'regard'\n"
        "from regard.lab.cli.main import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    env = {**os.environ, "HOME": str(tmp_path), "PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"}
    env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip

    def type_keys(keys: str, until: str) -> None:
        os.write(ours, keys.encode())
        seen, begun = "", time.monotonic()
        while until not in seen:
            assert time.monotonic() - begun < 60, seen
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536).decode(errors="replace")

    try:
        type_keys("regard --install-completion bash && . ~/.bashrc && echo rea''dy\n", "ready\r\n")
        type_keys("regard train classification --model transformer --data x wid", "x wid")
        type_keys("\t64 scor", "th=64 scor")  # no space behind the sign
        type_keys("\t", "e=")
        type_keys("addi\t", "tive")
    finally:
        os.close(theirs)
        os.close(ours)
        shell.kill()
        shell.wait()
