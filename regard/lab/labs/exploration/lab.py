"""What can one head do, and what do two add? Attention exploration, measured.

CS224N winter 2022, assignment 5, part 1: copying; taking one value out of a sum; the average of
two; one head and a key of varying norm; two heads. The last two stand in `two_heads`.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from regard.attention import SCORES, attend
from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import Say, Show
from regard.lab.labs.exploration import two_heads, varying_key
from regard.lab.labs.exploration.extraction import EXACT, extraction, mix, projector, two_bases
from regard.lab.labs.exploration.varying_key import expected, orthonormal
from regard.lab.labs.lab import MeasuringLab, Part, ReferenceTime, claim
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table

TRIES = 500  # draws of keys where more would show no more
ALPHAS = (1e-6, 1e-4, 1e-2)
BETAS = [0.5 * 60 ** (i / 29) for i in range(30)]  # 0.5 … 30
DOT = SCORES["dot"]()

Errors = Float[Tensor, "..."]


class ExplorationSettings(Settings):
    """The sizes of the draws: `keys` keys of `d` numbers, `draws` draws where a key's norm varies.

    `alpha`: variance of every key about its mean; `beta`: length of a query along each mean;
    `bases`: draws of two orthogonal bases, in up to `d` dimensions.
    """

    d: int = Field(64, ge=3, le=1024)
    keys: int = Field(16, ge=3)
    alpha: float = Field(1e-6, ge=0, le=0.1, allow_inf_nan=False)
    beta: float = Field(20.0, gt=0, le=300, allow_inf_nan=False)
    draws: int = Field(10_000, ge=100, le=1_000_000)
    bases: int = Field(1_000, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**62)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.keys > self.d:
            raise RegardError(
                f"{self.keys} keys with orthogonal means need d={self.keys} or more, not "
                f"d={self.d}: raise d or lower keys"
            )
        return self


@dataclass(frozen=True)
class Explored:
    """The parts of the lab, and the numbers of the last."""

    settings: ExplorationSettings
    parts: list[Part]
    varying: varying_key.Measured


def measure(settings: ExplorationSettings, say: Say, show: Show) -> Explored:
    """Do the four parts."""
    show(0, 10, "copying")
    parts = [copying(settings)]
    show(1, 10, "taking a value out of a sum")
    parts.append(extraction(settings.d, settings.bases, settings.seed))
    show(2, 10, "the average of two")
    parts.append(average(settings))
    study = varying_key.Study(
        settings.d, settings.keys, settings.alpha, settings.beta, settings.draws, settings.seed
    )
    measured = varying_key.measure(study, lambda done: show(3 + 7 * done, 10, "one head and two"))
    return Explored(settings, [*parts, two_heads.part(study, measured)], measured)


def answer(found: Explored) -> str:
    """Return the result in two sentences."""
    settings, varying = found.settings, found.varying
    single, pair, ratio = varying.single.variance, varying.pair.variance, varying.ratio
    return (
        f"One head copies v_j when k_j·q leads the other scores by more than ln(n − 1) = "
        f"{math.log(settings.keys - 1):.2f}; from there each further unit divides the error "
        "by e. It averages two values only as well as their two scores agree, and they do not "
        f"when the norm of one key varies: over {settings.draws:,} draws the share of v_a in "
        f"the output has variance {single} with one head and {pair} with two, "
        f"{ratio.value:.1f} [{ratio.low:.1f}, {ratio.high:.1f}] times less."
    )


LAB = MeasuringLab(
    settings=ExplorationSettings,
    reference_time=ReferenceTime(5, "one core", scales_with=("draws", "bases")),
    measure=measure,
    answer=answer,
    next="regard lab softmax-gradient",
)


def copying(settings: ExplorationSettings) -> Part:
    """Return part (a): q = βk_j, for orthonormal keys and for random keys of length 1."""
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
    section = Section(
        "(a) Copying: when is c = v_j?",
        [
            "α_j = exp(k_j·q) / Σ exp(k_i·q). Let γ be the lead of k_j·q over the largest other "
            "score. The other n − 1 keys together have at most (n − 1)e^(−γ) / (1 + (n − 1)e^(−γ)) "
            "of the weight (all of it when their scores are equal), and ‖c − v_j‖ is at most that "
            f"times max‖v_i − v_j‖. So c ≈ v_j when γ passes ln(n − 1) = {half:.2f}.",
            "Softmax never copies exactly. Sparsemax (Martins & Astudillo 2016) gives zeros, and "
            "does so from a lead of 1 on.",
        ],
        [
            Figure(
                over_beta,
                f"n = {n} keys of d = {settings.d}. What to see: a straight fall, error ∝ e^(−β); "
                "random keys are not quite orthogonal, lead by less than β, and need a longer q; "
                "sparsemax drops to the rounding of float64.",
            ),
            Figure(turn, "What to see: the whole turn takes some 6 units about ln(n − 1).", True),
            Figure(under, f"400 of {leads.numel():,} draws. The lead alone decides.", True),
        ],
        [
            Table(
                "The lead that a copy takes",
                ["error at most", "softmax: lead", "sparsemax: lead"],
                rows,
                "Softmax by the bound; sparsemax: the smallest lead tried that was exact.",
            )
        ],
    )
    claims = [
        claim(
            f"(a) every copying error is under its bound: the nearest is {tightest:.4f} of it",
            tightest,
            tightest <= 1 + 1e-3,  # rounding, where an error is itself of its size
        ),
        claim(
            f"(a) with a lead of ln(n − 1) = {half:.3f} key j has weight {weight:.6f}: half",
            weight,
            abs(weight - 0.5) <= EXACT,
        ),
        claim(
            f"(a) sparsemax copies to {EXACT:g} from a lead of {exact_from:.2f} on (theory: 1); "
            f"softmax is still {float(error[-1]):.1e} off at {BETAS[-1]:.0f}",
            exact_from,
            exact_from <= 1.2,
        ),
    ]
    return Part(section, claims)


def average(settings: ExplorationSettings) -> Part:
    """Return parts (b.2) and (c.1): q = β(k_a + k_b), for exact keys and for keys that vary."""
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
    rows: list[list[str | float]] = [
        [f"{alpha:g}", BETAS[at], float(curves[alpha][at]), float(curves[alpha][-1])]
        for alpha, at in best.items()
    ]
    rows.insert(0, ["0", BETAS[-1], float(clean[-1]), float(clean[-1])])
    noisy = ALPHAS[1]
    section = Section(
        "(b.2, c.1) The average of two values",
        [
            "With orthonormal keys, q = β(k_a + k_b) scores β with a and with b and 0 with the "
            "rest: α_a = α_b = e^β / (2e^β + n − 2). The n − 2 others keep "
            "(n − 2) / (2e^β + n − 2) of the weight, which falls as e^(−β). "
            "Only lengths matter for the balance: k_a·(k_a + k_b) − k_b·(k_a + k_b) = "
            "‖k_a‖² − ‖k_b‖².",
            "With keys k_i ~ N(μ_i, αI) and q = β(μ_a + μ_b) the two scores differ by a normal "
            "number of variance 4αβ², so α_a = 1 / (1 + e^(−difference)): the longer the query, "
            "the less the weights agree. Leakage falls, imbalance grows, and a best β lies "
            "between.",
        ],
        [
            Figure(
                chart,
                f"n = {n}, d = {d}; α > 0: {TRIES} draws of keys, pale lines are the theory. What "
                "to see: exact keys gain from every bit of β; noisy keys have a best β, and past "
                "it the error rises as β√α.",
            )
        ],
        [
            Table(
                "How well one head averages two values",
                ["variance α of the keys", "best β of those tried", "error there",
                 f"error at β = {BETAS[-1]:.0f}"],
                rows,
            )
        ],
    )  # fmt: skip
    claims = [
        claim(
            f"(b.2) with orthonormal keys the average is {float(clean[0]):.2f} off at β = "
            f"{BETAS[0]:g} and {float(clean[-1]):.1e} at β = {BETAS[-1]:.0f}, by theory to "
            f"{off:.0e}",
            float(clean[-1]),
            off <= 1e-3,
        ),
        claim(
            f"(c.1) what limits it is the balance: with α = {noisy:g} the error is least, "
            f"{float(curves[noisy].min()):.4f}, at β = {BETAS[best[noisy]]:.1f}, and "
            f"{float(curves[noisy][-1] / curves[noisy].min()):.1f} times that at β = "
            f"{BETAS[-1]:.0f}",
            float(curves[noisy].min()),
            best[noisy] < len(BETAS) - 1,
        ),
        claim(
            f"(b.1) and (b.2) together: at β = {settings.beta:g}, 2Mc of attention's own output is "
            f"v_a to {read:.1e} (bound: {3 * lost:.1e} by leakage, {EXACT:g} by rounding)",
            read,
            read <= 3 * lost + EXACT,
        ),
    ]
    return Part(section, claims)


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
    """Return the most weight that n − 1 keys can have when another leads them by so much.

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
