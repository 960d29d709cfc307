"""The settings of every task. No torch here: the command line reads these to list its flags."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from regard.settings import Settings


def _share_or_file(value: object) -> object:
    """A share as a number, whatever it came as; anything else is a file."""
    try:
        share = float(str(value))
    except ValueError:
        if not str(value).strip():
            raise PydanticCustomError("share", "give a share of train, or a file") from None
        return str(value)
    if not 0 <= share < 1:
        raise PydanticCustomError("share", "a share of train is a number between 0 and 1")
    return share


def _not_zero(value: float | str) -> float | str:
    if value == 0:
        raise PydanticCustomError("share", "a share of train is a number above 0")
    return value


# What several tasks are told: its bounds, and its meaning for `regard train TASK --settings`.
DataFolder = Annotated[
    str, Field(description="folder of named data; empty: REGARD_DATA, or the user's cache")
]
Tokenizer = Annotated[
    str, Field(description="how texts are cut into tokens: words, characters, bpe or unigram")
]
Vocabulary = Annotated[int, Field(ge=3, description="most tokens that are known")]
Minimum = Annotated[
    int,
    Field(
        ge=1,
        description="how often a word or character, or a pair that bpe joins, must stand to count",
    ),
]
SplitSeed = Annotated[
    int, Field(ge=0, lt=2**63, description="which examples are held out, and which are chosen")
]
TextColumn = Annotated[
    str,
    Field(
        description="column of the texts by name, or by number from 1, where it is not found by "
        "its name"
    ),
]
ShareOrFile = Annotated[float | str, BeforeValidator(_share_or_file)]
Piece = Annotated[int, Field(ge=8, description="tokens that are read at once, at most")]


#: By which a text is gone on with, if nothing else is said.
TEMPERATURE = 0.8


class TextSettings(Settings):
    """Which texts, how they are cut into tokens, and what is held out."""

    data: str = Field("", description="a file of texts and their answers")
    test: str = Field(
        "", description="of a file of yours: another to be judged on; empty: a fifth of it"
    )
    text: TextColumn = ""
    label: str = Field(
        "",
        description="column of the labels, or numbers, by name, or by number from 1, where it is "
        "not found by its name; of a .conllu file a key of its comments, or its value up to a "
        "sign: sent_id:-",
    )
    group: str = Field(
        "",
        description="column whose equal values stay on one side of every split: a customer, an "
        "author",
    )
    data_dir: DataFolder = ""
    tokenizer: Tokenizer = "words"
    vocabulary: Vocabulary = 30_000
    minimum: Minimum = 2
    length: int = Field(400, ge=1, description="tokens of a text that are read")
    truncate: Literal["head", "tail", "ends"] = Field(
        "tail", description="what of a text is read that has more"
    )
    duplicates: Literal["drop", "keep"] = Field(
        "drop",
        description="texts of train that stand in test too; keep repeats published evaluations "
        "that kept them",
    )
    validation: Annotated[ShareOrFile, AfterValidator(_not_zero)] = Field(
        0.1,
        description="share of train held out, by a hash of the group or the text; or a file of "
        "yours",
    )
    split_seed: SplitSeed = 0
    examples: int = Field(
        0,
        ge=0,
        description="texts to learn from, a share for validation among them; 0: all (test is "
        "whole)",
    )


class ClassificationSettings(TextSettings):
    """Which texts with labels, how they are cut into tokens, and what is held out."""

    data: str = Field(
        "reviews",
        description="reviews, imdb or a file of texts and labels (.csv, .tsv, .jsonl, .txt, "
        ".parquet; .conllu: parsed sentences), or a class in a file or folder each: FOLDER or "
        "neg.txt,pos.txt",
    )
    labels: str = Field(
        "", description="other names for labels of the files: neg:0,pos:1; those not named stay"
    )
    metric: Literal["accuracy", "macro-f1", "balanced-accuracy", "log-loss"] = Field(
        "accuracy", description="chooses the best weights on validation, and compares runs on test"
    )
    class_weights: str = Field(
        "none",
        description="weight of each label in the training loss: none; balanced (texts / (labels · "
        "texts of the label)); or LABEL:WEIGHT,…, 1 for labels not named",
    )


class SequencesSettings(Settings):
    """Which pairs of texts, how they are cut into tokens, and how what is written is judged."""

    data: str = Field("reverse", description="reverse, dates, multi30k, eng-fra or a file of pairs")
    target: str = Field("", description="a second file, line by line beside the first")
    test: str = Field(
        "",
        description="of a file of yours: another to be judged on; of multi30k: a test's name; "
        "empty: its own, or some are split off",
    )
    source_name: str = Field("", description="language or column that is read")
    target_name: str = Field("", description="language or column that is written")
    data_dir: DataFolder = ""
    letters: int = Field(10, ge=1, description="of each string of reverse")
    locales: str = Field("", description="of dates, as en_US,de,fr; empty: all")
    tokenizer: Tokenizer = "characters"
    vocabulary: Vocabulary = 8_000
    minimum: Minimum = 2
    longest: int = Field(
        2_000, ge=0, description="characters; longer pairs are left out everywhere; 0: none is"
    )
    length: int = Field(256, ge=1, description="tokens; longer pairs are left out of training")
    metric: Literal["exact", "bleu"] = Field(
        "exact", description="what validation and test are judged by"
    )
    beam: int = Field(1, ge=1, description="texts that the search goes on with; 1: greedy")
    penalty: float = Field(0.6, ge=0, description="of length, in a beam: 0 favours short texts")
    smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the loss spread over all tokens"
    )
    validation: ShareOrFile = Field(
        0.0,
        description="share of train held out where the data has none of its own (0: regard "
        "chooses); or a file of yours, as test=",
    )
    split_seed: SplitSeed = 0
    judged: int = Field(500, ge=1, description="texts that a validation writes, from all its parts")
    examples: int = Field(
        0, ge=0, description="pairs to learn from; 0: all; of reverse 320,000, of dates 100,000"
    )


class PretrainingSettings(Settings):
    """Which texts, how they are cut into tokens, and how long a piece is read at once."""

    data: str = Field(
        "pydoc", description="pydoc, reviews, biographies, birthplaces, imdb or a file of texts"
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
        description="share of the documents held out; 0: none, and those that were read judge "
        "(for facts to be learned by heart)",
    )
    split_seed: SplitSeed = 0
    examples: int = Field(0, ge=0, description="documents to learn from; 0: all")
    without: str = Field(
        "",
        description="a file, or imdb or reviews, that the model is to be judged by later: its "
        "texts, of a name those of its test, are left out",
    )
    without_text: str = Field("", description="the column of that file's texts")


class MaskedModelingSettings(PretrainingSettings):
    """As `PretrainingSettings`, and what is asked of each piece."""

    share: float = Field(0.15, gt=0, lt=1, description="of the tokens that are asked about")
    next_sentence: bool = Field(
        True,
        description="half of the pieces are two that do not follow each other; which, is asked too",
    )


class SpanCorruptionSettings(PretrainingSettings):
    """As `PretrainingSettings`, and what each piece lacks."""

    objective: Literal["spans", "prefix"] = Field(
        "spans", description="spans are missing; or a prefix is read, and the rest is written"
    )
    share: float = Field(0.15, gt=0, lt=1, description="of a piece that stands in missing spans")
    mean: float = Field(3.0, ge=1, description="tokens of a span")


class BirthplacePretrainingSettings(PretrainingSettings):
    """As `PretrainingSettings`, with every fact in all splits."""

    data: str = Field("biographies", description="biographies, birthplaces or a file of texts")
    minimum: Minimum = 1
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the documents held out; 0: those that were read judge",
    )
    closed: bool = Field(
        True, description="the hidden span ends with the mask symbol, as an answer does"
    )


class AnswersSettings(Settings):
    """Questions with short answers, and the texts that hold them."""

    data: str = Field(
        "biographies", description="biographies, birthplaces or a .tsv file of questions"
    )
    texts: str = Field("", description="with a file: the texts of pretraining")
    test: str = Field("", description="with a file: the questions to be judged on")
    data_dir: DataFolder = ""
    tokenizer: Tokenizer = "characters"
    vocabulary: Vocabulary = 8_000
    minimum: Minimum = 1
    length: Piece = 128
    longest: int = Field(32, ge=1, description="tokens of an answer")
    validation: float = Field(0.1, gt=0, lt=1, description="share of train held out")
    split_seed: SplitSeed = 0
