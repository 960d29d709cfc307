"""``regard embed``: an embedding of each text of a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.core.errors import RegardError
from regard.lab.cli.console import Json, RunFolder, bar, emit_json, err, opened, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMATS = (".npy", ".parquet")


def embed(
    run: RunFolder,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Texts: one per line, or per row of a .csv, .tsv, .jsonl or .parquet.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output file, .npy or .parquet.")],
    column: Annotated[
        str,
        typer.Option(
            "--text",
            help="Text column of the table.",
            show_default="the one of the training, else detected",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Write an embedding of each text, as .npy or .parquet.

    Row i belongs to text i. A .npy is a float32 array of (texts, width); a .parquet has the columns
    text and embedding. The embedding is the pooled vector that the last layer of a classifier
    reads; for models without a pool the mean of the last states, for models that write of the
    encoder's. All embeddings are in memory until they are written.

    regard embed runs/classification-transformer reviews.csv --out reviews.npy
    """
    import numpy as np

    from regard.core import atomic_io
    from regard.lab.cli.predict import chunks, is_table, lines, own_column, rows_of
    from regard.lab.data.data_source import Columns
    from regard.lab.runs.embedding import embed as compute

    if out.suffix.lower() not in FORMATS:
        raise RegardError(f"--out {out}: unknown format; give a name that ends in .npy or .parquet")
    if column and not is_table(file):
        raise RegardError("--text names a table column; give a .csv, .tsv, .jsonl or .parquet")
    if out.suffix.lower() == ".parquet":
        _pyarrow()

    model = opened(run, "embed")
    model.must_be_complete()
    if is_table(file) and not column:
        column = own_column(model, file)

    def source() -> Iterable[str]:
        columns = Columns(column, features=model.task.columns.features)
        return rows_of(file, columns) if is_table(file) else map(model.task.input_of, lines(file))

    total = sum(1 for _ in source())
    if not total:
        raise RegardError(f"{file} contains no texts")
    texts: list[str] = []
    parts: list[NDArray[np.float32]] = []
    with bar("embed", shown=err.is_terminal) as show:
        for chunk in chunks(source()):
            parts.append(compute(model, chunk))
            texts += chunk if out.suffix.lower() == ".parquet" else []
            show(sum(map(len, parts)), total, "texts")
    vectors = np.concatenate(parts)
    content = as_npy(vectors) if out.suffix.lower() == ".npy" else as_parquet(texts, vectors)
    atomic_io.write_bytes(out, content)
    if json:
        rows, width = vectors.shape
        emit_json({"run": str(run), "out": str(out), "texts": rows, "width": width})
    else:
        say(f"{out}: {len(vectors):,} embeddings of width {vectors.shape[1]:,}, float32")


def as_npy(vectors: "NDArray[np.float32]") -> bytes:
    """Return an array as the content of a .npy file."""
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    return buffer.getvalue()


def as_parquet(texts: list[str], vectors: "NDArray[np.float32]") -> bytes:
    """Return texts and embeddings as the content of a .parquet file."""
    pyarrow = _pyarrow()
    flat = pyarrow.array(vectors.reshape(-1))
    table = pyarrow.table(
        {
            "text": texts,
            "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RegardError(
            "Parquet needs pyarrow: pip install -c constraints.txt '.[data]'; or write a .npy"
        ) from None
    return pyarrow
