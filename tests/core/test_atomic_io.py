import errno
import json
import os
from pathlib import Path

import pytest

from regard.core import atomic_io
from regard.core.errors import RegardError


def test_a_folder_comes_back_whole(tmp_path: Path) -> None:
    files = {"a.bin": b"\x00\x01", "b.txt": b"two"}
    atomic_io.write_folder(tmp_path / "step-3", files)
    assert atomic_io.read_folder(tmp_path / "step-3") == files
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


@pytest.mark.parametrize("change", ["flip", "cut", "remove", "manifest", "list"])
def test_damage_is_seen(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "step-3"
    atomic_io.write_folder(folder, {"a.bin": b"some bytes"})
    victim = folder / ("a.bin" if change in ("flip", "cut", "remove") else atomic_io.MANIFEST)
    if change == "flip":
        victim.write_bytes(b"some byteS")
    elif change == "cut":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif change == "remove":
        victim.unlink()
    else:
        victim.write_text("{" if change == "manifest" else "[1]")
    with pytest.raises(RegardError, match="step-3"):
        atomic_io.read_folder(folder)


def test_full_disk_is_one_line_and_the_rest_stays(small_disk: Path) -> None:
    atomic_io.write_folder(small_disk / "step-1", {"a": b"x" * 300_000})
    with pytest.raises(RegardError) as told:
        atomic_io.write_folder(small_disk / "step-2", {"a": b"y" * 600_000, "b": b"z" * 600_000})
    line = str(told.value)
    assert "\n" not in line
    assert str(small_disk / "step-2") in line
    assert "1.2 MB" in line
    assert "No space left" in line
    assert [path.name for path in small_disk.iterdir()] == ["step-1"]
    assert atomic_io.read_folder(small_disk / "step-1") == {"a": b"x" * 300_000}


def test_full_disk_keeps_the_old_file(small_disk: Path) -> None:
    atomic_io.write_bytes(small_disk / "metrics.jsonl", b"old")
    with pytest.raises(RegardError, match=r"metrics\.jsonl.*2\.0 MB"):
        atomic_io.write_bytes(small_disk / "metrics.jsonl", b"n" * 2_000_000)
    assert (small_disk / "metrics.jsonl").read_bytes() == b"old"
    assert len(list(small_disk.iterdir())) == 1


def test_an_error_at_the_flush_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RegardError, match="No space left"):
        atomic_io.write_folder(tmp_path / "step-2", {"a": b"y"})
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_the_dead_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".step-4.partial").mkdir()
    (tmp_path / ".step-4.partial" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".config.toml.partial").write_bytes(b"half")
    (tmp_path / ".step-1.77.dropped").mkdir()
    (tmp_path / "step-3").mkdir()
    atomic_io.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


def test_a_folder_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_io.write_folder(tmp_path / "step-1", {"a": b"1", "b": b"2"})

    def killed(path: Path, **_: object) -> None:
        assert not (tmp_path / "step-1").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            atomic_io.remove_folder(tmp_path / "step-1")
    atomic_io.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    atomic_io.remove_folder(tmp_path / "step-1")  # what is not there needs no removing


def test_a_folder_below_a_file_needs_another_place(tmp_path):
    (tmp_path / "x").write_text("")
    for path in (tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(RegardError, match=r"^cannot write .*; give another place$"):
            atomic_io.make_folder(path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written_is_told_apart_from_a_full_one(tmp_path, number):
    with (
        pytest.raises(RegardError, match="give a folder that may be written"),
        atomic_io.one_line_errors(tmp_path / "x", 5),
    ):
        raise OSError(number, os.strerror(number))
    with (
        pytest.raises(RegardError, match=r"it needs 0\.0 MB, .* are free there.*make room"),
        atomic_io.one_line_errors(tmp_path / "x", 5),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_manifest_that_does_not_name_every_file_is_damage(tmp_path):
    atomic_io.write_folder(tmp_path / "x", {"a": b"1", "b": b"2"})
    manifest = json.loads((tmp_path / "x" / atomic_io.MANIFEST).read_text())
    (tmp_path / "x" / atomic_io.MANIFEST).write_text(json.dumps({"a": manifest["a"]}))
    with pytest.raises(RegardError, match="'b' is missing, or not in MANIFEST"):
        atomic_io.read_folder(tmp_path / "x")
    outside = {"../y": manifest["a"], **manifest}
    (tmp_path / "x" / atomic_io.MANIFEST).write_text(json.dumps(outside))
    (tmp_path / "y").write_bytes(b"1")
    with pytest.raises(RegardError, match=r"'\.\./y' is missing"):
        atomic_io.read_folder(tmp_path / "x")
