"""A run that is pretrained on texts: the next token, the hidden ones, the spans left out."""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.analysis.record import record
from regard.data.files import Example
from regard.errors import RegardError
from regard.reading import parse_rows
from regard.runs.evaluation import LIKELIHOOD
from regard.runs.run import Looked, looked
from regard.runs.texts import TextRun
from regard.runs.translations import Text
from regard.shown import shown
from regard.tasks.masked_modeling import MaskedModeling
from regard.tasks.pretraining import Pretraining
from regard.tasks.settings import PretrainingSettings

RESAMPLES = 1_000
SEED = 12_345


BEGINNING = 30  # signs of a text that is to be gone on with
#: What a task's models are asked to fill in.
HIDDEN = {"masked-modeling": "[MASK]", "span-corruption": "<extra_id_0>"}


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


@dataclass(frozen=True)
class Likelihoods:
    """What a model said at every place that was asked: nats of the truth, whether it came first.

    Row i is an example (a piece of text, corrupted as the task does). `value` is exp(−mean nats),
    the geometric mean of the probabilities given to the truth; `low` and `high` its 95 % interval,
    by bootstrap over examples.
    """

    texts: tuple[str, ...] = field(repr=False)
    nats: tuple[NDArray[np.float64], ...] = field(repr=False)
    right: tuple[NDArray[np.bool_], ...] = field(repr=False)

    metric = LIKELIHOOD
    #: What two runs are compared by, token by token: no corpus, and nothing beside it.
    compared, corpus = "tokens said right", None

    def __repr__(self) -> str:
        return f"<Likelihoods {self.line()}>"

    _repr_html_ = shown

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
    def trivial(self) -> dict[str, float]:
        """What the metric would be without reading a text: not known."""
        return {}

    @property
    def examples(self) -> list[Example]:
        """The pieces as other kinds of run have their examples."""
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

    def tables(self) -> list[list[list[str]]]:
        """Nothing: there are too many words to confuse."""
        return []

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


class PretrainedRun(TextRun):
    """A run that fine-tuning begins from (``--init``), or that goes on with a text."""

    @property
    def held_out(self) -> bool:
        """Whether texts were held out for judging; with ``validation=0`` none are."""
        return bool(cast(PretrainingSettings, self.config.data).validation)

    @property
    def validates(self) -> str:
        """The name of the metric that validation measures."""
        return Likelihoods.metric

    def evaluate(
        self, data: Path | None = None, *, text: str | None = None, label: str | None = None
    ) -> Likelihoods:
        """How likely the model thinks the test texts, or those of a file (`text` its column).

        Errors: the run is not complete; a column of labels, which no text here has.
        """
        self.must_be_complete()
        if label:
            raise RegardError("texts are judged as they are: there is no label to be named")
        if data is None:
            said = self.folder.read(self.folder.predictions)
            return Likelihoods.parse(said, str(self.folder.predictions))
        from regard.data.files import table_kind
        from regard.data.texts import read_texts

        named = str(getattr(self.config.data, "text", "")) if table_kind(data) else ""
        task = self.task.with_texts(read_texts(str(data), text or named)[0])
        with self.computing():
            return judged(task, self.network)

    @overload
    def predict(self, texts: str) -> Text: ...
    @overload
    def predict(self, texts: list[str]) -> list[Text]: ...
    def predict(self, texts: str | list[str]) -> Text | list[Text]:
        """How a text goes on, or what stands for each ``[MASK]`` or ``<extra_id_0>`` in it."""
        if isinstance(texts, str):
            return self.predict([texts])[0]
        if not isinstance(self.task, MaskedModeling):
            return super().predict(texts)
        self.must_be_complete()
        with self.computing():
            filled = self.task.fill(self.network, texts)
        return [Text(*found) for found in filled]

    def attention(self, text: str) -> list[Looked]:
        """What each layer looks at in a text, each token asking in its turn."""
        self.must_be_complete()
        ids = self.task.read(text)
        if not len(ids):
            raise RegardError("there is no token to look at in this text")
        with self.computing(), record(self.network) as recording:
            self.task.states(self.network, torch.from_numpy(ids)[None].long())
            found = looked(recording, self.task.names(ids))
        in_text = (each for each in found if not re.match(r"decoder\.\d+\.attention\.", each.layer))
        return [each for each in in_text if each.weights.shape[-1] == len(ids)]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads."""
        found: list[str] = self.task.names(self.task.read(text))
        return found

    def answer_test(self, task: Any, model: nn.Module) -> bytes:
        """How likely the network thinks the test texts."""
        return judged(task, model).rows()


def judged(task: Pretraining[Any], model: nn.Module) -> Likelihoods:
    """What a model says to the test split."""
    pieces = sorted(task.judged(model, "test"), key=lambda piece: piece.place)
    return Likelihoods(
        tuple(task.piece("test", piece.place) for piece in pieces),
        tuple(piece.nats for piece in pieces),
        tuple(piece.right for piece in pieces),
    )
