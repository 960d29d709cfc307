"""One model's weights under two sets of names: what stands where, in both directions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RegardError


@dataclass(frozen=True)
class Row:
    """One of our tensors, and the tensors of theirs that it is made of, row upon row.

    ``turned``: theirs are the other way about (rows are columns). ``sizes``: how many of our rows
    belong to each of theirs; by default as many to each. ``factors``: each of theirs is our part
    times its factor; by default 1. ``optional``: may be missing there.
    """

    ours: str
    theirs: tuple[str, ...]
    turned: bool = False
    optional: bool = False
    sizes: tuple[int, ...] | None = None
    factors: tuple[float, ...] = ()


#: A tensor of a numbered layer, as GPT-2, BERT and T5 call theirs; what of these is no weight.
IN_A_LAYER = re.compile(r"(^|\.)(h|layer|block)\.\d+\.")
BUFFERS = (".attn.bias", ".attn.masked_bias")


def take(rows: Iterable[Row], theirs: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Our tensors, of theirs, in float32.

    Errors: one is missing that is not optional; a layer holds one that has no place here.
    """
    found, used = {}, set[str]()
    for row in rows:
        used |= {*row.theirs}
        missing = [name for name in row.theirs if name not in theirs]
        if missing and row.optional:
            continue
        if missing:
            raise RegardError(f"{source} has no tensor {missing[0]}: it belongs to another model")
        parts = [theirs[name].float() for name in row.theirs]
        if row.factors:
            parts = [x / factor for x, factor in zip(parts, row.factors, strict=True)]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        found[row.ours] = whole.T.contiguous() if row.turned else whole.clone()
    for name in theirs:
        if name not in used and IN_A_LAYER.search(name) and not name.endswith(BUFFERS):
            raise RegardError(f"{source} contains {name}, which its config does not describe")
    return found


def give(rows: Iterable[Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, of ours."""
    found: dict[str, Tensor] = {}
    for row in rows:
        whole = ours[row.ours].T if row.turned else ours[row.ours]
        each = row.sizes or [len(whole) // len(row.theirs)] * len(row.theirs)
        parts = whole.split(list(each))
        if row.factors:
            parts = tuple(x * factor for x, factor in zip(parts, row.factors, strict=True))
        found.update(zip(row.theirs, parts, strict=True))
    return found


def linear(ours: str, *theirs: str, bias: bool = True, turned: bool = False) -> list[Row]:
    """A linear map: its weight, and its bias."""
    rows = [Row(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), turned)]
    if bias:
        rows.append(Row(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs)))
    return rows
