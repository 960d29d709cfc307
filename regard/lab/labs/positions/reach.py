"""The copy task of the positions lab: how far each kind of position goes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.lab.labs.lab import Findings, arm_row, record_of
from regard.lab.labs.positions.findings import FREE, OF_TEXT, All, of, rights
from regard.lab.reports.figures import Series, line_chart, lines
from regard.lab.reports.findings import Cell
from regard.lab.reports.markup import Html
from regard.lab.studies.statistics import judge
from regard.lab.tasks.estimates import arm_interval

REFERENCE = "sinusoidal"


def copies(found: All, trained: int, back: int) -> Findings:
    """Return the accuracy of each kind of position beyond the trained length."""
    tables = {name: rights(found, "copy", name) for name in OF_TEXT}  # seeds × texts × places
    longest = next(iter(tables.values())).shape[2] + back
    at = sorted(
        {trained // 2, trained, trained + 1, longest, *range(trained, longest, trained // 2)}
    )
    at = [length for length in at if length > back]

    def accuracy(name: str, length: int) -> float:
        return float(tables[name][:, :, length - back - 1].mean())

    bounded = max(accuracy(name, 2 * trained) for name in ("sinusoidal", "learned"))
    table_end = accuracy("learned", trained + 1)
    keys, turned = accuracy("relative-keys", longest), accuracy("rotary", longest)
    before, after = accuracy("alibi", trained), accuracy("alibi", longest)
    bias = accuracy("t5-bias", longest)
    looks = np.mean([x.looks for x in of(found, "copy", "rotary")], 0)
    rounds = [round(back + 2 * np.pi * k) for k in range(1, longest)]
    rounds = [distance for distance in rounds if distance < longest]
    astray = float(looks[rounds].sum())
    reach = {name: reached(tables[name], back) for name in OF_TEXT}
    columns = ["positions", *map(str, at), "words at ≥ 90 %"]
    rows: list[list[Cell]] = [
        [name, *(round(100 * accuracy(name, n), 1) for n in at), reach[name]] for name in OF_TEXT
    ]
    rotary, turns = reach["rotary"], len(rounds) / longest
    return Findings(
        {
            "copy-keys": (keys, keys >= 0.95),
            "copy-bounded": (bounded, bounded <= 0.5 and table_end <= 0.5),
            "copy-alibi": (before - after, abs(before - after) <= 0.15 and before < 0.9),
            "copy-rotary": (rotary, rotary > trained and turned <= 0.5),
            "copy-astray": (astray, astray >= 2 * turns),
            "copy-bias": (bias, bias <= 0.6),
        },
        {"trained": trained, "back": back, "longest": longest, "table_end": table_end,
         "alibi_before": before, "alibi_after": after, "rotary_after": turned, "turns": turns},
        {
            **drawn(tables, trained, back, longest),
            "mass": line_chart(
                "How much of its attention the best head gives to the word asked for",
                [edge(trained), *lines(range(back + 1, longest + 1), attention(found, "mass"))],
                x_label="words in the text", y_label="weight, %",
            ),
            "looks": line_chart(
                f"Where the last of {longest} words looks, mean over the heads",
                lines(range(longest), attention(found, "looks")),
                x_label="distance back", y_label="weight, %",
            ),
        },
        {"reach": (columns, rows)},
    )  # fmt: skip


def reached(table: NDArray[np.bool_], back: int, least: float = 0.9) -> int:
    """Return the longest text up to which every length has this share of right last words.

    >>> reached(np.array([[[True, True, False, True]]]), 1)
    3
    """
    enough = table.mean((0, 1)) >= least
    return int(len(enough) if enough.all() else enough.argmin()) + back


def drawn(
    tables: Mapping[str, NDArray[np.bool_]], trained: int, back: int, longest: int
) -> dict[str, Html]:
    """Return charts of accuracy over length, for positions of the input and of the score."""
    step = max(1, (longest - back) // 26)
    lengths = sorted({back + 1, trained, *range(back + 1, longest + 1, step)})
    ends = {
        name: [arm_interval(table[:, :, length - back - 1]) for length in lengths]
        for name, table in tables.items()
    }
    sides = {
        "reach-added": ("Added to the input, or none", [n for n in tables if n not in FREE]),
        "reach-scores": ("Part of the score", FREE),
    }
    return {
        key: line_chart(
            f"{title}: right answers over length",
            [edge(trained), *(Series.ranged(name, lengths, ends[name], look, times=100)
                              for look, name in enumerate(names))],
            x_label=f"words in the text (trained on {trained}: the upright line)",
            y_label="right answers at the last word, %",
        )
        for key, (title, names) in sides.items()
    }  # fmt: skip


def edge(trained: int) -> Series:
    """Return the upright line at the trained length."""
    return Series("", [trained, trained], [0, 100], faint=True)


def attention(found: All, what: str) -> dict[str, list[float]]:
    """Return the mean over seeds of ``mass`` or ``looks`` of each position of the score, in %."""
    return {
        name: (100 * np.mean([getattr(x, what) for x in of(found, "copy", name)], 0)).tolist()
        for name in FREE
    }


def compared(found: All, reach: int) -> dict[str, Any]:
    """Return arms and verdicts of the copy task at its longest, for ``--json``."""
    metric = f"accuracy at the last word of {reach} times the trained length"
    tables = {name: rights(found, "copy", name)[:, :, -1] for name in OF_TEXT}
    runs = {name: of(found, "copy", name) for name in OF_TEXT}
    arms = [
        arm_row(name, len(runs[name]), arm_interval(table), parameters=runs[name][0].parameters,
                seconds=float(np.mean([x.seconds for x in runs[name]])))
        for name, table in tables.items()
    ]  # fmt: skip
    against = [(name, REFERENCE) for name in OF_TEXT if name != REFERENCE]
    return record_of(metric, arms, judge(tables, against))
