"""Studies for tests, with arms as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.lab.studies.arms import Arm, parse_arms
from regard.lab.studies.study import Study


def declared(
    task: str,
    arms: str | Sequence[str | Arm],
    *,
    overrides: Sequence[str] = (),
    out: Path | str = "nowhere",
    **fields: Any,
) -> Study:
    """Return a study that is not checked."""
    return Study(task, parse_arms(arms, task), overrides=tuple(overrides), out=Path(out), **fields)


def checked(task: str, arms: str | Sequence[str | Arm], **fields: Any) -> Study:
    """Return a study whose settings and folder are checked."""
    study = declared(task, arms, **fields)
    study.check()
    return study
