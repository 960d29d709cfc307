"""Who was born where: texts to pretrain on, questions to fine-tune on, questions to be asked.

"birthplaces" is the data of Stanford CS224N 2022, assignment 5 (``wiki.txt``,
``birth_places_train.tsv``, ``birth_dev.tsv``, ``birth_test_inputs.tsv``), "biographies" the same
in small, of invented people (`regard.data.biographies`); or questions and answers of one's own in
a ``.tsv``, with the texts that hold the answers in another file.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regard.data.biographies import passages, people
from regard.data.fetch import fetch, present
from regard.data.files import BadRow, Lines, open_binary
from regard.data.pairs import Pair
from regard.data.sources import likeness
from regard.errors import RegardError

MASK_CHARACTER: Final = "⁇"  # as assignment 5 prints them: U+2047 and U+25A1
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

    ``dev`` is what a fine-tuned model is judged by; no question of it is in ``train``.
    """

    name: str
    texts: Sequence[str]
    train: Sequence[Pair]
    dev: Sequence[Pair]
    fingerprint: str
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> str:
        """The line that assignment 5 begins with: characters of the texts, and different ones.

        Ends of lines are counted, and so are the two symbols ⁇ and □.
        """
        characters = sum(map(len, self.texts)) + len(self.texts)
        kinds = set().union(*self.texts) | {"\n", MASK_CHARACTER, PAD_CHARACTER}
        return f"data has {characters} characters, {len(kinds)} unique."


def load_birthplaces(
    data: str = "biographies",
    *,
    texts: str = "",
    test: str = "",
    data_dir: Path | str | None = None,
) -> Birthplaces:
    """The data by name, or from a file of questions and answers.

    A file of one's own has a question, a tab and its answer on each line; `texts` is the file of
    texts, one a line, and `test` that of the questions to be judged by.

    Errors: no such data; a file without its companions; a bad line, by file:line.

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
                f"data={data} holds questions and answers; say texts=FILE, where the answers are "
                "to be read, and test=FILE, questions that are not in it (or take biographies or "
                "birthplaces)"
            )
        paths = {"texts": Path(texts), "train": Path(data), "dev": Path(test)}
    dev = read_answers(paths["dev"])
    asked = {likeness(pair.source) for pair in dev}
    every = read_answers(paths["train"])
    train = [pair for pair in every if likeness(pair.source) not in asked]
    if not train:
        raise RegardError(
            f"{data}: all of its {len(every)} questions are asked in {paths['dev'].name} too, and "
            "none is left to learn from"
        )
    notes = (
        [f"{len(every) - len(train)} questions of train are asked in dev too: dropped from train"]
        if len(train) < len(every)
        else []
    )
    found = read_lines(paths["texts"])
    return Birthplaces(
        data if data == "birthplaces" else Path(data).name,
        found,
        train,
        dev,
        _fingerprint(found, train, dev),
        tuple(notes),
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file that hold something. Errors: by file:line."""
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        found = []
        for line in lines:
            if says := lines.complaint():
                raise RegardError(f"{lines.here}: {says}")
            if line.strip():
                found.append(line.rstrip("\r\n"))
    if not found:
        raise RegardError(f"{path}: holds no text")
    return found


def read_answers(path: Path, *, answered: bool = True) -> list[Pair]:
    """Questions with their answers, one a line with a tab between; bare questions if allowed."""
    found = []
    for row in _rows(path):
        if isinstance(row, BadRow):
            raise RegardError(f"{row.source}: {row.why}")
        if answered and not row.target:
            raise RegardError(f"{row.place}: a question without a tab and an answer")
        found.append(row)
    return found


def _rows(path: Path) -> list[Pair | BadRow]:
    found: list[Pair | BadRow] = []
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        for line in lines:
            parts = [part.strip() for part in line.rstrip("\r\n").split("\t")]
            if says := lines.complaint():
                found.append(BadRow(lines.here, says))
            elif not any(parts):
                continue
            elif len(parts) > 2 or not parts[0]:
                why = f"has {len(parts)} fields where a question, a tab and an answer belong"
                why = why if parts[0] else "the question is empty"
                found.append(BadRow(lines.here, why))
            else:
                found.append(Pair(parts[0], parts[1] if len(parts) > 1 else "", lines.here))
    if not found:
        raise RegardError(f"{path}: holds no questions")
    return found


def _biographies() -> Birthplaces:
    everyone = people()
    pairs = [
        Pair(ASKS.format(person.name), person.place, f"biographies:{row}")
        for row, person in enumerate(everyone, 1)
    ]
    half = len(pairs) // 2
    texts = passages()
    return Birthplaces(
        "biographies",
        texts,
        pairs[:half],
        pairs[half:],
        _fingerprint(texts, pairs[:half], pairs[half:]),
    )


def _fingerprint(texts: Sequence[str], *parts: Sequence[Pair]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}\n".encode())
    for part in parts:
        for pair in part:
            digest.update(f"{len(pair.source)} {pair.source}\t{pair.target}\n".encode())
    return digest.hexdigest()
