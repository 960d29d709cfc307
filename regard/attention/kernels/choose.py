"""Which path computes a call, and why. A pure function of what the call looks like."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.attention.scores import Score
from regard.errors import RegardError

Kernel = Literal["exact", "plain", "fused"]

#: Up to this many keys, plain matrix products beat torch's fused kernel in bfloat16 on a CPU with
#: AMX (1.55 times over a training step). In float32 and float64 the fused kernel wins at every
#: length, masks included: 1.1 times at 64 keys, 1.5 at 256, 1.8 at 512, forward and backward.
PLAIN_BFLOAT16_KEYS = 512

_asked: ContextVar[Kernel | None] = ContextVar("regard_kernel", default=None)


@dataclass(frozen=True)
class Plan:
    """A path and the reason for it."""

    kernel: Kernel
    why: str


def plan(
    *,
    inner_product: bool,
    normalize: str,
    keys: int,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    dropout: float = 0.0,
    finite: bool = True,
    asked: Kernel | None = None,
) -> Plan:
    """The path of a call with these properties.

    >>> plan(inner_product=True, normalize="softmax", keys=9).kernel
    'fused'
    >>> plan(inner_product=False, normalize="softmax", keys=9).why
    'the score is no inner product'
    """
    if not inner_product:
        return Plan("exact", "the score is no inner product")
    if normalize != "softmax":
        return Plan("exact", f"torch's kernels know softmax alone, not {normalize}")
    if not finite:
        return Plan("exact", "inputs hold NaN or infinity, which only this path keeps apart")
    if not keys:
        return Plan("plain", "there are no keys")
    if asked == "exact" or (asked is not None and not dropout):
        return Plan(asked, "use() asks for it")
    if dropout:
        return Plan("plain", "dropout on the weights needs them whole")
    if dtype == torch.bfloat16 and device == "cpu" and keys <= PLAIN_BFLOAT16_KEYS:
        return Plan("plain", f"bfloat16 and at most {PLAIN_BFLOAT16_KEYS} keys")
    return Plan("fused", "an inner product with softmax: torch's kernel, O(n) memory")


def explain(
    queries: Tensor,
    keys: Tensor,
    score: Score,
    *,
    normalize: str = "softmax",
    dropout: float = 0.0,
) -> str:
    """How :func:`regard.attend` would compute this call, and why.

    >>> from regard.attention import SCORES
    >>> x = torch.zeros(2, 9, 4)
    >>> explain(x, x, SCORES["dot"](), dropout=0.1)
    'plain: dropout on the weights needs them whole'
    """
    made = plan(
        inner_product=score.inner_product,
        normalize=normalize,
        keys=keys.shape[-2],
        dtype=queries.dtype,
        device=queries.device.type,
        dropout=dropout,
        asked=asked(),
    )
    return f"{made.kernel}: {made.why}"


def asked() -> Kernel | None:
    """The path that :func:`use` asks for."""
    return _asked.get()


@contextmanager
def use(kernel: Kernel | str) -> Iterator[None]:
    """Compute by this path inside the block: for tests, and for finding faults.

    A score that is no inner product is computed exactly all the same, and so are inputs that are
    not finite; dropout needs the weights, so "fused" with dropout becomes "plain".
    """
    if kernel not in ("exact", "plain", "fused"):
        raise RegardError(f"no kernel is called {kernel!r}. There are: exact, plain, fused")
    token = _asked.set(kernel)
    try:
        yield
    finally:
        _asked.reset(token)
