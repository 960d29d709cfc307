"""Tagging the words of sentences: settings and models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from regard.core.ranges import LogUniform, Range
from regard.core.settings import Settings
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.models import MODELS, ModelEntry, baseline
from regard.lab.tasks.settings import TextColumn, TextSettings, Tokenizer, Vocabulary
from regard.nn.models.settings import RecurrentSettings, TextClassifierSettings

__all__ = ["METRICS", "TAGGERS", "TaggingSettings"]

METRICS = {"span-f1": "span F1", "accuracy": "accuracy"}


class TaggingSettings(TextSettings):
    """Settings of tagged sentences, their tokenization and the splits."""

    data: str = Field(
        "entities",
        description="entities, or a file with a word and its tag per line and an empty line after "
        "each sentence (.conll, .txt, .tsv), or .conllu",
    )
    text: TextColumn = Field("", description="word column, by number from 1; empty: the first")
    label: str = Field(
        "",
        description="tag column, by number from 1; empty: the last; for .conllu: upos, xpos, "
        "deprel, feats, lemma or misc",
    )
    group: str = Field(
        "",
        description="for .conllu: a comment key whose equal values stay in the same split, such as "
        "newdoc id; or KEY:SIGN for its value up to a sign",
    )
    metric: Literal["auto", "span-f1", "accuracy"] = Field(
        "auto",
        description="selects the best checkpoint on validation and compares runs on test; auto: "
        "span-f1 if tags mark spans (B-, I-), else accuracy over words",
    )
    tokenizer: Tokenizer = "bpe"
    vocabulary: Vocabulary = 4_000
    length: int = Field(
        256, ge=1, description="maximum tokens per sentence; longer ones are truncated"
    )
    truncate: Literal["head", "tail", "ends"] = Field(
        "head", description="which part of a longer sentence is kept"
    )


class TokenRegressionSettings(Settings):
    """Settings of logistic regression on a word, its spelling and its neighbours."""

    search: ClassVar[Mapping[str, Range]] = {"inverse_penalty": LogUniform(0.1, 30.0)}

    neighbours: int = Field(2, ge=0, le=5, description="context words on either side")
    affix: int = Field(3, ge=0, le=6, description="maximum letters of prefixes and suffixes")
    minimum: int = Field(1, ge=1, description="minimum count of a feature")
    inverse_penalty: float = Field(
        10.0, gt=0, description="inverse of the L2 penalty, C of scikit-learn"
    )


class TaggerSettings(TextClassifierSettings):
    """Settings of a self-attention network with an output for each word."""

    pool: ClassVar[str] = "none"  # type: ignore[misc,assignment]
    pool_score: ClassVar[str] = "dot"  # type: ignore[misc]


class RecurrentTaggerSettings(RecurrentSettings):
    """Settings of a bidirectional LSTM with an output for each word."""

    pool: ClassVar[str] = "none"  # type: ignore[misc,assignment]


def _each_token(make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a model factory so that the network has an output for each token and no pooling."""

    def build(settings: Any, vocabulary: int, labels: int, vectors: Any) -> Any:
        network = make(settings, vocabulary, labels, vectors)
        network.pool = None
        return network

    return build


def _tagger(name: str, description: str, settings: type[Settings] | None = None) -> ModelEntry:
    entry = MODELS[name]
    defaults = {key: value for key, value in entry.defaults.items() if key != "pool"}
    return replace(
        entry,
        description=description,
        settings=settings or entry.settings,
        make=_each_token(entry.make),
        defaults=defaults,
    )


_ENTRIES = [
    _tagger("transformer", "self-attention layers; Linear per word", TaggerSettings),
    _tagger("rnn", "bidirectional LSTM; Linear per word", RecurrentTaggerSettings),
    _tagger("cnn", "convolutions around each word; Linear per word"),
    _tagger("gpt", "decoder, each word from the words up to it; Linear per word"),
    _tagger(
        "bert",
        "encoder; Linear per word; pretrained with weights=, or by a run given with --init",
    ),
    _tagger("t5", "T5 encoder; Linear per word; pretrained by a run given with --init"),
    baseline(
        "most-frequent-tag",
        "most frequent tag of each word; for unknown words, the most frequent tag of all",
        NoSettings,
        "regard.lab.tasks.tagging.baselines:MostFrequentTag",
    ),
    baseline(
        "logistic-regression",
        "logistic regression on each word, its spelling and its neighbours",
        TokenRegressionSettings,
        "regard.lab.tasks.tagging.baselines:TokenRegression",
    ),
]
TAGGERS = {entry.name: entry for entry in _ENTRIES}
