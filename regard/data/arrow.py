"""Labelled texts from Parquet files, and from folders that Hugging Face ``datasets`` saved.

Both are read by pyarrow, which the extra ``data`` brings. A folder of ``Dataset.save_to_disk``
holds ``state.json``, which names its .arrow files; of a ``DatasetDict`` each split is such a
folder. Columns are those of a table, by name or by number from 1; texts are strings, labels
strings or numbers. Where ``datasets`` wrote the names of a column's classes (``ClassLabel``), these
are the labels, and −1 is none.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.class_files import inside
from regard.data.examples import BadRow, Row, example_of
from regard.data.lines import FILE_LIMIT, LINE_LIMIT
from regard.data.titles import columns_of
from regard.errors import RegardError
from regard.reading import parse_json, read_json

STATE = "state.json"  # of a saved data set; it names the files
ROWS = 1_000  # read at once
ROW = 8  # bytes that a row takes at least
MOST_SAID = 1_000_000  # bytes of JSON beside the rows
UNLABELLED = -1


def is_arrow(path: Path) -> bool:
    """Whether a path names a Parquet file or a folder of a saved data set."""
    return path.suffix.lower() == ".parquet" or (path / STATE).is_file()


def rows(path: Path, text: str | None, label: str | None, group: str | None) -> Iterator[Row]:
    """Every row, its place counted from 1: ``train.parquet:12``.

    Errors: pyarrow is not installed; a damaged file; more than 4 GB; no such column.
    """
    if not path.exists():
        raise RegardError(f"{path}: there is no such file")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RegardError(
            f"{path}: is read by pyarrow, which is not here ({error}): pip install -c "
            "constraints.txt '.[data]', or save it as .csv or .jsonl"
        ) from None
    number = read = 0
    schema, places, names = None, [0], None
    try:
        for batch in _batches(path, pyarrow):
            if schema is None or not batch.schema.equals(schema, check_metadata=True):
                schema = batch.schema
                places = columns_of(path.name, schema.names, text, label, group).places
                names = _class_names(path, schema, places[1])
            batch.validate(full=True)  # else a damaged file ends the process
            for scalars in zip(*(batch.column(place) for place in places), strict=True):
                values = [scalar.as_py() for scalar in scalars]
                number += 1
                # What a file says of its size is not believed: a column may unpack to any length.
                sizes = [len(value) for value in values if isinstance(value, str)]
                if max(sizes, default=0) > LINE_LIMIT:
                    raise RegardError(f"{path.name}:{number}: a text is over {LINE_LIMIT:,} signs")
                read += sum(sizes) + ROW
                _must_fit(path, read)
                together = str(values[2]) if group and values[2] is not None else ""
                yield _row(values[0], values[1], names, f"{path.name}:{number}", together)
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as error:
        says = " ".join(str(error).split())
        raise RegardError(f"{path}: is damaged or of another kind ({says:.200})") from None


def _class_names(path: Path, schema: Any, column: int) -> list[str] | None:
    """The names of a column's classes, where ``datasets`` wrote them. Errors: they are none."""
    says = (schema.metadata or {}).get(b"huggingface", b"{}")
    if len(says) > MOST_SAID:
        raise RegardError(f"{path}: describes its columns in more than {MOST_SAID:,} bytes")
    found = parse_json(says, f"{path}: its description by datasets")
    for key in ("info", "features", schema.names[column]):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict) or found.get("_type") != "ClassLabel":
        return None
    names = found.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RegardError(f"{path}: the names of its classes are {names!r:.60}, not strings")
    ((name, often),) = Counter(names).most_common(1) or [("", 0)]
    if often > 1:
        raise RegardError(f"{path}: {often:,} of its classes are called {name!r:.60}")
    return names


def _row(text: Any, label: Any, names: list[str] | None, here: str, group: str) -> Row:
    """A row whose label is the number of a class, if classes have names."""
    if names is not None and label is not None:
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(names):
            says = f"the label is {label!r:.40}, where datasets names {len(names):,} classes from 0"
            return BadRow(here, says)
        label = None if label == UNLABELLED else names[label]
    return example_of(text, label, here, group)


def _batches(path: Path, pyarrow: Any) -> Iterator[Any]:
    """Record batches of a few rows each."""
    if path.is_file():
        _must_fit(path, path.stat().st_size)
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            _must_fit(path, sum(file.metadata.row_group(i).total_byte_size for i in groups))
            yield from file.iter_batches(batch_size=ROWS)
        return
    files = [_named(path, each["filename"]) for each in _state(path)["_data_files"]]
    _must_fit(path, sum(file.stat().st_size for file in files))
    for file in files:
        with pyarrow.OSFile(str(file)) as source, pyarrow.ipc.open_stream(source) as reader:
            yield from reader


def _state(folder: Path) -> Any:
    return read_json(inside(folder / STATE, folder), MOST_SAID)


def _named(folder: Path, name: str) -> Path:
    """A file of the folder. Errors: a name that leads elsewhere."""
    if name != Path(name).name:
        raise RegardError(f"{folder / STATE}: names {name!r:.80}, which is no file of the folder")
    return inside(folder / name, folder)


def _must_fit(path: Path, size: int) -> None:
    if size > FILE_LIMIT:
        raise RegardError(f"{path}: holds {size:,} bytes, more than {FILE_LIMIT:,}")
