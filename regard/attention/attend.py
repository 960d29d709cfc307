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
    """Average the values, each weighed by how well its key answers the query.

    weights = normalize(score(queries, keys)); output = weights @ values. Bahdanau et al. 2015,
    section 3.1; Nadaraya 1964; Vaswani et al. 2017.

    ``score`` is a `Score`, or the name of one without parameters: dot, scaled-dot, cosine. Batch
    axes broadcast. With ``heads``, or a score made for heads, axis −3 is heads, keys and
    values may have fewer (each serves its share of the queries' heads), and the mask's batch axes
    align with those before it. Positions are integers that broadcast to (\\*batch, n) and
    (\\*batch, m); by default keys are 0 … m − 1 and queries the last n of them. ``dropout`` is
    applied to the weights as they are used, not to ``Attended.weights``.

    A query that may see no key gets zero weights, zero output and zero gradients. Keys that no
    query may see may hold anything, NaN included, in a cache too. On a CPU a NaN that some queries
    may see reaches them alone; on a GPU, where finding it would wait, all. Without a mask every
    query sees the padding. A row that is NaN sends no gradient back where inputs are sanitized
    (with a mask, in a cache); without a mask its gradients are NaN. A Tensor as mask is refused
    with the remedy.
    With a ``cache``, keys and values are appended to it, and the queries attend to all it holds.

    >>> same = torch.zeros(1, 2, 4)
    >>> attend(same, same, same, "dot").weights.tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    given = Arguments(
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
    return Computation.of(given).run()


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
    """How :func:`attend` would compute this call: the path, why, and what memory it would take.

    >>> x = torch.zeros(2, 9, 4)
    >>> print(explain(x, x, x, "dot"))
    fused: an inner product with softmax: torch's kernel, O(n) memory; about 0 MB beside the inputs
    """
    positions = (query_positions, key_positions)
    given = Arguments(queries, keys, values, score, mask, normalize, dropout, *positions, heads)
    with torch.no_grad():
        return Computation.of(given).plan
