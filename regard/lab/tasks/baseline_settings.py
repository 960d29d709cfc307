"""Settings of the fitted baselines."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from regard.core.ranges import Choice, LogUniform, Range
from regard.core.settings import Settings

Ngrams = Annotated[int, Field(ge=1, description="longest n-gram that is counted, in words")]
Texts = Annotated[int, Field(ge=1, description="minimum texts that contain an n-gram")]
Penalty = Annotated[
    float, Field(gt=0, description="C of the linear model: larger fits the training texts closer")
]

#: Default search ranges of n-grams.
SEARCH_NGRAMS: Mapping[str, Range] = {
    "ngrams": Choice(("1", "2", "3")),
    "minimum": Choice(("1", "2", "3", "5")),
}


class NoSettings(Settings):
    """A model without settings."""


class NeighbourSettings(Settings):
    """Settings of nearest-neighbour lookup by shared character n-grams."""

    search: ClassVar[Mapping[str, Range]] = {"ngrams": Choice(("3", "4", "5"))}

    ngrams: int = Field(4, ge=1, le=8, description="longest n-gram that is counted, in letters")
    examples: int = Field(
        20_000, ge=1, description="maximum pairs kept; more are subsampled evenly"
    )


class TfidfSettings(Settings):
    """Settings of logistic regression on word n-gram counts."""

    search: ClassVar[Mapping[str, Range]] = {
        **SEARCH_NGRAMS,
        "inverse_penalty": LogUniform(0.1, 1000.0),
    }

    ngrams: Ngrams = 2
    minimum: Texts = 2
    inverse_penalty: Penalty = 30.0


class NaiveBayesSVMSettings(Settings):
    """Settings of a linear SVM on word n-grams with naive Bayes weights."""

    search: ClassVar[Mapping[str, Range]] = {
        **SEARCH_NGRAMS,
        "inverse_penalty": LogUniform(1e-3, 10.0),
        "smoothing": LogUniform(0.1, 10.0),
    }

    ngrams: Ngrams = 2
    minimum: Texts = 1
    inverse_penalty: Penalty = 1.0
    smoothing: float = Field(1.0, gt=0, description="added to the count of every n-gram")
    interpolation: float = Field(
        0.25,
        ge=0,
        le=1,
        description="weight of the SVM; the rest is naive Bayes; 1: the SVM alone",
    )


class FastTextSettings(Settings):
    """Settings of fastText's classifier, some by fastText's own names."""

    search: ClassVar[Mapping[str, Range]] = {
        "ngrams": Choice(("1", "2", "3")),
        "lr": LogUniform(0.05, 1.0),
    }

    ngrams: Ngrams = 2
    minimum: int = Field(1, ge=1, description="minimum count of a word")
    width: int = Field(50, ge=1, le=1_000, description="width of the vectors")
    epoch: int = Field(25, ge=1, description="passes over the texts")
    lr: float = Field(0.5, gt=0, description="learning rate at the beginning")


class StaticSettings(Settings):
    """Settings of a linear model on static word vectors."""

    search: ClassVar[Mapping[str, Range]] = {"long": Choice(("windows", "cut"))}

    weights: str = Field(
        "", description="wordllama, or a folder or hub name of model2vec or sentence-transformers"
    )
    prompt: str = Field("", description="text before each text; the encoder's own by default")
    long: Literal["windows", "cut"] = Field(
        "windows", description="texts over the longest length: mean of their parts, or cut"
    )


class SentenceSettings(StaticSettings):
    """Settings of a linear model on the vectors of a sentence encoder."""

    weights: str = Field(
        "", description="folder or hub name of a sentence encoder, such as all-MiniLM-L6-v2"
    )
