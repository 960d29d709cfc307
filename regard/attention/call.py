"""The prepared call of attention that kernels receive."""

from dataclasses import dataclass

from torch import Tensor

from regard.attention.mask_context import MaskContext
from regard.attention.normalizer import Normalizer
from regard.attention.prepared import Prepared
from regard.attention.sanitize import NonFinite
from regard.attention.score import Score


@dataclass(frozen=True)
class Call:
    """The inputs of a kernel: checked, sanitized, and prepared once per row.

    Keys and values may have fewer heads than the queries. Numbers of ``queries``, ``keys`` and
    ``values`` that were not finite are 0, and ``nonfinite`` marks their places.
    """

    queries: Prepared
    keys: Prepared
    values: Tensor
    score: Score
    normalizer: Normalizer
    context: MaskContext
    nonfinite: NonFinite | None
    dropout: float
