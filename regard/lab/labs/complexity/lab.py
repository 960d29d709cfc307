"""From which length does which layer pay? Convolution, recurrence, attention and two cures of n².

Operations are counted and held against the table of Vaswani et al. 2017 (table 1); time and memory
are measured; what must wait for what is read off the graph of the gradients.
"""

import math
from dataclasses import dataclass

import torch

from regard.analysis.growth import shares
from regard.core.settings import build
from regard.lab.labs import Say, Show
from regard.lab.labs.complexity.fits import Crossing, Fit, cross, fit, rounded
from regard.lab.labs.complexity.layers import LAYERS
from regard.lab.labs.complexity.measures import (
    CHAINS,
    PATHS,
    ComplexitySettings,
    Measured,
    measure,
)
from regard.lab.labs.complexity.report import sections
from regard.lab.labs.lab import Claim, MeasuringLab, ReferenceTime, claim

TOLERANCE = 0.05
#: Who is asked to undercut whom.
PAIRS = [(name, "self-attention") for name in ("linformer", "window", "rnn", "cnn")]


@dataclass(frozen=True)
class Compared:
    """The measurements, the fitted exponents, and the lengths from which each layer is cheaper."""

    measured: Measured
    fits: dict[str, Fit]
    crossings: list[Crossing]


def compare(settings: ComplexitySettings, say: Say, show: Show) -> Compared:
    """Count, measure, fit."""
    measured = measure(settings, lambda done, what: show(round(100 * done), 100, what))
    fits = {name: fit(measured, name) for name in LAYERS}
    return Compared(measured, fits, [cross(measured, *pair) for pair in PAIRS])


def claims(found: Compared) -> list[Claim]:
    """Return what to look for; all of it counted, so that it is the same on every machine."""
    counted = found.measured
    return [*orders(found.fits), *whole_layer(counted), *chains(counted), *paths(counted)]


def orders(fits: dict[str, Fit]) -> list[Claim]:
    """Return each layer's exponents beside the table's."""
    results = []
    for name, fitted in fits.items():
        if not math.isfinite(fitted.counted[0]):
            continue
        where = f" (from n = {fitted.lengths[0]:,} on)" if name == "window" else ""
        off = fitted.off
        says = f"{name}: counted operations grow as {fitted.says}{where}; {fitted.order} says "
        says += f"{fitted.table_says}: at most {off:.3f} apart"
        results.append(claim(says, off, off <= TOLERANCE))
    return results


def whole_layer(measured: Measured) -> list[Claim]:
    """Fit the coefficients of the layer with its projections: 4nd² + 2n²d."""
    settings, (over_n, over_d) = measured.settings, measured.counted.whole
    sizes = [(n, settings.d) for n in settings.lengths]
    sizes += [(settings.middle, d) for d in settings.widths]
    terms = [[n * d**2 for n, d in sizes], [n**2 * d for n, d in sizes]]
    a, b = shares(terms, [*over_n, *over_d])
    says = f"self-attention with its four projections counts {a:.2f}·nd² + {b:.2f}·n²d "
    says += "multiplications with their additions: 4nd² + 2n²d, so that the projections are "
    says += f"the larger part below n = 2d = {2 * settings.d}"
    off = max(abs(a - 4), abs(b - 2))
    return [claim(says, a, off <= TOLERANCE)]


def chains(measured: Measured) -> list[Claim]:
    """Return what must wait: the RNN's chain grows with n, the others' do not."""
    lengths, span = measured.waiting.chains, CHAINS[-1] - CHAINS[0]
    per_step = {name: (chain[-1] - chain[0]) / span for name, chain in lengths.items()}
    others = max(value for name, value in per_step.items() if name != "rnn")
    return [
        claim(
            f"rnn: every position adds {per_step['rnn']:.2f} operations that must wait for the one "
            f"before ({lengths['rnn'][-1]} in a row at n = {CHAINS[-1]}): O(n)",
            per_step["rnn"],
            per_step["rnn"] >= 1,
        ),
        claim(
            f"all others: a position adds {others:.2f} (at every n: "
            + ", ".join(f"{name} {lengths[name][-1]}" for name in lengths if name != "rnn")
            + "): O(1)",
            others,
            others == 0,
        ),
    ]


def paths(measured: Measured) -> list[Claim]:
    """Return layers or steps between the two ends."""
    lengths, settings = measured.waiting.paths, measured.settings
    n, far, kernel = PATHS[-1], PATHS[-1] - 1, settings.kernel
    reach = kernel // 2
    expected = {
        "cnn": math.ceil(far / reach),
        "dilated cnn": layers_of(kernel, n),
        "rnn": n,
        "self-attention": 1,
        "linformer": 1,
        "window": math.ceil(far / settings.window),
    }
    formula = {
        "cnn": f"layers, (n − 1)/{reach} rounded up: O(n/k)",
        "dilated cnn": f"layers, log of n to the base {kernel} rounded up: O(log_k n)",
        "rnn": "steps, n: O(n)",
        "self-attention": "layer: O(1)",
        "linformer": "layer: O(1)",
        "window": f"layers, (n − 1)/{settings.window} rounded up: O(n/w)",
    }
    return [
        claim(
            f"{name}: the last output of {n} sees the first input after {value[-1]:g} "
            f"{formula[name]}",
            value[-1],
            value[-1] == expected[name],
        )
        for name, value in lengths.items()
    ]


def layers_of(kernel: int, n: int) -> int:
    """Return causal layers whose dilation grows ``kernel``-fold until they reach n places."""
    count = 0
    while kernel**count < n:
        count += 1
    return count


def answer(found: Compared) -> str:
    """Return the result in a few sentences."""
    measured = found.measured
    settings, how = measured.settings, measured.last
    crossings = "; ".join(f"{c.ours} {c.says(how, settings.lengths)}" for c in found.crossings)
    off = max(fitted.off for fitted in found.fits.values())
    threads = torch.get_num_threads()
    top = settings.lengths[-1]
    faster = ", ".join(
        f"{name} {rounded(1 / measured.ratios(how, name, 'self-attention')[-1].median)}"
        for name in LAYERS
        if name != "self-attention"
    )
    whole = "with its projections" if settings.projections else "without projections"
    return (
        f"Here ({threads} thread{'s' * (threads > 1)}, float32, d = {settings.d}, batch "
        f"{settings.batch}, {how}, attention {whole}), each is faster than self-attention: "
        f"{crossings}. How many times as fast at n = {top:,}: {faster}. Counted operations grow as "
        f"the table says, exponents at most {off:.3f} apart."
    )


def following(found: Compared) -> str:
    """Return a wider layer to try, or the benchmark after that."""
    usual = found.measured.settings == build(ComplexitySettings, {})
    wider = "regard lab complexity d=256 lengths=128,512,2048 batch=4"
    return wider if usual else "regard bench attention --quick"


LAB = MeasuringLab(
    settings=ComplexitySettings,
    reference_time=ReferenceTime(
        45, "two cores, 20 s of them its --budget", note="with lengths to 16,384, 90 s"
    ),
    measure=compare,
    figures=lambda found: sections(found.measured, found.fits, found.crossings),
    claims=claims,
    answer=answer,
    next=following,
)
