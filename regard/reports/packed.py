"""Attention weights small enough to travel: a byte each, whole or the strongest of every query.

The page reads this in ``static/packed.js``. Numbers are little-endian.
"""

import base64
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import adaptive_max_pool2d

from regard.analysis.heads import habits
from regard.analysis.layer_attention import LayerAttention
from regard.analysis.maps import rollout
from regard.errors import RegardError
from regard.reports.attended import plain_name

Weights = NDArray[np.floating]

EVEN = 4.0  # times an even share that has the full colour at least
THUMB = 48  # cells of a thumbnail's side, at most
SMALL = 400_000  # weights of all layers together up to which all of them travel at once
TOPS = (32, 16, 12, 8, 4)  # of a query's strongest keys, how many are tried where all are too many
ROLLOUT = "rollout"
SIDES = ("encoder", "decoder")


def with_rollout(layers: Sequence[LayerAttention], residual: float = 0.5) -> list[LayerAttention]:
    """The layers, and where a text looks at itself in two or more of them their `rollout`.

    Encoder and decoder look at two texts: each has its own.
    """
    stacks: dict[str, list[LayerAttention]] = {}
    for x in layers:
        if x.asking is None and x.weights.shape[1] == x.weights.shape[2] > 1:
            side = x.layer.partition(".")[0]
            stacks.setdefault(f"{side}." if side in SIDES else "", []).append(x)
    found = list(layers)
    for side, same in stacks.items():
        if len(same) > 1 and len({x.weights.shape[1] for x in same}) == 1:
            together = rollout([torch.from_numpy(np.asarray(x.weights)) for x in same], residual)
            found.append(LayerAttention(side + ROLLOUT, same[0].tokens, together.numpy()[None]))
    return found


def is_rollout(layer: LayerAttention) -> bool:
    """Whether it is several layers together."""
    return layer.layer.rpartition(".")[2] == ROLLOUT


def pack(layers: Sequence[LayerAttention], *, small: int = SMALL) -> dict[str, Any]:
    """The layers as plain values for JSON: names, tokens, what each head does, a thumbnail each.

    The weights of all heads are inside where they are at most `small` numbers together. Each head
    is packed for itself, so that a page unpacks the one that is looked at.
    """
    found = _described(layers)
    if sum(layer.weights.size for layer in layers) <= small:
        _fill(found, layers, None)
    return found


def pack_below(layers: Sequence[LayerAttention], limit: int) -> dict[str, Any]:
    """All weights, or the strongest of each query, as many as fit into `limit` bytes of JSON.

    Errors: not even four of each query fit.
    """
    found = _described(layers)
    room = limit - sum(len(layer["thumbs"]) for layer in found["layers"])
    for top in (None, *TOPS):
        sample = sum(len(_packed(x.weights[0], top)) * len(x.weights) for x in layers)
        if sample <= 1.1 * room and _fill(found, layers, top) <= room:
            return found
    raise RegardError(f"the weights of this text take more than {limit:,} bytes")


def matrix(weights: Weights) -> bytes:
    """A head (queries, keys): the largest weight of each query (float32), then a byte each.

    A weight is ``largest × byte / 255``: off by at most 1/510 of the largest of its query.
    """
    scales, bytes_ = _quantised(weights)
    return scales.tobytes() + bytes_.tobytes()


def strongest(weights: Weights, top: int) -> bytes:
    """A head by its `top` keys a query: largest weight (float32), keys (uint16), a byte each."""
    top = min(top, weights.shape[-1])
    places = np.argpartition(-weights, top - 1, axis=-1)[:, :top]
    places.sort(-1)
    scales, bytes_ = _quantised(np.take_along_axis(weights, places, -1))
    return scales.tobytes() + places.astype("<u2").tobytes() + bytes_.tobytes()


def thumbnail(weights: Weights) -> NDArray[np.uint8]:
    """A head (queries, keys) in at most 48 × 48 cells: the root of each one's largest weight.

    Full is the largest of all, or four times an even share, so that a broad head looks pale.
    """
    rows, columns = weights.shape
    table = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float32))
    size = (min(rows, THUMB), min(columns, THUMB))
    cells = adaptive_max_pool2d(table[None], size)[0].numpy()
    full = max(float(cells.max(initial=0)), EVEN / columns)
    return np.asarray(np.rint(255 * np.sqrt(np.clip(cells / full, 0, 1))), dtype=np.uint8)


def _described(layers: Sequence[LayerAttention]) -> dict[str, Any]:
    axes: list[list[str]] = []

    def axis(tokens: Sequence[str]) -> int:
        if list(tokens) not in axes:
            axes.append(list(tokens))
        return axes.index(list(tokens))

    return {"layers": [_layer(layer, axis) for layer in layers], "axes": axes}


def _layer(layer: LayerAttention, axis: Callable[[Sequence[str]], int]) -> dict[str, Any]:
    heads, rows, columns = layer.weights.shape
    thumbs = [thumbnail(head) for head in layer.weights]
    kind = "cross" if layer.asking is not None else "pool" if rows < columns else "self"
    name = plain_name(layer.layer)
    if is_rollout(layer):
        side = layer.layer.removesuffix(ROLLOUT).replace(".", " ")
        kind, name = ROLLOUT, f"all {side}layers together"
    return {
        "name": name,
        "path": layer.layer,
        "kind": kind,
        "heads": heads,
        "rows": rows,
        "columns": columns,
        "keys": axis(layer.tokens),
        "queries": -1 if kind == "pool" else axis(layer.asking or layer.tokens),
        "habits": habits(layer.weights, layer.tokens, layer.asking),
        "thumb": list(thumbs[0].shape) if thumbs else [0, 0],
        "thumbs": _text(b"".join(thumb.tobytes() for thumb in thumbs)),
        "top": 0,
        "packed": [],
    }


def _fill(found: dict[str, Any], layers: Sequence[LayerAttention], top: int | None) -> int:
    """Put every head's weights in; how many letters that takes."""
    total = 0
    for row, layer in zip(found["layers"], layers, strict=True):
        kept = min(top or 0, layer.weights.shape[-1])
        row["top"] = kept
        row["packed"] = [_packed(head, kept or None) for head in layer.weights]
        total += sum(map(len, row["packed"]))
    return total


def _packed(head: Weights, top: int | None) -> str:
    return _text(zlib.compress(strongest(head, top) if top else matrix(head), 6))


def _quantised(weights: Weights) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    clean = np.nan_to_num(np.asarray(weights, dtype=np.float32))
    scales = clean.max(-1, initial=0).astype("<f4")
    parts = clean / np.where(scales > 0, scales, 1)[:, None]
    return scales, np.rint(255 * np.clip(parts, 0, 1)).astype(np.uint8)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
