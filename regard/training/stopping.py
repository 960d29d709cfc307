"""The stop signals of a scheduler: finish the step, save a checkpoint, end with exit code 75.

Slurm and spot machines send SIGTERM before they take a machine away; ``sbatch --signal=USR1@90``
sends SIGUSR1 earlier.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from regard.core.errors import RegardError

PREEMPTED = 75  # exit code: EX_TEMPFAIL of sysexits.h, "run the same command again"
NAMES = ("SIGTERM", "SIGUSR1")  # the second does not exist on Windows


class StoppedError(RegardError):
    """A signal ended this process; its work is saved, and the same command resumes it."""


class _Stop:
    """The received signal, and the number of active `deferred` blocks."""

    signal = ""
    deferring = 0


_stop = _Stop()


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 raise `StoppedError`; inside `deferred` they are only recorded."""
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.signal(number, _noted) for number in numbers}
    try:
        yield
    finally:
        _stop.signal = ""
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Mark work that checks `asked_to_stop` itself and stops at a suitable step."""
    _stop.deferring += 1
    try:
        yield
    finally:
        _stop.deferring -= 1


def asked_to_stop() -> str:
    """Return the name of the received signal, or ""."""
    return _stop.signal


def _noted(number: int, frame: FrameType | None) -> None:
    _stop.signal = signal.Signals(number).name
    if not _stop.deferring:
        raise StoppedError(f"stopped by {_stop.signal}; run the same command again to resume")
