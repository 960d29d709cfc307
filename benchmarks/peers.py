"""The peers of ``regard bench attention``: other implementations of the formula.

They get regard's tensors and parameters and return the outputs, so that the answers of
both can be compared before anything is timed. None of them uses regard's kernels.
"""

import importlib
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.core.errors import RegardError

#: Each peer by the name that results carry, with the package that it needs besides torch.
PEERS: dict[str, str | None] = {
    "dense": None,
    "compiled dense": None,
    "KeOps": "pykeops",
    "SDPA": None,
    "SDPA causal": None,
    "multi-head": None,
    "entmax": "entmax",
    "AdaSplash": "adasplash",
    "fla": "fla",
    "FlexAttention": None,
    "nn.MultiheadAttention": None,
    "the plain forward": None,
}


def missing(peer: str) -> bool:
    """Return whether a peer's package is missing.

    >>> missing("dense")
    False
    """
    package = PEERS[peer]
    return package is not None and find_spec(package) is None


def package_of(peer: str) -> ModuleType:
    """Import the package of a peer without its prints: stdout is for results."""
    name = PEERS[peer]
    if name is None or find_spec(name) is None:
        raise RegardError(f"{peer} is not installed: pip install -c constraints.txt '.[bench]'")
    with redirect_stdout(StringIO()):
        if name != "pykeops":
            return importlib.import_module(name)
        found = importlib.import_module("pykeops.torch")
        importlib.import_module(name).set_verbose(False)
        return found


def dense_additive(
    score: nn.Module, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return softmax(w·tanh(W_q q + W_k k + b)) v, with the hidden layer of all pairs in memory."""
    wq, wk, bias, weight = additive_parameters(score)

    def output() -> Tensor:
        q, k = queries @ wq + bias, keys @ wk
        hidden = torch.tanh(q[..., :, None, :] + k[..., None, :, :])
        return (hidden @ weight[..., None, :, :]).squeeze(-1).softmax(-1) @ values

    return output


def compiled_additive(
    score: nn.Module, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return the same by torch.compile, for fixed shapes."""
    compiled: Callable[[], Tensor] = torch.compile(
        dense_additive(score, queries, keys, values), dynamic=False
    )
    return compiled


def keops_additive(
    score: nn.Module, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return the same by KeOps, which has exp but no tanh: tanh(x) = 1 − 2 / (1 + e^{2x})."""
    lazy = package_of("KeOps").LazyTensor
    wq, wk, bias, weight = additive_parameters(score)

    def output() -> Tensor:
        q, k = queries @ wq + bias, keys @ wk
        hidden = lazy(q[..., :, None, :].contiguous()) + lazy(k[..., None, :, :].contiguous())
        tanh = 1 - 2 / (1 + (2 * hidden).exp())
        w = lazy(weight.squeeze(-1)[..., None, None, :].contiguous())
        return averaged((w * tanh).sum(-1), lazy(values[..., None, :, :]), queries.ndim - 1)

    return output


def dense_gaussian(
    inverse_width: Tensor, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return softmax(−‖w(q − k)‖² / 2) v with the full table of distances."""

    def output() -> Tensor:
        q, k = inverse_width * queries, inverse_width * keys
        apart = q - k.mT if q.shape[-1] == 1 else torch.cdist(q, k)
        return (-apart.square() / 2).softmax(-1) @ values

    return output


def keops_gaussian(
    inverse_width: Tensor, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return the same by KeOps, as in its documentation."""
    lazy = package_of("KeOps").LazyTensor

    def output() -> Tensor:
        q, k = inverse_width * queries, inverse_width * keys
        apart = ((lazy(q[..., :, None, :]) - lazy(k[..., None, :, :])) ** 2).sum(-1)
        return averaged(-apart / 2, lazy(values[..., None, :, :]), queries.ndim - 1)

    return output


def averaged(scores: Any, values: Any, axis: int) -> Tensor:
    """Return the values weighted by KeOps' softmax over the keys."""
    found: Tensor = scores.sumsoftmaxweight(values, dim=axis)
    return found


def sdpa(
    queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool = False
) -> Callable[[], Tensor]:
    """Return torch's scaled_dot_product_attention."""
    return lambda: F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)


def sdpa_biased(
    bias: Tensor, buckets: Tensor, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return the same with a learned bias per bucket and head as its mask, with a gradient."""
    return lambda: F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=bias[:, buckets][None]
    )


def entmax_dense(
    normalize: str, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return the entmax package's ``sparsemax`` or ``entmax15`` on the full table of scores.

    Its argument ``k`` is not set: it is faster, but wrong if more than k keys have a weight.
    """
    function = getattr(package_of("entmax"), normalize)
    scale = queries.shape[-1] ** -0.5

    def output() -> Tensor:
        weights: Tensor = function(scale * queries @ keys.mT, dim=-1)
        return weights @ values

    return output


def adasplash(queries: Tensor, keys: Tensor, values: Tensor) -> Callable[[], Tensor]:
    """Return the adasplash package's causal entmax-1.5."""
    attend: Callable[..., Tensor] = package_of("AdaSplash").adasplash
    return lambda: attend(queries, keys, values, alpha=1.5, is_causal=True)


def fla(name: str, **inputs: Tensor) -> Callable[[], Tensor]:
    """Return the chunked recurrence of flash-linear-attention, which has heads after rows."""
    operation = getattr(importlib.import_module("fla.ops"), f"chunk_{name}")

    def output() -> Tensor:
        turned = {key: x.transpose(1, 2).contiguous() for key, x in inputs.items()}
        found: Tensor = operation(**turned, scale=1.0)[0]
        return found.transpose(1, 2)

    return output


def flex_alibi(
    slopes: Tensor, queries: Tensor, keys: Tensor, values: Tensor
) -> Callable[[], Tensor]:
    """Return torch's FlexAttention, compiled, with a score_mod that subtracts slope · |i − j|."""
    # Imported here: a cold process pays for it.
    from torch.nn.attention.flex_attention import flex_attention

    def alibi(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score - slopes[head] * (i - j).abs()

    compiled = torch.compile(flex_attention, dynamic=False)

    def output() -> Tensor:
        found: Tensor = compiled(queries, keys, values, score_mod=alibi)
        return found

    return output


def flex_window(near: int, queries: Tensor, keys: Tensor, values: Tensor) -> Callable[[], Tensor]:
    """Return FlexAttention, compiled, with a causal window of blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i >= j) & (i - j <= near)

    n = queries.shape[-2]
    blocks = create_block_mask(seen, None, None, n, n, device=queries.device.type)
    compiled = torch.compile(flex_attention, dynamic=False)

    def output() -> Tensor:
        found: Tensor = compiled(queries, keys, values, block_mask=blocks)
        return found

    return output


def multihead(layer: nn.MultiheadAttention, x: Tensor, *, weights: bool) -> Callable[[], Tensor]:
    """Return torch's layer in self-attention, with or without weights."""
    return lambda: layer(x, x, x, need_weights=weights)[0]


def additive_parameters(score: nn.Module) -> Sequence[Tensor]:
    """Return W_q, W_k, b and w of an additive score."""
    return [score.get_parameter(x) for x in ("query_weight", "key_weight", "bias", "weight")]
