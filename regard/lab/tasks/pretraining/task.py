"""The base of all pretraining tasks: chunks of texts, and a loss at the predicted positions."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.core.errors import RegardError
from regard.lab.data.birthplaces import counted
from regard.lab.data.data_source import NAMED, Columns, DataSource
from regard.lab.data.examples import Example
from regard.lab.data.records import table_kind
from regard.lab.data.texts import TextCorpus, load_texts, read_texts
from regard.lab.data.tokenizers import Tokenizer, must_be_known
from regard.lab.tasks.encoded import TokenIds
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.pretraining.evaluation import (
    TokenLosses,
    beginning,
    token_evaluation,
    unigram_loss,
)
from regard.lab.tasks.settings import PretrainingSettings
from regard.lab.tasks.task import Task, must_be_split, no_labels
from regard.nn.layers import special_tokens
from regard.nn.layers.cross_entropy import rows_at_a_time, word_loss
from regard.nn.layers.device import evaluation_mode, to_device
from regard.nn.layers.special_tokens import SpecialTokens
from regard.nn.layers.vocabulary import parts_of
from regard.training.learnable import Split
from regard.training.ranks import Arrays, ranks

TEACHING = 100_000  # maximum documents for training the tokenizer, the first ones
Rows = NDArray[np.integer]  # (batch, 3): seed, epoch and index of each example


class PredictionBatch(Protocol):
    """A batch with the lengths of its rows and the predicted positions."""

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Return the number of tokens of each row, without padding."""

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """Return the predicted positions."""


B = TypeVar("B", bound=PredictionBatch)


@dataclass(frozen=True)
class Documents(TokenIds):
    """The documents of a split as token ids, with their texts."""

    texts: Sequence[str]


class Targets(NamedTuple):
    """The states and the true tokens of the predicted positions."""

    states: Float[Tensor, "predicted width"]
    wanted: Int[Tensor, " predicted"]


class Pretraining(Task[B], Generic[B]):
    """A pretraining task on texts, tokenized once; examples depend on (seed, epoch, index).

    The metric is exp(−loss) = 1 / perplexity, the geometric mean of the probabilities of the true
    tokens, so that the best weights have the lowest loss. Data are read on first use of a split.
    """

    metric = "likelihood"
    #: Symbols in the printed rows that are not in the texts, counted as assignment 5 does.
    printed = ""
    #: The placeholder for missing words in an input, such as "[MASK]".
    placeholder: ClassVar[str] = ""

    settings: PretrainingSettings

    @property
    def held_out(self) -> bool:
        """Return whether texts are held out for evaluation; not with ``validation=0``."""
        return bool(self.settings.validation)

    @cached_property
    def corpus(self) -> TextCorpus:
        """Load the texts in three splits."""
        return load_texts(self.settings.source)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer on the training texts."""
        return self.trained_tokenizer(self.corpus.train[:TEACHING])

    @property
    def special_tokens(self) -> SpecialTokens:
        """Return the symbols whose ids follow the tokenizer's."""
        return SpecialTokens.after(len(self.tokenizer))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes for which a network is built."""
        return {"vocabulary": len(self.tokenizer) + special_tokens.COUNT, "labels": 0}

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network: also the special tokens."""
        marks = self.special_tokens
        return {
            **super().exported(),
            **{name: getattr(marks, name) for name in ("mask", "classify", "separator")},
        }

    def texts(self, split: Split) -> int:
        """Return the number of documents of a split."""
        return len(self.split(split))

    @cached_property
    def splits(self) -> dict[str, Documents]:
        """Return the cache of tokenized splits."""
        return {}

    def split(self, name: str) -> Documents:
        """Return a split by name. Raises: most tokens of train are unknown."""
        must_be_split(name)
        if name not in self.splits:
            documents = self.documents(getattr(self.corpus, name))
            if name == "train":
                must_be_known(documents.ids)
            self.splits[name] = documents
        return self.splits[name]

    def documents(self, texts: Sequence[str]) -> Documents:
        """Return texts as token ids, without texts that have no tokens."""
        pairs = [
            (ids, text) for ids, text in zip(self.encode(texts), texts, strict=True) if len(ids)
        ]
        return Documents([ids for ids, _ in pairs], [text for _, text in pairs])

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return all token ids of each text."""
        return list(self.tokenizer.arrays(texts))

    def names(self, ids: Iterable[int]) -> list[str]:
        """Return the readable token of each id, symbols included."""
        known = len(self.tokenizer)

        def symbol(i: int) -> str:
            number = i - known - special_tokens.COUNT
            return special_tokens.NAMES[i - known] if number < 0 else f"<extra_id_{number}>"

        return self.tokenizer.tokens(ids, symbol)

    def piece(self, split: Split, index: int) -> str:
        """Return the text of an example."""
        return self.split(split).texts[index]

    @abstractmethod
    def shown(self, split: Split, row: Sequence[int]) -> tuple[str, str]:
        """Return input and target of the example (seed, epoch, index), in readable form."""

    @property
    def counted(self) -> str:
        """Return how many characters the training texts have, or "" if they are a token stream."""
        texts = isinstance(self.corpus, TextCorpus)
        return counted(self.corpus.train, self.printed) if texts else ""

    def rows(self, count: int, seed: int) -> list[tuple[str, str]]:
        """Return x and y of the first ``count`` training examples in the first epoch."""
        indexes = range(min(count, len(self.lengths("train", seed, 0))))
        return [self.shown("train", (seed, 0, index)) for index in indexes]

    def whole(self, text: str) -> NDArray[np.int32]:
        """Return all tokens of a text, before truncation, including named symbols."""
        return self.encode([text])[0]

    @abstractmethod
    def read(self, text: str) -> NDArray[np.int32]:
        """Return the tokens that the model reads of a text."""

    @torch.no_grad()
    def states(self, model: nn.Module, tokens: Int[Tensor, "batch time"]) -> Tensor:
        """Return the model's states for rows without padding."""
        states: Tensor = model(tokens)
        return states

    def with_texts(self, texts: Sequence[str]) -> Self:
        """Return the task with these texts as its test split. Raises: most tokens are unknown."""
        other = type(self)(self.settings, self.tokenizer, self.known)
        other.splits["test"] = documents = other.documents(texts)
        if not len(documents):
            raise RegardError("there are no texts to evaluate; give at least one with tokens")
        must_be_known(documents.ids, "give texts similar to those of the run")
        return other

    @abstractmethod
    def batch(self, split: Split, indexes: Rows) -> B:
        """Return the examples of rows (seed, epoch, index) as tensors."""

    @abstractmethod
    def targets(self, model: nn.Module, batch: B) -> Targets:
        """Return the states and the true tokens of all predicted positions, row by row."""

    def named(self, indexes: NDArray[np.integer], seed: int, epoch: int) -> Rows:
        """Return rows (seed, epoch, index), since an example differs between epochs."""
        return np.stack([np.full_like(indexes, seed), np.full_like(indexes, epoch), indexes], 1)

    def loss(self, model: nn.Module, batch: B) -> Float[Tensor, ""]:
        """Compute the mean cross entropy of the predicted tokens, in nats."""
        return word_loss(model, *self.targets(model, batch))

    def items(self, batch: B) -> Sequence[float]:
        """Return the number of predicted tokens, over which the loss is a mean."""
        return [int(batch.real.sum())]

    @torch.no_grad()
    def judged(self, model: nn.Module, split: Split, tokens: int = 16_384) -> Iterator["Piece"]:
        """Yield the losses of each example of a split, always with the same corruption."""

        def work(rows: Rows) -> Arrays:
            batch = to_device(model, self.batch(split, rows))
            states, wanted = self.targets(model, batch)
            nats, right = token_losses(model, states, wanted)
            return {
                "wanted": wanted.cpu().numpy(),
                "nats": nats.double().cpu().numpy(),
                "right": right.cpu().numpy(),
                "counts": batch.real.sum(1).cpu().numpy(),
            }

        plan = self.fixed_batches(split, tokens)
        with evaluation_mode(model):
            results = ranks().divide(plan, work)
        for rows, result in zip(plan, results, strict=True):
            ends = np.cumsum(result["counts"])[:-1]
            parts = zip(
                *(np.split(result[key], ends) for key in ("nats", "right", "wanted")), strict=True
            )
            for (_, _, index), part in zip(rows.tolist(), parts, strict=True):
                yield Piece(index, *part)

    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """Return exp(−loss) and the loss, in nats per predicted token."""
        total = count = 0.0
        for piece in self.judged(model, split, tokens):
            total, count = total + float(piece.nats.sum()), count + len(piece.nats)
        loss = total / max(count, 1)
        return float(np.exp(-loss)), loss

    def answer(self, model: nn.Module) -> Evaluation:
        """Return the model's likelihood of the test texts."""
        pieces = sorted(self.judged(model, "test"), key=lambda piece: piece.place)
        texts = enumerate((self.piece("test", piece.place) for piece in pieces), 1)
        unigram = unigram_loss(np.concatenate([piece.wanted for piece in pieces]))
        return self.evaluation(
            [Example(text, "", f"piece:{i}") for i, text in texts],
            [TokenLosses(piece.nats, piece.right, unigram) for piece in pieces],
        )

    def evaluation(self, examples: Sequence[Example], answers: Sequence[TokenLosses]) -> Evaluation:
        """Evaluate the losses of predicted tokens."""
        return token_evaluation(examples, answers)

    def read_row(self, row: Mapping[str, Any]) -> TokenLosses:
        """Return the losses of a row."""
        return TokenLosses.of_row(row)

    def evaluate(self, model: nn.Module, data: Path, columns: Columns = NAMED) -> Evaluation:
        """Return the model's likelihood of the texts of a file (a column of a table).

        Raises: a label column, which this task does not read.
        """
        no_labels(columns)
        if columns.label:
            raise RegardError(
                f"--label {columns.label}: this task evaluates texts without labels; leave it out"
            )
        named = self.settings.text if table_kind(data) else ""
        texts = read_texts(DataSource(data, columns=Columns(columns.text or named)))[0]
        return self.with_texts(texts).answer(model)

    def prompt(self, text: str) -> str:
        """Return the first words of a chunk, with the placeholder in place of one."""
        return beginning(text, self.placeholder)

    def attention(self, model: nn.Module, text: str) -> list[LayerAttention]:
        """Return the attention weights of each layer for a text; each row is a query token."""
        ids = self.read(text)
        if not len(ids):
            raise RegardError("this text has no tokens, so there are no attention weights to show")
        with torch.no_grad(), evaluation_mode(model), record(model) as recording:
            self.states(model, torch.from_numpy(ids)[None].long())
            layers = looked(recording, self.names(ids))
        in_text = (
            each for each in layers if not re.match(r"decoder\.\d+\.attention\.", each.layer)
        )
        return [each for each in in_text if each.weights.shape[-1] == len(ids)]

    def tokens(self, text: str) -> list[str]:
        """Return the tokens that the model reads, in readable form."""
        return self.names(self.read(text))


class FromPieces(Pretraining[B]):
    """A pretraining task whose examples are chunks of documents; see `chunks`."""

    @property
    def most(self) -> int:
        """Return the maximum number of tokens per chunk."""
        return self.settings.length

    def pieces(self, split: Split) -> Int[np.ndarray, "pieces 3"]:
        """Return document, first token and last token + 1 of each chunk of a split."""
        if split not in self._cuts:
            self._cuts[split] = chunks(self.split(split).lengths, self.most)
        return self._cuts[split]

    def piece(self, split: Split, index: int) -> str:
        """Return the text of a chunk."""
        document, start, stop = self.pieces(split)[index]
        return self.decode(self.split(split).ids[document][start:stop].tolist())

    @cached_property
    def _cuts(self) -> dict[str, NDArray[np.int64]]:
        return {}


class Piece(NamedTuple):
    """The loss of each predicted token, whether it was the most probable, and its number."""

    place: int
    nats: NDArray[np.float64]
    right: NDArray[np.bool_]
    wanted: NDArray[np.int64]


def chunks(lengths: NDArray[np.integer], most: int, least: int = 8) -> Int[np.ndarray, "pieces 3"]:
    """Cut documents into chunks of at most ``most`` tokens: rows (document, first, last + 1).

    A document's last chunk is dropped if it has fewer than ``least`` tokens, unless it is the only
    one.

    >>> chunks(np.array([5, 21]), 10).tolist()
    [[0, 0, 5], [1, 0, 10], [1, 10, 20]]
    """
    rows = [
        (document, start, min(start + most, int(length)))
        for document, length in enumerate(lengths)
        for start in range(0, int(length), most)
        if not start or length - start >= least
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def token_losses(
    model: nn.Module, states: Float[Tensor, "predicted width"], wanted: Int[Tensor, " predicted"]
) -> tuple[Float[Tensor, " predicted"], Bool[Tensor, " predicted"]]:
    """Compute each token's loss in nats, and whether it is the most probable, in blocks of rows."""
    plain = not hasattr(model, "logit_parts")  # the states are logits
    x, matrix, bias = (states, states.T, None) if plain else parts_of(model, states)
    nats, right = torch.empty(len(wanted), device=states.device), torch.empty_like(wanted).bool()
    for rows in rows_at_a_time(len(wanted), len(matrix)):
        logits = (x[rows] if plain else F.linear(x[rows], matrix, bias)).float()
        nats[rows] = F.cross_entropy(logits, wanted[rows], reduction="none")
        right[rows] = logits.argmax(-1) == wanted[rows]
    return nats, right
