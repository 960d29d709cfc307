"""Deceptive zip archives: each is made from the bytes of its member ``a.txt``."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from struct import pack

Make = Callable[[bytes], bytes]
MOST = 0xFFFFFFFF  # of a field of 32 bits
MANY = 10_000  # members


@dataclass(frozen=True)
class Member:
    """A member as in the directory; its own header is equal unless given."""

    content: bytes  # as it is packed
    checksum: int
    size: int  # unpacked
    name: bytes = b"a.txt"
    method: int = zipfile.ZIP_DEFLATED
    flags: int = 0
    packed_size: int | None = None
    extra: bytes = b""
    mode: int = 0o100644
    own_name: bytes | None = None
    offset: int | None = None  # where it is said to begin
    mark: bytes = b"PK\3\4"

    def fields(self) -> bytes:
        """Return the fields of both headers."""
        packed = len(self.content) if self.packed_size is None else self.packed_size
        return pack("<HHHHHLLLHH", 20, self.flags, self.method, 0, 0x21, self.checksum, packed,
                    self.size, len(self.name), len(self.extra))  # fmt: skip


def deflated(data: bytes) -> bytes:
    """Return the bytes packed as in a zip archive."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def member(data: bytes, content: bytes | None = None, method: int = 8) -> Member:
    """Return a valid member with the data."""
    content = deflated(data) if content is None else content
    return Member(content, zlib.crc32(data), len(data), method=method)


def zipped(
    *members: Member, before: bytes = b"", comment: bytes = b"", after: bytes = b"",
    count: int | None = None, size: int | None = None, offset: int | None = None,
) -> bytes:  # fmt: skip
    """Return an archive; given values replace those of its end record."""
    body, directory = bytearray(before), bytearray()
    for one in members:
        begins = len(body) - len(before) if one.offset is None else one.offset
        name = one.name if one.own_name is None else one.own_name
        if one.offset is None:
            fields = replace(one, name=name).fields()
            body += one.mark + fields + name + one.extra + one.content
        directory += b"PK\1\2" + pack("<H", 3 << 8) + one.fields()
        directory += pack("<HHHLL", 0, 0, 0, one.mode << 16, begins) + one.name + one.extra
    number = len(members) % 65_536 if count is None else count
    end = pack("<HHHHLLH", 0, 0, number, number, len(directory) if size is None else size,
               len(body) - len(before) if offset is None else offset, len(comment))  # fmt: skip
    return bytes(body + directory) + b"PK\5\6" + end + comment + after


def zip64(*members: Member, entries: int, size: int | None = None) -> bytes:
    """Return an archive with an additional 64-bit end record."""
    plain = zipped(*members)
    end = plain.rindex(b"PK\5\6")
    at = int.from_bytes(plain[end + 16 : end + 20], "little")
    told = pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, entries, entries,
                end - at if size is None else size, at)  # fmt: skip
    locator = b"PK\6\7" + pack("<LQL", 0, end, 1)
    last = b"PK\5\6" + pack("<HHHHLLH", 0, 0, 0xFFFF, 0xFFFF, MOST, MOST, 0)
    return plain[:end] + b"PK\6\6" + told + locator + last


@cache
def repeated(unit: bytes, times: int) -> bytes:
    """Return the unit repeated to a million bytes, and its multiple packed at 1,000 to 1."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = unit * (1_000_000 // len(unit) + 1)
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return first * times + b"\3\0"


def bomb(unit: bytes, times: int = 4_000) -> Member:
    """Return a member of some 4 GB."""
    return Member(repeated(unit, times), 0, times * (1_000_000 // len(unit) + 1) * len(unit))


def changed(**fields: object) -> Make:
    """Return a function that makes an archive of one member with changed fields."""
    return lambda data: zipped(replace(member(data), **fields))  # type: ignore[arg-type]


def other_method(number: int, content: bytes = b"?" * 40) -> Make:
    """Return a function that makes a member with another method's number."""
    return lambda data: zipped(member(data, content, number))


def cut(share: float) -> Make:
    """Return a function that makes a truncated archive."""
    return lambda data: (whole := zipped(member(data)))[: int(len(whole) * share)]


def overlapping(data: bytes) -> bytes:
    """Return an archive where thousands of members share the same bytes."""
    one = member(data)
    many = [replace(one, name=b"%d.bin" % i, offset=0) for i in range(MANY)]
    return zipped(one, *many)


@cache
def crowded(data: bytes) -> bytes:
    """Return an archive whose directory has the same member 400,000 times."""
    whole = zipped(member(data))
    begins, ends = whole.index(b"PK\1\2"), whole.rindex(b"PK\5\6")
    directory = whole[begins:ends] * 400_000
    return whole[:begins] + directory + whole[ends : ends + 12] + pack(
        "<LLH", len(directory), begins, 0
    )  # fmt: skip


def with_empty(others: Sequence[bytes]) -> Make:
    """Return a function that makes an archive with additional empty members."""
    return lambda data: zipped(
        member(data), *(replace(member(b""), name=name) for name in others)
    )  # fmt: skip


def inner(levels: int) -> Make:
    """Return a function that makes nested archives of this depth."""

    def make(data: bytes) -> bytes:
        for _ in range(levels):
            data = zipped(member(data))
        return data

    return make


def sizes64(data: bytes) -> bytes:
    """Return a member with 64-bit sizes of 2⁶³."""
    extra = pack("<HHQQ", 1, 16, 1 << 63, 1 << 63)
    return zipped(replace(member(data), size=MOST, packed_size=MOST, extra=extra))


def bzip2_bomb(data: bytes) -> bytes:
    """Return a member of 4 GB in 5 kB."""
    content = bz2.compress(b"\0" * 400_000_000) * 10
    return zipped(Member(content, 0, 4_000_000_000, method=zipfile.ZIP_BZIP2))


ZIPS: dict[str, Make] = {
    "sound": lambda data: zipped(member(data)),
    "stored": lambda data: zipped(member(data, data, 0)),
    "bzip2": lambda data: zipped(member(data, bz2.compress(data), 12)),
    "LZMA, a dictionary of 4 GB": other_method(
        14, b"\x09\x04\x05\x00\x5d\xff\xff\xff\xff" + b"\0" * 40
    ),
    "Deflate64": other_method(9),
    "zstd": other_method(93),
    "PPMd": other_method(98),
    "unknown method": other_method(77),
    "encrypted": changed(flags=1),
    "strongly encrypted": changed(flags=0x41),
    "patched data": changed(flags=0x20),
    "one line of 4 GB": lambda data: zipped(bomb(b"\0")),
    "4 GB of rows": lambda data: zipped(bomb(data.splitlines(keepends=True)[0])),
    "4 GB of empty rows": lambda data: zipped(bomb(b"\n")),
    "4 GB said to be few bytes": lambda data: zipped(replace(bomb(b"\0"), size=100)),
    "4 GB by bzip2 in 5 kB": bzip2_bomb,
    "overlapping members": overlapping,
    "an archive in an archive": inner(2),
    "eight archives deep": inner(8),
    "10,000 members": with_empty([b"%d.bin" % i for i in range(MANY)]),
    "400,000 members": crowded,
    "said to be empty": changed(size=0),
    "said to be smaller": changed(size=10),
    "said to be 4 GB": changed(size=MOST - 1),
    "said to be packed in 4 GB": changed(packed_size=MOST - 1),
    "said to be packed in nothing": changed(packed_size=0),
    "2⁶³ by zip64": sizes64,
    "zip64 of 2³² entries": lambda data: zip64(member(data), entries=1 << 32),
    "zip64 of a directory of 2⁶³": lambda data: zip64(member(data), entries=1, size=1 << 63),
    "../x beside it": with_empty([b"../x"]),
    "/etc/passwd beside it": with_empty([b"/etc/passwd"]),
    "called ../a.txt": changed(name=b"../a.txt"),
    "called /etc/a.txt": changed(name=b"/etc/a.txt"),
    "called C:\\a.txt": changed(name=b"C:\\a.txt"),
    "called with NUL": changed(name=b"a\0.txt"),
    "called in two lines": changed(name=b"a\n\x1b[31m.txt"),
    "called by 65,000 letters": changed(name=b"a" * 65_000 + b".txt"),
    "called by 65,000 letters, beside": with_empty([b"b" * 65_000 + b".txt"]),
    "called by no UTF-8": changed(name=b"\xff\xfe.txt", flags=0x800),
    "called by nothing": changed(name=b""),
    "twice the same name": lambda data: zipped(member(data), member(data)),
    "twice, with other bytes": lambda data: zipped(member(b"x\n"), member(data)),
    "a folder": changed(name=b"a.txt/"),
    "a link to /etc/passwd": lambda data: changed(mode=0o120777)(b"/etc/passwd"),
    "of a device's kind": changed(mode=0o020666),
    "of a pipe's kind": changed(mode=0o010666),
    "wrong checksum": changed(checksum=1),
    "cut in the member": cut(0.3),
    "cut in the directory": cut(0.75),
    "cut in the last byte": lambda data: zipped(member(data))[:-1],
    "bytes behind it": lambda data: zipped(member(data), after=b"x" * 1_000),
    "70,000 bytes behind it": lambda data: zipped(member(data), after=b"x" * 70_000),
    "bytes before it (a program)": lambda data: zipped(member(data), before=b"MZ" * 5_000),
    "directory of no entries": lambda data: zipped(member(data), count=0, size=0),
    "directory of 65,535 entries": lambda data: zipped(member(data), count=0xFFFE),
    "directory of 4 GB": lambda data: zipped(member(data), size=MOST - 1),
    "directory at 4 GB": lambda data: zipped(member(data), offset=MOST - 1),
    "comment like an end record": lambda data: zipped(
        member(data), comment=b"PK\5\6" + b"\0" * 18 + b"PK\5\6"
    ),
    "another name in its own header": changed(own_name=b"b.txt"),
    "no header of its own": changed(mark=b"PK\3\5"),
    "begins beyond the end": changed(offset=1 << 30),
    "extra field of another length": changed(extra=pack("<HH", 1, 60_000)),
    "only an end record": lambda data: zipped(),
    "gzip called .zip": gzip.compress,
    "xz called .zip": lzma.compress,
    "text called .zip": lambda data: data,
    "no bytes": lambda data: b"",
}
