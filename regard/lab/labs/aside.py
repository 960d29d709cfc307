"""Run a module's command in a fresh process, to measure memory without earlier allocations."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self

from regard.core.errors import RegardError

PATIENCE = 600.0  # seconds until the process is stopped


class Aside:
    """A running ``python -m MODULE ARGUMENT`` that prints JSON in its last line.

    >>> with Aside("json.tool", "--help") as aside:
    ...     aside.answer("the help", "")
    Traceback (most recent call last):
    regard.core.errors.RegardError: the help could not be measured: ...
    """

    def __init__(self, module: str, argument: str, environment: Mapping[str, str] = {}) -> None:
        command = [sys.executable, "-m", module, argument]
        self.process = subprocess.Popen(  # noqa: S603
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        self.process.kill()
        self.process.communicate()

    def answer(self, what: str, remedy: str) -> Any:
        """Wait for the process and return the JSON that it printed.

        Raises: it failed or took over ten minutes; the message contains `what` and `remedy`.
        """
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
            failed = self.process.returncode
            last = (err.strip().splitlines() or [f"exit code {failed}"])[-1]
            if not failed:
                return json.loads((out.splitlines() or [""])[-1])
        except subprocess.TimeoutExpired:
            last = f"no answer within {PATIENCE:.0f} s"
        except json.JSONDecodeError:
            last = "printed no JSON"
        raise RegardError(f"{what} could not be measured: {last}; {remedy}".removesuffix("; "))
