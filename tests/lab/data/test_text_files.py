"""Files of texts by name, pattern and address."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data import text_files
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.text_files import TextFile, files_at, is_pattern
from regard.lab.data.text_rows import documents
from regard.lab.data.texts import read_texts
from tests.lab.data.small_files import write

fsspec = pytest.importorskip("fsspec", reason="fsspec comes with the extra data")


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def parquet(path, **columns):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with the extra data")
    written = pytest.importorskip("pyarrow.parquet", reason="pyarrow comes with the extra data")
    written.write_table(pyarrow.table(columns), path)
    return path


def test_a_pattern_names_files_in_order(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "deep/c.jsonl", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(lines(name))
    assert [file.name for file in files_at(f"{tmp_path}/*.jsonl")] == ["a.jsonl", "b.jsonl"]
    assert len(files_at(f"{tmp_path}/**/*.jsonl")) == 3
    assert read_texts(f"{tmp_path}/*.jsonl")[0] == ["a.jsonl", "b.jsonl"]


def test_a_file_with_the_signs_of_a_pattern_is_itself(tmp_path):
    path = write(tmp_path / "a[1].txt", "one\n")
    assert not is_pattern(str(path))
    assert [file.name for file in files_at(str(path))] == ["a[1].txt"]


def test_an_address_is_read_like_a_file(memory):
    memory.pipe("/b/one.jsonl.gz", gzip.compress(lines("first", "second")))
    memory.pipe("/b/two.jsonl.gz", gzip.compress(lines("third")))
    assert read_texts("memory://b/*.jsonl.gz")[0] == ["first", "second", "third"]
    (file,) = files_at("memory://b/two.jsonl.gz")
    assert list(documents(file)) == ["third"]
    assert file.done == file.size > 0
    assert files_at("memory://b/two.jsonl.gz") == [file], "its version is told again"


def test_parquet_is_read_from_disk_and_address(tmp_path, memory):
    path = parquet(tmp_path / "a.parquet", n=[1, 2, 3], body=["x", None, "z"])
    assert read_texts(DataSource(path, columns=Columns("body")))[0] == ["x", "z"]
    memory.pipe("/b/a.parquet", path.read_bytes())
    assert read_texts(DataSource("memory://b/a.parquet", columns=Columns("body")))[0] == ["x", "z"]
    with pytest.raises(RegardError, match="unknown column 'text'; columns: 'n', 'body'"):
        read_texts(DataSource(path, columns=Columns("text")))
    with pytest.raises(RegardError, match=r"a\.parquet:1: 'n' must be a string, not 1"):
        read_texts(DataSource(path, columns=Columns("n")))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RegardError, match=r"a\.parquet: damaged or in another format"):
        read_texts(DataSource(path, columns=Columns("body")))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("memory://b/none.txt", "no such file"),
        ("memory://b/*.none", "no file matches the pattern"),
        ("/nowhere/*.txt", "no file matches the pattern"),
        ("/nowhere/x.txt", "no such file"),
        ("zip://a.txt::memory://b.zip", "unsupported address; use s3://"),
        ("simplecache::s3://b/a.txt", "unsupported address"),
        ("file:///etc/passwd", "unsupported address"),
        ("nope://a/b.txt", "unsupported address"),
    ],
)
def test_what_is_not_there_is_said(memory, data, says):
    with pytest.raises(RegardError, match=says):
        read_texts(data)


def test_a_missing_handler_is_named_with_its_command(monkeypatch):
    def missing(address):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(RegardError, match=r"requires s3fs, .*: pip install s3fs"):
        files_at("s3://bucket/a.txt")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(RegardError, match="requires fsspec"):
        files_at("s3://bucket/a.txt")


def test_the_query_of_a_web_address_is_no_part_of_its_name():
    file = TextFile("https://host/a/b.jsonl.gz?sign=x/y.z", 1, "")
    assert (file.name, file.suffix) == ("b.jsonl.gz", ".gz")
    assert not is_pattern(file.address)
    assert is_pattern("s3://bucket/part-?.jsonl")


def test_a_store_that_names_files_without_their_host_keeps_it(memory, monkeypatch):
    memory.pipe("/b/a.txt", b"one\n")
    monkeypatch.setattr(text_files, "_store", lambda address: (memory, "/b/*.txt"))
    assert files_at("sftp://host:22/b/*.txt")[0].address == "sftp://host:22/b/a.txt"
    monkeypatch.setattr(memory, "glob", lambda *_, **__: {"a": {"name": "a", "type": "file"}})
    with pytest.raises(RegardError, match="s3://a: the server does not report its size"):
        files_at("s3://b/*.txt")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(RegardError, match=r"is a folder; name its files, such as .*/\*\.jsonl"):
        read_texts(str(tmp_path))


def test_an_error_of_a_store_is_one_line(memory, monkeypatch):
    class OwnError(Exception):
        """As those of botocore, which are no OSErrors."""

    memory.pipe("/b/a.txt", b"one\n")
    (file,) = files_at("memory://b/a.txt")

    def broken(*args, **options):
        raise OwnError("no\ncredentials")

    monkeypatch.setattr(type(memory), "open", broken)
    with pytest.raises(RegardError, match=r"memory://b/a\.txt: cannot read: no credentials"):
        list(documents(file))


def test_a_change_since_the_listing_is_an_error(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")
    (file,) = files_at(str(path))
    file.must_be_unchanged()
    path.write_text("one\ntwo\n")
    with pytest.raises(RegardError, match=r"changed while it was read .8 bytes now, 4 before"):
        file.must_be_unchanged()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl.gz", gzip.compress(lines("one" * 99), mtime=0)[:-20], "truncated"),
        ("a.jsonl.gz", b"no gzip", "damaged or not a gzip file"),
        ("a.jsonl", b'{"text": "a"}\n{"tex', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"text": "a\xff"}\n', r"a\.jsonl:1: not UTF-8"),
        ("a.txt", b"fine\nb\xe9d\n", r"a\.txt:2: not UTF-8"),
        ("a.jsonl", lines("x" * 1_000_001), r"a\.jsonl:1: the line is longer than 1,000,000"),
        (
            "a.jsonl.gz",
            gzip.compress(b" " * 9_000_000, mtime=0),
            "the line is longer|compression ratio",
        ),
        (
            "a.txt.gz",
            gzip.compress(b"\n" * 9_000_000, mtime=0),
            "the compression ratio exceeds 100",
        ),
        ("a.txt", b"", "the file is empty"),
    ],
)
def test_bad_files_at_an_address_are_named_by_line(memory, name, content, says):
    memory.pipe(f"/b/{name}", content)
    (file,) = files_at(f"memory://b/{name}")
    with pytest.raises(RegardError, match=says):
        list(documents(file))


def test_a_passage_has_a_limit(tmp_path, monkeypatch):
    from regard.lab.data import text_rows

    monkeypatch.setattr(text_rows, "PASSAGE_LIMIT", 10)
    path = write(tmp_path / "a.txt", "one\n\nlong\nlong\nlong\n")
    with pytest.raises(RegardError, match="the passage is longer than 10 characters"):
        list(documents(TextFile(str(path), 20, "")))


def test_the_beginning_of_a_file_decides_what_a_passage_is(tmp_path, monkeypatch):
    from regard.lab.data import text_rows

    path = Path(tmp_path / "a.txt")
    path.write_text("one\ntwo\n\nthree\n")
    file = TextFile(str(path), 15, "")
    assert list(documents(file)) == ["one\ntwo", "three"]
    monkeypatch.setattr(text_rows, "DECIDING", 8)
    assert list(documents(file)) == ["one", "two", "three"], "no line of these is empty"
