"""A sentence in, a tag for each of its words out: the settings, and the models that learn it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from regard.models import MODELS, ModelEntry
from regard.models.settings import NoSettings, RecurrentSettings, TextClassifierSettings
from regard.ranges import LogUniform, Range
from regard.settings import Settings
from regard.tasks.settings import TextColumn, TextSettings, Tokenizer, Vocabulary

__all__ = ["METRICS", "TAGGERS", "TaggingSettings"]

METRICS = {"span-f1": "span F1", "accuracy": "accuracy"}


class TaggingSettings(TextSettings):
    """Which tagged sentences, how their words are cut into tokens, and what is held out."""

    data: str = Field(
        "entities",
        description="entities, or a file: a word and its tag a line, an empty line behind each "
        "sentence (.conll, .txt, .tsv), or .conllu",
    )
    text: TextColumn = Field("", description="column of the words by number from 1; else the first")
    label: str = Field(
        "",
        description="column of the tags by number from 1; else the last; of .conllu upos, xpos, "
        "deprel, feats, lemma or misc",
    )
    group: str = Field(
        "",
        description="of .conllu a key of its comments, or KEY:SIGN, whose equal values stay on one "
        "side of every split: newdoc id",
    )
    metric: Literal["auto", "span-f1", "accuracy"] = Field(
        "auto",
        description="chooses the best weights on validation, and compares runs on test; auto: F1 "
        "of whole spans where tags mark them (B-, I-), else the share of words tagged rightly",
    )
    tokenizer: Tokenizer = "bpe"
    vocabulary: Vocabulary = 4_000
    length: int = Field(256, ge=1, description="tokens of a sentence that are read")
    truncate: Literal["head", "tail", "ends"] = Field(
        "head", description="what of a sentence is read that has more"
    )


class TokenRegressionSettings(Settings):
    """Logistic regression on a word, its spelling and its neighbours."""

    search: ClassVar[Mapping[str, Range]] = {"inverse_penalty": LogUniform(0.1, 30.0)}

    neighbours: int = Field(2, ge=0, le=5, description="words on either side that count")
    affix: int = Field(3, ge=0, le=6, description="letters of the longest beginning and end")
    minimum: int = Field(1, ge=1, description="how often a feature must occur to count")
    inverse_penalty: float = Field(
        10.0, gt=0, description="of the errors beside squared weights: C of scikit-learn"
    )


class TaggerSettings(TextClassifierSettings):
    """Self-attention over the words of a sentence; every word has an answer of its own."""

    pool: ClassVar[str] = "none"  # type: ignore[misc,assignment]
    pool_score: ClassVar[str] = "dot"  # type: ignore[misc]


class RecurrentTaggerSettings(RecurrentSettings):
    """A bidirectional LSTM; every word has an answer of its own."""

    pool: ClassVar[str] = "none"  # type: ignore[misc,assignment]


def _each_token(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes the same network with an answer for each token, and none for the text."""

    def build(settings: Any, vocabulary: int, labels: int, vectors: Any) -> Any:
        network = make(settings, vocabulary, labels, vectors)
        network.pool = None
        return network

    return build


def _tagger(name: str, says: str, settings: type[Settings] | None = None) -> ModelEntry:
    entry = MODELS[name]
    defaults = {key: value for key, value in entry.defaults.items() if key != "pool"}
    return replace(
        entry,
        says=says,
        settings=settings or entry.settings,
        make=_each_token(entry.make),
        defaults=defaults,
    )


def _baseline(name: str) -> Callable[..., Any]:
    def build(settings: Any, vocabulary: int, labels: int, vectors: Any) -> Any:
        from regard.tasks.tagging.baselines import BASELINES

        return BASELINES[name](settings, labels)

    return build


def _load(folder: Path) -> Any:
    from regard.models.baselines import load
    from regard.tasks.tagging.baselines import BASELINES

    return load(folder, BASELINES)


_ENTRIES = [
    _tagger("transformer", "layers of self-attention; Linear of each word", TaggerSettings),
    _tagger("rnn", "bidirectional LSTM; Linear of each word", RecurrentTaggerSettings),
    _tagger("cnn", "convolutions about each word; Linear"),
    _tagger("gpt", "a decoder alone, each word by what stands before it; Linear"),
    _tagger(
        "bert",
        "an encoder alone; Linear of each word; pretrained by weights=, or in a run by --init",
    ),
    _tagger("t5", "T5's encoder; Linear of each word; begun from a pretrained one by --init"),
    ModelEntry(
        "most-frequent-tag",
        "the tag that each word has most often; of an unknown word, the commonest of all",
        NoSettings,
        _baseline("most-frequent-tag"),
        load=_load,
    ),
    ModelEntry(
        "logistic-regression",
        "logistic regression on each word, its spelling and its neighbours",
        TokenRegressionSettings,
        _baseline("logistic-regression"),
        load=_load,
    ),
]
TAGGERS = {entry.name: entry for entry in _ENTRIES}
