"""What README.md shows in Python runs, one snippet after the other, and answers what it says."""

import re
from pathlib import Path

import torch

from regard.lab import runs

PAGE = Path(__file__).parents[1] / "README.md"


def test_python_of_the_first_page_runs(here: Path) -> None:
    tiny = ["width=8", "heads=2", "layers=1", "steps=1", "examples=100", "threads=1"]
    for _ in runs.start("runs/mine", "classification", "transformer", tiny).train():
        pass
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(found) >= 4
    scope: dict[str, object] = {}
    for number, snippet in enumerate(found, 1):
        exec(compile(snippet, f"{PAGE.name}, snippet {number}", "exec"), scope)
        if number == 1:
            attended = scope["attended"]
            assert attended.output.shape == (2, 5, 3)
            assert attended.weights.shape == (2, 5, 7)
            assert torch.equal(attended.weights[1, :, 4:], torch.zeros(5, 3))
            assert scope["y"].shape == (2, 9, 64)
