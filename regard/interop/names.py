"""Convert weights between regard's tensor names and those of another program."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import RegardError
from regard.nn.models.settings import T5Settings, TransformerSettings


@dataclass(frozen=True)
class Row:
    """One of regard's tensors, `name`, and the tensors of a file, `stored`, that it joins by rows.

    ``turned``: the stored ones are transposed. ``factors``: each stored tensor is a part of `name`
    times its factor; 1 by default. ``optional``: the file may lack them.
    """

    name: str
    stored: tuple[str, ...]
    turned: bool = False
    optional: bool = False
    factors: tuple[float, ...] = ()


#: Names of tensors in a numbered layer of GPT-2, BERT and T5, and of those that are not weights.
IN_A_LAYER = re.compile(r"(^|\.)(h|layer|block)\.\d+\.")
BUFFERS = (".attn.bias", ".attn.masked_bias")


def take(rows: Iterable[Row], tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return regard's tensors in float32, converted from the file's.

    Raises: a missing tensor that is not optional; a tensor of a layer that no row names.
    """
    result, used = {}, set[str]()
    for row in rows:
        used |= {*row.stored}
        missing = [name for name in row.stored if name not in tensors]
        if missing and row.optional:
            continue
        if missing:
            raise RegardError(f"{source} has no tensor {missing[0]}, which its config describes")
        parts = [tensors[name].float() for name in row.stored]
        if row.factors:
            parts = [x / factor for x, factor in zip(parts, row.factors, strict=True)]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        result[row.name] = whole.T.contiguous() if row.turned else whole.clone()
    for name in tensors:
        if name not in used and IN_A_LAYER.search(name) and not name.endswith(BUFFERS):
            raise RegardError(f"{source} contains {name}, which its config does not describe")
    return result


def give(rows: Iterable[Row], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors, converted from regard's."""
    result: dict[str, Tensor] = {}
    for row in rows:
        whole = tensors[row.name].T if row.turned else tensors[row.name]
        parts = whole.chunk(len(row.stored))
        if row.factors:
            parts = tuple(x * factor for x, factor in zip(parts, row.factors, strict=True))
        result.update(zip(row.stored, parts, strict=True))
    return result


def stacks(settings: TransformerSettings | T5Settings) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the stacks of an encoder-decoder, each with its number of layers."""
    return ("encoder", settings.layers), ("decoder", settings.decoder_layers or settings.layers)


def linear(prefix: str, *stored: str, bias: bool = True, turned: bool = False) -> list[Row]:
    """Return the rows of a linear layer: its weight and its bias."""
    rows = [Row(f"{prefix}.weight", tuple(f"{name}.weight" for name in stored), turned)]
    if bias:
        rows.append(Row(f"{prefix}.bias", tuple(f"{name}.bias" for name in stored)))
    return rows
