"""Keys and values mixed along their length before anyone looks: what `Attention` compresses by."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.arguments import Arguments, places
from regard.attention.mask import Mask, Tile, as_mask
from regard.attention.mask_context import over_heads
from regard.attention.positions import Rotary, rotate
from regard.attention.prepared import repeat_kv
from regard.attention.score import Score
from regard.attention.synthesizer import Synthesizer
from regard.attention.tracing import on_cpu
from regard.attention.wrapper import Wrapper
from regard.errors import RegardError, look_up

#: Rows of a projection whose number nobody told.
ROWS = 64


class Linformer(nn.Module):
    """keys' = E keys, values' = F values, with E and F (to, length). Wang et al. 2020, equation 7.

    n queries then attend to ``to`` rows and not to n, in O(n) time and memory. Of a text shorter
    than ``length`` the first columns are used. With ``share`` E is F; with ``heads`` each head has
    its own.

    >>> Linformer(2, 9)(torch.ones(3, 5, 4), torch.ones(3, 5, 6))[1].shape
    torch.Size([3, 2, 6])
    """

    def __init__(
        self, to: int, length: int, *, heads: int | None = None, share: bool = True
    ) -> None:
        super().__init__()
        if to < 1 or length < 1:
            raise RegardError(f"linformer projects a length to 1 row or more, not {length} to {to}")
        self.rows, self.length, self.heads = to, length, heads
        shape = (heads, to, length) if heads else (to, length)
        # Rows of unit variance from a text as long as can be.
        self.key_projection = nn.Parameter(torch.randn(shape) * length**-0.5)
        self.value_projection = None if share else nn.Parameter(torch.randn(shape) * length**-0.5)

    def forward(
        self,
        keys: Float[Tensor, "... m key_width"],
        values: Float[Tensor, "... m value_width"],
        seen: Bool[Tensor, "... m"] | None = None,
    ) -> tuple[Float[Tensor, "... to key_width"], Float[Tensor, "... to value_width"]]:
        """What is ``seen`` of keys and values, projected; the rest may hold anything, NaN too."""
        if keys.shape[-2] > self.length:
            raise RegardError(
                f"linformer was made for length={self.length}, and {keys.shape[-2]} keys came"
            )
        if seen is not None:
            keys, values = (x.masked_fill(~seen.unsqueeze(-1), 0) for x in (keys, values))
        of_values = self.key_projection if self.value_projection is None else self.value_projection
        return self._project(self.key_projection, keys), self._project(of_values, values)

    def _project(self, projection: Tensor, x: Tensor) -> Tensor:
        return projection[..., : x.shape[-2]] @ repeat_kv(x, self.heads)

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.length}"


#: A name means a module that keys and values go through together, or none.
COMPRESS: dict[str, type[Linformer] | None] = {"none": None, "linformer": Linformer}


def named_compress(name: str, length: int | None = None) -> Linformer | None:
    """What compresses, by name; "linformer-32" says to how many rows, 64 if it is not said.

    >>> named_compress("linformer-32", length=400)
    Linformer(32, 400)
    """
    base, _, number = name.rpartition("-")
    if not (COMPRESS.get(base) and number.isdecimal()):
        base, number = name, ""
    kind = look_up(COMPRESS, base, "compress")
    if kind is None:
        return None
    if not length:
        raise RegardError(f"{base} projects along the length: say length=, the longest input")
    return kind(int(number) if number else ROWS, length)


def refuse_positional(score: Score) -> None:
    """A mix of keys has no position, so a score by position has nothing to go by.

    `Rotary` is no such score: it turns each key before they are mixed.
    """
    while isinstance(score, Rotary):
        score = score.inner
    if isinstance(score, Wrapper | Synthesizer):
        raise RegardError(
            f"{type(score).__name__} scores by the position of a key, and compress mixes the keys "
            "of all positions: take a score of what keys hold, and positions that turn them "
            "(rotary) or are added to the input (sinusoidal, learned)"
        )


def compressed(compress: Linformer, given: Arguments) -> Arguments:
    """Return what is left to attend with, once keys and values are mixed.

    A query of a text of which nothing may be seen sees nothing. Errors: a cache, positions of keys,
    a mask of pairs.
    """
    if given.cache is not None or given.key_positions is not None:
        what = "cache" if given.cache is not None else "key_positions"
        raise RegardError(f"compress mixes the keys of a whole text: it takes no {what}")
    queries, keys, values, score = given.queries, given.keys, given.values, given.score
    assert isinstance(score, Score)
    mask, heads = as_mask(given.mask), given.heads or score.heads
    if mask is not None and mask.kind != "keys":
        raise RegardError(
            "compress mixes all keys, the future's too, so a mask can only hide keys from every "
            "query alike, as lengths() does; causal() and other masks of pairs cannot be kept"
        )
    rows, columns = places(queries, keys, keys.shape[-2], given.query_positions, None)
    while isinstance(score, Rotary):
        queries = rotate(queries, over_heads(rows, heads))
        keys, score = rotate(keys, columns), score.inner
    left = None
    if mask is None:
        keys, values = compress(keys, values)
    else:
        if heads and mask.has_heads:
            keys, values = repeat_kv(keys, heads), repeat_kv(values, heads)
        mask = mask.over_heads() if heads else mask
        seen = mask.allows(rows, columns, Tile(slice(0, 1), slice(None))).any(-2)
        keys, values = compress(keys, values, seen)
        left = rows_that_see(seen.any(-1)[..., None, None], heads is not None)
    return given._replace(queries=queries, keys=keys, values=values, score=score, mask=left)


def rows_that_see(some: Tensor, over_heads: bool) -> Mask | None:
    """Return a mask that hides all from texts where ``some`` is False; None if there are none."""
    if on_cpu(some) and bool(some.all()):
        return None
    return Mask(
        lambda rows, columns: some & (columns[..., None, :] >= 0),
        kind="keys",
        over_heads=over_heads,
    )
