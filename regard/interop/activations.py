"""Names of activations: Hugging Face's and those of `regard.nn.layers.feedforward`."""

from regard.core.errors import RegardError
from regard.nn.layers.feedforward import GATED

HUGGING_FACE = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
REGARD = {
    **{stored: name for name, stored in HUGGING_FACE.items()},
    # The same functions, under other names.
    "gelu_python": "gelu",
    "gelu_fast": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "swish": "silu",
}


def exported(name: str, program: str) -> str:
    """Return Hugging Face's name of an activation. Raises: a gated one, which it does not have."""
    if name.startswith(GATED):
        raise RegardError(
            f"{program} does not support activation={name}; train with activation="
            f"{' or '.join(HUGGING_FACE)}"
        )
    return HUGGING_FACE[name]
