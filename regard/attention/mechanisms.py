"""Mechanisms by name: ``MECHANISMS``."""

from collections.abc import Callable
from functools import partial

from regard.attention.mechanism import Mechanism
from regard.attention.naming import named_part
from regard.tables import Table

MECHANISMS: Table[type[Mechanism]] = Table(
    {
        "multi-head": "regard.attention.multihead:MultiHeadAttention",
        "gated": "regard.attention.variants:GatedAttention",
        "differential": "regard.attention.variants:DifferentialAttention",
        "forgetting": "regard.attention.forgetting:ForgettingAttention",
        "latent": "regard.attention.latent:LatentAttention",
        "moba": "regard.attention.moba:BlockAttention",
        "linear": "regard.attention.linear:LinearAttention",
        "linear-relu": "regard.attention.linear:ReluAttention",
        "linear-softmax": "regard.attention.linear:ExponentialAttention",
        "retention": "regard.attention.linear:Retention",
        "gla": "regard.attention.linear:GatedLinearAttention",
        "delta": "regard.attention.linear:DeltaAttention",
        "ssd": "regard.attention.linear:StateSpaceAttention",
    },
    "regard.mechanisms",
    Mechanism,
    "attention",
    classes=True,
)


def named_mechanism(name: str) -> Callable[..., Mechanism]:
    """Return the class of a mechanism, by name or as the user's ``FILE.py:Name``.

    Numbers behind the name are arguments of the class: ``moba-32-4``. Errors: an unknown name or
    option; a file that is not trusted or holds none.

    >>> named_mechanism("multi-head")(8, 2, score="cosine").attention.score.name
    'cosine'
    >>> named_mechanism("moba-32-4")(8, 2).blocks
    (32, 4)
    """
    kind, options = named_part(MECHANISMS, name)
    return partial(kind, **options) if options else kind
