"""Every row of the tables, and inputs whose sizes all differ."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.attention import (
    POSITIONS,
    SCORES,
    Mask,
    Score,
    causal,
    dense,
    lengths,
    lengths_per_query,
    make_score,
    others,
    prefix,
)
from regard.attention.scores.synthesizer import Synthesizer
from regard.attention.scores.wrapper import Wrapper

M = TypeVar("M", bound=nn.Module)
WIDTH = 6
HEADS = 2
LENGTH = 130  # the longest input that laws give to a score that learns something per position

#: Masks for a batch of 3, by name; each is told how many queries and keys there are.
MASKS = {
    "none": lambda n, m: None,
    "causal": lambda n, m: causal(),
    "lengths": lambda n, m: lengths(torch.tensor([m, max(m - 2, 0), m // 2])),
    "lengths_per_query": lambda n, m: lengths_per_query(torch.arange(3 * n).view(3, n) % (m + 1)),
    "prefix": lambda n, m: causal() | prefix(torch.tensor([1, 2, 0])),
    "others": lambda n, m: others(),
    "causal & lengths": lambda n, m: causal() & lengths(torch.tensor([m, m - 1, 0])),
    "~causal": lambda n, m: ~causal(),
    "dense": lambda n, m: dense(torch.arange(3 * n * m).view(3, n, m) % 3 > 0),
    "nothing": lambda n, m: Mask(lambda rows, columns: columns[..., None, :] < 0),
}


def inputs(
    queries: int, keys: int, dtype: torch.dtype = torch.float64, *, groups: int = HEADS
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (3, heads, n, 6), keys (3, groups, m, 6), values (…, 5), with gradients."""
    made = (
        torch.randn(3, HEADS, queries, WIDTH, dtype=dtype),
        torch.randn(3, groups, keys, WIDTH, dtype=dtype),
        torch.randn(3, groups, keys, 5, dtype=dtype),
    )
    return tuple(x.requires_grad_() for x in made)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64 that depend on the seed alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shifted(module: M, by: float = 0.3) -> M:
    """The module, its parameters away from where they begin."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += by * torch.randn_like(parameter)
    return module


def redrawn(module: M, std: float = 0.5) -> M:
    """The module, each of its parameters drawn anew: biases and gains too."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def score_of(score: str, position: str = "none", dtype: torch.dtype = torch.float64) -> Score:
    """A score for two heads, its parameters away from where they begin."""
    return shifted(make_score(score, position, WIDTH, WIDTH, heads=HEADS, length=LENGTH).to(dtype))


def gradients(output: Tensor, *of: Tensor) -> list[Tensor]:
    """The gradient of an uneven sum of the output; zeros where it does not reach."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    found = torch.autograd.grad((output * weights).sum(), of, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(of, found, strict=True)]


def fits(score: str, position: str) -> bool:
    """Whether a position takes a score."""
    kind = POSITIONS[position]
    if kind is None or not issubclass(kind, Wrapper):
        return True
    return kind.takes(make_score(score, "none", 8, 8, length=9))


EVERY_SCORE = list(SCORES)
#: Positions that are paired with a few scores here; the laws of conformance pair them with all.
LATER = ("xpos", "pope", "alibi-signed", "kerple", "fire", "disentangled")
#: Scores that read where a key stands and not what it holds.
KEYLESS = [name for name, kind in SCORES.items() if issubclass(kind, Synthesizer)]
#: Those of them that do not read the queries either.
QUERYLESS = [name for name in KEYLESS if not SCORES[name].reads_queries]
#: Flat wherever they do not jump: neither queries nor keys get a gradient.
FLAT = ["boxcar"]
#: 0 beyond their reach, where nothing gets a gradient either.
BOUNDED = {"epanechnikov", "boxcar"}
EVERY_POSITION = [
    name
    for name, kind in POSITIONS.items()
    if name == "none" or (kind is not None and issubclass(kind, Score))
]

#: Every score with every position; those that prepare otherwise and then compare as another one
#: does, or read no key, with one that their prepared queries pass through.
EVERY_PAIR = [
    (score, position)
    for score in EVERY_SCORE
    for position in EVERY_POSITION
    if fits(score, position)
    and (position not in LATER or score in ("scaled-dot", "additive", "gaussian"))
    and (
        position in ("none", {"cosine-temperature": "rotary"}.get(score, "relative-keys"))
        or score not in (*KEYLESS, "cosine-temperature")
    )
]
