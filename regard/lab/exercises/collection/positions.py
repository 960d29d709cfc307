"""Sinusoidal positions, and the rotation from one to another."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def sinusoidal(length: int, width: int) -> Tensor:
    """Return the vectors of positions 0 to length - 1: (length, width), width even.

    Column 2j is sin(i / 10000^(2j / width)), column 2j + 1 is cos of the same.
    """
    return _table(torch.arange(length), width)


def rotate(p: Tensor, offset: int) -> Tensor:
    """Turn the vector of position i into that of i + offset, without knowing i.

    p: (width,), a row of `sinusoidal`. Returns (width,). Each pair of columns is rotated.
    """
    return _rotated(p, offset)


def _table(positions: Tensor, width: int, base: float = 10000.0, step: float = 2.0) -> Tensor:
    frequencies = torch.pow(base, -torch.arange(width // 2) * step / width)
    angles: Tensor = positions[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _halves(length: int, width: int) -> Tensor:
    table = sinusoidal(length, width)
    return torch.cat([table[:, 0::2], table[:, 1::2]], 1)


def _swapped(length: int, width: int) -> Tensor:
    pairs: Tensor = sinusoidal(length, width).unflatten(1, (-1, 2))
    return pairs.flip(2).flatten(1)


def _each(length: int, width: int) -> Tensor:
    """Give each column its own frequency: 10000^(h / width) for the cosines too."""
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(width) / width)
    return torch.where(torch.arange(width) % 2 == 0, angles.sin(), angles.cos())


def _rotated(p: Tensor, offset: float, same: bool = False) -> Tensor:
    width = len(p)
    frequencies = 10000.0 ** (-torch.arange(width // 2) * 2 / width)
    angles = offset * (torch.ones_like(frequencies) if same else frequencies)
    sine, cosine = p[0::2], p[1::2]
    return torch.stack([
        angles.cos() * sine + angles.sin() * cosine,
        angles.cos() * cosine - angles.sin() * sine,
    ], -1).flatten()  # fmt: skip


PARTS = [
    Part(
        sinusoidal,
        lambda: [(2, 4), (7, 6), (5, 12)],
        {
            "off by one: positions begin at 1": (
                lambda n, d: _table(torch.arange(1, n + 1), d)
            ),
            "sines and cosines stand in two halves; they must alternate": _halves,
            "sine and cosine are swapped": _swapped,
            "the exponent is j / d; it must be 2j / d": (
                lambda n, d: _table(torch.arange(n), d, step=1.0)
            ),
            "a cosine has another frequency than the sine before it": _each,
            "the base is not 10000": lambda n, d: _table(torch.arange(n), d, base=1000.0),
            "the frequencies rise; they must fall": (
                lambda n, d: _table(torch.arange(n), d, base=1e-4)
            ),
        },
    ),
    Part(
        rotate,
        lambda: [(_table(torch.tensor([1]), 4)[0], 2), (_table(torch.tensor([5]), 8)[0], -3),
                 (numbers(6), 4)],
        {
            "it rotates backwards": lambda p, offset: _rotated(p, -offset),
            "all pairs turn by the same angle": lambda p, offset: _rotated(p, offset, True),
            "it adds the vector of the offset": (
                lambda p, offset: p + _table(torch.tensor([offset]), len(p))[0]
            ),
            "it is not rotated at all": lambda p, offset: p,
        },
    ),
]  # fmt: skip
