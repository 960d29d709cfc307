"""Mechanisms by name: ``MECHANISMS``."""

from collections.abc import Callable
from functools import partial

from regard.attention.head_spec import HeadMechanism
from regard.attention.mechanism import Mechanism
from regard.core.errors import RegardError
from regard.core.names import parts_of
from regard.core.tables import Table

MECHANISMS: Table[type[Mechanism]] = Table(
    {
        "multi-head": "regard.attention.mechanisms.multihead:MultiHeadAttention",
        "gated": "regard.attention.mechanisms.variants:GatedAttention",
        "differential": "regard.attention.mechanisms.variants:DifferentialAttention",
        "forgetting": "regard.attention.mechanisms.forgetting:ForgettingAttention",
        "latent": "regard.attention.mechanisms.latent:LatentAttention",
        "moba": "regard.attention.mechanisms.moba:BlockAttention",
        "dsa": "regard.attention.mechanisms.indexed:IndexedAttention",
        "linear": "regard.attention.mechanisms.linear:LinearAttention",
        "linear-relu": "regard.attention.mechanisms.linear:ReluAttention",
        "linear-softmax": "regard.attention.mechanisms.linear:ExponentialAttention",
        "retention": "regard.attention.mechanisms.linear:Retention",
        "gla": "regard.attention.mechanisms.linear:GatedLinearAttention",
        "delta": "regard.attention.mechanisms.linear:DeltaAttention",
        "deltanet": "regard.attention.mechanisms.linear:DeltaNetAttention",
        "kda": "regard.attention.mechanisms.linear:KimiDeltaAttention",
        "ssd": "regard.attention.mechanisms.linear:StateSpaceAttention",
    },
    "regard.mechanisms",
    Mechanism,
    "attention",
    classes=True,
)


def named_mechanism(name: str) -> Callable[..., Mechanism]:
    """Return the class of a mechanism, by name or as the user's ``FILE.py:Name``.

    Numbers behind the name are arguments of the class: ``moba-32-4``; names behind ``+`` are
    output stages. Raises: an unknown name or option; a file that is not trusted or holds none;
    stages of a mechanism that is not built from a `HeadSpec`.

    >>> named_mechanism("multi-head")(8, 2, score="cosine").attention.score.name
    'cosine'
    >>> named_mechanism("moba-32-4")(8, 2).blocks
    (32, 4)
    >>> [*named_mechanism("delta+exclusive+gate-heads")(8, 2).stages]
    ['exclusive', 'gate-heads']
    """
    first, *stages = parts_of(name)
    kind, options = MECHANISMS.named(first)
    if stages:
        if not issubclass(kind, HeadMechanism):
            raise RegardError(f"{first} takes no output stages; leave out +{'+'.join(stages)}")
        options["stages"] = tuple(stages)
    return partial(kind, **options) if options else kind
