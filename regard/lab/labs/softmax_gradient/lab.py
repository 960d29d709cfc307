"""Why is q·k divided by √d? The gradient of softmax against the width of queries and keys.

Seeds 001 (exercise 1) and 004 (equation 9.9); Vaswani et al. 2017, section 3.2.1. `saturation` has
the measurements, `gaussian` the theory.
"""

import math
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from scipy.stats import chi2

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import Say, Show
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime
from regard.lab.labs.softmax_gradient.cures import losses, scores
from regard.lab.labs.softmax_gradient.findings import (
    NAMES,
    POWERS,
    saturation,
    temperature,
    variance,
)
from regard.lab.labs.softmax_gradient.gaussian import Theory
from regard.lab.labs.softmax_gradient.saturation import Found, product_variance, see

OTHERS = ("gaussian", "additive", "cosine", "cosine-temperature")


class SoftmaxGradientSettings(Settings):
    """The sizes of the draws: normal queries and `keys` keys, d from `low` to `high` by doubling.

    `width`: the d at which the temperature moves; `blocks`: sets of keys, at most, of 64 queries.
    """

    keys: int = Field(64, ge=3, le=1024)
    low: int = Field(4, ge=2)
    high: int = Field(4096, le=8192)
    width: int = Field(64, ge=2, le=1024)
    blocks: int = Field(128, ge=16, le=1024)
    seed: int = Field(0, ge=0, lt=2**40)

    @model_validator(mode="after")
    def _three_widths(self) -> Self:
        if self.high < 4 * self.low:
            raise RegardError(
                f"low={self.low} and high={self.high} leave no three widths to fit a line "
                f"through: set high to {4 * self.low} or more"
            )
        return self


def over_widths(settings: SoftmaxGradientSettings, show: Show) -> Found:
    """Measure everything over d."""
    widths = [settings.low]
    while widths[-1] * 2 <= settings.high:
        widths.append(widths[-1] * 2)
    products, seen = {}, {}
    for i, width in enumerate(widths):
        show(5 + 60 * i / len(widths), 100, f"d = {width}")
        products[width] = product_variance(width, settings.keys, settings.seed)
        for name in (*NAMES, *(OTHERS if i % 2 == 0 else ())):
            seen[name, width] = see(name, width, settings.keys, settings.blocks, settings.seed)
    show(65, 100, "theory")
    hottest = math.sqrt(float(chi2.ppf(0.9999, settings.width))) * 2 ** -POWERS[0]
    highest = max(
        math.sqrt(float(chi2.ppf(0.9999, widths[-1]))), hottest / math.sqrt(settings.width)
    )
    theory = Theory(settings.keys, 0.02, 1.1 * highest)
    rest = (settings.keys, settings.width, settings.blocks, settings.seed)
    return Found(widths, products, seen, theory, *rest)


def measure(settings: SoftmaxGradientSettings, say: Say, show: Show) -> Findings:
    """Measure the saturation over d, at temperatures, of other scores and of losses."""
    found = over_widths(settings, show)
    show(72, 100, "temperatures")
    parts = [variance(found), saturation(found), temperature(found, show)]
    return Findings.joined([*parts, scores(found), losses(found, show)])


LAB = MeasuringLab(
    settings=SoftmaxGradientSettings,
    reference_time=ReferenceTime(18, "one core", scales_with=("blocks",)),
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    next="regard lab exploration",
)
