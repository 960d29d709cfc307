"""A text in, one of a few labels out: film reviews, or the user's own file."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batches import pad, plan_batches
from regard.data.files import Example
from regard.data.sources import Corpus, hold_out, load_corpus
from regard.data.tokenizers import Tokenizer, must_be_known, train_tokenizer
from regard.errors import RegardError
from regard.tasks.metrics import accuracy, log_loss
from regard.tasks.settings import ClassificationSettings
from regard.tasks.task import Split, Task, device_of, judging, must_be_split

T = TypeVar("T")


@dataclass(frozen=True)
class Encoded:
    """A split as token ids (int32, truncated), label numbers, and the examples they come from."""

    ids: list[NDArray[np.int32]]
    labels: NDArray[np.int64]
    examples: list[Example]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """Padded token ids, how many of each row count, and the labels' numbers."""

    tokens: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    labels: Int[Tensor, " batch"]


class Classification(Task[Batch]):
    """Texts with labels, tokenised once, with a part of train held out for validation.

    Data is read when a split is first asked for. A saved tokenizer and its labels may be given:
    then texts can be judged without any data, and the splits use that tokenizer.
    """

    metric = "accuracy"

    def __init__(
        self,
        settings: ClassificationSettings,
        tokenizer: Tokenizer | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        self.settings = settings
        if tokenizer is not None:
            self.tokenizer = tokenizer
        if labels is not None:
            self.labels = tuple(labels)

    @cached_property
    def corpus(self) -> Corpus:
        """The data as it was found, split into train and test."""
        asked = self.settings
        return load_corpus(
            asked.data,
            data_dir=asked.data_dir or None,
            test=asked.test or None,
            text=asked.text or None,
            label=asked.label or None,
            group=asked.group or None,
            seed=asked.split_seed,
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels; their numbers are their places here."""
        return self.corpus.labels

    @property
    def sizes(self) -> dict[str, int]:
        """What a network is built for."""
        return {"vocabulary": len(self.tokenizer), "labels": len(self.labels)}

    def facts(self) -> dict[str, Any]:
        """What a run remembers of its data, and its labels."""
        return {**super().facts(), "labels": list(self.labels)}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Learned from the texts that are trained on, none of validation or test."""
        return train_tokenizer(
            self.settings.tokenizer,
            [example.text for example in self._split_examples[0]],
            vocabulary=self.settings.vocabulary,
            minimum=self.settings.minimum,
        )

    @cached_property
    def train(self) -> Encoded:
        """What is learned from. Errors: hardly a token of it is known."""
        found = self._encoded(self._split_examples[0])
        must_be_known(found.ids)
        return found

    @cached_property
    def validation(self) -> Encoded:
        """What decides when to stop; part of the data's train split."""
        return self._encoded(self._split_examples[1])

    @cached_property
    def test(self) -> Encoded:
        """What is judged once, at the end."""
        return self._encoded(self.corpus.test)

    def split(self, name: str) -> Encoded:
        """train, validation or test."""
        must_be_split(name)
        found: Encoded = getattr(self, name)
        return found

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids of each text, truncated as the settings say."""
        most, keep = self.settings.length, self.settings.truncate
        return [
            np.array(truncate(ids, most, keep), np.int32)
            for text in texts
            for ids in self.tokenizer.encode([text])
        ]

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Tokens of each text: the same in every epoch."""
        return self.split(split).lengths

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> Batch:
        """These examples of a split as tensors."""
        encoded = self.split(split)
        tokens, lengths = pad([encoded.ids[index] for index in indexes])
        return Batch(tokens, lengths, torch.from_numpy(encoded.labels[indexes]))

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Mean cross entropy, in nats."""
        logits = model(batch.tokens, batch.lengths)
        return F.cross_entropy(logits.float(), batch.labels)

    @torch.no_grad()
    def predict(
        self, model: nn.Module, what: Split | Sequence[str], *, tokens: int = 16_384
    ) -> NDArray[np.float32]:
        """(examples, labels) probabilities in the order of the split, or of a list of texts.

        The model answers in evaluation mode and gets its own mode back.
        """
        ids = self.split(what).ids if isinstance(what, str) else self.encode(what)
        lengths = [len(text) for text in ids]
        probabilities = np.zeros((len(ids), len(self.labels)), dtype=np.float32)
        device, budget = device_of(model), max([tokens, *lengths])
        with judging(model):
            for indexes in plan_batches(lengths, tokens=budget, seed=0, epoch=0, shuffle=False):
                padded, sizes = pad([ids[index] for index in indexes])
                logits = model(padded.to(device), sizes.to(device))
                probabilities[indexes] = logits.float().softmax(-1).cpu().numpy()
        return probabilities

    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Accuracy and log loss of a split."""
        said, answers = self.predict(model, split, tokens=tokens), self.answers(split)
        return accuracy(said, answers), log_loss(said, answers)

    def answers(self, split: Split) -> NDArray[np.int64]:
        """The true label numbers of a split."""
        return self.split(split).labels

    @cached_property
    def _split_examples(self) -> tuple[list[Example], list[Example]]:
        train, validation = hold_out(
            self._capped(self.corpus.train), self.settings.validation, self.settings.split_seed
        )
        if not train or not validation:
            raise RegardError(
                f"{len(self.corpus.train)} texts cannot be split with validation="
                f"{self.settings.validation}: one side is empty; give more texts"
            )
        return train, validation

    def _capped(self, examples: list[Example]) -> list[Example]:
        if not self.settings.examples or len(examples) <= self.settings.examples:
            return examples
        order = np.random.default_rng(self.settings.split_seed).permutation(len(examples))
        return [examples[index] for index in np.sort(order[: self.settings.examples])]

    def _encoded(self, examples: list[Example]) -> Encoded:
        numbers = {label: number for number, label in enumerate(self.labels)}
        for example in examples:
            if example.label not in numbers:
                raise RegardError(
                    f"{example.source}: the label {example.label!r} was not among those that the "
                    f"model learned: {', '.join(self.labels)}"
                )
        ids = self.encode([example.text for example in examples])
        labels = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        return Encoded(ids, labels, examples)


@lru_cache(maxsize=4)
def prepare(settings: ClassificationSettings) -> Classification:
    """The task of these settings; runs in one process share its data and tokens."""
    return Classification(settings)


def truncate(ids: Sequence[T], length: int, keep: str) -> Sequence[T]:
    """At most ``length`` tokens: the "head", the "tail", or both "ends" (the head's half larger).

    >>> truncate([1, 2, 3, 4, 5, 6], 3, "ends")
    [1, 2, 6]
    """
    if len(ids) <= length:
        return ids
    if keep == "head":
        return ids[:length]
    if keep == "tail":
        return ids[-length:]
    tail = length // 2
    return [*ids[: length - tail], *ids[len(ids) - tail :]]
