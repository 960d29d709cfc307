"""The settings of every model. No torch here: the command line reads these to list its flags."""

from typing import Literal, Self

from pydantic import Field, model_validator

from regard.errors import RegardError
from regard.settings import Settings

#: Positions that are a number for each pair of words, and nothing done to a word itself.
BETWEEN_PAIRS = ("alibi", "t5-bias", "relative-keys", "tree-keys")


class TextClassifierSettings(Settings):
    """Words → blocks of self-attention → one vector → labels.

    ``length`` is the longest text in tokens (the task truncates to the same setting); learned
    positions, synthesizers, linformer and bigbird need it. ``vectors`` names pretrained word
    vectors ("glove-100" or a file); the width is then theirs. Without layers only ``pool_score``
    compares anything. ``spread`` is the standard deviation of the first word vectors;
    ``word_dropout`` helps with long texts and few examples, and hurts where every word decides
    (the built-in reviews: set it to 0).

    ``normalize`` makes weights of scores, in blocks and pool: softmax, sparsemax, entmax15, top-k,
    sigmoid, … ``pattern`` is which words a word may look at: none (all), causal, window-64,
    dilated-64-2, window-64+global-4, bigbird. ``compress``: linformer, or linformer-32 to say to
    how many rows. ``attention_dropout`` drops weights in the blocks; ``key_value_heads`` below
    ``heads`` share keys and values among heads (0: every head has its own).
    """

    width: int = Field(128, ge=1)
    layers: int = Field(3, ge=0)
    heads: int = Field(1, ge=1)
    block: Literal["plain", "residual", "pre-norm"] = "plain"
    pool: Literal["mean", "attention", "query-from-mean", "cls"] = "mean"
    score: str = "scaled-dot"
    position: str = "none"
    pool_score: str = "dot"
    normalize: str = "softmax"
    pattern: str = "none"
    compress: str = "none"
    key_value_heads: int = Field(0, ge=0)
    feedforward: int = Field(256, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    word_dropout: float = Field(0.1, ge=0, lt=1)
    spread: float = Field(0.1, gt=0)
    length: int = Field(400, ge=1)
    vectors: str = ""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        """Refuse before any training what the network would refuse when it is built."""
        for key in ("pattern", "compress"):
            value = getattr(self, key)
            if value != "none" and not self.layers:
                raise RegardError(
                    f"{key}={value} acts between words that compare themselves; layers=0 has "
                    "none: take layers=1 or more"
                )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise RegardError(
                f"key_value_heads={self.key_value_heads} cannot be shared by heads={self.heads}: "
                "take a number that divides them"
            )
        if self.compress != "none":
            self._has_no_places()
        return self

    def _has_no_places(self) -> None:
        """Refuse what goes by the place of a word where all words are mixed before any looks."""
        mixed = f"compress={self.compress} mixes all words before a word looks at any"
        if self.pattern != "none":
            raise RegardError(f"{mixed}, so pattern={self.pattern} cannot hide some: take one")
        if self.position in BETWEEN_PAIRS:
            raise RegardError(
                f"{mixed}, so there is no distance for position={self.position}: take rotary, "
                "sinusoidal, learned or none"
            )
        if self.score.startswith("synthesizer"):
            raise RegardError(
                f"{mixed}, so score={self.score} has no word's place to go by: take a score of "
                "what words hold"
            )


class RecurrentSettings(Settings):
    """Bidirectional LSTM: ``hidden`` states in each direction, ``layers`` deep, then a pool."""

    width: int = Field(128, ge=1)
    hidden: int = Field(96, ge=1)
    layers: int = Field(1, ge=1)
    pool: Literal["max", "mean", "attention"] = "max"
    dropout: float = Field(0.3, ge=0, lt=1)
    word_dropout: float = Field(0.1, ge=0, lt=1)
    spread: float = Field(0.1, gt=0)
    vectors: str = ""


class ConvolutionalSettings(Settings):
    """Kim 2014: ``filters`` filters of each of the ``widths`` ("3,4,5": words a filter sees)."""

    width: int = Field(128, ge=1)
    filters: int = Field(100, ge=1)
    widths: str = Field("3,4,5", pattern=r"^[1-9]\d*(,[1-9]\d*)*$")
    dropout: float = Field(0.5, ge=0, lt=1)
    word_dropout: float = Field(0.1, ge=0, lt=1)
    spread: float = Field(0.1, gt=0)
    vectors: str = ""


class TfidfSettings(Settings):
    """``ngrams``: the longest run of words counted; ``minimum``: texts it must stand in;
    ``inverse_penalty``: the C of logistic regression."""

    ngrams: int = Field(2, ge=1)
    minimum: int = Field(2, ge=1)
    inverse_penalty: float = Field(30.0, gt=0)


class NaiveBayesSVMSettings(Settings):
    """As `TfidfSettings`; ``smoothing``: the count that every run of words starts from."""

    ngrams: int = Field(2, ge=1)
    minimum: int = Field(2, ge=1)
    inverse_penalty: float = Field(0.01, gt=0)
    smoothing: float = Field(1.0, gt=0)


class Seq2SeqSettings(Settings):
    """A GRU reads and a GRU writes: `regard.models.seq2seq.Seq2Seq` says what each form means.

    ``asks``: "nobody" (no attention), "before" or "after" a word is read; ``length`` is the longest
    source (synthesizers need it); ``spread`` is the standard deviation of the first word vectors;
    ``tie``: source and target words share their vectors.
    """

    width: int = Field(256, ge=1)
    hidden: int = Field(256, ge=2)
    asks: Literal["nobody", "before", "after"] = "before"
    score: str = "additive"
    normalize: str = "softmax"
    readout: Literal["state", "maxout", "joined"] = "state"
    bidirectional: bool = True
    dropout: float = Field(0.2, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    spread: float = Field(0.1, gt=0)
    length: int = Field(256, ge=1)
    tie: bool = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.bidirectional and self.hidden % 2:
            raise RegardError(
                f"hidden={self.hidden} does not divide into two directions: take an even number, "
                "or bidirectional=0"
            )
        if self.asks == "nobody" and self.readout == "joined":
            raise RegardError("readout=joined joins a context; asks=nobody has none: take state")
        return self


class StackSettings(Settings):
    """What stacks of attention and feed-forward share.

    ``activation`` bends the feed-forward part: gelu, gelu-tanh, relu, silu, or gated by another map
    (gated-gelu, …). ``length`` is the longest text in tokens; learned positions and synthesizers
    need it. ``attention_dropout`` drops weights; ``key_value_heads`` below ``heads`` share keys and
    values (0: every head has its own).
    """

    width: int = Field(256, ge=1)
    layers: int = Field(4, ge=1)
    heads: int = Field(8, ge=1)
    feedforward: int = Field(1024, ge=1)
    activation: str = "gelu"
    score: str = "scaled-dot"
    position: str = "learned"
    normalize: str = "softmax"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    key_value_heads: int = Field(0, ge=0)
    length: int = Field(256, ge=1)


class TransformerSettings(StackSettings):
    """An encoder and a decoder: `regard.models.transformer.Transformer`.

    ``decoder_layers``: as many as ``layers`` by default (0). ``tie``: source, target and output
    share one matrix, which takes one vocabulary. The rest as in `StackSettings`.
    """

    layers: int = Field(3, ge=1)
    decoder_layers: int = Field(0, ge=0)
    heads: int = Field(4, ge=1)
    norm: Literal["pre", "post"] = "pre"
    position: str = "sinusoidal"
    tie: bool = True


class GPTSettings(StackSettings):
    """A decoder alone: `regard.models.gpt.GPT`.

    ``pattern`` is which of the words before it a word may look at: none (all), window-64, … .
    ``tie``: words are written by the vectors that they are read by; ``epsilon`` is what norms add
    to a variance. The rest as in `StackSettings`.
    """

    pattern: str = "none"
    tie: bool = True
    epsilon: float = Field(1e-5, gt=0)


class BERTSettings(StackSettings):
    """An encoder alone: `regard.models.bert.BERT`.

    ``types`` of sentences have a vector each (0: none). The rest as in `GPTSettings`; a word looks
    to both sides.
    """

    norm: Literal["pre", "post"] = "post"
    pattern: str = "none"
    types: int = Field(2, ge=0)
    epsilon: float = Field(1e-12, gt=0)


class T5Settings(StackSettings):
    """An encoder and a decoder: `regard.models.t5.T5`, by default near T5 1.1.

    ``head_width``: width / heads by default (0). ``buckets`` of distances up to ``farthest`` have a
    bias each with ``position=t5-bias``; ``spread`` is the standard deviation of the first word
    vectors. T5's own are ``score=dot spread=1``, for Adafactor, whose steps are in proportion to
    what they move; AdamW's are not, and saturate scores that nothing scales.
    ``score=dot activation=relu tie=true`` is the first T5. The rest as in `TransformerSettings`.
    """

    layers: int = Field(3, ge=1)
    decoder_layers: int = Field(0, ge=0)
    head_width: int = Field(0, ge=0)
    feedforward: int = Field(768, ge=1)
    activation: str = "gated-gelu-tanh"
    position: str = "t5-bias"
    buckets: int = Field(32, ge=4)
    farthest: int = Field(128, ge=2)
    spread: float = Field(0.1, gt=0)
    tie: bool = False
    epsilon: float = Field(1e-6, gt=0)

    @property
    def each_head(self) -> int:
        """The width of a head."""
        return self.head_width or self.width // self.heads

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.head_width and self.width % self.heads:
            raise RegardError(
                f"width={self.width} does not divide into heads={self.heads}; say head_width="
            )
        if self.position == "t5-bias" and self.farthest <= self.buckets // 2:
            raise RegardError(
                f"farthest={self.farthest} leaves buckets={self.buckets} nothing to share: take a "
                "farther distance or fewer buckets"
            )
        return self
