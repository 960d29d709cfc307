"""The snippets of docs/networks.md run, one after the other, as a reader would."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "networks.md"


def test_snippets_run(here: Path) -> None:
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(found) == 4
    scope: dict[str, object] = {}
    for number, snippet in enumerate(found, 1):
        exec(compile(snippet, f"{PAGE.name}, snippet {number}", "exec"), scope)
        if number == 2:
            names = [name for name, _ in scope["recording"].layers]
            assert names == ["0.attention.attention", "1.attention.attention"]
            assert scope["recording"].layers[0][1].weights.shape == (2, 4, 9, 9)
    assert (here / "runs" / "tiny" / "MANIFEST.json").exists()
