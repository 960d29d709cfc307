"""A run that writes texts."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.analysis.cost import count_parameters
from regard.analysis.record import record, table
from regard.attention.kernels.choose import using
from regard.data.batches import pad
from regard.data.files import Example
from regard.data.pairs import Pair
from regard.data.parallel import read_pairs
from regard.data.tokenizers import Tokenizer
from regard.errors import RegardError
from regard.runs.run import Looked, Run
from regard.tasks import sequence_metrics as metrics
from regard.tasks.metrics import wilson
from regard.tasks.sequences import Sequences
from regard.tasks.settings import SequencesSettings


@dataclass(frozen=True)
class Text:
    """A text that was written, the logarithm of its probability, and whether its end was."""

    text: str
    log_probability: float
    ended: bool

    def line(self) -> str:
        """The text on one line, whatever it holds."""
        return " ".join(self.text.split())

    def told(self) -> str:
        """The answer in words."""
        return f"{self.text}  (ln p = {self.log_probability:.2f})"

    def json(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {"written": self.text, "log_probability": self.log_probability, "ended": self.ended}


@dataclass(frozen=True)
class Translations:
    """Texts that were written beside those that were wanted, and what they are worth.

    `value` is the metric ("exact match" or "BLEU", as a share), `low` and `high` its 95 % interval
    over texts; `signature` says how BLEU and chrF were counted.
    """

    metric: str
    pairs: tuple[Pair, ...]
    written: tuple[Text, ...]
    value: float
    low: float
    high: float
    exact: float
    bleu: float
    chrf: float
    signature: str

    @classmethod
    def judge(cls, metric: str, pairs: Sequence[Pair], written: Sequence[Text]) -> "Translations":
        """Judge what was written by what was wanted. Errors: no pairs."""
        if not pairs:
            raise RegardError("there is nothing to evaluate: no pairs")
        said, wanted = [text.text for text in written], [pair.target for pair in pairs]
        right = np.array([a == b for a, b in zip(said, wanted, strict=True)])
        exact, judged = float(right.mean()), metrics.judge("bleu", said, wanted)
        score = judged.value / 100
        low, high = wilson(int(right.sum()), len(right))
        if metric == "BLEU":
            low, high = (end / 100 for end in judged.interval())
        return cls(
            metric=metric,
            pairs=tuple(pairs),
            written=tuple(written),
            value=score if metric == "BLEU" else exact,
            low=low,
            high=high,
            exact=exact,
            bleu=score,
            chrf=metrics.chrf(said, wanted) / 100,
            signature=judged.signature,
        )

    @property
    def n(self) -> int:
        """How many texts."""
        return len(self.pairs)

    #: What two systems are compared by, text by text.
    compared = "exact match"

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each text is the one that was wanted, letter by letter."""
        pairs = zip(self.written, self.pairs, strict=True)
        return np.array([text.text == pair.target for text, pair in pairs])

    @property
    def examples(self) -> list[Example]:
        """The test as other kinds of run have it."""
        return [Example(pair.source, pair.target, pair.place) for pair in self.pairs]

    def json(self) -> dict[str, Any]:
        """The summary as plain values."""
        keys = "metric", "value", "low", "high", "n", "exact", "bleu", "chrf", "signature"
        return {key: getattr(self, key) for key in keys}

    def line(self) -> str:
        """The summary on one line."""
        interval = f"95 % interval {100 * self.low:.1f} to {100 * self.high:.1f}"
        rest = f"{100 * self.bleu:.1f} BLEU" if self.metric != "BLEU" else f"{self.exact:.1%} exact"
        return f"{self.metric} {100 * self.value:.1f} ({interval}, {self.n:,} texts), {rest}"

    def words(self) -> list[tuple[str, str]]:
        """The summary for people: what is told, and how much it is."""
        low, high = 100 * self.low, 100 * self.high
        interval = f"(95 % interval {low:.1f} to {high:.1f}; of other texts, not another seed)"
        told = [("exact match", f"{self.exact:.2%}"), ("BLEU", f"{100 * self.bleu:.1f}")]
        told.append(("chrF", f"{100 * self.chrf:.1f}"))
        return [
            (name, f"{says}  {interval}" if name == self.metric else says) for name, says in told
        ] + [("signature", self.signature)]

    def table(self) -> list[list[str]]:
        """Nothing: texts have no classes to confuse."""
        return []

    def rows(self) -> bytes:
        """The texts as JSON lines: source, text, label (what was wanted), predicted, confidence."""
        lines = (
            json.dumps(
                {
                    "source": pair.place,
                    "text": pair.source,
                    "label": pair.target,
                    "predicted": text.text,
                    "confidence": math.exp(min(text.log_probability, 0.0)),
                    "log_probability": text.log_probability,
                    "ended": text.ended,
                },
                ensure_ascii=False,
            )
            for pair, text in zip(self.pairs, self.written, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(cls, rows: bytes, metric: str, name: str) -> "Translations":
        """What `rows` wrote, under a name for errors: lines that are no such rows."""
        try:
            found: list[dict[str, Any]] = [json.loads(line) for line in rows.splitlines()]
            pairs = [Pair(row["text"], row["label"], row["source"]) for row in found]
            written = [
                Text(row["predicted"], float(row["log_probability"]), bool(row["ended"]))
                for row in found
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(metric, pairs, written)


class WriterRun(Run):
    """A run whose answers are texts."""

    def evaluate(
        self, data: Path | None = None, *, text: str | None = None, label: str | None = None
    ) -> Translations:
        """How good what the run writes is: on its test split, as written at its end, or on a file.

        `text` and `label` name the file's columns of sources and targets. Errors: the run is not
        complete; a bad row, by file:line.
        """
        self._must_be_complete()
        if data is None:
            written = self.folder.read(self.folder.predictions)
            return Translations.parse(written, self.task.metric, str(self.folder.predictions))
        settings = self._data_settings
        pairs = read_pairs(
            data,
            source_name=text or settings.source_name,
            target_name=label or settings.target_name,
        )
        said = self.predict([pair.source for pair in pairs])
        return Translations.judge(self.task.metric, pairs, said)

    @overload
    def predict(self, texts: str) -> Text: ...
    @overload
    def predict(self, texts: list[str]) -> list[Text]: ...
    def predict(self, texts: str | list[str]) -> Text | list[Text]:
        """What the run writes for a text, or for each of many."""
        if isinstance(texts, str):
            return self.predict([texts])[0]
        return [found[0] for found in self.best(texts, 1)]

    def best(self, texts: Sequence[str], count: int) -> list[list[Text]]:
        """The `count` best texts for each, best first. A text without tokens gets an empty one."""
        self._must_be_complete()
        with self._precision.autocast(), using(self._kernels):
            return _texts(self.task, self.network, texts, count)

    def attention(self, text: str) -> list[Looked]:
        """What each attention to the source looks at while the text's best answer is written.

        Rows are the tokens written, the end among them; columns those of the source.
        """
        self._must_be_complete()
        task, network = cast(Sequences, self.task), self.network
        source = task.encode([text])
        if not len(source[0]):
            raise RegardError("there is no token to look at in this text")
        with self._precision.autocast(), using(self._kernels):
            (written,), *_ = task.write(network, [text])
            tokens, lengths = pad(source)
            given = torch.tensor([[0, *written.tokens]])
            with torch.no_grad(), record(network) as recording:
                network(tokens, lengths, given)
                found = [(name, table(seen).float().numpy()[0]) for name, seen in recording.layers]
        asking = [*task.tokenizer.tokens(written.tokens), "[END]"]
        reads = task.tokenizer.tokens(source[0].tolist())
        rows: dict[str, list[NDArray[np.float32]]] = {}
        for name, kept in found:  # one call for all words, or one for each
            if name == "attention" or "memory_attention" in name:
                rows.setdefault(name, []).append(kept.reshape(-1, *kept.shape[-2:]))
        return [
            Looked(name, reads, np.concatenate(parts, 1), asking) for name, parts in rows.items()
        ]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads."""
        names: list[str] = self.task.tokenizer.tokens(self.task.encode([text])[0].tolist())
        return names

    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Parameters; how many operations a text takes depends on what is written."""
        return count_parameters(self.network), None

    def answer_test(self, task: Sequences, model: nn.Module) -> bytes:
        """What the network writes for the test split, judged."""
        pairs = task.split("test").pairs
        said = _texts(task, model, [pair.source for pair in pairs], 1)
        return Translations.judge(task.metric, pairs, [found[0] for found in said]).rows()

    def restore_task(self, tokenizer: Tokenizer) -> Sequences:
        """The task with the run's own tokenizer."""
        return Sequences(self._data_settings, tokenizer)

    @property
    def _data_settings(self) -> SequencesSettings:
        return cast(SequencesSettings, self.config.data)


def _texts(task: Sequences, model: nn.Module, texts: Sequence[str], count: int) -> list[list[Text]]:
    """Best texts of each; those without tokens are answered without being asked."""
    asked = [i for i, ids in enumerate(task.encode(texts)) if len(ids)]
    found = [[Text("", 0.0, True)] for _ in texts]
    written = task.write(model, [texts[i] for i in asked], best=count)
    for place, several in zip(asked, written, strict=True):
        found[place] = [Text(task.decode(x), x.log_probability, x.ended) for x in several]
    return found
