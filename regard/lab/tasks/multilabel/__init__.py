"""Texts with several labels each, or none: settings and models."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from pydantic import Field

from regard.core.ranges import Range
from regard.core.settings import Settings
from regard.lab.tasks.baseline_settings import SEARCH_NGRAMS, Ngrams, Texts
from regard.lab.tasks.models import EMBEDDED, MODELS, baseline
from regard.lab.tasks.settings import TextSettings, Threshold

__all__ = ["LABELERS", "METRICS", "MultilabelSettings", "OneVsRestSettings"]

METRICS: Final = {
    "micro-f1": "micro-F1",
    "macro-f1": "macro-F1",
    "average-precision": "mean average precision",
    "subset-accuracy": "subset accuracy",
}


class MultilabelSettings(TextSettings):
    """Settings of texts with several labels, their tokenization and the splits."""

    data: str = Field(
        "praise",
        description="praise, or a file of texts and labels (.csv, .tsv, .jsonl, .txt, .parquet)",
    )
    separator: str = Field(
        "any",
        min_length=1,
        description="what stands between the labels of a text; []: lists in brackets; any: found",
    )
    metric: Literal["micro-f1", "macro-f1", "average-precision", "subset-accuracy"] = Field(
        "micro-f1",
        description="selects the best checkpoint on validation and compares runs on test; "
        "average-precision: mean over the labels; subset-accuracy: all labels of a text",
    )
    threshold: Threshold = Field(
        "chosen",
        description="probability above which a label is predicted; chosen: for each label the best "
        "on validation by F1",
    )


class OneVsRestSettings(Settings):
    """Settings of logistic regression for each label on TF-IDF features."""

    search: ClassVar[Mapping[str, Range]] = SEARCH_NGRAMS

    ngrams: Ngrams = 2
    minimum: Texts = 2


LABELERS = {
    **{name: entry for name, entry in MODELS.items() if not entry.baseline},
    **EMBEDDED,
    "tfidf": baseline(
        "tfidf",
        "logistic regression for each label on TF-IDF of words and pairs of words",
        OneVsRestSettings,
        "regard.lab.tasks.multilabel.task:OneVsRest",
        weighs=True,
    ),
}
