"""Evaluate a pretrained model by the likelihood of texts, token by token."""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.lab.data.examples import Example
from regard.lab.tasks.evaluation import LIKELIHOOD, learned
from regard.lab.tasks.family_evaluation import FamilyEvaluation

RESAMPLES = 1_000
SEED = 12_345


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


@dataclass(frozen=True, repr=False)
class Likelihoods(FamilyEvaluation):
    """Losses of all predicted tokens in nats, and whether each token was the most probable.

    Row i is an example, a chunk of text corrupted by the task. `value` is exp(−mean nats), the
    geometric mean of the probabilities of the true tokens; `low` and `high` are its 95 % interval
    by bootstrap over examples. `unigram` is `unigram_loss` of the predicted tokens, NaN if unknown.
    """

    texts: tuple[str, ...] = field(repr=False)
    nats: tuple[NDArray[np.float64], ...] = field(repr=False)
    right: tuple[NDArray[np.bool_], ...] = field(repr=False)
    unigram: float = math.nan

    metric = LIKELIHOOD
    #: Name of the score by which runs are compared.
    compared = "tokens predicted correctly"
    unit = "tokens"

    @cached_property
    def loss(self) -> float:
        """Return the mean loss per predicted token, in nats."""
        return float(self._sums.sum() / self._counts.sum())

    @property
    def perplexity(self) -> float:
        """Return exp(loss), the effective number of tokens among which the model chooses."""
        return float(np.exp(self.loss))

    @property
    def value(self) -> float:
        """Return exp(−loss)."""
        return float(np.exp(-self.loss))

    @property
    def low(self) -> float:
        """Return the lower end of the interval."""
        return self._interval[0]

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return self._interval[1]

    @property
    def n(self) -> int:
        """Return the number of predicted tokens."""
        return int(self._counts.sum())

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each predicted token whether the most probable one is the true one."""
        return np.concatenate(self.right)

    @property
    def groups(self) -> list[str]:
        """Return the chunk of each predicted token, since tokens of a text are dependent.

        With a single chunk there are no groups, since the variance between chunks is unknown.
        """
        if np.count_nonzero(self._counts) < 2:
            return [""] * self.n
        return [f"piece:{i}" for i, nats in enumerate(self.nats, 1) for _ in range(len(nats))]

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return the loss in nats per token, and the perplexity."""
        return {"loss": self.loss, "perplexity": self.perplexity}

    @property
    def learned(self) -> bool:
        """Return whether the loss is clearly below that of the tokens' frequencies."""
        return math.isnan(self.unigram) or learned(-np.concatenate(self.nats), -self.unigram, 0.0)

    @property
    def examples(self) -> list[Example]:
        """Return the chunks of text."""
        return [Example(text, "", f"piece:{i}") for i, text in enumerate(self.texts, 1)]

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""
        return {
            "metric": self.metric,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits": self.loss / np.log(2),
            "said_right": float(self.correct.mean()),
        }

    def line(self) -> str:
        """Return the summary in one line."""
        return (
            f"loss {self.loss:.4f} nats per token, perplexity {self.perplexity:.2f}, "
            f"{self.correct.mean():.1%} predicted correctly ({self.n:,} tokens)"
        )

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        low, high = -np.log(self.high), -np.log(self.low)
        return [
            ("loss", f"{self.loss:.4f} nats per token  (95 % interval {low:.4f} to {high:.4f})"),
            ("bits per token", f"{self.loss / np.log(2):.4f}"),
            ("perplexity", f"{self.perplexity:.3f}"),
            ("predicted correctly", f"{self.correct.mean():.2%} of {self.n:,} tokens"),
        ]

    def rows(self) -> bytes:
        """Return JSON lines: source, text, nats per predicted token, correct as hex bits."""
        lines = (
            json.dumps(
                {
                    "source": f"piece:{i}",
                    "text": text,
                    "nats": [round(float(x), 6) for x in nats],
                    "right": np.packbits(right).tobytes().hex(),
                    **({} if math.isnan(self.unigram) else {"unigram": self.unigram}),
                },
                ensure_ascii=False,
            )
            for i, (text, nats, right) in enumerate(
                zip(self.texts, self.nats, self.right, strict=True), 1
            )
        )
        return "".join(f"{line}\n" for line in lines).encode(errors="replace")

    @classmethod
    def parse(cls, rows: bytes, name: str) -> "Likelihoods":
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        lines = list(parse_rows(rows, name))
        try:
            nats = [np.array(row["nats"], dtype=np.float64) for row in lines]
            right = [
                np.unpackbits(
                    np.frombuffer(bytes.fromhex(row["right"]), np.uint8), count=len(row["nats"])
                ).astype(bool)
                for row in lines
            ]
            texts = [str(row["text"]) for row in lines]
            unigram = float(lines[0].get("unigram", math.nan)) if lines else math.nan
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls(tuple(texts), tuple(nats), tuple(right), unigram)

    @cached_property
    def _sums(self) -> NDArray[np.float64]:
        return np.array([nats.sum() for nats in self.nats])

    @cached_property
    def _counts(self) -> NDArray[np.float64]:
        return np.array([len(nats) for nats in self.nats], dtype=np.float64)

    @cached_property
    def _interval(self) -> tuple[float, float]:
        random = np.random.Generator(np.random.PCG64(SEED))
        losses = np.empty(RESAMPLES)
        for i in range(RESAMPLES):  # one at a time, to save memory
            drawn = random.integers(0, len(self.nats), len(self.nats))
            losses[i] = self._sums[drawn].sum() / self._counts[drawn].sum()
        low, high = np.exp(-np.quantile(losses, [0.975, 0.025]))
        return float(low), float(high)
