"""Evaluation of predicted tags: accuracy over words and F1 of complete spans."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.shown import shown
from regard.lab.data.examples import Example
from regard.lab.data.tagged import OUTSIDE, mark_spans, spans
from regard.lab.tasks.evaluation import Evaluation, groups_of, interval, must_have_examples

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

    A span is correct if its positions and its kind are. This is the F1 of seqeval, which is not a
    dependency since its last release is of 2020.
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


def whole_counts(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Counts:
    """Count each sentence as one item, which is correct if all its tags are."""
    pairs = zip(predicted, true, strict=True)
    counts = [(list(tags) == list(true_tags), 1, 1) for tags, true_tags in pairs]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


COUNTED = {"span F1": span_counts, "accuracy": word_counts, "exact match": whole_counts}


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


@dataclass(frozen=True)
class Scoring:
    """Which tags count, and what examples and scores are called.

    Words with the true tag ``ignored`` are not evaluated.
    """

    unit: str = "sentences"
    whole: str = "whole sentences"
    guess: str = COMMONEST
    ignored: str | None = None

    def counted(
        self, examples: Sequence[Example], predicted: Sequence[Sequence[str]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Return the predicted and the true tags of the words that are evaluated."""
        sides: tuple[list[list[str]], list[list[str]]] = [], []
        for tags, true in zip(predicted, map(tags_of, examples), strict=True):
            for side, kept in zip(sides, (tags, true), strict=True):
                pairs = zip(kept, true, strict=True)
                side.append([tag for tag, wanted in pairs if wanted != self.ignored])
        return sides


SENTENCES = Scoring()


def tag_score(
    metric: str,
    examples: Sequence[Example],
    predicted: Sequence[Sequence[str]],
    scoring: Scoring = SENTENCES,
) -> float:
    """Compute a metric of `COUNTED`."""
    return float(f1(*COUNTED[metric](*scoring.counted(examples, predicted)).sum(0)))


def tag_evaluation(
    metric: str,
    examples: Sequence[Example],
    predicted: Sequence[Sequence[str]],
    commonest: str,
    scoring: Scoring = SENTENCES,
) -> Evaluation:
    """Evaluate tags against those of the examples.

    ``metric`` is a name in `COUNTED`, ``commonest`` the most frequent tag in training. The interval
    over sentences, or groups of them, is that of `interval`. Raises: no sentences; a
    sentence with different numbers of words and tags.
    """
    must_have_examples(examples, "sentences")
    for example, tags in zip(examples, predicted, strict=True):
        if len(tags) != len(tags_of(example)) or len(tags) != len(example.words):
            raise RegardError(
                f"{example.source}: {len(tags)} predicted and {len(tags_of(example))} true "
                f"tags for {len(example.words)} words; give one for each word"
            )
    said, true = scoring.counted(examples, predicted)
    counts, whole = COUNTED[metric](said, true), whole_counts(said, true)[:, 0] == 1
    value = float(f1(*counts.sum(0)))
    per_example = whole.astype(np.float64) if metric == "exact match" else pseudo_values(counts)
    low, high = interval(per_example, value, groups=groups_of(examples))
    others = {} if metric == "exact match" else {scoring.whole: float(whole.mean())}
    if metric == "span F1":
        right, said_spans, true_spans = (float(x) for x in counts.sum(0))
        others["precision"] = right / said_spans if said_spans else 0.0
        others["recall"] = right / true_spans if true_spans else 0.0
    if metric != "accuracy":
        others["accuracy"] = tag_score("accuracy", examples, predicted, scoring)
    guess = [[commonest] * len(tags) for tags in predicted]
    kinds = _kinds(said, true, of_spans=metric == "span F1")
    answers = [
        tuple(wanted if wanted == scoring.ignored else tag for tag, wanted in pairs)
        for pairs in map(zip, predicted, map(tags_of, examples))
    ]
    return Evaluation(
        metric=metric,
        value=value,
        low=low,
        high=high,
        examples=examples,
        answers=answers,
        row=lambda tags: {"said": " ".join(tags)},
        correct=whole,
        per_example=per_example,
        unit=scoring.unit,
        predictions=[" ".join(tags) for tags in answers],
        is_constant=len({*chain(*said)}) == 1 < len({*chain(*true)}),
        other_metrics=others,
        trivial={scoring.guess: tag_score(metric, examples, guess, scoring)},
        remarks={scoring.guess: f"{commonest} everywhere"},
        summary={"kinds": kinds},
        tables=[_table(kinds, "kind" if metric == "span F1" else "tag")],
        note="all tags: --json" if len(kinds) > SHOWN else "",
    )


def _kinds(
    predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]], *, of_spans: bool
) -> dict[str, dict[str, int]]:
    """Count the correct, predicted and true tags, or spans of each kind, by frequency."""
    right: Counter[str] = Counter()
    said: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for tags, true_tags in zip(predicted, true, strict=True):
        if of_spans:
            a, b = {*spans(tags)}, {*spans(true_tags)}
            said.update(span.kind for span in a)
            wanted.update(span.kind for span in b)
            right.update(span.kind for span in a & b)
        else:
            said.update(tags)
            wanted.update(true_tags)
            right.update(x for x, y in zip(tags, true_tags, strict=True) if x == y)
    names = sorted({*said, *wanted}, key=lambda name: (-wanted[name], name))
    return {x: {"right": right[x], "said": said[x], "true": wanted[x]} for x in names}


def _table(kinds: Mapping[str, Mapping[str, int]], title: str) -> list[list[str]]:
    """Return precision, recall, F1 and the true count of each kind of span, or tag."""
    rows = [[title, "precision", "recall", "F1", "n"]]
    for kind, counts in islice(kinds.items(), SHOWN):
        right, said, true = counts["right"], counts["said"], counts["true"]
        shares = right / max(said, 1), right / max(true, 1), float(f1(right, said, true))
        rows.append([kind, *(f"{100 * x:.1f}" for x in shares), f"{true:,}"])
    return rows


def tags_of(example: Example) -> list[str]:
    """Return the tags of a sentence, one for each word."""
    return example.label.split(" ")
