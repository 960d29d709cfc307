"""LayerNorm and a residual block with normalised input (document 000)."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.lab.exercises.part import Arguments, Part, numbers


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Return (x − mean) / √(variance + 1e-5) · gain + bias of each word.

    x: (batch, n, d); gain, bias: (d,). The variance is Σ (x − mean)² / d.
    """
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


def residual_block(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], gain: Tensor, bias: Tensor
) -> Tensor:
    """Return x + sublayer(x̃), where x̃ is the normalised x: (batch, n, d) -> (batch, n, d)."""
    return x + sublayer(layer_norm(x, gain, bias))


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 3.0], [0.0, 0.002]]])
    return [(small, torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])),
            (numbers(2, 3, 5), numbers(5), numbers(5, seed=1)),
            (numbers(4, 2, 3), numbers(3), numbers(3, seed=1))]  # fmt: skip


def _block_cases() -> list[Arguments]:
    sublayers = [lambda x: 2 * x, torch.tanh, torch.exp]
    return [(x, f, *rest) for (x, *rest), f in zip(_cases(), sublayers, strict=True)]


PARTS = [
    Part(layer_norm, _cases, {
        "mean and variance run over the words; they are of one word": ("x, -1", "x, 1"),
        "mean and variance run over the batch; that is BatchNorm": ("x, -1", "x, (0, 1)"),
        "mean and variance run over words and width": ("x, -1", "x, (1, 2)"),
        "the variance is divided by d − 1, not d": ("correction=0", "correction=1"),
        "1e-5 is missing under the root": ("sqrt(variance + 1e-5)", "sqrt(variance)"),
        "it divides by the variance, not by its root": ("torch.sqrt", ""),
        "the mean is not subtracted": ("(x - mean)", "x"),
        "the gain is not used": (" * gain", ""),
        "the bias is not used": ("* gain + bias", "* gain"),
    }),
    Part(residual_block, _block_cases, {
        "the sum lacks x: there is no residual": ("return x + ", "return "),
        "the input of the sublayer is not normalised": ("layer_norm(x, gain, bias)", "x"),
        "the output is normalised, not the input of the sublayer":
            ("x + sublayer(layer_norm(x, gain, bias))", "layer_norm(x + sublayer(x), gain, bias)"),
        "the normalised x is added, not x itself": ("return x", "return layer_norm(x, gain, bias)"),
        "the output of the sublayer is normalised, not its input":
            ("sublayer(layer_norm(x, gain, bias))", "layer_norm(sublayer(x), gain, bias)"),
        "the sublayer is not called": ("sublayer(layer", "(layer"),
    }),
]  # fmt: skip
