"""Birthplaces: pretraining on texts that contain the answers, and questions about them.

Assignment 5 of Stanford's CS224N 2022, sections 2d to 2g: a decoder reads "Where was NAME born?⁇"
and writes "PLACE⁇". ⁇ is the mask symbol of pretraining, where the text after the second ⁇
replaces the first.
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
from regard.attention.packing import places_of
from regard.core.errors import RegardError
from regard.decoding import Limits
from regard.lab.data.birthplaces import (
    MASK_CHARACTER,
    PAD_CHARACTER,
    Birthplaces,
    counted,
    load_birthplaces,
    read_answers,
)
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Example
from regard.lab.data.pairs import Pair
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import leaves
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.tasks.birthplace.evaluation import answer_evaluation
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.pretraining.corruption import Spans, draw_spans, generator, single_span
from regard.lab.tasks.pretraining.language_modeling import NextToken, NextTokens
from regard.lab.tasks.pretraining.task import Rows
from regard.lab.tasks.settings import AnswersSettings, BirthplacePretrainingSettings
from regard.lab.tasks.task import must_be_split, no_labels
from regard.lab.tasks.writing.evaluation import Text
from regard.lab.tasks.writing.searching import Writes
from regard.nn.layers import special_tokens
from regard.nn.layers.cross_entropy import word_loss
from regard.training.batches import pad
from regard.training.learnable import Split


class BirthplacePretraining(NextToken):
    """Span corruption of assignment 5: a document is shortened, and one span is moved to its end.

    See `corruption.draw_spans` and `single_span`. Every token of the result is predicted from the
    tokens before it. A batch has examples of similar length and thus little padding (54 % in
    the assignment's own batches, which are padded to the block size).
    """

    settings: BirthplacePretrainingSettings
    printed = MASK_CHARACTER + PAD_CHARACTER

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the input tokens of each example: the kept ones, and all symbols but the last."""
        return self.drawn(split, seed, epoch).kept + (2 if self.settings.closed else 1)

    def most_tokens(self, split: Split) -> int:
        whole = int(self.split(split).lengths.max(initial=1))
        return min(whole, self.settings.length * 7 // 8) + (2 if self.settings.closed else 1)

    def batch(self, split: Split, indexes: Rows) -> NextTokens:
        """Return corrupted documents, with the same shifted by one token as targets."""
        texts = [self.corrupted(split, *row) for row in indexes.tolist()]
        tokens, lengths = pad([text[:-1] for text in texts])
        wanted, _ = pad([text[1:] for text in texts])
        return NextTokens(tokens, wanted, lengths)

    def corrupted(self, split: Split, seed: int, epoch: int, index: int) -> NDArray[np.int32]:
        """Return a document as corrupted in an epoch."""
        length, start, stop = (int(part[index]) for part in self.drawn(split, seed, epoch))
        ids = self.split(split).ids[index][:length]
        return single_span(ids, start, stop, self.special_tokens.mask, closed=self.settings.closed)

    @property
    def end(self) -> int:
        """Return the id of the symbol that ends a span."""
        return self.special_tokens.mask

    def whole(self, text: str) -> NDArray[np.int32]:
        """Return the tokens of a text; after "[MASK]" or ⁇, append the symbol of its span."""
        parts = self.encode(text.replace("[MASK]", MASK_CHARACTER).split(MASK_CHARACTER))
        if len(parts) == 1:
            return parts[0]
        symbol = np.array([self.special_tokens.mask], np.int32)
        return np.concatenate([x for part in parts for x in (part, symbol)])

    def drawn(self, split: Split, seed: int, epoch: int) -> Spans:
        """Return lengths and spans of all documents in an epoch, with a cache of recent epochs."""
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


class Question(NamedTuple):
    """A question and its answer, also as token ids, each followed by the mask symbol."""

    pair: Pair
    prompt: NDArray[np.int32]
    answer: NDArray[np.int32]


@dataclass(frozen=True)
class Questions:
    """A split of questions and answers as token ids."""

    questions: Sequence[Question]

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Return the input tokens of each example: question, symbol and answer."""
        return np.array([len(x.prompt) + len(x.answer) - 1 for x in self.questions], dtype=np.int64)

    @property
    def pairs(self) -> list[Pair]:
        """Return questions and answers as texts."""
        return [x.pair for x in self.questions]


@dataclass(frozen=True)
class QuestionBatch(NextTokens):
    """A batch of questions, each followed by its answer.

    ``answers`` marks the target positions of the loss: the answer and the symbols around it.
    """

    answers: Bool[Tensor, "batch time"]

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """Return the positions whose target enters the loss."""
        return self.answers


class Answers(Writes[QuestionBatch]):
    """Questions answered by a decoder; the metric is the exact match of the written answers."""

    metric = "exact match"
    keeps = "tail"
    writes = "on"
    settings: AnswersSettings

    @cached_property
    def corpus(self) -> Birthplaces:
        """Load the texts and the questions."""
        settings = self.settings
        return load_birthplaces(
            settings.data,
            texts=settings.texts,
            test=settings.test,
            data_dir=settings.data_dir or None,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer on the texts, as in pretraining."""
        return self.trained_tokenizer(self.corpus.texts)

    @property
    def longest(self) -> int:
        """Return the maximum tokens of an answer; at least half of `length` is for the question."""
        return min(self.settings.longest, self.settings.length // 2)

    @property
    def room(self) -> int:
        """Return the maximum number of tokens read from a question, its last ones."""
        return max(self.settings.length - self.longest - 1, 1)

    @property
    def end(self) -> int:
        """Return the id of the symbol before and after an answer."""
        return special_tokens.SpecialTokens.after(len(self.tokenizer)).mask

    @property
    def limits(self) -> Limits:
        """Return the limit of an answer's length, equal for all questions."""
        return Limits(ratio=0.0, more=self.longest, longest=self.longest)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes for which a network is built."""
        return {"vocabulary": len(self.tokenizer) + special_tokens.COUNT, "labels": 0}

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with the most frequent answer of train."""
        return {**super().facts(), "commonest": self.commonest}

    @cached_property
    def commonest(self) -> str:
        """Return the most frequent answer of train, a guess that ignores the question."""
        if self.known:  # a run saved it, so the data need not be read
            return str(self.known.get("commonest", ""))
        (most_common,) = Counter(pair.target for pair in self.corpus.train).most_common(1)
        return most_common[0]

    @cached_property
    def splits(self) -> dict[str, Questions]:
        """Return the cache of encoded splits."""
        return {}

    def split(self, name: str) -> Questions:
        """Return train or validation (both from the data's train), or test (the data's dev)."""
        must_be_split(name)
        if name not in self.splits:
            pairs, settings = self.corpus.dev, self.settings
            if name != "test":
                salt = f"validation {settings.split_seed}"
                pairs = [
                    pair
                    for pair in self.corpus.train
                    if leaves(likeness(pair.source), settings.validation, salt)
                    == (name == "validation")
                ]
            if not pairs:
                raise RegardError(f"the {name} split has no questions; give more questions")
            self.splits[name] = self.questions(pairs, cut=name == "train")
        return self.splits[name]

    def questions(self, pairs: Sequence[Pair], *, cut: bool = False) -> Questions:
        """Return questions and answers as token ids; with ``cut``, drop those that do not fit.

        Without ``cut``, which training uses, an answer that is too long is truncated. Errors, with
        ``cut``: none fits; a tokenizer that does not reproduce an answer exactly, such as words.
        """
        if cut and (decoded := self.decode(self.whole(self.commonest))) != self.commonest:
            raise RegardError(
                f"the tokenizer turns the answer {self.commonest!r} into {decoded!r}, so no answer "
                "could match exactly; set tokenizer=characters, bpe or unigram, and with init= "
                "a run whose texts have such names"
            )
        prompts, most = self.prompts([pair.source for pair in pairs]), self.settings.length
        answers = self.tokenizer.encode([pair.target for pair in pairs])
        kept = []
        for pair, prompt, answer in zip(pairs, prompts, answers, strict=True):
            room = most - len(prompt)
            if not cut or len(answer) <= room:
                ids = np.array([*answer, self.end][: room + 1], np.int32)
                kept.append(Question(pair, prompt, ids))
        if not kept:
            raise RegardError(
                f"all questions with their answers exceed {most} tokens; raise length="
            )
        return Questions(kept)

    def whole(self, text: str) -> list[int]:
        """Return all tokens of a question, before truncation."""
        return self.tokenizer.encode([text])[0]

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the input tokens of each question with its answer, equal in every epoch."""
        return self.split(split).lengths

    @property
    def counted(self) -> str:
        """Return the first line that assignment 5 prints, which counts the symbols ⁇ and □, too."""
        return counted(self.corpus.texts, MASK_CHARACTER + PAD_CHARACTER)

    def rows(self, count: int, seed: int) -> list[tuple[str, str]]:
        """Return x and y of the first ``count`` questions, in the format of assignment 5.

        They are in the order of the file, with those held out for validation; □ marks positions
        outside the loss. ``seed`` has no effect, since nothing is random.
        """
        questions = self.questions(self.corpus.train[:count], cut=True).questions
        return [question_rows(one.pair, self.settings.length) for one in questions]

    def prompts(self, questions: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the token ids of each question with the mask symbol; keep the end of long ones."""
        return [
            np.array([*ids[-self.room :], self.end], np.int32)
            for ids in self.tokenizer.encode(list(questions))
        ]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the readable token of each id; ⁇ for the mask symbol."""
        return self.tokenizer.tokens(ids, lambda i: MASK_CHARACTER)

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> QuestionBatch:
        """Return the questions at these indexes with their answers as tensors."""
        chosen = [self.split(split).questions[i] for i in indexes]
        rows = [np.concatenate([x.prompt, x.answer]) for x in chosen]
        tokens, lengths = pad([row[:-1] for row in rows])
        wanted, _ = pad([row[1:] for row in rows])
        places = torch.arange(tokens.shape[1])
        # As in the assignment, the loss begins with the symbol before the answer.
        first = torch.tensor([len(x.prompt) - 2 for x in chosen])[:, None]
        return QuestionBatch(
            tokens, wanted, lengths, (places >= first) & (places < lengths[:, None])
        )

    def loss(self, model: nn.Module, batch: QuestionBatch) -> Float[Tensor, ""]:
        """Compute the mean cross entropy of the answers and the symbols around them, in nats."""
        places = places_of(batch.real)
        states = model(batch.tokens, batch.lengths).flatten(0, 1)
        return word_loss(model, states[places], batch.wanted.flatten()[places])

    def items(self, batch: QuestionBatch) -> Sequence[float]:
        """Return the number of tokens over which the loss is a mean."""
        return [int(batch.real.sum())]

    @torch.no_grad()
    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the exact match of greedily written answers, and the loss."""
        loss = self.mean_loss(model, split, tokens, self.loss)
        pairs = self.split(split).pairs
        written = self.write(model, [pair.source for pair in pairs])
        right = [self.decode(a.tokens) == b.target for (a,), b in zip(written, pairs, strict=True)]
        return float(np.mean(right)), loss

    def answer(self, model: nn.Module) -> Evaluation:
        """Return the evaluation of the model on the test questions."""
        return self._answered(model, self.split("test").pairs)

    def _answered(self, model: nn.Module, pairs: Sequence[Pair]) -> Evaluation:
        texts = self.predict(model, [pair.source for pair in pairs])
        return self.evaluation([pair.example for pair in pairs], texts)

    def evaluation(self, examples: Sequence[Example], answers: Sequence[Text]) -> Evaluation:
        """Evaluate written answers."""
        return answer_evaluation(examples, answers, self.commonest)

    def read_row(self, row: Mapping[str, Any]) -> Text:
        """Return the answer of a row."""
        return Text.of_row(row)

    def plain(self, evaluation: Evaluation) -> bytes:
        """Return the answers alone, one per line, in the format of assignment 5."""
        return "".join(f"{text.line()}\n" for text in evaluation.answers).encode()

    def evaluate(self, model: nn.Module, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on the questions of a file.

        A line is a question, a tab and its answer. Without reference answers, the model's answers
        are written and not scored. Raises: a bad line; a column name, since these files have none.
        """
        no_labels(columns)
        if columns.text or columns.label:
            raise RegardError(
                "a file of questions has no column names; leave them out and write each line as "
                "QUESTION, tab, ANSWER"
            )
        return self._answered(model, read_answers(data, answered=False))

    def attention(self, model: nn.Module, text: str) -> list[LayerAttention]:
        """Return the attention weights of each layer over the question and the written answer."""
        return self.at_work(model, text)[0]

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a question that the model reads, and the mask symbol."""
        return self.names(self.prompts([text])[0].tolist())


def question_rows(pair: Pair, block: int) -> tuple[str, str]:
    """Return x and y of ``namedata``: question ⁇ answer ⁇, and the same shifted by one.

    In y, □ replaces the positions outside the loss.

    >>> question_rows(Pair("Where?", "Here", ""), 14)
    ('Where?⁇Here⁇□', '□□□□□⁇Here⁇□□')
    """
    row = f"{pair.source}{MASK_CHARACTER}{pair.target}{MASK_CHARACTER}".ljust(block, PAD_CHARACTER)
    return row[:-1], PAD_CHARACTER * (len(pair.source) - 1) + row[len(pair.source) :]
