"""Data sets by name: ``DATA``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from regard.core.errors import RegardError, look_up
from regard.core.names import is_part
from regard.core.plugins import one_line
from regard.core.tables import Table
from regard.lab.data import chinese, entities, pydoc, synthetic
from regard.lab.data.examples import Example, example_of
from regard.lab.data.film_sentences import film_sentences
from regard.lab.data.lines import path_of
from regard.lab.data.splits import SIDES, Side

SEED_OF_REVIEWS = 2024
SEED_OF_ENTITIES = 2017


@dataclass(frozen=True)
class DataSet:
    """A data set: its description, its task and its reader.

    ``read`` returns rows, from which a test part is split off, or rows by part: "train", "test" and
    optionally "validation". A row is (text, label) for classification, multilabel (a list of
    labels), regression (a number) and
    tagging (as many tags as words, spaces between), (source, target) for translation, and a text
    for pretraining.
    """

    what: str
    used_for: str
    read: Callable[[], Iterable[Any] | Mapping[str, Iterable[Any]]] | None = field(
        default=None, kw_only=True
    )


@dataclass(frozen=True)
class RemoteFile:
    """A file at its canonical address, with the expected size and sha256 of a download."""

    url: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source(DataSet):
    """A data set that is downloaded: its files, licence and citation."""

    files: tuple[RemoteFile, ...]
    licence: str
    cite: str
    marks: tuple[str, ...]  # file patterns; a match identifies the folder of the source
    by_hand: str = ""  # the reason for a manual download, and instructions
    put: tuple[str, ...] = ()  # the files to put into its folder manually

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


MULTI30K_ROOT = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
#: Name, bytes and sha256 of the files of Multi30k.
MULTI30K = """\
train.en.gz 568929 d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
train.de.gz 637044 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
val.en.gz 21650 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
val.de.gz 24681 f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
test_2016_flickr.en.gz 21077 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
test_2016_flickr.de.gz 22890 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
test_2017_flickr.en.gz 19138 76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074
test_2017_flickr.de.gz 21471 a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee
"""


_SOURCES: dict[str, Source] = {
    "imdb": Source(
        "25,000 + 25,000 film reviews, positive or negative",
        "classification",
        (
            RemoteFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                84_125_825,
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        "no formal licence; free for research with citation",
        "Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011",
        ("train.jsonl.gz", "aclImdb", "train/pos", "aclImdb_v1.tar.gz"),
    ),
    "glove": Source(
        "vectors of 400,000 English words, of size 50, 100, 200 and 300",
        "vectors=glove-50, glove-100, …",
        (
            RemoteFile(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                862_182_613,
                "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            ),
        ),
        "Open Data Commons PDDL 1.0",
        "Pennington, Socher, Manning, GloVe: Global Vectors for Word Representation, EMNLP 2014",
        ("glove.6B.zip", "glove.6B.*.txt", "glove.6B.*.txt.gz"),
    ),
    "multi30k": Source(
        "29,000 English image captions and their German translations",
        "translation",
        tuple(
            RemoteFile(f"{MULTI30K_ROOT}/{name}", int(size), sha256)
            for name, size, sha256 in map(str.split, MULTI30K.splitlines())
        ),
        "research only, non-commercial",
        "Elliott, Frank, Sima'an, Specia, Multi30K, 2016",
        ("train.en.gz",),
    ),
    "eng-fra": Source(
        "English sentences and their French translations, by Tatoeba's volunteers",
        "translation",
        (),
        "CC BY 2.0 FR",
        "Tatoeba project, https://tatoeba.org; https://www.manythings.org/anki",
        ("fra-eng.zip", "fra.txt"),
        "its content changes from time to time, so it has no fixed checksum; download "
        "https://www.manythings.org/anki/fra-eng.zip manually",
        ("fra-eng.zip",),
    ),
    "birthplaces": Source(
        "birthplaces: 2,937 biographies, 2,500 questions with answers",
        "question answering after pretraining",
        (),
        "CC BY-SA 3.0 (Wikipedia)",
        "Stanford CS224N 2022, assignment 5",
        ("wiki.txt",),
        "it is part of a5.zip, the code of assignment 5 of CS224N 2022, from "
        "https://web.stanford.edu/class/archive/cs/cs224n/cs224n.1224/",
        ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv", "birth_test_inputs.tsv"),
    ),
}


def _drawn(
    draw: Callable[[int, int], Sequence[Example]], train: int, test: int, seed: int
) -> dict[str, Sequence[Example]]:
    examples = draw(train + test, seed)
    return {"train": examples[:train], "test": examples[train:]}


BUILT_IN = {
    "reviews": DataSet(
        "4,000 + 1,000 generated film reviews, decided by word order and negation",
        "classification",
        read=partial(_drawn, synthetic.reviews, 4000, 1000, SEED_OF_REVIEWS),
    ),
    "film-sentences": DataSet(
        "2,000 + 1,000 real film sentences (Pang and Lee 2005, CC BY 4.0), 2,000 + 500 generated "
        "ones, decided by word order",
        "classification",
        read=film_sentences,
    ),
    "reviews-zh": DataSet(
        "4,000 + 1,000 generated Chinese film reviews, decided by word order and negation",
        "classification",
        read=partial(_drawn, chinese.reviews_zh, 4000, 1000, SEED_OF_REVIEWS),
    ),
    "reverse": DataSet("random strings of A … Z and their reversals", "translation"),
    "biographies": DataSet(
        "120 invented people, with three passages and a question each", "birthplace"
    ),
    "pydoc": DataSet(
        "Python's own help text, 340,000 characters of English",
        "pretraining",
        read=pydoc.documents,
    ),
    "dates": DataSet("dates in the formats of 48 locales, and in ISO 8601", "translation"),
    "ratings": DataSet(
        "4,000 + 1,000 generated film reviews of one to five sentences, rated from 0 to 10",
        "regression",
        read=partial(_drawn, synthetic.ratings, 4000, 1000, SEED_OF_REVIEWS),
    ),
    "praise": DataSet(
        "4,000 + 1,000 generated film reviews, labelled by the parts of the film that they praise",
        "multilabel",
        read=partial(_drawn, synthetic.praise, 4000, 1000, SEED_OF_REVIEWS),
    ),
    "entities": DataSet(
        "2,400 + 600 generated sentences with tagged people, places and organisations; the same "
        "name can be any of them, depending on its context",
        "tagging",
        read=partial(_drawn, entities.sentences, 2400, 600, SEED_OF_ENTITIES),
    ),
    "mqar": DataSet("key-value pairs, and keys whose values are asked for", "mqar"),
    "induction": DataSet("symbols, and a part of them again", "induction"),
    "selective-copying": DataSet("symbols among noise", "selective-copying"),
    "sorting": DataSet("symbols, and the same in order", "sorting"),
    "reversing": DataSet("symbols, and the same reversed", "reversing"),
    "max-retrieval": DataSet("items with priorities and classes", "max-retrieval"),
    "indirect-indexing": DataSet("symbols, one of them, and a shift", "indirect-indexing"),
    "counting": DataSet("numbers and their sums modulo another", "counting"),
    "permutations": DataSet("permutations and their products", "permutations"),
    "stack": DataSet("symbols on a stack, and those that are removed", "stack"),
    "modular-addition": DataSet("two numbers and their sum modulo a third", "modular-addition"),
}
DATA: Table[DataSet] = Table(
    {**BUILT_IN, **_SOURCES},
    "regard.data",
    DataSet,
    "data set",
)


def is_own(data: str) -> bool:
    """Return whether data are the user's own: a file, a folder or ``FILE.py:NAME``.

    >>> is_own("reviews"), is_own("reviews.csv"), is_own("my_data.py:orders")
    (False, True, True)
    """
    return data not in DATA or is_part(data)


def source_of(name: str) -> Source:
    """Return a downloaded data set. Raises: an unknown name; a data set that is not downloaded.

    >>> source_of("reviews")
    Traceback (most recent call last):
    regard.core.errors.RegardError: reviews is not downloaded: ...
    """
    source = look_up(DATA, name, "data set")
    if not isinstance(source, Source):
        raise RegardError(f"{name} is not downloaded: nothing to fetch; use data={name}")
    return source


def must_be_found(data: str, used_for: str, rows: str, names: Sequence[str] = ()) -> None:
    """Raise an error for a name that is neither a file nor data for a task.

    ``rows`` describes its rows, ``names`` are the data for it, by default all that are used for it.
    """
    path = path_of(data)
    if path.exists() or path.suffix or len(path.parts) != 1 or "," in data:
        return
    every = {**BUILT_IN, **_SOURCES}
    names = names or [name for name, known in every.items() if known.used_for == used_for]
    if data in DATA and data not in names:
        raise RegardError(
            f"{data} has no {rows}; it is for {DATA[data].used_for}. Data with {rows}: "
            f"{', '.join(names)}"
        )
    look_up(dict.fromkeys(names), data, "data set or file")


def parts_of(data: str, used_for: str, rows: str) -> dict[Side, list[Any]] | None:
    """Return the rows of a data set by part; None for a file, or a data set with its own reader.

    ``rows`` describes the rows for errors: "texts with labels". Raises: a data set for another
    task; a function that fails or returns something else.
    """
    if data not in DATA or (data_set := DATA[data]).read is None:
        return None
    if data_set.used_for != used_for:
        raise RegardError(f"{data} has no {rows}; it is for {data_set.used_for}")
    try:
        rows_read = data_set.read()
        parts = rows_read if isinstance(rows_read, Mapping) else {"train": rows_read}
        read: dict[Any, list[Any]] = {part: list(rows) for part, rows in parts.items()}
    except Exception as error:  # whatever a user's code raises
        raise RegardError(f"{data} cannot be read: {one_line(error)}") from error
    if not read.get("train") or not {*read} <= {*SIDES}:
        raise RegardError(
            f"{data} has the parts {', '.join(read) or 'none'}; return rows, or rows by part: "
            "train, test and perhaps validation, train not empty"
        )
    return read


def examples_of(data: str, used_for: str, rows: str) -> dict[Side, list[Example]] | None:
    """Return the labelled texts of a data set by part; see `parts_of`."""
    parts = parts_of(data, used_for, rows)
    if parts is None:
        return None
    return {
        part: [_example(row, f"{data}/{part}:{i}") for i, row in enumerate(given, 1)]
        for part, given in parts.items()
    }


def _example(row: object, place: str) -> Example:
    if isinstance(row, Example):
        return row
    if not isinstance(row, tuple | list) or len(row) != 2:
        raise RegardError(f"{place}: {row!r:.80} is not a pair such as ('a text', 'a label')")
    text, label = row
    example = example_of(text, label, place)
    if not isinstance(example, Example):
        raise RegardError(f"{place}: {example.why}")
    return example
