"""Labelled texts from Parquet files, and from folders that Hugging Face ``datasets`` saved.

Both are read by pyarrow, which regard does without otherwise: ``pip install pyarrow``. A folder of
``Dataset.save_to_disk`` holds ``state.json``, which names its .arrow files; of a ``DatasetDict``
each split is such a folder. Columns are those of a table, by name or by number from 1; texts are
strings, labels strings or numbers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.class_files import inside
from regard.data.examples import Row, example_of
from regard.data.lines import FILE_LIMIT, LINE_LIMIT
from regard.data.titles import columns_of
from regard.errors import RegardError
from regard.reading import read_json

STATE = "state.json"  # of a saved data set; it names the files
ROWS = 1_000  # read at once


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
            f"{path}: is read by pyarrow, which is not here ({error}): pip install pyarrow, or "
            "save it as .csv or .jsonl"
        ) from None
    places: list[int] = []
    number = read = 0
    try:
        for batch in _batches(path, pyarrow):
            names = batch.schema.names
            places = places or columns_of(path.name, names, text, label, group).places
            for values in zip(*(batch.column(place).to_pylist() for place in places), strict=True):
                number += 1
                # What a file says of its size is not believed: a column may unpack to any length.
                sizes = [len(value) for value in values if isinstance(value, str)]
                if max(sizes, default=0) > LINE_LIMIT:
                    raise RegardError(f"{path.name}:{number}: a text is over {LINE_LIMIT:,} signs")
                read += sum(sizes)
                _must_fit(path, read)
                together = str(values[2]) if group and values[2] is not None else ""
                yield example_of(values[0], values[1], f"{path.name}:{number}", together)
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise RegardError(f"{path}: is damaged or of another kind ({error!s:.200})") from None


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
    return read_json(inside(folder / STATE, folder), 1_000_000)


def _named(folder: Path, name: str) -> Path:
    """A file of the folder. Errors: a name that leads elsewhere."""
    if name != Path(name).name:
        raise RegardError(f"{folder / STATE}: names {name!r:.80}, which is no file of the folder")
    return inside(folder / name, folder)


def _must_fit(path: Path, size: int) -> None:
    if size > FILE_LIMIT:
        raise RegardError(f"{path}: holds {size:,} bytes, more than {FILE_LIMIT:,}")
