"""Open deceptive archives; each must be read correctly or refused in one line.

    python -m benchmarks.hostile_archives --out archives.json

The archives are `hostile_zips.ZIPS`, `hostile_streams.GZIPS` and `.TARS`, made on the spot; each is
opened by every reader of such files, in a separate process with the limits of
`benchmarks.robustness`. It fails if it raises anything but a `RegardError` of one line,
returns content that a valid archive does not have, writes a file, takes more than 10 seconds of a
processor or 1 GB, or if the process dies. ``--only`` selects readers or archives by a part of their
name.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.hostile_streams import GZIPS, TARS
from benchmarks.hostile_zips import ZIPS, Make, member, zipped
from benchmarks.opened_data import WORDS, sentences
from benchmarks.robustness import Answer, answers, quick_place, used
from regard.core import atomic_io
from regard.lab.data.data_source import DataSource, Splits

LONGEST = 1_000  # letters of a line that refuses
#: Reviews that archives hold beside those of a sound one.
MORE = {"once", "again"}
WRITES = frozenset({"os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate", "os.remove"})

PAIRS = "".join(f"{a}\t{b}\n" for a, b in zip(sentences(90), sentences(90, 1), strict=True))
VECTORS = "".join(f"{word} {i} 0.5 -1\n" for i, word in enumerate(WORDS))
TEXTS = sentences(60)
CSV = "text,label\n" + "".join(f"{t},{('neg', 'pos')[i % 2]}\n" for i, t in enumerate(TEXTS))
JSONL = "".join(json.dumps({"text": t, "label": "a"}) + "\n" for t in TEXTS)
CONLLU = "# label = a\n1\tgood\tgood\tN\t_\t_\t0\troot\t_\t_\n\n" * 20
REVIEWS = "".join(
    f"aclImdb/{split}/{kind}/{i}_{rating}.txt {split} {text}\n"
    for i, text in enumerate(sentences(6))
    for split, kind, rating in (("train", "neg", 2), ("train", "pos", 9), ("test", "neg", 1),
                                ("test", "pos", 8), ("train", "unsup", 0))
)  # fmt: skip


class Reader(NamedTuple):
    """A function that opens an archive called ``file``, and the bytes of a valid one."""

    file: str
    holds: str
    read: Callable[[Path], Any]


def _pairs(path: Path) -> Any:
    from regard.lab.data.pair_files import bytes_of, iterate_pairs, read_pairs

    bytes_of(DataSource(path))
    assert sum(1 for _ in iterate_pairs(path)) > 0
    return [(pair.source, pair.target) for pair in read_pairs(path)]


def _eng_fra(path: Path) -> Any:
    from regard.lab.data.parallel import load_pairs

    corpus = load_pairs(
        DataSource("eng-fra", data_dir=path.parent.parent, splits=Splits(validation=0.2))
    )
    return [(pair.source, pair.target) for part in (corpus.train, corpus.test) for pair in part]


def _vectors(path: Path) -> Any:
    from regard.lab.data.vectors import load_vectors

    return load_vectors(path, WORDS).matrix.tolist()


def _examples(path: Path) -> Any:
    from regard.lab.data.files import read_examples

    return [(example.text, example.label) for example in read_examples(path)]


def _texts(path: Path) -> Any:
    from regard.lab.data.texts import read_texts

    return read_texts(str(path))[0]


def _imdb(path: Path) -> Any:
    from regard.lab.data.imdb import load

    return [e.text for part in load(path) for e in part if e.text not in MORE]


def _imdb_texts(path: Path) -> Any:
    from regard.lab.data.texts import imdb_texts

    return [text for text in imdb_texts(path)[0] if text not in MORE]


KINDS: dict[str, tuple[dict[str, Make], dict[str, Reader]]] = {
    "zip": (ZIPS, {
        "pairs": Reader("a.zip", PAIRS, _pairs),
        "pairs of a member": Reader("a.zip", PAIRS, lambda path: _pairs(path / "a.txt")),
        "eng-fra": Reader("eng-fra/fra-eng.zip", PAIRS, _eng_fra),
        "vectors": Reader("a.zip", VECTORS, _vectors),
    }),
    "gz": (GZIPS, {
        "csv": Reader("a.csv.gz", CSV, _examples),
        "jsonl": Reader("a.jsonl.gz", JSONL, _examples),
        "conllu": Reader("a.conllu.gz", CONLLU, _examples),
        "texts of a column": Reader("a.tsv.gz", "text\n" + "\n".join(TEXTS) + "\n", _texts),
        "passages": Reader("a.txt.gz", "\n".join(TEXTS) + "\n", _texts),
        "pairs": Reader("a.tsv.gz", PAIRS, _pairs),
        "vectors": Reader("a.txt.gz", VECTORS, _vectors),
    }),
    "tar.gz": (TARS, {
        "imdb": Reader("aclImdb_v1.tar.gz", REVIEWS, _imdb),
        "imdb's texts": Reader("aclImdb_v1.tar.gz", REVIEWS, _imdb_texts),
    }),
}  # fmt: skip


def at_path(file: str) -> dict[str, Callable[[Path], object]]:
    """Return what else may be at an archive's path: no file, a folder, a pipe, a link."""

    def wide(path: Path) -> None:  # takes no room on the disk
        end = zipped(member(b"a\tb\n"), size=4_000_000_000, offset=2_000_000_000)
        path.write_bytes(b"PK\3\4" if file.endswith(".zip") else gzip.compress(b"a")[:10])
        os.truncate(path, 6_000_000_000)
        with path.open("ab") as whole:
            whole.write(end[-22:])

    return {
        "a folder of that name": lambda path: path.mkdir(),
        "a pipe of that name": lambda path: os.mkfifo(path),
        "a link to itself": lambda path: path.symlink_to(path),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "a hollow file of 6 GB": wide,
        "no file": lambda path: None,
    }


def cases(only: list[str]) -> Iterator[tuple[str, str, str, Reader, Callable[[Path], object]]]:
    """Yield every kind, archive and reader, with a function that writes the archive."""
    for kind, (makes, readers) in KINDS.items():
        for called, reader in readers.items():
            puts: dict[str, Callable[[Path], object]] = {
                name: partial(_write, make, reader.holds.encode()) for name, make in makes.items()
            }
            for name, put in (puts | at_path(reader.file)).items():
                if all(part in f"{kind}: {name}: {called}" for part in only):
                    yield kind, name, called, reader, put


def _write(make: Make, holds: bytes, path: Path) -> None:
    path.write_bytes(make(holds))


def opened(reader: Reader, sound: Any, put: Callable[[Path], object]) -> Answer:
    """Write an archive and read it in a separate process."""
    with tempfile.TemporaryDirectory(dir=quick_place()) as aside:
        path = Path(aside) / reader.file
        path.parent.mkdir(exist_ok=True)
        put(path)
        (found,) = answers(partial(_read, reader, path, sound), 1)
        left = [each for each in Path(aside).rglob("*") if each not in (path, path.parent)]
    if left:
        return found._replace(kind="wrote", cause=left[0].name)
    return found


def _read(reader: Reader, path: Path, sound: Any, tell: Connection) -> None:
    read: list[Any] = []
    with watched() as written:
        answer = used((lambda _: read.append(reader.read(path)),), path)
    if written:
        answer = answer._replace(kind="wrote", cause=written[0])
    elif answer.kind == "taken" and read[0] != sound:
        answer = answer._replace(kind="wrong", cause=f"{read[0]!r:.60}")
    elif answer.kind == "refused" and (
        len(answer.cause) > LONGEST or not answer.cause.isprintable()
    ):
        answer = answer._replace(kind="wordy", cause=f"{answer.cause!r:.100}")
    tell.send(answer._replace(cause=answer.cause.replace(f"{path.parent}/", "")))


@contextmanager
def watched() -> Iterator[list[str]]:
    """Return a list that collects what this process writes, makes, renames or removes."""
    written: list[str] = []
    sys.dont_write_bytecode = True

    def hook(event: str, told: tuple[Any, ...]) -> None:
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        if event in WRITES or (event == "open" and told[2] is not None and told[2] & writes):
            if str(told[0]).startswith("/proc/self/"):
                return
            written.append(f"{event} {told[0]!r:.60}")

    sys.addaudithook(hook)
    yield written


def sound_of(reader: Reader) -> Any:
    """Return the content of a valid archive."""
    makes = next(makes for makes, readers in KINDS.values() if reader in readers.values())
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / reader.file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(makes["sound"](reader.holds.encode()))
        return reader.read(path)


def main() -> None:
    """Open every archive by every reader, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of 'kind: archive: reader'")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    totals: Counter[str] = Counter()
    sounds: dict[Reader, Any] = {}
    print("| archive | reader | what came | s | MB |\n|---|---|---|--:|--:|")
    for kind, name, called, reader, put in cases(asked.only):
        if reader not in sounds:
            sounds[reader] = sound_of(reader)
        found = opened(reader, sounds[reader], put)
        totals[found.kind] += 1
        says = "read" if found.kind == "taken" else f"{found.kind}: {found.cause}"
        rows.append({"kind": kind, "archive": name, "reader": called, "came": found.kind,
                     "says": found.cause, "s": found.seconds, "mb": found.bytes / 1e6})  # fmt: skip
        print(f"| {kind}: {name} | {called} | {says[:90]} | {found.seconds:.2f} | "
              f"{found.bytes / 1e6:.0f} |", flush=True)  # fmt: skip
    archives = {(row["kind"], row["archive"]) for row in rows}
    print(f"\n{len(archives)} archives, {len(rows)} readings: "
          + ", ".join(f"{count} {kind}" for kind, count in sorted(totals.items())))  # fmt: skip
    if asked.out:
        atomic_io.write_json(asked.out, {"readings": rows})
    sys.exit(bool(set(totals) - {"taken", "refused"}))


if __name__ == "__main__":
    main()
