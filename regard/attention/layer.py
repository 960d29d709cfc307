"""Attention as a layer: the class that models call and recordings hook into."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.arguments import Arguments, named
from regard.attention.attended import Attended
from regard.attention.cache import KeyValueCache
from regard.attention.computation import Computation
from regard.attention.mask import Mask
from regard.attention.mechanisms.linformer import Linformer, compressed, refuse_positional
from regard.attention.normalizer import Normalizer
from regard.attention.score import Score
from regard.core.errors import RegardError


class Attention(nn.Module):
    """:func:`attend` as a module with a fixed score, normaliser and dropout.

    output = dropout(normalize(score(q, k))) v, with dropout in training mode only. A forward hook
    gets the `Attended` of every call.

    Args:
        score: The score of a query and a key.
        normalize: A `Normalizer`, or its name.
        dropout: The probability of dropping a weight, in training mode.
        heads: The number of query heads, at axis −3; by default that of the score.
        compress: A module that mixes the keys along their length. The queries attend to a few
            mixtures, and the weights are over these. A mask can then only hide a key from all
            queries.

    Shape:
        queries: (*batch, n, query_width)
        keys: (*batch, m, key_width)
        values: (*batch, m, value_width)
        output: (*batch, n, value_width)
        weights: (*batch, n, m)

    Returns:
        An `Attended` with the output, and the weights, which are computed when first read.

    Raises:
        RegardError: ``score`` is not a `Score`; the inputs are those that :func:`attend` refuses;
            with ``compress``, a cache, key positions or a score that depends on positions.

    Source:
        Bahdanau et al. 2015, equations 5 and 6; Vaswani et al. 2017, equation 1.

    Example:
        >>> import torch
        >>> from regard.attention import make_score
        >>> x = torch.zeros(3, 5, 4)
        >>> Attention(make_score("dot"))(x, x, x).output.shape
        torch.Size([3, 5, 4])
    """

    def __init__(
        self,
        score: Score,
        normalize: str | Normalizer = "softmax",
        dropout: float = 0.0,
        *,
        heads: int | None = None,
        compress: Linformer | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(score, Score):
            raise RegardError(
                f"score must be a Score, as in Attention(make_score('dot')), not {score!r:.80}"
            )
        self.heads = heads
        if compress is not None:
            refuse_positional(score)
        self.compress = compress
        self.score, self.dropout = score, dropout
        self.normalize = named(normalize, heads or score.heads)

    def forward(
        self,
        queries: Float[Tensor, "... queries query_width"],
        keys: Float[Tensor, "... keys key_width"],
        values: Float[Tensor, "... keys value_width"],
        mask: Mask | Tensor | None = None,
        *,
        query_positions: Int[Tensor, "... queries"] | None = None,
        key_positions: Int[Tensor, "... keys"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Attended:
        """Compute the weighted average of the values; arguments as in :func:`attend`."""
        arguments = Arguments(
            queries,
            keys,
            values,
            self.score,
            mask,
            self.normalize,
            self.dropout if self.training else 0.0,
            query_positions,
            key_positions,
            self.heads,
            cache,
        )
        return self.compute(arguments)

    def compute(self, arguments: Arguments) -> Attended:
        """Compute a call; a subclass may change its arguments first."""
        if self.compress is not None:
            arguments = compressed(self.compress, arguments)
        return Computation.of(arguments).run()

    def extra_repr(self) -> str:
        return f"normalize={self.normalize.name!r}, dropout={self.dropout}"
