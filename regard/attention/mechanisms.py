"""Mechanisms by name: ``MECHANISMS``."""

from regard.attention.mechanism import Mechanism
from regard.errors import look_up
from regard.tables import Table

MECHANISMS: Table[type[Mechanism]] = Table(
    {
        "multi-head": "regard.attention.multihead:MultiHeadAttention",
        "gated": "regard.attention.variants:GatedAttention",
        "differential": "regard.attention.variants:DifferentialAttention",
        "forgetting": "regard.attention.forgetting:ForgettingAttention",
        "latent": "regard.attention.latent:LatentAttention",
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


def named_mechanism(name: str) -> type[Mechanism]:
    """Return the class of a mechanism, by name or as the user's ``FILE.py:Name``.

    Errors: an unknown name; a file that is not trusted or holds none.

    >>> named_mechanism("multi-head")(8, 2, score="cosine").attention.score.name
    'cosine'
    """
    return look_up(MECHANISMS, name, "attention")
