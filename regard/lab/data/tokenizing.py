"""Tokenise texts that do not fit into memory: the recipe, and the work on one file."""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from regard.core.atomic_io import write_json
from regard.core.reading import checked, read_json
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.fetch import Show, cache
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import side_of
from regard.lab.data.streamed import LARGE
from regard.lab.data.text_files import TextFile, is_address, is_pattern
from regard.lab.data.text_rows import documents
from regard.lab.data.texts import TEST_SHARE, VALIDATION_SHARE, labelled_texts
from regard.lab.data.token_store import SPLITS, Shard, ShardWriter
from regard.lab.data.tokenizers import Tokenizer, train_tokenizer
from regard.nn.layers.special_tokens import SpecialTokens

RECIPE: Final = "recipe.json"
TOKENIZER: Final = "tokenizer.json"
VERSION = 2  # of the format and the rules; each version has its own folders
HELD = 1_000_000  # approximate bytes of validation and of test
MOST_TEXT = 1 << 50  # bytes of text in a file
SAMPLE = 50_000_000  # characters that the tokenizer is learned from
SAMPLED_FILES = 64  # maximum files of the sample
DOCUMENTS, CHARACTERS = 1_000, 1_000_000  # maximum tokenised at once

Report = Callable[[int, int], None]  # (bytes read of the file, its documents so far)


def is_on_disk(data: str) -> bool:
    """Return whether the tokens of `data` are stored on the disk.

    This is so for an address, a pattern, and a local file of more than 200 MB of text.
    """
    if is_address(data) or is_pattern(data):
        return True
    try:
        path = Path(data).expanduser()
        return path.is_file() and TextFile(str(path), path.stat().st_size, "").text_bytes > LARGE
    except (OSError, RuntimeError, ValueError):
        return False


@dataclass(frozen=True)
class Recipe:
    """Everything besides the tokenizer that determines the tokens of a stream, as JSON values.

    ``files``: address, size and version of each. ``test`` and ``validation``: the fractions of the
    documents that are held out.
    """

    files: list[tuple[str, int, str]]
    text: str
    test: float
    validation: float
    seed: int
    without: str = ""
    without_text: str = ""
    data_dir: str = ""

    @property
    def sources(self) -> list[TextFile]:
        """Return the files to read."""
        return [TextFile(*identity) for identity in self.files]

    @cached_property
    def excluded(self) -> frozenset[str]:
        """Return the `likeness` of excluded texts."""
        if not self.without:
            return frozenset()
        columns = Columns(self.without_text)
        return frozenset(labelled_texts(DataSource(self.without, "", self.data_dir, columns)))

    def name(self, tokenizer: Sequence[Any]) -> str:
        """Return the name of the folder: a hash of the recipe and of the tokenizer's origin."""
        kept = [self.files, self.text, self.test, self.validation, self.seed]
        digest = hashlib.sha256(json.dumps([VERSION, *kept, *tokenizer]).encode())
        for text in sorted(self.excluded):
            digest.update(text.encode(errors="replace") + b"\n")
        return digest.hexdigest()[:32]

    def split(self, file: TextFile) -> Generator[tuple[str, str], None, None]:
        """Yield the split and the text of each document of a file."""
        for text in documents(file, self.text, MOST_TEXT):
            if not self.excluded or likeness(text) not in self.excluded:
                shares = {"test": self.test, "validation": self.validation}
                yield side_of(text, seed=self.seed, **shares), text

    def sample(self) -> Iterator[str]:
        """Yield training documents of some files, chosen by the seed: 50 million characters.

        From each file the beginning is used, up to an equal share of the rest.
        """
        sources = self.sources
        order = np.random.Generator(np.random.PCG64(self.seed)).permutation(len(sources))
        chosen = [sources[i] for i in order[:SAMPLED_FILES].tolist()]
        left = SAMPLE
        for number, file in enumerate(chosen):
            share = left // (len(chosen) - number)
            with closing(self.split(file)) as rows:
                for part, text in rows:
                    if part == "train":
                        yield text
                        left, share = left - len(text), share - len(text)
                        if share <= 0:
                            break


def recipe_of(files: Sequence[TextFile], source: DataSource) -> Recipe:
    """Return the recipe for these files; from large ones, about 1 MB is held out per split."""
    most = HELD / max(sum(file.text_bytes for file in files), 1)
    share = VALIDATION_SHARE if source.splits.share is None else source.splits.share
    without, text = source.without or DataSource(""), source.columns.text
    return Recipe(
        [(file.address, file.size, file.version) for file in files],
        text,
        min(TEST_SHARE, most),
        min(share, most),
        source.splits.seed,
        without.name,
        without.columns.text,
        str(source.data_dir),
    )


def place_of(data_dir: Path | str) -> Path:
    """Return the folder of all token streams: in `data_dir`, REGARD_DATA or the cache."""
    root = data_dir or os.environ.get("REGARD_DATA") or cache()
    return Path(root).expanduser() / "tokens"


def learn(recipe: Recipe, kind: str, vocabulary: int, minimum: int, show: Show) -> Tokenizer:
    """Return a tokenizer learned from the recipe's sample."""
    total = min(SAMPLE, sum(file.text_bytes for file in recipe.sources))

    def shown() -> Iterator[str]:
        read = 0
        for text in recipe.sample():
            yield text
            read += len(text)
            show(min(read, total - 1), total, "text for the tokenizer")

    return train_tokenizer(kind, shown(), vocabulary=vocabulary, minimum=minimum)


def end_of(tokenizer: Tokenizer) -> int:
    """Return the id of the token that ends a document."""
    return SpecialTokens.after(len(tokenizer)).separator


class Tokenising:
    """The tokenisation of texts into a folder, as read by worker processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = checked(Recipe, read_json(folder / RECIPE), folder / RECIPE)
        self.tokenizer = Tokenizer.load(folder / TOKENIZER)

    @classmethod
    def begin(cls, folder: Path, recipe: Recipe, tokenizer: Tokenizer) -> "Tokenising":
        """Write the recipe and the tokenizer for the workers."""
        tokenizer.save(folder / TOKENIZER)
        write_json(folder / RECIPE, asdict(recipe))
        return cls(folder)

    def write(self, number: int, report: Report) -> Shard:
        """Tokenise one file. Raises: an unreadable or changed file; no space."""
        file = self.recipe.sources[number]
        end, count = end_of(self.tokenizer), 0
        with closing(ShardWriter(self.folder, number, file.address, end)) as writer:
            for some in _portions(self.recipe.split(file)):
                for split in SPLITS:
                    if texts := [text for part, text in some if part == split]:
                        writer.add(split, self.tokenizer.encode(texts))
                report(min(file.done, file.size), count := count + len(some))
            file.must_be_unchanged()
            return writer.finish()


def _portions(rows: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield lists of rows of limited size."""
    while first := next(rows, None):
        portion, size = [first], len(first[1])
        for row in islice(rows, DOCUMENTS - 1):
            portion.append(row)
            if (size := size + len(row[1])) >= CHARACTERS:
                break
        yield portion
