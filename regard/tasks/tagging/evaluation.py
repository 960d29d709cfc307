"""Tags beside the true ones: the share of words, F1 of whole spans, and each sentence's part."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import Example
from regard.data.tagged import mark_spans, spans
from regard.errors import RegardError
from regard.reading import parse_rows
from regard.shown import shown
from regard.tasks.evaluation import Evaluation, half_width, written

COMMONEST = "commonest tag"  # given to every word
SHOWN = 20  # tags or kinds in a table of the terminal
Counts = NDArray[np.int64]  # (sentences, 3): right, said, true


@dataclass(frozen=True)
class Tags:
    """The tag that a model gives each word of a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    _repr_html_ = shown

    def line(self) -> str:
        """Return the words with their tags on one line: word/TAG …"""
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))

    def told(self) -> str:
        """Return the spans and their kinds where tags mark any, else each word's tag."""
        if not mark_spans(self.tags):
            return self.line() if any(tag != "O" for tag in self.tags) else "nothing is marked"
        return "; ".join(f"{span['text']}: {span['kind']}" for span in self.spans())

    def spans(self) -> list[dict[str, Any]]:
        """Return the spans that the tags mark: their words, kind, and places from 0."""
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
        """Return the answer as plain values."""
        return {"words": list(self.words), "tags": list(self.tags), "spans": self.spans()}


def span_counts(said: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Counts:
    """Return of each sentence the spans that are right, said and true: places and kind agree."""
    rows = [({*spans(a)}, {*spans(b)}) for a, b in zip(said, true, strict=True)]
    found = [(len(ours & theirs), len(ours), len(theirs)) for ours, theirs in rows]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def word_counts(said: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> Counts:
    """Return of each sentence the words that are tagged rightly, those tagged, and all."""
    found = [
        (sum(x == y for x, y in zip(a, b, strict=True)), len(a), len(b))
        for a, b in zip(said, true, strict=True)
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def f1(right: Any, said: Any, true: Any) -> Any:
    """F1 = 2 right / (said + true), 0 where nothing is said or true; of words the accuracy.

    >>> float(f1(1, 2, 2))
    0.5
    """
    total = np.asarray(said + true, dtype=np.float64)
    return np.where(total > 0, 2 * right / np.maximum(total, 1), 0.0)


COUNTED = {"span F1": span_counts, "accuracy": word_counts}


def pseudo_values(counts: Counts) -> NDArray[np.float64]:
    """What each sentence adds to F1: the jackknife's n θ − (n − 1) θ₋ᵢ, moved to have mean θ."""
    n, total = len(counts), counts.sum(0)
    whole = float(f1(*total))
    if n < 2:
        return np.full(n, whole)
    found = n * whole - (n - 1) * f1(*(total - counts).T)
    return np.asarray(found - found.mean() + whole, dtype=np.float64)


@dataclass(frozen=True, repr=False)
class TagEvaluation(Evaluation):
    """Tags that were said beside the true ones.

    ``metric``: "span F1" or "accuracy", of words; ``commonest`` is the training's.
    """

    metric: str
    asked: tuple[Example, ...] = field(repr=False)
    answers: tuple[tuple[str, ...], ...] = field(repr=False)
    commonest: str

    @classmethod
    def judge(
        cls,
        metric: str,
        examples: Sequence[Example],
        said: Sequence[Sequence[str]],
        commonest: str,
    ) -> "TagEvaluation":
        """Judge tags by those of the examples. Errors: nothing to judge; another number of tags."""
        if not examples:
            raise RegardError("there is nothing to evaluate: no sentences")
        for example, tags in zip(examples, said, strict=True):
            if len(tags) != len(tags_of(example)) or len(tags) != len(example.words):
                raise RegardError(f"{example.source}: another number of tags than of words")
        return cls(metric, tuple(examples), tuple(map(tuple, said)), commonest)

    @property
    def n(self) -> int:
        """How many sentences."""
        return len(self.asked)

    @property
    def unit(self) -> str:
        """What `n` counts."""
        return "sentences"

    @property
    def examples(self) -> Sequence[Example]:
        """The sentences, their tags as labels."""
        return self.asked

    @property
    def said(self) -> Sequence[str]:
        """The tags of each sentence, between spaces."""
        return [" ".join(tags) for tags in self.answers]

    @cached_property
    def true(self) -> list[list[str]]:
        """The true tags of each sentence."""
        return [tags_of(example) for example in self.asked]

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether all tags of a sentence are right."""
        pairs = zip(self.answers, self.true, strict=True)
        return np.array([list(said) == true for said, true in pairs])

    @cached_property
    def counts(self) -> Counts:
        """Of each sentence what is right, said and true."""
        return COUNTED[self.metric](self.answers, self.true)

    @property
    def value(self) -> float:
        """The metric."""
        return float(f1(*self.counts.sum(0)))

    @cached_property
    def per_example(self) -> NDArray[np.float64]:
        """What each sentence adds to the metric: `pseudo_values`."""
        return pseudo_values(self.counts)

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval over sentences: value ± 1.96 s/√n of `per_example`."""
        return max(0.0, self.value - self._half)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return min(1.0, self.value + self._half)

    @property
    def _half(self) -> float:
        return half_width(self.per_example, 2)

    @property
    def says_one_thing(self) -> bool:
        """Whether every word got one tag where the true ones are several."""
        said = {tag for tags in self.answers for tag in tags}
        return len(said) == 1 < len({tag for tags in self.true for tag in tags})

    @property
    def also(self) -> dict[str, float]:
        """The accuracy of words beside F1, its precision and recall, and whole sentences."""
        found = {"whole sentences": float(self.correct.mean())}
        if self.metric != "accuracy":
            right, said, true = (float(x) for x in self.counts.sum(0))
            words = word_counts(self.answers, self.true).sum(0)
            found |= {"precision": right / said if said else 0.0}
            found |= {"recall": right / true if true else 0.0}
            found |= {"accuracy": float(f1(*words))}
        return found

    @property
    def trivial(self) -> Mapping[str, float]:
        """What the metric would be if every word had the commonest tag of the training."""
        guess = [[self.commonest] * len(tags) for tags in self.true]
        return {COMMONEST: float(f1(*COUNTED[self.metric](guess, self.true).sum(0)))}

    def json(self) -> dict[str, Any]:
        """Return the summary as plain values, with the counts of each tag or kind."""
        keys = "metric", "value", "low", "high", "n", "also", "trivial"
        found = {key: getattr(self, key) for key in keys}
        ends = {key: None for key in ("low", "high") if not math.isfinite(found[key])}
        kinds = {
            kind: {"right": right, "said": said, "true": true}
            for kind, (right, said, true) in self.kinds.items()
        }
        return {**found, **ends, "kinds": kinds}

    def line(self) -> str:
        """Return the summary on one line."""
        told = f"{self.metric} {written(self.metric, self.value, 1)} (95 % interval "
        told += f"{written(self.metric, self.low, 1)} to {written(self.metric, self.high, 1)}, "
        told += f"{self.n:,} sentences)"
        others = (f"{name} {value:.1%}" for name, value in self.also.items())
        return ", ".join([told, *others])

    def words(self) -> list[tuple[str, str]]:
        """Return the summary for people: what is told, and how much it is."""
        low, high = (written(self.metric, x, 1) for x in (self.low, self.high))
        value = written(self.metric, self.value, 2)
        guess = f"{self.trivial[COMMONEST]:.1%}  ({self.commonest} for every word)"
        return [
            (self.metric, f"{value}  (95 % interval {low} to {high}, of sentences, not seeds)"),
            (COMMONEST, guess),
            *((name, f"{value:.1%}") for name, value in self.also.items()),
        ]

    @cached_property
    def kinds(self) -> dict[str, tuple[int, int, int]]:
        """What is right, said and true of each kind of span, or tag; frequent ones first."""
        right: Counter[str] = Counter()
        said: Counter[str] = Counter()
        true: Counter[str] = Counter()
        for ours, theirs in zip(self.answers, self.true, strict=True):
            if self.metric == "accuracy":
                said.update(ours)
                true.update(theirs)
                right.update(x for x, y in zip(ours, theirs, strict=True) if x == y)
            else:
                a, b = {*spans(ours)}, {*spans(theirs)}
                said.update(span.kind for span in a)
                true.update(span.kind for span in b)
                right.update(span.kind for span in a & b)
        names = sorted({*said, *true}, key=lambda name: (-true[name], name))
        return {name: (right[name], said[name], true[name]) for name in names}

    def tables(self) -> list[list[list[str]]]:
        """Return the table of each kind: precision, recall, F1 and how often it is true."""
        rows = [["tag" if self.metric == "accuracy" else "kind", "precision", "recall", "F1", "n"]]
        for kind, (right, said, true) in list(self.kinds.items())[:SHOWN]:
            shares = right / said if said else 0.0, right / true if true else 0.0
            both = float(f1(right, said, true))
            rows.append([kind, *(f"{100 * x:.1f}" for x in (*shares, both)), f"{true:,}"])
        return [rows]

    @property
    def note(self) -> str:
        """Where to find what the table leaves out."""
        return "all tags: --json" if len(self.kinds) > SHOWN else ""

    def rows(self) -> bytes:
        """Return the tags as JSON lines: source, text, label (the true tags), said, group."""
        lines = (
            json.dumps(
                {
                    "source": example.source,
                    "text": example.text,
                    "label": example.label,
                    "said": said,
                    **({"group": example.group} if example.group else {}),
                },
                ensure_ascii=False,
            )
            for example, said in zip(self.asked, self.said, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(cls, rows: bytes, metric: str, commonest: str, name: str) -> "TagEvaluation":
        """Return what `rows` wrote. Errors: lines of a file of this name that are no such rows."""
        try:
            found = [
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
        examples, said = [x for x, _ in found], [x for _, x in found]
        return cls.judge(metric, examples, said, commonest)

    def plain(self) -> bytes:
        """Return words and tags as CoNLL columns: word, true tag, tag."""
        blocks = (
            "".join(f"{w}\t{t}\t{s}\n" for w, t, s in zip(x.words, true, said, strict=True))
            for x, true, said in zip(self.asked, self.true, self.answers, strict=True)
        )
        return "\n".join(blocks).encode()


def tags_of(example: Example) -> list[str]:
    """Return the tags of a sentence, one for each word."""
    return example.label.split(" ")
