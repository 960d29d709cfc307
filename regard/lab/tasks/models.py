"""Tables of all models by name.

Torch is imported when a model is built, not when its name is read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.settings import Settings
from regard.core.settings import build as build_settings
from regard.core.tables import load
from regard.lab.tasks import describe
from regard.lab.tasks.baseline_settings import (
    FastTextSettings,
    NaiveBayesSVMSettings,
    NeighbourSettings,
    NoSettings,
    SentenceSettings,
    StaticSettings,
    TfidfSettings,
)
from regard.nn.models.settings import (
    BERTSettings,
    ConvolutionalSettings,
    EncoderSettings,
    GPTSettings,
    RecurrentSettings,
    Seq2SeqSettings,
    T5Settings,
    TextClassifierSettings,
    TransformerSettings,
)

if TYPE_CHECKING:
    from regard.nn.layers.embedding import Vectors

__all__ = ["DECODERS", "ENCODERS", "MODELS", "TEXT_BASELINES", "WRITERS", "ModelEntry"]


@dataclass(frozen=True)
class ModelEntry:
    """A model: its name, its description, its settings, and the function that builds it.

    ``description`` is a text, or a function of the settings that returns one.
    """

    name: str
    description: str | Callable[[Any], str]
    settings: type[Settings]
    make: Callable[[Any, int, int, "Vectors | None"], Any] = field(repr=False)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Loads a fitted baseline from its folder; None for a network.
    load: Callable[[Path], Any] | None = field(default=None, repr=False)
    #: Whether a baseline explains an answer by a weight for each word.
    weighs: bool = False
    #: Whether only the last layer of a pretrained network is fitted.
    frozen: bool = False
    #: Whether the model must be given pretrained weights (weights=).
    pretrained: bool = False
    #: Number of special tokens that the model adds to a text; they count towards its length.
    symbols: int = 0
    #: Whether a run keeps the fitted model; otherwise it keeps predictions alone.
    kept: bool = True
    #: Whether a fitted model depends on the seed.
    seeded: bool = False

    @property
    def baseline(self) -> bool:
        """Return whether it is a `Baseline` that is fitted, not a network."""
        return self.load is not None

    @property
    def fitted(self) -> bool:
        """Return whether it is fitted at once, not trained step by step."""
        return self.baseline or self.frozen

    @property
    def deterministic(self) -> bool:
        """Return whether all seeds give the same model."""
        return self.fitted and not self.seeded

    def configure(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """Return the model's settings: its defaults, updated by the overrides.

        >>> MODELS["transformer"].configure({"score": "additive"}).score
        'additive'
        """
        return build_settings(self.settings, {**self.defaults, **(overrides or {})})

    def describe(self, settings: Settings | None = None) -> str:
        """Describe a model with these settings, or with the default settings.

        >>> entry = MODELS["+residual"]
        >>> entry.describe(entry.configure({"layers": 1}))
        "1 layer of x' = g(x + f(LayerNorm x)), g Linear then ReLU; mean; Linear"
        """
        if isinstance(self.description, str):
            return self.description
        return self.description(settings or self.configure())

    def attends(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a model has attention weights to show.

        ``settings`` override the defaults.

        >>> MODELS["transformer"].attends({}), MODELS["transformer"].attends({"layers": 0})
        (True, True)
        >>> MODELS["rnn"].attends({}), MODELS["rnn"].attends({"pool": "attention"})
        (False, True)
        """
        values = {**self.defaults, **settings}
        if self.baseline or values.get("attend_step") == "none":
            return False
        pool, layers = values.get("pool", "mean"), values.get("layers", 1)
        has_layers = "score" in self.settings.model_fields and layers != 0
        pool_attends = "score" in self.settings.model_fields and pool != "mean"
        return bool(has_layers or pool_attends or pool == "attention")

    def build(
        self,
        settings: Settings,
        *,
        vocabulary: int,
        labels: int,
        vectors: "Vectors | None" = None,
        features: int = 0,
    ) -> Any:
        """Return an ``nn.Module`` called with (tokens, lengths), or a `Baseline` for texts.

        The initial weights come from torch's global random generator: seed it first. A network
        gets a layer ``columns`` for the numbers of further columns, if there are ``features``.
        """
        model = self.make(settings, vocabulary, labels, vectors)
        if features and not self.baseline:
            from torch import nn

            model.columns = nn.Linear(features, labels, bias=False)
            nn.init.zeros_(model.columns.weight)
        return model


def made_by(place: str, *takes: str) -> Callable[..., Any]:
    """Return a factory of the model "module:Class", which is imported when it is called.

    The class takes its settings and what it ``takes`` of "vocabulary", "labels" and "vectors".
    """

    def make(settings: Settings, vocabulary: int, labels: int, vectors: "Vectors | None") -> Any:
        given = {"vocabulary": vocabulary, "labels": labels, "vectors": vectors}
        return load(place, "model")(settings, *(given[name] for name in takes))

    return make


def baseline(
    name: str,
    description: str | Callable[[Any], str],
    settings: type[Settings],
    place: str,
    sizes: Sequence[str] = ("labels",),
    **flags: Any,
) -> ModelEntry:
    """Return the entry of the baseline "module:Class", imported when it is built or loaded.

    ``sizes``: see `made_by`. ``flags``: further fields of the entry.
    """

    def load_saved(folder: Path) -> Any:
        return load(place, "baseline").load(folder)

    return ModelEntry(name, description, settings, made_by(place, *sizes), load=load_saved, **flags)


_text_classifier = made_by(
    "regard.nn.models.text_classifier:TextClassifier", "vocabulary", "labels", "vectors"
)
_bert_classifier = made_by("regard.nn.models.classifiers:BERTClassifier", "vocabulary", "labels")


def _rung(name: str, **defaults: Any) -> ModelEntry:
    return ModelEntry(
        name, describe.text_classifier, TextClassifierSettings, _text_classifier, defaults
    )


#: Linear models on the vectors of a text encoder.
EMBEDDED: dict[str, ModelEntry] = {
    "static": baseline(
        "static",
        "linear head on the mean of static word vectors (weights=)",
        StaticSettings,
        "regard.lab.tasks.embedded:Static",
        pretrained=True,
    ),
    "sentence": baseline(
        "sentence",
        "linear head on a sentence encoder's vectors (weights=)",
        SentenceSettings,
        "regard.lab.tasks.embedded:Sentence",
        pretrained=True,
    ),
}
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
        "decoder only; state of [CLS] after the text; pretrained by a run given with --init",
        GPTSettings,
        made_by("regard.nn.models.classifiers:GPTClassifier", "vocabulary", "labels"),
        symbols=1,
    ),
    ModelEntry(
        "bert",
        "encoder only; mean of the states; pretrained with weights=, or by a run given with --init",
        EncoderSettings,
        _bert_classifier,
        symbols=2,
    ),
    ModelEntry(
        "frozen",
        "logistic regression on the mean of a pretrained encoder's states (weights=)",
        EncoderSettings,
        _bert_classifier,
        frozen=True,
        pretrained=True,
        symbols=2,
    ),
    ModelEntry(
        "t5",
        "T5 encoder; mean of the states; pretrained by a run given with --init",
        T5Settings,
        made_by("regard.nn.models.classifiers:T5Classifier", "vocabulary", "labels"),
    ),
    ModelEntry(
        "rnn",
        describe.recurrent,
        RecurrentSettings,
        made_by("regard.nn.models.rnn:RecurrentClassifier", "vocabulary", "labels", "vectors"),
    ),
    ModelEntry(
        "cnn",
        describe.convolutional,
        ConvolutionalSettings,
        made_by("regard.nn.models.cnn:ConvolutionalClassifier", "vocabulary", "labels", "vectors"),
    ),
    baseline(
        "tfidf",
        describe.tfidf,
        TfidfSettings,
        "regard.lab.tasks.baselines:Tfidf",
        weighs=True,
    ),
    baseline(
        "nb-svm",
        describe.naive_bayes_svm,
        NaiveBayesSVMSettings,
        "regard.lab.tasks.baselines:NaiveBayesSVM",
        weighs=True,
    ),
    baseline(
        "fasttext",
        "softmax of the mean of word and n-gram vectors, if the package fasttext is installed",
        FastTextSettings,
        "regard.lab.tasks.baselines:FastText",
    ),
    *EMBEDDED.values(),
]

MODELS: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}


def _writer(name: str, description: str, **defaults: Any) -> ModelEntry:
    make = made_by("regard.nn.models.seq2seq:Seq2Seq", "vocabulary", "vocabulary")
    return ModelEntry(name, description, Seq2SeqSettings, make, defaults)


_WRITING = [
    _writer(
        "gru",
        "GRU encoder and decoder without attention. Sutskever et al. 2014",
        attend_step="none",
        bidirectional=False,
    ),
    _writer(
        "bahdanau",
        "c_t = attend(s_{t−1}), additive; s_t = GRU([y_{t−1}, c_t], s_{t−1}); maxout. 2015, A.2.2",
        attend_step="previous",
        score="additive",
        readout="maxout",
    ),
    _writer(
        "lab-6",
        "bahdanau with a bilinear score; output from s_t alone",
        attend_step="previous",
        score="general",
        readout="state",
        bidirectional=False,
        start="learned",
    ),
    _writer(
        "luong-dot",
        "c_t = attend(h_t), h·s; h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5 and 8",
        attend_step="current",
        score="dot",
        readout="joined",
    ),
    _writer(
        "luong-general",
        "c_t = attend(h_t), hᵀWs; h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5 and 8",
        attend_step="current",
        score="general",
        readout="joined",
    ),
    _writer(
        "luong-concat",
        "c_t = attend(h_t), v·tanh(W[h; s]); h̃ = tanh(W[c; h]). Luong et al. 2015, equations 5, 8",
        attend_step="current",
        score="additive",
        readout="joined",
    ),
    ModelEntry(
        "transformer",
        "encoder and decoder of attention layers. Vaswani et al. 2017",
        TransformerSettings,
        made_by("regard.nn.models.transformer:Transformer", "vocabulary", "vocabulary"),
    ),
    ModelEntry(
        "t5",
        "encoder and decoder with relative position biases. Raffel et al. 2020",
        T5Settings,
        made_by("regard.nn.models.t5:T5", "vocabulary"),
    ),
]

WRITERS: dict[str, ModelEntry] = {entry.name: entry for entry in _WRITING}
#: Baselines of the models in `WRITERS`.
TEXT_BASELINES: dict[str, ModelEntry] = {
    name: baseline(name, description, settings, f"regard.lab.tasks.text_baselines:{cls}", ())
    for name, description, settings, cls in (
        ("copy", "the source text itself", NoSettings, "Copy"),
        (
            "most-frequent",
            "the most frequent target, for every text",
            NoSettings,
            "MostFrequentText",
        ),
        (
            "nearest-neighbour",
            "target of the most similar source, by TF-IDF of character n-grams",
            NeighbourSettings,
            "NearestNeighbour",
        ),
    )
}
#: Models that predict the next token.
DECODERS: dict[str, ModelEntry] = {
    "gpt": ModelEntry(
        "gpt",
        "decoder only: pre-norm blocks of causal self-attention. Radford et al. 2019",
        GPTSettings,
        made_by("regard.nn.models.gpt:GPT", "vocabulary"),
    )
}
#: Models that predict masked tokens.
ENCODERS: dict[str, ModelEntry] = {
    "bert": ModelEntry(
        "bert",
        "encoder only, trained to predict masked words. Devlin et al. 2019",
        BERTSettings,
        made_by("regard.nn.models.bert:BERT", "vocabulary"),
    )
}
