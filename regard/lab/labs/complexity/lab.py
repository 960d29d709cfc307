"""At which length does each layer become the cheapest? Convolution, recurrence, three attentions.

Operations are counted and compared with Vaswani et al. 2017, table 1; time and memory are measured;
the number of sequential steps is read from the graph of the gradients.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from regard.analysis.growth import shares
from regard.core.settings import build
from regard.lab.labs import Say, Show
from regard.lab.labs.complexity.fits import Fit, cross, fit
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import (
    CHAINS,
    PATHS,
    ComplexitySettings,
    Measured,
    measure,
)
from regard.lab.labs.complexity.report import described
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime

TOLERANCE = 0.05
Claims = Mapping[str, tuple[float, bool]]
#: Pairs of layers: from which length is the first cheaper than the second?
PAIRS = [(name, "self-attention") for name in ("linformer", "window", "rnn", "cnn")]


def measure_all(settings: ComplexitySettings, say: Say, show: Show) -> Measured:
    """Count operations, and measure time and memory."""
    return measure(settings, lambda done, what: show(round(100 * done), 100, what))


def findings(measured: Measured) -> Findings:
    """Fit exponents and return the findings.

    Claims rest on counted operations, which no machine changes.
    """
    fits = {name: fit(measured, name) for name in LAYERS}
    a, b = whole_layer(measured)
    whole = {"whole": (a, max(abs(a - 4), abs(b - 2)) <= TOLERANCE)}
    claims = Findings(
        {**orders(fits), **whole, **chains(measured), **paths(measured)},
        {"products": b, "threads": torch.get_num_threads(),
         "reach": measured.settings.kernel // 2},
    )  # fmt: skip
    crossings = [cross(measured, *pair) for pair in PAIRS]
    return Findings.joined([claims, described(measured, fits, crossings)])


def orders(fits: Mapping[str, Fit]) -> Claims:
    """Return the claims that each layer has the exponents of the table."""
    return {
        f"order-{name}": (fitted.off, fitted.off <= TOLERANCE)
        for name, fitted in fits.items()
        if math.isfinite(fitted.counted[0])
    }


def whole_layer(measured: Measured) -> tuple[float, float]:
    """Return the coefficients of the layer with its projections, which should be 4nd² + 2n²d."""
    settings, (over_n, over_d) = measured.settings, measured.counted.whole
    sizes = [(n, settings.d) for n in settings.lengths]
    sizes += [(settings.middle, d) for d in settings.widths]
    terms = [[n * d**2 for n, d in sizes], [n**2 * d for n, d in sizes]]
    a, b = shares(terms, [*over_n, *over_d])
    return a, b


def chains(measured: Measured) -> Claims:
    """Return the claims about sequential steps: those of the RNN grow with n, others do not."""
    lengths, span = measured.waiting.chains, CHAINS[-1] - CHAINS[0]
    per_step = {name: (chain[-1] - chain[0]) / span for name, chain in lengths.items()}
    others = max(value for name, value in per_step.items() if name != "rnn")
    rnn = per_step["rnn"]
    return {"rnn-chain": (rnn, rnn >= 1), "other-chains": (others, others == 0)}


def paths(measured: Measured) -> Claims:
    """Return the claims about the layers or steps between the two ends."""
    settings, n = measured.settings, PATHS[-1]
    expected = {
        "cnn": math.ceil((n - 1) / (settings.kernel // 2)),
        "dilated cnn": layers_of(settings.kernel, n),
        "rnn": n,
        "self-attention": 1,
        "linformer": 1,
        "window": math.ceil((n - 1) / settings.window),
    }
    ends = {name: path[-1] for name, path in measured.waiting.paths.items()}
    return {f"path-{name}": (end, end == expected[name]) for name, end in ends.items()}


def layers_of(kernel: int, n: int) -> int:
    """Return causal layers whose dilation grows ``kernel``-fold until they reach n places."""
    count = 0
    while kernel**count < n:
        count += 1
    return count


def following(measured: Measured) -> str:
    """Return a wider layer to try, or the benchmark after that."""
    usual = measured.settings == build(ComplexitySettings, {})
    wider = "regard lab complexity d=256 lengths=128,512,2048 batch=4"
    return wider if usual else "regard bench attention --quick"


LAB = MeasuringLab(
    settings=ComplexitySettings,
    reference_time=ReferenceTime(
        45, "two cores, 20 s of them its --budget", note="with lengths to 16,384, 90 s"
    ),
    measure=measure_all,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=following,
)
