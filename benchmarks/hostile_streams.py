"""Deceptive gzip files, and tar archives in gzip."""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from struct import pack

from benchmarks.hostile_zips import Make, deflated, member, repeated, zipped

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
REVIEW = "aclImdb/train/pos/7_7.txt"
Add = Callable[[tarfile.TarFile], object]


def packed(data: bytes, header: bytes = HEADER, checksum: int | None = None,
           size: int | None = None) -> bytes:  # fmt: skip
    """Return one gzip member; given values replace those of its end."""
    crc = zlib.crc32(data) if checksum is None else checksum
    return header + deflated(data) + pack("<LL", crc, (len(data) if size is None else size) % 2**32)


def flagged(flag: int, field: bytes) -> Make:
    """Return a function that makes a file with an additional header field."""
    return lambda data: packed(data, HEADER[:3] + bytes([flag]) + HEADER[4:] + field)


def bomb(unit: bytes) -> bytes:
    """Return a file of some 4 GB."""
    return HEADER + repeated(unit, 4_000) + b"\0" * 8


def two(data: bytes) -> bytes:
    """Return the halves as two members."""
    half = len(data) // 2
    return packed(data[:half]) + packed(data[half:])


GZIPS: dict[str, Make] = {
    "sound": packed,
    "two members": two,
    "100,000 empty members": lambda data: packed(b"") * 100_000 + packed(data),
    "wrong checksum": partial(packed, checksum=1),
    "wrong size": partial(packed, size=1),
    "cut in the header": lambda data: packed(data)[:6],
    "cut in the middle": lambda data: packed(data)[: len(packed(data)) // 2],
    "cut in the checksum": lambda data: packed(data)[:-6],
    "extra field of 65,535 bytes": flagged(4, b"\xff\xff" + b"x" * 65_535),
    "extra field that is not there": lambda data: packed(data, HEADER[:3] + b"\4" + HEADER[4:]),
    "name of 1 MB": flagged(8, b"x" * 1_000_000 + b"\0"),
    "comment without end": lambda data: HEADER[:3] + b"\x10" + HEADER[4:] + b"x" * 1_000_000,
    "unknown method": lambda data: packed(data, b"\x1f\x8b\x07" + HEADER[3:]),
    "zeros behind it": lambda data: packed(data) + b"\0" * 5_000,
    "bytes behind it": lambda data: packed(data) + b"x" * 5_000,
    "bytes before it": lambda data: b"#!/bin/sh\n" + packed(data),
    "one line of 4 GB": lambda data: bomb(b"\0"),
    "4 GB of rows": lambda data: bomb(data.splitlines(keepends=True)[-1]),
    "4 GB of empty rows": lambda data: bomb(b"\n"),
    "4 GB of commas": lambda data: bomb(b",\n"),
    "4 GB behind sound rows": lambda data: packed(data) + bomb(b" "),
    "bzip2 called .gz": bz2.compress,
    "xz called .gz": lzma.compress,
    "zip called .gz": lambda data: zipped(member(data)),
    "gzip in gzip": lambda data: packed(packed(data)),
    "text called .gz": lambda data: data,
    "holds nothing": lambda data: packed(b""),
    "no bytes": lambda data: b"",
}


def tarred(*first: Add, last: Iterable[Add] = (), how: int = tarfile.USTAR_FORMAT) -> Make:
    """Return a function that makes an archive of these reviews, with more before or after."""

    def make(data: bytes) -> bytes:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=how) as archive:
            for add in first:
                add(archive)
            for line in data.decode().splitlines():
                name, _, text = line.partition(" ")
                one(name, text.encode())(archive)
            for add in last:
                add(archive)
        return gzip.compress(content.getvalue(), 1)

    return make


def one(name: str = REVIEW, content: bytes = b"", kind: bytes = tarfile.REGTYPE,
        link: str = "", pax: dict[str, str] | None = None) -> Add:  # fmt: skip
    """Return a function that adds a member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    info.pax_headers = pax or {}
    return lambda archive: archive.addfile(info, io.BytesIO(content))


def raw(kind: bytes, content: bytes, size: int | None = None, name: str = REVIEW) -> Add:
    """Return a function that adds a given header, and bytes after it."""

    def add(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, 0
        block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        told = len(content) if size is None else size
        if 0 <= told < 8**11:
            block[124:136] = b"%011o\0" % told
        else:
            block[124:136] = (told % 2**96 | (0x80 << 88 if told > 0 else 0)).to_bytes(12, "big")
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        assert archive.fileobj is not None
        archive.fileobj.write(bytes(block) + content + b"\0" * (-len(content) % 512))

    return add


def many(archive: tarfile.TarFile, count: int) -> None:
    """Add so many empty files."""
    assert archive.fileobj is not None
    archive.fileobj.write(tarfile.TarInfo("x").tobuf() * count)


def bad_header(data: bytes) -> bytes:
    """Return an archive with a wrong header checksum; reviews after it are lost."""
    whole = bytearray(gzip.decompress(tarred()(data)))
    middle = whole.index(b"aclImdb", len(data.splitlines()) // 2 * 1_024)
    whole[middle : middle + 100] = b"x" * 100
    return gzip.compress(bytes(whole))


def cut_tar(share: float) -> Make:
    """Return a function that makes a truncated archive, in valid gzip."""

    def make(data: bytes) -> bytes:
        whole = gzip.decompress(tarred()(data))
        return gzip.compress(whole[: int(len(whole) * share)])

    return make


LONG = tarfile.GNUTYPE_LONGNAME
PAX = tarfile.XHDTYPE
TARS: dict[str, Make] = {
    "sound": tarred(),
    "by pax": tarred(one("x", pax={"comment": "x" * 300}), how=tarfile.PAX_FORMAT),
    "../x beside": tarred(one("../x", b"x")),
    "/etc/passwd beside": tarred(one("/etc/passwd", b"x")),
    "C:\\x beside": tarred(one("C:\\x", b"x")),
    "a name with NUL": tarred(one("a\0b", b"x")),
    "a name that is no UTF-8": tarred(one("a\udcff", b"x")),
    "a name of 70,000 letters": tarred(one("a" * 70_000, b"x"), how=tarfile.GNU_FORMAT),
    "2,000 long names before one file": tarred(
        *[raw(LONG, b"a" * 200, name="././@LongLink")] * 2_000
    ),
    "a long name of 8 GB": tarred(last=[raw(LONG, b"a", 8 << 30)]),
    "2,000 pax headers before one file": tarred(*[raw(PAX, b"11 path=ab\n")] * 2_000),
    "a pax header of 2 MB of digits": tarred(raw(PAX, b"1" * 2_000_000)),
    "a pax length of 5,000 digits": tarred(raw(PAX, b"1" * 5_000 + b" path=a\n")),
    "a pax header of 8 GB": tarred(last=[raw(PAX, b"11 path=ab\n", 8 << 30)]),
    "a pax size of -1": tarred(raw(PAX, b"11 size=-1\n"), one("x", b"x")),
    "a pax size of 10³⁰": tarred(raw(PAX, b"40 size=" + b"9" * 31 + b"\n"), one("x", b"x")),
    "a pax time of 10⁴⁰⁰": tarred(raw(PAX, b"16 mtime=1e99999"[:15] + b"\n"), one("x", b"x")),
    "a pax time of NaN": tarred(raw(PAX, b"13 mtime=nan\n"), one("x", b"x")),
    "a pax name that leads out": tarred(raw(PAX, b"21 path=../../../abc\n"), one("x", b"x")),
    "a global pax header": tarred(raw(tarfile.XGLTYPE, b"18 comment=abcdef\n")),
    "a link called as a review": tarred(one(kind=tarfile.SYMTYPE, link="/etc/passwd")),
    "a hard link called as a review": tarred(one(kind=tarfile.LNKTYPE, link="/etc/passwd")),
    "a review that is a link to itself": tarred(one(kind=tarfile.LNKTYPE, link=REVIEW)),
    "a device called as a review": tarred(one(kind=tarfile.CHRTYPE)),
    "a block device called as a review": tarred(one(kind=tarfile.BLKTYPE)),
    "a pipe called as a review": tarred(one(kind=tarfile.FIFOTYPE)),
    "a folder called as a review": tarred(one(kind=tarfile.DIRTYPE)),
    "an unknown type called as a review": tarred(one(kind=b"Z")),
    "a sparse review without a map": tarred(raw(tarfile.GNUTYPE_SPARSE, b"x" * 600)),
    "a sparse review of 8 GB": tarred(raw(tarfile.GNUTYPE_SPARSE, b"", 8 << 30)),
    "a negative size": tarred(last=[raw(tarfile.REGTYPE, b"", -1)]),
    "a very negative size": tarred(last=[raw(tarfile.REGTYPE, b"", -(1 << 62), "x")]),
    "a size of 2⁶²": tarred(last=[raw(tarfile.REGTYPE, b"x", 1 << 62, "x")]),
    "a review of 2⁶²": tarred(last=[raw(tarfile.REGTYPE, b"x", 1 << 62)]),
    "a review of 2 MB": tarred(one(content=b"x" * 2_000_000)),
    "a bad header in the middle": bad_header,
    "twice the same review": tarred(one(content=b"once"), one(content=b"again")),
    "an empty review": tarred(one()),
    "a review that is no UTF-8": tarred(one(content=b"\xff")),
    "60,000 members": tarred(lambda archive: many(archive, 60_000)),
    "bytes behind the end": lambda data: tarred()(data) + gzip.compress(b"x" * 5_000),
    "4 GB behind the end": lambda data: tarred()(data) + bomb(b"\0"),
    "no end": cut_tar(0.0),
    "cut in a header": cut_tar(0.07),
    "cut in the last third": cut_tar(0.7),
    "wrong checksum": lambda data: tarred()(data)[:-8] + b"\0" * 8,
    "cut in gzip": lambda data: tarred()(data)[:-20],
    "4 GB of zeros": lambda data: bomb(b"\0"),
    "4 GB of members": lambda data: bomb(gzip.decompress(tarred()(data))[:1024]),
    "bzip2 called .gz": lambda data: bz2.compress(gzip.decompress(tarred()(data))),
    "xz called .gz": lambda data: lzma.compress(gzip.decompress(tarred()(data))),
    "no gzip": lambda data: gzip.decompress(tarred()(data)),
    "no tar": packed,
}
