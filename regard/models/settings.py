"""The settings of every model. No torch here: the command line reads these to list its flags."""

from typing import Literal

from pydantic import Field

from regard.settings import Settings


class TextClassifierSettings(Settings):
    """Words → blocks of self-attention → one vector → labels.

    ``length`` is the longest text in tokens (the task truncates to the same setting); only
    learned positions need it. ``vectors`` names pretrained word vectors ("glove-100" or a file);
    the width is then theirs. Without layers only ``pool_score`` compares anything. ``spread`` is
    the standard deviation of the first word vectors; ``word_dropout`` helps with long texts and
    few examples, and hurts where every word decides (the built-in reviews: set it to 0).
    """

    width: int = Field(128, ge=1)
    layers: int = Field(3, ge=0)
    heads: int = Field(1, ge=1)
    block: Literal["plain", "residual", "pre-norm"] = "plain"
    pool: Literal["mean", "attention", "query-from-mean", "cls"] = "mean"
    score: str = "scaled-dot"
    position: str = "none"
    pool_score: str = "dot"
    feedforward: int = Field(256, ge=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    word_dropout: float = Field(0.1, ge=0, lt=1)
    spread: float = Field(0.1, gt=0)
    length: int = Field(400, ge=1)
    vectors: str = ""


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
