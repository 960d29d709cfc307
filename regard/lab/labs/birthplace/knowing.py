"""Confidence of right and invented answers.

The third part of assignment 5: right and invented answers look alike, so only the model's own
probability could tell them apart. The answers to names that occur in no text test that too.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.birthplaces import ASKS
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell
from regard.lab.reports.markup import Html
from regard.lab.tasks.classification.metrics import Calibration, calibration
from regard.lab.tasks.evaluation import Evaluation

SHOWN = 8  # answers of each kind in the table
STRANGERS = 100


@dataclass(frozen=True)
class Known:
    """A fine-tuned run's answers to the test questions and about people in no text."""

    arm: str
    judged: Evaluation
    strangers: Sequence[Any]

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Confidence of the answers to the test questions."""
        return confidences(self.judged.answers)

    @property
    def right(self) -> NDArray[np.float64]:
        """Confidence of the right answers."""
        return self.confidence[self.judged.correct]

    @property
    def wrong(self) -> NDArray[np.float64]:
        """Confidence of the wrong answers."""
        return self.confidence[~self.judged.correct]

    @property
    def strange(self) -> NDArray[np.float64]:
        """Confidence of the answers about people in no text."""
        return confidences(self.strangers)

    @property
    def calibration(self) -> Calibration:
        """Confidence against accuracy."""
        sure = self.confidence
        chances = np.stack([sure, 1 - sure], 1)
        # Two "labels", its answer and any other; the predicted one is always the first.
        chances[sure < 0.5] = np.stack([sure, sure * 0], 1)[sure < 0.5]
        return calibration(chances, (~self.judged.correct).astype(np.int64))

    @property
    def separation(self) -> float:
        """AUC of confidence: P(a right answer has more than a wrong one); chance is 0.5."""
        return auc(self.right, self.wrong)


def confidences(texts: Iterable[Any]) -> NDArray[np.float64]:
    """Return the model's probability of each of its answers, including the end symbol."""
    return np.exp(np.minimum([text.log_probability for text in texts], 0.0))


def auc(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    """Return P(a value of ``high`` exceeds one of ``low``), ties count half; NaN if one is empty.

    >>> auc(np.array([0.9, 0.8]), np.array([0.8, 0.1]))
    0.875
    """
    if not len(high) or not len(low):
        return float("nan")
    pairs = high[:, None] - low[None, :]
    return float((np.sign(pairs) + 1).mean() / 2)


def strangers(asked: Sequence[str], texts: Sequence[str], seed: int = 0) -> list[str]:
    """Return questions about people in none of the texts, by recombining first and last names.

    >>> asked = ["Where was Ada By born?", "Where was Bo Cy born?"]
    >>> strangers(asked, ["Ada By sang.", "Bo Cy sang."])
    ['Where was Ada Cy born?', 'Where was Bo By born?']
    """
    before, after = ASKS.split("{}")
    names = [text.removeprefix(before).removesuffix(after).split(" ") for text in asked]
    names = [name for name in names if len(name) > 1]
    known = "\n".join(texts)
    chance = random.Random(seed)
    questions: dict[str, None] = {}
    for first in names:
        last = chance.choice(names)[-1]
        name = f"{first[0]} {last}"
        if name not in known:
            questions[ASKS.format(name)] = None
        elif other := next((x[-1] for x in names if f"{first[0]} {x[-1]}" not in known), ""):
            questions[ASKS.format(f"{first[0]} {other}")] = None
    return list(questions)[:STRANGERS]


def described(known: Known) -> Findings:
    """Compare the confidence of right and invented answers."""
    return Findings(
        {},
        {
            "arm": known.arm,
            "sure_of_strangers": float(known.strange.mean()) if len(known.strange) else 0.0,
            "distance": known.calibration.error,
        },
        {"reliability": _reliability(known)},
        {"examples": _examples(known), "confidences": _confidences(known)},
    )


def _reliability(known: Known) -> Html:
    bins = known.calibration
    share = [100 * x for x in bins.confidence]
    rates = [100 * x for x in bins.accuracy]
    return line_chart(
        "Confidence and accuracy",
        [
            Series("perfectly calibrated", [0, 100], [0, 100], faint=True),
            Series(known.arm, share, rates, look=1, dots=len(share) < 2),
        ],
        x_label="confidence, %",
        y_label="right, %",
    )


def _examples(known: Known) -> tuple[list[str], list[list[Cell]]]:
    """Return right and wrong answers, by decreasing confidence."""
    judged = known.judged
    order = np.argsort(-known.confidence, kind="stable")
    rows: list[list[Cell]] = []
    for kind, wanted in (("right", True), ("wrong", False)):
        chosen = [int(i) for i in order if bool(judged.correct[i]) is wanted]
        step = max(len(chosen) // SHOWN, 1)
        for i in chosen[::step][:SHOWN]:
            example, sure = judged.examples[i], f"{100 * float(known.confidence[i]):.0f}"
            rows.append([example.text, judged.predictions[i], sure, kind, example.label])
    return ["question", "answer", "confidence, %", "verdict", "reference"], rows


def _confidences(known: Known) -> tuple[list[str], list[list[Cell]]]:
    """Return the confidence by kind of answer."""
    groups = [
        ("right answers", known.right),
        ("wrong answers", known.wrong),
        ("people in no text", known.strange),
    ]
    rows: list[list[Cell]] = [
        [name, len(sure), 100 * float(sure.mean()), 100 * float((sure > 0.5).mean())]
        for name, sure in groups
        if len(sure)
    ]
    return ["kind", "answers", "mean, %", "above 50 %, %"], rows
