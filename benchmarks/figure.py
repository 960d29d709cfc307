"""The figure of a benchmark: how many times faster than each peer, by logarithm."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from regard.lab.reports.figures import SIZE, mark, picture
from regard.lab.reports.markup import Html, shorten, tag
from regard.lab.reports.scales import number, spanning, text_width

STEP, TOP, WIDTH = 26, 64, 960
#: Marks: the aim is reached, there is none or it was not judged, it is missed.
FAMILIES = {True: "attention", None: "network", False: "baseline"}
#: The page of a report brings these along; a file of its own needs them inside.
STYLE = """
text { font-family: system-ui, sans-serif; fill: #1a1f26; } .soft { fill: #58626e; }
.mid { text-anchor: middle; } .end { text-anchor: end; } .title { font-weight: 650; }
.grid { stroke: #e6eaee; fill: none; } .reference { stroke: #58626e; stroke-dasharray: 4 4; }
.bar { stroke-width: 4; fill: none; } .mark { stroke: #ffffff; }
.attention { fill: #0b6bb0; stroke: #0b6bb0; } .network { fill: #007a5a; stroke: #007a5a; }
.baseline { fill: #c04f00; stroke: #c04f00; }
"""


def ratios(title: str, cases: Sequence[Mapping[str, Any]]) -> Html:
    """Each measured case as a bar from 1 (as fast) to theirs / ours.

    A circle: its aim is reached; a square: it is missed; a diamond: it has none.
    """
    shown = [case for case in cases if case["time_ratio"] is not None]
    names = [f"{short(case['name'])} / {case['against']}" for case in shown]
    names = [shorten(name, 64) for name in names]
    left = max((text_width(name, SIZE) for name in names), default=60.0) * 0.86 + 20
    bottom = TOP + STEP * len(shown)
    x = spanning([1.0, *(case["time_ratio"] for case in shown)], left, WIDTH - 80, log=True)
    parts = [
        tag("style", Html(STYLE)),
        tag("rect", width=WIDTH, height=bottom + 60, fill="#ffffff"),
    ]
    for tick in x.ticks():
        place = x(tick)
        parts.append(tag("path", d=f"M{place:.1f} {TOP - 12}V{bottom}", class_="grid"))
        parts.append(tag("text", number(tick), x=place, y=bottom + 20, class_="mid soft"))
    parts.append(tag("path", d=f"M{x(1):.1f} {TOP - 12}V{bottom}", class_="reference"))
    label = "times as fast as the peer (theirs / ours)"
    parts.append(tag("text", label, x=(left + WIDTH - 80) / 2, y=bottom + 44, class_="mid"))
    for i, (case, name) in enumerate(zip(shown, names, strict=True)):
        y, ratio = TOP + STEP * i + STEP / 2, case["time_ratio"]
        family, place = FAMILIES[case.get("reached")], x(ratio)
        parts.append(tag("text", name, x=left - 12, y=y + 5, class_="end"))
        parts.append(tag("path", d=f"M{x(1):.1f} {y:.1f}H{place:.1f}", class_=f"bar {family}"))
        parts.append(mark(family, place, y, f"{name}: {ratio:.2f}×"))
        parts.append(tag("text", f"{ratio:.3g}×", x=WIDTH - 68, y=y + 5, class_="soft"))
    says = "; ".join(f"{n} {c['time_ratio']:.2f}" for n, c in zip(names, shown, strict=True))
    return picture(title, f"theirs / ours: {says}", WIDTH, bottom + 60, parts)


def short(name: str) -> str:
    """A name without the sizes that most cases share.

    >>> short("dot n=128 heads=8 width=64 batch=8 forward")
    'dot n=128 forward'
    """
    return re.sub(r" (heads|width|batch)=(4|8|64)\b", "", name)
