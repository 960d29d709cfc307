"""Labelled texts without columns: one file or folder per class, named after the label.

* a folder with ``neg.txt`` and ``pos.txt``: one text per line;
* a folder with ``neg/`` and ``pos/``: one text per file, ``neg/1.txt``;
* ``neg.txt,pos.txt``: the same files or folders, listed explicitly.

Files may be .gz. Other files are skipped with a note; a link out of the folder is an error.
"""

import re
from collections.abc import Generator, Iterator
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.data.examples import BadRow, Remark, Row, example_of
from regard.lab.data.lines import FILE_LIMIT, LINE_LIMIT, Lines, open_binary, path_of
from regard.lab.data.titles import OtherFileError, listed

MOST_CLASSES = 1_000
MOST_FILES = 1_000_000  # maximum files of a folder; IMDB has 12,500 in each class
PARTS = frozenset({"train", "test", "dev", "val", "valid", "validation"})
ENDINGS = (".txt", ".txt.gz")
TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".txt", ".arrow", ".feather")

_digits = re.compile(r"(\d+)")


def is_classes(path: Path) -> bool:
    """Return whether a path names classes: a folder of .txt files or of such folders, or a list.

    Raises: a folder of train and test parts, which must be named one by one.
    """
    if path.is_dir():
        must_not_be_parts(path)
        return bool(_classes_of(path)[0])
    return "," in str(path) and not path.exists()


def rows(path: Path) -> Iterator[Row]:
    """Yield every text of the classes in the order of their labels, and remarks.

    Raises: no such file; a class without texts; a link out of the folder; more than 1,000 classes,
    a million files of one or 4 GB of text.
    """
    if path.is_dir():
        classes, others = _classes_of(path)
    else:
        classes, others = _named(str(path)), 0
    if len(classes) > MOST_CLASSES:
        raise RegardError(f"{path}: {len(classes):,} classes exceed the limit of {MOST_CLASSES:,}")
    read = 0
    for label, place in sorted(classes.items()):
        if not place.is_dir():
            read += yield from _lines_of(place, label, FILE_LIMIT - read)
            continue
        files, passed = _texts_of(place)
        others += passed
        if not files:
            raise RegardError(f"{place}: contains no .txt files for the label {label!r}")
        for file in files:
            read += yield from _whole(file, label, FILE_LIMIT - read)
    if others:
        yield Remark(f"{others:,} {'file' if others == 1 else 'files'} skipped, not .txt")


def name_of(path: Path) -> str:
    """Return the name of a data set: the file or folder, or the comma-separated files.

    >>> name_of(Path("reviews/neg.txt,reviews/pos.txt"))
    'neg.txt,pos.txt'
    """
    if path.exists() or "," not in str(path):
        return path.name
    return ",".join(Path(part.strip()).name for part in str(path).split(","))


def must_not_be_parts(folder: Path) -> None:
    """Raise an error for a folder that contains train and test, as files or folders."""
    parts = {}
    for entry in _entries(folder):
        name = entry.name.lower().removesuffix(".gz")
        if _stem(name) in PARTS and (entry.is_dir() or name.endswith(TABLES)):
            parts[_stem(name)] = entry
    if "train" not in parts or len(parts) < 2:  # alone, it is a class named "train"
        return
    arguments = [f"data={parts.pop('train')}"]
    for name, entry in sorted(parts.items(), reverse=True):
        arguments.append(f"{'test' if name == 'test' else 'validation'}={entry}")
    raise RegardError(f"{folder}: contains parts of a data set; name them: {' '.join(arguments)}")


def inside(path: Path, folder: Path) -> Path:
    """Return the path. Raises: it is a link that leads out of the folder."""
    try:
        leaves = path.is_symlink() and not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a cycle of links
        leaves = True
    if leaves:
        raise RegardError(f"{path}: links out of {folder}; copy the target into the folder")
    return path


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder without hidden files; links are checked."""
    try:
        for count, path in enumerate(folder.iterdir()):
            if count >= MOST_FILES:
                raise RegardError(f"{folder}: contains more than {MOST_FILES:,} files")
            if not path.name.startswith((".", "__MACOSX")):
                yield inside(path, folder)
    except OSError as error:
        raise RegardError(f"{folder}: cannot be read: {error.strerror or error}") from None


def _classes_of(folder: Path) -> tuple[dict[str, Path], int]:
    """Return the file or folder of each label, and the number of other files."""
    files: dict[str, Path] = {}
    folders: dict[str, Path] = {}
    others = 0
    for path in _entries(folder):
        about = path.name.lower().startswith(("readme", "license"))
        if path.is_dir() and any(map(_is_text, _entries(path))):
            folders[path.name] = path
        elif _is_text(path) and not about:
            _add(files, path)
        elif path.is_file():
            others += 1
    if files and folders:
        file, place = min(files.values()), min(folders.values())
        raise RegardError(
            f"{folder}: contains texts both in files ({file.name}) and in folders ({place.name}); "
            "list the files or folders of the classes, separated by commas"
        )
    return files or folders, others


def _named(path: str) -> dict[str, Path]:
    """Return the comma-separated files or folders by label."""
    classes: dict[str, Path] = {}
    names = [part.strip() for part in path.split(",")]
    for name in filter(None, names):
        place = path_of(name)
        if not (place.is_dir() or place.name.lower().endswith(ENDINGS)):
            problem = f"{name!r} does not end in .txt" if place.exists() else "no such file"
            raise OtherFileError(
                f"{path}: {problem}; comma-separated files hold one class each, one text per line, "
                "and end in .txt; a table with labels is given alone"
            )
        if not place.exists():
            raise RegardError(f"{place}: no such file; expected {listed(names)}")
        _add(classes, place)
    return classes


def _add(classes: dict[str, Path], path: Path) -> None:
    label = path.name if path.is_dir() else _stem(path.name)
    if label in classes:
        raise RegardError(f"{classes[label]} and {path} have the same label, {label!r}")
    classes[label] = path


def _texts_of(folder: Path) -> tuple[list[Path], int]:
    """Return the .txt files of a folder in natural order, and the number of others."""
    every = [path for path in _entries(folder) if path.is_file()]
    texts = [path for path in every if _is_text(path)]
    return sorted(texts, key=_in_order), len(every) - len(texts)


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Return a natural sort key: 2.txt before 10.txt."""
    parts = _digits.split(path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS) and path.is_file()


def _stem(name: str) -> str:
    """Return a file name without .txt, .gz and the like."""
    return Path(name.removesuffix(".gz")).stem


def _lines_of(path: Path, label: str, most: int) -> Generator[Row, None, int]:
    """Yield one text per non-empty line. Return the bytes read."""
    with open_binary(path) as file:
        lines = Lines(file, path.name, most=most)
        for line in lines:
            if problem := lines.complaint():
                yield BadRow(lines.here, problem)
            elif line.strip():
                yield example_of(line.rstrip("\r\n"), label, lines.here)
    return lines.read


def _whole(path: Path, label: str, most: int) -> Generator[Row, None, int]:
    """Yield the single text of a file. Return the bytes read."""
    here = f"{path.parent.name}/{path.name}"
    if path.stat().st_size == 0:
        yield BadRow(here, "the text is empty", empty=True)
        return 0
    with open_binary(path) as file:
        lines = Lines(file, here, most=min(most, LINE_LIMIT))
        text = "".join(lines).rstrip("\r\n")
        problem = lines.complaint()
        yield BadRow(here, problem) if problem else example_of(text, label, here)
    return lines.read
