"""Regression on texts: settings and models."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from regard.core.ranges import LogUniform, Range
from regard.core.settings import Settings
from regard.lab.tasks.baseline_settings import SEARCH_NGRAMS, Ngrams, Texts
from regard.lab.tasks.models import EMBEDDED, MODELS, baseline
from regard.lab.tasks.settings import TextSettings
from regard.lab.tasks.units import Unit

__all__ = ["METRICS", "REGRESSORS", "UNITS", "RegressionSettings", "RidgeSettings"]

METRICS = {"r2": "R²", "mae": "MAE", "rmse": "RMSE", "spearman": "Spearman's ρ"}
_PLAIN = Unit("", "", times=1.0, digits=3, delta=0.01)
UNITS = {
    "R²": replace(_PLAIN, least=-math.inf),
    "Spearman's ρ": replace(_PLAIN, least=-1.0),
    "MAE": replace(_PLAIN, lower=True, most=math.inf, delta=None),
    "RMSE": replace(_PLAIN, lower=True, most=math.inf, delta=None),
}


class RegressionSettings(TextSettings):
    """Settings of texts with numbers, their tokenization and the splits."""

    data: str = Field(
        "ratings",
        description="ratings, or a file of texts and numbers (.csv, .tsv, .jsonl, .txt, .parquet)",
    )
    metric: Literal["r2", "mae", "rmse", "spearman"] = Field(
        "r2", description="selects the best checkpoint on validation and compares runs on test"
    )


class RidgeSettings(Settings):
    """Settings of ridge regression on TF-IDF features."""

    search: ClassVar[Mapping[str, Range]] = {**SEARCH_NGRAMS, "penalty": LogUniform(0.01, 100.0)}

    ngrams: Ngrams = 2
    minimum: Texts = 2
    penalty: float = Field(1.0, gt=0, description="L2 penalty, alpha of scikit-learn's Ridge")


REGRESSORS = {
    **{name: entry for name, entry in MODELS.items() if not entry.baseline},
    **EMBEDDED,
    "ridge": baseline(
        "ridge",
        "ridge regression on TF-IDF of words and pairs of words",
        RidgeSettings,
        "regard.lab.tasks.regression.task:Ridge",
        weighs=True,
    ),
}
