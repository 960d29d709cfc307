"""Birthplaces: texts to pretrain on, questions to fine-tune on, questions to evaluate.

"birthplaces" is the data of Stanford CS224N 2022, assignment 5 (``wiki.txt``,
``birth_places_train.tsv``, ``birth_dev.tsv``, ``birth_test_inputs.tsv``), "biographies" a small
version with invented people (`regard.lab.data.biographies`); or your own questions and answers in a
``.tsv``, with the texts that contain the answers in another file.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from regard.core.errors import RegardError
from regard.lab.data.biographies import passages, people
from regard.lab.data.fetch import fetch, present
from regard.lab.data.lines import Lines, open_binary
from regard.lab.data.pairs import Pair
from regard.lab.data.splits import without_later

MASK_CHARACTER: Final = "⁇"  # as printed in assignment 5: U+2047 and U+25A1
PAD_CHARACTER: Final = "□"
FILES: Final = {
    "texts": "wiki.txt",
    "train": "birth_places_train.tsv",
    "dev": "birth_dev.tsv",
    "test": "birth_test_inputs.tsv",
}
ASKS: Final = "Where was {} born?"


@dataclass(frozen=True)
class Birthplaces:
    """Texts, and questions with their answers.

    ``dev`` evaluates the fine-tuned model; none of its questions is in ``train``.
    """

    name: str
    texts: Sequence[str]
    train: Sequence[Pair]
    dev: Sequence[Pair]
    notes: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Return a sha256 over all texts, questions and answers, in order."""
        digest = hashlib.sha256()
        for text in self.texts:
            digest.update(f"{len(text)} {text}\n".encode())
        for pair in (*self.train, *self.dev):
            digest.update(f"{len(pair.source)} {pair.source}\t{pair.target}\n".encode())
        return digest.hexdigest()


def counted(texts: Sequence[str], symbols: str = "") -> str:
    """Return the line of assignment 5 about texts: all and distinct characters, with line ends.

    >>> counted(["a", "ba"], symbols="⁇")
    'data has 5 characters, 4 unique.'
    """
    characters = sum(map(len, texts)) + len(texts)
    kinds = set(symbols).union("\n", *texts)
    return f"data has {characters} characters, {len(kinds)} unique."


def load_birthplaces(
    data: str = "biographies",
    *,
    texts: str = "",
    test: str = "",
    data_dir: Path | str | None = None,
) -> Birthplaces:
    """Return the data by name, or from a file of questions and answers.

    A file has a question, a tab and its answer on each line; `texts` is the file of texts, one per
    line, and `test` the file of test questions.

    Raises: unknown data; a file without `texts` and `test`; a bad line, by file:line.

    >>> found = load_birthplaces("biographies")
    >>> len(found.texts), len(found.train), len(found.dev), found.dev[0].source
    (360, 60, 60, 'Where was Cyro Polmann born?')
    """
    if data == "biographies":
        return _biographies()
    if data == "birthplaces":
        place = present("birthplaces", data_dir) or fetch("birthplaces", data_dir)[0].parent
        paths = {what: place / name for what, name in FILES.items()}
    else:
        if not (texts and test):
            raise RegardError(
                f"data={data} needs texts=FILE, the texts that contain the answers, and "
                "test=FILE, questions that are not in it (or use biographies or birthplaces)"
            )
        paths = {"texts": Path(texts), "train": Path(data), "dev": Path(test)}
    dev, every = read_answers(paths["dev"]), read_answers(paths["train"])
    kept, notes = without_later(
        {"train": every, "validation": dev}, lambda pair: pair.source, row="pair", what="question"
    )
    train = kept["train"]
    if not train:
        raise RegardError(
            f"{data}: all {len(every)} questions also occur in {paths['dev'].name}, so none is "
            "left to train on; add other questions"
        )
    name = data if data == "birthplaces" else Path(data).name
    return Birthplaces(name, read_lines(paths["texts"]), train, dev, tuple(notes))


def placed(path: Path) -> Path:
    """Return the path of a file; files of the assignment are looked up in its data folder."""
    if path.name != str(path) or path.name not in FILES.values() or path.exists():
        return path
    folder = present("birthplaces")
    return folder / path.name if folder else path


def read_lines(path: Path) -> list[str]:
    """Return the non-empty lines of a UTF-8 file. Raises: by file:line."""
    path = placed(path)
    with open_binary(path) as file:
        texts = [line for line in Lines(file, path.name).sound() if line.strip()]
    if not texts:
        raise RegardError(f"{path}: contains no text")
    return texts


def read_answers(path: Path, *, answered: bool = True) -> list[Pair]:
    """Return tab-separated questions and answers; the answer is optional unless `answered`."""
    pairs, path = [], placed(path)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        for line in lines.sound():
            question, *answers = (part.strip() for part in line.split("\t"))
            if len(answers) > 1 and (question or any(answers)):
                raise RegardError(
                    f"{lines.here}: expected a question, a tab and an answer, found "
                    f"{len(answers) + 1} fields"
                )
            if not question and any(answers):
                raise RegardError(f"{lines.here}: the question is empty")
            if answered and question and not any(answers):
                raise RegardError(f"{lines.here}: the question has no tab and answer")
            if question:
                pairs.append(Pair(question, "".join(answers), lines.here))
    if not pairs:
        raise RegardError(f"{path}: contains no questions")
    return pairs


def _biographies() -> Birthplaces:
    everyone = people()
    pairs = [
        Pair(ASKS.format(person.name), person.place, f"biographies:{row}")
        for row, person in enumerate(everyone, 1)
    ]
    half = len(pairs) // 2
    return Birthplaces("biographies", passages(), pairs[:half], pairs[half:])
