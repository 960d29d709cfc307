"""Linformer: project keys and values along their length before attention."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.arguments import Arguments, places
from regard.attention.mask import Mask, Tile, as_mask
from regard.attention.mask_context import over_heads
from regard.attention.positions.rotary import Rotary
from regard.attention.prepared import repeat_kv
from regard.attention.score import Score
from regard.attention.scores.synthesizer import Synthesizer
from regard.attention.scores.wrapper import Wrapper
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError, look_up
from regard.core.names import row_of

#: Default number of rows of a projection.
ROWS = 64


class Linformer(nn.Module):
    """keys' = E keys, values' = F values, with E and F (to, length). Wang et al. 2020, equation 7.

    Keys (…, m, key_width) become (…, to, key_width), values likewise: n queries attend to ``to``
    rows in O(n) time and memory. A text shorter than ``length`` uses the first columns. With
    ``share`` E is F; with ``heads`` each head has its own. Raise a RegardError for sizes below 1,
    and for more keys than ``length``.

    >>> Linformer(2, 9)(torch.ones(3, 5, 4), torch.ones(3, 5, 6))[1].shape
    torch.Size([3, 2, 6])
    """

    def __init__(
        self, to: int, length: int, *, heads: int | None = None, share: bool = True
    ) -> None:
        super().__init__()
        if to < 1 or length < 1:
            raise RegardError(f"linformer: to={to} and length={length} must be at least 1")
        self.rows, self.length, self.heads = to, length, heads
        shape = (heads, to, length) if heads else (to, length)
        # A text of maximum length gives rows of unit variance.
        self.key_projection = nn.Parameter(torch.randn(shape) * length**-0.5)
        self.value_projection = None if share else nn.Parameter(torch.randn(shape) * length**-0.5)

    def forward(
        self,
        keys: Float[Tensor, "... m key_width"],
        values: Float[Tensor, "... m value_width"],
        seen: Bool[Tensor, "... m"] | None = None,
    ) -> tuple[Float[Tensor, "... to key_width"], Float[Tensor, "... to value_width"]]:
        """Project the ``seen`` keys and values; hidden rows may contain anything, NaN included."""
        if keys.shape[-2] > self.length:
            raise RegardError(
                f"linformer has length={self.length}, but the input has {keys.shape[-2]} keys; "
                "use a larger length="
            )
        if seen is not None:
            keys, values = (x.masked_fill(~seen.unsqueeze(-1), 0) for x in (keys, values))
        of_values = self.key_projection if self.value_projection is None else self.value_projection
        return self._project(self.key_projection, keys), self._project(of_values, values)

    def _project(self, projection: Tensor, x: Tensor) -> Tensor:
        return projection[..., : x.shape[-2]] @ repeat_kv(x, self.heads)

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.length}"


#: Modules that compress keys and values, by name.
COMPRESS: dict[str, type[Linformer] | None] = {"none": None, "linformer": Linformer}


def named_compress(name: str, length: int | None = None) -> Linformer | None:
    """Return a compressing module by name; "linformer-32" projects to 32 rows, the default is 64.

    >>> named_compress("linformer-32", length=400)
    Linformer(32, 400)
    """
    base, numbers = row_of(name, COMPRESS)
    sized = bool(COMPRESS.get(base)) and len(numbers) == 1 and numbers[0].isdecimal()
    kind = look_up(COMPRESS, base if sized else name, "compress")
    if kind is None:
        return None
    if not length:
        raise RegardError(f"compress={base!r} needs length=, the maximum input length")
    return kind(int(numbers[0]) if sized else ROWS, length)


def refuse_positional(score: Score) -> None:
    """Raise a RegardError for a score that depends on positions: a mixture of keys has none.

    `Rotary` is allowed: it rotates each key before they are mixed.
    """
    while isinstance(score, Rotary):
        score = score.inner
    if isinstance(score, Wrapper | Synthesizer):
        raise RegardError(
            f"{type(score).__name__} depends on the position of a key, but compress mixes the keys "
            "of all positions; use a score of the keys' contents, and positions that rotate them "
            "(rotary) or are added to the input (sinusoidal, learned)"
        )


def compressed(compress: Linformer, arguments: Arguments) -> Arguments:
    """Return the arguments of a call with compressed keys and values.

    The queries of a text without visible keys see nothing. Raise a RegardError for a cache, key
    positions, or a mask of pairs.
    """
    if arguments.cache is not None or arguments.key_positions is not None:
        name = "cache" if arguments.cache is not None else "key_positions"
        raise RegardError(f"compress mixes the keys of a whole text and takes no {name}; omit it")
    queries, keys, values, score = (
        arguments.queries,
        arguments.keys,
        arguments.values,
        arguments.score,
    )
    assert isinstance(score, Score)
    mask, heads = as_mask(arguments.mask), arguments.heads or score.heads
    if mask is not None and mask.kind != "keys":
        raise RegardError(
            "compress mixes all keys, including future ones, so a mask can only hide keys from "
            "all queries, as lengths() does; it supports no causal() or other mask of pairs"
        )
    rows, columns = places(queries, keys, keys.shape[-2], arguments.query_positions, None)
    while isinstance(score, Rotary):
        queries = score.turn(queries, over_heads(rows, heads))
        keys, score = score.turn(keys, columns), score.inner
    left = None
    if mask is None:
        keys, values = compress(keys, values)
    else:
        if heads and mask.has_heads:
            keys, values = repeat_kv(keys, heads), repeat_kv(values, heads)
        mask = mask.over_heads() if heads else mask
        visible = mask.allows(rows, columns, Tile(slice(0, 1), slice(None))).any(-2)
        keys, values = compress(keys, values, visible)
        left = rows_that_see(visible.any(-1)[..., None, None], heads is not None)
    return arguments._replace(queries=queries, keys=keys, values=values, score=score, mask=left)


def rows_that_see(some: Tensor, over_heads: bool) -> Mask | None:
    """Return a mask that hides all from texts where ``some`` is False; None if there are none."""
    if on_cpu(some) and bool(some.all()):
        return None
    return Mask(
        lambda rows, columns: some & (columns[..., None, :] >= 0),
        kind="keys",
        over_heads=over_heads,
    )
