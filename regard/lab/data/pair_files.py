"""Text pairs from files: two aligned files, TSV, CSV, JSON lines, or a zip of them.

The file name decides the format:

* ``train.de,train.en``, or ``train`` with the names de and en: line i belongs to line i.
* ``.tsv``, ``.tab``, ``.txt``: source and target separated by a tab, optionally a third column
  (Tatoeba's attributions), which is ignored, and a header. Quotes are text.
* ``.csv``: with a header.
* ``.jsonl``, ``.ndjson``: one object per line, optionally nested in "translation".
* ``.zip``: one such file, or two aligned ones, streamed, never extracted; ``a.zip/member.tsv``
  selects one of several.

Default names are source and target, src and tgt, input and output, or two languages, the first of
them the source. All but a zip may also be .gz. Texts are UTF-8; surrounding whitespace is removed.
"""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.data.archives import open_member, open_zip
from regard.lab.data.data_source import DataSource, Limits
from regard.lab.data.examples import BadRow
from regard.lab.data.files import TOLERATED
from regard.lab.data.lines import FILE_LIMIT, open_binary, path_of
from regard.lab.data.pair_rows import STREAMED, Row, rows_of, side_by_side
from regard.lab.data.pairs import Pair
from regard.lab.data.records import KINDS, table_kind
from regard.lab.data.spelling import counted
from regard.lab.data.titles import listed

PAIR_KINDS = {**KINDS, ".txt": "tsv"}
MOST = 2_000_000  # maximum pairs in memory: some 1 GB
PACKED = 4  # assumed compression ratio


class TooManyError(RegardError):
    """More pairs than fit into memory."""


@dataclass
class PairStream:
    """Pairs that are streamed from a file on each iteration.

    ``notes`` describe what the last complete iteration skipped.
    """

    name: str
    scan: Callable[[], Iterator[Row]] = field(repr=False)
    limits: Limits
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Pair]:
        longest, good, empty, long = self.limits.longest, 0, 0, 0
        first = first_empty = first_long = ""
        for row in self.scan():
            if isinstance(row, BadRow):
                if not row.empty:
                    raise RegardError(f"{row.source}: {row.why}")
                empty += 1
                first = first or f"{row.source}: {row.why}"
                first_empty = first_empty or row.source
                continue
            size = max(len(row.source), len(row.target))
            if 0 < longest < size:
                if self.limits.too_long == "refuse":
                    raise RegardError(
                        f"{row.place}: a text of {size:,} characters exceeds the limit of "
                        f"{longest:,}; shorten it or increase longest="
                    )
                long += 1
                first_long = first_long or row.place
                continue
            good += 1
            yield row
        rows = good + empty + long
        if empty > TOLERATED * rows:
            raise RegardError(
                f"{first}; {empty:,} of {rows:,} pairs are incomplete, more than {TOLERATED:.0%}; "
                "fix them, the files may be misaligned"
            )
        if not good:
            why = f": all {long:,} are longer than {longest:,} characters" if long else ""
            raise RegardError(f"{self.name}: contains no text pairs{why}")
        self.notes = tuple(
            f"{counted(count, 'pair')} skipped, {why}, first {place}"
            for count, place, why in (
                (empty, first_empty, "with an empty side"),
                (long, first_long, f"longer than {longest:,} characters"),
            )
            if count
        )


def iterate_pairs(source: DataSource | Path | str) -> PairStream:
    """Return a stream of the pairs of a file (or of two) that can be iterated repeatedly.

    ``target`` is the second of two aligned files; the columns text and label are those of the two
    sides, keys or the suffixes of two files.

    Raises, with file:line: two files of different length; bytes that are not UTF-8; a row that is
    not a pair; more than 1 % of the pairs with an empty side (fewer are skipped and noted; two
    empty lines are ignored); no pairs at all.
    """
    source = DataSource.of(source)
    path, *targets = files_of(source)

    def scan() -> Iterator[Row]:
        if not targets:
            yield from _scan_one(path, _sides(source))
        for target in targets:
            with open_binary(path) as left, open_binary(target) as right:
                yield from side_by_side(left, path.name, right, target.name)

    return PairStream(path.name, scan, source.limits)


def read_pairs(source: DataSource | Path | str, *, most: int = MOST) -> list[Pair]:
    """Return all pairs of a file in order, of any length, in memory; see `iterate_pairs`.

    Raises: as `iterate_pairs`, and more than `most` pairs.
    """
    return collect(iterate_pairs(replace(DataSource.of(source), limits=Limits(longest=0))), most)


def collect(stream: PairStream, most: int = MOST) -> list[Pair]:
    """Return all pairs of a stream. Raises: more than `most`."""
    pairs = []
    for pair in stream:
        pairs.append(pair)
        if len(pairs) > most:
            raise TooManyError(
                f"{stream.name}: more than {most:,} pairs do not fit into memory; use a smaller "
                "file"
            )
    return pairs


def files_of(source: DataSource) -> list[Path]:
    """Return the one or two files that a source names."""
    data, names = source.name, _sides(source)
    path = path_of(data)
    if source.target:
        return [path, path_of(source.target)]
    if path.is_file() or member_of(path)[1]:
        return [path]
    aligned = all(names) and not path.is_dir()
    sides = [_plain_or_packed(path, name) for name in names if aligned]
    if "," in data and not any(sides):
        first, _, second = data.partition(",")
        return [path_of(first.strip()), path_of(second.strip())]
    if aligned:
        if not any(sides):
            raise RegardError(
                f"{path}: no such file, nor {path.name}.{names[0]} and {path.name}.{names[1]}"
            )
        for side, name, other in zip(sides, names, sides[::-1], strict=True):
            if side is None:
                raise RegardError(f"{path}.{name}: no such file next to {other}")
        return [side for side in sides if side is not None]
    return [path]


def _plain_or_packed(prefix: Path, ending: str) -> Path | None:
    plain = prefix.with_name(f"{prefix.name}.{ending}")
    packed = prefix.with_name(f"{prefix.name}.{ending}.gz")
    return next((path for path in (plain, packed) if path.is_file()), None)


def member_of(path: Path) -> tuple[Path, str]:
    """Return a path and "", or the archive and the member that ``a.zip/b.tsv`` names."""
    for parent in path.parents:
        if parent.suffix.lower() == ".zip" and parent.is_file():
            return parent, path.relative_to(parent).as_posix()
    return path, ""


def bytes_of(source: DataSource) -> int:
    """Return the bytes of text in one or two files; for .gz an estimate."""
    total = 0
    for path in files_of(source):
        place, member = member_of(path)
        if not place.is_file():
            continue
        if place.suffix.lower() == ".zip":
            with open_zip(place) as archive:
                chosen = _members(archive, place, member, _sides(source))
                total += sum(archive.getinfo(name).file_size for name in chosen)
        else:
            total += path.stat().st_size * (PACKED if path.suffix.lower() == ".gz" else 1)
    return total


def _sides(source: DataSource) -> tuple[str, str]:
    return source.columns.text, source.columns.label


def _scan_one(path: Path, names: tuple[str, str]) -> Iterator[Row]:
    place, member = member_of(path)
    if place.suffix.lower() == ".zip":
        yield from _scan_zip(place, member, names)
        return
    kind = table_kind(path, PAIR_KINDS)
    if kind is None:
        raise RegardError(
            f"{path}: unsupported file type; use a .tsv, .txt, .csv, .jsonl or .zip file of "
            "pairs, or two aligned files: FILE,FILE"
        )
    with open_binary(path) as file:
        yield from rows_of(file, path.name, kind, names, STREAMED)


def _scan_zip(path: Path, member: str, names: tuple[str, str]) -> Iterator[Row]:
    with open_zip(path) as archive, ExitStack() as stack:
        chosen = _members(archive, path, member, names)
        files = [stack.enter_context(open_member(archive, path, name)) for name in chosen]
        titles = [Path(name).name for name in chosen]
        if len(chosen) == 2:
            yield from side_by_side(files[0], titles[0], files[1], titles[1])
        else:
            kind = table_kind(titles[0], PAIR_KINDS) or "tsv"
            yield from rows_of(files[0], titles[0], kind, names, FILE_LIMIT)


def _members(
    archive: zipfile.ZipFile, path: Path, member: str, names: tuple[str, str]
) -> list[str]:
    """Return the one member with pairs, or the two with the suffixes of the sides."""
    files = [
        name for name in archive.namelist()
        if not (name.endswith("/") or name.startswith("__MACOSX/") or f"/{name}".count("/._"))
    ]  # fmt: skip
    if member:
        if member not in files:
            raise RegardError(f"{path}: no member {member!r}; members: {listed(files)}")
        return [_unpackable(path, member)]
    if all(names):
        sides = [[name for name in files if name.endswith(f".{side}")] for side in names]
        if len(sides[0]) == len(sides[1]) == 1:
            return [_unpackable(path, name) for name in sides[0] + sides[1]]
    tables = [
        name for name in files
        if table_kind(name, PAIR_KINDS)
        and not Path(name).name.lower().startswith(("_", ".", "readme", "license"))
    ]  # fmt: skip
    if len(tables) != 1:
        raise RegardError(
            f"{path}: cannot tell which member contains the pairs; give {path}/NAME; members: "
            f"{listed(tables or files) or 'none'}"
        )
    return [_unpackable(path, name) for name in tables]


def _unpackable(path: Path, member: str) -> str:
    """Return the member. Raises: one that is itself compressed."""
    if member.lower().endswith((".gz", ".zip")):
        raise RegardError(f"{path}: {member!r:.80} is compressed twice; unpack it first")
    return member
