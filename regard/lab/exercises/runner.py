"""Run students' code in processes of their own, with limits of time and memory, and judge it.

`Runner` starts one clean process (``python -m regard.lab.exercises.runner``), which imports torch
once and forks a process for each answer. Only values come out of that process, in a file; the
clean process compares them, so that nothing an answer prints, raises, patches or writes makes a
wrong value right. An audit hook refuses writes outside the answer's folder, other processes and
the network. This protects against accidents and simple tricks. It is no sandbox: the code runs
with the rights of the user, and code below Python passes the hook.
"""

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from regard.core.errors import RegardError
from regard.lab.exercises import parts_of
from regard.lab.exercises.submissions import Answer

START = 120.0  # seconds in which the clean process starts and judges
PRINTED = 2_000  # characters of what an answer printed that are kept
WRITTEN = 64 << 20  # bytes of a file that an answer may write
FILES = 64  # open files of an answer
#: Events of `sys.audit` that an answer may cause only in its own folder, and those it may not.
CHANGES = frozenset(
    f"os.{word}" for word in "remove rename rmdir mkdir chmod chown link symlink truncate".split()
) | {"shutil.rmtree", "shutil.move"}
REFUSED = frozenset(
    f"os.{word}" for word in "system exec posix_spawn spawn fork forkpty kill killpg".split()
) | {"subprocess.Popen", "socket.connect", "socket.bind", "socket.sendto"}


@dataclass(frozen=True)
class Limits:
    """Limits of one answer: seconds, and MB of memory in addition to torch."""

    seconds: float = 10.0
    megabytes: int = 1024


@dataclass(frozen=True)
class Verdict:
    """The fault of each function ("" if it is right), a fault of the whole, what was printed."""

    exercise: str
    faults: Mapping[str, str]
    problem: str = ""
    printed: str = ""

    @property
    def points(self) -> int:
        """Return the number of functions that are right."""
        return 0 if self.problem else sum(not fault for fault in self.faults.values())

    @property
    def passed(self) -> bool:
        """Return whether all functions are right."""
        return not self.problem and not any(self.faults.values())

    @property
    def message(self) -> str:
        """Return the first fault in one sentence, or ""."""
        faults = (f"{name}: {fault}" for name, fault in self.faults.items() if fault)
        return self.problem or next(faults, "")


class Runner:
    """A context manager that judges answers in other processes. Raises: a system without fork."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if not hasattr(os, "fork"):
            raise RegardError(
                "this system cannot run answers apart from each other (os.fork is missing); "
                "use Linux, macOS or WSL, or regard.lab.exercises.check in a notebook"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def judge(self, answer: Answer) -> Verdict:
        """Return the verdict about an answer."""
        problem = answer.problem
        if not problem:
            job = {"exercise": answer.exercise, "source": answer.source, **asdict(self.limits)}
            if reply := self._ask(json.dumps(job)):
                return Verdict(answer.exercise, **json.loads(reply))
            self._end()
            problem = "the process that runs answers was killed"
        faults = {part.name: "" for part in parts_of(answer.exercise)}
        return Verdict(answer.exercise, faults, problem)

    def _ask(self, line: str) -> str:
        """Return the reply of the clean process, which is started if none lives, or ""."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", __spec__.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            )  # fmt: skip
        process = self._process
        timer = threading.Timer(START + self.limits.seconds, process.kill)
        timer.start()
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return process.stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            timer.cancel()

    def _end(self) -> None:
        if self._process:
            with self._process as process:
                process.kill()
            self._process = None


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer each line of requests by a line; this is the clean process."""
    import torch

    torch.set_num_threads(1)  # a process with threads cannot be forked safely
    for line in requests:
        replies.write(json.dumps(reply_to(json.loads(line))) + "\n")
        replies.flush()


def reply_to(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run one answer in a forked process and judge the values that it leaves."""
    from regard.lab.exercises.faults import judge

    parts = parts_of(job["exercise"])
    faults = {part.name: "" for part in parts}
    with tempfile.TemporaryDirectory(prefix="regard-exercise-", ignore_cleanup_errors=True) as at:
        folder = Path(at)
        (folder / "work").mkdir()
        (folder / "work" / "answer.py").write_text(job["source"], encoding="utf-8")
        problem = fork(lambda: _student(job, folder), job["seconds"])
        printed = _head(folder / "printed")
        try:
            seen = json.loads((folder / "values").read_text(encoding="utf-8"))
            if "problem" in seen:
                problem = problem or str(seen["problem"])[:300]
            elif not problem:
                faults = {part.name: judge(part, seen[part.name]) for part in parts}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            problem = problem or "the process ended without an answer"
    return {"faults": faults, "problem": problem, "printed": printed}


def _head(path: Path) -> str:
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(PRINTED)
    return ""


def fork(work: Callable[[], None], seconds: float) -> str:
    """Run a function in a forked process and session; return why it did not end well, or ""."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            work()
        finally:
            os._exit(0)
    ended, status, end = 0, 0, time.monotonic() + seconds
    while not ended and time.monotonic() < end:
        time.sleep(0.01)
        ended, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # the process, or what it started and left
    if not ended:
        os.waitpid(child, 0)
        return f"it runs longer than {seconds:g} s: is there a loop that does not end?"
    if os.WIFSIGNALED(status):
        return f"the process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return ""


def _student(job: Mapping[str, Any], folder: Path) -> None:
    """Be the student's process: set the limits, run the file, write the values."""
    from regard.lab.exercises.observing import observe_all

    values = (folder / "values").open("w", encoding="utf-8")
    printed = os.open(folder / "printed", os.O_CREAT | os.O_WRONLY)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stdout
    work = folder / "work"
    os.chdir(work)
    os.environ.update(HOME=str(work), TMPDIR=str(work))
    tempfile.tempdir = None  # found again, below `work`
    parts = parts_of(job["exercise"])
    _limit(job["seconds"], job["megabytes"])
    _watch(os.path.realpath(work))
    dump, write, close, leave = json.dumps, values.write, values.close, os._exit
    try:
        names = runpy.run_path("answer.py", run_name="answer")
        text = dump({part.name: observe_all(part, names.get(part.name)) for part in parts})
    except BaseException as error:  # SystemExit, MemoryError, whatever the file raises
        words = " ".join(str(error).split())[:200]
        text = dump({"problem": f"the file raises {type(error).__name__}: {words}"})
    write(text)
    close()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    leave(0)


def _watch(folder: str) -> None:
    """Refuse what Python code does outside a folder: writing, other processes, the network."""
    decode, real, writes = os.fsdecode, os.path.realpath, os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event in REFUSED:
            raise PermissionError(f"an answer may not call {event}")
        if event in CHANGES or (event == "open" and (args[2] or 0) & writes):
            for path in args[: 2 if event in {"os.rename", "os.link", "os.symlink"} else 1]:
                inside = isinstance(path, int) or f"{real(decode(path))}/".startswith(f"{folder}/")
                if not inside and path != os.devnull:
                    raise PermissionError(f"an answer may write only in its folder, not {path}")

    sys.addaudithook(refuse)


def _limit(seconds: float, megabytes: int) -> None:
    """Limit processor time, memory, files and their size for this process."""
    import resource

    limits = {
        resource.RLIMIT_CPU: int(seconds) + 2,
        resource.RLIMIT_FSIZE: WRITTEN,
        resource.RLIMIT_NOFILE: FILES,
        resource.RLIMIT_CORE: 0,
    }
    with contextlib.suppress(OSError):  # Linux; elsewhere address space is not limited
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + (megabytes << 20)
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
