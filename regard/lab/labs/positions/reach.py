"""The copy task of the positions lab: how far each kind of position goes, as a section."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from regard.lab.labs.lab import Compared, Part, arm_row, claim
from regard.lab.labs.positions.findings import FREE, OF_TEXT, All, of, rights
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table
from regard.lab.studies.statistics import arm_interval, judge

REFERENCE = "sinusoidal"


def copies(found: All, trained: int, back: int) -> Part:
    """Return how far each goes beyond the length it was trained on."""
    tables = {name: rights(found, "copy", name) for name in OF_TEXT}  # seeds × texts × places
    longest = next(iter(tables.values())).shape[2] + back
    words = "the word before" if back == 1 else f"the word {back} places before"
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
    claims = [
        claim(
            f"relative-keys find {words} at {longest} words as they do at {trained}: {keys:.1%} "
            "right",
            keys,
            keys >= 0.95,
        ),
        claim(
            f"learned positions end with their table: at {trained + 1} words {table_end:.1%} are "
            f"right; sinusoidal ones are lost at {2 * trained} as well (at most {bounded:.1%})",
            bounded,
            bounded <= 0.5 and table_end <= 0.5,
        ),
        claim(
            f"ALiBi loses little by length: {before:.1%} right at {trained} words, {after:.1%} at "
            f"{longest}; but it cannot point at one word",
            before - after,
            abs(before - after) <= 0.15 and before < 0.9,
        ),
        claim(
            f"rotary positions go on past the trained length and then break: {reach['rotary']} "
            f"words at 90 % or more, {turned:.1%} right at {longest}",
            reach["rotary"],
            reach["rotary"] > trained and turned <= 0.5,
        ),
        claim(
            f"where rotary breaks, its first pair of columns has come round: {astray:.1%} of the "
            f"last word's attention goes to the {len(rounds) / longest:.0%} of distances that are "
            f"whole turns of 2π from the one asked for",
            astray,
            astray >= 2 * len(rounds) / longest,
        ),
        claim(
            f"T5's bias wears out: distances beyond {trained} were never trained, and at {longest} "
            f"words {bias:.1%} are right",
            bias,
            bias <= 0.6,
        ),
    ]
    section = Section(
        "Beyond the trained length",
        [
            f"One layer under a causal mask learns to say {words}, in texts of {trained} random "
            f"words, and is asked in texts of up to {longest}: a small part of what a decoder does "
            "when it copies. A learned table is made as long as the longest text: otherwise it "
            f"could not be asked at all. Its rows from {trained} on are never trained.",
        ],
        [
            *drawn(tables, trained, back, longest),
            massed(found, trained, back, longest),
            looked(found, longest),
        ],
        [
            Table(
                f"Right answers in % at the last of so many words (trained on {trained})",
                ["positions", *map(str, at), "words at ≥ 90 %"],
                [
                    [name, *(round(100 * accuracy(name, n), 1) for n in at), reach[name]]
                    for name in OF_TEXT
                ],
                "Chance is one over the number of different words. The last column: the longest "
                "text up to which every length is right in 90 % or more.",
            )
        ],
    )
    answer = (
        f"Trained on {trained} words, relative-keys copy {words} at {longest} ({keys:.0%}), ALiBi "
        f"blurs but keeps what it had ({before:.0%} to {after:.0%}), rotary holds up to "
        f"{reach['rotary']} words, T5's bias fades to {bias:.0%}, sinusoidal and learned are lost "
        f"({bounded:.0%} at {2 * trained})."
    )
    return Part(section, claims, answer)


def reached(table: NDArray[np.bool_], back: int, least: float = 0.9) -> int:
    """Return the longest text up to which every length has this share of right last words.

    >>> reached(np.array([[[True, True, False, True]]]), 1)
    3
    """
    enough = table.mean((0, 1)) >= least
    return int(len(enough) if enough.all() else enough.argmin()) + back


def drawn(
    tables: Mapping[str, NDArray[np.bool_]], trained: int, back: int, longest: int
) -> list[Figure]:
    """Return charts of accuracy over length, for positions of the input and of the score."""
    step = max(1, (longest - back) // 26)
    lengths = sorted({back + 1, trained, *range(back + 1, longest + 1, step)})
    series = {}
    for name, table in tables.items():
        ends = [arm_interval(table[:, :, length - back - 1]) for length in lengths]
        means, lows, highs = ([100 * end[i] for end in ends] for i in range(3))
        series[name] = (means, lows, highs)
    sides = [
        ("Added to the input, or none", [name for name in tables if name not in FREE],
         "What to see: right up to the trained length, and a cliff behind it."),
        ("Part of the score", FREE,
         "What to see: Shaw's clipped keys never end; rotary holds for a while; T5's far buckets "
         "were never trained and draw weight; ALiBi is blurred and flat."),
    ]  # fmt: skip
    edge = Series("", [trained, trained], [0, 100], faint=True)
    return [
        Figure(
            line_chart(
                f"{title}: right answers over length",
                [edge]
                + [Series(name, lengths, series[name][0], look=look, low=series[name][1],
                          high=series[name][2]) for look, name in enumerate(names)],
                x_label=f"words in the text (trained on {trained}: the upright line)",
                y_label="right answers at the last word, %",
            ),
            sees,
        )
        for title, names, sees in sides
    ]  # fmt: skip


def massed(found: All, trained: int, back: int, longest: int) -> Figure:
    """Return the weight of the word that is asked for, over the length."""
    lengths = list(range(back + 1, longest + 1))
    series = [
        Series(name, lengths,
               (100 * np.mean([x.mass for x in of(found, "copy", name)], 0)).tolist(), look=look)
        for look, name in enumerate(FREE)
    ]  # fmt: skip
    edge = Series("", [trained, trained], [0, 100], faint=True)
    return Figure(
        line_chart(
            "How much of its attention the best head gives to the word asked for",
            [edge, *series],
            x_label="words in the text", y_label="weight, %",
        ),
        "What to see: why it breaks. In a longer text more words share the weight that is left "
        "over, and what was never trained takes what it gets.",
    )  # fmt: skip


def looked(found: All, longest: int) -> Figure:
    """Return where the last word of the longest text looks."""
    series = [
        Series(name, list(range(longest)),
               (100 * np.mean([x.looks for x in of(found, "copy", name)], 0)).tolist(), look=look)
        for look, name in enumerate(FREE)
    ]  # fmt: skip
    return Figure(
        line_chart(
            f"Where the last of {longest} words looks, mean over the heads", series,
            x_label="distance back", y_label="weight, %",
        ),
        "What to see: rotary looks back by whole turns of 2π = 6.28, where its fastest pair of "
        "columns is as it is at the word asked for and the slower ones are as they never were in "
        "training. T5 spreads its weight over distances that share an untrained bucket.",
    )  # fmt: skip


def compared(metric: str, found: All) -> Compared:
    """Return arms and verdicts of the copy task at its longest."""
    tables = {name: rights(found, "copy", name)[:, :, -1] for name in OF_TEXT}
    runs = {name: of(found, "copy", name) for name in OF_TEXT}
    arms = [
        arm_row(name, len(runs[name]), arm_interval(table), parameters=runs[name][0].parameters,
                seconds=float(np.mean([x.seconds for x in runs[name]])))
        for name, table in tables.items()
    ]  # fmt: skip
    against = [(name, REFERENCE) for name in OF_TEXT if name != REFERENCE]
    return Compared.of(metric, arms, judge(tables, against))
