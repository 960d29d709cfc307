"""What `attend` is given: checked, and parts given by name made."""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask, as_mask
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import NORMALIZERS, TopK
from regard.attention.score import Score
from regard.attention.scores import SCORES
from regard.errors import RegardError, look_up
from regard.plugins import a, is_part, load_part


class Arguments(NamedTuple):
    """The arguments of :func:`attend`, in its order."""

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
        """Return score, normaliser, mask and the number of heads, once all has been checked."""
        queries, keys, values = self.queries, self.keys, self.values
        must_be_tensors(queries=queries, keys=keys, values=values)
        if self.query_positions is not None or self.key_positions is not None:
            given = {"query_positions": self.query_positions, "key_positions": self.key_positions}
            must_be_tensors(**{name: x for name, x in given.items() if x is not None})
        score = score_named(self.score, queries, keys, self.heads)
        heads, mask = self.heads or score.heads, as_mask(self.mask)
        normalizer = named(self.normalize, heads)
        check(queries, keys, values, score, self.dropout, heads)
        return score, normalizer, mask, heads


def must_be_tensors(**given: object) -> None:
    """Errors: a list, an array or anything else where a tensor is asked for, by its name."""
    for what, x in given.items():
        verb = "is" if what == "memory" else "are"
        if x is None:
            raise RegardError(f"{what} {verb} a tensor, not None")
        if not isinstance(x, Tensor):
            raise RegardError(
                f"{what} {verb} a tensor, not {a(type(x).__name__)}: give torch.as_tensor({what})"
            )


def places(
    queries: Tensor, keys: Tensor, m: int, rows: Tensor | None, columns: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Positions as given, or the last of m: of the keys at hand, and of the queries."""
    n, new = queries.shape[-2], keys.shape[-2]
    same = rows is None and n == new
    if columns is None:
        columns = torch.arange(m - new, m, device=queries.device)
        rows = columns if same else rows
    if rows is None:
        rows = torch.arange(m - n, m, device=queries.device)
    return rows, columns


def named(normalize: str | Normalizer, heads: int | None = None) -> Normalizer:
    """A normaliser, by name ("top-k-4" says how many), as the user's ``FILE.py:Name``, or as it is.

    >>> named("top-k-4").k
    4
    """
    if isinstance(normalize, Normalizer):
        return normalize
    if not isinstance(normalize, str):
        raise RegardError(f"a normalizer is a Normalizer or the name of one, not {normalize!r}")
    if is_part(normalize):
        own: type[Normalizer] = load_part(normalize, Normalizer, "normalizer")
        return own(heads)
    base, _, number = normalize.rpartition("-")
    if base == TopK.name and number.isdecimal():
        return TopK(heads, k=int(number))
    return look_up(NORMALIZERS, normalize, "normalizer")(heads)


def score_named(score: Score | str, queries: Tensor, keys: Tensor, heads: int | None) -> Score:
    """Return a score as it is, or one without parameters by its name."""
    if isinstance(score, Score):
        return score
    if not isinstance(score, str):
        raise RegardError(f"a score is a Score, as make_score('dot') makes one, not {score!r}")
    length = max(queries.shape[-2:-1] + keys.shape[-2:-1], default=1)
    kind = look_up(SCORES, score, "score")
    widths = [x.shape[-1] if x.ndim else None for x in (queries, keys)]
    made = kind(*widths, heads=heads, length=length)
    if next(made.parameters(), None) is not None:
        raise RegardError(
            f"{score} has parameters, which every call by name would make anew: make it once, by "
            f"make_score({score!r}, query_width={widths[0]}, key_width={widths[1]})"
        )
    return made


def check(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Score,
    dropout: float,
    heads: int | None,
) -> None:
    """Refuse what cannot be attended to, in words."""
    if not 0 <= dropout < 1:
        raise RegardError(f"dropout is a share of the weights from 0 up to 1, not {dropout}")
    if min(queries.ndim, keys.ndim, values.ndim) < 2:
        shapes = ", ".join(str(tuple(x.shape)) for x in (queries, keys, values))
        raise RegardError(f"queries, keys and values are (*batch, rows, width), not {shapes}")
    if keys.shape[-2] != values.shape[-2]:
        raise RegardError(f"{keys.shape[-2]} keys came with {values.shape[-2]} values")
    score.check(queries.shape[-1], keys.shape[-1])
    if heads is None:
        return
    if score.heads not in (None, heads):
        raise RegardError(f"the score was made for heads={score.heads}; the call has {heads}")
    if min(queries.ndim, keys.ndim, values.ndim) < 3 or queries.shape[-3] != heads:
        raise RegardError(
            f"a score for {heads} heads takes (*batch, {heads}, n, width), "
            f"not queries of shape {tuple(queries.shape)}"
        )
    groups = keys.shape[-3]
    if not groups or heads % groups or values.shape[-3] != groups:
        raise RegardError(
            f"{heads} heads of queries cannot share {groups} heads of keys and "
            f"{values.shape[-3]} of values"
        )


def shape_of_scores(queries: Tensor, keys: Tensor, m: int, heads: int | None) -> torch.Size:
    """(\\*batch, n, m), with all of the queries' heads."""
    batch = keys.shape[:-2]
    if heads is not None:
        batch = torch.Size([*batch[:-1], heads])
    try:
        if queries.shape[:-2] != batch:  # broadcast_shapes takes 40 microseconds
            batch = torch.broadcast_shapes(queries.shape[:-2], batch)
    except RuntimeError:
        raise RegardError(
            f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} have batch axes that do "
            "not broadcast"
        ) from None
    return torch.Size([*batch, queries.shape[-2], m])
