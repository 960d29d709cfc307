"""What can one head do, and what do two add? Attention exploration, measured.

CS224N winter 2022, assignment 5, part 1: copying; taking one value out of a sum; the average of
two; one head and a key of varying norm; two heads. The last two stand in `two_heads`.
"""

import math
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import SCORES, attend
from regard.lab.labs import Say, Show
from regard.lab.labs.exploration import two_heads, varying_key
from regard.lab.labs.exploration.extraction import EXACT, extraction, mix, projector, two_bases
from regard.lab.labs.exploration.varying_key import ExplorationSettings, expected, orthonormal
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Cell

TRIES = 500  # draws of keys where more would not change the result
ALPHAS = (1e-6, 1e-4, 1e-2)
BETAS = [0.5 * 60 ** (i / 29) for i in range(30)]  # 0.5 … 30
DOT = SCORES["dot"]()

Errors = Float[Tensor, "..."]


def measure(settings: ExplorationSettings, say: Say, show: Show) -> Findings:
    """Measure the four parts of the assignment."""
    show(0, 10, "copying")
    parts = [copying(settings)]
    show(1, 10, "taking a value out of a sum")
    parts.append(extraction(settings.d, settings.bases, settings.seed))
    show(2, 10, "the average of two")
    parts.append(average(settings))
    measured = varying_key.measure(
        settings, lambda done: show(3 + 7 * done, 10, "one head and two")
    )
    return Findings.joined([*parts, two_heads.findings(settings, measured)])


LAB = MeasuringLab(
    settings=ExplorationSettings,
    reference_time=ReferenceTime(5, "one core", scales_with=("draws", "bases")),
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    next="regard lab softmax-gradient",
)


def copying(settings: ExplorationSettings) -> Findings:
    """Test (a): q = βk_j, for orthonormal keys and for random keys of length 1."""
    n, generator = settings.keys, torch.Generator().manual_seed(settings.seed)
    betas = torch.tensor(BETAS, dtype=torch.float64)
    keys, values = orthonormal(generator, settings.d, n), unit_rows(generator, n, settings.d)
    random = unit_rows(generator, TRIES, n, settings.d)
    widest = float((values - values[0]).norm(dim=-1).max())
    error = copy_errors(keys, values, betas)
    sparse = copy_errors(keys, values, betas, "sparsemax")
    drawn = copy_errors(random, values, betas)  # (tries, betas)
    leads = betas * (1 - (random[:, 1:] @ random[:, 0, :, None]).amax((-2, -1))[:, None])
    bound, limits = widest * others(betas, n), widest * others(leads, n)
    tightest = max(float((error / bound).max()), float((drawn / limits).max()))
    half = math.log(n - 1)
    weight = float(attend(half * keys[:1], keys, values, DOT).weights[0, 0])
    done = [beta for beta, e in zip(BETAS, sparse.tolist(), strict=True) if e <= EXACT]
    exact_from = min(done, default=math.nan)
    over_beta = line_chart(
        "Copying v_j: the error over β, for q = βk_j",
        [
            Series("its bound", BETAS, bound.tolist(), look=1),
            Series("orthonormal keys", BETAS, error.tolist(), dots=True),
            Series("random keys (mean)", BETAS, drawn.mean(0).tolist(), look=2),
            Series("sparsemax", BETAS, sparse.clamp(min=1e-15).tolist(), look=3),
        ],
        x_label="β", y_label="‖c − v_j‖", log_y=True,
    )  # fmt: skip
    steps = [half + 0.25 * i for i in range(-20, 29)]
    turn = line_chart(
        "The weight of key j",
        [Series("α_j", steps, [1 - s for s in others(torch.tensor(steps), n).tolist()])],
        x_label="lead of k_j·q", y_label="α_j", width=340, height=320,
    )  # fmt: skip
    some = torch.randperm(leads.numel(), generator=generator)[:400]
    line = sorted(leads.flatten()[some].tolist())
    under = line_chart(
        "Random keys: under the bound",
        [
            Series("a draw", leads.flatten()[some].tolist(), drawn.flatten()[some].tolist(),
                   dots=True, faint=True),
            Series("bound", line, (widest * others(torch.tensor(line), n)).tolist(), look=1),
        ],
        x_label="lead of k_j·q over the next", y_label="‖c − v_j‖", log_y=True, width=340,
        height=320,
    )  # fmt: skip
    rows = [
        [f"{e:g}", half + math.log(widest / e - 1), exact_from]
        for e in (0.1, 0.01, 1e-3, 1e-6, 1e-9, 1e-12)
    ]
    return Findings(
        {
            # rounding, where an error is of this size itself
            "copy-bound": (tightest, tightest <= 1 + 1e-3),
            "copy-half": (weight, abs(weight - 0.5) <= EXACT),
            "copy-sparse": (exact_from, exact_from <= 1.2),
        },
        {"half": half, "exact": EXACT, "last_copy_error": float(error[-1]), "keys": n,
         "d": settings.d, "copies": leads.numel()},
        {"copying": over_beta, "turn": turn, "bound": under},
        {"leads": (["error at most", "softmax: lead", "sparsemax: lead"], rows)},
    )  # fmt: skip


def average(settings: ExplorationSettings) -> Findings:
    """Test (b.2) and (c.1): q = β(k_a + k_b), for exact keys and for keys that vary."""
    n, d = settings.keys, settings.d
    generator = torch.Generator().manual_seed(settings.seed + 2)
    betas = torch.tensor(BETAS, dtype=torch.float64)
    means, values = orthonormal(generator, d, n), orthonormal(generator, d, n)
    middle = (values[0] + values[1]) / 2
    queries = betas[:, None] * (means[0] + means[1])
    clean = (attend(queries, means, values, DOT).output - middle).norm(dim=-1)
    leak = (n - 2) / (2 * betas.exp() + n - 2)
    theory = leak * math.sqrt(0.5 + 1 / (n - 2))
    noise = torch.randn(TRIES, n, d, generator=generator, dtype=torch.float64)
    curves, lines = {}, {}
    for alpha in ALPHAS:
        outputs = attend(queries, means + math.sqrt(alpha) * noise, values, DOT).output
        curves[alpha] = (outputs - middle).square().sum(-1).mean(0).sqrt()
        uneven = [uneven_share(float(beta) * 2 * math.sqrt(alpha)) for beta in betas]
        lines[alpha] = (theory**2 + 2 * torch.tensor(uneven, dtype=torch.float64)).sqrt()
    best = {alpha: int(curve.argmin()) for alpha, curve in curves.items()}
    chart = line_chart(
        "The average of two: error over β",
        [
            *(Series("", BETAS, line.tolist(), faint=True) for line in lines.values()),
            Series("theory, α = 0", BETAS, theory.tolist(), look=1),
            Series("α = 0", BETAS, clean.tolist(), dots=True),
            *(
                Series(f"α = {alpha:g}", BETAS, curve.tolist(), look=2 + i, dots=True)
                for i, (alpha, curve) in enumerate(curves.items())
            ),
        ],
        x_label="β, for q = β(μ_a + μ_b)", y_label="‖c − (v_a + v_b)/2‖, root mean square",
        log_y=True, height=400,
    )  # fmt: skip
    off = float((clean / theory - 1)[theory > 1e-10].abs().max())
    a, b = two_bases(generator, d, d // 2, d - d // 2)
    inside = torch.stack([mix(generator, a), mix(generator, b)])
    inside = torch.cat([inside / inside.norm(dim=-1, keepdim=True), values[2:]])
    query = settings.beta * (means[:1] + means[1:2])
    output = attend(query, means, inside, DOT).output[0]
    read = float((2 * projector(a) @ output - inside[0]).norm())
    lost = float((n - 2) / (2 * math.exp(settings.beta) + n - 2))
    rows: list[list[Cell]] = [
        [f"{alpha:g}", BETAS[at], float(curves[alpha][at]), float(curves[alpha][-1])]
        for alpha, at in best.items()
    ]
    rows.insert(0, ["0", BETAS[-1], float(clean[-1]), float(clean[-1])])
    noisy = ALPHAS[1]
    curve, first, last = curves[noisy], float(clean[0]), float(clean[-1])
    least = float(curve.min())
    columns = ["variance α of the keys", "best β of those tried", "error there",
               f"error at β = {BETAS[-1]:.0f}"]  # fmt: skip
    return Findings(
        {
            "average": (last, off <= 1e-3),
            "balance": (least, best[noisy] < len(BETAS) - 1),
            "read-back": (read, read <= 3 * lost + EXACT),
        },
        {"first_average_error": first, "first_beta": BETAS[0], "last_beta": BETAS[-1],
         "off_theory": off, "noisy": noisy, "best_beta": BETAS[best[noisy]],
         "rise": float(curve[-1] / curve.min()), "beta": settings.beta, "leakage": 3 * lost,
         "tries": TRIES},
        {"average": chart},
        {"averages": (columns, rows)},
    )  # fmt: skip


def copy_errors(
    keys: Float[Tensor, "*batch keys d"],
    values: Float[Tensor, "keys d"],
    betas: Float[Tensor, " betas"],
    normalize: str = "softmax",
) -> Float[Tensor, "*batch betas"]:
    """Return ‖c − v_0‖ for q = βk_0."""
    queries = betas[:, None] * keys[..., :1, :]
    output = attend(queries, keys, values, DOT, normalize=normalize).output
    errors: Tensor = (output - values[0]).norm(dim=-1)
    return errors


def others(lead: Errors, n: int) -> Errors:
    """Return the largest weight of n − 1 keys whose scores are this far below another's.

    >>> round(float(others(torch.tensor(0.0), 4)), 12)
    0.75
    """
    return torch.sigmoid(math.log(n - 1) - lead.double())


def uneven_share(spread: float) -> float:
    """Return E (α_a − ½)² of two keys whose scores differ by a normal number of this deviation."""
    return expected(lambda z: 0.25 * torch.tanh(spread * z / 2) ** 2)


def unit_rows(generator: torch.Generator, *shape: int) -> Float[Tensor, "..."]:
    """Return random vectors of length 1."""
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
    rows: Tensor = drawn / drawn.norm(dim=-1, keepdim=True)
    return rows
