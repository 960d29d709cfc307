"""What a model's answers are worth to somebody who cannot look them up: right ones and invented.

The third part of assignment 5: both look alike, so the only thing that could tell them apart is
the probability that the model itself gives them, and what it says to names it has never read.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.birthplaces import ASKS
from regard.data.pairs import Pair
from regard.reports.figures import Series, line_chart
from regard.reports.findings import Figure, Section, Table
from regard.tasks.birthplace.evaluation import Answered
from regard.tasks.classification.metrics import Calibration, calibration

SHOWN = 8  # answers of each kind in a table
STRANGERS = 100


@dataclass(frozen=True)
class Known:
    """A fine-tuned run's answers: to the test questions, and to people in no text at all."""

    arm: str
    judged: Answered
    strangers: Sequence[Any]

    @property
    def right(self) -> NDArray[np.float64]:
        """Its confidence where it is right."""
        return self.judged.confidence[self.judged.correct]

    @property
    def wrong(self) -> NDArray[np.float64]:
        """Its confidence where it is wrong."""
        return self.judged.confidence[~self.judged.correct]

    @property
    def strange(self) -> NDArray[np.float64]:
        """Its confidence about people whom it never read of."""
        return np.exp(np.minimum([text.log_probability for text in self.strangers], 0.0))

    @property
    def calibration(self) -> Calibration:
        """Confidence against accuracy."""
        sure = self.judged.confidence
        chances = np.stack([sure, 1 - sure], 1)
        # Two "labels", its answer and any other; what is said is always the first.
        chances[sure < 0.5] = np.stack([sure, sure * 0], 1)[sure < 0.5]
        return calibration(chances, (~self.judged.correct).astype(np.int64))

    @property
    def separation(self) -> float:
        """How often a right answer has more confidence than a wrong one (AUC); 0.5 is chance."""
        return auc(self.right, self.wrong)


def auc(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """P(a value of ``high`` is above one of ``low``), ties counting half; NaN if either is empty.

    >>> auc(np.array([0.9, 0.8]), np.array([0.8, 0.1]))
    0.875
    """
    if not len(high) or not len(low):
        return float("nan")
    pairs = high[:, None] - low[None, :]
    return float((np.sign(pairs) + 1).mean() / 2)


def strangers(pairs: Sequence[Pair], texts: Sequence[str], seed: int = 0) -> list[str]:
    """Questions about people in none of the texts: first and last names put together anew.

    >>> asked = [Pair("Where was Ada By born?", "", ""), Pair("Where was Bo Cy born?", "", "")]
    >>> strangers(asked, ["Ada By sang.", "Bo Cy sang."])
    ['Where was Ada Cy born?', 'Where was Bo By born?']
    """
    before, after = ASKS.split("{}")
    names = [pair.source.removeprefix(before).removesuffix(after).split(" ") for pair in pairs]
    names = [name for name in names if len(name) > 1]
    known = "\n".join(texts)
    chance = random.Random(seed)
    found: dict[str, None] = {}
    for first in names:
        last = chance.choice(names)[-1]
        name = f"{first[0]} {last}"
        if name not in known:
            found[ASKS.format(name)] = None
        elif other := next((x[-1] for x in names if f"{first[0]} {x[-1]}" not in known), ""):
            found[ASKS.format(f"{first[0]} {other}")] = None
    return list(found)[:STRANGERS]


def section(known: Known) -> Section:
    """Right and invented answers beside each other, and how far confidence tells them apart."""
    apart = known.separation
    pairs = (
        "It made no mistake on the test to compare with."
        if math.isnan(apart)
        else f"A right answer has more of it than a wrong one in {apart:.0%} of pairs (chance is "
        "50 %)."
    )
    says = [
        f"{known.arm} writes a place with a capital letter whether it has read the answer or not: "
        "nothing in the words tells a fact from an invention.",
        f"Only its own probability may. {pairs} Asked about people who stand in no text, it still "
        f"answers, with a mean confidence of {known.strange.mean():.0%}.",
    ]
    return Section(
        "Does it know when it does not know?",
        says,
        [Figure(_reliability(known), _caption(known))],
        [_examples(known), _confidences(known)],
    )


def _reliability(known: Known) -> Any:
    found = known.calibration
    share = [100 * x for x in found.confidence]
    rates = [100 * x for x in found.accuracy]
    return line_chart(
        "Confidence and truth",
        [
            Series("perfectly calibrated", [0, 100], [0, 100], faint=True),
            Series(known.arm, share, rates, look=1, dots=len(share) < 2),
        ],
        x_label="confidence, %",
        y_label="right, %",
    )


def _caption(known: Known) -> str:
    return (
        "Answers in 15 bins of the probability that the model gives them. On the diagonal they are "
        f"as often right as it says; the mean distance is {known.calibration.error:.1%}."
    )


def _examples(known: Known) -> Table:
    judged = known.judged
    order = np.argsort(-judged.confidence, kind="stable")
    rows = []
    for kind, wanted in (("right", True), ("wrong", False)):
        chosen = [int(i) for i in order if bool(judged.correct[i]) is wanted]
        step = max(len(chosen) // SHOWN, 1)
        for i in chosen[::step][:SHOWN]:
            pair, text = judged.pairs[i], judged.written[i]
            sure = f"{100 * float(judged.confidence[i]):.0f}"
            rows.append([pair.source, text.text, sure, kind, pair.target])
    return Table(
        "Answers, right and wrong, from the surest to the least sure",
        ["question", "answer", "confidence, %", "it is", "truth"],
        rows,
    )


def _confidences(known: Known) -> Table:
    groups = [
        ("right answers", known.right),
        ("wrong answers", known.wrong),
        ("people in no text", known.strange),
    ]
    rows: list[list[str | float | int]] = [
        [name, len(sure), 100 * float(sure.mean()), 100 * float((sure > 0.5).mean())]
        for name, sure in groups
        if len(sure)
    ]
    return Table(
        "Confidence of each kind of answer",
        ["kind", "answers", "mean, %", "above one half, %"],
        rows,
    )
