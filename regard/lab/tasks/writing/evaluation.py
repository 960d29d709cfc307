"""Evaluation of generated texts against references."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.lab.data.examples import Example
from regard.lab.data.pairs import Pair
from regard.lab.data.parallel import references
from regard.lab.tasks.evaluation import Evaluation, must_have_examples
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
    aligned: Aligned | None = None  # weights while it reads the reference, with a known alignment

    @property
    def confidence(self) -> float:
        """Return the probability of the text, including the end symbol."""
        return math.exp(min(self.log_probability, 0.0))

    def row(self) -> dict[str, Any]:
        """Return what a row of predictions has of the text."""
        aligned = {} if self.aligned is None else {"aligned": list(vars(self.aligned).values())}
        return {
            "predicted": self.text,
            "confidence": self.confidence,
            "log_probability": self.log_probability,
            "ended": self.ended,
            **aligned,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Text":
        """Return the text of a row of predictions."""
        aligned = Aligned(*row["aligned"]) if "aligned" in row else None
        text, log_probability = str(row["predicted"]), float(row["log_probability"])
        return cls(text, log_probability, bool(row["ended"]), aligned=aligned)

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


def text_evaluation(
    metric: str, examples: Sequence[Example], texts: Sequence[Text], *, language: str = ""
) -> Evaluation:
    """Evaluate written texts against the labels of the examples.

    ``metric`` is "exact match" or "BLEU", whose score is a fraction here. ``language`` of the
    references, if known, selects BLEU's tokenization. Raises: no examples.
    """
    must_have_examples(examples, "pairs")
    predicted, wanted = [text.text for text in texts], [example.label for example in examples]
    language = metrics.language_for(language, wanted)
    exact = metrics.judge("exact", predicted, wanted)
    bleu = metrics.judge("bleu", predicted, wanted, language=language)
    corpus, best = (bleu, 100) if metric == "BLEU" else (None, 1)
    low, high = (corpus or exact).interval()
    correct = np.array([text == label for text, label in zip(predicted, wanted, strict=True)])
    scores = {
        "exact": exact.value,
        "bleu": bleu.value / 100,
        "chrf": metrics.chrf(predicted, wanted) / 100,
    }
    others = {"chrF": scores["chrf"], **({"exact match": exact.value} if corpus else {})}
    summary, remarks = {**scores, "signature": bleu.signature}, {}
    facts = [] if corpus else [("BLEU", f"{bleu.value:.1f}")]
    facts.append(("signature", bleu.signature))
    if (many := _by_references(examples, predicted, language)) is not None:
        size, signature = len(many), many.signature
        summary["all_references"] = {"bleu": many.value / 100, "n": size, "signature": signature}
        facts.append(
            ("all references", f"{many.value:.1f}  ({size:,} distinct sources, {signature})")
        )
    if aligned := [text.aligned for text in texts if text.aligned is not None]:
        joined = Aligned.joined(aligned)
        summary["alignment"], others["alignment error"] = vars(joined), joined.error
        remarks["alignment error"] = (
            f"of {joined.positions:,} target tokens have their largest weight off the true source; "
            f"mean weight on it {joined.mass:.1%}, uniform weights {joined.guess:.1%}"
        )
    return Evaluation(
        metric=metric,
        value=(corpus or exact).value / best,
        low=low / best,
        high=high / best,
        examples=examples,
        answers=texts,
        row=Text.row,
        correct=correct,
        per_example=corpus.pseudo_values() / 100 if corpus else correct.astype(np.float64),
        predictions=predicted,
        other_metrics=others,
        corpus=corpus,
        summary=summary,
        remarks=remarks,
        facts=facts,
    )


def _by_references(
    examples: Sequence[Example], predicted: Sequence[str], language: str
) -> Judgement | None:
    """Return BLEU of distinct sources against all their targets; None if few have several."""
    sources, targets = references(Pair(x.text, x.label, x.source) for x in examples)
    if sum(len(set(wanted)) > 1 for wanted in targets) < REPEATED * len(sources):
        return None
    texts = {x.text: text for x, text in zip(examples, predicted, strict=True)}
    return metrics.judge("bleu", [texts[x] for x in sources], targets, language=language)
