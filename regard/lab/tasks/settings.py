"""Settings of tasks, without torch; regression, tagging and symbols have theirs in `__init__`."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from regard.core.settings import Settings
from regard.lab.data.data_source import Columns, DataSource, Limits, Splits


def _share_or_file(value: object) -> object:
    """Return a share as a number; keep anything else as a file name."""
    try:
        share = float(str(value))
    except ValueError:
        if not str(value).strip():
            raise PydanticCustomError("share", "give a fraction of train, or a file") from None
        return str(value)
    if not 0 <= share < 1:
        raise PydanticCustomError("share", "a fraction of train must be between 0 and 1")
    return share


def _not_zero(value: float | str) -> float | str:
    if value == 0:
        raise PydanticCustomError("share", "a fraction of train must be greater than 0")
    return value


def _threshold(value: object) -> object:
    """Return a threshold as a number, or "chosen"."""
    try:
        number = 0.5 if value == "chosen" else float(str(value))
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise PydanticCustomError("threshold", "give chosen, or a probability between 0 and 1")
    return value if value == "chosen" else number


# Settings shared by several tasks; `regard train TASK --settings` prints their descriptions.
DataFolder = Annotated[
    str, Field(description="folder of named data sets; empty: REGARD_DATA, or the user cache")
]
Tokenizer = Annotated[
    str,
    Field(
        description="how texts are split into tokens, words of scripts without spaces (Chinese) by "
        "character: words, characters, bpe or unigram"
    ),
]
Vocabulary = Annotated[int, Field(ge=3, description="maximum vocabulary size")]
Minimum = Annotated[
    int,
    Field(
        ge=1,
        description="minimum count of a word, a character or a bpe merge to enter the vocabulary",
    ),
]
SplitSeed = Annotated[
    int, Field(ge=0, lt=2**63, description="random seed for splitting and subsampling the data")
]
TextColumn = Annotated[
    str,
    Field(description="text column, by name or by number from 1; empty: found by common names"),
]
Threshold = Annotated[float | str, BeforeValidator(_threshold)]
ShareOrFile = Annotated[float | str, BeforeValidator(_share_or_file)]
Piece = Annotated[int, Field(ge=8, description="maximum tokens per training chunk")]


#: Settings of the data by what they decide: how texts are cut into tokens, how texts are generated,
#: and from which texts a model learns.
CUTTING = frozenset({"tokenizer", "vocabulary", "minimum", "length", "truncate"})
WRITING = frozenset({"smoothing", "beam", "penalty", "judged"})
LEARNING = frozenset({"validation", "examples", "class_weights", "threshold"})
#: Settings of the data that may differ between compared runs; scores per token also need the same
#: tokens.
OWN_CHOICE = CUTTING | WRITING | LEARNING
BY_TOKEN = frozenset({"validation"})

#: Default sampling temperature for continuing a text.
TEMPERATURE = 0.8


class TextSettings(Settings):
    """Settings of the texts, their tokenization and the splits."""

    data: str = Field("", description="a file of texts and their labels")
    test: str = Field(
        "", description="for your own files: a test file; empty: a fifth of data is split off"
    )
    text: str = Field(
        "",
        description="text column, by name or by number from 1, or two texts: FIRST,SECOND; empty: "
        "found by common names",
    )
    label: str = Field(
        "",
        description="label or number column, by name or by number from 1; empty: found by common "
        "names; for .conllu a comment key, or KEY:SIGN for its value up to a sign: sent_id:-",
    )
    group: str = Field(
        "",
        description="column whose equal values stay in the same split: a customer, an author",
    )
    features: str = Field(
        "",
        description="further columns that every model reads with the text: price,country",
    )
    data_dir: DataFolder = ""
    tokenizer: Tokenizer = "words"
    vocabulary: Vocabulary = 30_000
    minimum: Minimum = 2
    length: int = Field(
        400, ge=1, description="maximum tokens per text; longer texts are truncated"
    )
    truncate: Literal["head", "tail", "ends"] = Field(
        "tail", description="which part of a longer text is kept"
    )
    duplicates: Literal["drop", "keep"] = Field(
        "drop",
        description="what happens to train texts that also occur in test; keep reproduces "
        "published evaluations that kept them",
    )
    validation: Annotated[ShareOrFile, AfterValidator(_not_zero)] = Field(
        0.1,
        description="fraction of train held out, by a hash of the group or the text; or a file",
    )
    split_seed: SplitSeed = 0
    examples: int = Field(
        0,
        ge=0,
        description="number of training texts, including those for validation; 0: all (test is "
        "never reduced)",
    )

    @property
    def source(self) -> DataSource:
        """Return where the texts come from."""
        return DataSource(
            self.data,
            data_dir=self.data_dir,
            columns=Columns(
                self.text,
                self.label,
                self.group,
                getattr(self, "labels", ""),
                getattr(self, "separator", ""),
                self.features,
            ),
            splits=Splits(self.validation, self.test, self.split_seed, self.duplicates),
        )


class ClassificationSettings(TextSettings):
    """Settings of labelled texts, their tokenization and the splits."""

    data: str = Field(
        "reviews",
        description="reviews, imdb or a file of texts and labels (.csv, .tsv, .jsonl, .txt, "
        ".parquet; .conllu: parsed sentences), or one file or folder per class: FOLDER or "
        "neg.txt,pos.txt",
    )
    labels: str = Field(
        "", description="rename labels: neg:0,pos:1; labels not listed keep their names"
    )
    separator: Literal["", "none"] = Field(
        "", description="none: values that look like several labels (a;b) are one label each"
    )
    metric: Literal[
        "accuracy", "macro-f1", "balanced-accuracy", "average-precision", "log-loss"
    ] = Field(
        "accuracy",
        description="selects the best checkpoint on validation and compares runs on test; "
        "average-precision: mean over the labels",
    )
    threshold: Threshold = Field(
        0.5,
        description="probability above which the second of two labels is predicted; chosen: the "
        "best on validation by the metric",
    )
    class_weights: str = Field(
        "none",
        description="weight of each label in the training loss: none; balanced (texts / (labels · "
        "texts of the label)); or LABEL:WEIGHT,…, with 1 for labels not listed",
    )


class SequencesSettings(Settings):
    """Settings of text pairs, their tokenization, decoding and metric."""

    data: str = Field(
        "reverse", description="reverse, dates, multi30k, eng-fra or a file of text pairs"
    )
    target: str = Field("", description="a second file, aligned line by line with the first")
    test: str = Field(
        "",
        description="for your own files: a test file; for multi30k: the name of a test set; "
        "empty: the default test set, or a part split off",
    )
    source_name: str = Field("", description="source language or column")
    target_name: str = Field("", description="target language or column")
    data_dir: DataFolder = ""
    letters: int = Field(10, ge=1, description="letters per string of reverse")
    locales: str = Field("", description="locales of dates, such as en_US,de,fr; empty: all")
    tokenizer: Tokenizer = "characters"
    vocabulary: Vocabulary = 8_000
    minimum: Minimum = 2
    longest: int = Field(
        2_000,
        ge=0,
        description="maximum characters per text; longer pairs are dropped; 0: no limit",
    )
    length: int = Field(256, ge=1, description="maximum tokens; longer pairs are not trained on")
    metric: Literal["exact", "bleu"] = Field("exact", description="metric of validation and test")
    beam: int = Field(1, ge=1, description="beam size; 1: greedy search")
    penalty: float = Field(
        0.6, ge=0, le=50, description="length penalty of beam search; 0 favours short texts"
    )
    smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="label smoothing: weight of the uniform distribution in the loss",
    )
    validation: ShareOrFile = Field(
        0.0,
        description="fraction of train held out where the data has no validation part (0: chosen "
        "automatically); or a file, like test=",
    )
    split_seed: SplitSeed = 0
    judged: int = Field(500, ge=1, description="validation texts that are decoded and scored")
    examples: int = Field(
        0, ge=0, description="number of training pairs; 0: all (reverse: 320,000, dates: 100,000)"
    )

    @property
    def source(self) -> DataSource:
        """Return where the pairs come from."""
        return DataSource(
            self.data,
            self.target,
            self.data_dir,
            Columns(self.source_name, self.target_name),
            Splits(self.validation or None, self.test, self.split_seed),
            Limits(self.examples, self.longest),
        )


class PretrainingSettings(Settings):
    """Settings of unlabelled texts, their tokenization and chunk length."""

    data: str = Field(
        "pydoc",
        description="pydoc, reviews, biographies, birthplaces, imdb, a file of texts, a pattern "
        "('texts/*.jsonl.gz') or an address (s3://…)",
    )
    text: TextColumn = ""
    data_dir: DataFolder = ""
    tokenizer: Tokenizer = "characters"
    vocabulary: Vocabulary = 8_000
    minimum: Minimum = 2
    length: Piece = 128
    validation: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="fraction of the documents held out; 0: none, evaluate on the training "
        "documents (for facts to be memorised)",
    )
    split_seed: SplitSeed = 0
    examples: int = Field(0, ge=0, description="number of training documents; 0: all")
    without: str = Field(
        "",
        description="a file, imdb or reviews that the model is evaluated on later: its texts (for "
        "a name, its test texts) are excluded",
    )
    without_text: str = Field("", description="text column of the file given by without")

    @property
    def source(self) -> DataSource:
        """Return where the texts come from."""
        without = DataSource(
            self.without, data_dir=self.data_dir, columns=Columns(self.without_text)
        )
        return DataSource(
            self.data,
            data_dir=self.data_dir,
            columns=Columns(self.text),
            splits=Splits(self.validation, seed=self.split_seed),
            limits=Limits(self.examples),
            without=without if self.without else None,
        )


class MaskedModelingSettings(PretrainingSettings):
    """`PretrainingSettings` and how each chunk is masked."""

    share: float = Field(0.15, gt=0, lt=1, description="fraction of the tokens to predict")
    next_sentence: bool = Field(
        True,
        description="also predict whether two segments follow each other; half of them do not",
    )


class SpanCorruptionSettings(PretrainingSettings):
    """`PretrainingSettings` and how each chunk is corrupted."""

    objective: Literal["spans", "prefix"] = Field(
        "spans", description="predict missing spans, or the continuation of a prefix"
    )
    share: float = Field(0.15, gt=0, lt=1, description="fraction of the tokens in missing spans")
    mean: float = Field(3.0, ge=1, description="mean tokens per span")


class BirthplacePretrainingSettings(PretrainingSettings):
    """`PretrainingSettings` with every fact in all splits."""

    data: str = Field("biographies", description="biographies, birthplaces or a file of texts")
    minimum: Minimum = 1
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="fraction of the documents held out; 0: evaluate on the training documents",
    )
    closed: bool = Field(
        True, description="end the hidden span with the mask symbol, as answers do"
    )


class AnswersSettings(Settings):
    """Settings of questions with short answers and the texts that contain them."""

    data: str = Field(
        "biographies", description="biographies, birthplaces or a .tsv file of questions"
    )
    texts: str = Field("", description="with a file: the pretraining texts")
    test: str = Field("", description="with a file: the test questions")
    data_dir: DataFolder = ""
    tokenizer: Tokenizer = "characters"
    vocabulary: Vocabulary = 8_000
    minimum: Minimum = 1
    length: Piece = 128
    longest: int = Field(32, ge=1, description="maximum tokens per answer")
    validation: float = Field(0.1, gt=0, lt=1, description="fraction of train held out")
    split_seed: SplitSeed = 0
