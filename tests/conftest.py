"""What holds for every test: one thread, one seed, and shapes checked at each call.

The tests are small, and threads that wait for each other are slow.
"""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

from tests.chromium import CHROMIUM
from tests.circles import beyond, is_deep

FOLDERS = count()
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")  # precision=auto is fp32 on every processor
os.environ.setdefault("REGARD_DAY", str(date.today().toordinal()))  # workers inherit it
if not Path("/dev/nvidiactl").exists():  # Triton asks once, when something first imports it
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "REGARD_CHECK_SHAPES" in os.environ:  # every call of attention, by `make deep`
    install_import_hook("regard.attention", "beartype.beartype")  # before anything imports it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun with `&`, as CI may be
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else children never hear Ctrl-C


def missing() -> dict[str, str]:
    """Markers of tests that cannot run on this machine, and why."""
    import torch

    found = {} if torch.cuda.is_available() else {"gpu": "no CUDA device"}
    return found if CHROMIUM else found | {"browser": "no chromium on the path"}


def pytest_report_header() -> list[str]:
    """Say which tests are left out, as a skip says that a test should have run."""
    left_out = [f"left out: tests marked {mark}: {why}" for mark, why in missing().items()]
    return [f"cells of tables: REGARD_DAY={os.environ['REGARD_DAY']}", *left_out]


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the second circle, and deselect what cannot run on this machine."""
    deep = [item for item in items if is_deep(item.nodeid)]
    for item in {*deep, *beyond(items, int(os.environ["REGARD_DAY"]))}:
        item.add_marker(pytest.mark.deep)
    absent = missing()
    left_out = [item for item in items if any(map(item.get_closest_marker, absent))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """Compute with one thread also in this process, whose plugins have imported torch before.

    Garbage is then collected without a look at a million objects of pytest and the libraries.
    """
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let Python collect what was frozen, or libraries complain of leaks at its end."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def own_configuration(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty folders of configuration and cache for each test, and no trusted Python file."""
    place = tmp_path_factory.getbasetemp() / "configurations" / str(next(FOLDERS))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("REGARD_TRUSTED", "")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for a test, alone or among others."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system needs root on Linux")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium; tests that ask for it are marked `browser`."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield opened
        opened.close()
