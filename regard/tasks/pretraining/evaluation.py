"""How likely a pretrained model thinks texts, token by token."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import Example
from regard.errors import RegardError
from regard.reading import parse_rows
from regard.tasks.evaluation import LIKELIHOOD, Evaluation

RESAMPLES = 1_000
SEED = 12_345


BEGINNING = 30  # signs of a text that is to be gone on with


def beginning(text: str, hidden: str = "") -> str:
    """Return the first words of a piece of text, to go on from, or with one of them hidden.

    A piece may begin inside a word: its first word is left out unless a space or a capital shows
    that it is whole, and so are signs before the next.

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


@dataclass(frozen=True, repr=False)
class Likelihoods(Evaluation):
    """What a model said at every place that was asked: nats of the truth, whether it came first.

    Row i is an example (a piece of text, corrupted as the task does). `value` is exp(−mean nats),
    the geometric mean of the probabilities given to the truth; `low` and `high` its 95 % interval,
    by bootstrap over examples.
    """

    texts: tuple[str, ...] = field(repr=False)
    nats: tuple[NDArray[np.float64], ...] = field(repr=False)
    right: tuple[NDArray[np.bool_], ...] = field(repr=False)

    metric = LIKELIHOOD
    #: What two runs are compared by, token by token.
    compared = "tokens said right"
    unit = "tokens"

    @cached_property
    def loss(self) -> float:
        """Mean nats for each token that is asked."""
        return float(self._sums.sum() / self._counts.sum())

    @property
    def perplexity(self) -> float:
        """exp(loss): among how many tokens the model wavered on average."""
        return float(np.exp(self.loss))

    @property
    def value(self) -> float:
        """exp(−loss)."""
        return float(np.exp(-self.loss))

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self._interval[0]

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self._interval[1]

    @property
    def n(self) -> int:
        """How many tokens were asked."""
        return int(self._counts.sum())

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the likeliest token was the true one, at each place."""
        return np.concatenate(self.right)

    @property
    def also(self) -> dict[str, float]:
        """What else a comparison tells of a run: nats a token and perplexity."""
        return {"loss": self.loss, "perplexity": self.perplexity}

    @property
    def examples(self) -> list[Example]:
        """The pieces of text."""
        return [Example(text, "", f"piece:{i}") for i, text in enumerate(self.texts, 1)]

    def json(self) -> dict[str, Any]:
        """The summary as plain values."""
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
        """The summary on one line."""
        return (
            f"loss {self.loss:.4f} nats a token, perplexity {self.perplexity:.2f}, "
            f"{self.correct.mean():.1%} said right ({self.n:,} tokens)"
        )

    def words(self) -> list[tuple[str, str]]:
        """The summary for people: what is told, and how much it is."""
        low, high = -np.log(self.high), -np.log(self.low)
        return [
            ("loss", f"{self.loss:.4f} nats a token  (95 % interval {low:.4f} to {high:.4f})"),
            ("bits a token", f"{self.loss / np.log(2):.4f}"),
            ("perplexity", f"{self.perplexity:.3f}"),
            ("said right", f"{self.correct.mean():.2%} of {self.n:,} tokens"),
        ]

    def rows(self) -> bytes:
        """The pieces as JSON lines: text, nats of each token asked, right as hexadecimal bits."""
        lines = (
            json.dumps(
                {
                    "source": f"piece:{i}",
                    "text": text,
                    "nats": [round(float(x), 6) for x in nats],
                    "right": np.packbits(right).tobytes().hex(),
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
        """What `rows` wrote, under a name for errors: lines that are no such rows."""
        found = list(parse_rows(rows, name))
        try:
            nats = [np.array(row["nats"], dtype=np.float64) for row in found]
            right = [
                np.unpackbits(
                    np.frombuffer(bytes.fromhex(row["right"]), np.uint8), count=len(row["nats"])
                ).astype(bool)
                for row in found
            ]
            texts = [str(row["text"]) for row in found]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls(tuple(texts), tuple(nats), tuple(right))

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
        for i in range(RESAMPLES):  # one after the other, for the memory of one
            drawn = random.integers(0, len(self.nats), len(self.nats))
            losses[i] = self._sums[drawn].sum() / self._counts[drawn].sum()
        low, high = np.exp(-np.quantile(losses, [0.975, 0.025]))
        return float(low), float(high)
