"""Every model by name: the rungs of the sentiment ladder, then what stands beside them.

Torch is loaded when a model is built, not when its name is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.models import describe
from regard.models.settings import (
    BERTSettings,
    ConvolutionalSettings,
    EncoderSettings,
    GPTSettings,
    NaiveBayesSVMSettings,
    NeighbourSettings,
    NoSettings,
    RecurrentSettings,
    Seq2SeqSettings,
    T5Settings,
    TextClassifierSettings,
    TfidfSettings,
    TransformerSettings,
)
from regard.settings import Settings
from regard.settings import build as build_settings

if TYPE_CHECKING:
    from regard.layers.embedding import Vectors

__all__ = ["DECODERS", "ENCODERS", "MODELS", "TEXT_BASELINES", "WRITERS", "ModelEntry"]


@dataclass(frozen=True)
class ModelEntry:
    """A model's name, what it computes, its settings, and how it is made of them.

    ``says`` is fixed words, or a function of the settings: `describe`.
    """

    name: str
    says: str | Callable[[Any], str]
    settings: type[Settings]
    make: Callable[[Any, int, int, "Vectors | None"], Any] = field(repr=False)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Of a baseline, which is no network but is fitted: what reads it from its folder.
    load: Callable[[Path], Any] | None = field(default=None, repr=False)
    #: Of a baseline: it tells what each word of a text adds to its answer.
    weighs: bool = False
    #: A pretrained network of which only the last layer is fitted.
    frozen: bool = False
    #: How many symbols the model itself sets about a text: room that its words do not have.
    symbols: int = 0

    @property
    def baseline(self) -> bool:
        """Whether it is no network: it is fitted, and asked by methods of its own."""
        return self.load is not None

    @property
    def deterministic(self) -> bool:
        """Whether every seed makes the same model: it is fitted, and not trained."""
        return self.baseline or self.frozen

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """This model's settings: its defaults, then the overrides.

        >>> MODELS["transformer"].configure({"score": "additive"}).score
        'additive'
        """
        return build_settings(self.settings, {**self.defaults, **(overrides or {})})

    def describe(self, settings: Settings | None = None) -> str:
        """Return what a model of these settings computes; without settings, of the defaults.

        >>> entry = MODELS["+residual"]
        >>> entry.describe(entry.configure({"layers": 1}))
        "1 layer of x' = g(x + f(LayerNorm x)), g Linear then ReLU; mean; Linear"
        """
        if isinstance(self.says, str):
            return self.says
        return self.says(settings or self.configure())

    def attends(self, settings: Mapping[str, Any]) -> bool:
        """Whether a model of these settings, the defaults beside them, has attention to look at.

        >>> MODELS["transformer"].attends({}), MODELS["transformer"].attends({"layers": 0})
        (True, True)
        >>> MODELS["rnn"].attends({}), MODELS["rnn"].attends({"pool": "attention"})
        (False, True)
        """
        said = {**self.defaults, **settings}
        if self.baseline or said.get("asks") == "nobody":
            return False
        pool, layers = said.get("pool", "mean"), said.get("layers", 1)
        has_layers = "score" in self.settings.model_fields and layers != 0
        asks_once = "score" in self.settings.model_fields and pool != "mean"
        return bool(has_layers or asks_once or pool == "attention")

    def build(
        self,
        settings: Settings,
        *,
        vocabulary: int,
        labels: int,
        vectors: "Vectors | None" = None,
    ) -> Any:
        """An ``nn.Module`` of (tokens, lengths), or of a baseline a `Baseline` of texts.

        A network's random first weights come from torch's global generator: seed it first.
        """
        return self.make(settings, vocabulary, labels, vectors)


def _text_classifier(
    settings: TextClassifierSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.text_classifier import TextClassifier

    return TextClassifier(settings, vocabulary, labels, vectors)


def _recurrent(
    settings: RecurrentSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.rnn import RecurrentClassifier

    return RecurrentClassifier(settings, vocabulary, labels, vectors)


def _convolutional(
    settings: ConvolutionalSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.cnn import ConvolutionalClassifier

    return ConvolutionalClassifier(settings, vocabulary, labels, vectors)


def _seq2seq(
    settings: Seq2SeqSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.seq2seq import Seq2Seq

    return Seq2Seq(settings, vocabulary, vocabulary)


def _transformer(
    settings: TransformerSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.transformer import Transformer

    return Transformer(settings, vocabulary, vocabulary)


def _gpt(settings: GPTSettings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
    from regard.models.gpt import GPT

    return GPT(settings, vocabulary)


def _bert(settings: BERTSettings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
    from regard.models.bert import BERT

    return BERT(settings, vocabulary)


def _t5(settings: T5Settings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
    from regard.models.t5 import T5

    return T5(settings, vocabulary)


def _tuned_gpt(
    settings: GPTSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.tuned import TunedGPT

    return TunedGPT(settings, vocabulary, labels)


def _tuned_bert(
    settings: EncoderSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.tuned import TunedBERT

    return TunedBERT(settings, vocabulary, labels)


def _tuned_t5(settings: T5Settings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
    from regard.models.tuned import TunedT5

    return TunedT5(settings, vocabulary, labels)


def _tfidf(settings: TfidfSettings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
    from regard.models.baselines import Tfidf

    return Tfidf(settings, labels)


def _naive_bayes_svm(
    settings: NaiveBayesSVMSettings, vocabulary: int, labels: int, vectors: "Vectors | None"
) -> Any:
    from regard.models.baselines import NaiveBayesSVM

    return NaiveBayesSVM(settings, labels)


def _text_baseline(name: str) -> Callable[..., Any]:
    def make(settings: Settings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
        from regard.models.text_baselines import TEXT_BASELINES

        return TEXT_BASELINES[name](settings)

    return make


def _load_text_baseline(folder: Path) -> Any:
    from regard.models.text_baselines import load

    return load(folder)


def _load_baseline(folder: Path) -> Any:
    from regard.models.baselines import load

    return load(folder)


def _rung(name: str, **defaults: Any) -> ModelEntry:
    return ModelEntry(
        name, describe.text_classifier, TextClassifierSettings, _text_classifier, defaults
    )


_ENTRIES = [
    _rung("mean", layers=0),
    _rung("attention-pool", layers=0, pool="attention"),
    _rung("query-from-mean", layers=0, pool="query-from-mean"),
    _rung("self-attention"),
    _rung("+residual", block="residual"),
    _rung("+positions", position="sinusoidal"),
    _rung("+residual+positions", block="residual", position="sinusoidal"),
    _rung("+cls", block="residual", position="sinusoidal", pool="cls"),
    _rung("transformer", block="pre-norm", heads=4, position="rotary", pool="attention"),
    ModelEntry(
        "gpt",
        "a decoder alone, the state of [CLS] behind the text; begun from a pretrained one by "
        "--init",
        GPTSettings,
        _tuned_gpt,
        symbols=1,
    ),
    ModelEntry(
        "bert",
        "an encoder alone, the mean of its states; pretrained by weights=, or in a run by --init",
        EncoderSettings,
        _tuned_bert,
        symbols=2,
    ),
    ModelEntry(
        "frozen",
        "logistic regression on the mean of a pretrained encoder's states (weights=)",
        EncoderSettings,
        _tuned_bert,
        frozen=True,
        symbols=2,
    ),
    ModelEntry(
        "t5",
        "T5's encoder, the mean of its states; begun from a pretrained one by --init",
        T5Settings,
        _tuned_t5,
    ),
    ModelEntry("rnn", describe.recurrent, RecurrentSettings, _recurrent),
    ModelEntry(
        "cnn",
        describe.convolutional,
        ConvolutionalSettings,
        _convolutional,
    ),
    ModelEntry(
        "tfidf",
        describe.tfidf,
        TfidfSettings,
        _tfidf,
        load=_load_baseline,
        weighs=True,
    ),
    ModelEntry(
        "nb-svm",
        describe.naive_bayes_svm,
        NaiveBayesSVMSettings,
        _naive_bayes_svm,
        load=_load_baseline,
        weighs=True,
    ),
]

MODELS: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}


def _writer(name: str, says: str, **defaults: Any) -> ModelEntry:
    return ModelEntry(name, says, Seq2SeqSettings, _seq2seq, defaults)


_WRITING = [
    _writer(
        "gru",
        "the encoder's last state is all the decoder knows. Sutskever et al. 2014",
        asks="nobody",
        bidirectional=False,
    ),
    _writer(
        "bahdanau",
        "c_t = attend(s_{t−1}), additive; s_t = GRU([y_{t−1}, c_t], s_{t−1}); maxout. 2015, A.2.2",
        asks="before",
        score="additive",
        readout="maxout",
    ),
    _writer(
        "lab-6",
        "as bahdanau with a bilinear score, words read out of s_t alone",
        asks="before",
        score="general",
        readout="state",
        bidirectional=False,
    ),
    _writer(
        "luong-dot",
        "c_t = attend(h_t), h·s; h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5 and 8",
        asks="after",
        score="dot",
        readout="joined",
    ),
    _writer(
        "luong-general",
        "c_t = attend(h_t), hᵀWs; h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5 and 8",
        asks="after",
        score="general",
        readout="joined",
    ),
    _writer(
        "luong-concat",
        "c_t = attend(h_t), v·tanh(W[h; s]); h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5, 8",
        asks="after",
        score="additive",
        readout="joined",
    ),
    ModelEntry(
        "transformer",
        "attention alone, an encoder and a decoder of it. Vaswani et al. 2017",
        TransformerSettings,
        _transformer,
    ),
    ModelEntry(
        "t5",
        "an encoder and a decoder that share one bias of distances. Raffel et al. 2020",
        T5Settings,
        _t5,
    ),
]

WRITERS: dict[str, ModelEntry] = {entry.name: entry for entry in _WRITING}
#: What those that write another text must beat.
TEXT_BASELINES: dict[str, ModelEntry] = {
    name: ModelEntry(name, says, settings, _text_baseline(name), load=_load_text_baseline)
    for name, says, settings in (
        ("copy", "the text that it reads", NoSettings),
        ("most-frequent", "the text that was written most often, for every text", NoSettings),
        (
            "nearest-neighbour",
            "what was written for the likest text, by TF-IDF of runs of letters",
            NeighbourSettings,
        ),
    )
}
#: Models that say what comes next.
DECODERS: dict[str, ModelEntry] = {
    "gpt": ModelEntry(
        "gpt",
        "a decoder alone: pre-norm blocks of causal self-attention. Radford et al. 2019",
        GPTSettings,
        _gpt,
    )
}
#: Models that say what stands where a word was hidden.
ENCODERS: dict[str, ModelEntry] = {
    "bert": ModelEntry(
        "bert",
        "an encoder alone: words, positions and types; masked words. Devlin et al. 2019",
        BERTSettings,
        _bert,
    )
}
