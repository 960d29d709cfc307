"""Which files the first circle of tests reads, of the tests and of the package's examples."""

from pathlib import Path

import pytest

from tests.circles import is_deep_file


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of the second circle in the first, which has not all of its packages."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    return ("not deep" in config.option.markexpr and is_deep_file(path)) or None
