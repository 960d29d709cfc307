"""A module's command in a fresh process: what it answers, and what is said where it fails."""

import pytest

from regard.core.errors import RegardError
from regard.lab.labs import aside as module
from regard.lab.labs.aside import Aside


def run(code: str) -> Aside:
    """Run a line of Python."""
    return Aside("timeit", code)


def test_what_is_no_json_is_an_error() -> None:
    with Aside("platform", "--terse") as one, pytest.raises(RegardError, match="printed no JSON"):
        one.answer("the machine", "leave it out")


def test_a_failure_says_the_last_line_and_the_remedy() -> None:
    says = "memory could not be measured: NameError: .*nowhere.*; memory=0 leaves it out"
    with run("nowhere") as one, pytest.raises(RegardError, match=says) as error:
        one.answer("memory", "memory=0 leaves it out")
    assert "\n" not in str(error.value)


def test_it_ends_with_its_block_and_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with run("import time; time.sleep(60)") as one, pytest.raises(RegardError, match="no answer"):
        one.answer("memory", "")
    assert one.process.returncode is not None
