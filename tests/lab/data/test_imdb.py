import gzip
import json
import random
import tarfile

import pytest

from regard.core.errors import RegardError
from regard.lab.data import imdb
from regard.lab.data.data_source import DataSource
from regard.lab.data.files import read_examples
from regard.lab.data.sources import load_corpus
from tests.lab.data.archives import REVIEWS, archive, folder
from tests.lab.data.small_files import refusal


def lines(path):
    path.mkdir()
    for split in ("train", "test"):
        rows = [
            {"id": name, "label": int("/pos/" in name), "text": text}
            for name, text in sorted(REVIEWS.items(), key=lambda row: numbers(row[0]))
            if name.startswith(split)
        ]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (path / f"{split}.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    return path


def numbers(name):
    split, kind, file = name.split("/")
    return split, kind, [int(part) for part in file.split("_")]


def test_every_shape_gives_the_same_corpus(tmp_path):
    shapes = [
        archive(tmp_path / "aclImdb_v1.tar.gz"),
        folder(tmp_path / "aclImdb"),
        lines(tmp_path / "lines"),
    ]
    corpora = [load_corpus(str(shape)) for shape in shapes]
    assert len({corpus.fingerprint for corpus in corpora}) == 1
    first = corpora[0]
    assert [(e.text, e.label) for e in first.train] == [
        ("a dull film", "negative"),
        ("a tedious film", "negative"),
        ("a moving film<br />", "positive"),
        ("é, a bright film", "positive"),
    ]
    assert [e.label for e in first.test] == ["negative", "negative", "positive"]
    assert first.labels == ("negative", "positive")
    assert first.notes == ("1 row of train dropped: text also in test",)
    assert first.train[1].source == "aclImdb_v1.tar.gz:aclImdb/train/neg/2_4.txt"
    assert corpora[1].train[1].source == "train/neg/2_4.txt"
    assert corpora[2].train[1].source == "train.jsonl.gz:2"


def test_the_film_is_the_group_in_every_shape(tmp_path):
    address = "http://www.imdb.com/title/{}/usercomments\n"
    negative = "".join(address.format(film) for film in ["tt0000010"] * 2 + ["tt0000011"] * 9)
    listed = tarfile.TarInfo("aclImdb/train/urls_neg.txt")
    packed = archive(tmp_path / "aclImdb_v1.tar.gz", extra=[(listed, negative.encode())])
    unpacked = folder(tmp_path / "aclImdb")
    (unpacked / "train" / "urls_neg.txt").write_text(negative)
    for shape in (packed, unpacked):
        train, test = imdb.load(shape)
        groups = [example.group for example in train]
        assert groups == ["tt0000010", "tt0000011", "tt0000011", "", ""]  # 0_3, 2_4, 10_1
        assert {example.group for example in test} == {""}
    rows = lines(tmp_path / "lines")
    path = rows / "train.jsonl.gz"
    told = [
        {**json.loads(line), "movie": f"tt{number}"}
        for number, line in enumerate(gzip.decompress(path.read_bytes()).splitlines())
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, told)).encode()))
    assert [example.group for example in imdb.load(rows)[0]] == ["tt0", "tt1", "tt2", "tt3", "tt4"]


def test_imdb_is_looked_for_by_name(tmp_path, monkeypatch):
    archive(tmp_path / "aclImdb_v1.tar.gz")
    assert len(load_corpus(DataSource("imdb", data_dir=tmp_path)).train) == 4
    (tmp_path / "root").mkdir()
    folder(tmp_path / "root" / "imdb" / "aclImdb")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "root"))
    corpus = load_corpus("imdb")
    assert (corpus.name, corpus.train[0].source) == ("imdb", "train/neg/0_3.txt")
    assert load_corpus(str(tmp_path / "root" / "imdb")).fingerprint == corpus.fingerprint


def test_odd_members_and_links_are_passed_over(tmp_path):
    link = tarfile.TarInfo("aclImdb/train/pos/7_7.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    odd = [
        (link, b""),
        (tarfile.TarInfo("../aclImdb/train/pos/8_8.txt"), b"outside"),
        (tarfile.TarInfo("/aclImdb/train/pos/8_8.txt"), b"absolute"),
        (tarfile.TarInfo("aclImdb/train/unsup/8_0.txt"), b"unlabelled"),
        (tarfile.TarInfo("aclImdb/train/pos/x.txt"), b"no number"),
        (tarfile.TarInfo("aclImdb/train/pos/1_1.txt.exe"), b"another ending"),
    ]
    train, test = imdb.load(archive(tmp_path / "aclImdb_v1.tar.gz", extra=odd))
    assert sorted(e.text for e in [*train, *test]) == sorted(REVIEWS.values())
    assert list(tmp_path.iterdir()) == [tmp_path / "aclImdb_v1.tar.gz"]


def test_archive_cut_anywhere_is_refused(tmp_path):
    chance = random.Random(0)
    noise = {f"train/pos/{i}_8": str(chance.random()) * 40 for i in range(2, 200)}
    path = tmp_path / "aclImdb_v1.tar.gz"
    size = archive(path, REVIEWS | noise).stat().st_size
    for end in [1, 5, 11, *range(40, size, size // 40), size - 9, size - 8, size - 1]:
        archive(path, REVIEWS | noise, end=end)
        with pytest.raises(RegardError, match=r"truncated|damaged|no reviews") as caught:
            imdb.load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_headers_before_others_are_passed_over(tmp_path):
    path = archive(tmp_path / "aclImdb_v1.tar.gz")
    before = b""
    for kind, content, times in (
        (tarfile.GNUTYPE_LONGNAME, b"a" * 512, 400),  # tarfile calls itself for each
        (tarfile.XHDTYPE, b"1" * 256_000, 1),  # takes minutes
        (tarfile.XHDTYPE, b"1" * 5_120 + b" path=a\n" + b" " * 504, 1),  # is no number to it
    ):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, len(content)
        before += (info.tobuf(tarfile.GNU_FORMAT) + content) * times
    path.write_bytes(gzip.compress(before + gzip.decompress(path.read_bytes())))
    train, test = imdb.load(path)
    assert sorted(e.text for e in [*train, *test]) == sorted(REVIEWS.values())


@pytest.mark.parametrize("size", [-1, -(1 << 62), 1 << 62])
def test_sizes_that_no_file_has(tmp_path, size):
    info = tarfile.TarInfo("x")
    info.size = size
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    whole = gzip.decompress(archive(tmp_path / "aclImdb_v1.tar.gz").read_bytes())
    reviews = whole[: 1_024 * len(REVIEWS)]
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(gzip.compress(reviews + block))
    with pytest.raises(RegardError, match=f"not a tar archive .a file of {size:,} bytes"):
        imdb.load(tmp_path / "aclImdb_v1.tar.gz")


def test_a_bad_header_is_not_the_end(tmp_path):
    path = archive(tmp_path / "aclImdb_v1.tar.gz", REVIEWS | {"train/neg/11_1": "lost"})
    whole = bytearray(gzip.decompress(path.read_bytes()))
    last = 1_024 * len(REVIEWS)
    whole[last : last + 9] = b"x" * 9
    path.write_bytes(gzip.compress(bytes(whole)))
    assert "bad checksum" in refusal(imdb.load, path)
    path.write_bytes(gzip.compress(bytes(whole[: last - 1_024])))
    assert "truncated" in refusal(imdb.load, path)


def test_a_folder_that_is_none_of_reviews(tmp_path):
    assert "no reviews in aclImdb/train/neg" in refusal(imdb.load, tmp_path)


BAD = {
    "3_3.txt: not UTF-8 (byte 4)": (b"caf\xe9", ()),
    "3_3.txt: the review is empty": (b" \n", ()),
    "3_3.txt: larger than 1,000,000 bytes": (b"x" * 1_000_001, ()),
    "no reviews in aclImdb/test/pos": (b"fine", ("test/pos/0_10",)),
}


@pytest.mark.parametrize("says", BAD)
@pytest.mark.parametrize("shape", ["archive", "folder"])
def test_bad_reviews(tmp_path, says, shape):
    content, without = BAD[says]
    reviews = {name: text for name, text in REVIEWS.items() if name not in without}
    if shape == "archive":
        extra = [(tarfile.TarInfo("aclImdb/train/pos/3_3.txt"), content)]
        place = archive(tmp_path / "aclImdb_v1.tar.gz", reviews, extra)
    else:
        place = folder(tmp_path / "aclImdb", reviews)
        (place / "test" / "pos").mkdir(exist_ok=True)
        (place / "train" / "pos" / "3_3.txt").write_bytes(content)
    assert says in refusal(load_corpus, str(place))


def test_no_archive_at_all(tmp_path):
    path = tmp_path / "aclImdb_v1.tar.gz"
    path.write_bytes(gzip.compress(b"this is no tar archive" * 1000))
    assert "truncated or not a tar archive" in refusal(imdb.load, path)


def test_labels_of_the_lines_are_0_and_1(tmp_path):
    path = lines(tmp_path / "lines") / "test.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "x", "label": 2}\n'))
    assert "test.jsonl.gz:1: the label must be 0" in refusal(load_corpus, str(path.parent))


def test_sample_of_the_real_archive(real):
    train, test = imdb.load(real / "imdb" / "aclImdb_sample.tar.gz")
    assert (len(train), len(test)) == (400, 400)
    assert train[0].source == "aclImdb_sample.tar.gz:aclImdb/train/neg/0_3.txt"
    first = read_examples(real / "imdb" / "train.jsonl.gz")[0]
    assert train[0].text == first.text


@pytest.mark.deep
def test_real_reviews(real):
    corpus = load_corpus(DataSource("imdb", data_dir=real))
    assert (len(corpus.train), len(corpus.test)) == (24_877, 25_000)
    assert corpus.notes == ("123 rows of train dropped: text also in test",)
    assert sum(e.label == "positive" for e in corpus.test) == 12_500
    assert not {e.text for e in corpus.train} & {e.text for e in corpus.test}
    assert corpus.fingerprint.startswith("797eb7cf")
