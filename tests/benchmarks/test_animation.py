"""The animation of the explorer says what is missing before it trains."""

from pathlib import Path

import pytest

from benchmarks import animation
from regard.core.errors import RegardError


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegardError, match=r"must end in \.webp or \.gif, not '\.mp4'"):
        animation.animate(tmp_path / "x.mp4", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RegardError, match="no chromium on the path; Debian: apt-get install"):
        animation.animate(tmp_path / "x.webp", tmp_path)
    assert list(tmp_path.iterdir()) == []
