"""Sections, claims and answer of the positions lab."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.attention import POSITIONS, Score
from regard.lab.labs.lab import Part, claim
from regard.lab.labs.positions.tasks import NEAR, Experiment, Found, most_frequent
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table
from regard.lab.reports.maps import heat_map
from regard.lab.studies.statistics import arm_interval

All = Mapping[Experiment, Found]
QUESTIONS = ("moved", "begin", "begin, causal", "distance", "further on")
#: Positions that are part of the score: all they know is how two words lie to each other.
#: The positions of the lab's questions; later ones are compared by `regard compare`.
ASKED: dict[str, type[nn.Module] | None] = {
    name: POSITIONS[name]
    for name in (
        "none", "sinusoidal", "learned", "rotary", "alibi", "t5-bias", "relative-keys",
        "tree-depth", "tree-keys",
    )
}  # fmt: skip
RELATIVE = [name for name, kind in ASKED.items() if kind and issubclass(kind, Score)]
OF_TEXT = [name for name in ASKED if not name.startswith("tree")]
FREE = [name for name in RELATIVE if name in OF_TEXT]


def of(found: All, task: str, position: str) -> list[Found]:
    """Return what came of a task with these positions, seed by seed."""
    return [x for key, x in found.items() if (key.task, key.position) == (task, position)]


def rights(found: All, task: str, position: str) -> NDArray[np.bool_]:
    """Return which answers are right, (seeds, texts); "further on" is "distance" elsewhere."""
    if task == "further on":
        return np.stack([x.elsewhere for x in of(found, "distance", position)])
    return np.stack([x.right for x in of(found, task, position)])


def share(found: All, task: str, position: str) -> float:
    """Return the accuracy."""
    return float(rights(found, task, position).mean())


def counts(found: All, task: str, position: str) -> NDArray[np.int64]:
    """Return what was said of what was true, over all seeds."""
    total: NDArray[np.int64] = np.stack([x.said for x in of(found, task, position)]).sum(0)
    return total


def cell(table: NDArray[np.bool_]) -> str:
    """Return the accuracy in percent with its interval, for a table."""
    mean, low, high = (100 * x for x in arm_interval(table))
    return f"{mean:.1f} [{low:.0f}, {high:.0f}]"


def probes(found: All, length: int) -> Part:
    """Return what can be read from each kind of position."""
    cells = {(key.task, key.position) for key in found} | {
        ("further on", key.position) for key in found if key.task == "distance"
    }
    rows = [
        [name, *(cell(rights(found, task, name)) if (task, name) in cells else "—"
                 for task in QUESTIONS)]
        for name in ASKED
    ]  # fmt: skip
    shares = [
        [100 * share(found, task, name) if (task, name) in cells else np.nan for task in QUESTIONS]
        for name in ASKED
    ]
    chance, near = 1 / length, 1 / (2 * NEAR + 1)
    absolute = min(share(found, "moved", name) for name in ("sinusoidal", "learned"))
    blind = max(share(found, "moved", name) for name in ("none", *RELATIVE))
    leak, alone = (share(found, task, "none") for task in ("begin, causal", "causal"))
    worst = min(share(found, "begin, causal", name) for name in OF_TEXT)
    exact = min(share(found, "distance", name) for name in FREE if name != "alibi")
    further_on = min(share(found, "further on", name) for name in FREE if name != "alibi")
    lost = max(share(found, "further on", name) for name in ("sinusoidal", "learned"))
    far, side = of_alibi(counts(found, "distance", "alibi"))
    lumped, apart = share(found, "begin", "t5-bias"), share(found, "begin", "relative-keys")
    claims = [
        claim(
            f"sinusoidal and learned positions tell where a text was moved to: at least "
            f"{absolute:.1%} of the answers are right, chance is {chance:.1%}",
            absolute,
            absolute >= 0.9,
        ),
        claim(
            f"nothing that is purely relative does: at most {blind:.1%} are right; always "
            f"saying the same would be right in {chance:.1%}",
            blind,
            blind <= chance + 0.01,
        ),
        claim(
            f"a begin word and a causal mask leak it: every scheme then reads a word's place in "
            f"at least {worst:.1%}, even none ({leak:.1%}; by the mask without a begin word "
            f"{alone:.1%})",
            leak,
            leak >= 0.9 and worst >= 0.75,
        ),
        claim(
            f"rotary, t5-bias and relative-keys tell the distance of two words within {NEAR} from "
            f"their scores alone: at least {exact:.1%} right, chance is {near:.1%}",
            exact,
            exact >= 0.95,
        ),
        claim(
            f"ALiBi tells how far and not to which side: |j − i| is right in {far:.1%}, and of "
            f"those the side in {side:.1%}",
            far,
            far >= 0.9 and abs(side - 0.5) <= 0.1,
        ),
        claim(
            f"{length} places further on the relative ones are still right in at least "
            f"{further_on:.1%}; "
            f"sinusoidal and learned positions, never trained there, in at most {lost:.1%}",
            further_on - lost,
            further_on >= 0.95 and lost <= 0.5,
        ),
        claim(
            f"T5 puts far places into one bucket: with a begin word it reads {lumped:.1%} of the "
            f"places, relative-keys {apart:.1%}",
            apart - lumped,
            apart - lumped >= 0.1,
        ),
    ]
    section = Section(
        "What each can and cannot tell",
        [
            f"One layer of attention (or, for distances, the scores of one pair alone) is trained "
            f"from end to end to answer one question about random words, and asked about texts it "
            f"has not seen. moved: a text of {length} words begins somewhere from 0 to "
            f"{length - 1}; where, by the state of its middle word? begin: the text begins with a "
            "word of its own; which place is this word's? begin, causal: the same, and nobody "
            "looks ahead. distance: what is j − i, by the heads' scores of q_i and k_j? further "
            f"on: the same network, the same texts, {length} places further on.",
            "A purely relative scheme gives the same numbers wherever a text stands, so there is "
            "nothing to read: not a matter of training. What gives places away is a boundary: a "
            "word that only begins a text, seen at its distance, or a causal mask, under which a "
            "word's average over the past says how long the past is. That is how decoders without "
            "any positions know where they are. The trees here are random ones: they say nothing "
            "of the text's order.",
        ],
        [
            Figure(
                heat_map("Right answers, %", shares, rows=list(ASKED), columns=list(QUESTIONS)),
                "What to see: absolute positions are right on the left and lost on the right; "
                "relative ones the other way round. Blank: not asked, or by chance.",
            ),
            by_place(found, length),
            *(said_of(found, name) for name in ("alibi", "rotary")),
        ],
        [
            Table(
                "Right answers in %, and 95 % intervals over seeds and texts",
                ["positions", *QUESTIONS],
                rows,
                f"Chance: {chance:.1%} for a place, {near:.1%} for a distance; without positions "
                "distance 0 is known all the same, a word being like itself. Learned positions "
                "have a table as long as is asked for, and rows where nothing was trained are "
                "as they were drawn.",
            )
        ],
    )
    answer = (
        "Sinusoidal and learned positions tell where a text stands "
        f"(at least {absolute:.0%} right), relative ones cannot ({blind:.1%}, chance "
        f"{chance:.1%}) until a begin word and a causal mask leak it (at least {worst:.0%}, "
        f"{leak:.0%} with no positions at all); they tell the distance of two words wherever "
        f"those stand ({further_on:.0%}), ALiBi without the side."
    )
    return Part(section, claims, answer)


def of_alibi(said: NDArray[np.int64]) -> tuple[float, float]:
    """Return how often |j − i| is right, and of those that are right how often the side is."""
    at = np.arange(-NEAR, NEAR + 1)
    far = np.abs(at)[:, None] == np.abs(at)[None, :]
    aside = far & (at != 0)[:, None]
    right = said[aside & (at[:, None] == at[None, :])].sum()
    return float(said[far].sum() / said.sum()), float(right / max(said[aside].sum(), 1))


def by_place(found: All, length: int) -> Figure:
    """Return the chart of right answers by place, with a begin word."""
    series = []
    for look, name in enumerate(("none", "alibi", "t5-bias", "relative-keys")):
        confusion = counts(found, "begin", name)
        shares = 100 * confusion.diagonal() / confusion.sum(1)
        series.append(Series(name, list(range(length)), shares.tolist(), look=look))
    chart = line_chart(
        "With a begin word: which place is this?", series, x_label="place of the word",
        y_label="right answers, %",
    )  # fmt: skip
    return Figure(
        chart,
        "What to see: T5's bias is exact up to distance 8 and then has one bucket for several; "
        "ALiBi's weights fade with the distance and blur. Without positions the begin word alone "
        "is known.",
    )


def said_of(found: All, name: str) -> Figure:
    """Return which distance was said of which."""
    confusion = counts(found, "distance", name)
    chart = heat_map(
        f"{name}: said of each distance, %", 100 * confusion / confusion.sum(1, keepdims=True),
        x_label="j − i as said", y_label="true j − i", x_span=(-NEAR, NEAR),
        y_span=(-NEAR, NEAR), width=400,
    )  # fmt: skip
    sees = {
        "alibi": "What to see: a cross. −|j − i| is the same to both sides.",
        "rotary": "What to see: the diagonal. Turning tells the side by the sine.",
    }
    return Figure(chart, sees[name], small=True)


def trees(found: All) -> Part:
    """Return what tree positions tell of the tree, beside those of the text."""
    names = list(dict.fromkeys(key.position for key in found if key.task == "depth"))
    base = {
        task: most_frequent([x.said for key, x in found.items() if key.task == task])
        for task in ("depth", "way")
    }
    depth, way = share(found, "depth", "tree-depth"), share(found, "way", "tree-keys")
    blind = max(share(found, "depth", name) for name in names if name not in ("tree-depth",))
    order = share(found, "way", "relative-keys")
    claims = [
        claim(
            f"tree-depth tells how deep a word hangs in {depth:.1%}, the others in at most "
            f"{blind:.1%} (always the most frequent depth: {base['depth']:.1%})",
            depth,
            depth >= 0.9 and blind <= 0.6,
        ),
        claim(
            f"tree-keys tell the way between two words of the tree in {way:.1%}, relative-keys in "
            f"{order:.1%} (always the most frequent: {base['way']:.1%})",
            way,
            way >= 0.9 and order <= 0.6,
        ),
    ]
    section = Section(
        "Positions in a tree",
        [
            "Wang et al. 2019 (arXiv 1909.00383): the depth of a word in the dependency tree, as a "
            "sine position added to the input (tree-depth); and the way between two words, the "
            "difference of their depths where one hangs below the other, else the sum of their "
            "depths with the sign of their order, as Shaw's keys (tree-keys). The tree is the "
            "user's: with parsed(parents): model(tokens, lengths). A text without a tree is a "
            "chain, and then tree-depth is sinusoidal and tree-keys is relative-keys, number for "
            "number.",
        ],
        [],
        [
            Table(
                "Random trees: right answers in %, and 95 % intervals",
                ["positions", "depth of a word", f"way between two words, up to {NEAR}"],
                [
                    [name, *(cell(rights(found, task, name)) for task in ("depth", "way"))]
                    for name in names
                ],
                f"Always the most frequent answer: {base['depth']:.1%} and {base['way']:.1%}. The "
                "sign of a way over the root is the order of the text, which is what positions of "
                "the text know of it.",
            )
        ],
    )
    answer = (
        f"Tree positions tell depth ({depth:.0%}) and way ({way:.0%}) and nothing of the order."
    )
    return Part(section, claims, answer)
