"""The rows of ``regard bench attention --device cuda``: sizes, dtypes and aims of a GPU."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import peers
from benchmarks.attention_cases import HEADS, TRAINED, WIDTH, additive, gaussian, inputs
from benchmarks.case import Aim, Case, Problem, Side
from regard.attention import NORMALIZERS, SCORES, Score, attend, causal, make_score, window
from regard.attention.kernels.linear import Inputs, by_chunks
from regard.attention.positions.biases import Alibi
from regard.attention.prepared import Positions, Prepared, like

HALF = torch.bfloat16
#: Answers in bfloat16 agree to some of its steps.
NEAR = 3e-2
LONG = 65_536


def table(*, quick: bool = False) -> list[Case]:
    """Return all rows; ``quick``: the same with small inputs, which a CPU can compute too."""
    n, long = (48, 96) if quick else (4096, LONG)
    name = f"additive n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    case, size = partial(additive, peers.compiled_additive), 300 if quick else 20_000
    wide = f"Gaussian {size:,} × {size:,} width=8"

    def kernel(peer: Callable[..., Callable[[], Tensor]]) -> Callable[[int], Problem]:
        return partial(gaussian, peer, 8, None)

    return [
        *dots(n),
        *(recurrent(name, n) for name in ("gla", "gated_delta_rule", "kda", "simple_gla")),
        sparse("AdaSplash", n, HALF),
        sparse("entmax", n // 2, torch.float32),
        Case(wide, "dense", kernel(peers.dense_gaussian), size, Aim(1), trained=False,
             tolerance=1e-3),
        Case(name, "compiled dense", case, n, Aim(10), tolerance=1e-3),
        Case(wide, "KeOps", kernel(peers.keops_gaussian), size, Aim(1), trained=False,
             tolerance=1e-3),
        Case(name, "KeOps", partial(additive, peers.keops_additive), n, Aim(30), tolerance=1e-3),
        trains("coordinates", f"coordinates as a bias n={long}", long, Aim(mb=4000)),
        trains("additive", f"additive n={long} heads={HEADS} width={WIDTH}", long, Aim(mb=4000)),
    ]  # fmt: skip


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
    q, k, v, upstream = inputs(n, dtype=HALF)
    of = [q, k, v]
    score = make_score("scaled-dot", "alibi" if word == "ALiBi" else "none", heads=HEADS)
    mask = {"dot": causal(), "ALiBi": None, "window": window(near) & causal()}[word]

    def theirs() -> Side:
        if word == "dot":
            return Side(peers.sdpa(q, k, v, causal=True), of)
        if word == "window":
            return Side(peers.flex_window(near, q, k, v), of)
        assert isinstance(score, Alibi)
        return Side(peers.flex_alibi(like(score.slopes.flatten(), q).float(), q, k, v), of)

    return Problem(lambda: Side(lambda: attend(q, k, v, score, mask).output, of), theirs, upstream)


def sparse(against: str, n: int, dtype: torch.dtype) -> Case:
    """Return a row of entmax-1.5 against a package, AdaSplash with a causal mask."""
    is_causal = against == "AdaSplash"

    def make(n: int) -> Problem:
        score, normalizer = SCORES["scaled-dot"](), NORMALIZERS["entmax15"]()
        q, k, v, upstream = inputs(n, dtype=dtype)
        of, mask = [q, k, v], causal() if is_causal else None
        peer = peers.adasplash if is_causal else partial(peers.entmax_dense, "entmax15")
        return Problem(
            lambda: Side(lambda: attend(q, k, v, score, mask, normalize=normalizer).output, of),
            lambda: Side(peer(q, k, v), of),
            upstream,
        )

    word = " causal bfloat16" if is_causal else ""
    name = f"entmax-1.5{word} n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    aim, tolerance = (Aim(0.8), NEAR) if is_causal else (Aim(5), 1e-3)
    return Case(name, against, make, n, aim, tolerance=tolerance)


def recurrent(name: str, n: int) -> Case:
    """Return a row of a recurrence in chunks against flash-linear-attention, in bfloat16."""

    def make(n: int) -> Problem:
        q, k, v, upstream = inputs(n, batch=(4,), dtype=HALF)
        shape = (*q.shape[:-1], WIDTH if name in ("gla", "kda") else 1)
        g = -torch.rand(shape).mul(0.1)
        given = {"g": g.float().requires_grad_()}
        if name in ("kda", "gated_delta_rule"):
            k = F.normalize(k.detach(), dim=-1).requires_grad_()
            given["beta"] = torch.rand(*q.shape[:-1], 1).to(HALF).requires_grad_()
        of = [q, k, v, *given.values()]

        def theirs() -> Side:
            flat = {key: x if x.shape[-1] > 1 else x.squeeze(-1) for key, x in given.items()}
            return Side(peers.fla(name, q=q, k=k, v=v, **flat), of)

        def ours() -> Tensor:
            rate = given["beta"].float() if "beta" in given else None
            single = Inputs(q.float(), k.float(), v.float(), given["g"], rate)  # as in layers
            return by_chunks(single)[0].to(q.dtype)

        return Problem(lambda: Side(ours, of), theirs, upstream)

    title = f"{name} n={n} batch=4 heads={HEADS} width={WIDTH} bfloat16 {TRAINED}"
    return Case(title, "fla", make, n, Aim(0.5), tolerance=5e-2)


def trains(word: str, name: str, n: int, aim: Aim) -> Case:
    """Return a call whose table would not fit into memory, with a bound on its memory."""
    make = partial(additive, None) if word == "additive" else coordinates
    # A call of the full size takes long: its memory is the question.
    return Case(f"{name} {TRAINED}, trains", "", make, n, aim, timed=n < LONG)


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
    q, k, v, upstream = inputs(n)
    score = Near()
    of = [q, k, v, score.slope]
    return Problem(lambda: Side(lambda: attend(q, k, v, score).output, of), None, upstream)
