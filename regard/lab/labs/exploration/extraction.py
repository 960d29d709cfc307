"""Taking one value out of a sum of two: assignment 5, part 1, (b.1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.labs.exploration.varying_key import orthonormal
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.maps import heat_map

EXACT = 1e-12  # the tolerance of "exactly" for sums of a thousand float64 numbers
ANGLES = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90)


def extraction(most: int, bases: int, seed: int) -> Findings:
    """Test (b.1): M = Σ a aᵀ / (aᵀa) takes v_a from s = v_a + v_b for orthogonal bases."""
    generator = torch.Generator().manual_seed(seed + 1)
    widths, errors = [], []
    for _ in range(bases):
        d = 2 + int(torch.randint(most - 1, (), generator=generator))
        m = 1 + int(torch.randint(d - 1, (), generator=generator))
        p = 1 + int(torch.randint(d - m, (), generator=generator))
        a, b = two_bases(generator, d, m, p)
        v_a, v_b = (mix(generator, basis) for basis in (a, b))
        widths.append(float(d))
        errors.append(float((projector(a) @ (v_a + v_b) - v_a).norm()))
    worst = max(errors)
    a, b = two_bases(generator, 12, 5, 7)
    matrix = projector(a)
    both = torch.cat([a, b])
    both = both / both.norm(dim=-1, keepdim=True)
    inner = both @ matrix @ both.mT
    wanted = torch.diag(torch.tensor([1.0] * 5 + [0.0] * 7, dtype=torch.float64))
    off = float((inner - wanted).abs().max())
    leaks, theory, cured = at_angles(generator, most)
    far = max(abs(x - y) for x, y in zip(leaks, theory, strict=True))
    names = [f"a{i + 1}" for i in range(5)] + [f"b{i + 1}" for i in range(7)]
    floor = [max(error, 1e-17) for error in errors]
    figures = {
        "matrix": heat_map("M, in the usual coordinates", matrix.numpy(), diverging=True,
                           width=340),
        "inner": heat_map("VᵀMV, V the a_i and b_j", inner.numpy(), rows=names, columns=names,
                          diverging=True, width=340),
        "extracted": line_chart(
            "M(v_a + v_b) is v_a to rounding",
            [Series("", widths, floor, dots=True, faint=True)],
            x_label="dimensions", y_label="‖Ms − v_a‖", log_y=True, width=340, height=250,
        ),
        "angles": line_chart(
            "Spaces that are not orthogonal",
            [
                Series("cos θ", ANGLES, theory, look=1),
                Series("M", ANGLES, leaks, dots=True),
                Series("oblique", ANGLES, cured, look=2),
            ],
            x_label="angle of b_i to a_i, degrees", y_label="‖Ms − v_a‖ / ‖v_b‖", width=340,
            height=250,
        ),
    }  # fmt: skip
    return Findings(
        {
            "extracted": (worst, worst <= EXACT),
            "inner": (off, off <= EXACT),
            "angles": (far, far <= EXACT),
        },
        {"bases": bases, "leaks": leaks, "angles": ANGLES, "oblique_error": max(cured)},
        figures,
    )


def two_bases(
    generator: torch.Generator, d: int, m: int, p: int
) -> tuple[Float[Tensor, "m d"], Float[Tensor, "p d"]]:
    """Return rows that are all orthogonal to each other, of lengths from 0.1 to 10."""
    rows = orthonormal(generator, d, m + p)
    lengths = torch.rand(m + p, 1, generator=generator, dtype=torch.float64)
    rows = rows * 10 ** (2 * lengths - 1)
    return rows[:m], rows[m:]


def mix(generator: torch.Generator, basis: Float[Tensor, "m d"]) -> Float[Tensor, " d"]:
    """Return a vector of the span with normal coefficients."""
    return torch.randn(len(basis), generator=generator, dtype=torch.float64) @ basis


def projector(basis: Float[Tensor, "m d"]) -> Float[Tensor, "d d"]:
    """Return M = Σ a aᵀ / (aᵀa) over the rows of an orthogonal basis. Assignment 5, 1 (b.1).

    >>> projector(torch.tensor([[2.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return (basis / basis.square().sum(-1, keepdim=True)).mT @ basis


def at_angles(generator: torch.Generator, d: int) -> tuple[list[float], list[float], list[float]]:
    """Return ‖Ms − v_a‖ / ‖v_b‖ for each b_i at an angle to its a_i: M, theory, oblique."""
    m = d // 2
    rows = orthonormal(generator, d, 2 * m)
    leaks: list[float] = []
    theory: list[float] = []
    cured: list[float] = []
    for degrees in ANGLES:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        a, b = rows[:m], cos * rows[:m] + sin * rows[m:]
        v_a, v_b = mix(generator, a), mix(generator, b)
        apart = torch.eye(d, dtype=torch.float64) - projector(torch.linalg.qr(b.mT).Q.mT)
        oblique = a.mT @ torch.linalg.solve(a @ apart @ a.mT, a @ apart)
        for matrix, found in ((projector(a), leaks), (oblique, cured)):
            found.append(float((matrix @ (v_a + v_b) - v_a).norm() / v_b.norm()))
        theory.append(cos)
    return leaks, theory, cured
