"""Labelled texts from Parquet, Arrow and Feather files, and folders of Hugging Face ``datasets``.

pyarrow, from the extra ``data``, reads all of them. A folder of ``Dataset.save_to_disk`` has a
``state.json``, which names its .arrow files; in a ``DatasetDict`` each split is such a folder.
Columns are selected by name or by number from 1; texts are strings, labels strings or numbers. If
``datasets`` stored class names (``ClassLabel``), these are the labels, and −1 is a missing label.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import parse_json, read_json
from regard.lab.data.class_files import inside
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import BadRow, Remark, Row, example_from
from regard.lab.data.frames import json_value
from regard.lab.data.lines import FILE_LIMIT, LINE_LIMIT
from regard.lab.data.text_files import TextFile
from regard.lab.data.titles import columns_of, must_be_distinct, text_column, unread

STATE = "state.json"  # names the files of a saved data set
SUFFIXES = (".parquet", ".arrow", ".feather")
FILE_MAGIC = b"ARROW1"  # Arrow's file format; streams begin differently
ROWS = 1_000  # rows read at once
BUFFER = 1 << 20  # bytes of a column read at once
ROW = 8  # minimum bytes of a row
METADATA_LIMIT = 1_000_000  # maximum bytes of JSON metadata
UNLABELLED = -1


def is_arrow(path: Path) -> bool:
    """Return whether a path is an Arrow, Feather or Parquet file or a saved data set's folder."""
    return path.suffix.lower() in SUFFIXES or (path / STATE).is_file()


def rows(path: Path, columns: Columns = NAMED) -> Iterator[Row]:
    """Yield every row, numbered from 1: ``train.parquet:12``.

    Raises: pyarrow is not installed; a damaged file; more than 4 GB; no such column.
    """
    if not path.exists():
        raise RegardError(f"{path}: no such file")
    number = read = 0
    schema, places, names = None, [0], None
    with _pyarrow(path) as pyarrow:
        for batch in _batches(path, pyarrow):
            if schema is None or not batch.schema.equals(schema, check_metadata=True):
                schema = batch.schema
                places, _, remark = columns_of(path.name, schema.names, columns)
                if not number:
                    yield from unread(schema.names, places)
                    yield from [Remark(remark)] if remark else ()
                names = _class_names(path, schema, places[1])
            batch.validate(full=True)  # else a damaged file ends the process
            for scalars in zip(*(batch.column(place) for place in places), strict=True):
                values = [plain(scalar.as_py()) for scalar in scalars]
                number += 1
                # A file's declared size is not trusted: a column may unpack to any length.
                sizes = [len(value) for value in values if isinstance(value, str)]
                if max(sizes, default=0) > LINE_LIMIT:
                    raise RegardError(
                        f"{path.name}:{number}: text exceeds {LINE_LIMIT:,} characters"
                    )
                read += sum(sizes) + ROW
                _must_fit(path, read)
                yield _row(values, names, f"{path.name}:{number}", columns)


def plain(value: Any) -> Any:
    """Return a value as JSON has it, but bytes as they are: they are no text."""
    return value if isinstance(value, bytes) else json_value(value)


def texts(file: TextFile, column: str = "", most: int = FILE_LIMIT) -> Iterator[str]:
    """Yield the texts of one column of a Parquet file, reading that column alone; null is "".

    Raises: pyarrow is not installed; a damaged file; no such column; a value that is not a
    string or exceeds the line limit; more than `most` bytes.
    """
    number = read = 0
    with _pyarrow(file) as pyarrow, file.open() as source:
        # Read a column in parts, not a whole row group of it at once.
        table = pyarrow.parquet.ParquetFile(source, buffer_size=BUFFER, pre_buffer=False)
        names = table.schema_arrow.names
        name = names[text_column(file.name, names, column)]
        for batch in table.iter_batches(batch_size=ROWS, columns=[name]):
            batch.validate(full=True)  # else a damaged file ends the process
            for scalar in batch.column(0):
                text = scalar.as_py()
                text = "" if text is None else text
                number += 1
                here = f"{file.name}:{number}"
                if not isinstance(text, str):
                    raise RegardError(f"{here}: {name!r} must be a string, not {text!r:.40}")
                if len(text) > LINE_LIMIT:
                    raise RegardError(f"{here}: text exceeds {LINE_LIMIT:,} characters")
                if (read := read + len(text) + ROW) > most:
                    raise RegardError(f"{here}: more than {most:,} bytes of text")
                yield text


def head(path: Path, most: int) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the first rows as strings; null is "".

    Raises: as `rows`.
    """
    with _pyarrow(path) as pyarrow:
        for batch in _batches(path, pyarrow):
            batch.validate(full=True)  # else a damaged file ends the process
            must_be_distinct(path.name, batch.schema.names)
            rows = [
                ["" if value is None else str(value) for value in row.values()]
                for row in batch.slice(0, most).to_pylist()
            ]
            return batch.schema.names, rows
    raise RegardError(f"{path}: contains no rows")


@contextmanager
def _pyarrow(path: Path | TextFile) -> Iterator[Any]:
    """Yield pyarrow. Raises: it is not installed; its errors about a damaged file, in one line."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RegardError(
            f"{path}: reading it requires pyarrow, which is not installed ({error}): pip install "
            "-c constraints.txt '.[data]', or save the data as .csv or .jsonl"
        ) from None
    try:
        yield pyarrow
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = " ".join(str(error).split())
        raise RegardError(f"{path}: damaged or in another format ({reason:.200})") from None


def _class_names(path: Path, schema: Any, column: int) -> list[str] | None:
    """Return a column's class names if ``datasets`` stored them. Raises: not a list of names."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    if len(metadata) > METADATA_LIMIT:
        raise RegardError(f"{path}: the column description exceeds {METADATA_LIMIT:,} bytes")
    info = parse_json(metadata, f"{path}: its datasets metadata")
    for key in ("info", "features", schema.names[column]):
        info = info.get(key) if isinstance(info, dict) else None
    if not isinstance(info, dict) or info.get("_type") != "ClassLabel":
        return None
    names = info.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RegardError(f"{path}: class names must be strings, not {names!r:.60}")
    ((name, often),) = Counter(names).most_common(1) or [("", 0)]
    if often > 1:
        raise RegardError(f"{path}: {often:,} classes have the same name, {name!r:.60}")
    return names


def _row(values: list[Any], names: list[str] | None, here: str, columns: Columns) -> Row:
    """Return a row, with a class number replaced by the class name if there are names."""
    label = values[1]
    if names is not None and label is not None:
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(names):
            reason = (
                f"label {label!r:.40} is not one of the {len(names):,} classes, numbered from 0"
            )
            return BadRow(here, reason)
        label = None if label == UNLABELLED else names[label]
    return example_from([values[0], label, *values[2:]], columns, here)


def _batches(path: Path, pyarrow: Any) -> Iterator[Any]:
    """Yield record batches of limited size."""
    if path.is_file():
        _must_fit(path, path.stat().st_size)
        if path.suffix.lower() != ".parquet":
            yield from _messages(path, pyarrow)
            return
        with pyarrow.parquet.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            _must_fit(path, sum(file.metadata.row_group(i).total_byte_size for i in groups))
            yield from file.iter_batches(batch_size=ROWS)
        return
    state = read_json(inside(path / STATE, path), METADATA_LIMIT)
    files = [_named(path, each["filename"]) for each in state["_data_files"]]
    _must_fit(path, sum(file.stat().st_size for file in files))
    for file in files:
        yield from _messages(file, pyarrow)


def _messages(file: Path, pyarrow: Any) -> Iterator[Any]:
    """Yield the record batches of an Arrow stream, or of a file in Arrow's (Feather's) format."""
    with pyarrow.OSFile(str(file)) as source:
        whole = source.read(len(FILE_MAGIC)) == FILE_MAGIC
        source.seek(0)
        if whole:
            with pyarrow.ipc.open_file(source) as reader:
                yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            with pyarrow.ipc.open_stream(source) as reader:
                yield from reader


def _named(folder: Path, name: str) -> Path:
    """Return a file of the folder. Raises: a name that leads out of it."""
    if name != Path(name).name:
        raise RegardError(f"{folder / STATE}: lists {name!r:.80}, which is not in the folder")
    return inside(folder / name, folder)


def _must_fit(path: Path, size: int) -> None:
    if size > FILE_LIMIT:
        raise RegardError(f"{path}: {size:,} bytes exceed the limit of {FILE_LIMIT:,}")
