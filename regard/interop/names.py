"""Convert weights between regard's tensor names and those of another program."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import RegardError


@dataclass(frozen=True)
class Row:
    """One of regard's tensors (ours) and the file's tensors (theirs) that it concatenates by rows.

    ``turned``: theirs are transposed. ``sizes``: the number of our rows for each of theirs; equal
    by default. ``factors``: each of theirs is our part times its factor; 1 by default.
    ``optional``: the file may lack them.
    """

    ours: str
    theirs: tuple[str, ...]
    turned: bool = False
    optional: bool = False
    sizes: tuple[int, ...] | None = None
    factors: tuple[float, ...] = ()


#: Names of tensors in a numbered layer of GPT-2, BERT and T5, and of those that are not weights.
IN_A_LAYER = re.compile(r"(^|\.)(h|layer|block)\.\d+\.")
BUFFERS = (".attn.bias", ".attn.masked_bias")


def take(rows: Iterable[Row], theirs: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return regard's tensors in float32, converted from the file's.

    Raises: a missing tensor that is not optional; a tensor of a layer that no row names.
    """
    result, used = {}, set[str]()
    for row in rows:
        used |= {*row.theirs}
        missing = [name for name in row.theirs if name not in theirs]
        if missing and row.optional:
            continue
        if missing:
            raise RegardError(f"{source} has no tensor {missing[0]}, which its config describes")
        parts = [theirs[name].float() for name in row.theirs]
        if row.factors:
            parts = [x / factor for x, factor in zip(parts, row.factors, strict=True)]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        result[row.ours] = whole.T.contiguous() if row.turned else whole.clone()
    for name in theirs:
        if name not in used and IN_A_LAYER.search(name) and not name.endswith(BUFFERS):
            raise RegardError(f"{source} contains {name}, which its config does not describe")
    return result


def give(rows: Iterable[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's tensors, converted from regard's."""
    result: dict[str, Tensor] = {}
    for row in rows:
        whole = ours[row.ours].T if row.turned else ours[row.ours]
        sizes = row.sizes or [len(whole) // len(row.theirs)] * len(row.theirs)
        parts = whole.split(list(sizes))
        if row.factors:
            parts = tuple(x * factor for x, factor in zip(parts, row.factors, strict=True))
        result.update(zip(row.theirs, parts, strict=True))
    return result


def linear(ours: str, *theirs: str, bias: bool = True, turned: bool = False) -> list[Row]:
    """Return the rows of a linear layer: its weight and its bias."""
    rows = [Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), turned)]
    if bias:
        rows.append(Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs)))
    return rows
