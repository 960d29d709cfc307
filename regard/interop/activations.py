"""Names of activations: Hugging Face's and those of `regard.nn.layers.feedforward`."""

from regard.core.errors import RegardError
from regard.nn.layers.feedforward import GATED

THEIRS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
OURS = {
    **{theirs: ours for ours, theirs in THEIRS.items()},
    # The same functions, in other words.
    "gelu_python": "gelu",
    "gelu_fast": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "swish": "silu",
}


def theirs(name: str, program: str) -> str:
    """Return Hugging Face's name of an activation. Raises: a gated one, which it does not have."""
    if name.startswith(GATED):
        raise RegardError(
            f"{program} does not support activation={name}; train with activation="
            f"{' or '.join(THEIRS)}"
        )
    return THEIRS[name]
