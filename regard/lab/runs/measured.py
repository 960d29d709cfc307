"""Run a command with a time limit and report its cost: measured.py REPORT SECONDS COMMAND…

This is a small process between a worker and the command: Linux counts the memory of the process
that starts a program, hundreds of megabytes for a worker, towards the peak of that program.
It leads a group of processes, which it ends if the time is over or the worker has died.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    report, limit, *command = sys.argv[1:]
    worker, begun = os.getppid(), time.monotonic()
    process = subprocess.Popen(command)  # noqa: S603 - the user's own command
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        if time.monotonic() - begun > float(limit) or os.getppid() != worker:
            os.killpg(0, signal.SIGKILL)
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    peak = ended[2].ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    cost = {"code": process.returncode, "seconds": time.monotonic() - begun, "peak_mb": peak}
    Path(report).write_text(json.dumps(cost), encoding="utf-8")
