"""What all ways to pretrain share: texts cut into pieces, a loss at the places that are asked."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.layer_attention import LayerAttention, looked
from regard.analysis.record import record
from regard.data.files import table_kind
from regard.data.texts import TextCorpus, load_texts, read_texts
from regard.data.tokenizers import Tokenizer, must_be_known, train_tokenizer
from regard.errors import RegardError
from regard.layers import marks
from regard.layers.cross_entropy import parts_of, rows_at_a_time, word_loss
from regard.layers.device import evaluation_mode, to_device
from regard.tasks.pretraining.evaluation import Likelihoods
from regard.tasks.settings import PretrainingSettings
from regard.tasks.task import NAMED, Columns, Split, Task, must_be_split, no_labels

TEACHING = 100_000  # documents that a tokenizer learns from, at most: of the first
Rows = NDArray[np.integer]  # of a batch: seed, epoch and index of each example


class Asked(Protocol):
    """A batch: how long its rows are, and which places are asked about."""

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Tokens of each row, padding not counted."""

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """The places whose token is to be said."""


B = TypeVar("B", bound=Asked)


@dataclass(frozen=True)
class Documents:
    """The documents of a split as token ids (int32), and the texts that they come from."""

    ids: list[NDArray[np.int32]]
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document."""
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)


class Asking(NamedTuple):
    """The places that are asked about: what their words are read out of, and the true words."""

    states: Float[Tensor, "asked width"]
    wanted: Int[Tensor, " asked"]


class Pretraining(Task[B], Generic[B]):
    """Texts, tokenised once; an example is a function of (seed, epoch, index).

    Its metric is exp(−loss), the geometric mean of the probabilities that the truth was given
    (1 / perplexity), so that the best weights are those of the least loss. Data are read when a
    split is first asked for. A saved tokenizer may be given.
    """

    metric = "likelihood"

    settings: PretrainingSettings

    def __init__(
        self,
        settings: PretrainingSettings,
        tokenizer: Tokenizer | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(settings, tokenizer, facts)
        self.splits: dict[str, Documents] = {}

    @property
    def held_out(self) -> bool:
        """Whether texts were held out for judging; with ``validation=0`` none are."""
        return bool(self.settings.validation)

    @cached_property
    def corpus(self) -> TextCorpus:
        """The texts as they were found, in three splits."""
        asked = self.settings
        return load_texts(
            asked.data,
            text=asked.text,
            data_dir=asked.data_dir or None,
            validation=asked.validation,
            seed=asked.split_seed,
            examples=asked.examples,
            without=asked.without,
            without_text=asked.without_text,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Learned from the texts that are trained on."""
        asked = self.settings
        return train_tokenizer(
            asked.tokenizer,
            self.corpus.train[:TEACHING],
            vocabulary=asked.vocabulary,
            minimum=asked.minimum,
        )

    @property
    def marks(self) -> marks.Marks:
        """The symbols behind the tokenizer's tokens."""
        return marks.Marks.behind(len(self.tokenizer))

    @property
    def sizes(self) -> dict[str, int]:
        """What a network is built for."""
        return {"vocabulary": len(self.tokenizer) + marks.COUNT, "labels": 0}

    def split(self, name: str) -> Documents:
        """train, validation or test. Errors: hardly a token of train is known."""
        must_be_split(name)
        if name not in self.splits:
            found = self.documents(getattr(self.corpus, name))
            if name == "train":
                must_be_known(found.ids)
            self.splits[name] = found
        return self.splits[name]

    def documents(self, texts: Sequence[str]) -> Documents:
        """Texts as token ids, those without tokens left out."""
        pairs = [
            (ids, text) for ids, text in zip(self.encode(texts), texts, strict=True) if len(ids)
        ]
        return Documents([ids for ids, _ in pairs], [text for _, text in pairs])

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Token ids of each text, whole."""
        return list(self.tokenizer.arrays(texts))

    def names(self, ids: Iterable[int]) -> list[str]:
        """The readable token of each id, symbols too."""
        known = len(self.tokenizer)
        found: list[str] = []
        for i in map(int, ids):
            if i < known:
                found += self.tokenizer.tokens([i])
            elif i - known < marks.COUNT:
                found.append(marks.NAMES[i - known])
            else:
                found.append(f"<extra_id_{i - known - marks.COUNT}>")
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """A text again; symbols that no text holds are left out."""
        return self.tokenizer.decode([i for i in ids if i < len(self.tokenizer)])

    def piece(self, split: Split, index: int) -> str:
        """The text that an example was made of."""
        return self.split(split).texts[index]

    @abstractmethod
    def shown(self, split: Split, row: Sequence[int]) -> tuple[str, str]:
        """What the model reads of the example of a row (seed, epoch, index), and what it says."""

    def rows(self, count: int, seed: int) -> list[tuple[str, str]]:
        """Return x and y of the first ``count`` training examples, as the first epoch has them."""
        indexes = range(min(count, len(self.lengths("train", seed, 0))))
        return [self.shown("train", (seed, 0, index)) for index in indexes]

    @property
    def room(self) -> int:
        """Tokens of a text that are answered at most."""
        return self.settings.length

    def whole(self, text: str) -> NDArray[np.int32]:
        """All tokens of a text that the model is asked about, symbols that it names among them."""
        return self.encode([text])[0]

    @abstractmethod
    def read(self, text: str) -> NDArray[np.int32]:
        """What the model reads of it."""

    @abstractmethod
    def states(self, model: nn.Module, tokens: Int[Tensor, "batch time"]) -> Tensor:
        """A pass over rows without padding."""

    def with_texts(self, texts: Sequence[str]) -> Self:
        """The same task whose test split is these texts. Errors: hardly a token is known."""
        other = type(self)(self.settings, self.tokenizer, self.known)
        other.splits["test"] = found = other.documents(texts)
        if not len(found):
            raise RegardError("there is no text to judge by")
        must_be_known(found.ids, "give texts such as the run has read")
        return other

    @abstractmethod
    def batch(self, split: Split, indexes: Rows) -> B:
        """The examples of rows (seed, epoch, index) as tensors."""

    @abstractmethod
    def asked(self, model: nn.Module, batch: B) -> Asking:
        """The states and the words of all places that are asked about, row by row."""

    def named(self, indexes: NDArray[np.integer], seed: int, epoch: int) -> Rows:
        """Rows (seed, epoch, index): an example is not the same in every epoch."""
        return np.stack([np.full_like(indexes, seed), np.full_like(indexes, epoch), indexes], 1)

    def loss(self, model: nn.Module, batch: B) -> Float[Tensor, ""]:
        """Mean cross entropy of what is asked, in nats."""
        return word_loss(model, *self.asked(model, batch))

    @torch.no_grad()
    def judged(self, model: nn.Module, split: Split, tokens: int = 16_384) -> Iterator["Piece"]:
        """What the model says to each example of a split, always corrupted in the same way."""
        with evaluation_mode(model):
            longest = int(self.lengths(split, 0, 0).max(initial=1))
            for rows in self.batches(
                split, tokens=max(tokens, longest), seed=0, epoch=0, shuffle=False
            ):
                batch = to_device(model, self.batch(split, rows))
                nats, right = said(model, *self.asked(model, batch))
                counts = batch.real.sum(1).tolist()
                parts = zip(nats.split(counts), right.split(counts), strict=True)
                for (_, _, index), (nats, right) in zip(rows.tolist(), parts, strict=True):
                    yield Piece(index, nats.double().cpu().numpy(), right.cpu().numpy())

    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        """exp(−loss), and the loss: nats for each token that is asked."""
        total = count = 0.0
        for piece in self.judged(model, split, tokens):
            total, count = total + float(piece.nats.sum()), count + len(piece.nats)
        loss = total / max(count, 1)
        return float(np.exp(-loss)), loss

    def answer(self, model: nn.Module) -> Likelihoods:
        """How likely the model thinks the test texts."""
        pieces = sorted(self.judged(model, "test"), key=lambda piece: piece.place)
        return Likelihoods(
            tuple(self.piece("test", piece.place) for piece in pieces),
            tuple(piece.nats for piece in pieces),
            tuple(piece.right for piece in pieces),
        )

    def restore(self, rows: bytes, name: str) -> Likelihoods:
        """The evaluation that wrote these rows. Errors: lines that are no such rows."""
        return Likelihoods.parse(rows, name)

    def evaluate(self, model: nn.Module, data: Path, columns: Columns = NAMED) -> Likelihoods:
        """How likely the model thinks the texts of a file (a column of a table).

        Errors: a column of labels, which no text here has.
        """
        no_labels(columns)
        if columns.label:
            raise RegardError("texts are judged as they are: there is no label to be named")
        named = self.settings.text if table_kind(data) else ""
        texts = read_texts(str(data), columns.text or named)[0]
        return self.with_texts(texts).answer(model)

    def attention(self, model: nn.Module, text: str) -> list[LayerAttention]:
        """What each layer looks at in a text, each token asking in its turn."""
        ids = self.read(text)
        if not len(ids):
            raise RegardError("there is no token to look at in this text")
        with torch.no_grad(), evaluation_mode(model), record(model) as recording:
            self.states(model, torch.from_numpy(ids)[None].long())
            found = looked(recording, self.names(ids))
        in_text = (each for each in found if not re.match(r"decoder\.\d+\.attention\.", each.layer))
        return [each for each in in_text if each.weights.shape[-1] == len(ids)]

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model reads."""
        return self.names(self.read(text))


class FromPieces(Pretraining[B]):
    """Examples made of one piece of a document each: long documents are cut (`chunks`)."""

    @property
    def most(self) -> int:
        """Tokens of a piece at most."""
        return self.settings.length

    def pieces(self, split: Split) -> Int[np.ndarray, "pieces 3"]:
        """Document, first token and one past the last of each piece of a split."""
        if split not in self._cuts:
            self._cuts[split] = chunks(self.split(split).lengths, self.most)
        return self._cuts[split]

    def piece(self, split: Split, index: int) -> str:
        """The text of a piece."""
        document, start, stop = self.pieces(split)[index]
        return self.decode(self.split(split).ids[document][start:stop].tolist())

    @cached_property
    def _cuts(self) -> dict[str, NDArray[np.int64]]:
        return {}


class Piece(NamedTuple):
    """What a model said to one example: of every token asked the nats, and if it was first."""

    place: int
    nats: NDArray[np.float64]
    right: NDArray[np.bool_]


def chunks(lengths: NDArray[np.integer], most: int, least: int = 8) -> Int[np.ndarray, "pieces 3"]:
    """Documents cut into pieces of at most ``most`` tokens: rows of document, first, one past last.

    A document's last piece is left out where it has less than ``least`` tokens and is not its only.

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


def said(
    model: nn.Module, states: Float[Tensor, "asked width"], wanted: Int[Tensor, " asked"]
) -> tuple[Float[Tensor, " asked"], Bool[Tensor, " asked"]]:
    """Nats of each word that was asked about, and whether it came first: some at a time."""
    x, matrix, bias = parts_of(model, states)
    nats, right = torch.empty(len(wanted), device=states.device), torch.empty_like(wanted).bool()
    for rows in rows_at_a_time(len(wanted), len(matrix)):
        logits = F.linear(x[rows], matrix, bias).float()
        nats[rows] = F.cross_entropy(logits, wanted[rows], reduction="none")
        right[rows] = logits.argmax(-1) == wanted[rows]
    return nats, right
