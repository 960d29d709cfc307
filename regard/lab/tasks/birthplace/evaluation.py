"""Evaluation of generated answers to questions."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.lab.data.examples import Example
from regard.lab.data.pairs import Pair
from regard.lab.tasks.classification.metrics import wilson
from regard.lab.tasks.family_evaluation import FamilyEvaluation
from regard.lab.tasks.writing.evaluation import Text


@dataclass(frozen=True, repr=False)
class Answered(FamilyEvaluation):
    """Written answers with the references; `value` is the fraction of exact matches.

    `low` and `high` are its 95 % Wilson interval over questions. `commonest` is the most frequent
    answer in training, `baseline` the exact match of always giving it. Without reference answers,
    `value` is None.
    """

    pairs: tuple[Pair, ...] = field(repr=False)
    written: tuple[Text, ...] = field(repr=False)
    commonest: str
    value: float | None
    low: float | None
    high: float | None
    baseline: float | None

    metric = "exact match"
    unit = "questions"

    @property
    def predictions(self) -> list[str]:
        """Return the answer to each question."""
        return [text.text for text in self.written]

    @classmethod
    def judge(cls, pairs: Sequence[Pair], written: Sequence[Text], commonest: str) -> "Answered":
        """Evaluate answers. Raises: no questions; only some of them with a reference answer."""
        if not pairs:
            raise RegardError("there are no questions to evaluate; give at least one")
        bare = [pair for pair in pairs if not pair.target]
        if bare and len(bare) < len(pairs):
            raise RegardError(
                f"{bare[0].place}: this question has no answer, but others do; give all or none"
            )
        answers = (tuple(pairs), tuple(written), commonest)
        if bare:
            return cls(*answers, None, None, None, None)
        right = sum(a.text == b.target for a, b in zip(written, pairs, strict=True))
        low, high = wilson(right, len(pairs))
        same = sum(pair.target == commonest for pair in pairs)
        return cls(*answers, right / len(pairs), low, high, same / len(pairs))

    @property
    def n(self) -> int:
        """Return the number of questions."""
        return len(self.pairs)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each answer whether it equals the reference exactly."""
        pairs = zip(self.written, self.pairs, strict=True)
        return np.array([text.text == pair.target for text, pair in pairs])

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Return the model's probability of each of its answers, including the end symbol."""
        return np.exp(np.minimum([text.log_probability for text in self.written], 0.0))

    @property
    def examples(self) -> list[Example]:
        """Return the questions with their reference answers."""
        return [Example(pair.source, pair.target, pair.place) for pair in self.pairs]

    @property
    def trivial(self) -> dict[str, float]:
        """Return the metric of always giving the most frequent answer."""
        return {} if self.baseline is None else {"most frequent answer": self.baseline}

    @property
    def learned(self) -> bool:
        """Return whether the exact match clearly exceeds that of the most frequent answer."""
        return self.value is None or super().learned

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""
        keys = "metric", "value", "low", "high", "n", "commonest", "baseline"
        return {key: getattr(self, key) for key in keys}

    def line(self) -> str:
        """Return the summary in one line."""
        if self.value is None:
            return f"{self.n:,} questions without reference answers, so there is no score"
        interval = f"95 % interval {self.low:.1%} to {self.high:.1%}"
        return (
            f"exact match {self.value:.1%} ({interval}, {self.n:,} questions); "
            f"always answering {self.commonest!r}: {self.baseline:.1%}"
        )

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        if self.value is None:
            return [("exact match", "unknown: the questions have no reference answers")]
        right = round(self.value * self.n)
        same = round((self.baseline or 0.0) * self.n)
        interval = f"95 % interval {self.low:.2%} to {self.high:.2%}"
        return [
            ("exact match", f"{self.value:.2%}  ({right} of {self.n}; {interval})"),
            (f"always {self.commonest!r}", f"{self.baseline:.2%}  ({same} of {self.n})"),
            (
                "confidence",
                f"{float(self.confidence.mean()):.2%}  (mean; see `regard lab birthplace`)",
            ),
        ]

    def rows(self) -> bytes:
        """Return JSON lines: source, text, label (the reference), predicted, confidence, …"""
        lines = (
            json.dumps(
                {
                    "source": pair.place,
                    "text": pair.source,
                    "label": pair.target,
                    "predicted": text.text,
                    "confidence": math.exp(min(text.log_probability, 0.0)),
                    "log_probability": text.log_probability,
                    "ended": text.ended,
                },
                ensure_ascii=False,
            )
            for pair, text in zip(self.pairs, self.written, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def plain(self) -> bytes:
        """Return the answers alone, one per line, in the format of assignment 5."""
        return "".join(f"{text.line()}\n" for text in self.written).encode()

    @classmethod
    def parse(cls, rows: bytes, commonest: str, name: str) -> "Answered":
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        lines = list(parse_rows(rows, name))
        try:
            pairs = [Pair(*(str(row[key]) for key in ("text", "label", "source"))) for row in lines]
            written = [
                Text(str(row["predicted"]), float(row["log_probability"]), bool(row["ended"]))
                for row in lines
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(pairs, written, commonest)
