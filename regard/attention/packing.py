"""Texts of different lengths as rows one behind the other, with no padding between them."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Packing:
    """Which rows of a padded (batch, time) table are real, and the way there and back.

    What looks at one row at a time (projections, norms, feed-forward) then computes nothing for
    padding; attention alone needs the table (`MultiHeadAttention`'s ``packing``).

    >>> packing = Packing(torch.tensor([2, 1]), 3)
    >>> packing.pack(torch.tensor([[[1.0], [2.0], [0.0]], [[3.0], [0.0], [0.0]]])).tolist()
    [[1.0], [2.0], [3.0]]
    """

    def __init__(self, lengths: Int[Tensor, " batch"], time: int) -> None:
        self.shape = (len(lengths), time)
        positions = torch.arange(time, device=lengths.device)
        real = positions < lengths[:, None]
        #: The place of each real row in the table, (rows,), and its position in its text, (rows,).
        self.places = real.flatten().nonzero()[:, 0]
        self.positions = self.places % time
        # Padding is filled with some real row, which is a third faster than with zeros.
        self.sources = torch.zeros(len(lengths) * time, dtype=torch.long, device=lengths.device)
        self.sources[self.places] = torch.arange(len(self.places), device=lengths.device)

    def __len__(self) -> int:
        """How many rows are real."""
        return len(self.places)

    def pack(self, table: Float[Tensor, "batch time *width"]) -> Float[Tensor, " rows *width"]:
        """The real rows of a table; its padding gets gradients of zero."""
        packed: Tensor = _Pack.apply(  # type: ignore[no-untyped-call]
            table.flatten(0, 1), self.places
        )
        return packed

    def unpack(self, rows: Float[Tensor, " rows *width"]) -> Float[Tensor, "batch time *width"]:
        """The table again. Its padding holds finite numbers without a meaning, to be masked.

        What becomes of the padding must have gradients of zero, as what `pack` leaves out has.
        """
        table: Tensor = _Unpack.apply(  # type: ignore[no-untyped-call]
            rows, self.places, self.sources
        )
        whole: Tensor = table.unflatten(0, self.shape)
        return whole


class _Pack(torch.autograd.Function):
    """table[places], its gradient by a copy: `index_select`'s own would add one row at a time."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(table)
        return table.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        empty = slope.new_zeros(ctx.size, *slope.shape[1:])
        return empty.index_copy(0, places, slope), None


class _Unpack(torch.autograd.Function):
    """rows[sources], whose gradient is that of the real places alone."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, sources: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        if not len(rows):
            return rows.new_zeros(len(sources), *rows.shape[1:])
        return rows.index_select(0, sources)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        return slope.index_select(0, places), None, None
