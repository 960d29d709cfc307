"""The task of solving a puzzle on symbols."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
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
from regard.lab.tasks.tagging.evaluation import Scoring, tag_score
from regard.lab.tasks.tagging.task import Sentences, TagBatch, Tagging
from regard.lab.tasks.texts import outputs_of
from regard.nn.layers.device import evaluation_mode, to_device
from regard.training.interface import Interface
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

NO_ANSWER = "_"  # the tag of a position without an answer


class SymbolTask(Tagging):
    """A puzzle: an answer for some symbols of an example, from `regard.lab.data.symbols`.

    The answers are tags of the symbols; symbols without an answer have the tag "_", which is
    neither learned nor evaluated.
    """

    settings: SymbolSettings  # type: ignore[assignment]
    perfect = 1.0
    scoring = Scoring("examples", METRICS["exact"], "most frequent answer", NO_ANSWER)

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
        return tag_score(self.metric, self.split(split).examples, tags, self.scoring), loss

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
        total, count = 0.0, 0
        plan = self.fixed_batches(split, tokens)

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
