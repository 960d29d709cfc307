"""A call of attention as kernels get it."""

from dataclasses import dataclass

from torch import Tensor

from regard.attention.mask_context import MaskContext
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Prepared
from regard.attention.sanitize import NonFinite
from regard.attention.score import Score


@dataclass(frozen=True)
class Call:
    """What attention is computed from: checked, sanitized, and prepared once per row.

    Keys and values may have fewer heads than the queries. What was not finite in ``queries``,
    ``keys`` and ``values`` is 0, and its places are in ``nonfinite``.
    """

    queries: Prepared
    keys: Prepared
    values: Tensor
    score: Score
    normalizer: Normalizer
    context: MaskContext
    nonfinite: NonFinite | None
    dropout: float
