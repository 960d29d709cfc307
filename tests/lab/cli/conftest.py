"""The command line in this process, and a tiny run that was trained by it."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from regard.lab.cli.main import main
from tests.lab.small_runs import trained_run

TINY = [
    "examples=120", "width=8", "heads=2", "layers=1", "feedforward=12", "epochs=2",
    "batch_tokens=300", "threads=1", "precision=fp32",
]  # fmt: skip


class Said(NamedTuple):
    status: int
    out: str
    err: str


Feed = Callable[[bytes], None]


def call(*words: object) -> int:
    before = sys.argv
    sys.argv = ["regard", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture(autouse=True)
def memory_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)


@dataclass(frozen=True)
class Command:
    """The command line in this process: ``regard("show", run, text)``."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object) -> Said:
        self.capsys.readouterr()
        status = call(*words)
        told = self.capsys.readouterr()
        return Said(status, told.out, told.err)

    def refused(self, *words: object) -> str:
        """Return the line of error of a command that ends with code 2 and says nothing else."""
        said = self(*words)
        assert (said.status, said.out, said.err.count("\n")) == (2, "", 1), said
        return said.err


@pytest.fixture
def regard(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Give bytes to the next command as its stdin."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of a tiny transformer; nobody may change it."""
    folder = tmp_path_factory.mktemp("cli") / "run"

    trained_run(folder, "classification", "transformer", TINY)
    return folder
