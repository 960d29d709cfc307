"""Saying which words were hidden, and whether one piece follows another: BERT. Devlin et al."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batches import pad
from regard.errors import RegardError
from regard.layers.cross_entropy import word_loss
from regard.layers.device import evaluation_mode, to_device
from regard.layers.embedding import UNKNOWN
from regard.tasks.pretraining.corruption import generator, masked
from regard.tasks.pretraining.task import Asking, FromPieces, Rows
from regard.tasks.settings import MaskedModelingSettings
from regard.tasks.task import Split
from regard.tasks.writing.evaluation import Text

SYMBOLS = 3  # [CLS] first [SEP] second [SEP]
MASK = "[MASK]"


@dataclass(frozen=True)
class MaskedBatch:
    """Two pieces in a row with some words hidden, the words themselves, which are asked about.

    ``types`` is 0 in the first piece and 1 in the second; ``elsewhere`` is 1 where the second does
    not follow the first.
    """

    tokens: Int[Tensor, "batch time"]
    types: Int[Tensor, "batch time"]
    wanted: Int[Tensor, "batch time"]
    asked: Bool[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    elsewhere: Int[Tensor, " batch"]

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """The places whose word is to be said."""
        return self.asked


class Example(NamedTuple):
    """One row before it is padded."""

    read: NDArray[np.int64]
    wanted: NDArray[np.int64]
    types: NDArray[np.int64]
    asked: NDArray[np.bool_]
    elsewhere: bool


class Filled(NamedTuple):
    """A text whose hidden words were filled in, the sum of their log probabilities, and whether
    all of them were."""

    text: str
    log_probability: float
    all: bool


class MaskedModeling(FromPieces[MaskedBatch]):
    """Masked words of pieces of text, and next sentence if asked for.

    A document is cut into pieces. Each is divided in two at a place drawn evenly, [CLS] A [SEP] B
    [SEP]; of half of them B comes from another document, and that is to be said from [CLS]. Words
    are hidden anew in every epoch (`regard.tasks.pretraining.corruption.masked`).
    """

    settings: MaskedModelingSettings

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Tokens of each piece with its symbols, at most."""
        pieces = self.pieces(split)
        sizes: NDArray[np.int64] = pieces[:, 2] - pieces[:, 1] + self._symbols
        return sizes

    def batch(self, split: Split, indexes: Rows) -> MaskedBatch:
        """Pieces with words hidden."""
        rows = [self.example(split, *row) for row in indexes.tolist()]
        tokens, lengths = pad([row.read for row in rows])
        wanted, types, asked = (
            pad([getattr(row, name) for row in rows])[0] for name in ("wanted", "types", "asked")
        )
        elsewhere = torch.tensor([row.elsewhere for row in rows]).long()
        return MaskedBatch(tokens, types, wanted, asked.bool(), lengths, elsewhere)

    def example(self, split: Split, seed: int, epoch: int, index: int) -> Example:
        """One piece as an epoch has it."""
        random = generator(seed, epoch, split, index)
        pieces, documents = self.pieces(split), self.split(split).ids
        document, start, stop = pieces[index]
        ids = documents[document][start:stop].astype(np.int64)
        mark, elsewhere = self.marks, False
        if not self.settings.next_sentence:
            row = np.array([mark.classify, *ids, mark.separator])
            types = np.zeros(len(row), dtype=np.int64)
        else:
            cut = int(random.integers(1, max(len(ids), 2)))
            first, second = ids[:cut], ids[cut:]
            elsewhere = bool(random.random() < 0.5) and len(documents) > 1 and len(second) > 0
            if elsewhere:
                other = int(random.integers(len(documents) - 1))
                other += other >= document
                there, size = documents[other], len(second)
                # From anywhere in it: what begins as documents do would give it away.
                start = int(random.integers(max(len(there) - size, 0) + 1))
                second = there[start : start + size].astype(np.int64)
            row = np.array([mark.classify, *first, mark.separator, *second, mark.separator])
            types = (np.arange(len(row)) > len(first) + 1).astype(np.int64)
        read, asked = masked(
            row,
            random,
            mask=mark.mask,
            words=(UNKNOWN + 1, len(self.tokenizer)),
            share=self.settings.share,
            special=row >= len(self.tokenizer),
        )
        return Example(read, row, types, asked, elsewhere)

    def asked(self, model: nn.Module, batch: MaskedBatch) -> Asking:
        """What stood at the places that are asked."""
        return self._asking(batch, self._states(model, batch))

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Float[Tensor, ""]:
        """Cross entropy of the words asked, and of which pieces follow, each a mean. Ibid., A.2."""
        states = self._states(model, batch)
        loss = word_loss(model, *self._asking(batch, states))
        if not self.settings.next_sentence:
            return loss
        follows: Tensor = model.next_sentence(states)  # type: ignore[operator]
        return loss + F.cross_entropy(follows.float(), batch.elsewhere)

    @torch.no_grad()
    def judge_next_sentence(
        self, model: nn.Module, split: Split, *, tokens: int = 16_384
    ) -> tuple[float, int]:
        """Return how often the model rightly says which second pieces follow, and of how many.

        Half of the pieces do not follow, so chance is 0.5. The pieces and the words hidden in them
        are those of `judged`. Errors: the task does not ask for next sentences.
        """
        if not self.settings.next_sentence:
            raise RegardError("next_sentence=false: which piece follows was not asked; set it true")
        right = count = 0
        with evaluation_mode(model):
            for rows in self.batches(split, tokens=tokens, seed=0, epoch=0, shuffle=False):
                batch = to_device(model, self.batch(split, rows))
                follows: Tensor = model.next_sentence(  # type: ignore[operator]
                    self._states(model, batch)
                )
                right += int((follows.argmax(-1) == batch.elsewhere).sum())
                count += len(batch.elsewhere)
        return right / max(count, 1), count

    def shown(self, split: Split, row: Sequence[int]) -> tuple[str, str]:
        """What is read, and the words that are asked for in their order."""
        found = self.example(split, *row)
        asked = found.wanted[found.asked].tolist()
        return " ".join(self.names(found.read.tolist())), " ".join(self.names(asked))

    @property
    def room(self) -> int:
        """Two symbols stand about a text."""
        return self.settings.length - 2

    def whole(self, text: str) -> NDArray[np.int32]:
        """A text's tokens, "[MASK]" as its symbol."""
        parts = self.encode(text.split(MASK))
        joined = np.concatenate([x for part in parts for x in (part, [self.marks.mask])])
        return joined[:-1].astype(np.int32)

    def read(self, text: str) -> NDArray[np.int32]:
        """[CLS], the text's first tokens, [SEP]."""
        kept = self.whole(text)[: self.room]
        return np.array([self.marks.classify, *kept, self.marks.separator], np.int32)

    @torch.no_grad()
    def states(self, model: nn.Module, tokens: Int[Tensor, "batch time"]) -> Tensor:
        """A pass over rows without padding."""
        found: Tensor = model(tokens)
        return found

    def predict(self, model: nn.Module, inputs: Sequence[str]) -> list[Text]:
        """Each text with a word for each [MASK] in it."""
        return [Text(*filled) for filled in self.fill(model, inputs)]

    @torch.no_grad()
    def fill(self, model: nn.Module, texts: Sequence[str]) -> list[Filled]:
        """Each text with the likeliest word in place of every "[MASK]", one by itself each.

        Those that stand beyond what the model reads are left as they are.
        """
        return [self._filled(model, text) for text in texts]

    def _filled(self, model: nn.Module, text: str) -> Filled:
        ids, parts = self.read(text), text.split(MASK)
        hidden = np.flatnonzero(ids == self.marks.mask)
        if not len(hidden):
            return Filled(text, 0.0, len(parts) == 1)
        states = self.states(model, torch.from_numpy(ids)[None].long())[0, hidden]
        logits = cast(Callable[[Tensor], Tensor], model.to_logits)(states).float()
        chances = logits[:, : len(self.tokenizer)].log_softmax(-1)
        chances[:, : UNKNOWN + 1] = -torch.inf
        best = chances.max(-1)
        words = [self.decode([i]) for i in best.indices.tolist()]
        words += [MASK] * (len(parts) - 1 - len(words))
        whole = parts[0] + "".join(w + part for w, part in zip(words, parts[1:], strict=True))
        return Filled(whole, float(best.values.sum()), len(hidden) == len(parts) - 1)

    def _states(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        padded = int(batch.lengths.min()) < batch.tokens.shape[1]
        types = batch.types if self.settings.next_sentence else None
        return cast(Tensor, model(batch.tokens, batch.lengths if padded else None, types))

    def _asking(self, batch: MaskedBatch, states: Tensor) -> Asking:
        return Asking(states[batch.asked], batch.wanted[batch.asked])

    @property
    def _symbols(self) -> int:
        return SYMBOLS if self.settings.next_sentence else 2

    @property
    def most(self) -> int:
        """Symbols stand about a piece."""
        return self.settings.length - self._symbols
