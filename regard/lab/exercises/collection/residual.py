"""LayerNorm and a residual block with normalised input (document 000)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Arguments, Part, numbers

EPS = 1e-5


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Return (x − mean) / √(variance + 1e-5) · gain + bias of each word.

    x: (batch, n, d); gain, bias: (d,). The variance is Σ (x − mean)² / d.
    """
    return torch.layer_norm(x, x.shape[-1:], gain, bias, EPS)


def residual_block(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], gain: Tensor, bias: Tensor
) -> Tensor:
    """Return x + sublayer(x̃), where x̃ is the normalised x: (batch, n, d) -> (batch, n, d)."""
    return x + sublayer(layer_norm(x, gain, bias))


def _norm(
    x: Tensor,
    gain: Tensor,
    bias: Tensor,
    dims: tuple[int, ...] = (2,),
    eps: float = EPS,
    free: int = 0,
    root: float = 0.5,
) -> Tensor:
    variance = x.var(dims, correction=free, keepdim=True)
    return (x - x.mean(dims, keepdim=True)) / (variance + eps) ** root * gain + bias


def _uncentred(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return x / (x.var(2, correction=0, keepdim=True) + EPS).sqrt() * gain + bias


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 3.0], [0.0, 0.002]]])
    return [(small, torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])),
            (numbers(2, 3, 5), numbers(5), numbers(5, seed=1)),
            (numbers(4, 2, 3), numbers(3), numbers(3, seed=1))]  # fmt: skip


def _double(x: Tensor) -> Tensor:
    return 2 * x


def _block_cases() -> list[Arguments]:
    sublayers = [_double, torch.tanh, torch.exp]
    return [(x, f, *rest) for (x, *rest), f in zip(_cases(), sublayers, strict=True)]


PARTS = [
    Part(
        layer_norm,
        _cases,
        {
            "mean and variance run over the words; they are of one word": partial(_norm, dims=(1,)),
            "mean and variance run over the batch; that is BatchNorm": partial(_norm, dims=(0, 1)),
            "mean and variance run over words and width": partial(_norm, dims=(1, 2)),
            "the variance is divided by d − 1, not d": partial(_norm, free=1),
            "1e-5 is missing under the root": partial(_norm, eps=0.0),
            "it divides by the variance, not by its root": partial(_norm, root=1.0),
            "the mean is not subtracted": _uncentred,
            "the gain is not used": lambda x, g, b: _norm(x, torch.ones_like(g), b),
            "the bias is not used": lambda x, g, b: _norm(x, g, 0 * b),
        },
    ),
    Part(
        residual_block,
        _block_cases,
        {
            "the sum lacks x: there is no residual": lambda x, f, g, b: f(_norm(x, g, b)),
            "the input of the sublayer is not normalised": lambda x, f, g, b: x + f(x),
            "the output is normalised, not the input of the sublayer": (
                lambda x, f, g, b: _norm(x + f(x), g, b)
            ),
            "the normalised x is added, not x itself": (
                lambda x, f, g, b: _norm(x, g, b) + f(_norm(x, g, b))
            ),
            "the output of the sublayer is normalised, not its input": (
                lambda x, f, g, b: x + _norm(f(x), g, b)
            ),
            "the sublayer is not called": lambda x, f, g, b: x + _norm(x, g, b),
        },
    ),
]
