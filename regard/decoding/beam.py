"""Beam search."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import RegardError
from regard.decoding.greedy import LEAVE
from regard.decoding.stepwise import Limits, Writer, Written, begun, likeliest

MOST_PENALTY = 50.0  # absolute value; the powers of any length stay finite


@torch.no_grad()
def beam(
    model: Writer,
    source: Int[Tensor, "batch read"],
    source_lengths: Int[Tensor, " batch"],
    *,
    end: int,
    size: int = 5,
    penalty: float = 0.6,
    best: int = 1,
    limits: Limits | None = None,
) -> list[list[Written]]:
    """Return the ``best`` texts of each source found by a beam of ``size``, best first.

    score(y) = log p(y | source) / ((5 + length) / 6)^penalty, where the length includes the end. A
    source is finished when ``size`` of its texts have ended and no unfinished one can beat the
    worst of them. At its length limit, unfinished texts are returned too. A beam of 1 without
    penalty is `greedy`. The model should be in evaluation mode.

    Args:
        model: A model with ``start``, such as `Transformer`, `T5`, `Seq2Seq` or `GPT`.
        source: The tokens of each text; for a GPT, its beginning.
        source_lengths: The number of tokens of each text.
        end: The end symbol.
        size: The number of unfinished texts that are kept for each source.
        penalty: The length penalty; a negative one favours short texts.
        best: The number of texts to return for each source.
        limits: The length limits of the output.

    Shape:
        source: (batch, read)
        source_lengths: (batch,)

    Returns:
        For each source its best texts, with their scores and log probabilities.

    Raises:
        RegardError: ``size`` is below 1, ``best`` is above the size, the penalty is beyond
            ±`MOST_PENALTY`, or the model's probabilities are NaN.

    Source:
        Sutskever et al. 2014, section 3.2; Wu et al. 2016, equation 14 (length penalty).

    Example:
        >>> from regard.nn.models.gpt import GPT, GPTSettings
        >>> model = GPT(GPTSettings(width=12, heads=2, layers=1, position="none"), 12).eval()
        >>> _ = torch.nn.init.eye_(model.embedding.weight)
        >>> source, lengths = torch.tensor([[4, 5], [7, 0]]), torch.tensor([2, 1])
        >>> limits = Limits(ratio=0, more=3, least=3)
        >>> texts = beam(model, source, lengths, end=1, best=2, limits=limits)
        >>> [[len(text.tokens) for text in best] for best in texts]
        [[3, 3], [3, 3]]
        >>> texts[0][0].tokens  # an untrained GPT repeats the last word
        (5, 5, 5)
    """
    limits = limits or Limits()
    if not abs(penalty) <= MOST_PENALTY:
        raise RegardError(
            f"penalty must be between -{MOST_PENALTY:g} and {MOST_PENALTY:g}, not {penalty:g}"
        )
    if size < 1:
        raise RegardError(f"beam size must be 1 or more, not {size}")
    if not 1 <= best <= size:
        raise RegardError(f"best must be between 1 and the beam size of {size}, not {best}")
    writing, most = model.start(source, source_lengths), limits.of(source_lengths.cpu())
    beams = [SourceBeam(size, penalty, int(limit)) for limit in most]
    texts, step = list(range(len(source))), 0
    tokens: Tensor = begun(len(source), source.device)
    parents: Tensor | None = None
    sums = torch.zeros(len(source), 1, dtype=torch.float64, device=source.device)
    while texts:
        logits = writing.step(tokens, parents)
        kept = likeliest(logits, end, step < limits.least, min(2 * size, logits.shape[-1]))
        sums, parents, tokens = extend_beams(sums, *kept, end, size, [beams[t] for t in texts])
        step += 1
        rows_left = enumerate(zip(texts, sums.tolist(), strict=True))
        going = [row for row, (text, totals) in rows_left if not beams[text].done(totals, step)]
        if len(going) <= LEAVE * len(texts) or not going:
            rows = torch.tensor(going, dtype=torch.long, device=source.device)
            writing.keep(rows)
            sums, parents, tokens = sums[rows], parents[rows], tokens[rows]
            texts = [texts[row] for row in going]
    return [each.best(best) for each in beams]


@dataclass
class SourceBeam:
    """The beam of one source: the words of each unfinished row, and the finished texts."""

    size: int
    penalty: float
    limit: int
    rows: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    ended: list[Written] = field(default_factory=list)
    closed: bool = False

    def score(self, total: float, length: int) -> float:
        """Return log p after the length penalty; the length includes the end."""
        return float(total / ((5 + length) / 6) ** self.penalty)

    def end(self, row: int, total: float) -> None:
        """Add a finished text; only the best `size` are kept."""
        if self.closed:
            return
        words = self.rows[row]
        self.ended.append(Written(words, total, self.score(total, len(words) + 1), True))
        self.ended.sort(key=lambda text: -text.score)
        del self.ended[self.size :]

    def done(self, sums: list[float], step: int) -> bool:
        """Return whether no row can still be among the best; close the beam at its limit."""
        if self.closed:
            return True
        if step >= self.limit:
            for words, total in zip(self.rows, sums, strict=True):
                if total > -torch.inf:
                    score = self.score(total, len(words))
                    self.ended.append(Written(words, total, score, False))
            self.ended.sort(key=lambda text: (not text.ended, -text.score))
            self.closed = True
        elif len(self.ended) == self.size:
            # Unfinished texts only lose probability; the best length is the next or the longest.
            ends = step + 1, self.limit + 1
            best = max(self.score(max(sums), length) for length in ends)
            self.closed = best <= self.ended[-1].score
        return self.closed

    def best(self, count: int) -> list[Written]:
        """Return the best texts, finished ones first."""
        return self.ended[:count]


def extend_beams(
    sums: Float[Tensor, "texts rows"],
    chances: Float[Tensor, "texts rows kept"],
    words: Int[Tensor, "texts rows kept"],
    end: int,
    size: int,
    beams: list[SourceBeam],
) -> tuple[Float[Tensor, "texts size"], Int[Tensor, "texts size"], Int[Tensor, "texts size"]]:
    """Return sums, parents and words of the ``size`` best continuations that do not end.

    ``words`` are the (at most) 2 × size likeliest of each row, ``chances`` their log probabilities.
    At most size of the 2 × size best continuations end; these are added to ``beams``. A row without
    a continuation gets −inf.
    """
    count, _, kept = chances.shape
    total = (sums[..., None] + chances.double()).reshape(count, -1)
    best, index = total.topk(min(2 * size, total.shape[1]), -1)
    parent, word = index // kept, words.reshape(count, -1).gather(1, index)
    ends = word == end
    ending = (ends & (best > -torch.inf))[:, :size].nonzero(as_tuple=True)
    for text, row, reached in zip(
        ending[0].tolist(), parent[ending].tolist(), best[ending].tolist(), strict=True
    ):
        beams[text].end(row, reached)
    order = torch.where(ends, 1, 0).argsort(dim=1, stable=True)[:, :size]
    new = best.masked_fill(ends, -torch.inf).gather(1, order)
    parent, word = parent.gather(1, order), word.gather(1, order)
    if new.shape[1] < size:
        missing = size - new.shape[1]
        new = torch.cat([new, new.new_full((count, missing), -torch.inf)], 1)
        parent, word = (torch.cat([x, x.new_zeros(count, missing)], 1) for x in (parent, word))
    for each, froms, tos in zip(beams, parent.tolist(), word.tolist(), strict=True):
        if not each.closed:
            each.rows = [(*each.rows[a], b) for a, b in zip(froms, tos, strict=True)]
    return new, parent, word
