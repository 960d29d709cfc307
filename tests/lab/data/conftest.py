"""A machine without data: no REGARD_DATA, an empty cache. Real data only where a test asks."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
GIVEN = os.environ.get("REGARD_DATA")


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def real():
    """The folder of the real data sets, or the test is skipped."""
    folder = Path(GIVEN) if GIVEN else HERE.parents[4] / "shared" / "data"
    if not (folder / "imdb" / "train.jsonl.gz").is_file():
        pytest.skip("no real data: REGARD_DATA is not set and ../shared/data is not there")
    return folder
