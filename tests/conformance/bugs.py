"""What `planted` and `planted_elsewhere` share: bugs below any attention, and what laws find.

The attention has the methods ``scores``, ``weights`` and ``averaged``.
"""

from collections.abc import Collection, Mapping

import torch
from torch import nn

from regard.conformance import conform


class NoSlope32:
    """The backward pass ends at the 32nd word."""

    def averaged(self, *given):
        output = super().averaged(*given)
        return torch.cat([output[..., :32, :], output[..., 32:, :].detach()], -2)


class NoDropout:
    """Takes a dropout and has none."""

    def averaged(self, q, k, v, mask, rows, columns):
        return self.weights(self.scores(q, k, rows, columns), mask) @ v


class DropsAlways:
    """Drops weights in evaluation too."""

    def averaged(self, q, k, v, mask, rows, columns):
        weights = self.weights(self.scores(q, k, rows, columns), mask)
        return nn.functional.dropout(weights, self.dropout) @ v


class DropsUnscaled:
    """Drops weights and does not divide the rest by 1 − p."""

    def averaged(self, q, k, v, mask, rows, columns):
        weights = self.weights(self.scores(q, k, rows, columns), mask)
        if self.training and self.dropout:
            weights = weights * (torch.rand_like(weights) > self.dropout)
        return weights @ v


class Remembers:
    """Subtracts a running mean of the queries it has seen."""

    def __init__(self, width, heads, **settings):
        super().__init__(width, heads, **settings)
        self.register_buffer("mean", torch.zeros(()))

    def scores(self, q, k, rows, columns):
        self.mean = (0.9 * self.mean + 0.1 * q.detach().mean()).to(q.dtype)
        return super().scores(q - self.mean, k, rows, columns)


class NormsBatch:
    """Divides the values by their size over all texts."""

    def averaged(self, q, k, v, *more):
        return super().averaged(q, k, v / v.square().mean().sqrt(), *more)


class Guesses:
    """Changes queries by new random numbers at each call."""

    def scores(self, q, k, rows, columns):
        return super().scores(q + 0.1 * torch.randn_like(q), k, rows, columns)


class FirstHeadLearns:
    """Only the first head gets a gradient."""

    def averaged(self, *given):
        output = super().averaged(*given)
        return torch.cat([output[..., :1, :, :], output[..., 1:, :, :].detach()], -3)


class WrongSlope(torch.autograd.Function):
    """softmax with a backward pass that reads the first 100 columns."""

    @staticmethod
    def forward(ctx, scores):
        weights = scores.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx, upstream):
        (weights,) = ctx.saved_tensors
        mean = (weights * upstream)[..., :100].sum(-1, keepdim=True)
        return weights * (upstream - mean)


#: The law that finds each: kinds that laws of short texts without options miss, and others.
KINDS = {
    NoSlope32: "long gradients",
    NoDropout: "dropout",
    DropsAlways: "dropout",
    DropsUnscaled: "dropout",
}
OTHERS = {
    Remembers: "twice",
    NormsBatch: "batches",
    Guesses: "twice",
    FirstHeadLearns: "gradients",
}


def below(base: type[nn.Module], bugs: Mapping[type, str]) -> dict[type[nn.Module], str]:
    """The bugs, planted in an attention."""
    return {type(bug.__name__, (bug, base), {}): law for bug, law in bugs.items()}


def failures(part: object, **options: object) -> dict[str, str]:
    """The laws that a part breaks, and what they say."""
    return {v.law: v.message for v in conform(part, **options) if v.outcome == "fails"}


def report(planted: Collection[type], right: Collection[object]) -> int:
    """Print what the laws find; the exit code is 1 if a bug is missed or a right part flagged."""
    torch.set_num_threads(1)
    caught = flagged = 0
    for kind in planted:
        laws = failures(kind)
        caught += bool(laws)
        first = next(iter(laws), "missed")
        print(f"{kind.__name__}: {', '.join(laws) or first}: {laws.get(first, '')}", flush=True)
    for part in right:
        laws = failures(part)
        flagged += bool(laws)
        for law, words in laws.items():
            print(f"{part.__name__}, which is right: {law}: {words}", flush=True)
    print(f"{caught} of {len(planted)} bugs caught, {flagged} of {len(right)} right parts flagged")
    return int(caught < len(planted) or flagged > 0)
