"""Texts of different lengths as consecutive rows without padding."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def places_of(chosen: Bool[Tensor, "batch time"]) -> Int[Tensor, " places"]:
    """Return the places of the true entries in the flat batch.

    Call it before a model is run: a GPU that is asked for their number first computes everything
    that it was given.

    >>> places_of(torch.tensor([[True, False], [True, True]])).tolist()
    [0, 2, 3]
    """
    return chosen.flatten().nonzero()[:, 0]


class Packing:
    """The real rows of a padded (batch, time) table, with conversions in both directions.

    Layers that process each row on its own (projections, norms, feed-forward) then compute nothing
    for padding; only attention needs the table (``packing`` of `MultiHeadAttention`).

    >>> packing = Packing(torch.tensor([2, 1]), 3)
    >>> packing.pack(torch.tensor([[[1.0], [2.0], [0.0]], [[3.0], [0.0], [0.0]]])).tolist()
    [[1.0], [2.0], [3.0]]
    """

    def __init__(self, lengths: Int[Tensor, " batch"], time: int) -> None:
        self.shape = (len(lengths), time)
        positions = torch.arange(time, device=lengths.device)
        real = positions < lengths[:, None]
        #: The index of each real row in the table, and its position in its text, both (rows,).
        self.places = places_of(real)
        self.positions = self.places % time
        # Padding is filled with copies of a real row, a third faster than with zeros.
        self.sources = torch.zeros(len(lengths) * time, dtype=torch.long, device=lengths.device)
        self.sources[self.places] = torch.arange(len(self.places), device=lengths.device)

    def __len__(self) -> int:
        """Return the number of real rows."""
        return len(self.places)

    def pack(self, table: Float[Tensor, "batch time *width"]) -> Float[Tensor, " rows *width"]:
        """Return the real rows of a table; the gradients of padding are zero."""
        packed: Tensor = _Pack.apply(  # type: ignore[no-untyped-call]
            table.flatten(0, 1), self.places
        )
        return packed

    def unpack(self, rows: Float[Tensor, " rows *width"]) -> Float[Tensor, "batch time *width"]:
        """Return the padded table. Its padding contains arbitrary finite numbers; mask them.

        The gradients of the padding must be zero, as `pack` makes them.
        """
        table: Tensor = _Unpack.apply(  # type: ignore[no-untyped-call]
            rows, self.places, self.sources
        )
        whole: Tensor = table.unflatten(0, self.shape)
        return whole


class _Pack(torch.autograd.Function):
    """table[places], with a gradient by one copy: that of `index_select` adds row by row."""

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
    """rows[sources], with the gradient of the real places alone."""

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
