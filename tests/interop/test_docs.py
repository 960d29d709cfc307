"""The snippets of docs/interop.md run, one after the other, as a reader would."""

import re
from pathlib import Path

import pytest

pytest.importorskip("ctranslate2")
pytest.importorskip("transformers")

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"


def test_snippets_run(tmp_path, monkeypatch):
    from tests.interop.tiny import transformers  # noqa: F401, which keeps it quiet

    monkeypatch.chdir(tmp_path)
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(found) >= 6
    scope: dict[str, object] = {}
    for number, snippet in enumerate(found, 1):
        exec(compile(snippet, f"{PAGE.name}, snippet {number}", "exec"), scope)
