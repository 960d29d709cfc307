"""Runs as rows of a table, read without torch and without executing a run's Python files."""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.reading import parse_json, read_bytes
from regard.lab.runs.config import CONFIG, LOCK

TAGS = ".tags.json"  # hidden: the manifest of a complete run does not list it
LONGEST_TAG, MOST_TAGS = 40, 50
LIMIT = 1 << 20  # bytes of a configuration
LAST = 1 << 16  # bytes at the end of metrics.jsonl that hold its last row
DEFAULT = Path("runs")
DEPTH = 4  # maximum depth below the given folder
#: The files of a run. A folder with others is not deleted.
OWN = {
    CONFIG, LOCK, TAGS, "env.json", "metrics.jsonl", "tokenizer.json", "model.safetensors", "model",
    "predictions.jsonl", "checkpoints", "tensorboard", "report.html", atomic_io.MANIFEST,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A run as its files describe it; `score` is its best validation score, the larger the better.

    `finished` is the time of its last file in seconds since 1970, `size` the bytes of its files.
    """

    path: Path
    task: str
    model: str
    data: str
    seed: int
    complete: bool
    score: float | None
    finished: float
    size: int
    tags: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        same = ("task", "model", "data", "seed", "complete", "score")
        return {
            "run": str(self.path),
            **{key: getattr(self, key) for key in same},
            "finished": datetime.fromtimestamp(self.finished, UTC).isoformat(timespec="seconds"),
            "bytes": self.size,
            "tags": list(self.tags),
        }


def rows_below(folder: Path) -> list[Row]:
    """Return the runs in a folder, at most four folders deep, by name.

    Folders with an unreadable configuration are omitted. Raises: no such folder, except for the
    default one, which the first run creates.
    """
    if not folder.is_dir() and (folder.exists() or folder != DEFAULT):
        raise RegardError(f"{folder} is not a folder; give one that contains runs")
    places = ["/".join(["*"] * depth) for depth in range(1, DEPTH + 1)]
    folders = {path.parent for place in places for path in folder.glob(f"{place}/{CONFIG}")}
    folders |= {folder} if (folder / CONFIG).is_file() else set()
    rows = []
    for path in sorted(folders):
        try:
            rows.append(row_of(path))
        except RegardError:
            continue
    return rows


def row_of(path: Path) -> Row:
    """Return the run in a folder. Raises: it contains no run."""
    file = path / CONFIG
    if not file.is_file():
        what = "contains no run" if path.exists() else "does not exist"
        raise RegardError(f"{path} {what}; regard runs list FOLDER shows the runs of a folder")
    try:
        values = tomllib.loads(read_bytes(file, LIMIT).decode())
        task, model = str(values["task"]), str(values["model"])
        data = str(values["data"].get("data", ""))
        seed = int(values["training"].get("seed", 0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegardError(f"{file} is not the config of a run: {error}") from None
    files = [Path(home) / name for home, _, names in os.walk(path) for name in names]
    stats = [each.lstat() for each in files if each.name not in (LOCK, TAGS)]
    return Row(
        path,
        task,
        model,
        data,
        seed,
        complete=(path / atomic_io.MANIFEST).is_file(),
        score=_best(path / "metrics.jsonl"),
        finished=max(each.st_mtime for each in stats),
        size=sum(each.st_size for each in stats),
        tags=tuple(tags_of(path)),
    )


def _best(file: Path) -> float | None:
    """Return the best validation score in the last row of the metrics, if there is one."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - LAST))
            last = parse_json(stream.read().splitlines()[-1], file)
        return None if last["best"] is None else float(last["best"])
    except (OSError, RegardError, ValueError, KeyError, TypeError, IndexError):
        return None


def tags_of(path: Path) -> list[str]:
    """Return the tags of a run; empty without tags or with an invalid file."""
    try:
        values = parse_json(read_bytes(path / TAGS), TAGS)
    except RegardError:
        return []
    return [str(value) for value in values][:MOST_TAGS] if isinstance(values, list) else []


def tag(path: Path, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
    """Add and remove tags of a run; return all. Raises: no run; an invalid tag; too many."""
    row = row_of(path)
    for word in (*add, *remove):
        if not word or len(word) > LONGEST_TAG or not word.isprintable() or set(word) & set(" ,"):
            raise RegardError(
                f"the tag {word!r:.60} is not valid; use 1 to {LONGEST_TAG} printable characters "
                "without spaces and commas"
            )
    if missing := [word for word in remove if word not in row.tags]:
        raise RegardError(f"{path} has no tag {missing[0]!r}; its tags: {', '.join(row.tags)}")
    tags = sorted({*row.tags, *add} - {*remove})
    if len(tags) > MOST_TAGS:
        raise RegardError(f"{path} would have {len(tags)} tags; the maximum is {MOST_TAGS}")
    atomic_io.write_json(path / TAGS, tags)
    return tags


def must_be_deletable(path: Path) -> Row:
    """Return the run of a folder that `delete` may remove.

    Raises: no run; a link to one; other files in its folder.
    """
    if path.is_symlink():
        raise RegardError(f"{path} is a link; give the folder that it names, {path.resolve()}")
    row = row_of(path)
    temporary = (atomic_io.PARTIAL, atomic_io.DROPPED)
    others = [
        each.name
        for each in sorted(path.iterdir())
        if each.name not in OWN and not (each.name[0] == "." and each.name.endswith(temporary))
    ]
    if others:
        raise RegardError(
            f"{path} contains {others[0]!r:.80}, which is not part of a run; move it away, or "
            "delete the folder yourself"
        )
    return row


def delete(path: Path) -> None:
    """Delete the folder of a run; links inside it are removed, not followed.

    Raises: as `must_be_deletable`; a process is writing to the run.
    """
    must_be_deletable(path)
    with atomic_io.locked(path / LOCK, wait=False):
        atomic_io.remove_folder(path.absolute())
