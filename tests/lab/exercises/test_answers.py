"""Every wrong answer gets a message that names its fault; right ones in other styles pass."""

import re
from typing import Any

import pytest

from regard.lab.exercises import EXERCISES, page, parts_of, starter, title
from regard.lab.exercises.faults import judge
from regard.lab.exercises.observing import observe_all
from tests.lab.exercises.answers import HEAD, RIGHT, WRONG

WRONG_ANSWERS = [(name, *change) for name, changes in WRONG.items() for change in changes]
RIGHT_ANSWERS = [(name, source) for name, sources in RIGHT.items() for source in sources]


def faults_of(name: str, source: str) -> list[str]:
    """Return the fault of each function of an answer that has one."""
    names: dict[str, Any] = {}
    exec(HEAD + source, names)
    found = {
        part.name: judge(part, observe_all(part, names.get(part.name))) for part in parts_of(name)
    }
    return [f"{function}: {fault}" for function, fault in found.items() if fault]


@pytest.mark.parametrize(("name", "source"), RIGHT_ANSWERS)
def test_right_answers_pass(name: str, source: str) -> None:
    assert faults_of(name, source) == []


@pytest.mark.parametrize(("name", "old", "new", "words"), WRONG_ANSWERS)
def test_wrong_answers_are_named(name: str, old: str, new: str, words: str) -> None:
    source = RIGHT[name][0]
    assert source.count(old) >= 1
    first, *_ = faults_of(name, source.replace(old, new))
    assert words in first
    assert "\n" not in first
    assert len(first) < 400


@pytest.mark.parametrize("name", EXERCISES)
def test_starters_are_blank_and_named_faults_are_distinct_and_wrong(name: str) -> None:
    parts = parts_of(name)
    assert faults_of(name, starter(name)) == [f"{part.name}: it is still blank" for part in parts]
    for part in parts:
        assert part.reference.__doc__
        assert judge(part, observe_all(part, part.reference)) == ""
        for says, wrong in part.variants.items():
            assert judge(part, observe_all(part, wrong)).startswith(says)


@pytest.mark.parametrize("name", EXERCISES)
def test_pages_in_both_languages_give_hints_and_name_every_function(name: str) -> None:
    texts = {lang: page(name, lang) for lang in ("en", "zh")}
    for text, hints in texts.values():
        assert text.startswith("# ")
        assert len(hints) >= 2
        for part in parts_of(name):
            assert f"`{part.name}(" in text
        assert f"regard exercise check {name.replace('-', '_')}.py" in text
    assert len(texts["en"][1]) == len(texts["zh"][1])
    assert re.search("[一-鿿]", title(name, "zh"))


def test_all_exercises_have_answers() -> None:
    assert [*RIGHT] == [*WRONG] == [*EXERCISES]
