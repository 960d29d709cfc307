"""Changes of a whole score, by name behind it: ``scaled-dot+qk-norm+soft-cap-50``."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.prepared import Positions, Prepared
from regard.attention.score import Score
from regard.attention.scores.wrapper import Wrapper
from regard.core.errors import RegardError
from regard.core.tables import Table

EPSILON = 1e-6  # added to the mean square


class SoftCap(Wrapper):
    """score(q, k) = cap · tanh(inner(q, k) / cap), in (−cap, cap). Gemma 2 (2024), section 2.

    Scores are those of the inner score, (…, n, m). Raise a RegardError for a cap that is not
    positive.

    >>> from regard.attention.scores import Dot
    >>> q, k = torch.ones(1, 1), torch.tensor([[0.0], [1.0], [100.0]])
    >>> SoftCap(Dot(), cap=2.0).compare(q, k, (torch.arange(1), torch.arange(3)))
    tensor([[0.0000, 0.9242, 2.0000]])
    """

    name = "soft-cap"
    options: ClassVar[Mapping[str, int]] = {"cap": 1}
    bends = True

    def __init__(self, inner: Score, *, cap: float = 50.0) -> None:
        super().__init__(inner)
        if cap <= 0:
            raise RegardError(f"soft-cap needs a cap above 0, not {cap:g}")
        self.cap = cap

    def changed(
        self, scores: Tensor, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor:
        return soft_cap(scores, self.cap)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, cap={self.cap:g}"


class QKNorm(Wrapper):
    """score(norm(q), norm(k)), norm(x) = g ⊙ x / √(mean x² + ε), before positions are applied.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m). There is one learned gain g
    per column and side, shared by the heads, which starts at 1; Henry et al. 2020 normalise, with
    these gains Qwen 3 (2025). Raise a RegardError without a ``query_width``.

    >>> from regard.attention.scores import Dot
    >>> QKNorm(Dot(2, 2)).prepare_keys(torch.tensor([[3.0, 4.0]]), torch.arange(1)).detach()
    tensor([[0.8485, 1.1314]])
    """

    name = "qk-norm"
    adds = False

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        if not inner.query_width:
            raise RegardError("score 'qk-norm' has parameters; pass query_width and key_width")
        self.query_gain = nn.Parameter(torch.ones(inner.query_width))
        self.key_gain = nn.Parameter(torch.ones(inner.key_width or inner.query_width))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        gain = self.query_gain.to(queries.dtype)
        return self.inner.prepare_queries(gain * normed(queries), positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(self.key_gain.to(keys.dtype) * normed(keys), positions)


class QKUnit(Wrapper):
    """score(g norm(q), norm(k)), norm(x) = √width · x / ‖x‖, with one learned gain g per head.

    The L2 form of `QKNorm`: for scaled-dot, g √width · cos(q, k). Henry et al. 2020. g
    starts at 1. Queries (…, n, width) and keys (…, m, width) give scores (…, n, m).

    >>> from regard.attention.scores import Dot
    >>> QKUnit(Dot()).prepare_queries(torch.tensor([[3.0, 4.0]]), torch.arange(1)).detach()
    tensor([[0.8485, 1.1314]])
    """

    name = "qk-unit"
    adds = False

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        self.gain = nn.Parameter(torch.ones((inner.heads, 1, 1) if inner.heads else ()))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_queries(self.gain.to(queries.dtype) * normed(queries), positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(normed(keys), positions)


def soft_cap(scores: Tensor, cap: float) -> Tensor:
    """Return cap · tanh(scores / cap)."""
    return cap * (scores / cap).tanh()


def normed(x: Tensor) -> Tensor:
    """Return x / √(mean x² + ε), computed in float32 for half precision."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide * (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()).to(x.dtype)


SCORE_WRAPPERS: Table[type[Wrapper]] = Table(
    {"soft-cap": SoftCap, "qk-norm": QKNorm, "qk-unit": QKUnit},
    "regard.score_wrappers",
    Wrapper,
    "change of a score",
    classes=True,
)
