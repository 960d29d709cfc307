"""Vectors of texts, computed once for each encoder and kept on the disk.

A text's vector is stored by the hash of the encoder's fingerprint, of the prompt and of the text;
the texts themselves are not stored. The file is an SQLite database in the cache folder, which
several processes may use at once. Without a disk to write to, vectors are computed every time.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Float

from regard.interop.sentences import SentenceEncoder
from regard.lab.data.fetch import cache

LARGEST = 4_000_000_000  # bytes; a larger database is begun again
SELECT = "SELECT vector FROM vectors WHERE key = ?"
TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"


def embed(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    windows: bool = False,
    path: Path | None = None,
) -> Float[np.ndarray, "texts width"]:
    """Return the vectors of texts, as `SentenceEncoder.encode` does; new ones are stored.

    ``path``: the database; by default in the cache folder.
    """
    described = f"{encoder.fingerprint}\n{prompt!r}\n{windows}\n"
    keys = [
        hashlib.sha256((described + text).encode(errors="surrogatepass")).digest() for text in texts
    ]
    distinct = dict(zip(keys, texts, strict=True))
    with _database(path or cache() / "embeddings.sqlite") as database:
        found = {key: database.execute(SELECT, (key,)).fetchone() for key in distinct}
        known = {key: np.frombuffer(row[0], np.float32) for key, row in found.items() if row}
        if missing := [key for key in distinct if key not in known]:
            new = encoder.encode([distinct[key] for key in missing], prompt=prompt, windows=windows)
            known.update(zip(missing, new, strict=True))
            rows = ((key, known[key].tobytes()) for key in missing)
            with database:
                database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
    return np.stack([known[key] for key in keys])


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield the database, or one in memory where it cannot be opened or is damaged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LARGEST:
            path.unlink()
        database = sqlite3.connect(path, timeout=60)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(TABLE)
    except (OSError, sqlite3.Error):
        database = sqlite3.connect(":memory:")
        database.execute(TABLE)
    with closing(database):
        yield database
