"""Forced decoding: the probability of each word of a given text."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.stepwise import BEGIN, Writer, Written, without


@torch.no_grad()
def forced(
    model: Writer,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    targets: list[list[int]],
    *,
    end: int,
) -> list[Written]:
    """Return the log probability of each target including its end, as in the searches."""
    longest = max(map(len, targets), default=0)
    table = torch.full((len(targets), longest + 1), BEGIN, device=source.device)
    for row, words in enumerate(targets):
        table[row, : len(words) + 1] = torch.tensor([*words, end])
    writing, sums = model.start(source, source_lengths), torch.zeros(len(targets)).double()
    tokens = torch.full((len(targets), 1), BEGIN, device=source.device)
    for step in range(longest + 1):
        gained = chosen(without(writing.step(tokens)[:, 0], end, False), table[:, step])
        inside = torch.tensor([step <= len(words) for words in targets], dtype=torch.bool)
        sums += torch.where(inside, gained.double().cpu(), 0.0)
        tokens = table[:, step : step + 1]
    return [
        Written(tuple(words), float(total), float(total), True)
        for words, total in zip(targets, sums, strict=True)
    ]


def chosen(
    chances: Float[Tensor, "texts words"], words: Int[Tensor, " texts"]
) -> Float[Tensor, " texts"]:
    """Return the log probability of one word of each text."""
    return chances.gather(1, words[:, None])[:, 0]
