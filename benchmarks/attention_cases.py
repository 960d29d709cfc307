"""The rows of `regard bench attention`: cases, peers and aims."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import peers
from benchmarks.case import Aim, Case, Problem, Side
from regard.attention import (
    NORMALIZERS,
    SCORES,
    Attended,
    Mask,
    Score,
    attend,
    bigbird,
    causal,
    lengths,
    make_score,
    window,
)
from regard.attention.positions.biases import t5_bucket
from regard.interop.torch_layers import from_torch

HEADS, WIDTH = 8, 64
TRAINED, FORWARD = "forward + backward", "forward"


def table(*, quick: bool = False) -> list[Case]:
    """Return all rows; ``quick``: the same with small inputs."""
    return [
        *additive_cases(96 if quick else 1024, 384 if quick else 16_384),
        *gaussian_cases(300 if quick else 20_000, 2_000 if quick else 1_000_000),
        *dot_cases((16, 64) if quick else (128, 256, 512, 1024, 2048, 4096)),
        *masked_cases(64 if quick else 512),
        *layer_cases((16, 64) if quick else (128, 512, 2048)),
        *relative_bias_cases(96 if quick else 2048),
        *sparse_cases(96 if quick else 2048),
        *structured_cases((256, 512) if quick else (1024, 2048, 4096, 8192, 16_384)),
        *alibi_cases(128 if quick else 2048),
        *summary_cases(128 if quick else 4096),
    ]


def additive_cases(n: int, long: int) -> Iterator[Case]:
    """Yield the rows of additive attention against its dense formula, KeOps and a dot product."""
    name = f"additive n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    yield Case(name, "dense", partial(additive, peers.dense_additive), n, Aim(15, mb=64))
    yield Case(name, "KeOps", partial(additive, peers.keops_additive), n, Aim(30))
    shape = partial(additive, lambda score, *inputs: peers.sdpa(*inputs))
    yield Case(name, "SDPA", shape, n, Aim(0.1), same=False, probed=False)
    alone = f"additive n={long} heads={HEADS} width={WIDTH} {TRAINED}, trains in 1 GB"
    once = long < 1024  # a call of the full size takes minutes: its memory is the question
    yield Case(alone, "", partial(additive, None), long, Aim(mb=1000), timed=once)


def additive(peer: Callable[..., Callable[[], Tensor]] | None, n: int) -> Problem:
    """Return a problem with as many hidden units as a head has columns."""
    score = SCORES["additive"](WIDTH, WIDTH, heads=HEADS)
    q, k, v, upstream = inputs(n, batch=())
    # The peer that computes another score does without this one's parameters.
    of = [q, k, v, *score.parameters()]
    used = [q, k, v] if peer not in (peers.dense_additive, peers.keops_additive) else of
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score).output, of),
        None if peer is None else lambda: Side(peer(score, q, k, v), used),
        upstream,
    )


def gaussian_cases(n: int, many: int) -> Iterator[Case]:
    """Yield the rows of Nadaraya–Watson regression against KeOps and the dense formula."""
    for width in (1, 8):
        name = f"Gaussian {n:,} × {n:,} width={width} {FORWARD}"
        for against, peer, faster in (
            ("KeOps", peers.keops_gaussian, 8),
            ("dense", peers.dense_gaussian, 20),
        ):
            make = partial(gaussian, peer, width, None)
            yield Case(name, against, make, n, Aim(faster), trained=False)
    few = many // 1000
    yield Case(
        f"Gaussian {many:,} keys × {few:,} queries width=1 {FORWARD}, O(n)",
        "",
        partial(gaussian, None, 1, few),
        many,
        Aim(exponent=1.1),
        trained=False,
        sizes=[many // 8, many // 4, many // 2, many],
    )


def gaussian(
    peer: Callable[..., Callable[[], Tensor]] | None, width: int, queries: int | None, n: int
) -> Problem:
    """Return a problem of one batch, no heads and values of one column; by default n = m."""
    q, k, v = (torch.randn(x, y) for x, y in ((queries or n, width), (n, width), (n, 1)))
    score = SCORES["gaussian"](width, width)
    w = score.get_parameter("inverse_width")
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score).output),
        None if peer is None else lambda: Side(peer(w, q, k, v)),
    )


def dot_cases(sizes: Sequence[int]) -> Iterator[Case]:
    """Yield the rows of scaled dot products against torch's own kernel."""
    for n in sizes:
        for how in (FORWARD, TRAINED):
            name = f"dot n={n} heads={HEADS} width={WIDTH} batch={batch_of(n)} {how}"
            make = partial(dot, lambda batch, n: None, False, None)
            yield sdpa_case(name, make, n, how)


def masked_cases(n: int) -> Iterator[Case]:
    """Yield the rows of the two masks that torch's kernel supports."""
    for word, mask, is_causal in (
        ("causal", lambda batch, n: causal(), True),
        ("lengths", lambda batch, n: lengths(shortened(batch, n)).over_heads(), False),
    ):
        for how in (FORWARD, TRAINED):
            name = f"dot {word} n={n} heads={HEADS} width={WIDTH} batch={batch_of(n)} {how}"
            padding = padded if word == "lengths" else None
            yield sdpa_case(name, partial(dot, mask, is_causal, padding), n, how)


def sdpa_case(name: str, make: Callable[[int], Problem], n: int, how: str) -> Case:
    """Return a case whose aim is to cost no more than torch's kernel."""
    return Case(name, "SDPA", make, n, Aim(1 / 1.05), trained=how == TRAINED, probed=False)


def dot(
    mask: Callable[[int, int], Mask | None],
    is_causal: bool,
    padding: Callable[[int, int], Tensor] | None,
    n: int,
) -> Problem:
    """Return a problem with a batch of some thousand rows."""
    batch, score = batch_of(n), SCORES["scaled-dot"]()
    q, k, v, upstream = inputs(n, batch=(batch,))
    ours = mask(batch, n)
    theirs = None if padding is None else padding(batch, n)
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score, ours).output, [q, k, v]),
        lambda: Side(
            lambda: F.scaled_dot_product_attention(q, k, v, theirs, is_causal=is_causal), [q, k, v]
        ),
        upstream,
    )


def batch_of(n: int) -> int:
    """Return the batch: 8 up to 1024 rows, then fewer, to limit the work."""
    return max(1, min(8, 4096 // n))


def shortened(batch: int, n: int) -> Tensor:
    """Return the lengths of texts, one of which is shorter."""
    valid = torch.full((batch,), n)
    valid[0] -= n // 8
    return valid


def padded(batch: int, n: int) -> Tensor:
    """Return the same mask in the form of torch's kernel."""
    return torch.arange(n) < shortened(batch, n)[:, None, None, None]


def layer_cases(sizes: Sequence[int]) -> Iterator[Case]:
    """Yield the rows of the layer with projections against torch's, both without weights."""
    for n in sizes:
        name = f"MultiHeadAttention n={n} heads={HEADS} width={WIDTH} batch={batch_of(n)} {TRAINED}"
        aim = Aim(1 / 1.05)
        yield Case(name, "nn.MultiheadAttention", layer, n, aim, probed=False)


def layer(n: int) -> Problem:
    """Return a problem of both layers with the same weights."""
    width = HEADS * WIDTH
    other = torch_layer(width)
    mine = from_torch(other)
    x = torch.randn(batch_of(n), n, width, requires_grad=True)
    return Problem(  # both have weight and bias of the input projection, then of the output
        lambda: Side(lambda: mine(x), [x, *mine.parameters()]),
        lambda: Side(peers.multihead(other, x, weights=False), [x, *other.parameters()]),
        torch.randn(batch_of(n), n, width),
    )


def torch_layer(width: int) -> nn.MultiheadAttention:
    """torch's layer."""
    return nn.MultiheadAttention(width, HEADS, batch_first=True)


def relative_bias_cases(n: int) -> Iterator[Case]:
    """Yield the rows of a learned bias per distance, which is a dense mask for torch's kernel."""
    name = f"learned relative bias (t5-bias) n={n} heads={HEADS} width={WIDTH} {TRAINED}"
    yield Case(name, "SDPA", relative_bias, n, Aim(2, mb=80))


def relative_bias(n: int) -> Problem:
    """Return a problem with the buckets of Raffel et al. 2020."""
    score = make_score("scaled-dot", "t5-bias", heads=HEADS)
    bias = score.get_parameter("bias")
    q, k, v, upstream = inputs(n)
    of = [q, k, v, bias]

    def theirs() -> Side:
        at = torch.arange(n)
        return Side(
            peers.sdpa_biased(bias, t5_bucket(at - at[:, None], 32, 128, True), q, k, v), of
        )

    return Problem(lambda: Side(lambda: attend(q, k, v, score).output, of), theirs, upstream)


def sparse_cases(n: int) -> Iterator[Case]:
    """Yield the rows of sparse normalisers against the entmax package."""
    for word, normalize in (("sparsemax", "sparsemax"), ("entmax-1.5", "entmax15")):
        name = f"{word} n={n} heads={HEADS} width={WIDTH} {TRAINED}"
        yield Case(name, "entmax", partial(sparse, normalize), n, Aim(5, 15))


def sparse(normalize: str, n: int) -> Problem:
    """Return a problem of scaled dot products with another normaliser than softmax."""
    score, normalizer = SCORES["scaled-dot"](), NORMALIZERS[normalize]()
    q, k, v, upstream = inputs(n)
    of = [q, k, v]
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score, normalize=normalizer).output, of),
        lambda: Side(peers.entmax_dense(normalize, q, k, v), of),
        upstream,
    )


def structured_cases(sizes: Sequence[int]) -> Iterator[Case]:
    """Yield the rows of masks with hidden blocks against causal attention, and their growth."""
    n, heads = sizes[-1], HEADS // 2
    masks: tuple[tuple[str, Callable[[int], Mask]], ...] = (
        ("window 256 causal", lambda n: window(256) & causal()),
        ("BigBird", bigbird),
    )
    for word, mask in masks:
        make = partial(structured, mask)
        name = f"{word} n={n} heads={heads} width={WIDTH} {TRAINED}"
        yield Case(name, "SDPA causal", make, n, Aim(6), same=False)
        grows = f"{word} n={sizes[0]} … {n} heads={heads} width={WIDTH} {TRAINED}, growth"
        yield Case(grows, "", make, n, Aim(exponent=1.1), sizes=sizes)


def structured(mask: Callable[[int], Mask], n: int) -> Problem:
    """Return a problem of scaled dot products under a mask with hidden blocks."""
    score = SCORES["scaled-dot"]()
    q, k, v, upstream = inputs(n, heads=HEADS // 2)
    of, seen = [q, k, v], mask(n)
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score, seen).output, of),
        lambda: Side(peers.sdpa(q, k, v, causal=True), of),
        upstream,
    )


def alibi_cases(n: int) -> Iterator[Case]:
    """Yield the rows of a score that torch's kernel lacks against a compiled score_mod."""
    name = f"ALiBi n={n} heads={HEADS} width={WIDTH} {FORWARD}"
    warm, first = Aim(1 / 1.5), Aim(seconds=1)
    yield Case(f"{name}, warm", "FlexAttention", alibi, n, warm, trained=False, probed=False)
    yield Case(
        f"{name}, cold: first result after torch's import",
        "FlexAttention",
        alibi,
        n,
        first,
        trained=False,
        probed=False,
        cold=True,
    )


def alibi(n: int) -> Problem:
    """Return a problem with both directions and one slope per head."""
    score: Score = make_score("scaled-dot", "alibi", heads=HEADS)
    q, k, v, _ = inputs(n)
    slopes = score.get_buffer("slopes").flatten()
    return Problem(
        lambda: Side(lambda: attend(q, k, v, score).output),
        lambda: Side(peers.flex_alibi(slopes, q.detach(), k.detach(), v.detach())),
    )


def summary_cases(n: int) -> Iterator[Case]:
    """Yield the rows of summaries against full tables of weights."""
    name = f"summary(top=16) n={n} heads={HEADS} width={WIDTH} {FORWARD}"
    plain, whole = Aim(1 / 2.5, 1 / 1.2, total=True), Aim(1, 6)
    yield Case(name, "the plain forward", summary_of_heads, n, plain, trained=False)
    yield Case(name, "nn.MultiheadAttention", summary_of_layer, n, whole, trained=False)


def summary_of_heads(n: int) -> Problem:
    """Return a problem of attention with and without its summary."""
    score = SCORES["scaled-dot"]()
    q, k, v, _ = inputs(n)
    return Problem(
        lambda: Side(lambda: summarised(attend(q, k, v, score))),
        lambda: Side(lambda: attend(q, k, v, score).output),
    )


def summary_of_layer(n: int) -> Problem:
    """Return a problem of the layer with a summary, and torch's with ``need_weights=True``."""
    width = HEADS * WIDTH
    other, score, x = torch_layer(width), SCORES["scaled-dot"](), torch.randn(1, n, width)

    def ours() -> Tensor:
        projected = F.linear(x, other.in_proj_weight, other.in_proj_bias)
        q, k, v = projected.unflatten(-1, (3, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
        output = summarised(attend(q, k, v, score)).transpose(-3, -2).flatten(-2)
        made: Tensor = other.out_proj(output)
        return made

    return Problem(lambda: Side(ours), lambda: Side(peers.multihead(other, x, weights=True)))


def summarised(attended: Attended) -> Tensor:
    """Return the output after computing the summary."""
    attended.summary(top=16)
    return attended.output


def inputs(
    n: int,
    *,
    heads: int = HEADS,
    batch: tuple[int, ...] = (1,),
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys and values that require gradients, and a gradient of the output."""
    shape = (*batch, heads, n, WIDTH)
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(shape, dtype=dtype)
