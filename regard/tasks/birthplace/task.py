"""Who was born where: pretraining on texts that hold the answers, and questions that ask for them.

Assignment 5 of Stanford's CS224N 2022, sections 2d to 2g: a decoder reads "Where was NAME born?⁇"
and writes "PLACE⁇". ⁇ is the mask symbol, which pretraining has taught it: what follows the
second ⁇ is what the first stands for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.layer_attention import LayerAttention
from regard.data.batches import pad
from regard.data.birthplaces import (
    MASK_CHARACTER,
    PAD_CHARACTER,
    Birthplaces,
    load_birthplaces,
    read_answers,
)
from regard.data.pairs import Pair
from regard.data.sources import leaves, likeness
from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.decoding import Limits
from regard.errors import RegardError
from regard.layers import marks
from regard.layers.cross_entropy import word_loss
from regard.layers.device import evaluation_mode, to_device
from regard.tasks.birthplace.evaluation import Answered
from regard.tasks.pretraining.corruption import Spans, draw_spans, generator, single_span
from regard.tasks.pretraining.language_modeling import NextToken, NextTokens
from regard.tasks.pretraining.task import Rows
from regard.tasks.settings import AnswersSettings, BirthplacePretrainingSettings
from regard.tasks.task import NAMED, Columns, Split, must_be_split, no_labels
from regard.tasks.writing.searching import Writes, score


class BirthplacePretraining(NextToken):
    """Assignment 5's span corruption: each document is cut short, a span of it goes to its end.

    See `corruption.draw_spans` and `single_span`. Every token of the outcome is said
    from those before it. Examples of like length stand in one batch, so that hardly anything is
    padding (the assignment's own batches, padded to the block, are text to 46 %).
    """

    settings: BirthplacePretrainingSettings

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Tokens that are read of each example: what is kept, and the symbols but the last."""
        return self.drawn(split, seed, epoch).kept + (2 if self.settings.closed else 1)

    def most_tokens(self, split: Split) -> int:
        whole = int(self.split(split).lengths.max(initial=1))
        return min(whole, self.settings.length * 7 // 8) + (2 if self.settings.closed else 1)

    def batch(self, split: Split, indexes: Rows) -> NextTokens:
        """Corrupted documents, and the same one token later."""
        texts = [self.corrupted(split, *row) for row in indexes.tolist()]
        tokens, lengths = pad([text[:-1] for text in texts])
        wanted, _ = pad([text[1:] for text in texts])
        return NextTokens(tokens, wanted, lengths)

    def corrupted(self, split: Split, seed: int, epoch: int, index: int) -> NDArray[np.int32]:
        """One document as an epoch has it."""
        kept, start, stop = (int(part[index]) for part in self.drawn(split, seed, epoch))
        ids = self.split(split).ids[index][:kept]
        return single_span(ids, start, stop, self.marks.mask, closed=self.settings.closed)

    @property
    def end(self) -> int:
        """The symbol that ends a span."""
        return self.marks.mask

    def whole(self, text: str) -> NDArray[np.int32]:
        """A text's tokens; what "[MASK]" (or ⁇) in it stands for is asked for at its end."""
        parts = self.encode(text.replace("[MASK]", MASK_CHARACTER).split(MASK_CHARACTER))
        if len(parts) == 1:
            return parts[0]
        symbol = np.array([self.marks.mask], np.int32)
        return np.concatenate([x for part in parts for x in (part, symbol)])

    def drawn(self, split: Split, seed: int, epoch: int) -> Spans:
        """Lengths and spans of all documents in an epoch; the last few epochs are remembered."""
        key = (split, seed, epoch)
        if key not in self._drawn:
            if len(self._drawn) > 4:
                self._drawn.clear()
            lengths = self.split(split).lengths
            drawn = generator(seed, epoch, split).random((len(lengths), 4))
            self._drawn[key] = draw_spans(lengths, self.settings.length, drawn)
        return self._drawn[key]

    @cached_property
    def _drawn(self) -> dict[tuple[str, int, int], Spans]:
        return {}


class Asked(NamedTuple):
    """A question, where it stands, its tokens with the symbol behind it; the answer's, and that."""

    pair: Pair
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]


@dataclass(frozen=True)
class Questions:
    """A split of questions as token ids."""

    asked: Sequence[Asked]

    def __len__(self) -> int:
        return len(self.asked)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that are read of each: question, symbol, answer."""
        return np.array([len(x.prompt) + len(x.answer) - 1 for x in self.asked], dtype=np.int64)

    @property
    def pairs(self) -> list[Pair]:
        """Questions and answers as texts."""
        return [x.pair for x in self.asked]


@dataclass(frozen=True)
class QuestionBatch(NextTokens):
    """Questions and answers in a row; only the answer counts, and the two symbols about it."""

    answers: Bool[Tensor, "batch time"]

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """Where a token of the answer, or the symbol before or behind it, comes next."""
        return self.answers


class Answers(Writes[QuestionBatch]):
    """Questions answered by a decoder: exact match of what it writes, letter by letter."""

    metric = "exact match"
    keeps = "tail"
    behind = True
    settings: AnswersSettings

    def __init__(
        self,
        settings: AnswersSettings,
        tokenizer: Tokenizer | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        self.splits: dict[str, Questions] = {}

    @cached_property
    def corpus(self) -> Birthplaces:
        """Texts and questions as they were found."""
        asked = self.settings
        return load_birthplaces(
            asked.data, texts=asked.texts, test=asked.test, data_dir=asked.data_dir or None
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Learned from the texts, as that of pretraining."""
        asked = self.settings
        return train_tokenizer(
            asked.tokenizer, self.corpus.texts, vocabulary=asked.vocabulary, minimum=asked.minimum
        )

    @property
    def longest(self) -> int:
        """Tokens of an answer at most: half of what a model can count is the question's."""
        return min(self.settings.longest, self.settings.length // 2)

    @property
    def room(self) -> int:
        """Tokens that are read of a question: its last."""
        return max(self.settings.length - self.longest - 1, 1)

    @property
    def end(self) -> int:
        """The symbol behind an answer, which stands before it too."""
        return marks.Marks.behind(len(self.tokenizer)).mask

    @property
    def limits(self) -> Limits:
        """The same for every question."""
        return Limits(ratio=0.0, more=self.longest, longest=self.longest)

    @property
    def sizes(self) -> dict[str, int]:
        """What a network is built for."""
        return {"vocabulary": len(self.tokenizer) + marks.COUNT, "labels": 0}

    def facts(self) -> dict[str, Any]:
        """What a run remembers of its data, and the answer that train has most often."""
        return {**super().facts(), "commonest": self.commonest}

    @cached_property
    def commonest(self) -> str:
        """The answer that train has most often: what is said without reading the question."""
        if self.known:  # of a run: its data are not read for this
            return str(self.known.get("commonest", ""))
        (found,) = Counter(pair.target for pair in self.corpus.train).most_common(1)
        return found[0]

    def split(self, name: str) -> Questions:
        """train and validation (both of the data's train), test (the data's dev)."""
        must_be_split(name)
        if name not in self.splits:
            pairs, asked = self.corpus.dev, self.settings
            if name != "test":
                salt = f"validation {asked.split_seed}"
                pairs = [
                    pair
                    for pair in self.corpus.train
                    if leaves(likeness(pair.source), asked.validation, salt)
                    == (name == "validation")
                ]
            if not pairs:
                raise RegardError(f"there are no questions for {name}: give more")
            self.splits[name] = self.questions(pairs, cut=name == "train")
        return self.splits[name]

    def questions(self, pairs: Sequence[Pair], *, cut: bool = False) -> Questions:
        """Questions as token ids; those that do not fit are left out of training (`cut`).

        Elsewhere the loss asks for as much of an answer as fits. Errors, in training: none fits;
        tokens that do not give an answer back to the letter, as those of words.
        """
        if cut and (said := self.decode(self.whole(self.commonest))) != self.commonest:
            raise RegardError(
                f"these tokens give the answer {self.commonest!r} back as {said!r}, so that none "
                "could be right: take tokenizer=characters, bpe or unigram, and "
                "with init= a run that has read such names"
            )
        prompts, most = self.prompts([pair.source for pair in pairs]), self.settings.length
        answers = self.tokenizer.encode([pair.target for pair in pairs])
        found = []
        for pair, prompt, answer in zip(pairs, prompts, answers, strict=True):
            room = most - len(prompt)
            if not cut or len(answer) <= room:
                ids = np.array([*answer, self.end][: room + 1], np.int32)
                found.append(Asked(pair, prompt, ids))
        if not found:
            raise RegardError(f"no question and answer have at most {most} tokens; raise length=")
        return Questions(found)

    def whole(self, text: str) -> list[int]:
        """All tokens of a question."""
        return self.tokenizer.encode([text])[0]

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Tokens that are read of each question and answer: the same in every epoch."""
        return self.split(split).lengths

    def rows(self, count: int, seed: int) -> list[tuple[str, str]]:
        """Return x and y of the first ``count`` questions, as assignment 5 prints them.

        In the order of the file, those that are held out for validation included; □ where nothing
        counts. Nothing is drawn, so that ``seed`` changes nothing.
        """
        asked = self.questions(self.corpus.train[:count], cut=True).asked
        return [question_rows(one.pair, self.settings.length) for one in asked]

    def prompts(self, questions: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids of each question and the symbol behind it; the end of one that is too long."""
        return [
            np.array([*ids[-self.room :], self.end], np.int32)
            for ids in self.tokenizer.encode(list(questions))
        ]

    def names(self, ids: Sequence[int]) -> list[str]:
        """The readable token of each id; ⁇ for the symbol about an answer."""
        words = self.tokenizer
        return [words.tokens([i])[0] if i < len(words) else MASK_CHARACTER for i in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """A text again; symbols that no text holds are left out."""
        return self.tokenizer.decode([i for i in ids if i < len(self.tokenizer)])

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> QuestionBatch:
        """These questions with their answers."""
        chosen = [self.split(split).asked[i] for i in indexes]
        rows = [np.concatenate([x.prompt, x.answer]) for x in chosen]
        tokens, lengths = pad([row[:-1] for row in rows])
        wanted, _ = pad([row[1:] for row in rows])
        places = torch.arange(tokens.shape[1])
        # The place before the symbol counts too: as in the assignment, its symbol is said.
        first = torch.tensor([len(x.prompt) - 2 for x in chosen])[:, None]
        return QuestionBatch(
            tokens, wanted, lengths, (places >= first) & (places < lengths[:, None])
        )

    def loss(self, model: nn.Module, batch: QuestionBatch) -> Float[Tensor, ""]:
        """Mean cross entropy of the answers and the symbols about them, in nats."""
        states = model(batch.tokens, batch.lengths)
        return word_loss(model, states[batch.real], batch.wanted[batch.real])

    @torch.no_grad()
    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """The share of answers that are written as they should be, and the loss."""
        with evaluation_mode(model):
            total = count = 0.0
            budget = max(tokens, int(self.split(split).lengths.max(initial=1)))
            for indexes in self.batches(split, tokens=budget, seed=0, epoch=0, shuffle=False):
                batch = to_device(model, self.batch(split, indexes))
                asked = int(batch.real.sum())
                total += float(self.loss(model, batch)) * asked
                count += asked
            pairs = self.split(split).pairs
            written = self.write(model, [pair.source for pair in pairs])
        right = [self.decode(a.tokens) == b.target for (a,), b in zip(written, pairs, strict=True)]
        return float(np.mean(right)), total / max(count, 1)

    def answer(self, model: nn.Module) -> Answered:
        """What the model answers to the test questions, judged."""
        pairs = self.split("test").pairs
        said = self.predict(model, [pair.source for pair in pairs])
        return Answered.judge(pairs, said, self.commonest)

    def restore(self, rows: bytes, name: str) -> Answered:
        """The evaluation that wrote these rows. Errors: lines that are no such rows."""
        return Answered.parse(rows, self.commonest, name)

    def evaluate(self, model: nn.Module, data: Path, columns: Columns = NAMED) -> Answered:
        """What the model answers to the questions of a file, judged where it has answers.

        A line is a question and, behind a tab, its answer; of bare questions the answers are
        written and not judged. Errors: a bad line; a column's name, which these files do not have.
        """
        no_labels(columns)
        if columns.text or columns.label:
            raise RegardError("a file of questions has no columns; a line is QUESTION, tab, ANSWER")
        pairs = read_answers(data, answered=False)
        said = self.predict(model, [pair.source for pair in pairs])
        return Answered.judge(pairs, said, self.commonest)

    def attention(self, model: nn.Module, text: str) -> list[LayerAttention]:
        """What each layer looks at: rows are question and answer, each token asking in its turn."""
        return self.at_work(model, text)[0]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a question that the model reads, and the symbol behind it."""
        return self.names(self.prompts([text])[0].tolist())

    @torch.no_grad()
    def chances(
        self, model: nn.Module, question: str, answers: Sequence[str]
    ) -> Float[np.ndarray, " answers"]:
        """The probability that the model gives each of some answers to one question."""
        targets = list(self.tokenizer.arrays(answers))
        asked = self.prompts([question] * len(targets))
        texts = score(model, asked, targets, end=self.end)
        chances: NDArray[np.float64] = np.exp([text.log_probability for text in texts])
        return chances


def question_rows(
    pair: Pair, block: int, mask: str = MASK_CHARACTER, pad: str = PAD_CHARACTER
) -> tuple[str, str]:
    """x and y of ``namedata``: question ⁇ answer ⁇, and the same one later where the answer counts.

    >>> question_rows(Pair("Where?", "Here", ""), 14)
    ('Where?⁇Here⁇□', '□□□□□⁇Here⁇□□')
    """
    row = f"{pair.source}{mask}{pair.target}{mask}".ljust(block, pad)
    return row[:-1], pad * (len(pair.source) - 1) + row[len(pair.source) :]
