"""The cache of keys and values for decoding."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.prepared import Prepared
from regard.core.errors import RegardError


class KeyValueCache:
    """Prepared keys, values and positions of the past, or a state, for one attention layer.

    Its memory grows by doubling, so that a step writes its own rows and rarely copies the past.
    Positions are absolute. No gradient flows into cached rows. A ``fixed`` cache stores only the
    first keys it gets, as they are, with gradients: a decoder's memory, prepared once.
    """

    def __init__(self, *, fixed: bool = False) -> None:
        self.fixed = fixed
        #: The columns of keys that are also the values, which are then not stored again.
        self.shared: slice | None = None
        #: The state of a mechanism that stores one instead of keys, with the batch at axis 0.
        self.state: tuple[Tensor, ...] | None = None
        #: A cache of the keys by which a mechanism chooses among the keys, if it does.
        self.routing: KeyValueCache | None = None
        self.finite = True  # no cached number is known to be NaN or infinite
        self._origin: Tensor | None = None
        self._length = 0
        self._room: list[Tensor] = []

    def __repr__(self) -> str:
        return f"<KeyValueCache of {self._length:,} keys{', fixed' if self.fixed else ''}>"

    def __len__(self) -> int:
        """Return the number of cached keys."""
        return self._length

    @property
    def length(self) -> int:
        """Return the number of cached keys, in a graph a symbol for it, which ``len`` refuses."""
        return self._length

    @property
    def filled(self) -> bool:
        """Return whether the cache is fixed and has its keys, so that it takes no others."""
        return self.fixed and len(self) > 0

    @property
    def numbers(self) -> int:
        """Return how many numbers of keys and values, or of a state, are cached."""
        rows = [x.narrow(-2, 0, self._length) for x in self._room[:-1]] if self._room else []
        routing = 0 if self.routing is None else self.routing.numbers
        return sum(x.numel() for x in (*rows, *(self.state or ()))) + routing

    def hold(self, state: tuple[Tensor, ...], rows: int) -> None:
        """Replace the state by the one after ``rows`` further rows."""
        self.state = state
        self._length += rows

    def append(
        self,
        keys: Prepared,
        values: Float[Tensor, "*batch m value_width"],
        positions: Int[Tensor, "... m"],
    ) -> tuple[Prepared, Float[Tensor, "*batch total value_width"], Int[Tensor, "... total"]]:
        """Append rows; return views of all cached keys, values and positions.

        Raise a RegardError for rows of another batch or width.
        """
        if self.shared is not None and not self.fixed:
            assert isinstance(keys, Tensor)
            stored, _, places = self._append(keys, values[..., :0], positions)
            assert isinstance(stored, Tensor)
            return stored, stored[..., self.shared], places
        return self._append(keys, values, positions)

    def route(self, keys: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys by which a mechanism chooses; return all of them, and their positions."""
        if self.routing is None:
            self.routing = KeyValueCache(fixed=self.fixed)
        stored, _, columns = self.routing.append(keys, keys[..., :0], positions)
        assert isinstance(stored, Tensor)
        return stored, columns

    def _append(
        self, keys: Prepared, values: Tensor, positions: Tensor
    ) -> tuple[Prepared, Tensor, Tensor]:
        is_tuple = isinstance(keys, tuple)
        new = [*(keys if isinstance(keys, tuple) else (keys,)), values, positions.unsqueeze(-1)]
        if self.fixed:
            if not self._room:
                self._room = [x.contiguous() for x in new]  # read at every step
                self._length = values.shape[-2]
            first, held_values, held_positions = self._room[:-2], *self._room[-2:]
            prepared = tuple(first) if is_tuple else first[0]
            return prepared, held_values, held_positions.squeeze(-1)
        if not self._room:
            self._room = [_empty_like(x, x.shape[-2]) for x in new]
        for kept, x in zip(self._room, new, strict=True):
            if kept.shape[:-2] != x.shape[:-2] or kept.shape[-1] != x.shape[-1]:
                raise RegardError(
                    f"the cache has rows of shape {_rows(kept)}, not {_rows(x)}; "
                    "use a new KeyValueCache for a new batch"
                )
        total = self._length + values.shape[-2]
        if total > self._room[0].shape[-2]:
            self._room = [self._grown(kept, total) for kept in self._room]
        for kept, x in zip(self._room, new, strict=True):
            kept.narrow(-2, self._length, x.shape[-2]).copy_(x.detach())
        self._length = total
        # .data has its own version counter: later steps write after these rows, not into them.
        room = [kept.data.narrow(-2, 0, total) for kept in self._room]
        prepared = tuple(room[:-2]) if is_tuple else room[0]
        return prepared, room[-2], room[-1].squeeze(-1)

    def centred(
        self, queries: Tensor, keys: Tensor, seen: Bool[Tensor, "... m"] | None
    ) -> tuple[Tensor, Tensor]:
        """Subtract the first finite visible key of the cache's life from queries and keys.

        ``seen`` marks the visible keys; None for all. Padding may contain any number.
        """
        if self._origin is None and keys.numel():
            fit = keys.detach().isfinite().all(-1)
            if seen is not None and bool((fit & seen).any()):
                fit = fit & seen
            rows = keys.detach().expand(*fit.shape, -1).reshape(-1, keys.shape[-1])
            self._origin = rows[int(fit.reshape(-1).int().argmax())].nan_to_num()
        if self._origin is None:
            return queries, keys
        return queries - self._origin, keys - self._origin

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep only these rows of the first batch axis, as when sentences are finished.

        Tensors shared by the whole batch, such as positions, are unchanged.
        """
        if self.state is not None:
            self.state = tuple(x.index_select(0, rows) for x in self.state)
        if self.routing is not None:
            self.routing.keep(rows)
        batch = self._room[-2].shape[0] if self._room else 0
        self._room = [
            x.narrow(-2, 0, self._length).index_select(0, rows)
            if x.ndim > 2 and x.shape[0] == batch
            else x
            for x in self._room
        ]

    def _grown(self, kept: Tensor, total: int) -> Tensor:
        room = _empty_like(kept, max(total, 2 * kept.shape[-2]))
        room.narrow(-2, 0, self._length).copy_(kept.narrow(-2, 0, self._length))
        return room


def _empty_like(x: Tensor, rows: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.empty(
            *x.shape[:-2], rows, x.shape[-1], dtype=x.dtype, device=x.device, requires_grad=False
        )


def _rows(x: Tensor) -> str:
    return str((*x.shape[:-2], "n", x.shape[-1])).replace("'", "")
