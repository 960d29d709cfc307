"""The rows of ``regard bench attention --device cuda``: sizes, dtypes and aims of a GPU."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.attention_cases import HEADS, TRAINED, WIDTH, additive, gaussian
from benchmarks.case import Aim, Case, Problem, Side
from regard.attention import NORMALIZERS, SCORES, Score, attend, causal, make_score, window
from regard.attention.prepared import Positions, Prepared

HALF = torch.bfloat16
#: Answers in bfloat16 agree to some of its steps.
NEAR = 3e-2
LONG = 65_536


def table(*, quick: bool = False) -> list[Case]:
    """Return all rows; ``quick``: the same with small inputs, which a CPU can compute too."""
    n, long = (48, 96) if quick else (4096, LONG)
    name = f"additive n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    case = partial(additive, peers.compiled_additive)
    rows = [
        Case(name, "compiled dense", case, n, Aim(10), tolerance=1e-3),
        Case(name, "KeOps", partial(additive, peers.keops_additive), n, Aim(30), tolerance=1e-3),
        trains("additive", f"additive n={long} heads={HEADS} width={WIDTH}", long, Aim(mb=4000)),
        trains("coordinates", f"coordinates as a bias n={long}", long, Aim(mb=4000)),
        *dots(n),
        sparse(n // 2),
    ]
    for against, peer in (("KeOps", peers.keops_gaussian), ("dense", peers.dense_gaussian)):
        size = 300 if quick else 20_000
        make = partial(gaussian, peer, 8, None)
        rows.append(Case(f"Gaussian {size:,} × {size:,} width=8", against, make, size, Aim(1),
                         trained=False, tolerance=1e-3))  # fmt: skip
    return rows


def inputs(n: int, dtype: torch.dtype, batch: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys and values that require gradients, and a gradient of the output."""
    shape = (batch, HEADS, n, WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(shape, dtype=dtype)


def dots(n: int) -> Iterator[Case]:
    """Yield the rows of dot products: torch's kernel, a bias of distance, a causal window."""
    near = n // 16
    for word, against, aim in (
        ("dot causal", "SDPA", Aim(0.95)),
        ("ALiBi", "FlexAttention", Aim(0.8)),
        (f"window {near} causal", "FlexAttention", Aim(0.8)),
    ):
        name = f"{word} n={n} heads={HEADS} width={WIDTH} bfloat16 {TRAINED}"
        yield Case(name, against, partial(dot, word.split()[0], near), n, aim, tolerance=NEAR)


def dot(word: str, near: int, n: int) -> Problem:
    """One of them."""
    q, k, v, upstream = inputs(n, HALF)
    of = [q, k, v]
    score = make_score("scaled-dot", "alibi" if word == "ALiBi" else "none", heads=HEADS)
    mask = {"dot": causal(), "ALiBi": None, "window": window(near) & causal()}[word]

    def theirs() -> Side:
        if word == "dot":
            return Side(peers.sdpa(q, k, v, causal=True), of)
        if word == "window":
            return Side(peers.flex_window(near, q, k, v), of)
        slopes = score.get_buffer("slopes").flatten()
        return Side(peers.flex_alibi(slopes, q, k, v), of)

    return Problem(lambda: Side(lambda: attend(q, k, v, score, mask).output, of), theirs, upstream)


def sparse(n: int) -> Case:
    """Return the rows of entmax-1.5 against its package."""

    def make(n: int) -> Problem:
        score, normalizer = SCORES["scaled-dot"](), NORMALIZERS["entmax15"]()
        q, k, v, upstream = inputs(n, torch.float32)
        of = [q, k, v]
        return Problem(
            lambda: Side(lambda: attend(q, k, v, score, normalize=normalizer).output, of),
            lambda: Side(peers.entmax_dense("entmax15", q, k, v), of),
            upstream,
        )

    name = f"entmax-1.5 n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    return Case(name, "entmax", make, n, Aim(5), tolerance=1e-3)


def trains(word: str, name: str, n: int, aim: Aim) -> Case:
    """Return a call whose table would not fit into memory, with a bound on its memory."""
    make = partial(additive, None) if word == "additive" else coordinates
    return Case(f"{name} {TRAINED}, trains", "", make, n, aim)


class Near(Score):
    """score(q, k) = q·k / √width − w ‖x − y‖, with learned w: coordinates x, y in two columns."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        return queries[..., :-2] * WIDTH**-0.5, queries[..., -2:].float()

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        return keys[..., :-2], keys[..., -2:].float()

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        (q, x), (k, y) = queries, keys
        apart = (x[..., :, None, :] - y[..., None, :, :]).square().sum(-1)
        nearer: Tensor = q @ k.mT - self.slope * (apart + 1e-6).sqrt()
        return nearer


def coordinates(n: int) -> Problem:
    """pytorch#152593: a learned function of two points, added to the scores."""
    q, k, v, upstream = inputs(n, torch.float32)
    score = Near()
    of = [q, k, v, score.slope]
    return Problem(lambda: Side(lambda: attend(q, k, v, score).output, of), None, upstream)
