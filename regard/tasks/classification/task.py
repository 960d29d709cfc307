"""A text in, one of a few labels out: film reviews, or the user's own file."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.cost import flops_per_example
from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.data.balance import ADVICE, imbalance
from regard.data.batches import pad, plan_batches
from regard.data.class_files import is_classes
from regard.data.conllu import kept_tree, train_on_words, word_ids
from regard.data.encoder_tokenizer import EncoderTokenizer
from regard.data.files import Example, read_examples
from regard.data.labels import meant, parse_labels, rename
from regard.data.near_copies import leak
from regard.data.sources import LABELLED, Corpus, hold_out, load_corpus
from regard.data.titles import listed
from regard.data.tokenizers import LEARN, Tokenizer, must_be_known, train_tokenizer
from regard.errors import RegardError, look_up
from regard.layers.device import device_of, evaluation_mode
from regard.tasks.classification.encoded import Batch, Encoded, Trees, parents_of, plain, truncate
from regard.tasks.classification.evaluation import (
    Judging,
    LabelEvaluation,
    Prediction,
    predictions,
)
from regard.tasks.classification.metrics import METRICS, log_loss, scores
from regard.tasks.settings import ClassificationSettings
from regard.tasks.task import NAMED, Columns, Split, Task, must_be_split

NO_TREES = (
    "{} reads the tree of each text, and these have none: give parsed sentences, in a .conllu file"
)
OTHER = "take weights= of a model that was pretrained on texts like these"


class Classification(Task[Batch]):
    """Texts with labels, tokenised once, with a part of train or a file held out for validation.

    Data is read when a split is first asked for. A saved tokenizer and its labels may be given:
    then texts can be judged without any data, and the splits use that tokenizer.
    """

    settings: ClassificationSettings
    ranks = True

    def __init__(
        self,
        settings: ClassificationSettings,
        tokenizer: Tokenizer | EncoderTokenizer | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        self.metric, self.keeps = METRICS[settings.metric], settings.truncate
        if facts is not None:
            if not facts.get("labels"):
                raise RegardError("the run's env.json names no labels; train the run anew")
            self.labels = tuple(facts["labels"])

    @cached_property
    def corpus(self) -> Corpus:
        """The data as it was found, split into train and test."""
        asked = self.settings
        return load_corpus(
            asked.data,
            data_dir=asked.data_dir or None,
            test=asked.test or None,
            validation=asked.validation if isinstance(asked.validation, str) else None,
            text=asked.text or None,
            label=asked.label or None,
            group=asked.group or None,
            labels=asked.labels,
            seed=asked.split_seed,
            duplicates=asked.duplicates,
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels; their numbers are their places here."""
        return self.corpus.labels

    @property
    def sizes(self) -> dict[str, Any]:
        """What a network is built for; ``marks`` where the tokenizer has symbols of its own."""
        sizes = {"vocabulary": len(self.tokenizer), "labels": len(self.labels)}
        return sizes if self.tokenizer.marks is None else {**sizes, "marks": self.tokenizer.marks}

    @cached_property
    def counts(self) -> dict[str, int]:
        """Texts of each label to learn from, in the order of `labels`."""
        if "counts" in self.known:
            return dict(zip(self.labels, self.known["counts"], strict=False))
        found = Counter(example.label for example in self._split_examples[0])
        return {label: found[label] for label in self.labels}

    @property
    def notes(self) -> list[str]:
        """The corpus's notes, near copies in validation, and how uneven the labels are."""
        test = Counter(example.label for example in self.corpus.test)
        uneven = imbalance(self.counts, test)
        if uneven and (self.settings.metric, self.settings.class_weights) == ("accuracy", "none"):
            uneven[-1] += f"; {ADVICE}"
        return [*super().notes, *self._leak, *uneven]

    def facts(self) -> dict[str, Any]:
        """What a run remembers of its data, its labels and the training texts of each."""
        counts = list(self.counts.values())
        return {**super().facts(), "labels": list(self.labels), "counts": counts}

    @cached_property
    def weights(self) -> NDArray[np.float32] | None:
        """The weight of each label in the training loss; None where all count alike."""
        return class_weights(self.settings.class_weights, self.counts)

    @cached_property
    def tokenizer(self) -> Tokenizer | EncoderTokenizer:
        """Learned from the texts that are trained on, none of validation or test."""
        asked, examples = self.settings, self._split_examples[0]
        limits = {"vocabulary": asked.vocabulary, "minimum": asked.minimum}
        if asked.tokenizer == "words" and all(x.parents is not None for x in examples):
            return train_on_words([example.words for example in examples], **limits)
        return train_tokenizer(asked.tokenizer, [example.text for example in examples], **limits)

    @cached_property
    def train(self) -> Encoded:
        """What is learned from. Errors: hardly a token of it is known."""
        found = self._encoded(self._split_examples[0])
        if self.tokenizer.unknown is not None:
            remedy = LEARN if isinstance(self.tokenizer, Tokenizer) else OTHER
            must_be_known(found.ids, remedy, self.tokenizer.unknown)
        return found

    @cached_property
    def validation(self) -> Encoded:
        """What decides when to stop: a part of the data's train split, or a file of its own."""
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

    def read(self, texts: Sequence[str | Example]) -> tuple[list[NDArray[np.int32]], Trees]:
        """Token ids of each text, truncated, and the trees of what is kept, if all have one.

        Of a parsed sentence each word is one token. Errors: see `regard.data.conllu.word_ids`.
        """
        parsed = [x for x in texts if isinstance(x, Example) and x.parents is not None]
        known = self.tokenizer
        if not parsed or len(parsed) < len(texts) or isinstance(known, EncoderTokenizer):
            return self.encode([x.text if isinstance(x, Example) else x for x in texts]), None
        ids, trees = [], []
        for example in parsed:
            whole, parents = word_ids(known, example.words), example.parents or ()
            kept = truncate(range(len(whole)), self.settings.length, self.settings.truncate)
            ids.append(np.array([whole[place] for place in kept], np.int32))
            trees.append(np.array(kept_tree(parents, kept), np.int32))
        return ids, trees

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Tokens of each text: the same in every epoch."""
        return self.split(split).lengths

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> Batch:
        """These examples of a split as tensors."""
        encoded = self.split(split)
        tokens, lengths = pad([encoded.ids[index] for index in indexes])
        parents = parents_of(encoded.trees, indexes)
        return Batch(tokens, lengths, torch.from_numpy(encoded.labels[indexes]), parents)

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Cross entropy in nats: the mean over the texts, by the weights of their labels.

        Σᵢ w[yᵢ] · −ln p(yᵢ) / Σᵢ w[yᵢ], with w = 1 unless ``class_weights`` says otherwise.
        """
        logits = _logits(model, batch.tokens, batch.lengths, batch.parents).float()
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights).to(logits.device)
        return F.cross_entropy(logits, batch.labels, weights)

    def probabilities(
        self, model: Any, what: Split | Sequence[str | Example], *, tokens: int = 16_384
    ) -> NDArray[np.floating]:
        """(examples, labels) probabilities in the order of the split, or of a list of texts.

        Errors: texts without trees for a model that reads them.
        """
        if isinstance(model, nn.Module):
            return self._asked(model, what, tokens)
        texts = self.split(what).examples if isinstance(what, str) else what
        found: NDArray[np.floating] = model.probabilities([plain(text) for text in texts])
        return found

    @torch.no_grad()
    def _asked(
        self, model: nn.Module, what: Split | Sequence[str | Example], tokens: int
    ) -> NDArray[np.float32]:
        if isinstance(what, str):
            ids, trees = self.split(what).ids, self.split(what).trees
        else:
            ids, trees = self.read(what)
        lengths = [len(text) for text in ids]
        probabilities = np.zeros((len(ids), len(self.labels)), dtype=np.float32)
        device, budget = device_of(model), max([tokens, *lengths])
        with evaluation_mode(model):
            for indexes in plan_batches(lengths, tokens=budget, seed=0, epoch=0, shuffle=False):
                padded, sizes = pad([ids[index] for index in indexes])
                parents = parents_of(trees, indexes)
                parents = None if parents is None else parents.to(device)
                logits = _logits(model, padded.to(device), sizes.to(device), parents)
                probabilities[indexes] = logits.float().softmax(-1).cpu().numpy()
        return probabilities

    def judge(self, model: Any, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """The metric and the log loss of a split; for log loss the metric is exp(−log loss).

        That is the geometric mean of the probabilities of the true labels: the larger the better.
        """
        said, answers = self.probabilities(model, split, tokens=tokens), self.answers(split)
        return self.measure(said, answers), log_loss(said, answers)

    def measure(self, probabilities: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
        """The metric of some answers, as `judge` has it."""
        found = scores(probabilities, labels)
        if self.metric == METRICS["log-loss"]:
            return float(np.exp(-found[self.metric]))
        return found[self.metric]

    def answers(self, split: Split) -> NDArray[np.int64]:
        """The true label numbers of a split."""
        return self.split(split).labels

    def fit(self, baseline: Any) -> None:
        """Fit a baseline to the texts of the train split."""
        texts = [example.text for example in self.train.examples]
        baseline.fit(texts, self.answers("train"), self.weights)

    def predict(self, model: Any, inputs: Sequence[str | Example]) -> list[Prediction]:
        """The labels of texts. Errors: texts without trees for a model that reads them."""
        return predictions(self.labels, self.probabilities(model, inputs))

    def answer(self, model: Any) -> LabelEvaluation:
        """What the model says to the test split, judged."""
        return self._judged(self.test.examples, self.probabilities(model, "test"))

    def restore(self, rows: bytes, name: str) -> LabelEvaluation:
        """The evaluation that wrote these rows. Errors: lines that are no such rows."""
        return LabelEvaluation.parse(rows, self.labels, name, **self._judging)

    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> LabelEvaluation:
        """How right the model is about a labelled file.

        Columns that are not named are those of the training. Errors: a bad row or an unknown label,
        by file:line.
        """
        text, label, labels = columns
        if not is_classes(data):
            text, label = text or self.settings.text, label or self.settings.label
        examples = read_examples(data, text=text or None, label=label or None)
        names = parse_labels(labels or self.settings.labels)
        examples = rename(examples, names, must_occur=bool(labels))
        return self._judged(examples, self.probabilities(model, examples))

    def attention(self, model: Any, text: str) -> list[LayerAttention]:
        """What each attention layer looks at in a text; nothing of a model without such layers.

        Errors: a model of trees, which a text does not have; a text without words.
        """
        if getattr(model, "reads_trees", False):
            raise RegardError(NO_TREES.format("this model"))
        tokens = self.tokens(text)
        if not tokens:
            raise RegardError("there is no word to look at in this text")
        padded, lengths = pad(self.encode([text]))
        with record(model) as recording:
            model(padded, lengths)
            found = looked(recording, tokens)
        framing = self.tokenizer if isinstance(self.tokenizer, EncoderTokenizer) else model
        framed = framing.framed(tokens) if hasattr(model, "framed") else tokens
        return [
            each._replace(
                tokens=framed if each.weights.shape[-1] == len(framed) else ["[CLS]", *tokens]
            )
            for each in found
        ]

    def weigh(self, model: Any, text: str, answer: Prediction) -> Any:
        """What each word of a text adds to the score of the label that a baseline says."""
        if isinstance(model, nn.Module):
            return super().weigh(model, text, answer)
        return model.weigh(text, self.labels.index(answer.label))

    @property
    def room(self) -> int:
        """Tokens that are read of a text, at most."""
        return self.settings.length

    def whole(self, text: str) -> list[int]:
        """All tokens of a text."""
        return self.tokenizer.encode([text])[0]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model sees, as its writer would recognise them."""
        pieces = self.tokenizer.split(text)
        kept = truncate(range(len(pieces)), self.settings.length, self.settings.truncate)
        return [pieces[place] for place in kept]

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text the model does not read."""
        return [max(0, len(ids) - self.room) for ids in self.tokenizer.encode(texts)]

    def operations(self, model: nn.Module, texts: Sequence[str]) -> int | None:
        """Operations of a forward pass for the text of median length."""
        sample = texts[:: max(1, len(texts) // 1000)]
        length = max(1, round(median(len(ids) for ids in self.encode(sample))))
        # torch's counter cannot follow a parameter that is itself an input, as a learned query is
        return flops_per_example(model.requires_grad_(False), length)

    def about(self) -> dict[str, Any]:
        """The labels."""
        return {"labels": list(self.labels)}

    def _judged(
        self, examples: Sequence[Example], probabilities: NDArray[np.floating]
    ) -> LabelEvaluation:
        return LabelEvaluation.judge(self.labels, examples, probabilities, **self._judging)

    @property
    def _judging(self) -> Judging:
        """What an evaluation is told beside the answers."""
        return {"metric": self.settings.metric, "trained": list(self.counts.values())}

    @cached_property
    def _leak(self) -> list[str]:
        """What is to be told of near copies, where validation was split off a user's own file."""
        if self.corpus.validation is not None or self.settings.data in LABELLED:
            return []
        return leak(*self._split_examples, "validation", "validation=FILE")

    @cached_property
    def _split_examples(self) -> tuple[list[Example], list[Example]]:
        train, share = self._capped(self.corpus.train), self.settings.validation
        if self.corpus.validation is not None or isinstance(share, str):
            return train, self.corpus.validation or []
        train, validation = hold_out(train, share, self.settings.split_seed)
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
                    f"{example.source}: the label {example.label!r:.80} was not among those that "
                    f"the model learned: {listed(self.labels)}{meant(example.label, self.labels)}"
                )
        ids, trees = self.read(examples)
        labels = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        return Encoded(ids, labels, examples, trees)


def _logits(model: nn.Module, tokens: Tensor, lengths: Tensor, parents: Tensor | None) -> Tensor:
    """A model's answer, along the trees if it reads them. Errors: it does, and there are none."""
    logits: Tensor
    if not getattr(model, "reads_trees", False):
        logits = model(tokens, lengths)
        return logits
    if parents is None:
        raise RegardError(NO_TREES.format("this model"))
    logits = model(tokens, lengths, parents)
    return logits


def class_weights(asked: str, counts: Mapping[str, int]) -> NDArray[np.float32] | None:
    """Weights of labels in a loss, from the setting ``class_weights``; None for equal ones.

    "balanced": n / (C · nᵢ) for a label with nᵢ of the n training texts, where C labels have any
    (scikit-learn's rule; King & Zeng 2001); "LABEL:WEIGHT,…": those, and 1 for all others.

    >>> class_weights("balanced", {"no": 6, "yes": 2}).tolist()
    [0.6666666865348816, 2.0]
    >>> class_weights("yes:5", {"no": 6, "yes": 2}).tolist()
    [1.0, 5.0]

    Errors: something else; a label that does not exist; a weight that is not above 0.
    """
    if asked == "none":
        return None
    if asked == "balanced":
        many = np.array(list(counts.values()), dtype=np.float64)
        weights = many.sum() / (np.count_nonzero(many) * np.maximum(many, 1))
        return np.asarray(np.where(many > 0, weights, 1.0), dtype=np.float32)
    given = dict.fromkeys(counts, 1.0)
    for pair in asked.split(","):
        label, colon, weight = pair.rpartition(":")
        if not colon:
            raise RegardError(
                f"class_weights={asked!r:.80}: give none, balanced or LABEL:WEIGHT,LABEL:WEIGHT"
            )
        look_up(given, label.strip(), "label")
        try:
            given[label.strip()] = float(weight)
        except ValueError:
            given[label.strip()] = math.nan
        if not 0 < given[label.strip()] < math.inf:
            raise RegardError(f"class_weights: the weight of {label!r} must be above 0: {weight!r}")
    return np.array(list(given.values()), dtype=np.float32)
