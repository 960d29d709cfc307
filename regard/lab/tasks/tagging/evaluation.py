"""Evaluation of predicted tags: accuracy over words and F1 of complete spans."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.core.shown import shown
from regard.lab.data.examples import Example
from regard.lab.data.tagged import OUTSIDE, mark_spans, spans
from regard.lab.tasks.evaluation import half_width, written
from regard.lab.tasks.family_evaluation import FamilyEvaluation

COMMONEST = "most frequent tag"  # the guess that ignores the words
SHOWN = 20  # tags or kinds in a table in the terminal
Counts = NDArray[np.int64]  # (sentences, 3): correct, predicted, true


@dataclass(frozen=True)
class Tags:
    """The predicted tags of a sentence, one for each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    unknown: tuple[str, ...] = ()  # words that the model does not know

    _repr_html_ = shown

    def line(self) -> str:
        """Return the words with their tags in one line: word/TAG …"""
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def phrase(self) -> str:
        """Return the spans with their kinds if tags mark any, else each word with its tag.

        Words with the tag "_", which marks positions without an answer, are omitted.
        """
        if not mark_spans(self.tags):
            pairs = zip(self.words, self.tags, strict=True)
            words = [f"{word}/{tag}" for word, tag in pairs if tag != "_"]
            return " ".join(words) if any(tag not in OUTSIDE for tag in self.tags) else "no spans"
        return "; ".join(f"{span['text']}: {span['kind']}" for span in self.spans())

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans that the tags mark: text, kind, and word positions from 0."""
        if not mark_spans(self.tags):
            return []
        return [
            {
                "text": " ".join(self.words[span.first : span.last]),
                "kind": span.kind,
                "first": span.first,
                "last": span.last,
            }
            for span in spans(self.tags)
        ]

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        named = {"unknown": list(self.unknown)} if self.unknown else {}
        return {"words": list(self.words), "tags": list(self.tags), "spans": self.spans(), **named}


def span_counts(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Counts:
    """Count the correct, predicted and true spans of each sentence.

    A span is correct if its positions and its kind are.
    """
    rows = [({*spans(a)}, {*spans(b)}) for a, b in zip(predicted, true, strict=True)]
    counts = [(len(ours & theirs), len(ours), len(theirs)) for ours, theirs in rows]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


def word_counts(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Counts:
    """Count the words of each sentence that are tagged correctly, predicted and true."""
    counts = [
        (sum(x == y for x, y in zip(a, b, strict=True)), len(a), len(b))
        for a, b in zip(predicted, true, strict=True)
    ]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


def f1(right: Any, predicted: Any, true: Any) -> Any:
    """Compute F1 = 2 right / (predicted + true), or 0 for 0 / 0; for words it is the accuracy.

    >>> float(f1(1, 2, 2))
    0.5
    """
    total = np.asarray(predicted + true, dtype=np.float64)
    return np.where(total > 0, 2 * right / np.maximum(total, 1), 0.0)


COUNTED = {"span F1": span_counts, "accuracy": word_counts}


def pseudo_values(counts: Counts) -> NDArray[np.float64]:
    """Compute the jackknife pseudo-values of F1, shifted to have F1 as their mean.

    Without sentence i, F1 = a/d changes by (aᵢ − F1 dᵢ)/(d − dᵢ), with a twice the number of
    correct items and d the number of predicted and true items. As in
    `classification.metrics.pseudo_values`, this F1 includes four additional sentences of mean size
    with half of their items correct: if few sentences have items, all may be right, or all wrong,
    by chance.
    """
    n, twice, either = len(counts), 2 * counts[:, 0], counts[:, 1] + counts[:, 2]
    whole = float(f1(*counts.sum(0)))
    if not either.any():
        return np.full(n, whole)
    size = either[either > 0].mean()
    rate = (twice.sum() + 2 * size) / (either.sum() + 4 * size)
    values = (n - 1) * (twice - rate * either) / np.maximum(either.sum() - either, size)
    return np.asarray(values - values.mean() + whole, dtype=np.float64)


@dataclass(frozen=True, repr=False)
class TagEvaluation(FamilyEvaluation):
    """Predicted tags of sentences with the true ones, and their scores.

    ``metric``: "span F1", or "accuracy" over words. ``commonest``: the most frequent tag in
    training.
    """

    metric: str
    references: tuple[Example, ...] = field(repr=False)
    answers: tuple[tuple[str, ...], ...] = field(repr=False)
    commonest: str

    @classmethod
    def judge(
        cls,
        metric: str,
        examples: Sequence[Example],
        predicted: Sequence[Sequence[str]],
        commonest: str,
    ) -> Self:
        """Evaluate tags against those of the examples.

        Raises: no sentences; a sentence with different numbers of words and tags.
        """
        if not examples:
            raise RegardError("there are no sentences to evaluate; give at least one")
        for example, tags in zip(examples, predicted, strict=True):
            if len(tags) != len(tags_of(example)) or len(tags) != len(example.words):
                raise RegardError(
                    f"{example.source}: {len(tags)} predicted and {len(tags_of(example))} true "
                    f"tags for {len(example.words)} words; give one for each word"
                )
        return cls(metric, tuple(examples), tuple(map(tuple, predicted)), commonest)

    @property
    def n(self) -> int:
        """Return the number of sentences."""
        return len(self.references)

    @property
    def unit(self) -> str:
        """Return the noun for `n`."""
        return "sentences"

    @property
    def examples(self) -> Sequence[Example]:
        """Return the sentences with their tags as labels."""
        return self.references

    @property
    def predictions(self) -> Sequence[str]:
        """Return the predicted tags of each sentence, joined by spaces."""
        return [" ".join(tags) for tags in self.answers]

    @cached_property
    def true(self) -> list[list[str]]:
        """Return the true tags of each sentence."""
        return [tags_of(example) for example in self.references]

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each sentence whether all its tags are correct."""
        pairs = zip(self.answers, self.true, strict=True)
        return np.array([list(predicted) == true for predicted, true in pairs])

    @cached_property
    def counts(self) -> Counts:
        """Return the counts of correct, predicted and true items of each sentence."""
        return COUNTED[self.metric](self.answers, self.true)

    @property
    def value(self) -> float:
        """Return the metric."""
        return float(f1(*self.counts.sum(0)))

    @cached_property
    def per_example(self) -> NDArray[np.float64]:
        """Return each sentence's contribution to the metric: `pseudo_values`."""
        return pseudo_values(self.counts)

    @property
    def low(self) -> float:
        """Return the lower end of the 95 % interval over sentences, value ± 1.96 s/√n."""
        return max(0.0, self.value - self._half)

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return min(1.0, self.value + self._half)

    @property
    def _half(self) -> float:
        return half_width(self.per_example, 2)

    @property
    def is_constant(self) -> bool:
        """Return whether all predicted tags are equal but the true ones differ."""
        predicted = {tag for tags in self.answers for tag in tags}
        return len(predicted) == 1 < len({tag for tags in self.true for tag in tags})

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return the fraction of correct sentences; for F1 also precision, recall and accuracy."""
        metrics = {"whole sentences": float(self.correct.mean())}
        if self.metric != "accuracy":
            right, predicted, true = (float(x) for x in self.counts.sum(0))
            words = word_counts(self.answers, self.true).sum(0)
            metrics |= {"precision": right / predicted if predicted else 0.0}
            metrics |= {"recall": right / true if true else 0.0}
            metrics |= {"accuracy": float(f1(*words))}
        return metrics

    @property
    def trivial(self) -> Mapping[str, float]:
        """Return the metric of giving every word the most frequent tag in training."""
        guess = [[self.commonest] * len(tags) for tags in self.true]
        return {COMMONEST: float(f1(*COUNTED[self.metric](guess, self.true).sum(0)))}

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values, with the counts of each tag or kind."""
        values: dict[str, Any] = {
            key: getattr(self, key) for key in ("metric", "value", "low", "high", "n")
        }
        ends = {key: None for key in ("low", "high") if not math.isfinite(values[key])}
        kinds = {
            kind: {"right": right, "said": predicted, "true": true}
            for kind, (right, predicted, true) in self.kinds.items()
        }
        others = {"also": self.other_metrics, "trivial": self.trivial, "kinds": kinds}
        return {**values, **ends, **others}

    def line(self) -> str:
        """Return the summary in one line."""
        summary = f"{self.metric} {written(self.metric, self.value, 1)} (95 % interval "
        summary += f"{written(self.metric, self.low, 1)} to {written(self.metric, self.high, 1)}, "
        summary += f"{self.n:,} {self.unit})"
        others = (f"{name} {value:.1%}" for name, value in self.other_metrics.items())
        return ", ".join([summary, *others])

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        low, high = (written(self.metric, x, 1) for x in (self.low, self.high))
        value = written(self.metric, self.value, 2)
        ((name_of_guess, share),) = self.trivial.items()
        return [
            (self.metric, f"{value}  (95 % interval {low} to {high}, of {self.unit}, not seeds)"),
            (name_of_guess, f"{share:.1%}  ({self.commonest} everywhere)"),
            *((name, f"{value:.1%}") for name, value in self.other_metrics.items()),
        ]

    @cached_property
    def kinds(self) -> dict[str, tuple[int, int, int]]:
        """Return correct, predicted and true counts of each kind of span, or tag, by frequency."""
        right: Counter[str] = Counter()
        predicted: Counter[str] = Counter()
        true: Counter[str] = Counter()
        for tags, true_tags in zip(self.answers, self.true, strict=True):
            if self.metric == "accuracy":
                predicted.update(tags)
                true.update(true_tags)
                right.update(x for x, y in zip(tags, true_tags, strict=True) if x == y)
            else:
                a, b = {*spans(tags)}, {*spans(true_tags)}
                predicted.update(span.kind for span in a)
                true.update(span.kind for span in b)
                right.update(span.kind for span in a & b)
        names = sorted({*predicted, *true}, key=lambda name: (-true[name], name))
        return {name: (right[name], predicted[name], true[name]) for name in names}

    @property
    def tables(self) -> list[list[list[str]]]:
        """Return precision, recall, F1 and the true count of each kind of span, or tag."""
        rows = [["tag" if self.metric == "accuracy" else "kind", "precision", "recall", "F1", "n"]]
        for kind, (right, predicted, true) in list(self.kinds.items())[:SHOWN]:
            shares = right / predicted if predicted else 0.0, right / true if true else 0.0
            both = float(f1(right, predicted, true))
            rows.append([kind, *(f"{100 * x:.1f}" for x in (*shares, both)), f"{true:,}"])
        return [rows]

    @property
    def note(self) -> str:
        """Return where to find the rows that the table omits."""
        return "all tags: --json" if len(self.kinds) > SHOWN else ""

    def rows(self) -> bytes:
        """Return JSON lines: source, text, label (true tags), said (predicted), group if any."""
        lines = (
            json.dumps(
                {
                    "source": example.source,
                    "text": example.text,
                    "label": example.label,
                    "said": predicted,
                    **({"group": example.group} if example.group else {}),
                },
                ensure_ascii=False,
            )
            for example, predicted in zip(self.references, self.predictions, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(cls, rows: bytes, metric: str, commonest: str, name: str) -> Self:
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        try:
            pairs = [
                (
                    Example(
                        str(row["text"]),
                        str(row["label"]),
                        str(row["source"]),
                        str(row.get("group", "")),
                    ),
                    str(row["said"]).split(" "),
                )
                for row in parse_rows(rows, name)
            ]
        except (KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        examples, predicted = [x for x, _ in pairs], [x for _, x in pairs]
        return cls.judge(metric, examples, predicted, commonest)

    def plain(self) -> bytes:
        """Return words and tags as CoNLL columns: word, true tag, predicted tag."""
        blocks = (
            "".join(f"{w}\t{t}\t{s}\n" for w, t, s in zip(x.words, true, predicted, strict=True))
            for x, true, predicted in zip(self.references, self.true, self.answers, strict=True)
        )
        return "\n".join(blocks).encode()


def tags_of(example: Example) -> list[str]:
    """Return the tags of a sentence, one for each word."""
    return example.label.split(" ")
