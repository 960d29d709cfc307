"""What laws are checked on: a score, a mask or a normaliser, and how to make and to call it."""

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
KERNELS = ("exact", "tiled")  # those that serve any score
#: Strips so small that even these inputs are cut into many.
SMALL = Constants(strip_numbers=64)
#: What padding may hold.
JUNK = {1e3: "1e3", float("nan"): "NaN", float("inf"): "infinity"}
Given = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class ScoreSubject:
    """A score: ``build(widths, heads, length)`` makes one.

    ``reads``: the widths of its queries and keys. ``fixed``: how many heads it was made for, where
    it was made already.
    """

    name: str
    build: Callable[[tuple[int, int], int | None, int], Score]
    reads: tuple[int, int] = (WIDTH, WIDTH)
    fixed: int | None = None

    @classmethod
    def of(cls, thing: Score | Callable[..., Score], name: str = "") -> "ScoreSubject":
        """From a class, a function that makes one as a class would, or a score as it is."""
        if isinstance(thing, Score):
            score, one, two = thing, thing.query_width, thing.key_width
            return cls(
                name or type(thing).__name__,
                lambda widths, heads, length: copy.deepcopy(score),
                (one or two or WIDTH, two or one or WIDTH),
                thing.heads or 2,
            )
        make = thing
        return cls(
            name or getattr(thing, "__name__", "score"),
            lambda widths, heads, length: make(*widths, heads=heads, length=length),
        )

    def heads(self, wanted: int = 2) -> int:
        """So many heads as wanted, or those that the score was made for."""
        return self.fixed or wanted

    def score(self, heads: int | None = 2, dtype: torch.dtype = torch.float64) -> Score:
        """A score whose parameters are a little away from where they begin."""
        heads = None if heads is None else self.heads(heads)
        made = self.build(self.reads, heads, LENGTH).to(dtype)
        nudge(made)
        return made

    def inputs(
        self,
        queries: int,
        keys: int,
        *,
        batch: Sequence[int] = (3,),
        heads: int = 2,
        groups: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Given:
        """Queries (\\*batch, heads, n, width), keys and values (\\*batch, groups, m, …)."""
        heads = self.heads(heads)
        sizes = (heads, queries, self.reads[0]), (keys, self.reads[1]), (keys, VALUE_WIDTH)
        groups = groups or heads
        made = (
            torch.randn(*batch, *sizes[0], dtype=dtype),
            torch.randn(*batch, groups, *sizes[1], dtype=dtype),
            torch.randn(*batch, groups, *sizes[2], dtype=dtype),
        )
        return made[0].requires_grad_(), made[1].requires_grad_(), made[2].requires_grad_()

    def look(
        self,
        given: Given,
        score: Score,
        mask: Mask | None = None,
        *,
        kernel: str | None = None,
        **how: Any,
    ) -> Attended:
        """`attend` over the heads at axis −3, by one kernel if it is named."""
        with by(kernel):
            return attend(*given, score, mask, heads=given[0].shape[-3], **how)


@dataclass(frozen=True)
class NormalizerSubject:
    """A normaliser: ``build(heads)`` makes one; ``fixed`` is how many heads it was made for."""

    name: str
    build: Callable[[int | None], Normalizer]
    fixed: int | None = None

    @classmethod
    def of(cls, thing: Normalizer | type[Normalizer], name: str = "") -> "NormalizerSubject":
        """From a class, or a normaliser as it is."""
        if isinstance(thing, Normalizer):
            built = copy.deepcopy(thing)
            return cls(
                name or type(thing).__name__, lambda heads: copy.deepcopy(built), thing.heads
            )
        return cls(name or thing.__name__, lambda heads: thing(heads))

    def normalizer(self, dtype: torch.dtype = torch.float64) -> Normalizer:
        """One for two heads, its parameters a little away from where they begin."""
        made = self.build(self.heads).to(dtype)
        nudge(made)
        return made

    @property
    def heads(self) -> int:
        """Two, or those that it was made for."""
        return self.fixed or 2

    def scores(
        self,
        rows: int = 5,
        keys: int = 7,
        dtype: torch.dtype = torch.float64,
        *,
        empty: bool = True,
    ) -> Tensor:
        """Random scores (3, heads, rows, keys), some hidden; ``empty``: and one row wholly."""
        made = 2 * torch.randn(3, self.heads, rows, keys, dtype=dtype)
        hidden = torch.rand(3, 1, rows, keys) < 0.3
        hidden[..., 0] = False
        hidden[1, :, rows // 2] = empty
        return made.masked_fill(hidden, -torch.inf)


@dataclass(frozen=True)
class MaskSubject:
    """A mask, and the calls it is asked about: so many queries, keys and texts."""

    name: str
    mask: Mask
    queries: int = 9
    keys: int = 11
    batch: int = 3

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """Positions: the queries are the last of the keys."""
        return torch.arange(self.keys - self.queries, self.keys), torch.arange(self.keys)

    def allowed(self) -> Tensor:
        """Its answers, (batch, 1, n, m)."""
        answers = self.mask.over_heads().allows(*self.places)
        return answers.expand(self.batch, 1, self.queries, self.keys)


@contextmanager
def by(kernel: str | None) -> Iterator[None]:
    """Compute by this kernel, tiles small enough that there are many."""
    with ExitStack() as stack:
        if kernel is not None:
            stack.enter_context(use(kernel))
        if kernel == "tiled":
            stack.enter_context(using(SMALL))
        yield


def nudge(module: torch.nn.Module) -> None:
    """Move parameters a little, so that one that begins at 0 hides nothing."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
