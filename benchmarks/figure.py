"""The figure of a benchmark: speed relative to each peer, on a logarithmic scale."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from regard.lab.reports.drawing import Drawing, colours, plain
from regard.lab.reports.figures import fit, mark
from regard.lab.reports.markup import SIZE, shorten
from regard.lab.reports.scales import text_width

#: Marks: the aim is reached, there is none or it was not judged, it is missed.
FAMILIES = {True: "attention", None: "network", False: "baseline"}


def ratios(title: str, cases: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw each measured case as a bar from 1 (equal) to the ratio of the peer's time to regard's.

    A circle: its aim is reached; a square: it is missed; a diamond: it has none.
    """
    shown = [case for case in cases if case["time_ratio"] is not None]
    names = [f"{short(case['name'])} / {case['against']}" for case in shown]
    names = [shorten(plain(name), 64) for name in names]

    def draw(ax: Axes) -> None:
        fit(ax.xaxis, [1.0, *(case["time_ratio"] for case in shown)], log=True)
        ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
        ax.set_yticks(range(len(shown)), names, color=colours()["ink"])
        ax.grid(visible=False, axis="y")
        ax.axvline(1, color=colours()["soft"], dashes=(4, 4))
        for place, (case, name) in enumerate(zip(shown, names, strict=True)):
            family, ratio = FAMILIES[case.get("reached")], case["time_ratio"]
            ax.hlines(place, 1, ratio, colors=colours()[family], linewidth=4)
            mark(ax, ratio, place, family, f"{name}: {ratio:.2f}×")
            ax.annotate(f"{ratio:.3g}×", (1, place), (12, 0), xycoords=ax.get_yaxis_transform(),
                        textcoords="offset points", va="center_baseline",
                        color=colours()["soft"], annotation_clip=False)  # fmt: skip
        ax.set_xlabel("times as fast as the peer (theirs / ours)")

    left = max((text_width(name, SIZE) for name in names), default=60.0) * 0.86 + 20
    says = "; ".join(f"{n} {c['time_ratio']:.2f}" for n, c in zip(names, shown, strict=True))
    height = 112 + 26 * max(len(shown), 1)
    return Drawing(title, f"theirs / ours: {says}", 960, height, draw, left, 80, 52, 60)


def short(name: str) -> str:
    """Return a name without the sizes that most cases share.

    >>> short("dot n=128 heads=8 width=64 batch=8 forward")
    'dot n=128 forward'
    """
    return re.sub(r" (heads|width|batch)=(4|8|64)\b", "", name)
