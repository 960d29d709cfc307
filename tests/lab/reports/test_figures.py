"""The numbers in a picture are the numbers given."""

import math
import re
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
from regard.lab.reports.aligned import maps
from regard.lab.reports.drawing import colours
from regard.lab.reports.figures import (
    Point,
    Row,
    Series,
    histogram,
    interval_chart,
    line_chart,
    scatter,
)
from regard.lab.reports.maps import attention_strip, confusion, heat_map
from regard.lab.reports.scales import number, spread, text_width, ticks
from tests.lab.reports.hostile import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in parsed(svg).iter(f"{SVG}text")]


def titled(svg: str, title: str) -> list[ET.Element]:
    """The elements with a hover text."""
    groups = parsed(svg).iter(f"{SVG}g")
    return [node for g in groups if g.findtext(f"{SVG}title") == title for node in g[1:]]


def points(path: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(v) for v in re.findall(r"[\d.]+", path.attrib["d"])]
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def test_a_line_goes_through_its_points() -> None:
    svg = line_chart(
        "Loss", [Series("mean", [0, 50, 100], [1.0, 0.5, 0.0])], x_label="step", y_label="loss"
    )
    (path,) = titled(svg, "mean")
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert y0 < y1 < y2, "a larger value stands higher"
    assert {"Loss", "step", "loss", "mean", "0", "100", "0.2"} <= set(texts(svg))


def test_whatever_anyone_typed_is_shown_and_nothing_else() -> None:
    every, lines = "".join(HOSTILE), [Series(text, [1, 2], [3, 4]) for text in HOSTILE]
    rows, marks = ([kind(text, 1, 2) for text in HOSTILE] for kind in (partial(Row, high=3), Point))
    for svg in (
        line_chart(every, lines, x_label=every, y_label=every),
        interval_chart(every, rows, x_label=every, reference=every, lines={every: 1.0}),
        scatter(every, marks, x_label=every, y_label=every),
        histogram(every, [1.0], [0, 1], x_label=every, y_label=every),
    ):
        for node in parsed(svg).iter():
            kind = node.tag.removeprefix(SVG)
            assert kind in {"svg", "title", "desc", "g", "path", "circle", "text"}
            assert not {key for key in node.attrib if key[:2] == "on" or key in ("style", "id")}


def test_a_dollar_is_a_dollar_and_the_same_data_are_the_same_bytes() -> None:
    charts = [
        interval_chart("$p$", [Row("$a_b$", 1, 0, 2), Row("c", 2, 1, 3)], x_label="in $")
        for _ in range(2)
    ]
    assert charts[0] == charts[1]
    assert {"$p$", "$a_b$", "in $"} <= set(texts(charts[0]))


def test_a_chart_is_drawn_on_axes_and_into_files(tmp_path: Path) -> None:
    chart = line_chart("$T$", [Series("$a$", [1, 2], [3, 4])], x_label="$x$", y_label="$y$")
    ax = Figure().subplots()
    assert chart.drawing.plot(ax) is ax
    assert (ax.get_title("left"), ax.get_xlabel(), ax.get_ylabel()) == ("$T$", "$x$", "$y$")
    words = ax.findobj(Text)
    assert not any(word.get_parse_math() for word in words if "$" in word.get_text())
    assert chart.drawing.plot().lines[0].get_ydata().tolist() == [3, 4]
    begins = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    for suffix, begin in begins.items():
        path = tmp_path / f"chart.{suffix}"
        chart.drawing.save(path)
        written = path.read_bytes()
        assert written.startswith(begin)
        chart.drawing.save(path)
        assert path.read_bytes() == written, "the same data are the same bytes"
    assert "var(" not in (tmp_path / "chart.svg").read_text("utf-8")
    chart = line_chart("注意力", [Series("a", [1, 2], [3, 4])], x_label="x", y_label="y")
    chart.drawing.save(tmp_path / "chart.svg")
    with pytest.raises(RegardError, match=r"chart\.pdf: Glyph .* missing .* Write an \.svg"):
        chart.drawing.save(tmp_path / "chart.pdf")
    assert colours("dark")["ink"] in chart.drawing.svg("dark")


def test_every_picture_names_and_describes_itself() -> None:
    for svg in (
        line_chart("T", [Series("a", [1, 2], [3, 4])], x_label="x", y_label="y"),
        interval_chart("T", [Row("a", 1, 0, 2)], x_label="x"),
        scatter("T", [Point("a", 1, 2)], x_label="x", y_label="y"),
        histogram("T", [0.5, 0.5], [0, 1, 2], x_label="x"),
        heat_map("T", np.eye(3)),
        confusion("T", ["no", "yes"], [[1, 2], [3, 4]]),
    ):
        root = parsed(svg)
        assert root.attrib["role"] == "img"
        assert root.find(f"{SVG}title").text == "T"  # type: ignore[union-attr]
        assert root.find(f"{SVG}desc").text  # type: ignore[union-attr]
        assert "style" not in svg, "the page's policy has no inline styles"


def test_the_reference_line_and_the_numbers_of_intervals() -> None:
    rows = [Row("mean", 86.5, 86.0, 87.0, "network"), Row("nb-svm", 91.4, 91.0, 91.8, "baseline")]
    svg = interval_chart("A", rows, x_label="accuracy, %", reference="mean")
    assert "86.5 [86.0, 87.0]" in texts(svg)
    (diamond,), (square,) = (
        titled(svg, "mean: 86.5 [86.0, 87.0]"),
        titled(svg, "nb-svm: 91.4 [91.0, 91.8]"),
    )
    (line,) = titled(svg, "mean")
    assert diamond.attrib["transform"].startswith(f"translate({points(line)[0][0]:g} ")
    assert diamond.attrib["d"] != square.attrib["d"], "families differ in shape"


def test_large_numbers_and_long_names_of_intervals_are_whole() -> None:
    rows = [Row(f"transformer:score=additive,heads={n}", 25_012.345, 24_000.1, 26_000.4 + n)
            for n in (2, 4, 8)]  # fmt: skip
    svg = interval_chart("MAE", rows, x_label="MAE", digits=3)
    names = [text for text in texts(svg) if text.startswith("transfor")]
    assert [name[-7:] for name in names] == ["heads=2", "heads=4", "heads=8"]
    for node in parsed(svg).iter(f"{SVG}text"):
        if (node.text or "").startswith("25012.345 ["):
            assert float(node.attrib["x"]) + text_width(node.text or "", 15) <= 640
    points = [Point(row.name, 10 + i, 1) for i, row in enumerate(rows)]
    assert len({text for text in texts(scatter("T", points, x_label="x", y_label="y"))
                if text.startswith("transfor")}) == 3  # fmt: skip


def test_names_of_a_crowded_scatter_do_not_overlap() -> None:
    points = [Point(f"an-arm-{i}", 10 + i / 3, 88 + (i % 4) / 10) for i in range(12)]
    svg = scatter("T", points, x_label="x", y_label="y", seconds=True)
    boxes = [
        (float(n.attrib["x"]), float(n.attrib["y"]) - 14,
         float(n.attrib["x"]) + text_width(n.text or "", 15), float(n.attrib["y"]) + 4)
        for n in parsed(svg).iter(f"{SVG}text") if "an-arm" in (n.text or "")
    ]  # fmt: skip
    assert len(boxes) == 12
    for i, a in enumerate(boxes):
        assert a[0] > 0
        assert a[2] < 640
        for b in boxes[:i]:
            assert not (min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1]))


def test_a_heat_map_paints_each_cell_by_its_value() -> None:
    svg = heat_map("T", [[0.0, 1.0, 1.0], [0.5, 0.0, 0.5]])
    painted = {n.attrib["fill-opacity"]: n.attrib["d"] for n in parsed(svg).iter(f"{SVG}path")
               if "fill-opacity" in n.attrib}  # fmt: skip
    assert painted == {"1": "M1 0h2v1h-2z", "0.5": "M0 1h1v1h-1zM2 1h1v1h-1z"}


def test_a_diverging_map_has_two_hues_around_zero() -> None:
    svg = heat_map("T", [[-2.0, 0.0, 2.0, math.nan]], diverging=True)
    hues = {n.attrib["class"]: n.attrib["d"] for n in parsed(svg).iter(f"{SVG}path")
            if "fill-opacity" in n.attrib}  # fmt: skip
    assert hues == {"cold": "M0 0h1v1h-1z", "heat": "M2 0h1v1h-1z"}


def test_a_confusion_has_counts_and_shares_of_the_row() -> None:
    said = texts(confusion("T", ["negative", "positive"], [[75, 25], [10, 1990]]))
    assert {"75", "75.0%", "25.0%", "1,990", "99.5%"} <= set(said)


def test_strong_words_have_strong_colours() -> None:
    strip = attention_strip(["not", "a", "good", "film"], [0.5, 0.05, 0.4, 0.05])
    levels = [int(v) for v in re.findall(r'class="w(\d+)"', strip)]
    assert levels[0] > levels[2] > levels[1] == levels[3] == 0
    assert "50.0% of the attention, 2.0 × the average" in strip


def test_a_long_text_is_cut_with_a_mark() -> None:
    strip = attention_strip([f"w{i}" for i in range(500)], np.ones(500), most=150)
    assert strip.count("<span") == 151
    assert "… and 350 more words, 70% of the weight" in strip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_numbers_that_are_none_are_left_out(bad: float) -> None:
    for svg in (
        line_chart("T", [Series("a", [0, 1, 2], [1, bad, 3])], x_label="x", y_label="y"),
        line_chart("T", [Series("a", [], []), Series("b", [0], [bad])], x_label="x", y_label="y"),
        interval_chart("T", [Row("a", bad, bad, bad)], x_label="x"),
        scatter("T", [Point("a", bad, 2), Point("b", 1, bad)], x_label="x", y_label="y"),
        heat_map("T", [[bad, 1.0], [2.0, 3.0]]),
        attention_strip(["a", "b"], [bad, 1]),
    ):
        parsed(svg)
        assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)


def test_ticks_are_round_and_inside() -> None:
    generator = np.random.default_rng(0)
    for low, size in zip(generator.normal(size=200) * 100, generator.random(200) * 50, strict=True):
        found = ticks(low, low + size, 6)
        assert 1 <= len(found) <= 6
        assert all(low - 1e-6 <= tick <= low + size + 1e-6 for tick in found)


def test_spread_keeps_gap_order_and_bounds() -> None:
    generator = np.random.default_rng(1)
    for _ in range(100):
        places = generator.random(9) * 200
        moved = np.array(spread(places.tolist(), 15, 0, 200))
        order = np.argsort(places)
        assert np.diff(moved[order]).min() >= 15 - 1e-9
        assert moved.min() >= -1e-9
        assert moved.max() <= 200 + 1e-9


def test_numbers_read_well() -> None:
    assert number(float("nan")) == "–"
    assert number(999_999) == "1M"
    assert number(-0.5) == "−0.5"


def test_an_axis_by_logarithm() -> None:
    lines = [Series("n²", [1, 10, 100], [1, 100, 10_000]), Series("gone", [0, 1], [-1, 0])]
    svg = line_chart("T", lines, x_label="x", y_label="y", log_x=True, log_y=True)
    (path,) = titled(svg, "n²")
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert titled(svg, "gone") == []
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_dots_and_their_bars() -> None:
    dots = Series("d", [1, 2], [3, 4], dots=True, low=[2, 3], high=[4, math.nan])
    svg = line_chart("T", [dots, Series("l", [1, 2], [3, 4])], x_label="x", y_label="y")
    circles = list(parsed(svg).iter(f"{SVG}circle"))
    assert len(circles) == 1, "a point whose bar has no end is left out"
    bar, _ = titled(svg, "d")
    (x, low), (_, high) = points(bar)
    assert x == float(circles[0].attrib["cx"])
    assert high < float(circles[0].attrib["cy"]) < low


def test_a_heat_map_by_values() -> None:
    assert {"2", "2.2", "3", "8"} <= set(
        texts(heat_map("T", np.eye(5), x_span=(2, 3), y_span=(0, 9)))
    )


def test_an_interval_chart_names_its_lines() -> None:
    rows = [Row("one", 60.0, 50.0, 70.0), Row("two", 80.0, 75.0, 85.0)]
    lines = {"majority class": 52.0, "chance": 1.0}
    chart = interval_chart("Accuracy", rows, x_label="%", lines=lines)
    assert chart.count("stroke-dasharray") == 1, "what lies beyond the axis is not drawn"
    assert ">majority class</text>" in chart
    assert ">chance</text>" not in chart
    assert "majority class 52.0; chance 1.0" in chart, "for those who do not see it"
    assert "0.250 [0.200, 0.300]" in interval_chart(
        "Log loss", [Row("one", 0.25, 0.2, 0.3)], x_label="nats", digits=3
    )


def test_a_map_of_weights_has_room_for_its_title_and_its_names() -> None:
    words = ["a", "word", "unbrokenunbrokenunbroken", "of", "it"]
    weights = np.full((2, 5, 5), 0.2, np.float32)
    title = "a word unbrokenunbrokenunbroken of it"
    mean, *heads = maps([LayerAttention("blocks.0.attention", words, weights)], title)
    assert f">{title}: mean of 2 heads</text>" in mean
    assert [float(size) for size in re.findall(r"scale\(([\d.]+)\)", mean)] >= [15.0]
    assert f">{title}, layer 1, head 2</text>" in heads[1]
    (pool,) = maps([LayerAttention("pool.attention", words, weights[:1, :1])], "pool")
    assert ">the text</text>" in pool
