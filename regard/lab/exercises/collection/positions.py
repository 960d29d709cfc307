"""Sinusoidal positions, and the rotation from one to another."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def sinusoidal(length: int, width: int) -> Tensor:
    """Return the vectors of positions 0 to length - 1: (length, width), width even.

    Column 2j is sin(i / 10000^(2j / width)), column 2j + 1 is cos of the same.
    """
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def rotate(p: Tensor, offset: int) -> Tensor:
    """Turn the vector of position i into that of i + offset, without knowing i.

    p: (width,), a row of `sinusoidal`. Returns (width,). Each pair of columns is rotated.
    """
    angles = offset / 10000 ** (torch.arange(0, len(p), 2) / len(p))
    sine, cosine = p[0::2], p[1::2]
    first = angles.cos() * sine + angles.sin() * cosine
    second = angles.cos() * cosine - angles.sin() * sine
    return torch.stack([first, second], 1).flatten()


PARTS = [
    Part(sinusoidal, lambda: [(2, 4), (7, 6), (5, 12)], {
        "off by one: positions begin at 1": ("arange(length)", "arange(1, length + 1)"),
        "sines and cosines stand in two halves; they must alternate": ("2).flatten", "1).flatten"),
        "sine and cosine are swapped": (".sin(), angles.cos()", ".cos(), angles.sin()"),
        "the exponent is j / d; it must be 2j / d": ("(0, width, 2)", "(width // 2)"),
        "a cosine has another frequency than the sine before it":
            ("angles.cos()", "(angles / 10000 ** (1 / width)).cos()"),
        "the base is not 10000": ("10000 **", "1000 **"),
        "the frequencies rise; they must fall": ("/ 10000 **", "* 10000 **"),
    }),
    Part(rotate, lambda: [(sinusoidal(2, 4)[1], 2), (sinusoidal(6, 8)[5], -3), (numbers(6), 4)], {
        "it rotates backwards": ("= offset", "= -offset"),
        "all pairs turn by the same angle": ("/ 10000 **", "/ 1 **"),
        "it adds the vector of the offset":
            ("[first, second], 1)", "[sine + angles.sin(), cosine + angles.cos()], 1)"),
        "it is not rotated at all": ("torch.stack([first, second], 1).flatten()", "p"),
    }),
]  # fmt: skip
