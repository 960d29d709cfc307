"""What the tests of labs share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.lab.labs import lab
from regard.lab.labs.comparison import Plan
from regard.lab.reports.prose import Prose, read_page
from regard.lab.runs.config import Config
from regard.lab.studies.launch import Event, Job, Outcome
from tests.lab.studies.declare import checked


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
    monkeypatch.setattr("regard.lab.labs.running.launch", at_once)
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)


@pytest.fixture(autouse=True)
def chinese_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill in the Chinese page as well, from the same numbers, wherever a test fills in a page."""

    def both(page: Path, values: Any, figures: Any, tables: Any) -> Prose:
        prose = read_page(page, values, figures, tables)
        chinese = page.with_suffix(".zh.md")
        if chinese.is_file():
            other = read_page(chinese, values, figures, tables)
            assert list(other.claims) == list(prose.claims)
            assert shown(other) == shown(prose)
        return prose

    monkeypatch.setattr(lab, "read_page", both)


def quiet(*given: Any, **more: Any) -> None:
    """Say nothing."""


def configs_of(plan: Plan) -> dict[str, Config]:
    """The config of every arm, as the comparison would make it."""
    study = checked(plan.task, plan.arms, seeds=1, overrides=plan.overrides)
    return {
        job.arm: Config.make(job.task.task, job.task.model, job.task.overrides)
        for job in study.jobs()
    }


def shown(prose: Prose) -> list[tuple[int, int, int]]:
    """Return the numbers of paragraphs, figures and tables of each section."""
    return [(len(one.paragraphs), len(one.figures), len(one.tables)) for one in prose.sections]
