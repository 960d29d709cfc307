"""Claims, figures and tables of the positions lab: what can be read from each position."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.attention import POSITIONS, Score
from regard.lab.labs.lab import Findings
from regard.lab.labs.positions.tasks import NEAR, Experiment, Found, most_frequent
from regard.lab.reports.figures import line_chart, lines
from regard.lab.reports.maps import heat_map
from regard.lab.reports.markup import Html
from regard.lab.tasks.estimates import arm_interval

All = Mapping[Experiment, Found]
QUESTIONS = ("moved", "begin", "begin, causal", "distance", "further on")
#: Positions that are part of the score: they depend on the relation of two words alone.
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
    """Return the results of a task with these positions, one per seed."""
    return [x for key, x in found.items() if (key.task, key.position) == (task, position)]


def rights(found: All, task: str, position: str) -> NDArray[np.bool_]:
    """Return which answers are right, (seeds, texts); "further on" is "distance", moved on."""
    if task == "further on":
        return np.stack([x.elsewhere for x in of(found, "distance", position)])
    return np.stack([x.right for x in of(found, task, position)])


def share(found: All, task: str, position: str) -> float:
    """Return the accuracy."""
    return float(rights(found, task, position).mean())


def counts(found: All, task: str, position: str) -> NDArray[np.int64]:
    """Return the confusion matrix of answers and true values, summed over all seeds."""
    total: NDArray[np.int64] = np.stack([x.said for x in of(found, task, position)]).sum(0)
    return total


def cell(table: NDArray[np.bool_]) -> str:
    """Return the accuracy in percent with its interval, for a table."""
    mean, low, high = (100 * x for x in arm_interval(table))
    return f"{mean:.1f} [{low:.0f}, {high:.0f}]"


def probes(found: All, length: int) -> Findings:
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
    right = heat_map("Right answers, %", shares, rows=list(ASKED), columns=list(QUESTIONS))
    return Findings(
        {
            "absolute": (absolute, absolute >= 0.9),
            "blind": (blind, blind <= chance + 0.01),
            "leak": (leak, leak >= 0.9 and worst >= 0.75),
            "distance": (exact, exact >= 0.95),
            "alibi": (far, far >= 0.9 and abs(side - 0.5) <= 0.1),
            "further-on": (further_on - lost, further_on >= 0.95 and lost <= 0.5),
            "buckets": (apart - lumped, apart - lumped >= 0.1),
        },
        {"length": length, "chance": chance, "chance_of_distance": near, "near": NEAR,
         "worst": worst, "alone": alone, "side": side, "further_on": further_on, "lost": lost,
         "lumped": lumped, "apart": apart},
        {
            "right": right,
            "by-place": by_place(found, length),
            **{f"said-{name}": said_of(found, name) for name in ("alibi", "rotary")},
        },
        {"right-table": (["positions", *QUESTIONS], rows)},
    )  # fmt: skip


def of_alibi(said: NDArray[np.int64]) -> tuple[float, float]:
    """Return how often |j − i| is right, and how often the side is right among these."""
    at = np.arange(-NEAR, NEAR + 1)
    far = np.abs(at)[:, None] == np.abs(at)[None, :]
    aside = far & (at != 0)[:, None]
    right = said[aside & (at[:, None] == at[None, :])].sum()
    return float(said[far].sum() / said.sum()), float(right / max(said[aside].sum(), 1))


def by_place(found: All, length: int) -> Html:
    """Return the chart of right answers by place, with a begin word."""
    said = {
        name: counts(found, "begin", name) for name in ("none", "alibi", "t5-bias", "relative-keys")
    }
    shares = {
        name: (100 * table.diagonal() / table.sum(1)).tolist() for name, table in said.items()
    }
    return line_chart(
        "With a begin word: which place is this?", lines(range(length), shares),
        x_label="place of the word", y_label="right answers, %",
    )  # fmt: skip


def said_of(found: All, name: str) -> Html:
    """Return the predicted distances for each true distance."""
    confusion = counts(found, "distance", name)
    return heat_map(
        f"{name}: said of each distance, %", 100 * confusion / confusion.sum(1, keepdims=True),
        x_label="j − i as said", y_label="true j − i", x_span=(-NEAR, NEAR),
        y_span=(-NEAR, NEAR), width=400,
    )  # fmt: skip


def trees(found: All) -> Findings:
    """Return what can be read from tree positions and from positions in the text."""
    names = list(dict.fromkeys(key.position for key in found if key.task == "depth"))
    base = {
        task: most_frequent([x.said for key, x in found.items() if key.task == task])
        for task in ("depth", "way")
    }
    depth, way = share(found, "depth", "tree-depth"), share(found, "way", "tree-keys")
    blind = max(share(found, "depth", name) for name in names if name not in ("tree-depth",))
    order = share(found, "way", "relative-keys")
    columns = ["positions", "depth of a word", f"way between two words, up to {NEAR}"]
    rows = [
        [name, *(cell(rights(found, task, name)) for task in ("depth", "way"))] for name in names
    ]
    return Findings(
        {
            "tree-depth": (depth, depth >= 0.9 and blind <= 0.6),
            "tree-way": (way, way >= 0.9 and order <= 0.6),
        },
        {"others_depth": blind, "others_way": order, "frequent": base},
        tables={"trees": (columns, rows)},
    )
