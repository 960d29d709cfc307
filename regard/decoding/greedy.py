"""Greedy search, and the decoding loop `walk`."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.stepwise import Limits, Writer, Written, begun, without

LEAVE = 0.75  # finished texts leave when at most this fraction of the batch is unfinished

#: Chooses a word for each text from log probabilities (texts, words), text numbers and the step.
Choose = Callable[[Tensor, Tensor, int], Tensor]


@torch.no_grad()
def greedy(
    model: Writer,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    *,
    end: int | Sequence[int],
    limits: Limits | None = None,
) -> list[Written]:
    """Decode greedily: write the likeliest next word until the end symbol or the limit.

    y_t = argmax p(y_t | y_1 … y_{t−1}, source). The padding symbol is never written. The model
    should be in evaluation mode.

    Args:
        model: A model with ``start``, such as `Transformer`, `T5`, `Seq2Seq` or `GPT`.
        source: The tokens of each text; for a GPT, its beginning.
        source_lengths: The number of tokens of each text.
        end: The end symbol, or several, or none.
        limits: The length limits of the output.

    Shape:
        source: (batch, read)
        source_lengths: (batch,)

    Returns:
        The output for each source, with its log probability.

    Raises:
        RegardError: The model's probabilities are NaN.

    Source:
        Sutskever et al. 2014, section 3.2, with a beam of 1.

    Example:
        >>> from regard.nn.models.gpt import GPT, GPTSettings
        >>> model = GPT(GPTSettings(width=12, heads=2, layers=1, position="none"), 12).eval()
        >>> _ = torch.nn.init.eye_(model.embedding.weight)
        >>> source, lengths = torch.tensor([[4, 5], [7, 0]]), torch.tensor([2, 1])
        >>> texts = greedy(model, source, lengths, end=1, limits=Limits(ratio=0, more=3))
        >>> [text.tokens for text in texts]  # an untrained GPT repeats the last word
        [(5, 5, 5), (7, 7, 7)]
    """
    limits = limits or Limits()
    return walk(model, source, source_lengths, end, limits, lambda chances, *_: chances.argmax(-1))


def walk(
    model: Writer,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    end: int | Sequence[int],
    limits: Limits,
    choose: Choose,
) -> list[Written]:
    """Decode all texts, where ``choose`` selects the next words; finished texts leave the batch."""
    writing, ends = model.start(source, source_lengths), [end] if isinstance(end, int) else [*end]
    most = limits.of(source_lengths.cpu())
    texts = torch.arange(len(source))  # the texts still in the batch
    words: list[list[int]] = [[] for _ in texts]
    sums, ended = torch.zeros(len(source), dtype=torch.float64), [False] * len(source)
    going = torch.ones(len(source), dtype=torch.bool)
    tokens, step = begun(len(source), source.device), 0
    while bool(going.any()):
        if going.sum() <= LEAVE * len(going):
            rows = going.nonzero()[:, 0]
            writing.keep(rows.to(source.device))
            texts, tokens, going = texts[rows], tokens[rows.to(source.device)], going[rows]
        chances = without(writing.step(tokens)[:, 0], ends, step < limits.least)
        chosen = choose(chances, texts, step)
        gained = chances.gather(1, chosen[:, None])[:, 0].double().cpu()
        tokens, step = chosen[:, None], step + 1
        for row, word in enumerate(chosen.tolist()):
            if not going[row]:
                continue
            text = int(texts[row])
            sums[text] += gained[row]
            if word in ends:
                ended[text] = True
            else:
                words[text].append(word)
            going[row] = word not in ends and step < int(most[text])
    return [
        Written(tuple(tokens), float(total), float(total), done)
        for tokens, total, done in zip(words, sums, ended, strict=True)
    ]
