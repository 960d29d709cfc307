"""What only Linux has: each place has a fallback, and docs/interop.md lists it."""

import os
import re
import sys
from pathlib import Path

import pytest

from regard.core import memory
from regard.lab.cli.doctor import memory_finding
from regard.lab.runs import environment
from regard.lab.runs.folder import Folder
from regard.lab.web import api

ROOT = Path(__file__).parent.parent
ONLY_HERE = re.compile(
    r"/proc/|/sys/fs|import fcntl|import resource|sched_getaffinity|libc_ver|GOMP_|os\.fork|"
    r"sysconf\(|signal\.SIG(?!INT|TERM|_)\w+|prctl|os\.(nice|setsid|killpg|pread|pwrite|O_RDONLY)"
)


def test_every_place_that_only_some_systems_have_is_listed() -> None:
    page = (ROOT / "docs/interop.md").read_text(encoding="utf-8")
    table = page.partition("## macOS, Windows, ARM")[2]
    found = {
        path.relative_to(ROOT / "regard").as_posix()
        for path in (ROOT / "regard").rglob("*.py")
        if ONLY_HERE.search(path.read_text(encoding="utf-8"))
    }
    assert found
    assert found == {*re.findall(r"^\| `([\w/]+\.py)`", table, re.M)}


def test_without_fcntl_a_run_is_written_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with Folder(tmp_path).locked():
        assert not (tmp_path / ".lock").exists()


def test_without_proc_memory_comes_from_the_system_or_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATUS", "RESET", "FREE", "GROUP"):
        monkeypatch.setattr(memory, name, tmp_path / "none" / name)
    assert memory.peak_mb() > 10, "getrusage"
    assert memory.resident_mb() > 10
    assert memory.free_mb() == 0
    assert not memory.forget_peak()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)
    assert memory.peak_mb() == 0


def test_without_glibc_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert not memory.keep_freed_memory()
    assert not memory.trim()


def test_without_affinity_and_sysconf_the_doctor_still_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sysconf")
    assert memory.cores() == (os.cpu_count() or 1)
    assert list(memory_finding()) == []


def test_without_proc_the_processor_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert environment.processor()
    assert api._resident() == 0
