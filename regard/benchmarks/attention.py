"""``attend`` and ``MultiHeadAttention`` beside torch's own, on this machine.

Batch × heads = 64, heads 64 wide, float32; aim: at most 1.05 times torch's time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import SCORES, MultiHeadAttention, attend, causal, lengths
from regard.benchmarks.timing import in_turns

BATCH, HEADS, WIDTH = 8, 8, 64
SIZES = ((128, 40), (512, 15), (2048, 4))  # queries = keys, rounds
MASKED = 512


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Forward, and forward + backward, at n = 128, 512 and 2048; masks at 512."""
    torch.manual_seed(0)
    found = []
    for n, rounds in SIZES:
        rounds = max(rounds // 4, 2) if quick else rounds
        found += against_sdpa(n, rounds)
        found += against_multihead(n, rounds)
    return found


def against_sdpa(n: int, rounds: int) -> list[dict[str, Any]]:
    """``attend`` with scaled-dot beside ``scaled_dot_product_attention``."""
    q, k, v = (torch.randn(BATCH, HEADS, n, WIDTH, requires_grad=True) for _ in range(3))
    upstream, score = torch.randn(BATCH, HEADS, n, WIDTH), SCORES["scaled-dot"]()
    valid = torch.full((BATCH,), n)
    valid[0] -= n // 8
    padding = torch.arange(n) < valid[:, None, None, None]
    masks: list[tuple[str, Callable[[], Tensor], Callable[[], Tensor]]] = [
        (
            "attend",
            lambda: attend(q, k, v, score).output,
            lambda: F.scaled_dot_product_attention(q, k, v),
        )
    ]
    if n == MASKED:
        masks += [
            (
                "attend causal",
                lambda: attend(q, k, v, score, causal()).output,
                lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            ),
            (
                "attend lengths",
                lambda: attend(q, k, v, score, lengths(valid).over_heads()).output,
                lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=padding),
            ),
        ]
    found = []
    for name, ours, theirs in masks:
        against = "scaled_dot_product_attention"
        found.append(
            in_turns(f"{name} n={n} forward", against, forward(ours), forward(theirs), rounds)
        )
        found.append(
            in_turns(
                f"{name} n={n} forward + backward",
                against,
                both(ours, (q, k, v), upstream),
                both(theirs, (q, k, v), upstream),
                rounds,
            )
        )
    return found


def against_multihead(n: int, rounds: int) -> list[dict[str, Any]]:
    """``MultiHeadAttention`` beside ``torch.nn.MultiheadAttention``, neither asked for weights."""
    width = HEADS * WIDTH
    ours, theirs = (
        MultiHeadAttention(width, HEADS),
        nn.MultiheadAttention(width, HEADS, batch_first=True),
    )
    batch = BATCH if n < 2048 else 2
    x = torch.randn(batch, n, width, requires_grad=True)
    upstream = torch.randn(batch, n, width)
    return [
        in_turns(
            f"MultiHeadAttention n={n} forward + backward",
            "torch.nn.MultiheadAttention",
            both(lambda: ours(x), [x, *ours.parameters()], upstream),
            both(
                lambda: theirs(x, x, x, need_weights=False)[0],
                [x, *theirs.parameters()],
                upstream,
            ),
            rounds,
        )
    ]


def forward(work: Callable[[], Tensor]) -> Callable[[], object]:
    """The work, without a graph."""
    return torch.no_grad()(work)


def both(
    work: Callable[[], Tensor], of: Sequence[Tensor], upstream: Tensor
) -> Callable[[], object]:
    """The work and its gradients."""
    return lambda: torch.autograd.grad(work(), of, upstream)
