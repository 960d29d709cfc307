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
    fraction of train held out by hash of the group or text; ``examples``: at most so many (0: all).
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
    split_seed: int = 0
    examples: int = Field(0, ge=0)


class SequencesSettings(Settings):
    """Which pairs of texts, how they are cut into tokens, and how what is written is judged.

    ``data``: "reverse" (random strings of ``letters`` letters), "dates", "multi30k", "eng-fra" or
    a file of pairs; ``target``: a second file, line by line beside the first; ``source_name`` and
    ``target_name``: languages or column names. ``tokenizer``: one for both sides. A pair with more
    than ``length`` tokens on a side is left out of training. ``metric``: what a validation and the
    test are judged by, "exact" or "bleu"; ``beam``: texts that a search goes on with (1: greedy),
    ``penalty`` its length penalty; ``smoothing``: the share of the loss spread over all words;
    ``validation``: the share of train held out where the data has none of its own (0: regard's
    choice); ``judged``: how many of these each validation writes; ``examples``: pairs to train on
    (0: all, or so many that nobody sees one twice).
    """

    data: str = "reverse"
    target: str = ""
    test: str = ""
    source_name: str = ""
    target_name: str = ""
    data_dir: str = ""
    letters: int = Field(10, ge=1)
    tokenizer: str = "characters"
    vocabulary: int = Field(8_000, ge=3)
    minimum: int = Field(2, ge=1)
    length: int = Field(256, ge=1)
    metric: Literal["exact", "bleu"] = "exact"
    beam: int = Field(1, ge=1)
    penalty: float = Field(0.6, ge=0)
    smoothing: float = Field(0.0, ge=0, lt=1)
    validation: float = Field(0.0, ge=0, lt=1)
    split_seed: int = 0
    judged: int = Field(500, ge=1)
    examples: int = Field(0, ge=0)
