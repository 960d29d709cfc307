"""The check of the site's pages sees what it looks for."""

import json
from pathlib import Path

import pytest

from benchmarks.site import main

pytestmark = pytest.mark.browser
HEAD = '<!DOCTYPE html><html lang="en"><head><meta name="viewport" content="width=device-width">'


def test_faults_of_a_page_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("axe_playwright_python")
    (tmp_path / "well.html").write_text(f"{HEAD}<title>t</title></head><main><h1>a</h1></main>")
    (tmp_path / "bad.html").write_text(
        f"{HEAD}<title>t</title></head><main><h1>a</h1><img src='http://127.0.0.1:9/x.png'>"
        "<p style='width: 600px'>wide</p></main>"
    )
    out = tmp_path / "pictures"
    assert main([str(tmp_path), "--pages", "well", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out) == {"views": 4, "problems": [], "requests": []}
    assert len(list(out.iterdir())) == 4
    assert main([str(tmp_path), "--pages", "bad"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["requests"] == ["http://127.0.0.1:9/x.png"]
    assert sum("image-alt" in problem for problem in report["problems"]) == 4
    assert [x.split(":")[0] for x in report["problems"] if "pixels wide" in x] == [
        "bad, light, 390", "bad, dark, 390"
    ]  # fmt: skip
