"""Evaluate a pretrained model by the likelihood of texts, token by token."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.examples import Example
from regard.lab.tasks.evaluation import LIKELIHOOD, Evaluation, learned, must_have_examples

RESAMPLES = 1_000
SEED = 12_345
BY_TOKENS = "tokens predicted correctly"  # the score by which runs are compared

BEGINNING = 30  # characters of an example prompt


def beginning(text: str, hidden: str = "") -> str:
    """Return the first words of a chunk as an example prompt, optionally with one word hidden.

    A chunk may begin inside a word. The first word is dropped, with punctuation after it, unless a
    leading space or a capital shows that it is complete.

    >>> beginning("orge was born in Rome and lived there to the end of his life.")
    'was born in Rome and'
    >>> beginning("'t - Maria was born in Rome and lived there.", "[MASK]")
    'Maria was [MASK] in Rome'
    >>> beginning("Maria was"), beginning(" was born"), beginning("你好")
    ('Maria was', 'was born', '你好')
    """
    words = text[:BEGINNING].split()
    words = words[:-1] if len(text) > BEGINNING and len(words) > 1 else words
    if not (text[:1].isspace() or text[:1].isupper()):
        words = words[1:] or words
    while len(words) > 1 and not any(map(str.isalnum, words[0])):
        words = words[1:]
    if hidden and words:
        words[len(words) // 2] = hidden
    return " ".join(words)


def unigram_loss(tokens: NDArray[np.integer]) -> float:
    """Compute the mean loss, in nats, of predicting each token by the frequencies of the others.

    −Σ c/N ln(c / (N − 1 + V)), with counts c of the V − 1 different tokens among N. A token that
    occurs c times has c − 1 other occurrences, plus one so that rare tokens are not impossible.

    >>> round(unigram_loss(np.array([0, 0, 1, 1])), 4)
    1.0986
    """
    counts = np.unique(tokens, return_counts=True)[1]
    total = len(tokens)
    return float(-(counts / total * np.log(counts / (total + len(counts)))).sum())


class TokenLosses(NamedTuple):
    """The loss of each predicted token of a chunk of text, in nats, and whether it was likeliest.

    ``unigram`` is the `unigram_loss` of the tokens of all chunks, NaN if unknown.
    """

    nats: NDArray[np.float64]
    right: NDArray[np.bool_]
    unigram: float = math.nan

    def row(self) -> dict[str, Any]:
        """Return what a row of predictions has of the tokens: the right ones as hex bits."""
        return {
            "nats": [round(float(x), 6) for x in self.nats],
            "right": np.packbits(self.right).tobytes().hex(),
            **({} if math.isnan(self.unigram) else {"unigram": self.unigram}),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "TokenLosses":
        """Return the tokens of a row of predictions."""
        nats = np.array(row["nats"], dtype=np.float64)
        bits = np.frombuffer(bytes.fromhex(row["right"]), np.uint8)
        right = np.unpackbits(bits, count=len(nats)).astype(bool)
        return cls(nats, right, float(row.get("unigram", math.nan)))


def token_evaluation(examples: Sequence[Example], chunks: Sequence[TokenLosses]) -> Evaluation:
    """Evaluate the tokens that a model predicted in chunks of text, corrupted by the task.

    `value` is exp(−mean nats), the geometric mean of the probabilities of the true tokens, with a
    95 % interval by bootstrap over chunks.
    """
    must_have_examples(examples)
    sums = np.array([chunk.nats.sum() for chunk in chunks])
    counts = np.array([len(chunk.nats) for chunk in chunks], dtype=np.float64)
    loss, (low, high) = float(sums.sum() / counts.sum()), _interval(sums, counts)
    correct = np.concatenate([chunk.right for chunk in chunks])
    nats, unigram = np.concatenate([chunk.nats for chunk in chunks]), chunks[0].unigram
    share, perplexity, bits = float(correct.mean()), float(np.exp(loss)), loss / np.log(2)
    return Evaluation(
        metric=LIKELIHOOD,
        value=float(np.exp(-loss)),
        low=low,
        high=high,
        examples=examples,
        answers=chunks,
        row=TokenLosses.row,
        correct=correct,
        per_example=correct.astype(np.float64),
        unit="tokens",
        compared_by=BY_TOKENS,
        sizes=[len(chunk.nats) for chunk in chunks],
        other_metrics={"loss": loss, "perplexity": perplexity},
        exceeds=math.isnan(unigram) or learned(-nats, -unigram, 0.0),
        summary={"loss": loss, "perplexity": perplexity, "bits": bits, "said_right": share},
        remark=f", {share:.1%} predicted correctly",
        facts=[("bits per token", f"{bits:.4f}"), ("predicted correctly", f"{share:.2%}")],
    )


def _interval(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> tuple[float, float]:
    random = np.random.Generator(np.random.PCG64(SEED))
    losses = np.empty(RESAMPLES)
    for i in range(RESAMPLES):  # one at a time, to save memory
        drawn = random.integers(0, len(sums), len(sums))
        losses[i] = sums[drawn].sum() / counts[drawn].sum()
    low, high = np.exp(-np.quantile(losses, [0.975, 0.025]))
    return float(low), float(high)
