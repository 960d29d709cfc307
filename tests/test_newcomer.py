"""Forty mistakes of a newcomer, and what each is answered: the table of docs/results/bad-input.md.

``python -m tests.test_newcomer`` makes them in an empty folder and writes the table.
"""

import contextlib
import io
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "results" / "bad-input.md"
HEAD = "| mistake | typed | answer |\n|---|---|---|\n"
LONGEST = 330  # characters of an answer in the table
TINY = "examples=120 width=8 heads=2 layers=1 feedforward=12 steps=2 threads=1"
START = "import torch, regard; x = torch.ones(2, 5, 8); "
#: The mistake, and the command, or the Python that begins with "py:".
MISTAKES = [
    ("a file that is not there", "regard train classification --data reveiws.csv"),
    ("a misspelt data set", "regard train classification --data imbd"),
    ("a misspelt task", "regard train clasification"),
    ("a misspelt model", "regard train classification --model trasformer"),
    ("a misspelt setting", "regard train classification learnig_rate=0.01"),
    ("a word for a number", "regard train classification heads=few"),
    ("a number out of range", "regard train classification learning_rate=-1"),
    ("a setting without =", "regard train classification 'steps 100'"),
    ("a setting as an option", "regard train classification --learning-rate 0.01"),
    ("two budgets", "regard train classification --budget 10m steps=3"),
    ("a budget without a unit", "regard train classification --budget 10"),
    ("heads that do not divide the width", "regard train classification width=10 heads=3"),
    ("a misspelt score", "regard train classification score=aditive"),
    ("a column that is not there", "regard train classification --data good.csv text=txt"),
    ("swapped columns", "regard train classification --data good.csv text=label label=text"),
    ("no titles", "regard train classification --data untitled.csv"),
    ("a spreadsheet", "regard train classification --data book.xlsx"),
    ("an empty file", "regard train classification --data empty.csv"),
    ("one class only", "regard train classification --data one.csv"),
    ("no labels", "regard train classification --data texts.txt"),
    ("a folder without texts", "regard train classification --data folder"),
    ("a space without quotes", "regard train classification --data my reviews.csv"),
    ("the run's folder holds something else", "regard train classification --out folder"),
    ("other settings in --out", "regard train classification --out run steps=3"),
    ("an empty text", "regard show run ''"),
    ("a folder that is no run", "regard predict folder 'a good film'"),
    ("a run that is not there", "regard predict runs/mine 'a good film'"),
    ("a file for a run", "regard predict good.csv 'a good film'"),
    ("a file as the text", "regard predict run --file nowhere.csv"),
    ("--head that is not there", "regard show run 'a good film' --head 9"),
    ("a misspelt lab", "regard lab sentimnt"),
    ("a setting that a lab lacks", "regard lab kernel-regression wdith=3"),
    ("one arm", "regard compare classification --arms mean"),
    ("a misspelt arm", "regard compare classification --arms mean,transfomer"),
    ("a port that is in use", "regard serve run --port PORT"),
    ("a folder without runs", "regard serve folder"),
    ("a misspelt command", "regard trian classification"),
    ("keys of another width", "py: regard.attend(x, x[..., :6], x, 'dot')"),
    ("a mask of torch's kind", "py: regard.attend(x, x, x, 'dot', mask=torch.zeros(5, 5))"),
    ("a boolean mask", "py: regard.attend(x, x, x, 'dot', mask=torch.ones(5, 4).bool())"),
    ("values as the third argument", "py: regard.MultiHeadAttention(8, 2)(x, x, x)"),
    ("inputs of another width", "py: regard.MultiHeadAttention(6, 2)(x)"),
    ("heads that do not divide", "py: regard.MultiHeadAttention(8, 3)"),
    ("token ids for vectors", "py: regard.MultiHeadAttention(8, 2)(x.long())"),
    ("a score by name for a layer", "py: regard.Attention('dot')"),
    ("a misspelt kernel", "py: regard.KernelRegression(kernel='gausian').fit([[1.0]], [1.0])"),
    ("a run that is not there", "py: regard.load('runs/mine')"),
]


def prepare() -> socket.socket:
    """Write the files of the mistakes into this folder; return a socket on a port in use."""
    rows = "".join(f"a {'good' if i % 2 else 'bad'} film {i},{'pos' if i % 2 else 'neg'}\n"
                   for i in range(60))  # fmt: skip
    Path("good.csv").write_text("text,label\n" + rows)
    Path("untitled.csv").write_text(rows)
    Path("book.xlsx").write_bytes(b"PK\x03\x04" + bytes(40))
    Path("empty.csv").write_text("")
    Path("one.csv").write_text("text,label\n" + "a film,1\n" * 30)
    Path("texts.txt").write_text("a film\nanother film\n" * 20)
    Path("folder").mkdir()
    Path("folder/notes.md").write_text("")
    taken = socket.create_server(("127.0.0.1", 0))
    answer(f"regard train classification --out run {TINY}", 0)
    return taken


def answer(typed: str, port: int) -> str:
    """Return what a mistake is answered, on one line if the answer has one."""
    from regard.lab.cli import console
    from regard.lab.cli.main import main

    if typed.startswith("py: "):
        try:
            exec(START + typed.removeprefix("py: "))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "no error"
    before, said = sys.argv, io.StringIO()
    sys.argv = shlex.split(typed.replace("PORT", str(port)))
    console.err.file = said
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    finally:
        sys.argv, console.err.file = before, None
    text = said.getvalue().replace(str(port), "PORT")
    text = text.partition("Error: ")[2] or text  # below the usage of a command
    return f"{text.strip()}" + (f" (exit code {code})" if code != 2 else "")


def answers() -> Iterator[tuple[str, str, str]]:
    """Yield each mistake, what is typed, and what is answered."""
    with prepare() as taken:
        for mistake, typed in MISTAKES:
            yield mistake, typed, answer(typed, taken.getsockname()[1])


def table() -> str:
    """Return the table of the page."""
    rows = []
    for cells in answers():
        mistake, typed, said = (re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells)
        said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
        rows.append(
            f"| {mistake} | `{typed.removeprefix('py: ')}` | {said.removeprefix('error: ')} |"
        )
    return HEAD + "\n".join(rows) + "\n"


def written() -> str:
    """Return the table as the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(HEAD) :].partition("\n\n")[0].rstrip("\n") + "\n"


def test_the_page_has_what_a_newcomer_is_answered(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)
    new = table()
    assert new.count("\n") >= 40 + HEAD.count("\n")
    assert "(exit code" not in new
    assert new == written()


if __name__ == "__main__":
    page, here = PAGE.resolve(), os.getcwd()
    with TemporaryDirectory() as empty:
        os.chdir(empty)
        new = table()
        os.chdir(here)
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(written(), new) if HEAD in text else text + new, "utf-8")
