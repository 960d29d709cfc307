"""One thread for every test: the tests are small, and threads that wait for each other are slow."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["OMP_NUM_THREADS"] = "1"


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
