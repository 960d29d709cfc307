"""The settings of every model. No torch here: the command line reads these to list its flags."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard.errors import RegardError
from regard.ranges import Choice, LogUniform, Range, Uniform
from regard.settings import Settings

#: Positions that are a number for each pair of words, and nothing done to a word itself.
BETWEEN_PAIRS = ("alibi", "t5-bias", "relative-keys", "tree-keys")

# What several models are told: its bounds, and its meaning for `regard train TASK --settings`.
Width = Annotated[int, Field(ge=1, description="numbers of a word's vector")]
Layers = Annotated[int, Field(ge=1, description="blocks upon each other")]
Heads = Annotated[int, Field(ge=1, description="of each attention, which divide the width")]
SharedHeads = Annotated[
    int, Field(ge=0, description="heads of keys and values that the heads share; 0: each its own")
]
Inner = Annotated[int, Field(ge=1, description="width of the hidden layer of feed-forward parts")]
Activation = Annotated[
    str,
    Field(
        description="bends the feed-forward parts: gelu, gelu-tanh, relu, silu, or gated by "
        "another map: gated-gelu, …"
    ),
]
Score = Annotated[
    str,
    Field(
        description="how queries and keys are compared: scaled-dot, dot, general, additive, "
        "cosine, gaussian, synthesizer, …, or a class of yours, FILE.py:Name"
    ),
]
Position = Annotated[
    str,
    Field(
        description="where words stand: none, sinusoidal, learned, rotary, alibi, t5-bias, "
        "relative-keys, …"
    ),
]
Normalize = Annotated[
    str,
    Field(
        description="what makes weights of scores: softmax, sparsemax, entmax15, top-k, sigmoid, …"
    ),
]
Attention = Annotated[
    str, Field(description="what a block looks by: multi-head, or a class of yours, FILE.py:Name")
]
Pattern = Annotated[
    str,
    Field(
        description="which words a word may look at: none (all), causal, window-64, dilated-64-2, "
        "window-64+global-4, bigbird"
    ),
]
WriterPattern = Annotated[
    str,
    Field(
        description="which words a word may look at, in what is read and, among those before it, "
        "in what is written: none (all), window-64, dilated-64-2, window-64+global-4, bigbird; "
        "what is written always sees all of what is read"
    ),
]
Compress = Annotated[
    str,
    Field(description="keys and values to fewer rows: linformer, or linformer-32 to say how many"),
]
EncoderCompress = Annotated[
    str,
    Field(
        description="keys and values of the encoder's self-attention to fewer rows: linformer, or "
        "linformer-32 to say how many; the decoder's stay, as a mix of words tells of later ones"
    ),
]
Dropout = Annotated[float, Field(ge=0, lt=1, description="share of numbers dropped in training")]
AttentionDropout = Annotated[
    float, Field(ge=0, lt=1, description="share of attention weights dropped")
]
WordDropout = Annotated[
    float,
    Field(
        ge=0,
        lt=1,
        description="share of words dropped: helps with long texts and few examples, hurts where "
        "every word decides (the built-in reviews: 0)",
    ),
]
Spread = Annotated[float, Field(gt=0, description="standard deviation of the first word vectors")]
Vectors = Annotated[
    str, Field(description="pretrained word vectors, whose width holds: glove-100 or a file")
]
Norm = Annotated[
    Literal["pre", "post"], Field(description="LayerNorm before each part, or behind each sum")
]
Tie = Annotated[bool, Field(description="words are written by the vectors they are read by")]
DecoderLayers = Annotated[int, Field(ge=0, description="0: as many as layers")]
Epsilon = Annotated[float, Field(gt=0, description="what norms add to a variance")]
Runs = Annotated[int, Field(ge=1, description="words of the longest run that is counted")]
Texts = Annotated[int, Field(ge=1, description="texts that a run of words must stand in")]
Penalty = Annotated[
    float, Field(gt=0, description="C of the linear model: large fits the training texts closely")
]

#: What a search draws for networks that label texts, and for baselines.
SEARCH_READERS: Mapping[str, Range] = {
    "dropout": Uniform(0.0, 0.6),
    "word_dropout": Uniform(0.0, 0.3),
    "spread": LogUniform(0.03, 1.0),
}
SEARCH_RUNS: Mapping[str, Range] = {
    "ngrams": Choice(("1", "2", "3")),
    "minimum": Choice(("1", "2", "3", "5")),
}


class TextClassifierSettings(Settings):
    """Words → blocks of self-attention → one vector → labels.

    Without layers only ``pool_score`` compares anything. The task truncates to the same ``length``.
    """

    search: ClassVar[Mapping[str, Range]] = SEARCH_READERS

    width: Width = 128
    layers: int = Field(3, ge=0, description="blocks of self-attention")
    heads: Heads = 1
    block: Literal["plain", "residual", "pre-norm"] = Field(
        "plain",
        description="g(f(x)) of attention f and a layer g; g(x + f(LayerNorm x)); or a "
        "Transformer's, x + f(LayerNorm x), then so its feed-forward part",
    )
    pool: Literal["mean", "attention", "query-from-mean", "cls"] = Field(
        "mean", description="what makes one vector of all states"
    )
    attention: Attention = "multi-head"
    score: Score = "scaled-dot"
    position: Position = "none"
    pool_score: str = Field("dot", description="how the pool compares, as score")
    normalize: Normalize = "softmax"
    pattern: Pattern = "none"
    compress: Compress = "none"
    key_value_heads: SharedHeads = 0
    feedforward: int = Field(256, ge=1, description="hidden width of it, where block=pre-norm")
    dropout: Dropout = 0.2
    attention_dropout: AttentionDropout = 0.0
    word_dropout: WordDropout = 0.1
    spread: Spread = 0.1
    length: int = Field(
        400,
        ge=1,
        description="tokens of the longest text, which learned positions, synthesizers, linformer "
        "and bigbird ask for",
    )
    vectors: Vectors = ""

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
        must_have_no_places(self.compress, self.pattern, self.position, self.score)
        return self


def must_have_no_places(compress: str, pattern: str, position: str, score: str) -> None:
    """Refuse settings that go by the place of a word where ``compress`` mixes all words first.

    Errors: a pattern; a position that is a number for each pair of words; a synthesizer.
    """
    if compress == "none":
        return
    mixed = f"compress={compress} mixes all words before a word looks at any"
    if pattern != "none":
        raise RegardError(f"{mixed}, so pattern={pattern} cannot hide some: take one")
    if position in BETWEEN_PAIRS:
        raise RegardError(
            f"{mixed}, so there is no distance for position={position}: take rotary, sinusoidal, "
            "learned or none"
        )
    if score.startswith("synthesizer"):
        raise RegardError(
            f"{mixed}, so score={score} has no word's place to go by: take a score of what words "
            "hold"
        )


class RecurrentSettings(Settings):
    """Bidirectional LSTM, then a pool."""

    search: ClassVar[Mapping[str, Range]] = SEARCH_READERS

    width: Width = 128
    hidden: int = Field(96, ge=1, description="numbers of a state, in each direction")
    layers: int = Field(1, ge=1, description="LSTMs upon each other")
    pool: Literal["max", "mean", "attention"] = Field(
        "max", description="what makes one vector of all states"
    )
    dropout: Dropout = 0.3
    word_dropout: WordDropout = 0.1
    spread: Spread = 0.1
    vectors: Vectors = ""


class ConvolutionalSettings(Settings):
    """Filters over a few words, the largest answer of each; sizes and dropout of Kim 2014."""

    search: ClassVar[Mapping[str, Range]] = SEARCH_READERS

    width: Width = 300
    filters: int = Field(100, ge=1, description="of each of the widths")
    widths: str = Field(
        "3,4,5", pattern=r"^[1-9]\d*(,[1-9]\d*)*$", description="words that a filter sees"
    )
    dropout: Dropout = 0.5
    word_dropout: WordDropout = 0.0
    spread: Spread = 0.1
    vectors: Vectors = ""


class NoSettings(Settings):
    """Nothing to set."""


class NeighbourSettings(Settings):
    """The pair whose source is the likest, by the letters that they share."""

    search: ClassVar[Mapping[str, Range]] = {"ngrams": Choice(("3", "4", "5"))}

    ngrams: int = Field(4, ge=1, le=8, description="letters of the longest run that is counted")
    examples: int = Field(
        20_000, ge=1, description="pairs that are kept, an even share of more than these"
    )


class TfidfSettings(Settings):
    """Logistic regression on how often runs of words stand in a text."""

    search: ClassVar[Mapping[str, Range]] = {
        **SEARCH_RUNS,
        "inverse_penalty": LogUniform(0.1, 1000.0),
    }

    ngrams: Runs = 2
    minimum: Texts = 2
    inverse_penalty: Penalty = 30.0


class NaiveBayesSVMSettings(Settings):
    """A linear SVM on runs of words, each weighed by how it parts the labels."""

    search: ClassVar[Mapping[str, Range]] = {
        **SEARCH_RUNS,
        "inverse_penalty": LogUniform(1e-3, 10.0),
        "smoothing": LogUniform(0.1, 10.0),
    }

    ngrams: Runs = 2
    minimum: Texts = 1
    inverse_penalty: Penalty = 1.0
    smoothing: float = Field(1.0, gt=0, description="count that every run of words starts from")
    interpolation: float = Field(
        0.25,
        ge=0,
        le=1,
        description="share of the SVM's own weights; the rest is naive Bayes. 1: the SVM alone",
    )


class Seq2SeqSettings(Settings):
    """A GRU reads and a GRU writes: `regard.models.seq2seq.Seq2Seq` says what each form means."""

    search: ClassVar[Mapping[str, Range]] = {
        "dropout": Uniform(0.0, 0.5),
        "spread": LogUniform(0.03, 1.0),
    }

    width: Width = 256
    hidden: int = Field(256, ge=2, description="numbers of a state")
    asks: Literal["nobody", "before", "after"] = Field(
        "before", description="when the decoder looks back: never; before or after it reads a word"
    )
    score: Score = "additive"
    normalize: Normalize = "softmax"
    readout: Literal["state", "maxout", "joined"] = Field(
        "state",
        description="what words are read out of: it alone; it, word and context; it and context",
    )
    bidirectional: bool = Field(True, description="read from both sides, with half of hidden each")
    dropout: Dropout = 0.2
    attention_dropout: AttentionDropout = 0.0
    spread: Spread = 0.1
    length: int = Field(
        256, ge=1, description="tokens of the longest source, which synthesizers ask for"
    )
    tie: bool = Field(False, description="source and target words share their vectors")

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
    """What stacks of attention and feed-forward share."""

    search: ClassVar[Mapping[str, Range]] = {"dropout": Uniform(0.0, 0.4)}

    width: Width = 256
    layers: Layers = 4
    heads: Heads = 8
    feedforward: Inner = 1024
    activation: Activation = "gelu"
    attention: Attention = "multi-head"
    score: Score = "scaled-dot"
    position: Position = "learned"
    normalize: Normalize = "softmax"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    key_value_heads: SharedHeads = 0
    length: int = Field(
        256,
        ge=1,
        description="tokens of the longest text, which learned positions and synthesizers ask for",
    )


class TransformerSettings(StackSettings):
    """An encoder and a decoder: `regard.models.transformer.Transformer`. As `StackSettings`."""

    layers: Layers = 3
    decoder_layers: DecoderLayers = 0
    heads: Heads = 4
    norm: Norm = "pre"
    position: Position = "sinusoidal"
    pattern: WriterPattern = "none"
    compress: EncoderCompress = "none"
    tie: bool = Field(True, description="source, target and output share one matrix")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        must_have_no_places(self.compress, self.pattern, self.position, self.score)
        return self


class GPTSettings(StackSettings):
    """A decoder alone: `regard.models.gpt.GPT`. As `StackSettings`."""

    pattern: str = Field(
        "none",
        description="which of the words before it a word may look at: none (all), window-64, …",
    )
    tie: Tie = True
    epsilon: Epsilon = 1e-5


class BERTSettings(StackSettings):
    """An encoder alone, in which a word looks to both sides: `regard.models.bert.BERT`.

    As `StackSettings`.
    """

    norm: Norm = "post"
    pattern: Pattern = "none"
    compress: Compress = "none"
    types: int = Field(2, ge=0, description="kinds of sentences that have a vector each; 0: none")
    epsilon: Epsilon = 1e-12

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        must_have_no_places(self.compress, self.pattern, self.position, self.score)
        return self


class EncoderSettings(BERTSettings):
    """An encoder that labels texts, which may have been pretrained elsewhere. As `BERTSettings`.

    With ``weights`` the sizes are those of the model that they name.
    """

    weights: str = Field(
        "",
        description="a pretrained BERT, RoBERTa or DistilBERT: a folder in Hugging Face's layout, "
        "or a name on the hub (NAME, ORG/NAME, or either with @REVISION); its tokens and sizes "
        "hold",
    )
    word_dropout: WordDropout = 0.0


class T5Settings(StackSettings):
    """An encoder and a decoder: `regard.models.t5.T5`, by default near T5 1.1.

    T5's own are ``score=dot spread=1``, for Adafactor, whose steps are in proportion to what they
    move; AdamW's are not, and saturate scores that nothing scales.
    ``score=dot activation=relu tie=true`` is the first T5. The rest as in `StackSettings`.
    """

    layers: Layers = 3
    decoder_layers: DecoderLayers = 0
    head_width: int = Field(0, ge=0, description="numbers of a head; 0: width / heads")
    feedforward: Inner = 768
    activation: Activation = "gated-gelu-tanh"
    position: Position = "t5-bias"
    pattern: WriterPattern = "none"
    compress: EncoderCompress = "none"
    buckets: int = Field(
        32, ge=4, description="of distances, with a bias each where position=t5-bias"
    )
    farthest: int = Field(128, ge=2, description="distance from which on all share a bucket")
    spread: Spread = 0.1
    tie: Tie = False
    epsilon: Epsilon = 1e-6

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
        must_have_no_places(self.compress, self.pattern, self.position, self.score)
        return self
