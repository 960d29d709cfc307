"""Sinusoidal positions: the formula, and the module that adds them to the input."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.tracing import readable
from regard.core.shown import shown


def sinusoidal(
    positions: Int[Tensor, "..."], width: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "... {width}"]:
    """Return p[i, 2j] = sin(i / 10000^(2j/width)), p[i, 2j+1] = cos(i / 10000^(2j/width)).

    Vaswani et al. 2017, section 3.5. Positions (…) give (…, width), computed in float64 and rounded
    to ``dtype``. The last column of an odd width is a sine without its cosine.

    >>> sinusoidal(torch.tensor([0, 1]), 3, torch.float64).tolist()
    [[0.0, 1.0, 0.0], [0.841..., 0.540..., 0.002...]]
    """
    columns = torch.arange(width, device=positions.device)
    even = columns - columns % 2
    angles = positions[..., None].double() * torch.pow(10000.0, -even.double() / width)
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos()).to(dtype)


def rotation(shift: int, width: int) -> Float[Tensor, "{width} {width}"]:
    """Return M with M p[i] = p[i + shift] for every i: pair j is rotated by shift / 10000^(2j/d).

    M is (width, width) in float64, with blocks [[cos, sin], [−sin, cos]] on the diagonal. Vaswani
    et al. 2017, section 3.5. The last column of an odd width has no partner and is not rotated.

    >>> positions = sinusoidal(torch.tensor([4, 9]), 6, torch.float64)
    >>> bool((rotation(5, 6) @ positions[0] - positions[1]).abs().max() < 1e-12)
    True
    """
    matrix = torch.eye(width, dtype=torch.float64)
    even = torch.arange(0, width - 1, 2)
    angles = shift * torch.pow(10000.0, -even.double() / width)
    matrix[even, even] = matrix[even + 1, even + 1] = angles.cos()
    matrix[even, even + 1], matrix[even + 1, even] = angles.sin(), -angles.sin()
    return matrix


class Sinusoidal(nn.Module):
    """x + scale · p, with p of :func:`sinusoidal`; no parameters and no maximum length.

    x and the result are (*batch, n, width).

    >>> Sinusoidal(2)(torch.zeros(1, 2, 2))
    tensor([[[0.0000, 1.0000],
             [0.8415, 0.5403]]])
    """

    def __init__(self, width: int, *, length: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.width, self.scale = width, scale
        # Not a buffer: .double() would keep the rounding errors of float32.
        self.table = torch.empty(0, width)

    def forward(
        self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"] | None = None
    ) -> Float[Tensor, "*batch n width"]:
        """Return x + scale · p[i] for i = 0 … n − 1, or for these positions."""
        if positions is None and not readable(x):  # a graph keeps no table
            positions = torch.arange(x.shape[-2], device=x.device)
        if positions is not None:
            return x + self.scale * sinusoidal(positions, self.width, x.dtype)
        n, table = x.shape[-2], self.table  # read once: another thread may replace it
        fits = table.dtype == x.dtype and table.device == x.device
        if len(table) < n or not fits:
            size = max(n, len(table) if len(table) >= n else 2 * len(table))
            sines = sinusoidal(torch.arange(size, device=x.device), self.width, x.dtype)
            self.table = table = self.scale * sines
        return x + table[:n]

    _repr_html_ = shown
