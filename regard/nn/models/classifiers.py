"""Text classifiers with the body of a pretrained model: GPT, BERT or T5."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import parsed
from regard.attention.tracing import readable
from regard.core.names import reads_trees
from regard.nn.layers import special_tokens
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import PAD, inside, lose_words
from regard.nn.layers.pooling import LastPool, MeanPool
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import EncoderSettings, GPTSettings, T5Settings
from regard.nn.models.t5 import T5


class Classifier(nn.Module):
    """label = Linear(vector of the text), a vector computed by ``body``.

    The ids of the special tokens of pretraining follow the ``vocabulary`` tokens
    (`regard.nn.layers.special_tokens`), so that ``body`` can be a pretrained model. Two texts are
    given as one, with id 0 between them, which becomes [SEP].
    """

    body: GPT | BERT | T5
    #: Number of special tokens before a text.
    prefix: ClassVar[int] = 0

    def __init__(
        self, settings: GPTSettings | EncoderSettings | T5Settings, vocabulary: int, labels: int
    ) -> None:
        super().__init__()
        self.reads_trees = reads_trees(settings.position)
        self.special_tokens, self.dropout = (
            special_tokens.SpecialTokens.after(vocabulary),
            settings.dropout,
        )
        #: Reduces the states to one vector; None: one answer for each token.
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
        """Return the logits of each text's labels, or of each token's if there is no pool.

        ``parents`` are those of `regard.nn.models.text_classifier`.
        """
        if parents is not None:
            with parsed(self.framed_tree(parents)):
                tree_logits: Tensor = self(tokens, lengths)
            return tree_logits
        if self.pool is None:
            states = self.read(tokens, lengths)[0][:, self.prefix :][:, : tokens.shape[1]]
        else:
            states = self.vector(tokens, lengths)
        logits: Tensor = self.to_labels(drop(states, self.dropout, self.training))
        return logits

    def separated(self, tokens: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
        """Return the tokens with [SEP] in place of id 0, between two texts and in the padding."""
        return tokens.masked_fill(tokens == PAD, self.special_tokens.separator)

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """Return the vector of each text."""
        assert self.pool is not None
        vector: Tensor = self.pool(*self.read(tokens, lengths))
        return vector

    def read(
        self, tokens: Tensor, lengths: Tensor
    ) -> tuple[Float[Tensor, "batch read width"], Int[Tensor, " batch"]]:
        """Return the body's states and the number of valid states in each row."""
        raise NotImplementedError

    def framed(self, tokens: Sequence[str]) -> list[str]:
        """Return the tokens that the body reads, with special tokens by name."""
        return list(tokens)

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """Return the parents of the tokens that the body reads, including special tokens."""
        return parents


class GPTClassifier(Classifier):
    """GPT on the text and [CLS], and the state of [CLS]. Radford et al. 2018, section 3.2."""

    def __init__(self, settings: GPTSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        self.body: GPT = GPT(settings, vocabulary + special_tokens.COUNT)
        self.pool = LastPool()

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the text and of [CLS] after it."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 1)
        read[:, :-1] = self.separated(tokens) * inside(lengths, tokens.shape[1])
        read[rows, lengths] = self.special_tokens.classify
        return self.body(read), lengths + 1

    def framed(self, tokens: Sequence[str]) -> list[str]:
        return [*tokens, "[CLS]"]

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """Return the parents of the text's tokens and of [CLS], a root."""
        return F.pad(parents, (0, 1), value=-1)


class BERTClassifier(Classifier):
    """BERT on [CLS] text [SEP], or [CLS] text [SEP] text [SEP], and the mean of all states.

    The types of the tokens are 0 up to the first [SEP] and then 1. In training, words are replaced
    by [MASK] with probability ``word_dropout``, as in pretraining.

    Devlin et al. 2019, section 4.1, take the state of [CLS]. Without next-sentence prediction that
    state is not pretrained, and few labels do not suffice to train it. With ``settings.weights``
    the special tokens are among the ``vocabulary`` tokens, the caller sets ``special_tokens`` to
    their ids, and the separator, not id 0, stands between two texts.
    """

    prefix = 1

    def __init__(self, settings: EncoderSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        words = vocabulary if settings.weights else vocabulary + special_tokens.COUNT
        self.word_dropout, self.pretrained = settings.word_dropout, bool(settings.weights)
        self.body: BERT = BERT(settings, words, heads=False)

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the text and of the special tokens around it."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        separator = self.special_tokens.separator
        if not self.pretrained:
            tokens = self.separated(tokens)
        if self.training:
            fewer = lose_words(tokens, self.word_dropout, self.special_tokens.mask)
            tokens = fewer.where(tokens != separator, separator)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 2)
        read[:, 0] = self.special_tokens.classify
        read[:, 1:-1] = tokens * inside(lengths, tokens.shape[1])
        read[rows, lengths + 1] = separator
        types = None
        if self.body.types is not None and self.body.types.num_embeddings > 1:
            ends = (read == separator).long()
            types = (ends.cumsum(1) > ends).long()
        padded = not readable(lengths) or bool((lengths + 2 < read.shape[1]).any())
        return self.body(read, lengths + 2 if padded else None, types), lengths + 2

    def framed(self, tokens: Sequence[str]) -> list[str]:
        return ["[CLS]", *tokens, "[SEP]"]

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """Return the parents of [CLS], the root, of the text's tokens, and of [SEP]."""
        return F.pad(F.pad(parents + 1, (0, 1)), (1, 0), value=-1)


class T5Classifier(Classifier):
    """The encoder of T5, and the mean of its states (Ni et al. 2022, "Sentence-T5")."""

    def __init__(self, settings: T5Settings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        self.body: T5 = T5(settings, vocabulary + special_tokens.COUNT + special_tokens.SENTINELS)

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's states of the text."""
        return self.body.encode(self.separated(tokens), lengths), lengths
