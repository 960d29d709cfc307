"""Run a command with a time limit and report its cost: measured.py REPORT SECONDS COMMAND…

This is a small process between a worker and the command. Linux counts the memory of the process
that starts a program towards the peak of that program, and a worker's is hundreds of megabytes.
It is the leader of a group of processes, which ends if the time is over or the worker has died.
"""

import json
import os
import signal
import subprocess
import sys
import time


def main(report: str, limit: str, *command: str) -> None:
    """Run the command, and write its exit code, seconds and peak memory in MB as JSON."""
    parent, begun = os.getppid(), time.monotonic()
    process = subprocess.Popen(command)  # noqa: S603 - the user's own command
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        seconds = time.monotonic() - begun
        if pid:
            peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
            code = process.returncode = os.waitstatus_to_exitcode(status)
            with open(report, "w", encoding="utf-8") as file:
                json.dump({"code": code, "seconds": seconds, "peak_mb": peak}, file)
            return
        if seconds > float(limit) or os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
