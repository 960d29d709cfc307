"""The picture of the first page, drawn from the recorded table in ``results/sentiment.md``.

python docs/site_parts/picture.py     # writes docs/pictures/ladder-light.svg and -dark.svg
"""

import re
from pathlib import Path

from regard.lab.reports.figures import Row, interval_chart

DOCS = Path(__file__).parent.parent
PICTURES = DOCS / "pictures"
BASELINES, NETWORKS = ("tfidf", "nb-svm"), ("rnn", "cnn")
LINE = re.compile(r"^\| (\S+) \| ([\d.]+) \| ([\d.]+) – ([\d.]+) \|", re.M)
TITLE = "Film reviews decided by word order: accuracy of each step"


def rows() -> list[Row]:
    """Return the arms of ``regard lab sentiment`` as recorded, with their 95 % intervals."""
    page = (DOCS / "results" / "sentiment.md").read_text(encoding="utf-8")
    recorded = LINE.findall(page.partition("# On built-in reviews")[2])
    return [
        Row(
            name,
            *map(float, numbers),
            family="baseline"
            if name in BASELINES
            else "network"
            if name in NETWORKS
            else "attention",
        )
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
        path = PICTURES / f"ladder-{theme}.svg"
        path.write_text(drawing(theme), encoding="utf-8")
        print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
