"""The interface of scores, which kernels, positions and every row of ``SCORES`` rely on."""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration, ProductAcceleration
from regard.attention.prepared import Positions, Prepared
from regard.core.errors import RegardError


class Score(nn.Module):
    """A score s(q, k), the base class: three methods that separate work per row from work per pair.

    s(q, k) = compare(prepare_queries(q), prepare_keys(k)). The prepare methods run once per row
    (projections, rotations, features) and return a tensor or a tuple of tensors with the rows at
    axis −2; neither sees the other side. ``compare`` runs once per pair, on any tile of rows ×
    columns. A tensor that needs a gradient in ``compare`` must be a registered parameter or come
    from a prepare method. ``positions`` are integers: (*batch, n) in the prepare methods, a pair
    (rows, columns) in ``compare``.

    Args:
        query_width: The width of the queries; None fits every width.
        key_width: The width of the keys; None fits every width.
        heads: The number of heads, at axis −3 of queries and keys. Each has its own parameters.
        length: The maximum number of keys, for scores with parameters for each position.

    Shape:
        queries: (*batch, n, query_width)
        keys: (*batch, m, key_width)
        scores: (*batch, n, m)

    Returns:
        ``compare`` returns the scores of prepared queries and keys, before the mask.

    Raises:
        RegardError: `check` gets other widths than those of the score.

    Source:
        Bahdanau et al. 2015, section 3.1, the alignment model a; Luong et al. 2015, section 3.1.

    Example:
        >>> import torch
        >>> class Negative(Score):
        ...     def compare(self, queries, keys, positions):
        ...         return -queries @ keys.mT
        >>> from regard import attend
        >>> x = torch.eye(2)
        >>> attend(x, x, x, Negative()).weights
        tensor([[0.2689, 0.7311],
                [0.7311, 0.2689]])
    """

    name: ClassVar[str] = "score"
    #: Queries and keys must have the same width.
    same_width: ClassVar[bool] = False
    #: A head's scores depend on other heads too, as in talking heads.
    mixes_heads: ClassVar[bool] = False
    #: Faster equivalents of ``compare`` for kernels; the default fits every score.
    acceleration: Acceleration = Acceleration()

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__()
        self.query_width, self.key_width = query_width, key_width
        self.heads, self.length = heads, length
        if self.same_width and query_width is not None and key_width is not None:
            self.check(query_width, key_width)

    def prepare_queries(
        self, queries: Float[Tensor, "... queries width"], positions: Int[Tensor, "... queries"]
    ) -> Prepared:
        """Compute the part of the score that depends on a query alone. By default the query."""
        return queries

    def prepare_keys(
        self, keys: Float[Tensor, "... keys width"], positions: Int[Tensor, "... keys"]
    ) -> Prepared:
        """Compute the part of the score that depends on a key alone; caches store the result.

        Keys that neighbouring heads share have fewer heads than the score. For parameters of each
        head, write ``regard.attention.prepared.repeat_kv(keys, self.heads)``.
        """
        return keys

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        """Compute the scores (*batch, rows, columns) of prepared queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} has no compare(queries, keys, positions)")

    def check(self, query_width: int, key_width: int) -> None:
        """Raise a RegardError for widths other than those of this score."""
        if self.same_width and query_width != key_width:
            raise RegardError(
                f"score {self.name!r} needs queries and keys of the same width, not {query_width} "
                f"and {key_width}; use 'general' or 'additive'"
            )
        own = (self.query_width or query_width, self.key_width or key_width)
        if own != (query_width, key_width):
            raise RegardError(
                f"this {self.name} score takes queries and keys of widths {own[0]} and {own[1]}, "
                f"not {query_width} and {key_width}"
            )

    def extra_repr(self) -> str:
        """Return the sizes of the score for its repr."""
        names = ("query_width", "key_width", "heads", "length")
        sizes = {name: getattr(self, name, None) for name in names}
        return ", ".join(f"{name}={size}" for name, size in sizes.items() if size is not None)


class InnerProduct(Score):
    """A score with compare(q', k') = scale · q'·k', for any prepare methods."""

    acceleration = ProductAcceleration()

    def scale(self, width: int) -> float:
        """Return the factor before q'·k' if the prepared queries have this width."""
        return 1.0

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return self.scale(queries.shape[-1]) * queries @ keys.mT
