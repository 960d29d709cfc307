"""Span corruption and prefix language modelling, the pretraining of T5. Raffel et al. 2020."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.packing import places_of
from regard.decoding import Limits
from regard.lab.tasks.pretraining.corruption import Halves, generator, halves, spans
from regard.lab.tasks.pretraining.task import FromPieces, Rows, Targets
from regard.lab.tasks.settings import SpanCorruptionSettings
from regard.lab.tasks.writing.encoded import PairBatch, paired
from regard.lab.tasks.writing.searching import Writes
from regard.nn.layers import special_tokens
from regard.training.learnable import Split

_sentinel = re.compile(r"<extra_id_([0-9]{1,2})>")


class SpanCorruption(FromPieces[PairBatch], Writes[PairBatch]):
    """Prediction of missing spans (or of a continuation) by an encoder and a decoder.

    ``objective=spans`` uses `corruption.spans`, ``prefix`` uses `halves`; the separator ends a
    target. The spans are drawn anew in every epoch.
    """

    settings: SpanCorruptionSettings
    placeholder = "<extra_id_0>"

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes for which a network is built, sentinels included."""
        return {
            "vocabulary": len(self.tokenizer) + special_tokens.COUNT + special_tokens.SENTINELS,
            "labels": 0,
        }

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return an upper bound of the tokens of each chunk: both sides, sentinels and the end."""
        pieces = self.pieces(split)
        sizes: NDArray[np.int64] = pieces[:, 2] - pieces[:, 1] + 1
        if self.settings.objective == "spans":
            most = np.ceil(sizes * self.settings.share / self.settings.mean).astype(np.int64)
            sizes = sizes + 2 * np.maximum(most, 1)
        return sizes

    def batch(self, split: Split, indexes: Rows) -> PairBatch:
        """Return the sources and targets of chunks as tensors."""
        rows = [self.example(split, *row) for row in indexes.tolist()]
        return paired([row.source for row in rows], [row.target for row in rows], self.end)

    def example(self, split: Split, seed: int, epoch: int, index: int) -> Halves:
        """Return a chunk as corrupted in an epoch."""
        random = generator(seed, epoch, split, index)
        document, start, stop = self.pieces(split)[index]
        ids, settings = self.split(split).ids[document][start:stop], self.settings
        if settings.objective == "prefix":
            return halves(ids, random)
        return spans(
            ids,
            random,
            sentinel=self.special_tokens.sentinel(0),
            sentinels=special_tokens.SENTINELS,
            share=settings.share,
            mean=settings.mean,
        )

    def targets(self, model: nn.Module, batch: PairBatch) -> Targets:
        """Return the decoder's state and the true token at each target position."""
        places = places_of(batch.real)
        states = model(batch.source, batch.source_lengths, batch.decoder_input).flatten(0, 1)
        return Targets(states[places], batch.wanted.flatten()[places])

    def shown(self, split: Split, row: Sequence[int]) -> tuple[str, str]:
        """Return the source and the target of an example."""
        example = self.example(split, *row)
        return self._shown(example.source), self._shown(example.target)

    def _shown(self, ids: NDArray[np.integer]) -> str:
        pieces = self.names(ids.tolist())
        return (" " if self.settings.tokenizer == "words" else "").join(pieces)

    def whole(self, text: str) -> NDArray[np.int32]:
        """Return the tokens of a text, with "<extra_id_0>" … as sentinels."""
        parts = _sentinel.split(text)
        tokens: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                tokens.append(self.special_tokens.sentinel(int(part)))
            elif part:
                tokens += self.encode([part])[0].tolist()
        return np.array(tokens, np.int32)

    def unknown(self, model: Any, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the words except sentinels that the model does not know: see `Task.unknown`."""
        return super().unknown(model, [_sentinel.sub(" ", text) for text in texts])

    def read(self, text: str) -> NDArray[np.int32]:
        """Return the first tokens of a text."""
        return self.whole(text)[: self.settings.length]

    @torch.no_grad()
    def states(self, model: nn.Module, tokens: Int[Tensor, "batch time"]) -> Tensor:
        """Return the decoder's state after its first symbol 0, for rows without padding."""
        lengths = torch.full((len(tokens),), tokens.shape[1])
        return cast(Tensor, model(tokens, lengths, torch.zeros(len(tokens), 1, dtype=torch.long)))

    @property
    def end(self) -> int:
        """Return the id of the separator, which ends a target."""
        return self.special_tokens.separator

    @property
    def limits(self) -> Limits:
        """Return the limit of a target's length, which depends on the source's."""
        return Limits(longest=self.settings.length)

    def prompts(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the tokens that the encoder reads of each text."""
        return [self.read(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to a text, with sentinels by name."""
        parts = groupby(ids, lambda i: i < len(self.tokenizer))
        return "".join(
            super(SpanCorruption, self).decode(several) if known else "".join(self.names(several))
            for known, several in parts
        )
