"""Small jobs for the launcher's tests; workers import this module by its name."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError

Report = Callable[[float, str], None]


def square(task: Any, report: Report) -> Any:
    report(0.5, f"half of {task}")
    return task * task


def halfway(task: Any, report: Report) -> Any:
    """Take so many seconds, and tell of the half of it."""
    time.sleep(task / 2)
    report(0.5, "half", most=3.0)
    time.sleep(task / 2)


def surroundings(task: Any, report: Report) -> Any:
    return os.getpid(), os.environ["OMP_NUM_THREADS"], "torch" in sys.modules


def trouble(task: Any, report: Report) -> Any:
    """Fail in the way that the task names."""
    if task == "mistake":
        raise RegardError("heads=3 does not divide width=8")
    if task == "defect":
        raise ZeroDivisionError("division by zero")
    if task == "unpicklable":
        return lambda: None
    if task == "death":
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def write_down(task: Any, report: Report) -> Any:
    """Append the task to a file, so that the order in which jobs ran is known."""
    name, path, seconds = task
    with Path(path).open("a") as file:
        file.write(f"{name}\n")
    time.sleep(seconds)
    return name


def forever(task: Any, report: Report) -> Any:
    Path(task).write_text(str(os.getpid()))
    while True:
        report(0.1, "still here")
        time.sleep(0.01)


def dies_until(task: Any, report: Report) -> Any:
    """Die at each call, with a little more done, until there were so many calls."""
    path, deaths = task
    with Path(path).open("a") as file:
        file.write(".")
    calls = len(Path(path).read_text())
    if calls <= deaths:
        report(calls / 10, "a step")
        os.kill(os.getpid(), signal.SIGKILL)
    return calls
