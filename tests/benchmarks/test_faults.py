"""Writes that fail: counted, said, and nothing lost."""

import errno
import os
from pathlib import Path

import pytest

from benchmarks import faults
from benchmarks.faults import Disk, attack
from regard.core import atomic_io
from regard.core.errors import RegardError

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux")


def test_a_disk_counts_writes_below_its_folder_alone(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    other.mkdir()
    disk = Disk(mine, 0, 0)
    with disk.mounted():
        mine.mkdir()
        atomic_io.write_bytes(mine / "x", b"abc")
        atomic_io.write_bytes(other / "x", b"abc")
    assert disk.writes == 6  # mkdir, open, write, fsync, replace, fsync of the folder
    assert (mine / "x").read_bytes() == b"abc"


def _write(place: Path) -> None:
    place.mkdir()
    atomic_io.write_bytes(place / "x", b"abc")


@pytest.mark.parametrize("refused", range(1, 7))
def test_the_write_that_is_refused_is_said(refused: int, tmp_path: Path) -> None:
    place = tmp_path / "x"
    with (
        Disk(place, refused, errno.ENOSPC).mounted(),
        pytest.raises((OSError, RegardError), match="No space left"),
    ):
        _write(place)
    assert not any(path.name.endswith(atomic_io.PARTIAL) for path in tmp_path.rglob("*"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_training_whose_writes_fail_ends_in_the_same_bits(tmp_path: Path) -> None:
    tally = attack(tmp_path, every=60)
    assert tally.writes > 100
    assert tally.trainings >= 6
    assert tally.tracebacks == tally.mismatches == tally.stuck == 0
    assert tally.said >= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_traceback_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path) -> None:
        raise KeyError("a")

    monkeypatch.setattr(faults, "train", broken)
    assert faults._ended(tmp_path, 1, errno.EIO) == faults.TRACEBACK
