"""The layers that the lab ``complexity`` compares; each maps n vectors to n vectors.

    python -m regard.lab.labs.complexity.layers '{"lengths": [128, 256], "d": 64, …}'

prints the peak memory of a call of each layer in megabytes, without its inputs, as JSON.
"""

import gc
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.analysis.memory import probe
from regard.attention import Attention, Mask, MultiHeadAttention, explain, make_score, window
from regard.attention.mechanisms.linformer import Linformer

LAYERS = ("cnn", "rnn", "self-attention", "linformer", "window")
ATTENTIONS = LAYERS[2:]
PROBES = 3


class Size(NamedTuple):
    """The numbers that a layer's cost depends on: length, width, kernel, window, rank."""

    n: int
    d: int
    kernel: int = 3
    window: int = 64
    rank: int = 64
    heads: int = 1
    batch: int = 1


class Convolution(nn.Module):
    """y_t = Σ_j W_j x_{t + (j − ⌊k/2⌋) · dilation} + b over the kernel's k places, zeros beyond.

    With ``causal`` none of them is after t, as in WaveNet. van den Oord et al. 2016, figure 3.
    """

    def __init__(self, d: int, kernel: int, dilation: int = 1, *, causal: bool = False) -> None:
        super().__init__()
        self.left = (kernel - 1 if causal else kernel // 2) * dilation
        self.right = (kernel - 1) * dilation - self.left
        self.convolve = nn.Conv1d(d, d, kernel, dilation=dilation)

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n d"]:
        """Return as many vectors as there are inputs."""
        y: Tensor = self.convolve(F.pad(x.mT, (self.left, self.right))).mT
        return y


class Recurrence(nn.Module):
    """h_t = tanh(W x_t + U h_{t−1} + b). Elman 1990."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(d, d, batch_first=True)

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n d"]:
        """Return the states."""
        states: Tensor = self.rnn(x)[0]
        return states


class SelfAttention(nn.Module):
    """softmax(x xᵀ / √d) x by heads: self-attention without its four projections."""

    def __init__(self, heads: int, mask: Mask | None, compress: Linformer | None) -> None:
        super().__init__()
        self.heads, self.mask = heads, mask
        self.attention = Attention(make_score("scaled-dot"), heads=heads, compress=compress)

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n d"]:
        """Return a weighted average of all vectors for each vector."""
        x = x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        output: Tensor = self.attention(x, x, x, self.mask).output
        return output.transpose(-3, -2).flatten(-2)


class Projected(nn.Module):
    """Self-attention with projections of queries, keys, values, output. Vaswani et al. 2017."""

    def __init__(self, d: int, heads: int, mask: Mask | None, compress: Linformer | None) -> None:
        super().__init__()
        self.mask = mask
        self.layer = MultiHeadAttention(d, heads, compress=compress or "none")

    def forward(self, x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n d"]:
        """Compute self-attention."""
        output: Tensor = self.layer(x, mask=self.mask)
        return output


def make(name: str, size: Size, *, projections: bool = True) -> nn.Module:
    """Return a layer by name, from (batch, n, d) to the same shape.

    >>> make("window", Size(9, 4, window=2))(torch.ones(1, 9, 4)).shape
    torch.Size([1, 9, 4])
    """
    if name == "cnn":
        return Convolution(size.d, size.kernel)
    if name == "rnn":
        return Recurrence(size.d)
    mask = window(size.window) if name == "window" else None
    compress = Linformer(size.rank, size.n) if name == "linformer" else None
    if projections:
        return Projected(size.d, size.heads, mask, compress)
    return SelfAttention(size.heads, mask, compress)


def skips_blocks(size: Size) -> bool:
    """Return whether regard computes a window's attention in strips that skip hidden blocks."""
    x = torch.zeros(size.batch, size.heads, size.n, size.d // size.heads)
    plan = explain(x, x, x, make_score("scaled-dot"), window(size.window), heads=size.heads)
    return plan.kernel == "tiled" or plan.by_strips


def work(
    name: str, size: Size, *, projections: bool = True, backward: bool = False, seed: int = 0
) -> Callable[[], Sequence[Tensor]]:
    """Return a call of a layer on random vectors; ``backward``: it computes all gradients too."""
    torch.manual_seed(seed)
    layer = make(name, size, projections=projections)
    x = torch.randn(size.batch, size.n, size.d, requires_grad=backward)
    if not backward:
        return torch.no_grad()(lambda: [layer(x)])
    upstream = torch.randn(size.batch, size.n, size.d)
    of = [x, *layer.parameters()]

    def both() -> Sequence[Tensor]:
        output = layer(x)
        return [output, *torch.autograd.grad(output, of, upstream)]

    return both


def memory(
    lengths: Sequence[int], *, projections: bool, backward: bool, **sizes: int
) -> dict[str, list[float]]:
    """Return the peak megabytes of a call without its inputs, by layer, for each length.

    Each is the median of `PROBES` calls, because the memory that threads and the C library keep
    varies.
    """

    def one(name: str, n: int) -> float:
        making = partial(work, name, Size(n, **sizes), projections=projections, backward=backward)
        making()()  # loads the libraries that the call needs
        return median(probe(making).extra_mb for _ in range(PROBES))

    return {name: [one(name, n) for n in lengths] for name in LAYERS}


def main(asked: str) -> None:
    """Run the measurement as a command."""
    settings: dict[str, Any] = json.loads(asked)
    sys.stdout.write(json.dumps(memory(**settings)) + "\n")


if __name__ == "__main__":
    gc.freeze()  # the collector need not search existing objects at every probe
    main(sys.argv[1])
