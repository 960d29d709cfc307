"""Forced decoding: the probability of each word of a given text."""

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.stepwise import BEGIN, Writer, Written, begun, without


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
    tokens = begun(len(targets), source.device)
    for step in range(longest + 1):
        written = table[:, step : step + 1]
        gained = without(writing.step(tokens)[:, 0], end, False).gather(1, written)[:, 0]
        inside = torch.tensor([step <= len(words) for words in targets], dtype=torch.bool)
        sums += torch.where(inside, gained.double().cpu(), 0.0)
        tokens = written
    return [
        Written(tuple(words), float(total), float(total), True)
        for words, total in zip(targets, sums, strict=True)
    ]
