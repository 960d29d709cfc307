"""Mechanisms by name: ``MECHANISMS``."""

from regard.attention.mechanism import Mechanism
from regard.attention.multihead import MultiHeadAttention
from regard.errors import look_up
from regard.plugins import is_part, load_part

MECHANISMS: dict[str, type[Mechanism]] = {"multi-head": MultiHeadAttention}


def named_mechanism(name: str) -> type[Mechanism]:
    """Return the class of a mechanism, by name or as the user's ``FILE.py:Name``.

    >>> named_mechanism("multi-head")(8, 2, score="cosine").attention.score.name
    'cosine'
    """
    if is_part(name):
        own: type[Mechanism] = load_part(name, Mechanism, "attention")
        return own
    return look_up(MECHANISMS, name, "attention")
