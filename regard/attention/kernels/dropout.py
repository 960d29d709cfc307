"""Counter-based dropout: a weight's index decides whether it is kept, independent of tiling."""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.mask import WHOLE, Tile
from regard.attention.tracing import readable


class Dropout(NamedTuple):
    """The dropout of a call: each weight is zeroed with probability ``rate``, by the ``seed``."""

    rate: float
    seed: int | Tensor

    @classmethod
    def drawn(cls, rate: float, values: Tensor) -> "Dropout | None":
        """Return a dropout with a seed from torch's generator; None for a rate of 0.

        The seed stays a tensor if the numbers of ``values`` cannot be read.
        """
        if not rate:
            return None
        if readable(values):
            return cls(rate, int(torch.randint(2**31, ())))
        return cls(rate, torch.randint(2**31, (), device=values.device))

    def factors(
        self,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        tile: Tile = WHOLE,
        batch: tuple[slice, ...] = (),
    ) -> Tensor:
        """Return 0 or 1 / (1 − rate) for a tile of weights (*batch, n, m), by default for all.

        ``batch`` are slices of the first batch axes.
        """
        slices = torch.arange(prod(shape[:-2]), device=device).view(*shape[:-2], 1, 1)[batch]
        rows = torch.arange(shape[-2], device=device)[tile.rows, None]
        columns = torch.arange(shape[-1], device=device)[tile.columns]
        across = _mixed(_mixed(slices + self.seed) + rows).int()
        number = across + _mixed(columns + 2**33 + self.seed).int()
        # Two rounds of shift and multiply with MurmurHash3's factors, in wrapping 32-bit integers;
        # the high bits, which are compared, depend on all bits.
        for factor in (-2048144789, -1028477387):
            number ^= number >> 15
            number *= factor
        kept = number >= int(-(2**31) + self.rate * 2**32)
        return kept.to(dtype).mul_(1 / (1 - self.rate))


def _mixed(numbers: Tensor) -> Tensor:
    """Return 31 bits of SplitMix64's finaliser (Steele et al. 2014) of each number."""
    numbers = numbers * -7046029254386353131
    numbers = (numbers ^ ((numbers >> 30) & (2**34 - 1))) * -4658895280553007687
    numbers = (numbers ^ ((numbers >> 27) & (2**37 - 1))) * -7723592293110705685
    return (numbers ^ ((numbers >> 31) & (2**33 - 1))) & (2**31 - 1)
