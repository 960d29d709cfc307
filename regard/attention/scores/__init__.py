"""Scores by name. To add one, write a class and a row in ``SCORES``."""

from regard.attention.score import Score
from regard.attention.scores.basic import (
    Additive,
    Cosine,
    CosineTemperature,
    Dot,
    Gaussian,
    General,
    ScaledDot,
)
from regard.attention.scores.synthesizer import (
    DenseSynthesizer,
    FactorisedRandomSynthesizer,
    FactorisedSynthesizer,
    RandomSynthesizer,
)
from regard.attention.scores.windows import Boxcar, Epanechnikov
from regard.core.tables import Table

SCORES: Table[type[Score]] = Table(
    {
        "dot": Dot,
        "scaled-dot": ScaledDot,
        "general": General,
        "additive": Additive,
        "cosine": Cosine,
        "cosine-temperature": CosineTemperature,
        "gaussian": Gaussian,
        "epanechnikov": Epanechnikov,
        "boxcar": Boxcar,
        "synthesizer": DenseSynthesizer,
        "synthesizer-random": RandomSynthesizer,
        "synthesizer-factorised": FactorisedSynthesizer,
        "synthesizer-factorised-random": FactorisedRandomSynthesizer,
    },
    "regard.scores",
    Score,
    "score",
    classes=True,
)
