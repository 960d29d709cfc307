"""Subjects for every part in regard's tables, checked by `python -m regard.conformance`."""

from collections.abc import Iterator

import torch

from regard.attention import (
    NORMALIZERS,
    POSITIONS,
    SCORES,
    Mask,
    bigbird,
    blocks,
    causal,
    dense,
    documents,
    global_tokens,
    lengths,
    lengths_per_query,
    make_score,
    others,
    prefix,
    window,
)
from regard.attention.scores.wrapper import Wrapper
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.conformance.peers import LAYERS
from regard.conformance.run import Subject, of_score
from regard.conformance.subjects import MaskSubject, NormalizerSubject

#: Additional scores: wrappers with their options, each around one or two scores.
OTHERS = (
    *SCORE_WRAPPERS,
    "additive+soft-cap-2",
    "gaussian+qk-unit",
    "general+qk-norm+soft-cap-5",
)
N, M = 9, 11  # queries and keys of the masks below


def own(*, pairs: bool = True) -> Iterator[Subject]:
    """Yield each score with each position, each normaliser, masks of each kind, and the layer.

    Without ``pairs`` each position is combined with the scaled dot product only.
    """
    wrapped = {name: kind for name, kind in POSITIONS.items() if kind and issubclass(kind, Wrapper)}
    for score in SCORES:
        yield of_score(score)
        if not pairs and score != "scaled-dot":
            continue
        built = make_score(score, "none", 8, 8, length=8)
        yield from (of_score(score, name) for name, kind in wrapped.items() if kind.takes(built))
    for score in OTHERS:
        yield of_score(score)
    for name, kind in NORMALIZERS.items():
        yield NormalizerSubject.of(kind, name)
    for name, mask in masks().items():
        yield MaskSubject(name, mask, N, M)
    yield LAYERS["regard.MultiHeadAttention"]()


def masks() -> dict[str, Mask]:
    """Return masks for three texts of 9 queries and 11 keys."""
    some = torch.arange(3 * N * M).view(3, N, M) % 3 > 0
    return {
        "causal()": causal(),
        "others()": others(),
        "lengths([11, 9, 5])": lengths([11, 9, 5]),
        "lengths([11, 0, 3])": lengths([11, 0, 3]),
        "lengths_per_query": lengths_per_query(torch.arange(3 * N).view(3, N) % (M + 1)),
        "prefix | causal": causal() | prefix([1, 2, 0]),
        "window(2)": window(2),
        "window(2, 2)": window(2, 2),
        "window(1) | global_tokens(2)": window(1) | global_tokens(2),
        "blocks": blocks(torch.tensor([[True, False], [True, True]]), 4),
        "bigbird": bigbird(M, block=2, random=1),
        "documents": documents(torch.arange(N) // 4, torch.arange(M) // 4),
        "dense": dense(some),
        "dense of keys": dense(some[:, :1]),
        "a bare function": Mask(lambda rows, columns: columns[..., None, :] % 3 == 0),
        "nothing": Mask(lambda rows, columns: columns[..., None, :] < 0),
        "~causal & lengths": ~causal() & lengths([11, 9, 0]),
    }
