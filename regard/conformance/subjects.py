"""Subjects of laws: scores, masks and normalisers, and how to build and call them."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention import Attended, Mask, Normalizer, Score, attend, use
from regard.attention.kernels.choose import Constants, using

WIDTH, VALUE_WIDTH, LENGTH = 6, 5, 128
KERNELS = ("exact", "tiled")  # those that support every score
#: Strips small enough to split even these inputs.
SMALL = Constants(strip_numbers=64, strip_rows=1)
#: Values of padding, and their names.
JUNK = {1e3: "1e3", float("nan"): "NaN", float("inf"): "infinity"}
Inputs = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class ScoreSubject:
    """A score, built by ``build(widths, heads, length)``.

    ``widths``: of its queries and keys. ``fixed_heads``: the number of heads, if the subject is an
    instance.
    """

    name: str
    build: Callable[[tuple[int, int], int | None, int], Score]
    widths: tuple[int, int] = (WIDTH, WIDTH)
    fixed_heads: int | None = None

    @classmethod
    def of(cls, thing: Score | Callable[..., Score], name: str = "") -> "ScoreSubject":
        """Return the subject of an instance, or of a class or function that builds a score."""
        if isinstance(thing, Score):
            score, query_width, key_width = thing, thing.query_width, thing.key_width
            return cls(
                name or type(thing).__name__,
                lambda widths, heads, length: copy.deepcopy(score),
                (query_width or key_width or WIDTH, key_width or query_width or WIDTH),
                thing.heads or 2,
            )
        make = thing
        return cls(
            name or getattr(thing, "__name__", "score"),
            lambda widths, heads, length: make(*widths, heads=heads, length=length),
        )

    def heads(self, wanted: int = 2) -> int:
        """Return the number of heads of an instance, else ``wanted``."""
        return self.fixed_heads or wanted

    def score(
        self, heads: int | None = 2, dtype: torch.dtype = torch.float64, length: int = LENGTH
    ) -> Score:
        """Return a score whose parameters differ a little from their initial values."""
        heads = None if heads is None else self.heads(heads)
        score = self.build(self.widths, heads, length).to(dtype)
        nudge(score)
        return score

    def inputs(
        self,
        queries: int,
        keys: int,
        *,
        batch: Sequence[int] = (3,),
        heads: int = 2,
        groups: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Inputs:
        """Return queries (*batch, heads, n, width), keys and values (*batch, groups, m, …)."""
        heads = self.heads(heads)
        sizes = (heads, queries, self.widths[0]), (keys, self.widths[1]), (keys, VALUE_WIDTH)
        groups = groups or heads
        q = torch.randn(*batch, *sizes[0], dtype=dtype)
        k = torch.randn(*batch, groups, *sizes[1], dtype=dtype)
        v = torch.randn(*batch, groups, *sizes[2], dtype=dtype)
        return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()

    def attend(
        self,
        inputs: Inputs,
        score: Score,
        mask: Mask | None = None,
        *,
        kernel: str | None = None,
        **options: Any,
    ) -> Attended:
        """Call `attend` with heads at axis −3, with this kernel if one is named."""
        with using_kernel(kernel):
            return attend(*inputs, score, mask, heads=inputs[0].shape[-3], **options)


@dataclass(frozen=True)
class NormalizerSubject:
    """A normaliser, built by ``build(heads)``.

    ``fixed_heads``: the number of heads, if the subject is an instance.
    """

    name: str
    build: Callable[[int | None], Normalizer]
    fixed_heads: int | None = None

    @classmethod
    def of(cls, thing: Normalizer | type[Normalizer], name: str = "") -> "NormalizerSubject":
        """Return the subject of a class or an instance."""
        if isinstance(thing, Normalizer):
            normalizer = copy.deepcopy(thing)
            return cls(
                name or type(thing).__name__, lambda heads: copy.deepcopy(normalizer), thing.heads
            )
        return cls(name or thing.__name__, lambda heads: thing(heads))

    def normalizer(self, dtype: torch.dtype = torch.float64) -> Normalizer:
        """Return a normaliser whose parameters differ a little from their initial values."""
        normalizer = self.build(self.heads).to(dtype)
        nudge(normalizer)
        return normalizer

    @property
    def heads(self) -> int:
        """Return the number of heads of an instance, else 2."""
        return self.fixed_heads or 2

    def scores(
        self,
        rows: int = 5,
        keys: int = 7,
        dtype: torch.dtype = torch.float64,
        *,
        empty: bool = True,
    ) -> Tensor:
        """Return random scores (3, heads, rows, keys), some hidden; ``empty``: also a whole row."""
        scores = 2 * torch.randn(3, self.heads, rows, keys, dtype=dtype)
        hidden = torch.rand(3, 1, rows, keys) < 0.3
        hidden[..., 0] = False
        hidden[1, :, rows // 2] = empty
        return scores.masked_fill(hidden, -torch.inf)


@dataclass(frozen=True)
class MaskSubject:
    """A mask, and the numbers of queries, keys and texts that it is checked with."""

    name: str
    mask: Mask
    queries: int = 9
    keys: int = 11
    batch: int = 3

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Return the positions of queries and keys; the queries are the last of the keys."""
        return torch.arange(self.keys - self.queries, self.keys), torch.arange(self.keys)

    def allowed(self) -> Tensor:
        """Return the allowed pairs (batch, 1, n, m)."""
        allowed = self.mask.over_heads().allows(*self.positions)
        return allowed.expand(self.batch, 1, self.queries, self.keys)


@contextmanager
def using_kernel(kernel: str | None) -> Iterator[None]:
    """Use this kernel within the context, with many small tiles."""
    with ExitStack() as stack:
        if kernel is not None:
            stack.enter_context(use(kernel))
        if kernel == "tiled":
            stack.enter_context(using(SMALL))
        yield


def nudge(module: torch.nn.Module) -> None:
    """Change parameters a little, so that none is 0 and hides an error."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
