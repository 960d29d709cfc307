"""The words, figures and claims on the variance of q·k, and on what softmax makes of it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from regard.lab.labs import Show
from regard.lab.labs.lab import Part, claim
from regard.lab.labs.softmax_gradient.gaussian import Saturation
from regard.lab.labs.softmax_gradient.saturation import (
    DEAD,
    Found,
    Mean,
    Slope,
    fit,
    sorted_weights,
)
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table, film

NAMES = {"dot": "q·k", "scaled-dot": "q·k/√d"}
POWERS = [i / 2 for i in range(-8, 9)]  # temperatures are √d · 2^power
RANKS = 16
AIM = 0.02  # how far the slope of the variance may be from 1


CAPTIONS = {
    "entropy": "What to see: for q·k the entropy is gone soon after ln n − d/2 meets 0.",
    "largest": "What to see: one key takes everything; after division nothing depends on d.",
    "jacobian": "What to see: for q·k it rises first (a choice between two keys passes most), then "
    "falls without end.",
    "dead": "What to see: the wider the queries, the more of them learn nothing at this start.",
}


def variance(found: Found) -> Part:
    """Return row S3: the variance of q·k over d."""
    widths, means = found.widths, [found.products[d] for d in found.widths]
    logs, straight = slope_of_logs(found), fit(widths, means)
    at, scaled = found.many("scaled-dot", "variance")
    worst = max(scaled, key=lambda mean: abs(mean.value - 1))
    over = [
        Mean(*(100 * (x / d - 1) for x in (m.value, m.error, m.low, m.high)))
        for d, m in zip(widths, means, strict=True)
    ]
    chart = line_chart(
        "The variance of a score over the width",
        [
            Series("", widths, [float(d) for d in widths], faint=True),
            Series("", widths, [1.0] * len(widths), faint=True),
            dots("q·k", widths, means, 1),
            dots("q·k/√d", at, scaled, 0),
        ],
        x_label="width d", y_label="variance over the keys", log_x=True, log_y=True,
    )  # fmt: skip
    share = line_chart(
        "How far the variance of q·k is from d",
        [
            Series("theory", widths, [0.0] * len(widths), look=2),
            dots("measured", widths, over, 1),
        ],
        x_label="width d", y_label="variance / d − 1, %", log_x=True, height=300,
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [str(d), m.value, f"{m.low:,.2f} … {m.high:,.2f}", m.value / d, s.value]
        for d, m, s in zip(widths, means, scaled, strict=True)
    ]
    fits: list[list[Cell]] = [
        ["ln variance over ln d", logs.value, str(logs)],
        ["variance over d", straight.value, str(straight)],
    ]
    section = Section(
        "The variance of q·k is d",
        [
            "q·k = Σ q_i k_i is a sum of d products of independent numbers of mean 0 and variance "
            "1: each product has mean 0 and variance 1, so the sum has mean 0 and variance d "
            "(Vaswani et al. 2017, footnote 4). Dividing by √d makes that 1 at every width.",
        ],
        [
            Figure(chart, "Bars are 95 % intervals, pale lines the theory: d and 1."),
            Figure(share, "The same, so that the intervals can be seen."),
        ],
        [
            Table("Slopes, each point weighed by its standard error",
                  ["fitted", "slope", "with 95 % interval"], fits),
            Table("The variance of a score", ["d", "q·k", "95 % interval", "q·k, over d", "q·k/√d"],
                  rows),
        ],
    )  # fmt: skip
    claims = [
        *(
            claim(
                f"the slope of {what} is {slope} (aim: 1.00 ± {AIM})",
                slope.value,
                slope.low >= 1 - AIM and slope.high <= 1 + AIM,
            )
            for what, slope in (("ln variance in ln d", logs), ("the variance in d", straight))
        ),
        claim(
            f"divided by √d the variance is 1 at every width: the furthest is {worst.value:.3f} "
            f"± {worst.error:.3f}",
            worst.value,
            abs(worst.value - 1) <= 4 * worst.error,
        ),
    ]
    return Part(section, claims)


def slope_of_logs(found: Found) -> Slope:
    """Return the exponent of d in the variance of q·k."""
    return fit(found.widths, [found.products[d] for d in found.widths], logs=True)


def saturation(found: Found) -> Part:
    """Return what softmax makes of the two, beside the theory."""
    n, widths, last = found.keys, found.widths, found.widths[-1]
    fine = [widths[0] * (last / widths[0]) ** (i / 60) for i in range(61)]
    curves = [[found.theory.of_products(d, scale(name, d)) for d in fine] for name in NAMES]
    frozen = 2 * math.log(n)
    energy = [max(0.0, math.log(n) - d / 2) for d in fine]

    def chart(title: str, what: str, label: str, *extra: Series, root: bool = False,
              log_y: bool = False) -> Figure:  # fmt: skip
        series = [
            Series("", fine, [power(getattr(s, what), root) for s in curve], faint=True)
            for curve in curves if what != "dead"
        ]  # fmt: skip
        for look, name in ((1, "dot"), (0, "scaled-dot")):
            at, means = found.many(name, what)
            series.append(
                dots(NAMES[name], at, [rooted(m) if root else m for m in means], look, 0.0)
            )
        drawn = line_chart(
            title, [*series, *extra], x_label="width d", y_label=label, log_x=True, log_y=log_y
        )
        return Figure(drawn, CAPTIONS[what])

    medians = [
        Series(f"{NAMES[name]}, {kind}", widths, [value(found.seen[name, d]) for d in widths],
               look=look, dots=kind == "mean")
        for name, looks in (("dot", (1, 3)), ("scaled-dot", (0, 2)))
        for kind, look, value in (
            ("mean", looks[0], lambda s: math.sqrt(s.gradient.value)),
            ("median", looks[1], lambda s: s.gradient_median),
        )
    ]  # fmt: skip
    section = Section(
        "What softmax makes of it",
        [
            f"{n} scores that are independent and normal with variance σ² are Derrida's random "
            f"energy model (1981). As long as σ² < 2 ln n = {frozen:.1f}, the entropy is about "
            "ln n − σ²/2: many keys share the weight. Beyond, it freezes: the largest score alone "
            "decides, and the entropy goes to 0. Pale lines are exact for this n: given q, the "
            "scores are normal with variance ‖q‖², and the mean of each quantity is an integral.",
            "The Jacobian of softmax is J = diag(w) − wwᵀ: the gradient of the scores is J times "
            "that of the weights, and for weights' gradients of variance 1 its mean square is "
            "‖J‖². J is 0 when one weight is 1. The mean falls slowly, since a few queries with "
            "two nearly equal leaders pass all the gradient there is, and for q·k it is multiplied "
            "by long keys on its way to q; the median query passes none. So gradients do not "
            "just get small: most vanish, and a few are large. Both are gone after division by "
            "√d.",
        ],
        [
            chart("Entropy of the weights", "entropy", "entropy, nats",
                  Series("ln n − d/2", fine, energy, look=4)),
            chart("The largest weight", "largest", "largest weight, mean"),
            chart("The Jacobian of softmax", "jacobian", "‖J‖, root mean square", root=True,
                  log_y=True),
            chart("Queries that pass no gradient", "dead", f"share of queries with ‖J‖ < {DEAD:g}"),
            Figure(
                line_chart("The gradient that reaches a query", medians, x_label="width d",
                           y_label="‖∂loss/∂q‖", log_x=True, log_y=True),
                "What to see: for q·k the mean grows while the median falls by orders of "
                "magnitude; for q·k/√d the two stay together and the same at every width.",
            ),
        ],
        [
            Table(
                f"Softmax of {said} over {n} keys",
                ["d", "entropy", "theory", "largest", "theory", "‖J‖", "theory", "median ‖J‖",
                 "dead", "gradient of q", "median"],
                [row(found, name, d) for d in widths],
                "Root mean squares for ‖J‖ and the gradient of q.",
            )
            for name, said in NAMES.items()
        ],
    )  # fmt: skip
    away = [
        abs(getattr(found.seen[name, d], what).value - getattr(theory, what))
        / getattr(found.seen[name, d], what).error
        for name in NAMES
        for d in widths
        for theory in [found.theory.of_products(d, scale(name, d))]
        for what in ("entropy", "largest", "jacobian")
    ]
    plain, scaled = (found.seen[name, last] for name in NAMES)
    claims = [
        claim(
            f"at d = {last} softmax of q·k sees {math.exp(plain.entropy.value):.2f} of {n} keys "
            f"(e to the entropy); of q·k/√d {math.exp(scaled.entropy.value):.1f}",
            math.exp(plain.entropy.value),
            plain.entropy.high < scaled.entropy.low,
        ),
        claim(
            f"there {plain.dead.value:.1%} of the queries are dead (‖J‖ < {DEAD:g}), and "
            f"{scaled.dead.value:.1%} with the division; the median ‖J‖ is "
            f"{plain.jacobian_median:.1e} and {scaled.jacobian_median:.3f}",
            plain.dead.value,
            plain.dead.value > scaled.dead.value and scaled.dead.value < 0.001,
        ),
        claim(
            f"all {len(away)} measured entropies, largest weights and ‖J‖² are those of theory: "
            f"the furthest is {max(away):.1f} standard errors off",
            max(away),
            max(away) <= 5,  # of some 66, by Student's t with as few as 15 degrees of freedom
        ),
    ]
    far = [d for d in widths if d >= 4 * frozen]
    if len(far) >= 3:
        means = [found.seen["dot", d].jacobian for d in far]
        exact = [
            replace(mean, value=found.theory.of_products(d).jacobian)
            for d, mean in zip(far, means, strict=True)
        ]
        falling, wanted = fit(far, means, logs=True), fit(far, exact, logs=True).value
        claims.append(
            claim(
                f"the mean dies slowly, the median fast: from d = {far[0]} on the mean of "
                f"‖J‖² falls as d^{falling} (theory: −{-wanted:.3f} here, −½ for d → ∞, by queries "
                "with two nearly equal leaders)",
                falling.value,
                falling.low - 0.05 <= wanted <= falling.high + 0.05,
            )
        )
    return Part(section, claims)


def temperature(found: Found, show: Show) -> Part:
    """Return what a temperature does: softmax(q·k / T), step by step."""
    d, n = found.width, found.keys
    curves, rows, frames, sights = {}, [], [], {}
    ranks = [float(i + 1) for i in range(min(RANKS, n))]
    for i, power_of_two in enumerate(POWERS):
        show(72 + 10 * i / len(POWERS), 100, "temperatures")
        hot = math.sqrt(d) * 2**power_of_two
        curves[hot], sights[hot] = sorted_weights(d, n, hot, min(found.blocks, 64),
                                                  found.seed)  # fmt: skip
    all_of_them = [Series("", ranks, [0.0, *[1.0] * (len(ranks) - 1)])]
    for hot, curve in curves.items():
        measured, theory = sights[hot], found.theory.of_products(d, 1 / hot)
        says = f"T = {hot:.3g} = √d × {hot / math.sqrt(d):.3g}"
        drawn = line_chart(
            f"Weights in order, {says}",
            [Series("", ranks, curve[: len(ranks)].tolist(), look=0),
             Series("", ranks, curve[: len(ranks)].tolist(), look=0, dots=True)],
            x_label="rank of the key", y_label="weight, mean", same_scale=all_of_them, height=320,
        )  # fmt: skip
        frames.append((says, drawn))
        rows.append([
            hot, hot / math.sqrt(d), measured.variance.value, measured.entropy.value,
            theory.entropy,
            math.exp(measured.entropy.value), measured.largest.value,
            rooted(measured.jacobian).value,
            measured.dead.value,
        ])  # fmt: skip
    spreads = [math.sqrt(sight.variance.value) for sight in sights.values()]
    best = max(sights, key=lambda hot: sights[hot].jacobian.value)
    kind = list(curves)
    moving = Figure(
        film("Temperature", frames),
        "Move the slider. What to see: cold (small T), one key has it all; hot, all are alike; "
        "between T = √d/4 and 4√d lies all there is to choose.",
    )
    over = line_chart(
        "Temperature: what softmax passes",
        [
            Series("‖J‖, rms", kind, [rooted(s.jacobian).value for s in sights.values()], look=1),
            Series("largest weight", kind, [s.largest.value for s in sights.values()], look=0),
            Series("entropy / ln n", kind,
                   [s.entropy.value / math.log(n) for s in sights.values()], look=2),
        ],
        x_label="temperature T", y_label="share", log_x=True,
    )  # fmt: skip
    section = Section(
        f"Temperature: softmax(q·k / T) at d = {d}",
        [
            "Dividing by √d is one temperature among all. It is not the one at which softmax "
            f"passes most gradient (of those tried that is T = {best:.3g}, where "
            f"{math.exp(sights[best].entropy.value):.1f} keys are seen), but the one "
            "at which a new network starts with a variance of 1 whatever its width, so that "
            "training, by the length of q and k, may choose its own.",
        ],
        [moving, Figure(over, "What to see: ‖J‖ has its top between freezing and indifference.")],
        [
            Table(
                "Rows of the slider",
                ["T", "T/√d", "variance", "entropy", "theory", "keys seen", "largest", "‖J‖",
                 "dead"],
                rows,
            )
        ],
    )  # fmt: skip
    ends = [sights[kind[0]], sights[kind[-1]]]
    claims = [
        claim(
            f"a temperature does all that the division does: from T = √d/16 to 16√d (scores' "
            f"deviation {spreads[0]:.1f} to {spreads[-1]:.2f}) the entropy goes from "
            f"{ends[0].entropy.value:.2f} to {ends[1].entropy.value:.2f} of ln n = "
            f"{math.log(n):.2f} nats",
            ends[1].entropy.value,
            ends[0].entropy.value < 0.5 * ends[1].entropy.value
            and ends[1].entropy.value > 0.99 * math.log(n),
        )
    ]
    return Part(section, claims)


def scale(name: str, width: float) -> float:
    """Return the factor before q·k."""
    return 1.0 if name == "dot" else float(width**-0.5)


def power(value: float, root: bool) -> float:
    """Return a value or its root."""
    return math.sqrt(max(value, 0.0)) if root else value


def rooted(mean: Mean) -> Mean:
    """Return the root of a mean of squares, its interval too."""
    value = math.sqrt(max(mean.value, 0.0))
    error = mean.error / (2 * value) if value else 0.0
    return Mean(value, error, math.sqrt(max(mean.low, 0.0)), math.sqrt(max(mean.high, 0.0)))


def dots(
    name: str, x: Sequence[float], means: Sequence[Mean], look: int, least: float = -math.inf
) -> Series:
    """Return means with their intervals; no bar goes below what the quantity can be at `least`."""
    low, high = [max(m.low, least) for m in means], [m.high for m in means]
    return Series(name, x, [m.value for m in means], look, dots=True, low=low, high=high)


def row(found: Found, name: str, width: int) -> list[Cell]:
    """Return a score at a width, measured and by theory."""
    measured = found.seen[name, width]
    theory: Saturation = found.theory.of_products(width, scale(name, width))
    return [
        str(width), measured.entropy.value, theory.entropy, measured.largest.value, theory.largest,
        rooted(measured.jacobian).value, power(theory.jacobian, True), measured.jacobian_median,
        measured.dead.value, rooted(measured.gradient).value, measured.gradient_median,
    ]  # fmt: skip
