"""The interface of a task: its data, loss and metric, and predictions of trained models.

The training loop uses only batches, the loss and `judge`; runs, comparisons, reports and the
server use predictions and their evaluation.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.analysis.attribution import Attributed, Explainable, attributed
from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
from regard.lab.data.conllu import is_conllu
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Example
from regard.lab.data.tokenizers import Tokenizer, train_tokenizer
from regard.lab.tasks.evaluation import Evaluation, read_rows
from regard.nn.layers.device import evaluation_mode
from regard.training.interface import Interface
from regard.training.learnable import SPLITS, B, Learnable, Split

if TYPE_CHECKING:
    from regard.lab.tasks.writing.searching import Search
    from regard.lab.tasks.writing.streaming import NextWord, WriteRequest


NAMED_WORDS = 20  # unknown words in a phrase


class Answer(Protocol):
    """A model's answer to one input."""

    def line(self) -> str:
        """Return the answer in one line."""

    def phrase(self) -> str:
        """Return the answer as a phrase."""

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""


class Task(Learnable[B]):
    """A learning problem: its data, its loss, its metric and the predictions of its models.

    All methods are pure functions of the task's settings and their arguments. Data are read on
    first use.

    ``tokenizer`` and ``facts`` (see `facts`) come from a run; with them, a trained model predicts
    without the training data. A ``model`` is a network, which methods use in evaluation mode, or a
    fitted baseline.
    """

    #: The data as loaded: their name, fingerprint and notes.
    corpus: Any
    #: The part of a long text that is read.
    keeps: Literal["head", "tail", "ends"] = "head"
    #: The signature and outputs of networks; None leaves both unchecked.
    interface: Interface = Interface()
    #: True if an answer ranks all labels by probability; `Answer` then has ``top``.
    ranks: ClassVar[bool] = False
    #: "on" if a model continues its input, "another" if it generates a new text, "" if neither.
    writes: ClassVar[Literal["", "on", "another"]] = ""
    #: True if an answer is a text: generated, or the input with filled masks.
    answers_in_texts: ClassVar[bool] = False
    #: True if a linear layer can be fitted to a frozen encoder's states: `TextTask.fit_head`.
    fits_head: ClassVar[bool] = False

    #: The metric's name in tables for each value of the setting ``metric``, for tasks with one.
    metrics: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, settings: Any, tokenizer: Any = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.settings = settings
        if self.metrics:
            self.metric = self.metrics[settings.metric]
        self.known = facts or {}
        if tokenizer is not None:
            self.tokenizer = tokenizer

    def __repr__(self) -> str:
        """Return the task, its data, and the sizes of the splits if they are loaded."""
        items = [f"data={getattr(getattr(self, 'settings', None), 'data', '')!r}"]
        corpus = vars(self).get("corpus")
        parts = {name: getattr(corpus, name, None) for name in SPLITS}
        items += [f"{name}={len(part)}" for name, part in parts.items() if part is not None]
        return f"{type(self).__name__}({', '.join(items)})"

    @property
    def notes(self) -> list[str]:
        """Return remarks about the data that a user should read before training."""
        return list(self.corpus.notes)

    def trained_tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """Train the tokenizer of the settings on texts."""
        settings = self.settings
        return train_tokenizer(
            settings.tokenizer, texts, vocabulary=settings.vocabulary, minimum=settings.minimum
        )

    def facts(self) -> dict[str, Any]:
        """Return what a run saves about its data, as JSON-serialisable values.

        A resumed run compares them with its saved facts, so they depend only on data and settings
        and survive a round trip through JSON: lists, not tuples. Overrides add facts, which a
        trained model reads from `known` instead of the data.
        """
        corpus = self.corpus
        return {"name": corpus.name, "fingerprint": corpus.fingerprint, "notes": self.notes}

    @property
    def labels(self) -> Sequence[str]:
        """Return the labels or tags that a model predicts, by default none."""
        return ()

    @property
    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """Return the sizes for which a model is built: vocabulary, labels, symbols."""

    @property
    def validates(self) -> str:
        """Return the name of the score that `judge` returns; the metric by default.

        The name determines the format. It is a key of ``UNITS`` or of a task's ``TaskEntry.units``;
        otherwise the score is a share of at most 1, shown in per cent. A loss is returned as
        exp(−loss), under the name "log loss" or "likelihood".
        """
        return self.metric

    @property
    def held_out(self) -> bool:
        """Return whether the test split is kept out of training."""
        return True

    @abstractmethod
    def predict(self, model: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the model's `Answer` to each input."""

    @abstractmethod
    def answer(self, model: Any) -> Evaluation:
        """Return the evaluation of the model on the test split."""

    @abstractmethod
    def evaluation(self, examples: Sequence[Example], answers: Sequence[Any]) -> Evaluation:
        """Return the evaluation of a model's answers to examples.

        Raises: no examples; references that do not fit the task, by file:line.
        """

    @abstractmethod
    def read_row(self, row: Mapping[str, Any]) -> Any:
        """Return the answer in a row that `Evaluation.row` wrote. Raises: a malformed row."""

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split as texts. Raises: a task without such examples."""
        raise RegardError(f"{type(self).__name__} has no texts with answers to give to a command")

    def restore(self, rows: bytes, name: str) -> Evaluation:
        """Rebuild an evaluation from its `Evaluation.rows`; ``name`` is the file, for errors.

        Raises: malformed rows.
        """
        return self.evaluation(*read_rows(rows, name, self.read_row))

    def plain(self, evaluation: Evaluation) -> bytes:
        """Return the answers in the task's own file format; empty if it has none."""
        return b""

    @abstractmethod
    def evaluate(self, model: Any, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the evaluation of the model on a file with reference answers.

        Raises: a bad row, by file:line; columns that such a file does not have.
        """

    def prompt(self, text: str) -> str:
        """Return an example input made of a text of the test split, by default the text."""
        return text

    @abstractmethod
    def attention(self, model: Any, text: str) -> list[LayerAttention]:
        """Return the attention weights of each layer for a text; empty without such layers.

        Raises: a text without tokens.
        """

    def at_work(self, model: Any, text: str) -> tuple[list[LayerAttention], int | None]:
        """Return the attention weights of each layer while the model answers a text.

        The second value is the number of prompt tokens if the answer continues the prompt in one
        text, else None.
        """
        return self.attention(model, text), None

    def best(self, model: Any, inputs: Sequence[Any], search: Any) -> list[list[Any]]:
        """Return the best generated texts for each input, best first.

        ``search`` is their number, for the task's own search, or another `Search`. Raises: a task
        whose models do not generate text.
        """
        raise RegardError("this run gives one answer per text; leave out best")

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to a text, without symbols."""
        known = len(self.tokenizer)
        return str(self.tokenizer.decode([i for i in ids if i < known]))

    @property
    def end(self) -> int | None:
        """Return the id of the symbol that ends a written text; None if texts are not written."""
        return None

    @property
    def temperature(self) -> float:
        """Return the sampling temperature of `search`; 0 means greedy or beam search."""
        return 0.0

    def search_by(self, chosen: Mapping[str, Any]) -> "Search | None":
        """Return the task's search with ``chosen`` settings of `Search`; None if there is none.

        Raises: a setting for a task whose models do not generate text.
        """
        if option := next(iter(chosen), "").replace("_", "-"):
            raise RegardError(
                f"--{option} needs a run that generates texts; leave it out for this run"
            )
        return None

    def request(self, text: str, most: int) -> "WriteRequest | None":
        """Return the request to write at most ``most`` tokens; None if texts are not written."""
        return None

    def next_words(self, model: Any, text: str, count: int = 5) -> "list[NextWord]":
        """Return the likeliest first words that the model writes for a text, if it writes any."""
        return []

    def score(self, model: Any, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """Return the probability of each target given its source. Raises: as `unscorable`."""
        self.unscorable(pairs)
        return []

    def unscorable(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return for each pair the reason why it cannot be scored, or "".

        Raises: a task that does not map one text to another.
        """
        raise RegardError("--score needs a run that writes one text for another; this one does not")

    @property
    def columns(self) -> Columns:
        """Return the columns of an input, besides the common names."""
        return NAMED

    def input_of(self, line: str) -> str:
        """Return the input that a line stands for, by default the line.

        If the task reads two texts, a tab separates them.
        """
        return line

    @property
    def counted(self) -> str:
        """Return the size of the texts from which `rows` are drawn, as a sentence, or ""."""
        return ""

    def rows(self, count: int, seed: int) -> list[tuple[str, str]]:
        """Return the first ``count`` training examples as readable input and target.

        A task that reads its examples from a file as they are has none.
        """
        return []

    def excluded_from(self, texts: str) -> dict[str, str]:
        """Return the settings of a pretraining on ``texts`` that exclude the test split.

        Raises: a task whose models are not pretrained first; ``texts`` that contain the test split.
        """
        raise RegardError(
            "models of this task cannot be pretrained on texts; --pretrain-on needs a task that "
            "labels texts"
        )

    def read_file(self, path: Path) -> Iterable[Any] | None:
        """Return the inputs of a file in a special format; None for lines or columns.

        Raises: parsed sentences, unless the task accepts them.
        """
        if is_conllu(path):
            raise RegardError(
                f"{path}: parsed sentences need a run that predicts labels, numbers or tags"
            )
        return None

    def weigh(self, model: Any, text: str, answer: Any) -> Any:
        """Return each word's contribution to a baseline's answer. Raises: a model without them."""
        raise RegardError("this baseline has no weights of single words, so there is no picture")

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return the numbers behind the answer to a text, such as the score of its label.

        Raises: a text without tokens; a model whose tokens cannot be named.
        """
        raise RegardError(
            f"{type(self).__name__} does not declare the numbers behind its answers, so it cannot "
            "attribute them; add a method explainable to the task"
        )

    def attribute(self, model: nn.Module, text: str, choice: int | None = None) -> Attributed:
        """Return what each token added to a number behind the answer.

        ``choice`` is its index in `explainable`. Raises: no such number; as `explainable`.
        """
        with evaluation_mode(model):
            return attributed(model, self.explainable(model, text), choice)

    @property
    def room(self) -> int:
        """Return the maximum number of tokens read from a text; by default the setting `length`."""
        return int(self.settings.length)

    @abstractmethod
    def whole(self, text: str) -> Sequence[Any] | NDArray[np.integer]:
        """Return all tokens of a text, before truncation."""

    @abstractmethod
    def tokens(self, text: str) -> list[str]:
        """Return the tokens that the model reads, as readable pieces of the text."""

    def left_out(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text that are cut off."""
        return [max(0, len(self.whole(text)) - self.room) for text in texts]

    def unknown(self, model: Any, texts: Sequence[Any]) -> list[tuple[str, ...]]:
        """Return the words of each text that the model does not know, each once.

        For subword tokenizers these are characters. A task without a tokenizer returns none.
        """
        tokenizer = vars(self).get("tokenizer") if isinstance(model, nn.Module) else None
        ask = getattr(tokenizer, "unknown_in", None)
        if ask is None:
            return [()] * len(texts)
        return [ask(getattr(text, "text", text).strip()) for text in texts]

    def operations(self, model: nn.Module, texts: Sequence[str]) -> int | None:
        """Return the operations of a forward pass for the median length; None if not counted."""
        return None

    def about(self) -> dict[str, Any]:
        """Return additional JSON-serialisable values for a list of answers."""
        return {}

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network, in addition to its tokenizer."""
        end = {} if self.end is None else {"end": self.end}
        return {"length": self.room, "truncate": self.keeps, **self.about(), **end}

    def fixed_batches(self, split: Split, tokens: int) -> Sequence[NDArray[np.integer]]:
        """Return the batches of a split for an evaluation, always the same.

        A batch has at most ``tokens`` tokens, or as many as the longest example has.
        """
        budget = max(tokens, int(self.lengths(split, 0, 0).max(initial=1)))
        return self.batches(split, tokens=budget, seed=0, epoch=0, shuffle=False)

    def texts(self, split: Split) -> int:
        """Return the number of texts of a split; by default, each example is one."""
        return len(self.lengths(split, 0, 0))

    def decodes(self, split: Split) -> int:
        """Return the number of texts of a split that `judge` generates."""
        return 0

    def sample(self, every: int) -> list[int]:
        """Return the index of every ``every``-th example of the train split."""
        return list(range(0, len(self.lengths("train", 0, 0)), every))

    def fit(self, baseline: Any, chosen: Sequence[int] | None = None) -> None:
        """Fit a baseline to the train split, or to its examples at the indexes ``chosen``."""
        raise NotImplementedError(f"{type(self).__name__} has no baselines")

    def decide(self, model: Any) -> dict[str, Any]:
        """Return what is chosen on validation for a trained model, such as a threshold.

        A run saves it, and its task has it in `known`. By default there is nothing to choose.
        """
        return {}

    def fit_all(self, baseline: Any) -> None:
        """Fit a baseline that was fitted to the train split again, also to the validation split."""
        raise NotImplementedError(f"{type(self).__name__} has no pretrained baselines")


def with_unknown(answer: Any, words: tuple[str, ...]) -> Any:
    """Add the words unknown to the model to an answer, if its class has a field for them."""
    if words and is_dataclass(answer) and hasattr(answer, "unknown"):
        return replace(cast(Any, answer), unknown=words)
    return answer


def unknown_phrase(words: Sequence[str]) -> str:
    """Return unknown words as a phrase.

    >>> unknown_phrase(("zzz", "qqq"))
    'unknown to the model: zzz, qqq'
    """
    more = f" and {len(words) - NAMED_WORDS:,} more" if len(words) > NAMED_WORDS else ""
    return f"unknown to the model: {', '.join(words[:NAMED_WORDS])}{more}"


def no_labels(columns: Columns) -> None:
    """Raise an error if the columns rename labels."""
    if columns.labels:
        raise RegardError("--labels renames labels, but this task has none; leave it out")


def must_be_split(name: str) -> None:
    """Raise an error if there is no split of this name."""
    if name not in SPLITS:
        raise RegardError(f"unknown split {name!r:.40}; choose train, validation or test")
