"""The task of tagging words: named entities, parts of speech."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable, Forward, Scalar
from regard.core.errors import RegardError
from regard.lab.data.conllu import is_conllu, kept_tree, train_on_words, word_ids
from regard.lab.data.data_source import NAMED, Columns, refuse
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.examples import Example
from regard.lab.data.sources import Corpus, in_order
from regard.lab.data.tagged import (
    OUTSIDE,
    load_tagged,
    mark_spans,
    read_tagged,
    tags_by_name,
    words_of,
)
from regard.lab.data.tokenizers import UNKNOWN, WHOLE, Tokenizer
from regard.lab.tasks.encoded import Batch, Encoded, Trees, parents_of, truncate
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.tagging import METRICS, TaggingSettings
from regard.lab.tasks.tagging.evaluation import (
    SENTENCES,
    Tags,
    tag_evaluation,
    tag_score,
    tags_of,
)
from regard.lab.tasks.task import no_labels
from regard.lab.tasks.texts import TextTask, logits_of, outputs_of
from regard.nn.layers.device import device_of, evaluation_mode
from regard.training.batches import pad, sorted_batches
from regard.training.interface import Interface
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

UNTAGGED = -1  # label of padding and of tags that do not occur in training


@dataclass(frozen=True)
class Sentences(Encoded):
    """A split as token ids, with the tags of words and the word index of each token."""

    words: tuple[NDArray[np.int32], ...] = ()


@dataclass(frozen=True)
class TagBatch(Batch):
    """A batch of sentences; ``labels`` are the tags (batch, words), −1 for padding.

    ``words``: the word index of each token, from 0; −1 for padding.
    """

    words: Int[Tensor, "batch time"] | None = None


class Tagging(TextTask):
    """Tagging of words; a model predicts the probability of each tag for each word.

    Words are tokenized one by one, and a word's logits are the mean over its tokens, so that any
    tokenizer can be used. Words that are truncated get the most frequent tag in training.
    """

    settings: TaggingSettings
    #: What counts in an evaluation.
    scoring = SENTENCES

    @cached_property
    def corpus(self) -> Corpus:
        """Load the data, split into train and test. Raises: further columns."""
        refuse(self.settings.data, "is tagged by words alone", features=self.settings.features)
        return load_tagged(self.settings.source)

    @property
    def columns(self) -> Columns:
        """Return the columns of an input: one text, by its common names."""
        return NAMED

    @cached_property
    def tokenizer(self) -> Tokenizer | EncoderTokenizer:
        """Train the tokenizer on the training sentences; one of words keeps each word whole."""
        settings = self.settings
        if settings.tokenizer != "words":
            return super().tokenizer
        words = (example.words for example in self._split_examples[0])
        return train_on_words(words, vocabulary=settings.vocabulary, minimum=settings.minimum)

    interface = Interface("reads", "token", "labels")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the number of training words of each tag, in the order of the tags' numbers."""
        if self.known:
            saved = self.known.get("labels", []), self.known.get("counts", [])
            if not saved[0]:
                raise RegardError("the run's env.json has no tags; train the run again")
            return dict(zip(*saved, strict=True))
        counts = Counter(tag for example in self._split_examples[0] for tag in tags_of(example))
        return {tag: counts[tag] for tag in in_order({*counts})}

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the tags; a tag's number is its index here."""
        return tuple(self.counts)

    @property
    def commonest(self) -> str:
        """Return the most frequent tag in training."""
        return max(self.counts, key=lambda tag: (self.counts[tag], tag))

    @cached_property
    def metric(self) -> str:  # type: ignore[override]
        """Return the metric of the settings; for auto, span F1 if tags mark spans, else accuracy.

        Raises: span F1 for tags that mark no spans.
        """
        marked = mark_spans(self.labels)
        if self.settings.metric == "span-f1" and not marked:
            raise RegardError(
                f"metric=span-f1 needs tags that begin with B- or I-, not "
                f"{', '.join(self.labels[:5])} …; set metric=accuracy"
            )
        if self.settings.metric == "auto":
            return "span F1" if marked else "accuracy"
        return METRICS[self.settings.metric]

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with its tags and their training words."""
        counts = list(self.counts.values())
        return {**super().facts(), "labels": list(self.labels), "counts": counts}

    def numbered(self, examples: Sequence[Example]) -> NDArray[Any]:
        """Return the numbers of each sentence's tags, as an array of arrays."""
        place = {tag: number for number, tag in enumerate(self.labels)}
        rows = np.empty(len(examples), dtype=object)
        for i, example in enumerate(examples):
            numbers = [place.get(tag, UNTAGGED) for tag in tags_of(example)]
            rows[i] = np.array(numbers, dtype=np.int64)
        return rows

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each word, at least one per word.

        Tokens of bpe and unigram include the space before a word.
        """
        if isinstance(self.tokenizer, Tokenizer) and self.tokenizer.kind == "words":
            return [[number] for number in word_ids(self.tokenizer, words)]
        texts = [f" {word}" if i and self.spaced else word for i, word in enumerate(words)]
        return [ids or [self.empty] for ids in self.tokenizer.encode(texts)]

    @property
    def spaced(self) -> bool:
        """Return whether the tokens of a word include the space before it."""
        return self.tokenizer.kind in WHOLE or isinstance(self.tokenizer, EncoderTokenizer)

    @property
    def empty(self) -> int:
        """Return the token of a word of which the tokenizer leaves nothing."""
        special, unknown = self.tokenizer.special_tokens, self.tokenizer.unknown
        if unknown is not None:
            return unknown
        return special.mask if special is not None else UNKNOWN

    def cut(self, words: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the truncated tokens of a sentence, and the word index of each."""
        whole = [(token, i) for i, ids in enumerate(self.pieces(words)) for token in ids]
        truncated = truncate(whole, self.settings.length, self.settings.truncate)
        table = np.array(truncated, dtype=np.int32).reshape(-1, 2)
        return table[:, 0].copy(), table[:, 1].copy()

    def cut_all(self, sentences: Sequence[str | Example]) -> Sentences:
        """Return sentences as token ids, without tags."""
        pairs = [self.cut(words_in(text)) for text in sentences]
        ids, words = [x for x, _ in pairs], tuple(x for _, x in pairs)
        return Sentences(ids, np.array([]), [], self._trees(sentences, words), words=words)

    def _trees(
        self, sentences: Sequence[str | Example], words: Sequence[NDArray[np.int32]]
    ) -> Trees:
        """Return the trees of parsed sentences if each word is one token, else None."""
        if self.tokenizer.kind != "words" or not sentences:
            return None
        trees = [x.parents if isinstance(x, Example) else None for x in sentences]
        if any(tree is None for tree in trees):
            return None
        pairs = zip(trees, words, strict=True)
        return [np.array(kept_tree(tree or (), kept.tolist()), np.int32) for tree, kept in pairs]

    def encode(self, texts: Sequence[str | Example]) -> list[NDArray[np.int32]]:
        """Return the truncated token ids of each text."""
        return self.cut_all(texts).ids

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> TagBatch:
        """Return the sentences at these indexes as tensors."""
        sentences = self.split(split)
        assert isinstance(sentences, Sentences)
        tokens, lengths = pad([sentences.ids[i] for i in indexes])
        words = pad([sentences.words[i] + 1 for i in indexes])[0] - 1
        tags = pad([sentences.labels[i] + 1 for i in indexes])[0] - 1
        return TagBatch(tokens, lengths, tags, parents_of(sentences.trees, indexes), None, words)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Compute the mean cross entropy (nats) over words that are read and have a known tag."""
        assert isinstance(batch, TagBatch)
        assert batch.words is not None
        logits = logits_of(model, batch)
        odds, read = by_word(logits, batch.words, batch.labels.shape[1])
        truth = batch.labels.masked_fill(~read, UNTAGGED)
        total = F.cross_entropy(
            odds.flatten(0, 1), truth.flatten(), ignore_index=-1, reduction="sum"
        )
        return total / (truth != UNTAGGED).sum().clamp(min=1)

    def items(self, batch: Batch) -> Sequence[float]:
        """Return the number of words that are read and have a known tag."""
        assert isinstance(batch, TagBatch)
        assert batch.words is not None
        nothing = torch.zeros(*batch.words.shape, 1)
        read = by_word(nothing, batch.words, batch.labels.shape[1])[1]
        return [int(((batch.labels != UNTAGGED) & read).sum())]

    @torch.no_grad()
    def log_probabilities(
        self, model: Any, what: Split | Sequence[str | Example]
    ) -> list[NDArray[np.float64]]:
        """Return log probabilities (words, tags) per sentence, in the order of a split or list."""
        examples = self.split(what).examples if isinstance(what, str) else what
        if not isinstance(model, nn.Module):
            answers_of_baseline: list[NDArray[np.float64]] = model.log_probabilities(
                [*map(words_in, examples)]
            )
            return answers_of_baseline
        sentences = self.split(what) if isinstance(what, str) else self.cut_all(examples)
        assert isinstance(sentences, Sentences)
        sizes = [len(words_in(text)) for text in examples]
        lengths = sentences.lengths
        device = device_of(model)
        answers: list[NDArray[np.float64]] = [np.zeros((0, len(self.labels)))] * len(examples)
        plan = sorted_batches(lengths, device.type)

        def work(indexes: NDArray[np.integer]) -> Arrays:
            tokens, many = pad([sentences.ids[i] for i in indexes])
            words = pad([sentences.words[i] + 1 for i in indexes])[0] - 1
            parents = parents_of(sentences.trees, indexes)
            parents = None if parents is None else parents.to(device)
            logits = outputs_of(model, tokens.to(device), many.to(device), parents).float()
            odds, read = by_word(logits, words.to(device), max(sizes[i] for i in indexes))
            log_probs = F.log_softmax(odds, -1).masked_fill(~read[..., None], 0.0)
            return {"log_probs": log_probs.double().cpu().numpy(), "read": read.cpu().numpy()}

        with evaluation_mode(model):
            results = ranks().divide(plan, work)
        for indexes, result in zip(plan, results, strict=True):
            several = zip(indexes, result["log_probs"], result["read"], strict=True)
            for i, log_probs, read in several:
                answers[i] = self._with_unread(log_probs[: sizes[i]].copy(), read[: sizes[i]])
        return answers

    def _with_unread(
        self, values: NDArray[np.float64], read: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return log probabilities of a sentence, with tag frequencies for words not read."""
        counts = np.array(list(self.counts.values()), dtype=np.float64)
        values[~read] = np.log(np.maximum(counts / counts.sum(), 1e-12))
        return np.asarray(values)

    def tag(self, model: Any, what: Split | Sequence[str | Example]) -> list[list[str]]:
        """Return the most probable tag of every word."""
        log_probs = self.log_probabilities(model, what)
        return [[self.labels[i] for i in each.argmax(1)] for each in log_probs]

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return the metric, and the mean loss per word in nats."""
        log_probs, examples = self.log_probabilities(model, split), self.split(split).examples
        truth, all_words = np.concatenate([*self.numbered(examples)]), np.concatenate(log_probs)
        known = truth != UNTAGGED
        loss = -all_words[known, truth[known]].mean() if known.any() else 0.0
        tags = [[self.labels[i] for i in each.argmax(1)] for each in log_probs]
        return tag_score(self.metric, examples, tags, self.scoring), float(loss)

    def fit(self, baseline: Any, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to its sentences at the indexes ``chosen``."""
        train = self.train
        picked = range(len(train)) if chosen is None else chosen
        words = [train.examples[i].words for i in picked]
        baseline.fit(words, [train.labels[i] for i in picked])

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Tags]:
        """Predict the tags of sentences."""
        sentences = list(inputs)
        tags = self.tag(model, sentences)
        return [Tags(tuple(words_in(x)), tuple(t)) for x, t in zip(sentences, tags, strict=True)]

    def unknown(self, model: Any, texts: Sequence[str | Example]) -> list[tuple[str, ...]]:
        """Return the words of each sentence that the model does not know: see `Task.unknown`."""
        sentences = [words_in(text) for text in texts]
        if not isinstance(model, nn.Module):
            ask = getattr(model, "unknown_words", None)
            return list(ask(sentences)) if ask else [()] * len(sentences)
        if self.tokenizer.kind in WHOLE:
            return [self.tokenizer.unknown_in(" ".join(words)) for words in sentences]
        number = self.tokenizer.unknown
        return [
            tuple(
                word
                for word, ids in dict(zip(words, self.pieces(words), strict=True)).items()
                if number in ids
            )
            for words in sentences
        ]

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return ln p of the predicted tag of each word that the model reads.

        Default: the first word inside a span, else the first word. Raises: a model of trees; a
        text without words; a model without an embedding of this text.
        """
        embedding, names = self.embedded(model, text)
        ids, places = self.cut(words_of(text))
        words, device = words_of(text), device_of(model)
        tokens = torch.from_numpy(ids)[None].to(device)
        lengths = torch.tensor([len(ids)], device=device)
        index = torch.from_numpy(places)[None].to(device)
        (tags,) = self.tag(model, [text])

        def forward(word: int, tag: int) -> Forward:
            def run(copies: int) -> Tensor:
                logits: Tensor = model(tokens.expand(copies, -1), lengths.expand(copies))
                odds, _ = by_word(logits.float(), index.expand(copies, -1), len(words))
                return odds[:, word].log_softmax(-1)[:, tag]

            return run

        read = sorted(set(places.tolist()))
        number = {tag: i for i, tag in enumerate(self.labels)}
        scalars = [
            Scalar(
                f"tag of word {i + 1}, {words[i]}: {tags[i]}",
                forward(i, number[tags[i]]),
                [embedding],
                [names],
            )
            for i in read
        ]
        inside = [place for place, i in enumerate(read) if tags[i] not in OUTSIDE]
        return Explainable(scalars, inside[0] if inside else 0)

    def answer(self, model: Any) -> Evaluation:
        """Return the evaluation of the model on the test split."""
        return self.evaluation(self.test.examples, self.tag(model, "test"))

    def evaluation(
        self, examples: Sequence[Example], answers: Sequence[Sequence[str]]
    ) -> Evaluation:
        """Evaluate predicted tags."""
        return tag_evaluation(self.metric, examples, answers, self.commonest, self.scoring)

    def read_row(self, row: Mapping[str, Any]) -> list[str]:
        """Return the predicted tags of a row."""
        return str(row["said"]).split(" ")

    def plain(self, evaluation: Evaluation) -> bytes:
        """Return words and tags as CoNLL columns: word, true tag, predicted tag."""
        blocks = (
            "".join(f"{w}\t{t}\t{s}\n" for w, t, s in zip(x.words, tags_of(x), tags, strict=True))
            for x, tags in zip(evaluation.examples, evaluation.answers, strict=True)
        )
        return "\n".join(blocks).encode()

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on a file of tagged sentences.

        Columns default to those of the training. Raises: a bad row, by file:line.
        """
        no_labels(columns)
        usual = Columns(self.settings.text, self.settings.label)
        examples = read_tagged(data, columns.filled(usual)).examples
        return self.evaluation(examples, self.tag(model, examples))

    def read_file(self, path: Path) -> Iterable[Example] | None:
        """Return the sentences of a file of tagged words; None for any other file."""
        if not (is_conllu(path) or tags_by_name(path)):
            return super().read_file(path)
        return read_tagged(path, Columns(self.settings.text, self.settings.label)).examples

    def whole(self, text: str) -> list[int]:
        """Return all tokens of a text, before truncation."""
        return [token for ids in self.pieces(words_of(text)) for token in ids]

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text that are cut off."""
        return [max(0, len(self.whole(text)) - self.room) for text in texts]

    def tokens(self, text: str) -> list[str]:
        """Return the tokens that the model reads, as readable pieces of the text."""
        words = words_of(text)
        named = list(self._named(words))
        positions = truncate(range(len(named)), self.settings.length, self.settings.truncate)
        return [named[place] for place in positions]

    def _named(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the name of each token: the word, or the part of it."""
        kind = self.tokenizer.kind
        for word, ids in zip(words, self.pieces(words), strict=True):
            if len(ids) == 1:
                yield word
            elif kind in WHOLE:
                yield from self.tokenizer.tokens(ids)  # type: ignore[union-attr]
            else:
                yield from self.tokenizer.split(word)

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network: also the tags.

        A program encodes words as `pieces` does: with a space before each if ``spaced``, and as
        ``empty`` where nothing is left of a word.
        """
        words = {"labels": list(self.labels), "spaced": self.spaced, "empty": self.empty}
        return {**super().exported(), **words}

    def _encoded(self, examples: list[Example]) -> Sentences:
        sentences = self.cut_all(examples)
        return Sentences(
            sentences.ids, self.numbered(examples), examples, sentences.trees, words=sentences.words
        )


def words_in(text: str | Example) -> list[str]:
    """Return the words of a sentence; a plain text is split by `words_of`."""
    return text.words if isinstance(text, Example) else words_of(text)


def by_word(
    logits: Float[Tensor, "batch time tags"], words: Int[Tensor, "batch time"], count: int
) -> tuple[Float[Tensor, "batch words tags"], Tensor]:
    """Return the mean logits over each word's tokens, and which of ``count`` words were read.

    >>> logits = torch.tensor([[[1.0], [3.0], [5.0]]])
    >>> odds, read = by_word(logits, torch.tensor([[0, 0, 2]]), 3)
    >>> odds[0, :, 0].tolist(), read[0].tolist()
    ([2.0, 0.0, 5.0], [True, False, True])
    """
    place = words.long() + 1  # padding goes to column 0, which is dropped
    shape = (logits.shape[0], count + 1)
    sums = logits.new_zeros(*shape, logits.shape[2])
    real = (words >= 0)[..., None]
    sums = sums.scatter_add(1, place[..., None].expand_as(logits), torch.where(real, logits, 0.0))
    many = logits.new_zeros(shape).scatter_add(1, place, real[..., 0].to(logits.dtype))
    return sums[:, 1:] / many[:, 1:, None].clamp(min=1), many[:, 1:] > 0
