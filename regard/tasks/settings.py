"""The settings of every task. No torch here: the command line reads these to list its flags."""

from typing import Literal

from pydantic import Field

from regard.settings import Settings


class ClassificationSettings(Settings):
    """Which texts, how they are cut into tokens, and what is held out.

    ``data``: "reviews", "imdb" or a file; ``test``: a second file (else a fifth is split off);
    ``text`` and ``label``: column names where they are not found; ``group``: a column whose equal
    values must stay on one side of every split (a customer, an author); ``truncate``: a text longer
    than ``length`` tokens keeps its "head", its "tail" or both "ends"; ``validation``: the
    fraction of train held out by hash of the group or text; ``examples``: learn from so many
    (0: all), validation among them; the test is always whole.
    """

    data: str = "reviews"
    test: str = ""
    text: str = ""
    label: str = ""
    group: str = ""
    data_dir: str = ""
    tokenizer: str = "words"
    vocabulary: int = Field(30_000, ge=3)
    minimum: int = Field(2, ge=1)
    length: int = Field(400, ge=1)
    truncate: Literal["head", "tail", "ends"] = "tail"
    validation: float = Field(0.1, gt=0, lt=1)
    split_seed: int = Field(0, ge=0, lt=2**63)
    examples: int = Field(0, ge=0)


class SequencesSettings(Settings):
    """Which pairs of texts, how they are cut into tokens, and how what is written is judged.

    ``data``: "reverse" (random strings of ``letters`` letters), "dates" (of all ``locales``, or of
    some: "en_US,de,fr"), "multi30k", "eng-fra" or a file of pairs; ``target``: a second file, line
    by line beside the first; ``source_name`` and ``target_name``: languages or column names.
    ``tokenizer``: one for both sides. A pair with more than ``longest`` characters on a side is
    left out everywhere (0: none is), one with more than ``length`` tokens out of training.
    ``metric``: what a validation and the test are judged by, "exact" or "bleu"; ``beam``: texts
    that a search goes on with (1: greedy), ``penalty`` its length penalty; ``smoothing``: the share
    of the loss spread over all words; ``validation``: the share of train held out where the data
    has none of its own (0: regard's choice); ``judged``: how many of these each validation writes,
    from all parts of them; ``examples``: pairs to train on (0: all, or so many that nobody sees one
    twice).
    """

    data: str = "reverse"
    target: str = ""
    test: str = ""
    source_name: str = ""
    target_name: str = ""
    data_dir: str = ""
    letters: int = Field(10, ge=1)
    locales: str = ""
    tokenizer: str = "characters"
    vocabulary: int = Field(8_000, ge=3)
    minimum: int = Field(2, ge=1)
    longest: int = Field(2_000, ge=0)
    length: int = Field(256, ge=1)
    metric: Literal["exact", "bleu"] = "exact"
    beam: int = Field(1, ge=1)
    penalty: float = Field(0.6, ge=0)
    smoothing: float = Field(0.0, ge=0, lt=1)
    validation: float = Field(0.0, ge=0, lt=1)
    split_seed: int = Field(0, ge=0, lt=2**63)
    judged: int = Field(500, ge=1)
    examples: int = Field(0, ge=0)


class PretrainingSettings(Settings):
    """Which texts, how they are cut into tokens, and how long a piece is read at once.

    ``data``: "pydoc", "reviews", "biographies", "birthplaces", "imdb" or a file of texts; ``text``:
    its column; ``length``: the longest piece in tokens; ``validation``: the share of documents held
    out (0: none, and the same texts judge: for facts that are to be learned by heart);
    ``examples``: so many documents (0: all); ``without``: a file (its column ``without_text``), or
    "imdb" or "reviews", that a model is to be judged by later: texts that stand there too are left
    out.
    """

    data: str = "pydoc"
    text: str = ""
    data_dir: str = ""
    tokenizer: str = "characters"
    vocabulary: int = Field(8_000, ge=3)
    minimum: int = Field(2, ge=1)
    length: int = Field(128, ge=8)
    validation: float = Field(0.05, ge=0, lt=1)
    split_seed: int = Field(0, ge=0, lt=2**63)
    examples: int = Field(0, ge=0)
    without: str = ""
    without_text: str = ""


class MaskedModelingSettings(PretrainingSettings):
    """As `PretrainingSettings`; ``share`` of the words are asked about; ``next_sentence``: half of
    the pieces are two that do not follow each other, and which is asked too."""

    share: float = Field(0.15, gt=0, lt=1)
    next_sentence: bool = True


class SpanCorruptionSettings(PretrainingSettings):
    """As `PretrainingSettings`; ``objective``: "spans" (``share`` of the text in spans of ``mean``
    tokens) or "prefix" (a beginning is read, the rest written)."""

    objective: Literal["spans", "prefix"] = "spans"
    share: float = Field(0.15, gt=0, lt=1)
    mean: float = Field(3.0, ge=1)


class BirthplacePretrainingSettings(PretrainingSettings):
    """As `PretrainingSettings`, with every fact in all splits; ``closed``: the hidden span ends
    with the mask symbol, as an answer does."""

    data: str = "biographies"
    minimum: int = Field(1, ge=1)
    validation: float = Field(0.0, ge=0, lt=1)
    closed: bool = True


class AnswersSettings(Settings):
    """Questions with short answers, and the texts that hold them.

    ``data``: "biographies" (built in), "birthplaces", or a .tsv file, with its ``texts`` and its
    ``test``; ``validation``: the share of train held out; ``longest``: tokens of an answer.
    """

    data: str = "biographies"
    texts: str = ""
    test: str = ""
    data_dir: str = ""
    tokenizer: str = "characters"
    vocabulary: int = Field(8_000, ge=3)
    minimum: int = Field(1, ge=1)
    length: int = Field(128, ge=8)
    longest: int = Field(32, ge=1)
    validation: float = Field(0.1, gt=0, lt=1)
    split_seed: int = Field(0, ge=0, lt=2**63)
