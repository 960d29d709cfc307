"""docs/parts.md lists every part of attention with the formula of its docstring."""

import inspect
from pathlib import Path

from regard.attention import MECHANISMS, NORMALIZERS, PATTERNS, POSITIONS, SCORES
from regard.attention.mechanisms.stages import STAGES
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.nn.layers.depth import DepthAttention

PAGE = Path(__file__).parents[1] / "docs" / "parts.md"
RESIDUALS = {"depth-attention": DepthAttention}
TABLES = (SCORES, SCORE_WRAPPERS, POSITIONS, NORMALIZERS, MECHANISMS, STAGES, RESIDUALS)


def row(name: str, kind: type | None) -> str:
    """Return the line of a part: its name, its formula, and the options of its name."""
    text = (inspect.getdoc(kind) or "") if kind else "no positions"
    formula = " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace(":func:", "")
    options = dict(getattr(kind, "options", {}))
    names = ", ".join(
        f"`{name}{f'-{key}' * (len(options) > 1)}{'-…' * numbers}`"
        for key, numbers in options.items()
    )
    return f"| `{name}` | {formula} | {names} |".replace("|i − j|", "\\|i − j\\|")


def test_every_part_has_its_line() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    expected = [row(name, kind) for table in TABLES for name, kind in table.items()]
    assert [line for line in expected if line not in lines] == []
    assert [line for line in lines if line.startswith("| `") and line not in expected] == [
        f"| `{pattern.examples[-1]}` | {name} |" for name, pattern in PATTERNS.items()
    ]
