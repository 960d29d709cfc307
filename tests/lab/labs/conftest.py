"""What the tests of labs share."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from regard.lab.studies.launch import Event, Job, Outcome


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in this process: a new one takes longer than the small labs of the tests."""

    def at_once(
        jobs: Sequence[Job],
        work: Any,
        launcher: Any,
        on_event: Callable[[Event], None],
    ) -> list[Outcome]:
        outcomes = []
        for job in jobs:
            said = work(job.task, lambda *said: None)
            on_event(Event("finished", job.arm, job.seed, 1.0, said))
            outcomes.append(Outcome(job, said, "", 1.0))
        return outcomes

    monkeypatch.setattr("regard.lab.studies.compare.launch", at_once)
    monkeypatch.setattr("regard.lab.studies.launch.launch", at_once)
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)
