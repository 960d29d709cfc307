"""Next-token prediction, the pretraining of GPT. Radford et al. 2018, equation 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.attribution import Explainable
from regard.attention.packing import places_of
from regard.core.errors import RegardError
from regard.decoding import Limits
from regard.lab.data.birthplaces import MASK_CHARACTER, PAD_CHARACTER
from regard.lab.data.fetch import Show
from regard.lab.data.texts import TextCorpus
from regard.lab.data.token_corpus import Learned, TokenCorpus, load_tokens
from regard.lab.data.token_store import TokenStream
from regard.lab.data.tokenizers import Tokenizer
from regard.lab.data.tokenizing import is_on_disk
from regard.lab.data.window_order import WindowPlan
from regard.lab.tasks.explaining import continuations
from regard.lab.tasks.pretraining.corruption import generator
from regard.lab.tasks.pretraining.task import Documents, Pretraining, Rows, Targets
from regard.lab.tasks.settings import TEMPERATURE
from regard.lab.tasks.writing.searching import Search, Writes
from regard.lab.tasks.writing.streaming import LONGEST
from regard.training.batches import pad
from regard.training.learnable import Split


@dataclass(frozen=True)
class NextTokens:
    """A batch of tokens, with the next token at each position as target."""

    tokens: Int[Tensor, "batch time"]
    wanted: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]

    @property
    def real(self) -> Bool[Tensor, "batch time"]:
        """Return the positions with a target: all but padding."""
        return (
            torch.arange(self.tokens.shape[1], device=self.lengths.device) < self.lengths[:, None]
        )


class NextToken(Pretraining[NextTokens], Writes[NextTokens]):
    """The task of predicting the token after each token; rows may end with padding."""

    keeps = "tail"
    writes = "on"

    def targets(self, model: nn.Module, batch: NextTokens) -> Targets:
        """Return the state and the next token of each position."""
        padded = int(batch.lengths.min()) < batch.tokens.shape[1]
        places = places_of(batch.real) if padded else slice(None)
        states = model(batch.tokens, batch.lengths).flatten(0, 1)
        return Targets(states[places], batch.wanted.flatten()[places])

    def shown(self, split: Split, row: Sequence[int]) -> tuple[str, str]:
        """Return input and target tokens of an example; ⁇ is the mask symbol, □ padding."""
        batch = self.batch(split, np.array([row]))
        return self._shown(batch.tokens[0]), self._shown(batch.wanted[0])

    def _shown(self, tokens: Tensor) -> str:
        pieces = [printed(name) for name in self.names(tokens.tolist())]
        joined = (" " if self.settings.tokenizer == "words" else "").join(pieces)
        missing = self.settings.length - 1 - len(tokens)
        return joined + PAD_CHARACTER * max(missing, 0)

    def read(self, text: str) -> NDArray[np.int32]:
        """Return the last `length` tokens of a text."""
        return self.whole(text)[-self.settings.length :]

    @property
    def room(self) -> int:
        """Return half of `length`, which leaves as much room for the continuation."""
        return max(self.settings.length // 2, 1)

    @property
    def limits(self) -> Limits:
        """Return the limit of a continuation: `length` less the prompt."""
        length = self.settings.length
        return Limits(ratio=-1.0, more=length, longest=max(length - 1, 1))

    def prompts(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the last tokens of each text."""
        return [self.read(text)[-self.room :] for text in texts]

    @property
    def end(self) -> int:
        """Return the id of the symbol that ends a continued text."""
        return self.special_tokens.separator

    def explainable(self, model: nn.Module, text: str) -> Explainable:
        """Return ln p of the likeliest next words, and of each word of the text."""
        return continuations(model, self.request(text, LONGEST))


def printed(name: str) -> str:
    """Return a token's name, with the characters of assignment 5 for symbols.

    >>> printed("[MASK]"), printed("a")
    ('⁇', 'a')
    """
    return {"[MASK]": MASK_CHARACTER, "[PAD]": PAD_CHARACTER}.get(name, name)


class LanguageModeling(NextToken):
    """Language modelling of one stream of documents, cut into chunks of `length` tokens.

    A separator follows each document, and no row has padding. In training, chunks begin at other
    positions in every epoch.

    Texts at an address, of a pattern, or of more than 200 MB are tokenised once into shards on the
    disk (`regard.lab.data.token_corpus`), from which each batch reads its chunks.
    """

    @cached_property
    def corpus(self) -> TextCorpus | TokenCorpus:  # type: ignore[override]
        """Load the texts in three splits, or their tokens on the disk."""
        return self.tokenise() if is_on_disk(self.settings.data) else super().corpus

    def tokenise(self, processes: int = 0, show: Show | None = None) -> TokenCorpus:
        """Return the tokens of the texts on the disk, which are written first if missing.

        Raises: as `load_tokens`; a setting that needs all texts in memory.
        """
        settings = self.settings
        if settings.examples:
            raise RegardError(
                f"examples={settings.examples} chooses among texts in memory, and those of "
                f"{settings.data} stay on the disk; name fewer files"
            )
        learned = Learned(settings.tokenizer, settings.vocabulary, settings.minimum)
        known = vars(self).get("tokenizer", learned)  # set for a run
        return load_tokens(settings.source, known, processes=processes, show=show)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Train the tokenizer on the training texts, or on a sample of those on the disk."""
        corpus = self.corpus
        return corpus.tokenizer if isinstance(corpus, TokenCorpus) else super().tokenizer

    @property
    def context(self) -> int:
        """Return `length`, beyond which generation uses a sliding window."""
        return self.settings.length

    def exported(self) -> dict[str, Any]:
        """Return what a program needs to use an exported network: also its context."""
        return {**super().exported(), "context": self.context}

    @property
    def search(self) -> Search:
        """Return the default search: sampling with seed 0, since greedy search repeats itself.

        Holtzman et al. 2020.
        """
        return Search(temperature=TEMPERATURE)

    def read(self, text: str) -> NDArray[np.int32]:
        """Return the last tokens of a text; for an empty text the symbol that begins a document."""
        ids = super().read(text)
        return ids if len(ids) else np.array([self.end], np.int32)

    def texts(self, split: Split) -> int:
        """Return the number of documents of a split, also of one on the disk."""
        corpus = self.corpus
        if isinstance(corpus, TokenCorpus):
            return corpus.index.total("documents", split)
        return super().texts(split)

    def stream(self, split: Split) -> NDArray[np.int32] | TokenStream:
        """Return all documents of a split in one row of tokens, each followed by a separator."""
        if split not in self._streams:
            if split not in self.splits and isinstance(self.corpus, TokenCorpus):
                self._streams[split] = self.corpus.streams[split]
            else:
                self._streams[split] = self._joined(self.split(split))
        return self._streams[split]

    def batches(
        self,
        split: Split,
        *,
        tokens: int,
        seed: int,
        epoch: int,
        shuffle: bool = True,
        examples: int = 0,
    ) -> Sequence[Rows]:
        """Return the rows of each batch; for a stream on the disk, they are computed on access."""
        if not isinstance(self.stream(split), TokenStream):
            return super().batches(
                split, tokens=tokens, seed=seed, epoch=epoch, shuffle=shuffle, examples=examples
            )
        lengths = self.lengths(split, seed, epoch)
        size = max(tokens // int(lengths[0]), 1)
        return WindowPlan(
            len(lengths),
            min(size, examples) if examples else size,
            seed=seed,
            epoch=epoch,
            shuffle=shuffle,
            name=lambda indexes: self.named(indexes, seed, epoch),
        )

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return chunk lengths: all equal, but the last one of validation and test may be shorter.

        Training drops a shorter last chunk.
        """
        first, length = self._cut(split, seed, epoch)
        free = len(self.stream(split)) - 1 - first
        count = max(free // length, 1)
        lengths = np.broadcast_to(np.int64(length), (count,))  # one number, however many chunks
        rest = free - count * length
        return lengths if split == "train" or rest <= 0 else np.append(lengths, rest)

    def batch(self, split: Split, indexes: Rows) -> NextTokens:
        """Return chunks of the stream, with the same shifted by one token as targets."""
        stream, rows = self.stream(split), []
        for seed, epoch, index in indexes.tolist():
            first, length = self._cut(split, seed, epoch)
            start = first + index * length
            rows.append(stream[start : start + length + 1])
        tokens, lengths = pad([row[:-1] for row in rows])
        return NextTokens(tokens, pad([row[1:] for row in rows])[0], lengths)

    def piece(self, split: Split, index: int) -> str:
        """Return the text of a chunk."""
        first, length = self._cut(split, 0, 0)
        start = first + index * length
        return self.decode(self.stream(split)[start : start + length].tolist())

    def _cut(self, split: Split, seed: int, epoch: int) -> tuple[int, int]:
        """Return the start of the first chunk and the length of each."""
        free = len(self.stream(split)) - 1
        length = max(min(self.settings.length, free), 1)
        if split != "train" or free < 2 * length:
            return 0, length
        return int(generator(seed, epoch, split).integers(length)), length

    def _joined(self, documents: Documents) -> NDArray[np.int32]:
        end = np.array([self.special_tokens.separator], np.int32)
        parts = [part for ids in documents.ids for part in (ids, end)]
        return np.concatenate(parts) if parts else np.repeat(end, 2)

    @cached_property
    def _streams(self) -> dict[str, NDArray[np.int32] | TokenStream]:
        return {}
