"""Archives that deceive are read right or refused, and what is not is counted."""

from functools import partial
from pathlib import Path

import pytest

from benchmarks import hostile_archives
from benchmarks.hostile_archives import KINDS, Reader, cases, opened, sound_of
from regard.core.errors import RegardError

QUICK = ["sound", "called in two lines", "said to be smaller", "twice the same review",
         "a size of 2", "a bad header", "one line of 4 GB", "a pipe of that name"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_by_one_reader(kind):
    called, reader = next(iter(KINDS[kind][1].items()))
    sound, came = sound_of(reader), []
    for _, name, by, _, put in cases([f"{kind}: ", called]):
        if by == called and any(name.startswith(part) for part in QUICK):
            found = opened(reader, sound, put)
            assert found.kind == ("taken" if name in ("sound", QUICK[3]) else "refused"), name
            came.append(name)
    assert len(came) >= 3


def read(says, path):
    if says == "wrong":
        return 2
    if says == "wrote":
        (path.parent / "b").write_text("x")
    elif says == "wordy":
        raise RegardError("two\nlines")
    elif says == "tracebacks":
        raise KeyError("a")
    return 1


@pytest.mark.parametrize("kind", ["taken", "wrong", "wrote", "wordy", "tracebacks"])
def test_failures_are_told_apart(kind):
    reader = Reader("a.zip", "", partial(read, kind))
    assert opened(reader, 1, Path.touch).kind == kind


def test_at_least_sixty_archives():
    assert sum(len(makes) for makes, _ in KINDS.values()) >= 60
    assert hostile_archives.MORE
