"""A pretrained model that puts labels on texts: what it makes of a text, and one linear map."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import parsed
from regard.attention.tracing import readable
from regard.layers import special_tokens
from regard.layers.dropout import drop
from regard.layers.embedding import inside, lose_words
from regard.layers.pooling import LastPool, MeanPool
from regard.models.bert import BERT
from regard.models.gpt import GPT
from regard.models.settings import EncoderSettings, GPTSettings, T5Settings
from regard.models.t5 import T5


class Tuned(nn.Module):
    """label = Linear(vector of the text), the vector made by ``body``, which may be pretrained.

    ``framed`` says how a text is put to it. ``body`` has the symbols of pretraining behind the
    ``vocabulary`` tokens (`regard.layers.special_tokens`), so that a pretrained one fits.
    """

    body: GPT | BERT | T5
    #: Symbols that are read before a text.
    before: ClassVar[int] = 0

    def __init__(
        self, settings: GPTSettings | EncoderSettings | T5Settings, vocabulary: int, labels: int
    ) -> None:
        super().__init__()
        self.reads_trees = settings.position.startswith("tree-")
        self.special_tokens, self.dropout = (
            special_tokens.SpecialTokens.after(vocabulary),
            settings.dropout,
        )
        #: Makes one vector of a text; None: every token has an answer of its own.
        self.pool: nn.Module | None = MeanPool()
        self.to_labels = nn.Linear(settings.width, labels)
        nn.init.normal_(self.to_labels.weight, std=0.02)
        nn.init.zeros_(self.to_labels.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of the labels: of each text, or without a pool of each token.

        ``parents`` as `regard.models.text_classifier` has them.
        """
        if parents is not None:
            with parsed(self.framed_tree(parents)):
                along: Tensor = self(tokens, lengths)
            return along
        if self.pool is None:
            states = self.read(tokens, lengths)[0][:, self.before :][:, : tokens.shape[1]]
        else:
            states = self.vector(tokens, lengths)
        logits: Tensor = self.to_labels(drop(states, self.dropout, self.training))
        return logits

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """Return one vector of each text."""
        assert self.pool is not None
        vector: Tensor = self.pool(*self.read(tokens, lengths))
        return vector

    def read(
        self, tokens: Tensor, lengths: Tensor
    ) -> tuple[Float[Tensor, "batch read width"], Int[Tensor, " batch"]]:
        """Return the last states of what the model reads, and how many of each row count."""
        raise NotImplementedError

    def framed(self, tokens: Sequence[str]) -> list[str]:
        """What the model reads of these tokens, symbols named."""
        return list(tokens)

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """The tree of what the model reads, symbols among it."""
        return parents


class TunedGPT(Tuned):
    """The text, then [CLS], whose state has seen all of it. Radford et al. 2018, section 3.2."""

    def __init__(self, settings: GPTSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        self.body: GPT = GPT(settings, vocabulary + special_tokens.COUNT)
        self.pool = LastPool()

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the text and of [CLS] behind it."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 1)
        read[:, :-1] = tokens * inside(lengths, tokens.shape[1])
        read[rows, lengths] = self.special_tokens.classify
        return self.body(read), lengths + 1

    def framed(self, tokens: Sequence[str]) -> list[str]:
        return [*tokens, "[CLS]"]

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """[CLS] is a root of its own."""
        return F.pad(parents, (0, 1), value=-1)


class TunedBERT(Tuned):
    """[CLS] text [SEP]; the mean of all states.

    In training words are hidden behind [MASK] with probability ``word_dropout``, as they were in
    pretraining.

    Devlin et al. 2019, section 4.1, take the state of [CLS]; pretrained without next sentences it
    has never been asked anything, and with few labels it is not found out what it could say.
    With ``settings.weights`` the symbols are among the ``vocabulary`` tokens, and who builds the
    model sets ``special_tokens`` to their numbers.
    """

    before = 1

    def __init__(self, settings: EncoderSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        words = vocabulary if settings.weights else vocabulary + special_tokens.COUNT
        self.word_dropout = settings.word_dropout
        self.body: BERT = BERT(settings, words, heads=False)

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the text and of the symbols about it."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        if self.training:
            tokens = lose_words(tokens, self.word_dropout, self.special_tokens.mask)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 2)
        read[:, 0] = self.special_tokens.classify
        read[:, 1:-1] = tokens * inside(lengths, tokens.shape[1])
        read[rows, lengths + 1] = self.special_tokens.separator
        padded = not readable(lengths) or bool((lengths + 2 < read.shape[1]).any())
        return self.body(read, lengths + 2 if padded else None), lengths + 2

    def framed(self, tokens: Sequence[str]) -> list[str]:
        return ["[CLS]", *tokens, "[SEP]"]

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """[CLS] is the root that all others, and [SEP], hang on."""
        return F.pad(F.pad(parents + 1, (0, 1)), (1, 0), value=-1)


class TunedT5(Tuned):
    """The mean of what the encoder makes of the words (Ni et al. 2022, "Sentence-T5")."""

    def __init__(self, settings: T5Settings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        self.body: T5 = T5(settings, vocabulary + special_tokens.COUNT + special_tokens.SENTINELS)

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's states of the text."""
        return self.body.encode(tokens, lengths), lengths
