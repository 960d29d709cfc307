"""The command as a stranger meets it: help that is quick, mistakes that are one line."""

import io
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from regard.lab.cli.main import COMMANDS, STOPPED
from regard.lab.cli.predict import as_utf8
from regard.training.stopping import PREEMPTED
from regard.training.watchdog import STOPPED_BY_ANOTHER
from tests.lab.cli.conftest import Command, call


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "regard", *words], capture_output=True, text=True, timeout=60
    )


def without_torch(words: list[str], code: int) -> str:
    """Return what a command that ends with a code and without torch says on stderr."""
    program = (
        "import sys; from regard.lab.cli import main; sys.argv = ['regard', *sys.argv[1:]]\n"
        "ended = 0\n"
        "try: main.main()\n"
        "except SystemExit as end: ended = end.code or 0\n"
        f"assert ended == {code}, ended\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
        "assert len(sys.modules) < 900, len(sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    return found.stderr


def cpu(*words: str) -> float:
    """Return the CPU seconds of one Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_is_quick_and_names_every_command() -> None:
    # 0.10 s on a free core; 0.3 s of CPU is promised, and a loaded machine takes twice its time.
    assert min(cpu("-m", "regard", "--help") for _ in range(5)) <= 0.3
    words = "lab compare train evaluate predict show data bench doctor".split()
    assert [word for word in words if f"  {word} " not in run("--help").stdout] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_line_of_a_command_begins_its_own_help(name: str) -> None:
    assert COMMANDS[name] in " ".join(run(name, "--help").stdout.split())


def test_a_misspelt_command_is_told() -> None:
    assert "Did you mean 'evaluate'?" in run("evalaute").stderr


@pytest.mark.parametrize("words", [["--help"], ["data", "--help"]])
def test_help_says_what_each_command_is_in_one_whole_line(words: list[str]) -> None:
    listed = run(*words).stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert len(listed) >= 4
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    "words",
    [["--help"], ["lab", "--help"], ["lab"], ["data", "list"], ["bench"], ["train", "-h"],
     ["runs", "list", "docs"]],
)  # fmt: skip
def test_light_commands_do_not_load_torch(words: list[str]) -> None:
    without_torch(words, 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train classification --model trasformer", "did you mean transformer?"),
        ("train clasification", "did you mean classification or"),
        ("train classification lerning_rate=1", "did you mean learning_rate"),
        ("train classification device=gpu", "did you mean cuda?"),
        ("train classification heads=few", "must be a whole number"),
        ("train classification --budget 3x", "write 10m"),
        ("train classification --modle rnn", "--model"),
        ("train classification --epochs 3", "unknown option --epochs; write a setting"),
        ("train classification --lr=0.1", "without dashes: lr=VALUE or learning_rate=VALUE"),
        ("compare classification --batch-size 8", "without dashes: batch_size=VALUE"),
        ("train classification --pretrain-on a.txt widht=8", "did you mean width"),
        ("compare classification --arms lstm,cnn", "did you mean rnn?"),
        ("compare classification --arms mean,cnn epoch=1", "did you mean epochs?"),
        ("compare classification --arms mean,cnn:filter=3", "did you mean filters"),
        ("compare classification --arms mean,cnn device=gpu", "arm mean: device='gpu'"),
        ("lab sentimnet", "did you mean sentiment?"),
    ],
)
def test_a_misspelt_name_is_told_before_torch_is_loaded(words: str, says: str) -> None:
    assert says in without_torch(words.split(), 2)


def test_version() -> None:
    assert run("--version").stdout.startswith("regard 0.")


def test_unknown_lab_is_one_line_with_exit_code_2() -> None:
    found = run("lab", "sentimnet")
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert found.stderr.startswith("error: ")
    assert "did you mean sentiment?" in found.stderr
    assert found.stdout == ""


def test_debug_shows_the_traceback_wherever_it_stands() -> None:
    found = run("lab", "sentimnet", "--debug")
    assert found.returncode != 0
    assert "Traceback" in found.stderr


def test_unknown_option_is_a_usage_error() -> None:
    found = run("train", "--no-such-thing")
    assert found.returncode == 2
    assert "no-such-thing" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "trian",
            "error: No such command 'trian'. Did you mean 'train', 'ranks'?; see regard --help",
        ),
        ("show", "error: Missing argument 'RUN'; see regard show --help"),
        (
            "data chekc",
            "error: No such command 'chekc'. Did you mean 'check'?; see regard data --help",
        ),
        (
            "predict r --top-k x",
            "error: Invalid value for '--top-k': it must be a valid integer; see "
            "regard predict --help",
        ),
    ],
)
def test_a_usage_error_is_one_line(words: str, says: str, regard: Command) -> None:
    assert regard.refused(*words.split()) == f"{says}\n"


def test_examples_of_help_can_be_pasted() -> None:
    examples = re.findall(
        r"^  regard [^\\\n]*(?:\\\n[^\\\n]*)*", run("train", "--help").stdout, re.M
    )
    line = "regard train classification --model rnn --data reviews.csv --budget 10m seed=1"
    assert line.split() in [example.replace("\\", "").split() for example in examples]


def test_every_exit_code_is_documented() -> None:
    page = Path(__file__).parents[3].joinpath("docs/reference/commands.md").read_text()
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)]
    assert codes == sorted({0, 1, 2, STOPPED_BY_ANOTHER, PREEMPTED, STOPPED})


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii", "cp437"])
def test_output_keeps_to_the_encoding_of_its_stream(
    encoding: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"très bon → {i},да😀\ntrès mauvais {i},нет\n" for i in range(20))
    (here / "да.csv").write_text("text,label\n" + rows, encoding="utf-8")
    written = {}
    commands = {
        "help": ["--help"],
        "train": "train classification --model tfidf --data да.csv --out →".split(),
        "lines": ["predict", "→", "très bon"],
        "json": ["predict", "→", "très bon → 😀", "--json"],
        "missing": ["predict", "нет"],
    }
    for name, words in commands.items():
        streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in ("stdout", "stderr")]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        status = call(*words)
        for stream in streams:
            stream.flush()
        out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
        assert status == (2 if name == "missing" else 0), err
        written[name] = err if name == "missing" else out
    assert written["help"].isascii() or encoding == "cp437"  # which has Σ
    assert written["lines"].startswith("\\u0434\\u0430\\U0001f600\t")
    (answer,) = json.loads(written["json"])["predictions"]
    assert (answer["text"], answer["label"]) == ("très bon → 😀", "да😀")
    assert "\\u043d\\u0435\\u0442 does not exist" in written["missing"]


def test_an_argument_that_is_not_utf_8_is_one_line(regard: Command, here: Path) -> None:
    assert "rename the file" in regard.refused("train", "classification", "--data", "caf\udce9.csv")
    assert as_utf8("tr\udcc3\udca8s \udce9") == "très ?"  # UTF-8 read in an ASCII locale
