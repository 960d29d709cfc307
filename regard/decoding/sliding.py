"""Decoding beyond a model's context with a sliding window."""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import RegardError
from regard.decoding.stepwise import Writer, Writing, begun


class Sliding:
    """A writer that continues texts beyond its ``context``, the maximum tokens of its input.

    When a text fills the context, its last half is read again at the first positions, and
    generation continues from it. So each token depends on the last ``context / 2`` to ``context``
    tokens, and not on other texts in the batch. Half a context is read again for each half context
    generated; sliding the window at every step would read it again for each token.

    If a prompt is longer, its last ``context`` tokens are read.

    Raises: a context below 2; several rows per text, as in beam search.
    """

    def __init__(self, writer: Writer, context: int) -> None:
        if context < 2:
            raise RegardError(f"context must be 2 or more tokens, not {context}")
        self.writer, self.context = writer, context

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the prompts."""
        sizes = zip(source, source_lengths.tolist(), strict=True)
        texts = [ids[:size][-self.context :] for ids, size in sizes]
        return cast(Writing, _SlidingWriting(self, texts, source.device))


class _SlidingWriting:
    """A batch of texts, and the decoding state of the tokens in the window."""

    def __init__(self, sliding: Sliding, texts: list[Tensor], device: torch.device) -> None:
        self.sliding, self.device = sliding, device
        self.texts, self.started = texts, False
        self.inner = self._read()

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return logits after these words, one row per text."""
        if tokens.shape[1] != 1:
            raise RegardError("beam search cannot exceed the context; use beam=1")
        if not self.started:  # the start symbol stands for the prompt, which was read
            self.started = True
            return self.inner.step(tokens, parents)
        self.texts = [torch.cat([text, new]) for text, new in zip(self.texts, tokens, strict=True)]
        full = self.sliding.context
        if max(map(len, self.texts), default=0) <= full:
            return self.inner.step(tokens, parents)
        half = full // 2
        self.texts = [text if len(text) <= full else text[-half:] for text in self.texts]
        self.inner = self._read()
        return self.inner.step(begun(len(self.texts), self.device))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep only these texts."""
        self.texts = [self.texts[row] for row in rows.tolist()]
        self.inner.keep(rows)

    def _read(self) -> Writing:
        lengths = torch.tensor([len(text) for text in self.texts], device=self.device)
        source = lengths.new_zeros(len(self.texts), max(map(len, self.texts), default=0))
        for row, text in enumerate(self.texts):
            source[row, : len(text)] = text
        return self.sliding.writer.start(source, lengths)
