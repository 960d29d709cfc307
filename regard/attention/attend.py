"""The formula: f(q) = Σᵢ normalize(score(q, kᵢ)) vᵢ over the keys that the mask lets q see."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.arguments import Arguments
from regard.attention.attended import Attended
from regard.attention.cache import KeyValueCache
from regard.attention.computation import Computation
from regard.attention.kernels import choose
from regard.attention.mask import Mask
from regard.attention.normalizer import Normalizer
from regard.attention.score import Score


def attend(
    queries: Float[Tensor, "... queries query_width"],
    keys: Float[Tensor, "... keys key_width"],
    values: Float[Tensor, "... keys value_width"],
    score: Score | str = "scaled-dot",
    mask: Mask | Tensor | None = None,
    *,
    normalize: str | Normalizer = "softmax",
    dropout: float = 0.0,
    query_positions: Int[Tensor, "... queries"] | None = None,
    key_positions: Int[Tensor, "... keys"] | None = None,
    heads: int | None = None,
    cache: KeyValueCache | None = None,
) -> Attended:
    """Compute attention: a weighted average of the values for each query.

    f(q) = Σᵢ normalize(score(q, kᵢ)) vᵢ over the keys that the mask lets q see.

    A query that may see no key gets zero weights, zero output and zero gradients. Keys that no
    query may see may contain anything, NaN included, also in a cache. On a CPU a visible NaN
    reaches only the queries that may see it; on a GPU it reaches all queries, because locating it
    would force a synchronisation. Without a mask every query sees the padding. A row that is NaN
    has no gradient if inputs are sanitized (with a mask, or in a cache); without a mask its
    gradients are NaN.

    Args:
        queries: One vector for each query.
        keys: One vector for each key.
        values: One vector for each key.
        score: A `Score`, or the name of one without parameters: dot, scaled-dot, cosine.
        mask: The keys that each query may see, by default all.
        normalize: A `Normalizer`, or its name.
        dropout: The probability of dropping a weight before it multiplies its value.
            ``Attended.weights`` are the weights before dropout.
        query_positions: Integers that broadcast to (*batch, n), by default m − n … m − 1; give them
            with ``key_positions``, which do not move the queries.
        key_positions: Integers that broadcast to (*batch, m), by default 0 … m − 1.
        heads: The number of query heads, at axis −3; by default that of the score. Keys and values
            may have fewer heads, each shared by neighbouring query heads. A mask's batch axes align
            with the axes before the heads.
        cache: The keys and values of earlier calls. New ones are appended to it, and the queries
            attend to all keys in it.

    Shape:
        queries: (*batch, n, query_width)
        keys: (*batch, m, key_width)
        values: (*batch, m, value_width); batch axes broadcast.
        output: (*batch, n, value_width)
        weights: (*batch, n, m)

    Returns:
        The output, and the weights, which are computed when they are first read.

    Raises:
        RegardError: An argument is not a tensor, or the mask is a tensor; shapes, dtypes or heads
            do not match; a name is unknown, or needs parameters; ``dropout`` is outside [0, 1).

    Source:
        Nadaraya 1964; Bahdanau et al. 2015, equations 5 and 6; Vaswani et al. 2017, equation 1.

    Example:
        >>> same = torch.zeros(1, 2, 4)
        >>> attend(same, same, same, "dot").weights.tolist()
        [[[0.5, 0.5], [0.5, 0.5]]]
    """
    arguments = Arguments(
        queries,
        keys,
        values,
        score,
        mask,
        normalize,
        dropout,
        query_positions,
        key_positions,
        heads,
        cache,
    )
    return Computation.of(arguments).run()


def explain(
    queries: Float[Tensor, "... queries query_width"],
    keys: Float[Tensor, "... keys key_width"],
    values: Float[Tensor, "... keys value_width"],
    score: Score | str = "scaled-dot",
    mask: Mask | Tensor | None = None,
    *,
    normalize: str | Normalizer = "softmax",
    dropout: float = 0.0,
    query_positions: Int[Tensor, "... queries"] | None = None,
    key_positions: Int[Tensor, "... keys"] | None = None,
    heads: int | None = None,
) -> choose.Plan:
    """Return the plan by which :func:`attend` would compute this call: kernel, reason and memory.

    >>> x = torch.zeros(2, 9, 4)
    >>> print(explain(x, x, x, "dot"))
    fused: an inner product with softmax: torch's kernel, O(n) memory; about 0 MB besides the inputs
    """
    positions = (query_positions, key_positions)
    arguments = Arguments(queries, keys, values, score, mask, normalize, dropout, *positions, heads)
    with torch.no_grad():
        return Computation.of(arguments).plan
