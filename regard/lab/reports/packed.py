"""Compact attention weights for pages: a byte each, all or only the strongest of each query.

``static/packed.js`` decodes them. Numbers are little-endian.
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
from regard.core.errors import RegardError
from regard.lab.reports.attended import plain_name

Weights = NDArray[np.floating]

EVEN = 4.0  # a weight below this multiple of a uniform one never has the full colour
THUMB = 48  # maximum cells of a thumbnail's side
SMALL = 400_000  # weights of all layers up to which all are sent at once
TOPS = (32, 16, 12, 8, 4)  # numbers of strongest keys per query to try if all weights do not fit
ROLLOUT = "rollout"
SIDES = ("encoder", "decoder")


def with_rollout(layers: Sequence[LayerAttention], residual: float = 0.5) -> list[LayerAttention]:
    """Return the layers, followed by their `rollout` if two or more have self-attention.

    Encoder and decoder read different texts, so each has its own rollout.
    """
    stacks: dict[str, list[LayerAttention]] = {}
    for x in layers:
        if x.asking is None and x.weights.shape[1] == x.weights.shape[2] > 1:
            side = x.layer.partition(".")[0]
            stacks.setdefault(f"{side}." if side in SIDES else "", []).append(x)
    extended = list(layers)
    for side, same in stacks.items():
        if len(same) > 1 and len({x.weights.shape[1] for x in same}) == 1:
            together = rollout([torch.from_numpy(np.asarray(x.weights)) for x in same], residual)
            extended.append(LayerAttention(side + ROLLOUT, same[0].tokens, together.numpy()[None]))
    return extended


def is_rollout(layer: LayerAttention) -> bool:
    """Return whether a layer is the rollout of several layers."""
    return layer.layer.rpartition(".")[2] == ROLLOUT


def pack(layers: Sequence[LayerAttention], *, small: int = SMALL) -> dict[str, Any]:
    """Return the layers as plain values for JSON: names, tokens, head patterns and thumbnails.

    The weights are included if there are at most `small` in total. Each head is packed separately,
    so that a page unpacks only the heads that it shows.
    """
    description = _described(layers)
    if sum(layer.weights.size for layer in layers) <= small:
        _fill(description, layers, None)
    return description


def pack_below(layers: Sequence[LayerAttention], limit: int) -> dict[str, Any]:
    """Return `pack` with all weights, or the strongest of each query that fit into `limit` bytes.

    Raises: not even four weights of each query fit.
    """
    description = _described(layers)
    room = limit - sum(len(layer["thumbs"]) for layer in description["layers"])
    for top in (None, *TOPS):
        sample = sum(len(_packed(x.weights[0], top)) * len(x.weights) for x in layers)
        if sample <= 1.1 * room and _fill(description, layers, top) <= room:
            return description
    raise RegardError(
        f"the attention weights of this text exceed {limit:,} bytes; give a shorter text or "
        "fewer texts"
    )


def matrix(weights: Weights) -> bytes:
    """Encode a head (queries, keys): the largest weight of each query (float32), then the bytes.

    A weight is ``largest × byte / 255``, with an error of at most 1/510 of the query's largest.
    """
    scales, bytes_ = _quantised(weights)
    return scales.tobytes() + bytes_.tobytes()


def strongest(weights: Weights, top: int) -> bytes:
    """Encode the `top` keys of each query: largest weight (float32), keys (uint16), the bytes."""
    top = min(top, weights.shape[-1])
    places = np.argpartition(-weights, top - 1, axis=-1)[:, :top]
    places.sort(-1)
    scales, bytes_ = _quantised(np.take_along_axis(weights, places, -1))
    return scales.tobytes() + places.astype("<u2").tobytes() + bytes_.tobytes()


def thumbnail(weights: Weights) -> NDArray[np.uint8]:
    """Shrink a head (queries, keys) to at most 48 × 48 cells: the root of each largest weight.

    The full colour is the largest weight of all, or four times a uniform one if that is more, so
    that a head with nearly uniform attention is pale.
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


def _fill(description: dict[str, Any], layers: Sequence[LayerAttention], top: int | None) -> int:
    """Add the weights of every head and return their length in characters."""
    total = 0
    for row, layer in zip(description["layers"], layers, strict=True):
        count = min(top or 0, layer.weights.shape[-1])
        row["top"] = count
        row["packed"] = [_packed(head, count or None) for head in layer.weights]
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
