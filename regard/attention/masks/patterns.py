"""Masks by name, for settings: ``window-64+global-4``."""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import NamedTuple

from regard.attention.mask import Mask
from regard.attention.masks import bigbird, causal, global_tokens, window
from regard.core.errors import RegardError
from regard.core.names import layers_of, parts_of
from regard.core.tables import Table
from regard.core.usual import nearest


class Pattern(NamedTuple):
    """A row of ``PATTERNS``: example names with their numbers, and the function of the mask."""

    examples: tuple[str, ...]
    make: Callable[..., Mask]  # arguments: the maximum length, then the numbers

    def takes(self, numbers: int) -> bool:
        """Return whether some example has this many numbers."""
        return any(example.count("-") == numbers for example in self.examples)


def _bigbird(length: int | None, block: int = 64) -> Mask:
    if not length:
        raise RegardError("pattern 'bigbird' needs length=, the maximum input length")
    return bigbird(length, block=block)


PATTERNS: Table[Pattern] = Table(
    {
        "causal": Pattern(("causal",), lambda length: causal()),
        "window": Pattern(("window-64",), lambda length, size: window(size)),
        "dilated": Pattern(("dilated-64-2",), lambda length, size, step: window(size, step)),
        "global": Pattern(("global-4",), lambda length, size: global_tokens(size)),
        "bigbird": Pattern(("bigbird", "bigbird-16"), _bigbird),
    },
    "regard.patterns",
    Pattern,
    "pattern",
)


def named_mask(pattern: str, length: int | None = None) -> Mask | None:
    """Return a mask from its name, or None for "none"; "+" is the union of several masks.

    "window-64" allows 64 positions on both sides, "dilated-64-2" 64 on both sides in steps of 2,
    "global-4" lets the first four positions see all and be seen by all, "bigbird-16" has blocks of
    16 positions (64 by default) and needs the maximum input ``length``. "FILE.py:NAME-8" is a
    user's own `Pattern` with its number. Raise a RegardError for an unknown name.

    >>> import torch
    >>> near = named_mask("window-1+global-1")
    >>> near.allows(torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 1, 1]]
    """
    if pattern == "none":
        return None
    return reduce(or_, (_part(name, length) for name in parts_of(pattern)))


def within(mask: Mask | None, pattern: Mask | None) -> Mask | None:
    """Return the intersection of two masks; None allows all pairs.

    >>> import torch
    >>> within(causal(), named_mask("window-1")).allows(torch.arange(3), torch.arange(3)).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    if mask is None or pattern is None:
        return pattern if mask is None else mask
    return mask & pattern


class LayerMasks:
    """The masks of a stack's layers: ``window-512*5/none``, repeated over the stack.

    >>> import torch
    >>> masks = LayerMasks("window-1/none").of(causal(), 3)
    >>> [int(mask.allows(torch.arange(4), torch.arange(4)).sum()) for mask in masks]
    [7, 10, 7]
    """

    def __init__(self, pattern: str, length: int | None = None) -> None:
        self.masks = [named_mask(name, length) for name in layers_of(pattern)]

    def of(self, mask: Mask | None, layers: int) -> list[Mask | None]:
        """Return the intersection of ``mask`` with the mask of each layer."""
        masks = [within(mask, own) for own in self.masks]
        return [masks[layer % len(masks)] for layer in range(layers)]


def _part(name: str, length: int | None) -> Mask:
    base, numbers = PATTERNS.split(name)
    known = PATTERNS.get(base)
    if known and all(number.isdecimal() for number in numbers) and known.takes(len(numbers)):
        return known.make(length, *map(int, numbers))
    examples = [example for kind in PATTERNS.values() for example in kind.examples]
    near = [base] if known else nearest(name.partition("-")[0], PATTERNS)
    hint = f"did you mean {PATTERNS[near[0]].examples[-1]}? Choose" if near else "choose"
    raise RegardError(
        f"no pattern is called {name!r}; {hint} one of none, {', '.join(examples)}, with your own "
        "numbers, or join several with +, as in window-64+global-4"
    )
