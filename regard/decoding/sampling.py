"""Sampling: temperature, top-k and top-p."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import RegardError
from regard.decoding.greedy import walk
from regard.decoding.stepwise import Limits, Writer, Written


@torch.no_grad()
def sample(
    model: Writer,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    *,
    end: int | Sequence[int],
    limits: Limits | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    texts: Sequence[int] | None = None,
) -> list[Written]:
    """Sample each word from the model's distribution, limited by top-k and top-p.

    P(y_t = w) = p(w | y_1 … y_{t−1}, source)^(1/temperature) / Σ over the kept words. The random
    number for a word is a function of (seed, text, step), so that a batch gives the texts of its
    parts. The model should be in evaluation mode.

    Args:
        model: A model with ``start``, such as `Transformer`, `T5`, `Seq2Seq` or `GPT`.
        source: The tokens of each text; for a GPT, its beginning.
        source_lengths: The number of tokens of each text.
        end: The end symbol, or several, or none.
        limits: The length limits of the output.
        temperature: Below 1 favours likely words, above 1 unlikely ones.
        top_k: Keep the k likeliest words (0: all).
        top_p: Of these, keep the fewest with this total probability.
        seed: The random seed.
        texts: The numbers of the texts, by default 0, 1, 2, ….

    Shape:
        source: (batch, read)
        source_lengths: (batch,)

    Returns:
        The output for each source; its log probability is the model's, without temperature and
        limits.

    Raises:
        RegardError: The temperature is not above 0, ``top_p`` is outside (0, 1], ``top_k`` is
            negative, or the model's probabilities are NaN.

    Source:
        Holtzman et al. 2020, sections 3.1 to 3.3.

    Example:
        >>> from regard.nn.models.gpt import GPT, GPTSettings
        >>> model = GPT(GPTSettings(width=12, heads=2, layers=1, position="none"), 12).eval()
        >>> _ = torch.nn.init.eye_(model.embedding.weight)
        >>> source, lengths = torch.tensor([[4, 5], [7, 0]]), torch.tensor([2, 1])
        >>> limits = Limits(ratio=0, more=3)
        >>> texts = sample(model, source, lengths, end=1, limits=limits, top_k=1)
        >>> [text.tokens for text in texts]  # an untrained GPT repeats the last word
        [(5, 5, 5), (7, 7, 7)]
    """
    limits = limits or Limits()
    if not temperature > 0:
        raise RegardError(
            f"temperature must be above 0, not {temperature:g}; use greedy search instead"
        )
    if not 0 < top_p <= 1:
        raise RegardError(f"top_p must be above 0 and at most 1, not {top_p:g}")
    if top_k < 0:
        raise RegardError(f"top_k must be 0 (no limit) or more, not {top_k}")
    drawn = np.empty((len(source), limits.longest))
    for row, number in enumerate(range(len(source)) if texts is None else texts):
        generator = np.random.Generator(np.random.Philox(key=[seed, number]))
        drawn[row] = generator.random(limits.longest)

    def draw(chances: Tensor, texts: Tensor, step: int) -> Tensor:
        shares, words = nucleus(chances, temperature, top_k, top_p)
        places = torch.from_numpy(drawn[texts.numpy(), step])[:, None].to(shares)
        return words.gather(1, pick(shares, places))[:, 0]

    return walk(model, source, source_lengths, end, limits, draw)


def nucleus(
    chances: Float[Tensor, "texts words"], temperature: float, top_k: int, top_p: float
) -> tuple[Float[Tensor, "texts kept"], Int[Tensor, "texts kept"]]:
    """Return the probabilities of the top-k and top-p tokens, sorted, and zeros for the others.

    >>> shares, words = nucleus(torch.tensor([[0.1, 0.6, 0.3]]).log(), 1.0, 0, 0.8)
    >>> [round(share, 3) for share in shares[0].tolist()], words[0].tolist()
    ([0.667, 0.333, 0.0], [1, 2, 0])
    """
    sharp = (chances - chances.amax(-1, keepdim=True)).double() / temperature
    count = min(top_k, chances.shape[-1]) if top_k else chances.shape[-1]
    best, words = sharp.topk(count, sorted=True)
    shares = best.softmax(-1)
    before = shares.cumsum(-1) - shares
    shares = shares.masked_fill(before >= top_p, 0)
    return shares / shares.sum(-1, keepdim=True), words


def pick(
    shares: Float[Tensor, "texts kept"], places: Float[Tensor, "texts 1"]
) -> Int[Tensor, "texts 1"]:
    """Return the index of the share that each place in [0, 1) falls into."""
    ends, last = shares.cumsum(-1), (shares > 0).sum(-1, keepdim=True) - 1
    return torch.minimum((ends <= places * ends[:, -1:]).sum(-1, keepdim=True), last)
