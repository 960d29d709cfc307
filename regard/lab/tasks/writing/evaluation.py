"""Evaluation of generated texts against references."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.lab.data.examples import Example
from regard.lab.data.pairs import Pair
from regard.lab.data.parallel import references
from regard.lab.tasks.family_evaluation import FamilyEvaluation
from regard.lab.tasks.writing import metrics
from regard.lab.tasks.writing.metrics import Aligned, Judgement

BREAKS = re.compile(r"\r\n|[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
REPEATED = 0.05  # minimum fraction of sources with several targets to score all references


@dataclass(frozen=True)
class Text:
    """A generated text, its log probability, and whether the model generated the end symbol."""

    text: str
    log_probability: float
    ended: bool
    unknown: tuple[str, ...] = ()  # words of the input that the model does not know

    def line(self) -> str:
        """Return the text in one line, with line breaks and tabs replaced by spaces."""
        return BREAKS.sub(" ", self.text)

    def ranked(self, number: int) -> str:
        """Return the number of the input, ln p and the text, separated by tabs."""
        return f"{number}\t{round(self.log_probability, 4) + 0.0:.4f}\t{self.line()}"

    def phrase(self) -> str:
        """Return the text with its log probability."""
        return f"{self.text}  (ln p = {round(self.log_probability, 2) + 0.0:.2f})"

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        named = {"unknown": list(self.unknown)} if self.unknown else {}
        return {
            "written": self.text,
            "log_probability": self.log_probability,
            "ended": self.ended,
            **named,
        }


@dataclass(frozen=True)
class Scored:
    """ln p of a given text, summed over its tokens and its end, and their number."""

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Return exp(−ln p / tokens).

        >>> Scored(math.log(1 / 8), 3).perplexity
        2.0
        """
        return math.exp(min(-self.log_probability / self.tokens, 700.0))

    def line(self) -> str:
        """Return ln p, tokens and perplexity, separated by tabs."""
        return f"{round(self.log_probability, 4) + 0.0:.4f}\t{self.tokens}\t{self.perplexity:.4f}"

    def json(self) -> dict[str, Any]:
        """Return the score as JSON-serialisable values."""
        return {**vars(self), "perplexity": self.perplexity}


@dataclass(frozen=True, repr=False)
class Translations(FamilyEvaluation):
    """Written texts with the references, and their scores.

    `value` is the metric ("exact match" or "BLEU", as a fraction), `low` and `high` its 95 %
    interval over texts; `signature` is sacreBLEU's. `aligned` compares the attention weights of
    each text with its true alignment, None for a text without one; empty if no text has both.
    """

    metric: str
    pairs: tuple[Pair, ...] = field(repr=False)
    written: tuple[Text, ...] = field(repr=False)
    value: float
    low: float
    high: float
    exact: float
    bleu: float
    chrf: float
    signature: str
    aligned: tuple[Aligned | None, ...] = field(default=(), repr=False)
    language: str = ""

    @classmethod
    def judge(
        cls,
        metric: str,
        pairs: Sequence[Pair],
        written: Sequence[Text],
        *,
        language: str = "",
        aligned: Sequence[Aligned | None] = (),
    ) -> "Translations":
        """Evaluate written texts against the targets of pairs.

        ``language`` of the targets, if known, selects BLEU's tokenization. Raises: no pairs.
        """
        if not pairs:
            raise RegardError("there are no pairs to evaluate; give at least one")
        predicted, wanted = [text.text for text in written], [pair.target for pair in pairs]
        language = metrics.language_for(language, wanted)
        exact = metrics.judge("exact", predicted, wanted)
        bleu = metrics.judge("bleu", predicted, wanted, language=language)
        low, high = (bleu if metric == "BLEU" else exact).interval()
        share = 100 if metric == "BLEU" else 1
        return cls(
            metric=metric,
            pairs=tuple(pairs),
            written=tuple(written),
            value=bleu.value / 100 if metric == "BLEU" else exact.value,
            low=low / share,
            high=high / share,
            exact=exact.value,
            bleu=bleu.value / 100,
            chrf=metrics.chrf(predicted, wanted) / 100,
            signature=bleu.signature,
            aligned=tuple(aligned),
            language=language,
        )

    @property
    def predictions(self) -> list[str]:
        """Return the text written for each source."""
        return [text.text for text in self.written]

    @property
    def n(self) -> int:
        """Return the number of texts."""
        return len(self.pairs)

    @property
    def compared(self) -> str:
        """Return the name of the score by which systems are compared."""
        return self.metric

    @cached_property
    def corpus(self) -> Judgement | None:
        """Return BLEU with the statistics of each text; None for another metric."""
        if self.metric != "BLEU":
            return None
        predicted, wanted = (
            [text.text for text in self.written],
            [pair.target for pair in self.pairs],
        )
        return metrics.judge("bleu", predicted, wanted, language=self.language)

    @property
    def per_example(self) -> NDArray[np.float64]:
        """Return 1 or 0 for each exact match, or each text's pseudo-value of BLEU."""
        if self.corpus is None:
            return np.asarray(self.correct, dtype=np.float64)
        return np.asarray(self.corpus.pseudo_values() / 100)

    @cached_property
    def by_references(self) -> Judgement | None:
        """Return BLEU of distinct sources against all their targets; None if few have several."""
        sources, targets = references(self.pairs)
        several = sum(len(set(wanted)) > 1 for wanted in targets)
        if several < REPEATED * len(sources):
            return None
        texts = dict(zip((p.source for p in self.pairs), self.written, strict=True))
        first = [texts[source].text for source in sources]
        return metrics.judge("bleu", first, targets, language=self.language)

    @property
    def alignment(self) -> Aligned | None:
        """Return the alignment error over all texts with a known alignment; None without any."""
        known = [counts for counts in self.aligned if counts is not None]
        return Aligned.joined(known) if known else None

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return further scores by name, as fractions."""
        metrics = {"chrF": self.chrf}
        if self.metric == "BLEU":
            metrics["exact match"] = self.exact
        if (looked := self.alignment) is not None:
            metrics["alignment error"] = looked.error
        return metrics

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each text whether it equals the reference exactly."""
        pairs = zip(self.written, self.pairs, strict=True)
        return np.array([text.text == pair.target for text, pair in pairs])

    @property
    def examples(self) -> list[Example]:
        """Return the sources with their references."""
        return [Example(pair.source, pair.target, pair.place) for pair in self.pairs]

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""
        keys = "metric", "value", "low", "high", "n", "exact", "bleu", "chrf", "signature"
        values = {key: getattr(self, key) for key in keys}
        if (many := self.by_references) is not None:
            values["all_references"] = {
                "bleu": many.value / 100,
                "n": len(many),
                "signature": many.signature,
            }
        if (looked := self.alignment) is not None:
            values["alignment"] = vars(looked)
        return values

    def line(self) -> str:
        """Return the summary in one line."""
        sign = "" if self.metric == "BLEU" else "%"
        value, low, high = (f"{100 * x:.1f}{sign}" for x in (self.value, self.low, self.high))
        rest = (
            f"exact match {self.exact:.1%}"
            if self.metric == "BLEU"
            else f"BLEU {100 * self.bleu:.1f}"
        )
        looked = self.alignment
        rest += "" if looked is None else f", alignment error {looked.error:.1%}"
        summary = f"{self.metric} {value} (95 % interval {low} to {high}, {self.n:,} texts)"
        return f"{summary}, {rest}"

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        low, high = 100 * self.low, 100 * self.high
        interval = f"(95 % interval {low:.1f} to {high:.1f}; of texts, not seeds)"
        metrics = [("exact match", f"{self.exact:.2%}"), ("BLEU", f"{100 * self.bleu:.1f}")]
        metrics.append(("chrF", f"{100 * self.chrf:.1f}"))
        metrics = [(name, f"{shown}  {interval}" if name == self.metric else shown)
                for name, shown in metrics]  # fmt: skip
        metrics.append(("signature", self.signature))
        if (many := self.by_references) is not None:
            how = f"{many.value:.1f}  ({len(many):,} distinct sources, {many.signature})"
            metrics.append(("all references", how))
        if (looked := self.alignment) is not None:
            metrics.append(("alignment error", f"{looked.error:.2%}  ({_how_it_looks(looked)})"))
        return metrics

    def rows(self) -> bytes:
        """Return JSON lines: source, text, label (the reference), predicted, confidence, ….

        "aligned" has the numbers of `Aligned` for texts with a known alignment.
        """
        aligned = self.aligned or (None,) * self.n
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
                    **({} if looked is None else {"aligned": list(vars(looked).values())}),
                },
                ensure_ascii=False,
            )
            for pair, text, looked in zip(self.pairs, self.written, aligned, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(cls, rows: bytes, metric: str, name: str, *, language: str = "") -> "Translations":
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        lines = list(parse_rows(rows, name))
        try:
            pairs = [Pair(*(str(row[key]) for key in ("text", "label", "source"))) for row in lines]
            written = [
                Text(str(row["predicted"]), float(row["log_probability"]), bool(row["ended"]))
                for row in lines
            ]
            aligned = [Aligned(*row["aligned"]) if "aligned" in row else None for row in lines]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        if not any(aligned):
            aligned = []
        return cls.judge(metric, pairs, written, language=language, aligned=aligned)


def _how_it_looks(looked: Aligned) -> str:
    return (
        f"of {looked.positions:,} target tokens have their largest weight off the true source; "
        f"mean weight on it {looked.mass:.1%}, uniform weights {looked.guess:.1%}"
    )
