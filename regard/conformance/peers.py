"""Layers and models of other packages, by name."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from regard.attention import MultiHeadAttention
from regard.conformance.adapters import (
    HEADS,
    WIDTH,
    Layer,
    of_class,
)
from regard.conformance.adoption import adopt
from regard.conformance.law import LONG
from regard.core.errors import RegardError


def peer(name: str) -> Any:
    """Import an optional package. Raises: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.replace("_", "-")
        raise RegardError(f"{name} is not installed ({error}): pip install {package}") from None


def tiny(kind: str, kernel: str) -> Layer:
    """Return the adapter of a small transformers model with random weights."""
    package = peer("transformers")
    settings = {"vocab_size": 20, "hidden_size": WIDTH, "num_attention_heads": HEADS,
                "num_hidden_layers": 2, "max_position_embeddings": max(LONG),
                "attn_implementation": kernel}  # fmt: skip

    def make(dropout: float = 0.0) -> nn.Module:
        if kind == "BertModel":
            own = {"intermediate_size": 16, "hidden_dropout_prob": 0.0,
                   "attention_probs_dropout_prob": dropout}  # fmt: skip
        else:
            own = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": dropout}
        config = getattr(package, kind.replace("Model", "Config"))(**settings, **own)
        module: nn.Module = getattr(package, kind)(config)
        return module

    return adopt(make, name=f"transformers.{kind}:{kernel}")


def of_x_transformers(kind: str, *, flash: bool = False) -> Layer:
    """Return the adapter of a layer or a stack of layers of x_transformers."""
    package, name = peer("x_transformers"), f"x_transformers.{kind}{':flash' if flash else ''}"
    stack: dict[str, Any] = {"dim": WIDTH, "depth": 2, "heads": HEADS}
    inner = {"dim_head": WIDTH // HEADS, "flash": flash}

    def make(dropout: float = 0.0) -> nn.Module:
        if kind == "Attention":
            module = package.Attention(WIDTH, heads=HEADS, dropout=dropout, **inner)
        else:
            own = {f"attn_{key}": value for key, value in {**inner, "dropout": dropout}.items()}
            module = getattr(package, kind)(**stack, **own)
        return module  # type: ignore[no-any-return]

    return adopt(make, name=name)


#: Functions that build the adapters of layers and models, by name.
LAYERS: dict[str, Callable[[], Layer]] = {
    "regard.MultiHeadAttention": lambda: of_class(MultiHeadAttention, "regard.MultiHeadAttention"),
    "torch.nn.MultiheadAttention": lambda: adopt(
        nn.MultiheadAttention, name="torch.nn.MultiheadAttention"
    ),
    **{f"transformers.{kind}:{kernel}": partial(tiny, kind, kernel)
       for kind in ("BertModel", "GPT2Model") for kernel in ("eager", "sdpa")},
    **{f"x_transformers.{kind}{':flash' if flash else ''}":
       partial(of_x_transformers, kind, flash=flash)
       for kind in ("Attention", "Encoder", "Decoder") for flash in (False, True)},
}  # fmt: skip
