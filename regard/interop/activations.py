"""Hugging Face's names of the activations in `regard.layers.feedforward`."""

from regard.errors import RegardError
from regard.layers.feedforward import GATED

THEIRS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
OURS = {
    **{theirs: ours for ours, theirs in THEIRS.items()},
    "gelu_pytorch_tanh": "gelu-tanh",
    "swish": "silu",
}


def ours(name: str, where: str) -> str:
    """Return regard's name of an activation. Errors: one that regard does not have."""
    if name not in OURS:
        raise RegardError(
            f"{where}: unsupported activation {name!r}; supported are {', '.join(OURS)}"
        )
    return OURS[name]


def theirs(name: str, where: str) -> str:
    """Return Hugging Face's name of an activation. Errors: gated ones, which they lack."""
    if name.startswith(GATED):
        raise RegardError(
            f"{where} does not support activation={name}; train with activation="
            f"{' or '.join(THEIRS)}"
        )
    return THEIRS[name]
