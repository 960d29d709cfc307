"""A pretrained model that puts labels on texts: what it makes of a text, and one linear map."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import parsed
from regard.attention.tracing import readable
from regard.layers import marks
from regard.layers.dropout import drop
from regard.layers.embedding import inside, lose_words
from regard.models.bert import BERT
from regard.models.gpt import GPT
from regard.models.settings import EncoderSettings, GPTSettings, T5Settings
from regard.models.t5 import T5


class Tuned(nn.Module):
    """label = Linear(vector of the text), the vector made by ``body``, which may be pretrained.

    ``framed`` says how a text is put to it. ``body`` has the symbols of pretraining behind the
    ``vocabulary`` tokens (`regard.layers.marks`), so that a pretrained one fits.
    """

    body: GPT | BERT | T5

    def __init__(
        self, settings: GPTSettings | EncoderSettings | T5Settings, vocabulary: int, labels: int
    ) -> None:
        super().__init__()
        self.reads_trees = settings.position.startswith("tree-")
        self.marks, self.dropout = marks.Marks.behind(vocabulary), settings.dropout
        self.to_labels = nn.Linear(settings.width, labels)
        nn.init.normal_(self.to_labels.weight, std=0.02)
        nn.init.zeros_(self.to_labels.bias)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch labels"]:
        """Logits of the labels; ``parents`` as `regard.models.text_classifier` has them."""
        if parents is not None:
            with parsed(self.framed_tree(parents)):
                along: Tensor = self(tokens, lengths)
            return along
        logits: Tensor = self.to_labels(
            drop(self.vector(tokens, lengths), self.dropout, self.training)
        )
        return logits

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """One vector of each text."""
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
        self.body: GPT = GPT(settings, vocabulary + marks.COUNT)

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """The state of [CLS]."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 1)
        read[:, :-1] = tokens * inside(lengths, tokens.shape[1])
        read[rows, lengths] = self.marks.classify
        return cast(Tensor, self.body(read))[rows, lengths]

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
    model sets ``marks`` to their numbers.
    """

    def __init__(self, settings: EncoderSettings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        words = vocabulary if settings.weights else vocabulary + marks.COUNT
        self.word_dropout = settings.word_dropout
        self.body: BERT = BERT(settings, words, heads=False)

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """The mean state of the text's words and symbols."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        if self.training:
            tokens = lose_words(tokens, self.word_dropout, self.marks.mask)
        read = tokens.new_zeros(tokens.shape[0], tokens.shape[1] + 2)
        read[:, 0] = self.marks.classify
        read[:, 1:-1] = tokens * inside(lengths, tokens.shape[1])
        read[rows, lengths + 1] = self.marks.separator
        padded = not readable(lengths) or bool((lengths + 2 < read.shape[1]).any())
        states = self.body(read, lengths + 2 if padded else None)
        real = inside(lengths + 2, read.shape[1])[..., None]
        mean: Tensor = (states * real).sum(1) / (lengths + 2)[:, None]
        return mean

    def framed(self, tokens: Sequence[str]) -> list[str]:
        return ["[CLS]", *tokens, "[SEP]"]

    def framed_tree(self, parents: Tensor) -> Int[Tensor, "batch read"]:
        """[CLS] is the root that all others, and [SEP], hang on."""
        return F.pad(F.pad(parents + 1, (0, 1)), (1, 0), value=-1)


class TunedT5(Tuned):
    """The mean of what the encoder makes of the words (Ni et al. 2022, "Sentence-T5")."""

    def __init__(self, settings: T5Settings, vocabulary: int, labels: int) -> None:
        super().__init__(settings, vocabulary, labels)
        self.body: T5 = T5(settings, vocabulary + marks.COUNT + marks.SENTINELS)

    def vector(self, tokens: Tensor, lengths: Tensor) -> Float[Tensor, "batch width"]:
        """The mean state of the words of each text; zeros of a text without words."""
        states = self.body.encode(tokens, lengths)
        real = inside(lengths, tokens.shape[1])[..., None]
        return (states * real).sum(1) / lengths.clamp(min=1)[:, None]
