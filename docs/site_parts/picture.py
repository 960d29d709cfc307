"""The picture of the first page, drawn from the recorded table in ``results/sentiment.md``.

python docs/site_parts/picture.py     # writes docs/pictures/first-command-light.svg and -dark.svg
"""

import re
from pathlib import Path

from regard.lab.reports.figures import Row, interval_chart

DOCS = Path(__file__).parent.parent
PICTURES = DOCS / "pictures"
FAMILIES = {"tfidf": "baseline", "mean": "network"}  # all others have attention
ENDS = r" ([\d.]+) \(([\d.]+) to ([\d.]+)\) \|"
LINE = re.compile(rf"^\| (\S+) \|{ENDS}{ENDS}{ENDS}", re.M)
TITLE = "Accuracy on real and on generated film sentences"


def rows() -> list[Row]:
    """Return the arms of ``regard lab sentiment`` as recorded, on both kinds of sentences."""
    page = (DOCS / "results" / "sentiment.md").read_text(encoding="utf-8")
    recorded = LINE.findall(page.partition("# The first command")[2])
    return [
        Row(
            f"{kind}: {name}",
            *map(float, numbers[first : first + 3]),
            family=FAMILIES.get(name, "attention"),
        )
        for kind, first in (("real", 3), ("generated", 6))
        for name, *numbers in recorded
    ]


def drawing(theme: str) -> str:
    """Return the chart as an SVG file for the "light" or the "dark" theme."""
    chart = interval_chart(TITLE, rows(), x_label="accuracy, % (mean of 3 seeds, 95 %)")
    return f"{chart.drawing.svg(theme)}\n"


def main() -> None:
    """Write both files."""
    PICTURES.mkdir(exist_ok=True)
    for theme in ("light", "dark"):
        path = PICTURES / f"first-command-{theme}.svg"
        path.write_text(drawing(theme), encoding="utf-8")
        print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
