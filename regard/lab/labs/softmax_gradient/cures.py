"""The words, figures and claims on which scores need scaling, and on the softmax of a loss."""

import math

from regard.lab.labs import Show
from regard.lab.labs.lab import Part, claim
from regard.lab.labs.softmax_gradient.findings import AIM, dots, rooted
from regard.lab.labs.softmax_gradient.saturation import (
    MOST,
    Found,
    additive_variance,
    fit,
    steps_to_turn,
)
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table

GAPS = [0.5 * i for i in range(19)]


def scores(found: Found) -> Part:
    """Return the section on the scores that need the scaling."""
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
    charts = []
    for what, title, label in (
        ("variance", "Variance of six scores over the width", "variance over the keys"),
        ("entropy", "Entropy under six scores", "entropy, nats"),
    ):
        series = []
        for name in cure:
            at, means = found.many(name, what)
            low, high = [m.low for m in means], [m.high for m in means]
            series.append(
                Series(name, at, [m.value for m in means], look=looks.get(name, 5), low=low,
                       high=high)
            )  # fmt: skip
        charts.append(
            line_chart(title, series, x_label="width d", y_label=label, log_x=True,
                       log_y=what == "variance", height=400)
        )  # fmt: skip
    expected, wide = additive_variance(), found.many("additive", "variance")[1][-1]
    section = Section(
        "Which scores need it?",
        [
            "Gaussian (w = 1): −‖q − k‖²/2 holds q·k and a half of ‖k‖², variance 1.5 d: it "
            "freezes as q·k does; w² = 1/√d cures it (regard's start when the width is told).",
            "Additive, w·tanh(W_q q + W_k k + b): every hidden unit is at most 1, so no score "
            "leaves ± Σ|w_i|, and with weights uniform in ± 1/√fan-in the variance is "
            f"{expected:.4f} however wide. It needs no division; if anything it starts too calm.",
            "Cosine lies in ± 1 and has variance 1/d: wide vectors are all nearly orthogonal, and "
            "softmax sees no difference. It needs the opposite: a factor of √d, the start of "
            "cosine-temperature, whose factor is then learned.",
        ],
        [
            Figure(charts[0], "What to see: two rise with d, three stay, one falls."),
            Figure(charts[1], "What to see: at the top, attention is a plain mean; at the bottom, "
                   "one key."),
        ],
        [
            Table(
                "Scores at their start",
                ["score", "slope of ln variance in ln d", f"variance, d = {found.widths[0]}",
                 "variance, widest", "keys seen", "keys seen, widest", "needs"],
                rows,
            )
        ],
    )  # fmt: skip
    claims = [
        claim(
            f"additive scores keep their variance: {wide.value:.4f} at the widest, by theory "
            f"{expected:.4f}; slope {slopes['additive']}",
            slopes["additive"].value,
            slopes["additive"].low <= 0.03 and slopes["additive"].high >= -0.03,
        ),
        claim(
            f"cosine's variance falls as 1/d: slope {slopes['cosine']}; with a factor of √d "
            f"{slopes['cosine-temperature']}",
            slopes["cosine"].value,
            abs(slopes["cosine"].value + 1) <= AIM
            and abs(slopes["cosine-temperature"].value) <= AIM,
        ),
    ]
    return Part(section, claims)


def losses(found: Found, show: Show) -> Part:
    """Return the section on why the softmax inside dies and that of the loss does not."""
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
    slow, quick = pairs[-1][1], log[GAPS.index(pairs[-1][0])]
    section = Section(
        "Why a lone softmax saturates (001, exercise 1)",
        [
            "Inside attention the loss reaches the scores through the weights: ∂L/∂s = J ∂L/∂w, "
            "and every entry of J holds a factor w_i. When one weight is 1, J is 0, whatever the "
            "loss wants. In the last layer softmax is not alone: ∂(−ln w_y)/∂s = J (−e_y / w_y) = "
            "w − e_y. The logarithm divides by the very w_y that made J small; the gradient is "
            "small only when the answer is right, and √2 when softmax is sure and wrong.",
            "So attention has to be started where J lives: hence √d. A loss of logits needs no "
            "such care.",
            "Two keys, gradient descent with rate 1, from a score gap in favour of the wrong one: "
            "through the output, ½‖c − v_right‖², the speed is proportional to w_right and the "
            "time grows as e^gap; through the logarithm the speed is constant and the time grows "
            "as the gap.",
        ],
        [
            Figure(chart, "The label y of −ln w_y is drawn without looking at the scores. What to "
                   "see: its gradient grows to √2; that of a softmax inside dies, the median "
                   "exponentially."),
            Figure(turning, f"At most {MOST:,} steps. What to see: a straight line on a "
                   "logarithmic axis, against one that hardly rises."),
        ],
        [
            Table("Steps until the right key has half of the weight",
                  ["lead of the wrong key", "through c", "through −ln w"],
                  [[gap, a, b] for gap, a, b in zip(GAPS, output, log, strict=True)],
                  f"A dash: over {MOST:,} steps.")
        ],
    )  # fmt: skip
    sure = labels[-1].value
    claims = [
        claim(
            f"as the scores' deviation grows to {sizes[-1]:.0f}, the gradient of −ln w_y grows "
            f"to {sure:.2f} (√2 = 1.41) while the median ‖J‖ goes to {medians[-1]:.1e}",
            sure,
            labels[0].value < sure <= math.sqrt(2) and medians[-1] < max(medians) / 2,
        ),
        claim(
            f"from a lead of {pairs[-1][0]:g} a softmax inside takes {slow:.0f} steps to turn, one "
            f"under a logarithm {quick:.0f}; each unit of lead takes e^{rate:.2f} times as long "
            "(theory: e)",
            rate,
            abs(rate - 1) <= 0.1,
        ),
    ]
    return Part(section, claims)
