"""The arguments of `attend`: checks, and parts built from their names."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask, as_mask
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import NORMALIZERS
from regard.attention.positions import make_score
from regard.attention.score import Score
from regard.core.errors import RegardError
from regard.core.plugins import a


class Arguments(NamedTuple):
    """The arguments of :func:`attend`, in the same order."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    score: Score | str = "scaled-dot"
    mask: Mask | Tensor | None = None
    normalize: str | Normalizer = "softmax"
    dropout: float = 0.0
    query_positions: Tensor | None = None
    key_positions: Tensor | None = None
    heads: int | None = None
    cache: KeyValueCache | None = None

    def parts(self) -> tuple[Score, Normalizer, Mask | None, int | None]:
        """Check the arguments and return the score, normaliser, mask and number of heads."""
        queries, keys, values = self.queries, self.keys, self.values
        must_be_tensors(queries=queries, keys=keys, values=values)
        if self.query_positions is not None or self.key_positions is not None:
            positions = {
                "query_positions": self.query_positions,
                "key_positions": self.key_positions,
            }
            must_be_tensors(**{name: x for name, x in positions.items() if x is not None})
        score = as_score(self.score, queries, keys, self.heads)
        heads, mask = self.heads or score.heads, as_mask(self.mask)
        normalizer = named(self.normalize, heads)
        if normalizer is not self.normalize and self.queries.device.type != "cpu":
            # The parameters of a named one; the copy waits for nothing.
            normalizer = normalizer.to(self.queries.device, non_blocking=True)
        check(queries, keys, values, score, self.dropout, heads)
        return score, normalizer, mask, heads

    def without_keys(self) -> "Arguments":
        """Return the arguments without keys, whose cache has them already."""
        keys, values = self.keys[..., :0, :], self.values[..., :0, :]
        return self._replace(keys=keys, values=values, key_positions=None)


def must_be_tensors(**arguments: object) -> None:
    """Raise a RegardError that names the first argument that is not a tensor."""
    for name, x in arguments.items():
        if x is None:
            raise RegardError(f"{name} must be a tensor, not None")
        if not isinstance(x, Tensor):
            raise RegardError(
                f"{name} must be a tensor, not {a(type(x).__name__)}; pass torch.as_tensor({name})"
            )


def must_be_rows(name: str, x: Tensor, width: int | None) -> None:
    """Raise a RegardError for a tensor that is not (*batch, rows, width), or no numbers."""
    if x.ndim < 2:
        raise RegardError(f"{name} must be (*batch, rows, width), not {tuple(x.shape)}")
    must_be_wide(name, x, width)


def must_suit(name: str, x: Tensor, linear: nn.Module) -> None:
    """Raise a RegardError for a tensor that is not (*batch, rows, width) of a linear layer.

    A layer without a known width, such as a quantised one, takes any.
    """
    must_be_rows(name, x, getattr(linear, "in_features", None))


def must_be_wide(name: str, x: Tensor, width: int | None) -> None:
    """Raise a RegardError for vectors of another width than a layer's, or no numbers.

    ``width`` is None for a layer without a known width, such as a quantised one.
    """
    if width is not None and x.shape[-1] != width:
        raise RegardError(
            f"{name} have width {x.shape[-1]}, but this layer takes width {width}; project them, "
            f"or build the layer for {x.shape[-1]}"
        )
    if not x.is_floating_point():
        raise RegardError(f"{name} must be floating-point numbers, not {x.dtype}; embed ids first")


def places(
    queries: Tensor, keys: Tensor, m: int, rows: Tensor | None, columns: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the positions of queries and keys; by default the last n and the last new of 0 … m−1.

    Without keys the queries are 0 … n − 1.

    ``rows`` and ``columns`` are the positions that the caller passed, or None; m counts the keys
    in the cache too.
    """
    n, new = queries.shape[-2], keys.shape[-2]
    same = rows is None and n == new
    if columns is None:
        columns = torch.arange(m - new, m, device=queries.device)
        rows = columns if same else rows
    if rows is None:
        first = m - n if m else 0  # without keys there is no last one to count from
        rows = torch.arange(first, first + n, device=queries.device)
    return rows, columns


def named(normalize: str | Normalizer, heads: int | None = None) -> Normalizer:
    """Return a normaliser from its name ("top-k-4" sets k), from ``FILE.py:Name``, or as it is.

    >>> named("top-k-4").k
    4
    """
    if isinstance(normalize, Normalizer):
        return normalize
    if not isinstance(normalize, str):
        raise RegardError(f"normalize must be a Normalizer or the name of one, not {normalize!r}")
    kind, options = NORMALIZERS.named(normalize)
    return kind(heads, **options)


def as_score(score: Score | str, queries: Tensor, keys: Tensor, heads: int | None) -> Score:
    """Return a score as it is, or build one without parameters from its name."""
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise RegardError(
            f"score must be a name or a Score, as in make_score('dot'), not {score!r}"
        )
    length = max(queries.shape[-2:-1] + keys.shape[-2:-1], default=1)
    widths = [x.shape[-1] if x.ndim else None for x in (queries, keys)]
    built = make_score(score, "none", *widths, heads=heads, length=length)
    if next(built.parameters(), None) is not None:
        raise RegardError(
            f"score {score!r} has parameters, which each call by name would initialise again; "
            f"create it once with make_score({score!r}, query_width={widths[0]}, "
            f"key_width={widths[1]})"
        )
    return built


def check(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    dropout: float,
    heads: int | None,
) -> None:
    """Raise a RegardError for a dropout out of range, or shapes and heads that do not match."""
    if not 0 <= dropout < 1:
        raise RegardError(f"dropout must be at least 0 and below 1, not {dropout}")
    if min(queries.ndim, keys.ndim, values.ndim) < 2:
        shapes = ", ".join(str(tuple(x.shape)) for x in (queries, keys, values))
        raise RegardError(f"queries, keys and values must be (*batch, rows, width), not {shapes}")
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(
            f"there must be one value per key, not {keys.shape[-2]} keys and "
            f"{values.shape[-2]} values"
        )
    kinds = {x.dtype for x in (queries, keys, values)}
    if wrong := [kind for kind in kinds if not kind.is_floating_point]:
        raise RegardError(
            f"queries, keys and values must be floating-point numbers, not {wrong[0]}; convert "
            "them by .float(), or embed ids first"
        )
    if len(kinds) > 1 and not torch.is_autocast_enabled(queries.device.type):
        names = ", ".join(str(x.dtype) for x in (queries, keys, values))
        raise RegardError(
            f"queries, keys and values must have one dtype, not {names}; convert them by .to()"
        )
    score.check(queries.shape[-1], keys.shape[-1])
    if heads is None:
        return
    if score.heads is not None and score.heads != heads:
        raise RegardError(f"the score has heads={score.heads}, but the call has heads={heads}")
    if min(queries.ndim, keys.ndim, values.ndim) < 3 or queries.shape[-3] != heads:
        raise RegardError(
            f"with {heads} heads, queries must be (*batch, {heads}, n, width), "
            f"not {tuple(queries.shape)}"
        )
    groups = keys.shape[-3]
    if not groups or heads % groups or values.shape[-3] != groups:
        raise RegardError(
            f"{heads} query heads cannot share {groups} key heads and {values.shape[-3]} value "
            "heads; their number must be equal and divide the query heads"
        )


def shape_of_scores(
    queries: Tensor, keys: Tensor, values: Tensor, m: int, heads: int | None
) -> torch.Size:
    """Return the shape of the scores, (*batch, n, m), with all query heads.

    Raise a RegardError for batch axes that do not broadcast.
    """
    batch = keys.shape[:-2]
    if heads is not None:
        batch = torch.Size([*batch[:-1], heads])
    try:
        if queries.shape[:-2] != batch:  # broadcast_shapes takes 40 microseconds
            batch = torch.broadcast_shapes(queries.shape[:-2], batch)
        if values.shape[:-2] != keys.shape[:-2]:
            torch.broadcast_shapes(batch[: None if heads is None else -1],
                                   values.shape[: -2 if heads is None else -3])  # fmt: skip
    except RuntimeError:
        raise RegardError(
            f"the batch axes of queries {tuple(queries.shape)}, keys {tuple(keys.shape)} and "
            f"values {tuple(values.shape)} do not broadcast{remedy_of_heads(queries, keys, heads)}"
        ) from None
    return torch.Size([*batch, queries.shape[-2], m])


def remedy_of_heads(queries: Tensor, keys: Tensor, heads: int | None) -> str:
    """Return what to write if axis −3 looks like heads that share keys."""
    if heads is not None or min(queries.ndim, keys.ndim) < 3:
        return ""
    many, few = queries.shape[-3], keys.shape[-3]
    if not few or many == few or many % few:
        return ""
    return f"; if axis −3 is {many} heads that share {few} keys, pass heads={many}"
