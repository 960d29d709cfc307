"""Names of activations: Hugging Face's and those of `regard.layers.feedforward`."""

from regard.errors import RegardError
from regard.layers.feedforward import GATED

THEIRS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
OURS = {
    **{theirs: ours for ours, theirs in THEIRS.items()},
    "gelu_pytorch_tanh": "gelu-tanh",
    "swish": "silu",
}


def ours(name: str, program: str) -> str:
    """Return regard's name of an activation. Errors: regard does not have it."""
    if name not in OURS:
        raise RegardError(
            f"{program}: unsupported activation {name!r}; supported are {', '.join(OURS)}"
        )
    return OURS[name]


def theirs(name: str, program: str) -> str:
    """Return Hugging Face's name of an activation. Errors: a gated one, which it does not have."""
    if name.startswith(GATED):
        raise RegardError(
            f"{program} does not support activation={name}; train with activation="
            f"{' or '.join(THEIRS)}"
        )
    return THEIRS[name]
