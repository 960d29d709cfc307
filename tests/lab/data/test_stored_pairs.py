import json
import threading
import time

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data import streamed
from regard.lab.data.pair_files import iterate_pairs
from regard.lab.data.pairs import Pair
from regard.lab.data.streamed import fingerprint_of, open_stored, store_pairs
from regard.lab.data.tokenizers import train_tokenizer
from tests.lab.data.small_files import refusal

PAIRS = [Pair(f"Satz {i} {'und ' * (i % 5)}", f"sentence {i % 7}", f"x:{i}") for i in range(50)]
PAIRS[20] = Pair("", "nothing", "x:20")


def files_in(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def never():
    raise AssertionError("read again")
    yield


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer("bpe", [p.source for p in PAIRS] * 2, vocabulary=300)


def test_tokens_come_back(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK", 7)
    pairs = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    assert len(pairs) == len(pairs.target) == 50
    for i in (0, 1, 6, 7, 20, 21, 49, -1, -50):
        assert pairs.source[i].tolist() == tokenizer.encode([PAIRS[i].source])[0]
        assert pairs.target[i].tolist() == tokenizer.encode([PAIRS[i].target])[0]
    assert [ids.tolist() for ids in pairs.source[3:9:2]] == [
        pairs.source[i].tolist() for i in (3, 5, 7)
    ]
    assert pairs.source.lengths.tolist() == [len(pairs.source[i]) for i in range(50)]
    assert pairs.source.ids.dtype == np.uint16
    assert isinstance(pairs.source.ids.base, np.memmap)
    with pytest.raises(IndexError):
        pairs.source[50]


def test_written_once_by_texts_and_tokenizer(tokenizer, tmp_path):
    first = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    again = store_pairs(never(), tokenizer, fingerprint="f", folder=tmp_path)
    assert again.folder == first.folder
    other = store_pairs(PAIRS[:3], tokenizer, fingerprint="g", folder=tmp_path)
    assert (len(other), other.folder != first.folder) == (3, True)
    words = train_tokenizer("words", [p.source for p in PAIRS] * 2)
    assert store_pairs(PAIRS, words, fingerprint="f", folder=tmp_path).folder != first.folder
    assert len(list(tmp_path.iterdir())) == 3


def test_what_a_killed_process_left_is_replaced(tokenizer, tmp_path):
    first = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    (first.folder / "index.json").unlink()
    (first.folder / "00000.source.ids").write_bytes(b"1")
    (first.folder / ".00000.target.ids.1.partial").write_bytes(b"1")
    again = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    assert again.source[49].tolist() == tokenizer.encode([PAIRS[49].source])[0]
    assert sorted(path.name for path in again.folder.iterdir()) == [
        ".lock", "00000.json", "00000.source.ids", "00000.target.ids", "index.json"
    ]  # fmt: skip


def test_cache_is_where_it_goes_by_default(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "cache", lambda: tmp_path / "cache")
    pairs = store_pairs(PAIRS, tokenizer, fingerprint="f")
    assert pairs.folder.parent == tmp_path / "cache" / "pairs"


def test_what_breaks_leaves_nothing(tokenizer, tmp_path):
    def broken():
        yield from PAIRS
        raise RegardError("x.tsv:51: not UTF-8")

    assert "x.tsv:51" in refusal(store_pairs, broken(), tokenizer, fingerprint="f", folder=tmp_path)
    with pytest.raises(RegardError, match="no pairs to store"):
        store_pairs([], tokenizer, fingerprint="f", folder=tmp_path)
    assert files_in(tmp_path) == [".lock"]


def test_full_disk_is_one_line(tokenizer, small_disk):
    many = (Pair("Satz " * 40, "sentence " * 40, "") for _ in range(20_000))
    with pytest.raises(RegardError, match="No space left on device") as caught:
        store_pairs(many, tokenizer, fingerprint="f", folder=small_disk)
    assert "\n" not in str(caught.value)
    assert files_in(small_disk) == [".lock"]


def test_another_process_that_writes_is_waited_for(tokenizer, tmp_path):
    writing, done = threading.Event(), []

    def slow():
        writing.set()
        time.sleep(0.2)
        yield from PAIRS
        done.append(True)

    first = threading.Thread(
        target=store_pairs,
        args=(slow(), tokenizer),
        kwargs={"fingerprint": "f", "folder": tmp_path},
    )
    first.start()
    assert writing.wait(10)
    assert len(store_pairs(never(), tokenizer, fingerprint="f", folder=tmp_path)) == 50
    assert done
    first.join()


def test_damage_is_seen(tokenizer, tmp_path):
    folder = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path).folder
    assert len(open_stored(folder)) == 50
    ids = folder / "00000.target.ids"
    content = ids.read_bytes()
    ids.write_bytes(content[:-2])
    with pytest.raises(RegardError, match=r"00000\.target\.ids: damaged: .* bytes, not .*; delete"):
        open_stored(folder)
    ids.write_bytes(content[:-2] + b"\0\0")
    assert "00000.target.ids: damaged: 49 texts, not 50; delete" in refusal(open_stored, folder)
    ids.write_bytes(content)
    index = folder / "index.json"
    good = json.loads(index.read_text())
    for bad in ("[]", "{", json.dumps(good | {"end": "object"}), json.dumps({"end": 50})):
        index.write_text(bad)
        with pytest.raises(RegardError, match=r"index\.json.*; delete"):
            open_stored(folder)
    assert "delete" in refusal(open_stored, tmp_path / "none")


def test_a_file_goes_through_without_being_held(tokenizer, tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("".join(f"Satz {i}\tsentence {i}\n" for i in range(1_000)))
    pairs = store_pairs(
        iterate_pairs(path), tokenizer, fingerprint=fingerprint_of(path), folder=tmp_path
    )
    assert tokenizer.decode(pairs.target[999].tolist()) == "sentence 999"
    before = fingerprint_of(path)
    path.write_text(path.read_text() + "x\ty\n")
    assert fingerprint_of(path) != before
    assert "cannot read: No such file" in refusal(fingerprint_of, tmp_path / "none")
