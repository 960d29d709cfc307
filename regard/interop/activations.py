"""What Hugging Face calls the functions of `regard.layers.feedforward`."""

from regard.errors import RegardError
from regard.layers.feedforward import GATED

THEIRS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
OURS = {
    **{theirs: ours for ours, theirs in THEIRS.items()},
    "gelu_pytorch_tanh": "gelu-tanh",
    "swish": "silu",
}


def ours(name: str, where: str) -> str:
    """Our name of theirs. Errors: a function that regard does not know."""
    if name not in OURS:
        raise RegardError(
            f"{where} says {name!r}, an activation that regard has none of; it has those that are "
            f"called {', '.join(OURS)} there"
        )
    return OURS[name]


def theirs(name: str, where: str) -> str:
    """Their name of ours. Errors: it is gated, where they have no gate."""
    if name.startswith(GATED):
        raise RegardError(
            f"{where} has no place for activation={name}; it takes activation="
            f"{' or '.join(THEIRS)}: train with that"
        )
    return THEIRS[name]
