"""Dependencies: the longest chain of operations, and a layer's reach measured by gradients."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

Layer = Callable[[Tensor], Tensor]


def longest_chain(output: Tensor) -> int:
    """Return the length of the longest path in the autograd graph of ``output``.

    This many steps are sequential on any number of processors. Each torch operation counts as one,
    whatever its size, including views.

    >>> x = torch.ones(2, requires_grad=True)
    >>> longest_chain(x + 1), longest_chain(((x + 1) * 2).exp())
    (1, 3)
    """
    root = output.grad_fn
    if root is None:
        return 0
    depth: dict[object, int] = {}
    stack = [root]
    while stack:  # not recursive: a chain may exceed Python's recursion limit
        node = stack[-1]
        before = [n for n, _ in node.next_functions if n is not None and n.next_functions]
        missing = [n for n in before if n not in depth]
        if missing:
            stack += missing
            continue
        depth[stack.pop()] = 1 + max((depth[n] for n in before), default=0)
    return depth[root]


def layers_between_ends(layer: Callable[[int], Layer], n: int, width: int) -> float:
    """Return the number of stacked layers until the last output depends on the first input.

    ``layer(i)`` returns the i-th layer from the top, a function of (1, n, width). Each layer is
    measured separately, in float64: which inputs have a nonzero gradient at the relevant outputs.
    So gradients of a deep stack need not be distinguished from 0. Return infinity if more layers do
    not reach farther.

    >>> shifted = lambda i: lambda x: x + x.roll(i + 1, 1)
    >>> layers_between_ends(shifted, 7, 2)
    3
    >>> layers_between_ends(lambda i: torch.sin, 7, 2)
    inf
    """
    draw = torch.Generator().manual_seed(0)
    matter = torch.zeros(n, dtype=torch.bool)
    matter[-1] = True
    for count in range(n):
        if matter[0]:
            return count
        x = torch.randn(1, n, width, dtype=torch.float64, generator=draw).requires_grad_()
        upstream = torch.randn(1, n, width, dtype=torch.float64, generator=draw)
        output = layer(count)(x)
        (gradient,) = torch.autograd.grad(output, x, upstream * matter[:, None])
        relevant = (gradient[0] != 0).any(-1)
        if bool((relevant == matter).all()) and count:
            return math.inf
        matter = relevant
    return n if matter[0] else math.inf


def steps_between_ends(rnn: nn.RNN, x: Float[Tensor, "1 n width"]) -> int:
    """Return the steps from the last output of an RNN to its first input, by gradients.

    Truncates backpropagation a number of steps before the end, and bisects for the fewest steps
    with which the first input has a nonzero gradient. The RNN must have ``batch_first=True``.

    >>> steps_between_ends(nn.RNN(2, 2, batch_first=True).double(), torch.ones(1, 9, 2).double())
    9
    """
    x = x.detach().requires_grad_()
    low, high = 0, x.shape[1]
    while high - low > 1:
        steps = (low + high) // 2
        output, _ = rnn(x[:, -steps:], rnn(x[:, :-steps])[1].detach())
        (gradient,) = torch.autograd.grad(output[:, -1].sum(), x)
        low, high = (low, steps) if bool((gradient[:, 0] != 0).any()) else (steps, high)
    return high
