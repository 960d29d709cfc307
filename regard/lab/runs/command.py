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

from regard.core.errors import RegardError, no_such
from regard.core.reading import read_json
from regard.core.trusted import must_be_given
from regard.lab.data.examples import Example, as_json, texts_of
from regard.lab.data.label_lists import labels_in
from regard.lab.data.predictions import PredictedRow, align, read_predictions
from regard.lab.data.spelling import label_of
from regard.lab.runs.config import Config
from regard.lab.tasks.classification.metrics import RANKED
from regard.lab.tasks.elsewhere import words_of
from regard.lab.tasks.evaluation import Evaluation
from regard.training.learnable import SPLITS
from regard.training.loop import Progress

LOG = "command.log"  # in the run's folder: the command and what it printed
MINUTES = 60.0  # of a command without a budget in minutes
GRACE = 2  # times its minutes, after which a command is ended


def run_command(folder: Path, config: Config, task: Any) -> tuple[Evaluation, Progress]:
    """Run the command once, and return the evaluation of its predictions and its cost.

    ``{train}``, ``{validation}`` and ``{test}`` are CSV tables with the columns ``text`` (and
    ``second``, and those of ``features=``) and, not for the test, ``label``.

    Raises: a command that was not given in this process, cannot be started, fails or takes too
    long; predictions that do not fit the test.
    """
    must_be_given(config.model, folder)
    minutes, log = config.training.minutes or MINUTES, folder / LOG
    with TemporaryDirectory(prefix="regard-") as aside:
        files = {name: Path(aside) / f"{name}.csv" for name in (*SPLITS, "out")}
        for split in SPLITS:
            write_examples(files[split], task.examples(split), labelled=split != "test")
        words = words_of(config.model)
        given = {**files, "seed": config.training.seed, "minutes": f"{minutes:g}"}
        for name, value in given.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        try:
            cost = _run(words, GRACE * minutes, Path(aside) / "cost", log)
            answers = _answers(task, files["out"])
        except RegardError as error:
            raise RegardError(f"{words[0]} {error}; its output: {log}") from None
    progress = Progress(
        1, 1, 1.0, 0.0, 0.0, 0, 0.0, float(cost["seconds"]), 0.0, None, None, None,
        float(cost["peak_mb"]),
    )  # fmt: skip
    return task.evaluation(task.examples("test"), answers), progress


def write_examples(path: Path, examples: Sequence[Example], *, labelled: bool) -> None:
    """Write examples as a CSV table, which regard reads, too."""
    rows = [as_json(example.text) for example in examples]
    rows = [{**row.pop("columns", {}), **row} for row in rows]
    if labelled:
        rows = [{**row, "label": x.label} for row, x in zip(rows, examples, strict=True)]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, [*dict.fromkeys(name for row in rows for name in row)])
        table.writeheader()
        table.writerows(rows)


def _run(words: Sequence[str], minutes: float, report: Path, log: Path) -> Any:
    """Run a command, and return its seconds and its peak memory in MB. Raises: it fails."""
    if shutil.which(words[0]) is None or not hasattr(os, "wait4"):
        raise RegardError("cannot be run here; give the path of a program, on Linux or macOS")
    between = [sys.executable, "-I", "-S", str(Path(__file__).with_name("measured.py"))]
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(words)}\n".encode(errors="replace"))
        file.flush()
        subprocess.run(  # noqa: S603 - the user's own command
            [*between, str(report), str(60 * minutes), *words],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, check=False,
        )  # fmt: skip
    if not report.exists():
        raise RegardError(
            f"was ended after {minutes:g} minutes, {GRACE} times its {{minutes}}, or killed; give "
            f"a larger budget, as --budget {minutes:g}m, or less work"
        )
    cost = read_json(report)
    if code := cost["code"]:
        _, *lines = filter(None, map(str.strip, log.read_text(errors="replace").splitlines()))
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise RegardError(f"{how}: {lines[-1]:.200}" if lines else how)
    return cost


def _answers(task: Any, path: Path) -> list[Any]:
    """Return the answers in the file that a command wrote, in the order of the test."""
    test = task.examples("test")
    if not path.exists():
        raise RegardError(
            "wrote no file {out}; write a row with 'predicted' for each of the "
            f"{len(test):,} rows of {{test}}, as CSV or JSON lines"
        )
    firsts = [texts_of(example.text)[0] for example in test]  # the column text
    wanted = [PredictedRow("", "", "", ("", "", text), "", {}) for text in firsts]
    rows = align(read_predictions(path, blind=True), wanted, "{out}", "{test}")
    return [_answer(task, row) for row in rows]


def _answer(task: Any, row: PredictedRow) -> Any:
    """Return the answer of a row as the task reads its own. Raises: an unknown label."""
    said, chances = label_of(row.predicted), dict(row.probabilities)
    if task.interface.each == "text" and task.labels:
        several = labels_in(said) if hasattr(task, "thresholds") else [said]
        for name in (*several, *chances):
            if name not in task.labels:
                raise RegardError(f"{row.where}: {no_such(name, task.labels, 'label')}")
        if not chances and task.metric in RANKED:
            raise RegardError(f"{row.where}: {task.metric} needs 'probabilities', in JSON lines")
        if chances and chances[said] < max(chances.values()):
            raise RegardError(f"{row.where}: predicted {said!r} is not the most probable label")
        chances = dict.fromkeys(task.labels, 0.0) | (chances or dict.fromkeys(several, 1.0))
    try:
        return task.read_row({"said": said, "number": said, "probabilities": chances})
    except ValueError:
        raise RegardError(f"{row.where}: {said!r:.40} is not a number") from None
