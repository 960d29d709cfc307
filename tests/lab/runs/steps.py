"""Runs that are trained to their end, or for some steps."""

from itertools import islice

from regard.lab.runs.run import Run


def finished(run: Run) -> Run:
    """The run, trained to its end."""
    for _ in run.train():
        pass
    return run


def stop_after(run: Run, steps: int) -> None:
    """Train so many steps, and end as an interrupted process does."""
    training = run.train()
    for _ in islice(training, steps):
        pass
    training.close()
