"""The task of solving a puzzle on symbols."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable
from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.sources import Corpus
from regard.lab.data.symbols import PARTS, UNASKED, Puzzle, Rows, Sizes
from regard.lab.data.tokenizers import Tokenizer, of_counts
from regard.lab.tasks.encoded import Batch
from regard.lab.tasks.symbols import METRICS, PUZZLES, SymbolSettings
from regard.lab.tasks.tagging.evaluation import Counts, TagEvaluation
from regard.lab.tasks.tagging.task import Sentences, TagBatch, Tagging
from regard.lab.tasks.texts import outputs_of
from regard.nn.layers.device import evaluation_mode, to_device
from regard.training.batches import plan_batches
from regard.training.interface import Interface
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

NO_ANSWER = "_"  # the tag of a position without an answer


@dataclass(frozen=True, repr=False)
class SymbolEvaluation(TagEvaluation):
    """Predicted answers with the true ones; only positions with an answer count.

    ``metric``: "accuracy" over answers, or "exact match", the share of examples whose answers are
    all correct.
    """

    @property
    def unit(self) -> str:
        return "examples"

    @cached_property
    def counts(self) -> Counts:
        """Return the counts of correct, predicted and true answers of each example."""
        rows = [
            (sum(x == y for x, y in zip(a, b, strict=True) if y != NO_ANSWER), count, count)
            for a, b in zip(self.answers, self.true, strict=True)
            for count in [len(b) - b.count(NO_ANSWER)]
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each example whether all its answers are correct."""
        right: NDArray[np.bool_] = self.counts[:, 0] == self.counts[:, 2]
        return right

    @property
    def value(self) -> float:
        return float(self.correct.mean()) if self.metric == METRICS["exact"] else super().value

    @property
    def per_example(self) -> NDArray[np.float64]:
        if self.metric == METRICS["exact"]:
            return self.correct.astype(np.float64)
        return super().per_example

    @property
    def is_constant(self) -> bool:
        predicted = {tag for tags in self.answers for tag in tags} - {NO_ANSWER}
        true = {tag for tags in self.true for tag in tags} - {NO_ANSWER}
        return len(predicted) == 1 < len(true)

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return the other metric of the two."""
        if self.metric == METRICS["exact"]:
            return {METRICS["accuracy"]: super().value}
        return {METRICS["exact"]: float(self.correct.mean())}

    @property
    def trivial(self) -> Mapping[str, float]:
        """Return the metric of always giving the most frequent training answer."""
        guess = [[self.commonest] * len(tags) for tags in self.true]
        answers = tuple(map(tuple, guess))
        evaluation = type(self)(self.metric, self.references, answers, self.commonest)
        return {"most frequent answer": evaluation.value}

    @cached_property
    def kinds(self) -> dict[str, tuple[int, int, int]]:
        """Return correct, predicted and true counts of each answer, by frequency."""
        right: Counter[str] = Counter()
        predicted: Counter[str] = Counter()
        true: Counter[str] = Counter()
        for tags, true_tags in zip(self.answers, self.true, strict=True):
            answers = [pair for pair in zip(tags, true_tags, strict=True) if pair[1] != NO_ANSWER]
            predicted.update(x for x, _ in answers)
            true.update(y for _, y in answers)
            right.update(x for x, y in answers if x == y)
        names = sorted({*predicted, *true}, key=lambda name: (-true[name], name))
        return {name: (right[name], predicted[name], true[name]) for name in names}


class SymbolTask(Tagging):
    """A puzzle: an answer for some symbols of an example, from `regard.lab.data.symbols`.

    The answers are tags of the symbols; symbols without an answer have the tag "_", which is
    neither learned nor evaluated.
    """

    settings: SymbolSettings  # type: ignore[assignment]

    @property
    def interface(self) -> Interface:  # type: ignore[override]
        """Return how networks are called: examples with answers are read from left to right."""
        return replace(Tagging.interface, left_to_right=self.puzzle.contains_answers)

    @cached_property
    def puzzle(self) -> Puzzle:
        """Return the puzzle with its sizes."""
        return self.settings.puzzle()

    @cached_property
    def corpus(self) -> Corpus:
        """Draw the examples.

        Raises: data of another name; inconsistent sizes; examples that exceed ``length``.
        """
        settings, puzzle = self.settings, self.puzzle
        if settings.data != (name := self.name):
            raise RegardError(
                f"{name} generates its examples and cannot read data={settings.data}; leave it out"
            )
        if settings.shortest > settings.train_length:
            raise RegardError(
                f"shortest={settings.shortest} is more than train_length={settings.train_length}; "
                f"set shortest=0, or at most {settings.train_length}"
            )
        sizes = Sizes(
            settings.examples,
            settings.held_out,
            settings.train_length,
            settings.test_length or settings.train_length,
            settings.shortest,
        )
        parts = puzzle.parts(sizes, settings.split_seed)
        longest = max(rows.symbols.shape[1] for part in parts.values() for rows in part)
        if longest > settings.length:
            raise RegardError(
                f"an example has {longest} symbols, but models read length={settings.length}; set "
                f"length={longest + 1}"  # room for [CLS] after it
            )
        examples = {part: self._examples(part, parts[part]) for part in PARTS}
        digest = hashlib.sha256()
        for part in PARTS:
            for rows in parts[part]:
                digest.update(rows.symbols.tobytes() + rows.targets.tobytes())
        known = {example.text for example in examples["train"]}
        again = sum(example.text in known for example in examples["test"])
        notes = [f"{again:,} of {len(examples['test']):,} test examples are also in train"]
        return Corpus(
            name,
            examples["train"],
            examples["test"],
            tuple(puzzle.answers),
            tuple(notes[: again > 0]),
            digest.hexdigest(),
            examples["validation"],
        )

    @property
    def name(self) -> str:
        """Return the name of the task."""
        kinds = {settings: name for name, (_, settings, _) in PUZZLES.items()}
        return kinds[type(self.settings)]

    def _examples(self, part: str, several: Sequence[Rows]) -> list[Example]:
        """Return examples as texts and tags."""
        words = np.array(self.puzzle.words, dtype=object)
        answers = np.array([*self.puzzle.answers, NO_ANSWER], dtype=object)  # −1 is the last
        texts = [" ".join(row) for rows in several for row in words[rows.symbols]]
        tags = [" ".join(row) for rows in several for row in answers[rows.targets]]
        return [
            Example(text, tag, f"{self.name}/{part}:{i}")
            for i, (text, tag) in enumerate(zip(texts, tags, strict=True), 1)
        ]

    @cached_property
    def _split_examples(self) -> tuple[list[Example], list[Example]]:
        return self.corpus.train, self.corpus.validation or []

    @property
    def notes(self) -> list[str]:
        return list(self.corpus.notes)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of all symbols."""
        words = self.puzzle.words
        return of_counts("words", Counter(words), len(words) + 2, 1)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the number of training answers of each kind, in the order of their numbers."""
        if self.known:
            return super().counts
        tags = Counter(tag for example in self.corpus.train for tag in example.label.split(" "))
        return {answer: tags[answer] for answer in self.puzzle.answers}

    @cached_property
    def metric(self) -> str:  # type: ignore[override]
        return METRICS[self.settings.metric]

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Return the token of each symbol."""
        known = self._ids
        return [[known.get(word, self.tokenizer.unknown or 0)] for word in words]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.tokenizer.vocabulary)}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean cross entropy of the answers, in nats."""
        logits, truth = self._asked(model, batch)
        return F.cross_entropy(logits, truth)

    def items(self, batch: Batch) -> Sequence[float]:
        """Return the number of answers, over which the loss is a mean."""
        return [int((batch.labels != UNASKED).sum())]

    def _asked(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the logits at positions with an answer, and the numbers of the answers."""
        has_answer = batch.labels != UNASKED
        logits = outputs_of(model, batch.tokens, batch.lengths, None)
        return logits[has_answer].float(), batch.labels[has_answer]

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric, and the mean loss of an answer in nats."""
        if not isinstance(model, nn.Module):
            return super().judge(model, split, tokens=tokens)
        tags, loss = self._read(model, split, tokens)
        return self._evaluation(self.split(split).examples, tags).value, loss

    def tag(self, model: Any, what: Split | Sequence[str | Example]) -> list[list[str]]:
        """Return the predicted answer at every position; in a split, only at positions with one."""
        if not isinstance(model, nn.Module) or not isinstance(what, str):
            return super().tag(model, what)
        return self._read(model, cast(Split, what), 16_384)[0]

    @torch.no_grad()
    def _read(self, model: nn.Module, split: Split, tokens: int) -> tuple[list[list[str]], float]:
        """Return the answers of a network to a split, and its mean loss."""
        sentences = self.split(split)
        assert isinstance(sentences, Sentences)
        tags = [[NO_ANSWER] * len(x) for x in sentences.ids]
        total, count, longest = 0.0, 0, int(sentences.lengths.max())
        plan = plan_batches(
            sentences.lengths, tokens=max(tokens, longest), seed=0, epoch=0, shuffle=False
        )

        def work(indexes: NDArray[np.integer]) -> Arrays:
            batch = to_device(model, self.batch(split, indexes))
            assert isinstance(batch, TagBatch)
            logits, truth = self._asked(model, batch)
            return {
                "loss": np.array(float(F.cross_entropy(logits, truth, reduction="sum"))),
                "said": logits.argmax(-1).cpu().numpy(),
                "places": (batch.labels != UNASKED).nonzero().cpu().numpy(),
            }

        with evaluation_mode(model):
            results = ranks().divide(plan, work)
        for indexes, result in zip(plan, results, strict=True):
            total += float(result["loss"])
            count += len(result["said"])
            answers = zip(result["places"].tolist(), result["said"].tolist(), strict=True)
            for (row, column), answer in answers:
                tags[indexes[row]][column] = self.labels[answer]
        return tags, total / max(count, 1)

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return ln p of the answer at each symbol; default: the last, which every puzzle has."""
        explainable = super().explainable(model, text)
        return explainable._replace(default=len(explainable.scalars) - 1)

    def fit(self, baseline: Any, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the symbols with an answer."""
        train = self.train
        picked = range(len(train)) if chosen is None else chosen
        has_answer = [train.labels[i] != UNASKED for i in picked]
        words = [
            np.array(train.examples[i].words)[keep]
            for i, keep in zip(picked, has_answer, strict=True)
        ]
        numbers = [train.labels[i][keep] for i, keep in zip(picked, has_answer, strict=True)]
        baseline.fit([row.tolist() for row in words], numbers)

    def _evaluation(
        self, examples: Sequence[Example], predicted: Sequence[Sequence[str]]
    ) -> SymbolEvaluation:
        answered = [
            [
                NO_ANSWER if true == NO_ANSWER else tag
                for tag, true in zip(tags, example.label.split(" "), strict=True)
            ]
            for tags, example in zip(predicted, examples, strict=True)
        ]
        return SymbolEvaluation.judge(self.metric, examples, answered, self.commonest)

    def restore(self, rows: bytes, name: str) -> SymbolEvaluation:
        """Rebuild an evaluation from its rows. Raises: malformed rows."""
        return SymbolEvaluation.parse(rows, self.metric, self.commonest, name)
