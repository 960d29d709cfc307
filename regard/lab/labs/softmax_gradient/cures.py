"""The figures and claims on which scores need scaling, and on the softmax of a loss."""

import math

from regard.lab.labs import Show
from regard.lab.labs.lab import Findings
from regard.lab.labs.softmax_gradient.findings import AIM, dots, rooted
from regard.lab.labs.softmax_gradient.saturation import (
    MOST,
    Found,
    additive_variance,
    fit,
    steps_to_turn,
)
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell

GAPS = [0.5 * i for i in range(19)]


def scores(found: Found) -> Findings:
    """Return the findings on which scores need scaling."""
    cure = {
        "dot": "divide by √d",
        "scaled-dot": "nothing",
        "gaussian": "w² = 1/√d",
        "additive": "nothing",
        "cosine": "multiply by √d",
        "cosine-temperature": "nothing",
    }
    slopes = {name: fit(*found.many(name, "variance"), logs=True) for name in cure}
    rows: list[list[Cell]] = []
    for name, slope in slopes.items():
        at, means = found.many(name, "variance")
        first, last = (found.seen[name, d] for d in (at[0], at[-1]))
        rows.append(
            [name, str(slope), means[0].value, means[-1].value,
             math.exp(first.entropy.value), math.exp(last.entropy.value), cure[name]]
        )  # fmt: skip
    looks = {"scaled-dot": 0, "dot": 1, "additive": 2, "cosine": 3, "gaussian": 4}
    charts = {}
    for what, title, label in (
        ("variance", "Variance of six scores over the width", "variance over the keys"),
        ("entropy", "Entropy under six scores", "entropy, nats"),
    ):
        series = []
        for name in cure:
            at, means = found.many(name, what)
            ends = [(mean.value, mean.low, mean.high) for mean in means]
            series.append(Series.ranged(name, at, ends, looks.get(name, 5)))
        charts[f"scores-{what}"] = line_chart(
            title, series, x_label="width d", y_label=label, log_x=True, log_y=what == "variance",
            height=400,
        )  # fmt: skip
    columns = ["score", "slope of ln variance in ln d", f"variance, d = {found.widths[0]}",
               "variance, widest", "keys seen", "keys seen, widest", "needs"]  # fmt: skip
    still, cosine, heated = (slopes[name] for name in ("additive", "cosine", "cosine-temperature"))
    return Findings(
        {
            "additive": (still.value, still.low <= 0.03 and still.high >= -0.03),
            "cosine": (cosine.value, abs(cosine.value + 1) <= AIM and abs(heated.value) <= AIM),
        },
        {"additive_widest": found.many("additive", "variance")[1][-1].value,
         "additive_theory": additive_variance(), "slopes": slopes},
        charts,
        {"scores": (columns, rows)},
    )  # fmt: skip


def losses(found: Found, show: Show) -> Findings:
    """Return the findings on why gradients vanish in attention's softmax, not in the loss's."""
    n = found.keys
    spreads = [0.1 * (found.theory.high / 0.1) ** (i / 50) for i in range(51)]
    theory = [found.theory.at(spread) for spread in spreads]
    at, means = found.many("dot", "jacobian")
    medians = [found.seen["dot", d].jacobian_median for d in at]
    labels = [rooted(mean) for mean in found.many("dot", "label")[1]]
    sizes = [math.sqrt(d) for d in at]
    wrong = [math.sqrt(s.concentration + 1 - 2 / n) for s in theory]
    chart = line_chart(
        "Gradient of the scores, as their spread grows",
        [
            Series("", spreads, wrong, faint=True),
            dots("−ln w_y", sizes, labels, 2),
            Series("", spreads, [math.sqrt(s.jacobian) for s in theory], faint=True),
            dots("‖J‖, mean", sizes, [rooted(m) for m in means], 1),
            Series("‖J‖, median", sizes, medians, look=3),
        ],
        x_label="standard deviation of the scores", y_label="norm of the gradient", log_x=True,
        log_y=True,
    )  # fmt: skip
    show(84, 100, "turning a head")
    log = steps_to_turn(GAPS, 2, "log", lambda _: None)
    output = steps_to_turn(GAPS, 2, "output", lambda done: show(85 + 14 * done, 100, "turning"))
    pairs = [(g, s) for g, s in zip(GAPS, output, strict=True) if g >= 6 and math.isfinite(s)]
    rate = (math.log(pairs[-1][1]) - math.log(pairs[0][1])) / (pairs[-1][0] - pairs[0][0])
    turning = line_chart(
        "Steps until the right key has half of the weight",
        [
            Series("through c", GAPS, output, look=1, dots=True),
            Series("through −ln w", GAPS, log, look=0, dots=True),
            Series("e^gap / 4", GAPS[4:], [math.exp(gap) / 4 for gap in GAPS[4:]], look=4),
            Series("gap / 2", GAPS[2:], [gap / 2 for gap in GAPS[2:]], look=5),
        ],
        x_label="lead of the wrong key's score", y_label="steps", log_y=True,
    )  # fmt: skip
    lead, slow = pairs[-1]
    sure = labels[-1].value
    dying = labels[0].value < sure <= math.sqrt(2) and medians[-1] < max(medians) / 2
    columns = ["lead of the wrong key", "through c", "through −ln w"]
    rows = [[gap, a, b] for gap, a, b in zip(GAPS, output, log, strict=True)]
    return Findings(
        {"label": (sure, dying), "turning": (rate, abs(rate - 1) <= 0.1)},
        {"widest_deviation": sizes[-1], "last_median": medians[-1], "longest_lead": lead,
         "steps_inside": slow, "steps_under_log": log[GAPS.index(lead)], "most_steps": MOST},
        {"losses": chart, "steps": turning},
        {"steps-table": (columns, rows)},
    )  # fmt: skip
