"""Normalisers by name. To add one, write a class and a row in ``NORMALIZERS``."""

from regard.attention.normalizer import Normalizer
from regard.attention.normalizers.basic import Sigmoid, Sink, Softmax, SoftmaxPlusOne, Sum, TopK
from regard.attention.normalizers.sparse import Entmax, Entmax15, Sparsemax
from regard.core.tables import Table

NORMALIZERS: Table[type[Normalizer]] = Table(
    {
        "softmax": Softmax,
        "sum": Sum,
        "softmax-plus-one": SoftmaxPlusOne,
        "sink": Sink,
        "sigmoid": Sigmoid,
        "sparsemax": Sparsemax,
        "entmax15": Entmax15,
        "entmax": Entmax,
        "top-k": TopK,
        "scalable-softmax": "regard.attention.normalizers.scaled:ScalableSoftmax",
        "adaptive-entmax": "regard.attention.normalizers.scaled:AdaptiveEntmax",
        "stick-breaking": "regard.attention.normalizers.scaled:StickBreaking",
    },
    "regard.normalizers",
    Normalizer,
    "normalizer",
    classes=True,
)
