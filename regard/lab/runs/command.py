"""Run the command of a model ``command:TEXT``: it reads examples and writes predictions."""

import csv
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.core.trusted import must_be_given
from regard.lab.data.examples import Example, as_json
from regard.lab.data.predictions import PredictedRow, align, read_answers
from regard.lab.runs import measured
from regard.lab.runs.config import Config
from regard.lab.runs.folder import Folder
from regard.lab.tasks.elsewhere import words_of
from regard.lab.tasks.evaluation import Evaluation
from regard.training.learnable import SPLITS
from regard.training.loop import Progress

LOG = "command.log"
MINUTES = 60.0  # of a command without a budget in minutes
GRACE = 2  # times its minutes, after which a command is ended


def run_command(folder: Folder, config: Config, task: Any) -> tuple[Evaluation, Progress]:
    """Run the command once, and return the evaluation of its predictions and its cost.

    ``{train}``, ``{validation}`` and ``{test}`` are CSV tables with the columns ``text`` (and
    ``second``, and those of ``features=``) and, not for the test, ``label``. What it prints goes
    to ``command.log`` in the run's folder.

    Raises: a command that was not given in this process, cannot be started, fails or takes too
    long; predictions that do not fit the test.
    """
    must_be_given(config.model, folder.path)
    if not hasattr(os, "wait4"):
        raise RegardError("commands as arms need Linux or macOS")
    minutes = config.training.minutes or MINUTES
    with TemporaryDirectory(prefix="regard-") as aside:
        files = {name: Path(aside) / f"{name}.csv" for name in (*SPLITS, "out")}
        for split in SPLITS:
            write_examples(files[split], task.examples(split), labelled=split != "test")
        given = {**files, "seed": config.training.seed, "minutes": f"{minutes:g}"}
        words = words_of(config.model)
        for name, value in given.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        seconds, peak = _run(words, GRACE * 60 * minutes, Path(aside) / "cost", folder.path / LOG)
        answers = _answers(task, files["out"], f"{words[0]} ({folder.path / LOG})")
    progress = Progress(
        step=1,
        steps=1,
        epoch=1.0,
        loss=0.0,  # unknown, like validation
        learning_rate=0.0,
        tokens=0,
        tokens_per_second=0.0,
        seconds=seconds,
        seconds_left=0.0,
        validation=None,
        validation_loss=None,
        best=None,
        peak_mb=peak,
    )
    return task.evaluation(task.examples("test"), answers), progress


def write_examples(path: Path, examples: Sequence[Example], *, labelled: bool) -> None:
    """Write examples as a CSV table, which regard reads, too."""
    rows = [as_json(example.text) for example in examples]
    rows = [{**row.pop("columns", {}), **row} for row in rows]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow([*names, "label"] if labelled else names)
        for row, example in zip(rows, examples, strict=True):
            cells = [row.get(name, "") for name in names]
            table.writerow([*cells, example.label] if labelled else cells)


def _run(words: Sequence[str], limit: float, report: Path, log: Path) -> tuple[float, float]:
    """Run a command, and return its seconds and its peak memory in MB."""
    if shutil.which(words[0]) is None:
        raise RegardError(f"{words[0]!r} is no program that can be run; give its path")
    between = [sys.executable, "-I", "-S", str(measured.__file__), str(report), str(limit)]
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(words)}\n".encode(errors="replace"))
        file.flush()
        subprocess.run(  # noqa: S603 - the user's own command
            [*between, *words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, check=False,
        )  # fmt: skip
    if not report.exists():
        raise RegardError(
            f"{words[0]} was ended after {limit / 60:g} minutes, {GRACE} times its {{minutes}}, or "
            f"killed; give a larger --budget, as in --budget {limit / 60:g}m, or less work; "
            f"its output: {log}"
        )
    cost = read_json(report)
    if code := cost["code"]:
        _, *lines = filter(None, map(str.strip, log.read_text(errors="replace").splitlines()))
        last = f": {lines[-1]:.200}" if lines else ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise RegardError(f"{words[0]} {how}{last}; its output: {log}")
    return float(cost["seconds"]), float(cost["peak_mb"])


def _answers(task: Any, path: Path, program: str) -> list[Any]:
    """Return the answers in the file that a command wrote, in the order of the test."""
    test = task.examples("test")
    if not path.exists():
        raise RegardError(
            f"{program} wrote no file {{out}}; write a row with 'predicted' for each of the "
            f"{len(test):,} rows of {{test}}, as CSV or JSON lines"
        )
    wanted = [PredictedRow("", "", x.source, ("", "", str(x.text)), "", {}) for x in test]
    try:
        rows = align(read_answers(path), wanted, "{out}", "{test}")
        return [task.given(row, example) for row, example in zip(rows, test, strict=True)]
    except RegardError as error:
        raise RegardError(f"{program}: {error}") from None
