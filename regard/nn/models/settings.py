"""The settings of every model, without torch: the command line lists them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard.core.errors import RegardError
from regard.core.names import layers_of
from regard.core.ranges import LogUniform, Range, Uniform
from regard.core.settings import Settings

#: Positions that compress= rejects: they add a number for each pair, or define the score.
BETWEEN_PAIRS = (
    "alibi", "alibi-signed", "kerple", "fire", "t5-bias", "relative-keys", "disentangled",
    "tree-keys", "xpos", "pope",
)  # fmt: skip

# Settings shared by several models; `regard train TASK --settings` prints their descriptions.
Width = Annotated[int, Field(ge=1, description="size of a word's vector")]
Layers = Annotated[int, Field(ge=1, description="number of blocks")]
Heads = Annotated[int, Field(ge=1, description="attention heads; must divide the width")]
SharedHeads = Annotated[
    int, Field(ge=0, description="key-value heads shared by the heads; 0: as many as heads")
]
Inner = Annotated[int, Field(ge=1, description="hidden width of the feed-forward layers")]
Activation = Annotated[
    str,
    Field(
        description="activation of the feed-forward layers: gelu, gelu-tanh, relu, silu, or gated "
        "by a second linear map: gated-gelu, …"
    ),
]
Score = Annotated[
    str,
    Field(
        description="how queries and keys are compared: scaled-dot, dot, general, additive, "
        "cosine, gaussian, synthesizer, …, or your own class, FILE.py:Name; changes follow it: "
        "scaled-dot+qk-norm+soft-cap-50"
    ),
]
Position = Annotated[
    str,
    Field(
        description="positional encoding: none, sinusoidal, learned, rotary, alibi, t5-bias, "
        "relative-keys, disentangled, …, or with options, rotary-base-500000-part-0.5; by layer: "
        "rotary*3/none"
    ),
]
Normalize = Annotated[
    str,
    Field(description="turns scores into weights: softmax, sparsemax, entmax15, top-k, sigmoid, …"),
]
Attention = Annotated[
    str,
    Field(
        description="attention of a block: multi-head, gated, differential, forgetting, latent, "
        "moba, dsa, linear, linear-relu, linear-softmax, retention, gla, delta, kda, ssd, or with "
        "numbers, moba-16-3 (3 blocks of 16 words per query), or your own class, FILE.py:Name; "
        "with stages before the output projection: multi-head+exclusive, +gate, +gate-heads, "
        "+value-residual; by layer: delta*3/multi-head"
    ),
]
Pattern = Annotated[
    str,
    Field(
        description="which words a word may attend to: none (all), causal, window-64, "
        "dilated-64-2, window-64+global-4, bigbird; by layer: window-64*5/none"
    ),
]
WriterPattern = Annotated[
    str,
    Field(
        description="which words a word may attend to in the encoder and, among earlier words, in "
        "the decoder: none (all), window-64, dilated-64-2, window-64+global-4, bigbird; "
        "cross-attention always sees the whole source"
    ),
]
Compress = Annotated[
    str,
    Field(description="project keys and values to fewer rows: linformer, or linformer-32 for 32"),
]
EncoderCompress = Annotated[
    str,
    Field(
        description="project keys and values of the encoder's self-attention to fewer rows: "
        "linformer, or linformer-32 for 32; not in the decoder, where mixing would reveal later "
        "words"
    ),
]
Dropout = Annotated[float, Field(ge=0, lt=1, description="dropout probability in training")]
AttentionDropout = Annotated[
    float, Field(ge=0, lt=1, description="dropout probability of attention weights")
]
WordDropout = Annotated[
    float,
    Field(
        ge=0,
        lt=1,
        description="fraction of words dropped: helps with long texts and few examples, hurts "
        "where every word matters (the built-in reviews: 0)",
    ),
]
InitStd = Annotated[float, Field(gt=0, description="standard deviation of initial word vectors")]
Vectors = Annotated[
    str,
    Field(
        description="pretrained word vectors, which set the width: glove-100, a file, or with its "
        "own tokenizer wordllama or a folder or hub name of model2vec"
    ),
]
Norm = Annotated[
    Literal["pre", "post"], Field(description="LayerNorm before each sublayer, or after each sum")
]
Residual = Annotated[
    Literal["sum", "depth-attention"],
    Field(
        description="input of a sublayer: the sum of the words and all outputs before it, or their "
        "average weighed by attention over depth, which needs pre-norm blocks"
    ),
]
Tie = Annotated[bool, Field(description="share input and output word vectors")]
DecoderLayers = Annotated[int, Field(ge=0, description="decoder blocks; 0: as many as layers")]
Epsilon = Annotated[float, Field(gt=0, description="added to the variance in norms")]
#: Default search ranges of networks that label texts.
SEARCH_NETWORKS: Mapping[str, Range] = {
    "dropout": Uniform(0.0, 0.6),
    "word_dropout": Uniform(0.0, 0.3),
    "init_std": LogUniform(0.03, 1.0),
}


class TextClassifierSettings(Settings):
    """Settings of a text classifier: words → self-attention blocks → pooled vector → labels.

    With ``layers=0`` only ``pool_score`` is used. The task truncates to the same ``length``.
    """

    search: ClassVar[Mapping[str, Range]] = SEARCH_NETWORKS

    width: Width = 128
    layers: int = Field(3, ge=0, description="blocks of self-attention")
    heads: Heads = 1
    block: Literal["plain", "residual", "pre-norm", "post-norm"] = Field(
        "plain",
        description="g(f(x)) with attention f and a layer g; g(x + f(LayerNorm x)); or a "
        "Transformer's, x + f(LayerNorm x) or LayerNorm(x + f(x)), then the same with a "
        "feed-forward layer",
    )
    residual: Residual = "sum"
    pool: Literal["mean", "attention", "query-from-mean", "cls"] = Field(
        "mean", description="how states are reduced to one vector"
    )
    attention: Attention = "multi-head"
    score: Score = "scaled-dot"
    position: Position = "none"
    pool_score: str = Field("dot", description="attention score of the pool; see score")
    normalize: Normalize = "softmax"
    pattern: Pattern = "none"
    compress: Compress = "none"
    key_value_heads: SharedHeads = 0
    feedforward: int = Field(256, ge=1, description="feed-forward width of a Transformer's block")
    activation: Activation = "gelu"
    dropout: Dropout = 0.2
    attention_dropout: AttentionDropout = 0.0
    word_dropout: WordDropout = 0.1
    init_std: InitStd = 0.1
    length: int = Field(
        400,
        ge=1,
        description="maximum tokens per text, for learned positions, synthesizers, linformer and "
        "bigbird",
    )
    vectors: Vectors = ""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        """Reject combinations that the network would reject when it is built."""
        for key in ("pattern", "compress"):
            value = getattr(self, key)
            if value != "none" and not self.layers:
                raise RegardError(
                    f"{key}={value} needs self-attention, which layers=0 does not have; use "
                    "layers=1 or more"
                )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise RegardError(
                f"key_value_heads={self.key_value_heads} does not divide heads={self.heads}; use "
                "a divisor of heads"
            )
        reject_positions(self.compress, self.pattern, self.position, self.score)
        return self


def reject_positions(compress: str, pattern: str, position: str, score: str) -> None:
    """Reject settings that depend on word positions where ``compress`` mixes all words first.

    Raises: a pattern; a position given by a number for each pair of words; a synthesizer.
    """
    if compress == "none":
        return
    mixed = f"compress={compress} mixes all words before attention"
    if pattern != "none":
        raise RegardError(f"{mixed}, so pattern={pattern} cannot mask some; set only one of them")
    if any(
        layer == name or layer.startswith(f"{name}-")
        for layer in layers_of(position)
        for name in BETWEEN_PAIRS
    ):
        raise RegardError(
            f"{mixed}, so there is no distance for position={position}; use rotary, sinusoidal, "
            "learned or none"
        )
    if score.startswith("synthesizer"):
        raise RegardError(
            f"{mixed}, so score={score} has no word positions to use; use a score that compares "
            "content, such as scaled-dot"
        )


class RecurrentSettings(Settings):
    """Settings of a bidirectional LSTM followed by a pool."""

    search: ClassVar[Mapping[str, Range]] = SEARCH_NETWORKS

    width: Width = 128
    hidden: int = Field(96, ge=1, description="size of a state, per direction")
    layers: int = Field(1, ge=1, description="number of LSTM layers")
    pool: Literal["max", "mean", "attention"] = Field(
        "max", description="how states are reduced to one vector"
    )
    dropout: Dropout = 0.3
    word_dropout: WordDropout = 0.1
    init_std: InitStd = 0.1
    vectors: Vectors = ""


class ConvolutionalSettings(Settings):
    """Settings of a max-pooled convolutional network; sizes and dropout of Kim 2014."""

    search: ClassVar[Mapping[str, Range]] = SEARCH_NETWORKS

    width: Width = 300
    filters: int = Field(100, ge=1, description="filters per width")
    widths: str = Field(
        "3,4,5", pattern=r"^[1-9]\d*(,[1-9]\d*)*$", description="filter widths, in words"
    )
    dropout: Dropout = 0.5
    word_dropout: WordDropout = 0.0
    init_std: InitStd = 0.1
    vectors: Vectors = ""


class Seq2SeqSettings(Settings):
    """Settings of a GRU encoder and a GRU decoder; see `regard.nn.models.seq2seq.Seq2Seq`."""

    search: ClassVar[Mapping[str, Range]] = {
        "dropout": Uniform(0.0, 0.5),
        "init_std": LogUniform(0.03, 1.0),
    }

    width: Width = 256
    hidden: int = Field(256, ge=2, description="size of a state")
    attend_step: Literal["none", "previous", "current"] = Field(
        "previous", description="decoder state that attends: none, the previous or the current one"
    )
    score: Score = "additive"
    normalize: Normalize = "softmax"
    readout: Literal["state", "maxout", "joined"] = Field(
        "state",
        description="input of the output layer: state; state, word and context; state and context",
    )
    bidirectional: bool = Field(True, description="encode in both directions, half of hidden each")
    dropout: Dropout = 0.2
    attention_dropout: AttentionDropout = 0.0
    init_std: InitStd = 0.1
    length: int = Field(256, ge=1, description="maximum tokens per source, for synthesizers")
    tie: bool = Field(False, description="share source and target word vectors")
    start: Literal["zeros", "learned"] = Field(
        "zeros", description="vector of the symbol before the first word"
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.bidirectional and self.hidden % 2:
            raise RegardError(
                f"hidden={self.hidden} does not divide into two directions; use an even number, "
                "or bidirectional=0"
            )
        if self.attend_step == "none" and self.readout == "joined":
            raise RegardError(
                "readout=joined needs a context; attend_step=none has none; use readout=state"
            )
        return self


class StackSettings(Settings):
    """Base settings of stacks of attention and feed-forward layers."""

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
    residual: Residual = "sum"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    key_value_heads: SharedHeads = 0
    length: int = Field(
        256,
        ge=1,
        description="maximum tokens per text, for learned positions and synthesizers",
    )


class TransformerSettings(StackSettings):
    """Settings of an encoder-decoder Transformer; extends `StackSettings`."""

    layers: Layers = 3
    decoder_layers: DecoderLayers = 0
    heads: Heads = 4
    norm: Norm = "pre"
    position: Position = "sinusoidal"
    pattern: WriterPattern = "none"
    compress: EncoderCompress = "none"
    tie: bool = Field(True, description="share source, target and output word vectors")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        reject_positions(self.compress, self.pattern, self.position, self.score)
        return self


class GPTSettings(StackSettings):
    """Settings of a decoder-only Transformer; extends `StackSettings`."""

    pattern: str = Field(
        "none",
        description="which earlier words a word may attend to: none (all), window-64, …",
    )
    tie: Tie = True
    epsilon: Epsilon = 1e-5


class BERTSettings(StackSettings):
    """Settings of an encoder-only, bidirectional Transformer; extends `StackSettings`."""

    norm: Norm = "post"
    pattern: Pattern = "none"
    compress: Compress = "none"
    types: int = Field(2, ge=0, description="segment types with a vector each; 0: none")
    epsilon: Epsilon = 1e-12

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        reject_positions(self.compress, self.pattern, self.position, self.score)
        return self


class EncoderSettings(BERTSettings):
    """Settings of an encoder, possibly pretrained, that labels texts; extends `BERTSettings`.

    With ``weights`` the sizes are those of the pretrained model.
    """

    weights: str = Field(
        "",
        description="a pretrained BERT, RoBERTa or DistilBERT: a folder in Hugging Face's layout, "
        "or a name on the hub (NAME, ORG/NAME, or either with @REVISION); its tokenizer and sizes "
        "are used",
    )
    word_dropout: WordDropout = 0.0


class T5Settings(StackSettings):
    """Settings of an encoder-decoder T5, by default close to T5 1.1; extends `StackSettings`.

    T5 itself uses ``score=dot init_std=1`` with Adafactor, whose steps are proportional to the
    weights; AdamW's are not and saturate unscaled scores.
    ``score=dot activation=relu tie=true`` is the original T5.
    """

    layers: Layers = 3
    decoder_layers: DecoderLayers = 0
    head_width: int = Field(0, ge=0, description="width of a head; 0: width / heads")
    feedforward: Inner = 768
    activation: Activation = "gated-gelu-tanh"
    position: Position = "t5-bias"
    pattern: WriterPattern = "none"
    compress: EncoderCompress = "none"
    buckets: int = Field(
        32, ge=4, description="distance buckets with a bias each, for position=t5-bias"
    )
    farthest: int = Field(128, ge=2, description="distance beyond which all share a bucket")
    init_std: InitStd = 0.1
    tie: Tie = False
    epsilon: Epsilon = 1e-6

    @property
    def each_head(self) -> int:
        """Return the width of a head."""
        return self.head_width or self.width // self.heads

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.head_width and self.width % self.heads:
            raise RegardError(
                f"width={self.width} is not divisible by heads={self.heads}; set head_width="
            )
        if self.position == "t5-bias" and self.farthest <= self.buckets // 2:
            raise RegardError(
                f"farthest={self.farthest} must exceed half of buckets={self.buckets}; increase "
                "farthest or use fewer buckets"
            )
        reject_positions(self.compress, self.pattern, self.position, self.score)
        return self
