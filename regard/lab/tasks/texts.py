"""Tasks on texts with a label or a number each: reading, splits and network outputs."""

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable, Forward, Scalar
from regard.analysis.cost import flops_per_example
from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.core.errors import RegardError
from regard.core.reading import checked
from regard.lab.data.conllu import is_conllu, kept_tree, train_on_words, word_ids
from regard.lab.data.data_source import Columns
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.data.examples import SEPARATOR, Example, Input, texts_of
from regard.lab.data.features import Features, matrix, notes
from regard.lab.data.named import is_own
from regard.lab.data.near_copies import leak
from regard.lab.data.sources import Corpus, load_corpus
from regard.lab.data.splits import chosen, hold_out
from regard.lab.data.text_rows import parsed_sentences
from regard.lab.data.tokenizers import (
    LEARN,
    PAD,
    UNKNOWN,
    Tokenizer,
    must_be_known,
)
from regard.lab.tasks.encoded import Batch, Encoded, Trees, batch_of, joined, plain, truncate
from regard.lab.tasks.heads import Head, fit_labels, fit_numbers
from regard.lab.tasks.settings import TextSettings
from regard.lab.tasks.task import Task, must_be_split
from regard.nn.layers.device import device_of, evaluation_mode, to_device
from regard.training.batches import TOKENS, pad, sorted_batches
from regard.training.interface import Interface
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

NO_TREES = (
    "{} needs the parse tree of each text, and these texts have none; give parsed sentences in a "
    ".conllu file"
)
AT_ONCE = 512  # texts in a call of a tokenizer
OTHER = "set weights= to a model that was pretrained on similar texts"


class TextTask(Task[Batch]):
    """A task on texts with one answer per text; validation is a part of train or a file.

    Texts are tokenized once. Data are read on first use of a split. With the tokenizer and the
    facts of a run, texts can be evaluated without the training data, and the splits use that
    tokenizer.
    """

    settings: TextSettings
    interface = Interface("reads", "text", "labels")

    #: True if the answers are numbers instead of labels.
    numbers: ClassVar[bool] = False
    fits_head = True

    def __init__(
        self, settings: Any, tokenizer: Any = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        self.keeps = settings.truncate

    @abstractmethod
    def numbered(self, examples: Sequence[Example]) -> NDArray[Any]:
        """Return each example's answer as a number. Raises: an invalid answer, by file:line."""

    @cached_property
    def corpus(self) -> Corpus:
        """Load the data, split into train and test."""
        return load_corpus(self.settings.source, numbers=self.numbers)

    @cached_property
    def tokenizer(self) -> Tokenizer | EncoderTokenizer:
        """Train the tokenizer on the training texts, without those of validation and test."""
        settings, examples = self.settings, self._split_examples[0]
        if settings.tokenizer == "words" and all(x.parents is not None for x in examples):
            words = [example.words for example in examples]
            return train_on_words(words, vocabulary=settings.vocabulary, minimum=settings.minimum)
        return self.trained_tokenizer(
            [text for example in examples for text in texts_of(example.text)]
        )

    @cached_property
    def train(self) -> Encoded:
        """Return the training split. Raises: most of its tokens are unknown."""
        encoded = self._encoded(self._split_examples[0])
        if self.tokenizer.unknown is not None:
            remedy = LEARN if isinstance(self.tokenizer, Tokenizer) else OTHER
            must_be_known(encoded.ids, remedy, self.tokenizer.unknown)
        return encoded

    @cached_property
    def validation(self) -> Encoded:
        """Return the validation split: a part of the data's train split, or a file."""
        return self._encoded(self._split_examples[1])

    @cached_property
    def test(self) -> Encoded:
        """Return the test split."""
        return self._encoded(self.corpus.test)

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split as texts."""
        train, validation = self._split_examples
        return {"train": train, "validation": validation, "test": self.corpus.test}[split]

    def split(self, name: str) -> Encoded:
        """Return a split by name: train, validation or test."""
        must_be_split(name)
        encoded: Encoded = getattr(self, name)
        return encoded

    def encode(self, texts: Sequence[str | Example]) -> list[NDArray[np.int32]]:
        """Return the token ids of each text, truncated according to the settings.

        Between two texts stands the tokenizer's separator, ``between``, which no text contains.
        """
        between, most, keep = self.tokenizer.between, self.settings.length, self.settings.truncate
        return [
            np.array(joined(parts, between, most, keep), np.int32)
            for parts in self._parts(self.inputs(texts))
        ]

    def _parts(self, inputs: Sequence[str]) -> Iterator[Sequence[list[int]]]:
        """Yield the token ids of each text of each input, before truncation."""
        for first in range(0, len(inputs), AT_ONCE):
            sides = zip(*map(texts_of, inputs[first : first + AT_ONCE]), strict=True)
            yield from zip(*map(self.tokenizer.encode, sides), strict=True)

    def inputs(self, texts: Sequence[str | Example]) -> list[str]:
        """Return the texts, as networks and baselines read them.

        Raises: one text where the run reads two, or two where it reads one.
        """
        inputs = [plain(text) for text in texts]
        names = self.columns.texts
        if any(len(texts_of(text)) != len(names) for text in inputs):
            if len(names) == 1:
                raise RegardError("this run reads one text; leave the second one out")
            raise RegardError(
                f"this run reads two texts, {names[0]} and {names[1]}; give the second, too "
                "(--second TEXT, a tab between both, or a file with both columns)"
            )
        return [*map(self.features.encode, inputs)]

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the sizes for which a model is built; ``special_tokens`` are the tokenizer's."""
        special = self.tokenizer.special_tokens
        return {
            "vocabulary": len(self.tokenizer),
            "features": self.features.width,
            "labels": 1 if self.numbers else len(self.labels),
            **({} if special is None else {"special_tokens": special}),
        }

    @cached_property
    def features(self) -> Features:
        """Return the further columns, learned from the train split."""
        names = self.columns.further
        if names and self.known:
            saved = {"columns": self.known.get("features", [])}
            return checked(Features, saved, Path("env.json"))
        return Features.fit(names, [x.text for x in self._split_examples[0]] if names else [])

    def numbers_of(self, texts: Sequence[str | Example]) -> NDArray[np.float32] | None:
        """Return the numbers of the further columns, (texts, numbers); None without columns."""
        if not self.columns.further:
            return None
        return matrix(self.inputs(texts)).astype(np.float32)

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, with its further columns."""
        features = {"features": self.features.json()} if self.columns.further else {}
        return {**super().facts(), **features}

    @property
    def columns(self) -> Columns:
        """Return the columns of an input, as the settings name them."""
        return Columns(self.settings.text, self.settings.label, features=self.settings.features)

    def input_of(self, line: str) -> str:
        """Return the input of a line: both texts if the run reads two, separated by a tab."""
        first, tab, second = line.partition("\t")
        if not self.columns.second or not tab:
            return line  # `inputs` raises the error
        return Input(first, second)

    def read(self, texts: Sequence[str | Example]) -> tuple[list[NDArray[np.int32]], Trees]:
        """Return truncated token ids of each text, and their trees if all texts have one.

        In a parsed sentence each word is one token. Raises: see `regard.lab.data.conllu.word_ids`.
        """
        parsed = [x for x in texts if isinstance(x, Example) and x.parents is not None]
        known = self.tokenizer
        if not parsed or len(parsed) < len(texts) or isinstance(known, EncoderTokenizer):
            return self.encode(texts), None
        ids, trees = [], []
        for example in parsed:
            whole, parents = word_ids(known, example.words), example.parents or ()
            positions = truncate(range(len(whole)), self.settings.length, self.settings.truncate)
            ids.append(np.array([whole[place] for place in positions], np.int32))
            trees.append(np.array(kept_tree(parents, positions), np.int32))
        return ids, trees

    def read_file(self, path: Path) -> Iterable[Example] | None:
        """Return the sentences of a CoNLL-U file; None for any other file."""
        return parsed_sentences(path) if is_conllu(path) else None

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the number of tokens of each text, equal in every epoch."""
        return self.split(split).lengths

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> Batch:
        """Return the examples at these indexes as tensors."""
        return batch_of(self.split(split), indexes)

    @torch.no_grad()
    def outputs(
        self, model: nn.Module, what: Split | Sequence[str | Example], *, tokens: int = TOKENS
    ) -> NDArray[np.float32]:
        """Return a network's outputs (examples, outputs) in the order of a split or of texts.

        Raises: a model of trees and texts without trees.
        """
        encoded = self.split(what) if isinstance(what, str) else self.unlabelled(what)
        rows = np.zeros((len(encoded), self.sizes["labels"]), dtype=np.float32)
        plan = sorted_batches(encoded.lengths, device_of(model).type, tokens=tokens)

        def work(indexes: NDArray[np.integer]) -> Arrays:
            batch = to_device(model, batch_of(encoded, indexes))
            return {"outputs": logits_of(model, batch).cpu().numpy()}

        with evaluation_mode(model):
            results = ranks().divide(plan, work)
        for indexes, result in zip(plan, results, strict=True):
            rows[indexes] = result["outputs"]
        return rows

    def attention(self, model: Any, text: str) -> list[LayerAttention]:
        """Return the attention weights of each layer for a text; empty without such layers.

        Raises: a model of trees, which a plain text lacks; a text without words.
        """
        if getattr(model, "reads_trees", False):
            raise RegardError(NO_TREES.format("this model"))
        tokens = self.tokens(text)
        if not tokens:
            raise RegardError("this text has no words, so there are no attention weights to show")
        padded, lengths = pad(self.encode([text]))
        with torch.no_grad(), evaluation_mode(model), record(model) as recording:
            model(padded, lengths)
            layers = looked(recording, tokens)
        framed = self.framed(model, tokens)
        return [
            each._replace(
                tokens=framed if each.weights.shape[-1] == len(framed) else ["[CLS]", *tokens]
            )
            for each in layers
            if each.weights.shape[-1] in (len(framed), len(tokens) + 1)  # else a model's own keys
        ]

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return the outputs for a text: a logit for each label, or the number.

        Default: the largest. Raises: a model of trees; a text without words; a model without an
        embedding of this text.
        """
        embedding, names = self.embedded(model, text)
        batch = to_device(model, batch_of(self.unlabelled([text]), np.arange(1)))

        def forward(output: int) -> Forward:
            def run(copies: int) -> Tensor:
                rows = batch.tokens.expand(copies, -1), batch.lengths.expand(copies)
                more = None if batch.features is None else batch.features.expand(copies, -1)
                return outputs_of(model, *rows, None, more)[:, output].float()

            return run

        with torch.no_grad():
            best = int(logits_of(model, batch)[0].argmax())
        scalars = [
            Scalar(name, forward(i), [embedding], [names], self.output_unit)
            for i, name in enumerate(self.output_names)
        ]
        return Explainable(scalars, best)

    @property
    def output_names(self) -> list[str]:
        """Return the name of each network output."""
        return [f"output {number}" for number in range(1, self.sizes["labels"] + 1)]

    @property
    def output_unit(self) -> str:
        """Return the unit of a network output: "logit" or "number"."""
        return "number" if self.numbers else "logit"

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network, for two texts ``between``.

        Raises: a network that reads further columns, which exported ones cannot.
        """
        if self.columns.further:
            raise RegardError("a network with features= cannot be exported; train one without")
        between = {"between": [*self.tokenizer.between]} if self.columns.second else {}
        return {**super().exported(), **between}

    def embedded(self, model: nn.Module, text: str) -> tuple[nn.Module, list[str]]:
        """Return a network's table of word vectors and the names of the tokens that it embeds.

        Raises: see `explainable`.
        """
        if getattr(model, "reads_trees", False):
            raise RegardError(NO_TREES.format("this model"))
        tokens = self.tokens(text)
        if not tokens:
            raise RegardError("this text has no words, so there is nothing to attribute")
        embedding = getattr(getattr(model, "body", model), "embedding", None)
        if not isinstance(embedding, nn.Module):
            raise RegardError("this model has no table of word vectors to attribute to")
        return embedding, self.framed(model, tokens)

    def framed(self, model: Any, tokens: list[str]) -> list[str]:
        """Return the tokens with the special tokens that the network or its tokenizer adds."""
        if not hasattr(model, "framed"):
            return tokens
        framing = self.tokenizer if isinstance(self.tokenizer, EncoderTokenizer) else model
        return list(framing.framed(tokens))

    def whole(self, text: str) -> list[int]:
        """Return all tokens of a text, before truncation."""
        (parts,) = self._parts([text])
        return list(joined(parts, self.tokenizer.between, sys.maxsize, "head"))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens that the model reads, as readable pieces of the text."""
        known = self.tokenizer
        pieces = [known.split(part) for part in texts_of(text)]
        between = [SEPARATOR if i == PAD else known.vocabulary[i] for i in known.between]
        return list(joined(pieces, between, self.settings.length, self.settings.truncate))

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text that are cut off."""
        room, between = self.room, len(self.tokenizer.between)
        lengths = (
            sum(map(len, x)) + between * (len(x) - 1) for x in self._parts(self.inputs(texts))
        )
        return [max(0, length - room) for length in lengths]

    def unknown(self, model: Any, texts: Sequence[str | Example]) -> list[tuple[str, ...]]:
        """Return the words of each text that the model does not know: see `Task.unknown`."""
        if not isinstance(model, nn.Module):
            ask = getattr(model, "unknown_in", None)  # for a baseline with words as features
            return list(ask([plain(text) for text in texts])) if ask else [()] * len(texts)
        return [self._unknown(text) for text in texts]

    def _unknown(self, text: str | Example) -> tuple[str, ...]:
        parsed = isinstance(text, Example) and text.parents is not None
        if not parsed or isinstance(self.tokenizer, EncoderTokenizer):
            parts = map(self.tokenizer.unknown_in, texts_of(plain(text)))
            return tuple(dict.fromkeys(word for words in parts for word in words))
        assert isinstance(text, Example)
        pairs = zip(text.words, word_ids(self.tokenizer, text.words), strict=True)
        return tuple(dict.fromkeys(word for word, number in pairs if number == UNKNOWN))

    def operations(self, model: nn.Module, texts: Sequence[str]) -> int | None:
        """Return the operations of a forward pass for the text of median length."""
        sample = texts[:: max(1, len(texts) // 1000)]
        length = max(1, round(median(len(ids) for ids in self.encode(sample))))
        return flops_per_example(model, length)

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """Return the weight of each label in the training loss; None for equal weights."""
        return None

    def fit(self, baseline: Any, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to its texts at the indexes ``chosen``.

        ``baseline.fit(texts, answers, weights)`` gets a weight for each label, or None.
        """
        examples, answers = self.train.examples, self.train.labels
        picked = range(len(examples)) if chosen is None else chosen
        texts = self.inputs([examples[i] for i in picked])
        baseline.fit(texts, answers[list(picked)], self.weights)

    def fit_head(
        self, states: NDArray[np.floating], answers: NDArray[Any], penalties: Sequence[float]
    ) -> Head:
        """Fit a linear layer to the states of an encoder; C is chosen among the penalties."""
        if self.numbers:
            return fit_numbers(states, answers.astype(np.float64), penalties)
        labels = self.sizes["labels"]
        return fit_labels(states, answers, labels, penalties, weights=self.weights)

    def fit_all(self, baseline: Any) -> None:
        """Fit a baseline again, to the train and the validation split."""
        splits = self.train, self.validation
        texts = self.inputs([example for split in splits for example in split.examples])
        baseline.fit(texts, np.concatenate([split.labels for split in splits]), self.weights)

    def unlabelled(self, texts: Sequence[str | Example]) -> Encoded:
        """Return texts as token ids, with 0 for each label."""
        ids, trees = self.read(texts)
        return Encoded(ids, np.zeros(len(ids), np.float32), [], trees, self.numbers_of(texts))

    def _encoded(self, examples: list[Example]) -> Encoded:
        numbers = self.numbered(examples)
        return replace(self.unlabelled(examples), labels=numbers, examples=examples)

    @property
    def notes(self) -> list[str]:
        """Return the notes of the data, its further columns, near copies and truncated texts."""
        names = self.columns.further
        mixed = notes(names, [x.text for x in self._split_examples[0]] if names else [])
        return [*super().notes, *mixed, *self._leak, *self._cut]

    @cached_property
    def _cut(self) -> list[str]:
        """Return a note about training texts that are longer than ``length``."""
        train, room = self.train, self.room
        full = [
            x.text for x, ids in zip(train.examples, train.ids, strict=True) if len(ids) >= room
        ]
        if not (count := sum(left > 0 for left in self.left_out(full))):
            return []
        kept = {"head": "first", "tail": "last", "ends": "first and last"}[self.keeps]
        return [
            f"{_share(count, len(train))} of the training texts are longer than {room:,} tokens; a "
            f"network reads the {kept} {room:,} (length={room} truncate={self.keeps})"
        ]

    @cached_property
    def _leak(self) -> list[str]:
        """Return a note about near copies, if validation is split off a user's own file."""
        if self.corpus.validation is not None or not is_own(self.settings.data):
            return []
        return leak(*self._split_examples, "validation", "validation=FILE")

    @cached_property
    def _split_examples(self) -> tuple[list[Example], list[Example]]:
        train, share, seed = self.corpus.train, self.settings.validation, self.settings.split_seed
        order = chosen(self.settings.examples, len(train), seed)
        train = train if order is None else [train[index] for index in order]
        if self.corpus.validation is not None or isinstance(share, str):
            return train, self.corpus.validation or []
        train, validation = hold_out(train, share, seed)
        if not train or not validation:
            raise RegardError(
                f"validation={self.settings.validation} leaves one side of {len(self.corpus.train)}"
                " texts empty; give more texts or another fraction"
            )
        return train, validation


def outputs_of(
    model: nn.Module,
    tokens: Tensor,
    lengths: Tensor,
    parents: Tensor | None,
    features: Tensor | None = None,
) -> Tensor:
    """Return a network's outputs. Raises: a network that reads trees, without trees.

    With ``features`` c and the weights V of the module ``columns``, the outputs are W h + b + V c:
    those of a last layer that reads the pooled vector h and c, joined.
    """
    reads_trees = getattr(model, "reads_trees", False)
    if reads_trees and parents is None:
        raise RegardError(NO_TREES.format("this model"))
    outputs: Tensor = model(tokens, lengths, *([parents] if reads_trees else []))
    if features is None:
        return outputs
    added: Tensor = cast(nn.Module, model.columns)(features)
    return outputs + added


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return a network's outputs for a batch, as float32. Raises: as `outputs_of`."""
    return outputs_of(model, batch.tokens, batch.lengths, batch.parents, batch.features).float()


def _share(count: int, of: int) -> str:
    """Return a share in percent, rounded to 0 or 100 only if exact."""
    return f"{min(max(count / of, 0.01), 1.0 if count == of else 0.99):.0%}"
