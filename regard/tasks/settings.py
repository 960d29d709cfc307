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
