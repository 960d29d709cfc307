"""The figures and claims on the variance of q·k, and its effect on softmax."""

import math
from collections.abc import Sequence
from dataclasses import replace

from regard.lab.labs import Show
from regard.lab.labs.lab import Findings
from regard.lab.labs.softmax_gradient.gaussian import Saturation
from regard.lab.labs.softmax_gradient.saturation import DEAD, Found, Mean, fit, sorted_weights
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell, film
from regard.lab.reports.markup import Html

NAMES = {"dot": "q·k", "scaled-dot": "q·k/√d"}
POWERS = [i / 2 for i in range(-8, 9)]  # temperatures are √d · 2^power
RANKS = 16
AIM = 0.02  # how far the slope of the variance may be from 1


def variance(found: Found) -> Findings:
    """Return row S3: the variance of q·k over d."""
    widths, means = found.widths, [found.products[d] for d in found.widths]
    logs, straight = fit(widths, means, logs=True), fit(widths, means)
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
    columns = ["d", "q·k", "95 % interval", "q·k, over d", "q·k/√d"]
    return Findings(
        {
            **{
                key: (slope.value, slope.low >= 1 - AIM and slope.high <= 1 + AIM)
                for key, slope in (("slope-of-logs", logs), ("slope", straight))
            },
            "divided": (worst.value, abs(worst.value - 1) <= 4 * worst.error),
        },
        {"logs": logs, "straight": straight, "aim": AIM, "worst": worst},
        {"variance": chart, "variance-share": share},
        {
            "slopes": (["fitted", "slope", "with 95 % interval"], fits),
            "variances": (columns, rows),
        },
    )


def saturation(found: Found) -> Findings:
    """Return the saturation of softmax with and without scaling, measured and by theory."""
    n, widths, last = found.keys, found.widths, found.widths[-1]
    fine = [widths[0] * (last / widths[0]) ** (i / 60) for i in range(61)]
    curves = [[found.theory.of_products(d, scale(name, d)) for d in fine] for name in NAMES]
    frozen = 2 * math.log(n)
    energy = [max(0.0, math.log(n) - d / 2) for d in fine]

    def chart(title: str, what: str, label: str, *extra: Series, root: bool = False,
              log_y: bool = False) -> Html:  # fmt: skip
        series = [
            Series("", fine, [power(getattr(s, what), root) for s in curve], faint=True)
            for curve in curves if what != "dead"
        ]  # fmt: skip
        for look, name in ((1, "dot"), (0, "scaled-dot")):
            at, means = found.many(name, what)
            series.append(
                dots(NAMES[name], at, [rooted(m) if root else m for m in means], look, 0.0)
            )
        return line_chart(
            title, [*series, *extra], x_label="width d", y_label=label, log_x=True, log_y=log_y
        )

    medians = [
        Series(f"{NAMES[name]}, {kind}", widths, [value(found.seen[name, d]) for d in widths],
               look=look, dots=kind == "mean")
        for name, looks in (("dot", (1, 3)), ("scaled-dot", (0, 2)))
        for kind, look, value in (
            ("mean", looks[0], lambda s: math.sqrt(s.gradient.value)),
            ("median", looks[1], lambda s: s.gradient_median),
        )
    ]  # fmt: skip
    figures = {
        "entropy": chart("Entropy of the weights", "entropy", "entropy, nats",
                         Series("ln n − d/2", fine, energy, look=4)),
        "largest": chart("The largest weight", "largest", "largest weight, mean"),
        "jacobian": chart("The Jacobian of softmax", "jacobian", "‖J‖, root mean square",
                          root=True, log_y=True),
        "dead": chart("Queries that pass no gradient", "dead",
                      f"share of queries with ‖J‖ < {DEAD:g}"),
        "gradient": line_chart("The gradient that reaches a query", medians, x_label="width d",
                               y_label="‖∂loss/∂q‖", log_x=True, log_y=True),
    }  # fmt: skip
    columns = ["d", "entropy", "theory", "largest", "theory", "‖J‖", "theory", "median ‖J‖",
               "dead", "gradient of q", "median"]  # fmt: skip
    tables = {f"softmax-{name}": (columns, [row(found, name, d) for d in widths]) for name in NAMES}
    away = [
        abs(getattr(found.seen[name, d], what).value - getattr(theory, what))
        / getattr(found.seen[name, d], what).error
        for name in NAMES
        for d in widths
        for theory in [found.theory.of_products(d, scale(name, d))]
        for what in ("entropy", "largest", "jacobian")
    ]
    plain, scaled = (found.seen[name, last] for name in NAMES)
    seen = math.exp(plain.entropy.value)
    claims = {
        "keys-seen": (seen, plain.entropy.high < scaled.entropy.low),
        "dead": (
            plain.dead.value,
            plain.dead.value > scaled.dead.value and scaled.dead.value < 0.001,
        ),
        # of some 66, by Student's t with as few as 15 degrees of freedom
        "theory": (max(away), max(away) <= 5),
    }
    values = {
        "last": last, "keys": n, "plain": plain, "scaled": scaled, "dead": DEAD, "frozen": frozen,
        "keys_seen_scaled": math.exp(scaled.entropy.value), "compared": len(away), "names": NAMES,
        "falling": None,
    }  # fmt: skip
    far = [d for d in widths if d >= 4 * frozen]
    if len(far) >= 3:
        means = [found.seen["dot", d].jacobian for d in far]
        exact = [
            replace(mean, value=found.theory.of_products(d).jacobian)
            for d, mean in zip(far, means, strict=True)
        ]
        falling, wanted = fit(far, means, logs=True), fit(far, exact, logs=True).value
        near = falling.low - 0.05 <= wanted <= falling.high + 0.05
        claims["falling"] = (falling.value, near)
        values |= {"falling": falling, "falling_from": far[0], "falling_theory": wanted}
    return Findings(claims, values, figures, tables)


def temperature(found: Found, show: Show) -> Findings:
    """Return the effect of a temperature: softmax(q·k / T), step by step."""
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
    cold, hot = (sights[kind[i]].entropy.value for i in (0, -1))
    most = math.log(n)
    columns = ["T", "T/√d", "variance", "entropy", "theory", "keys seen", "largest", "‖J‖", "dead"]
    return Findings(
        {"temperature": (hot, cold < 0.5 * hot and hot > 0.99 * most)},
        {"width": d, "best": best, "best_keys_seen": math.exp(sights[best].entropy.value),
         "coldest": spreads[0], "hottest": spreads[-1], "cold_entropy": cold, "log_keys": most},
        {"temperature": film("Temperature", frames), "passed": over},
        {"temperatures": (columns, rows)},
    )  # fmt: skip


def scale(name: str, width: float) -> float:
    """Return the factor before q·k."""
    return 1.0 if name == "dot" else float(width**-0.5)


def power(value: float, root: bool) -> float:
    """Return a value or its square root."""
    return math.sqrt(max(value, 0.0)) if root else value


def rooted(mean: Mean) -> Mean:
    """Return the root of a mean of squares, with the roots of its interval."""
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
