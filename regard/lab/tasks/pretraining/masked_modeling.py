"""Masked tokens and next sentence, the pretraining of BERT. Devlin et al. 2019."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable
from regard.attention.packing import places_of
from regard.core.errors import RegardError
from regard.lab.tasks.explaining import filled
from regard.lab.tasks.pretraining.corruption import generator, masked
from regard.lab.tasks.pretraining.task import FromPieces, Rows, Targets
from regard.lab.tasks.settings import MaskedModelingSettings
from regard.lab.tasks.writing.evaluation import Text
from regard.lab.tasks.writing.streaming import NextWord
from regard.nn.layers.cross_entropy import word_loss
from regard.nn.layers.device import evaluation_mode, to_device
from regard.nn.layers.embedding import UNKNOWN
from regard.training.batches import pad
from regard.training.interface import Interface
from regard.training.learnable import Split

SYMBOLS = 3  # [CLS] first [SEP] second [SEP]
MASK = "[MASK]"


@dataclass(frozen=True)
class MaskedBatch:
    """A batch of rows of two segments with masked tokens.

    ``wanted`` are the true tokens; those at ``selected`` are predicted. ``types`` is 0 in the first
    segment and 1 in the second; ``elsewhere`` is 1 if the second does not follow the first.
    """

    tokens: Int[Tensor, "batch time"]
    types: Int[Tensor, "batch time"]
    wanted: Int[Tensor, "batch time"]
    selected: Bool[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    elsewhere: Int[Tensor, " batch"]

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """Return the predicted positions."""
        return self.selected


class Example(NamedTuple):
    """A row of a `MaskedBatch` before padding."""

    read: NDArray[np.int64]
    wanted: NDArray[np.int64]
    types: NDArray[np.int64]
    selected: NDArray[np.bool_]
    elsewhere: bool


class Filled(NamedTuple):
    """A text with filled masks, the sum of log probabilities, and whether all masks are filled."""

    text: str
    log_probability: float
    all: bool


class MaskedModeling(FromPieces[MaskedBatch]):
    """Masked language modelling of chunks of text, optionally with next-sentence prediction.

    Documents are cut into chunks. Each chunk is split at a uniformly drawn position, [CLS] A [SEP]
    B [SEP]. In half of the rows B comes from another document, which is predicted from [CLS].
    Tokens are masked anew in every epoch (`regard.lab.tasks.pretraining.corruption.masked`).
    """

    settings: MaskedModelingSettings
    placeholder = MASK
    answers_in_texts = True
    interface = Interface("reads", "token", "vocabulary")

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the maximum tokens of each chunk, symbols included."""
        pieces = self.pieces(split)
        sizes: NDArray[np.int64] = pieces[:, 2] - pieces[:, 1] + self._symbols
        return sizes

    def batch(self, split: Split, indexes: Rows) -> MaskedBatch:
        """Return chunks with masked tokens as tensors."""
        rows = [self.example(split, *row) for row in indexes.tolist()]
        tokens, lengths = pad([row.read for row in rows])
        wanted, types, selected = (
            pad([getattr(row, name) for row in rows])[0] for name in ("wanted", "types", "selected")
        )
        elsewhere = torch.tensor([row.elsewhere for row in rows]).long()
        return MaskedBatch(tokens, types, wanted, selected.bool(), lengths, elsewhere)

    def example(self, split: Split, seed: int, epoch: int, index: int) -> Example:
        """Return a chunk as masked in an epoch."""
        random = generator(seed, epoch, split, index)
        pieces, documents = self.pieces(split), self.split(split).ids
        document, start, stop = pieces[index]
        ids = documents[document][start:stop].astype(np.int64)
        mark, elsewhere = self.special_tokens, False
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
                # From a random position: the beginning of a document would be easy to recognise.
                start = int(random.integers(max(len(there) - size, 0) + 1))
                second = there[start : start + size].astype(np.int64)
            row = np.array([mark.classify, *first, mark.separator, *second, mark.separator])
            types = (np.arange(len(row)) > len(first) + 1).astype(np.int64)
        read, selected = masked(
            row,
            random,
            mask=mark.mask,
            words=(UNKNOWN + 1, len(self.tokenizer)),
            share=self.settings.share,
            special=row >= len(self.tokenizer),
        )
        return Example(read, row, types, selected, elsewhere)

    def targets(self, model: nn.Module, batch: MaskedBatch) -> Targets:
        """Return the states and the true tokens of the predicted positions."""
        places = places_of(batch.selected)
        return self._asking(batch, self._states(model, batch), places)

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Float[Tensor, "..."]:
        """Compute the mean cross entropy of the masked tokens, and that of the next sentence.

        The two are added in training. Devlin et al. 2019, appendix A.2.
        """
        places = places_of(batch.selected)
        states = self._states(model, batch)
        losses = [word_loss(model, *self._asking(batch, states, places))]
        if self.settings.next_sentence:
            follows: Tensor = model.next_sentence(states)  # type: ignore[operator]
            losses.append(F.cross_entropy(follows.float(), batch.elsewhere))
        return torch.stack(losses)

    def items(self, batch: MaskedBatch) -> Sequence[float]:
        """Return the number of masked tokens, and of rows."""
        return [*super().items(batch), *([len(batch.lengths)] * self.settings.next_sentence)]

    @torch.no_grad()
    def judge_next_sentence(
        self, model: nn.Module, split: Split, *, tokens: int = 16_384
    ) -> tuple[float, int]:
        """Return the accuracy of next-sentence prediction, and the number of rows.

        Half of the second segments do not follow, so chance is 0.5. The rows and masks are those of
        `judged`. Raises: a task with ``next_sentence=false``.
        """
        if not self.settings.next_sentence:
            raise RegardError(
                "next_sentence=false: the model was not trained to predict it; train with "
                "next_sentence=true"
            )
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
        """Return the input and the predicted tokens of an example."""
        example = self.example(split, *row)
        predicted = example.wanted[example.selected].tolist()
        return " ".join(self.names(example.read.tolist())), " ".join(self.names(predicted))

    @property
    def room(self) -> int:
        """Return the maximum tokens read from a text: `length` without two symbols."""
        return self.settings.length - 2

    def whole(self, text: str) -> NDArray[np.int32]:
        """Return the tokens of a text, with "[MASK]" as the mask symbol."""
        parts = self.encode(text.split(MASK))
        joined = np.concatenate([x for part in parts for x in (part, [self.special_tokens.mask])])
        return joined[:-1].astype(np.int32)

    def read(self, text: str) -> NDArray[np.int32]:
        """Return [CLS], the first tokens of the text, [SEP]."""
        tokens = self.whole(text)[: self.room]
        return np.array(
            [self.special_tokens.classify, *tokens, self.special_tokens.separator], np.int32
        )

    def predict(self, model: nn.Module, inputs: Sequence[str]) -> list[Text]:
        """Return each text with its "[MASK]" filled in."""
        return [Text(*filled) for filled in self.fill(model, inputs)]

    def unknown(self, model: Any, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the words other than "[MASK]" that the model does not know: see `Task.unknown`."""
        return super().unknown(model, [text.replace(MASK, " ") for text in texts])

    @torch.no_grad()
    def fill(self, model: nn.Module, texts: Sequence[str]) -> list[Filled]:
        """Replace every "[MASK]" by its most probable token, independently of the others.

        A "[MASK]" beyond the tokens that the model reads is kept.
        """
        return [self._filled(model, text) for text in texts]

    def _filled(self, model: nn.Module, text: str) -> Filled:
        ids, parts = self.read(text), text.split(MASK)
        hidden = np.flatnonzero(ids == self.special_tokens.mask)
        if not len(hidden):
            return Filled(text, 0.0, len(parts) == 1)
        chances, best = self._best(model, ids, hidden)
        words = [self.decode([i]) for i in best.tolist()]
        words += [MASK] * (len(parts) - 1 - len(words))
        whole = parts[0] + "".join(w + part for w, part in zip(words, parts[1:], strict=True))
        return Filled(whole, float(chances.sum()), len(hidden) == len(parts) - 1)

    def _best(
        self, model: nn.Module, ids: NDArray[np.int32], places: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Return ln p and id of the most probable word of the tokenizer at each place."""
        states = self.states(model, torch.from_numpy(ids)[None].long())[0, places]
        logits = cast(Callable[[Tensor], Tensor], model.to_logits)(states).float()
        chances = logits[:, : len(self.tokenizer)].log_softmax(-1)
        chances[:, : UNKNOWN + 1] = -torch.inf
        values, indices = chances.max(-1)
        return values, indices

    @torch.no_grad()
    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return ln p of the word that fills each "[MASK]". Raises: a text without one."""
        ids = self.read(text)
        places = np.flatnonzero(ids == self.special_tokens.mask)
        chances, best = self._best(model, ids, places)
        words = {
            place: NextWord(self.names([word])[0], chance, word)
            for place, chance, word in zip(
                places.tolist(), chances.exp().tolist(), best.tolist(), strict=True
            )
        }
        return filled(model, ids.tolist(), self.names(ids), words, words=len(self.tokenizer))

    def _states(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        padded = int(batch.lengths.min()) < batch.tokens.shape[1]
        types = batch.types if self.settings.next_sentence else None
        return cast(Tensor, model(batch.tokens, batch.lengths if padded else None, types))

    def _asking(self, batch: MaskedBatch, states: Tensor, places: Tensor) -> Targets:
        return Targets(states.flatten(0, 1)[places], batch.wanted.flatten()[places])

    @property
    def _symbols(self) -> int:
        return SYMBOLS if self.settings.next_sentence else 2

    @property
    def most(self) -> int:
        """Return the maximum tokens of a chunk: `length` without the symbols."""
        return self.settings.length - self._symbols
