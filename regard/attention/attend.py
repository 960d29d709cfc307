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

    weights = normalize(score(queries, keys)), over the keys that the mask allows;
    output = weights @ values. Bahdanau et al. 2015, section 3.1; Nadaraya 1964; Vaswani et al.
    2017.

    Queries (\\*batch, n, query_width), keys (\\*batch, m, key_width) and values
    (\\*batch, m, value_width) give an output (\\*batch, n, value_width) and weights
    (\\*batch, n, m); batch axes broadcast. ``score`` is a `Score`, or the name of one without
    parameters: dot, scaled-dot, cosine. With ``heads``, or a score that has heads, axis −3 is the
    heads; keys and values may have fewer heads, each shared by neighbouring query heads, and the
    mask's batch axes align with the axes before the heads. Positions are integers that broadcast
    to (\\*batch, n) and (\\*batch, m); by default keys are at 0 … m − 1 and queries at the last n
    of them. ``dropout`` applies to the weights that multiply the values, not to
    ``Attended.weights``. With a ``cache``, keys and values are appended to it, and the queries
    attend to all keys in it.

    A query that may see no key gets zero weights, zero output and zero gradients. Keys that no
    query may see may contain anything, NaN included, also in a cache. A visible NaN reaches only
    the queries that may see it on a CPU, and all queries on a GPU, where locating it would force a
    synchronisation. Without a mask every query sees the padding. A row that is NaN has no gradient
    if inputs are sanitized (with a mask, or in a cache); without a mask its gradients are NaN.

    Raise a RegardError for arguments that are not tensors, for shapes that do not match, for
    unknown names, and for a tensor in place of a `Mask`.

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
    fused: an inner product with softmax: torch's kernel, O(n) memory; about 0 MB beside the inputs
    """
    positions = (query_positions, key_positions)
    arguments = Arguments(queries, keys, values, score, mask, normalize, dropout, *positions, heads)
    with torch.no_grad():
        return Computation.of(arguments).plan
