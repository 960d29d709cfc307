"""Why is q·k divided by √d? The gradient of softmax against the width of queries and keys.

Seeds 001 (exercise 1) and 004 (equation 9.9); Vaswani et al. 2017, section 3.2.1. What is measured
stands in `saturation`, the theory in `analysis.gaussian_softmax`.
"""

import math
from typing import Any

from pydantic import Field
from scipy.stats import chi2

from regard.analysis.gaussian_softmax import Theory
from regard.errors import RegardError
from regard.labs import LabRequest, Say, Show
from regard.labs.finding import Finding, conclude, settings_for
from regard.labs.softmax_gradient.cures import losses, scores
from regard.labs.softmax_gradient.findings import (
    NAMES,
    POWERS,
    saturation,
    slope_of_logs,
    temperature,
    variance,
)
from regard.labs.softmax_gradient.saturation import DEAD, Found, product_variance, see
from regard.settings import Settings

OTHERS = ("gaussian", "additive", "cosine", "cosine-temperature")


class SoftmaxGradientSettings(Settings):
    """What is drawn: normal queries against `keys` keys, d from `low` to `high` by doubling.

    `width`: the d at which the temperature moves; `blocks`: sets of keys, at most, of 64 queries.
    """

    keys: int = Field(64, ge=3, le=1024)
    low: int = Field(4, ge=2)
    high: int = Field(4096, le=8192)
    width: int = Field(64, ge=2, le=1024)
    blocks: int = Field(128, ge=16, le=1024)
    seed: int = Field(0, ge=0, lt=2**40)


def run(request: LabRequest, say: Say, show: Show) -> dict[str, Any]:
    """Draw, attend, fit, tell; the JSON object.

    Errors: settings that do not fit; fewer than three widths.
    """
    settings = settings_for(request, SoftmaxGradientSettings)
    if settings.high < 4 * settings.low:
        raise RegardError(
            f"low={settings.low} and high={settings.high} leave no three widths to fit a line "
            f"through: set high to {4 * settings.low} or more"
        )
    found = measure(settings, show)
    show(72, 100, "temperatures")
    parts = [variance(found), saturation(found), temperature(found, show)]
    parts += [scores(found), losses(found, show)]
    last = found.widths[-1]
    plain, scaled = (found.seen[name, last] for name in NAMES)
    finding = Finding(
        answer=(
            f"The variance of q·k grows as d^{slope_of_logs(found)}. At d = {last} softmax then "
            f"puts {plain.largest.value:.0%} of its weight on one of {settings.keys} keys and "
            f"{plain.dead.value:.0%} of the queries pass no gradient (‖J‖ < {DEAD:g}). "
            f"Divided by √d the variance is 1 at every width, the largest weight "
            f"{scaled.largest.value:.0%}, and {scaled.dead.value:.0%} are dead. Only the "
            f"variance matters: past 2 ln n = {2 * math.log(settings.keys):.1f} softmax freezes."
        ),
        sections=[section for section, _ in parts],
        claims=[one for _, claims in parts for one in claims],
        follows="regard lab exploration",
    )
    return conclude("softmax-gradient", request, finding, say)


def measure(settings: SoftmaxGradientSettings, show: Show) -> Found:
    """Everything over d."""
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
