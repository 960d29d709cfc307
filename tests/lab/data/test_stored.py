import json
import os

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data import stored
from regard.lab.data.pair_files import iterate_pairs
from regard.lab.data.pairs import Pair
from regard.lab.data.stored import fingerprint_of, open_stored, store_pairs
from regard.lab.data.tokenizers import train_tokenizer

PAIRS = [Pair(f"Satz {i} {'und ' * (i % 5)}", f"sentence {i % 7}", f"x:{i}") for i in range(50)]
PAIRS[20] = Pair("", "nothing", "x:20")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer("bpe", [p.source for p in PAIRS] * 2, vocabulary=300)


def test_tokens_come_back(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "CHUNK", 7)
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
    assert isinstance(pairs.source.ids, np.memmap)
    with pytest.raises(IndexError):
        pairs.source[50]


def test_written_once_by_texts_and_tokenizer(tokenizer, tmp_path):
    first = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)

    def never():
        raise AssertionError("read again")
        yield

    again = store_pairs(never(), tokenizer, fingerprint="f", folder=tmp_path)
    assert again.folder == first.folder
    other = store_pairs(PAIRS[:3], tokenizer, fingerprint="g", folder=tmp_path)
    assert (len(other), other.folder != first.folder) == (3, True)
    words = train_tokenizer("words", [p.source for p in PAIRS] * 2)
    assert store_pairs(PAIRS, words, fingerprint="f", folder=tmp_path).folder != first.folder
    assert len(list(tmp_path.iterdir())) == 3


def test_what_was_left_of_a_folder_is_replaced_and_what_others_write_is_left(
    tokenizer, tmp_path, monkeypatch
):
    first = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    (first.folder / "stored.json").unlink()
    theirs = (
        tmp_path / f".{first.folder.name}.{os.getpid()}.partial"
    )  # of another machine's process
    theirs.mkdir()
    old = tmp_path / ".x.1.partial"
    old.mkdir()
    os.utime(old, (0, 0))
    slow = tmp_path / ".y.2.partial"  # its files grow, and its own time stands still
    slow.mkdir()
    (slow / "source.ids").write_bytes(b"1")
    os.utime(slow, (0, 0))
    again = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path)
    assert again.folder.stat().st_mode == theirs.stat().st_mode, "as private as any folder"
    assert again.source[49].tolist() == tokenizer.encode([PAIRS[49].source])[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [theirs.name, slow.name, first.folder.name]
    )


def test_cache_is_where_it_goes_by_default(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "cache", lambda: tmp_path / "cache")
    pairs = store_pairs(PAIRS, tokenizer, fingerprint="f")
    assert pairs.folder.parent == tmp_path / "cache" / "pairs"


def test_what_breaks_leaves_nothing(tokenizer, tmp_path):
    def broken():
        yield from PAIRS
        raise RegardError("x.tsv:51: not UTF-8")

    with pytest.raises(RegardError, match=r"x\.tsv:51"):
        store_pairs(broken(), tokenizer, fingerprint="f", folder=tmp_path)
    with pytest.raises(RegardError, match="no pairs to store"):
        store_pairs([], tokenizer, fingerprint="f", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_one_line(tokenizer, small_disk):
    many = (Pair("Satz " * 40, "sentence " * 40, "") for _ in range(20_000))
    with pytest.raises(RegardError, match="No space left on device") as caught:
        store_pairs(many, tokenizer, fingerprint="f", folder=small_disk)
    assert "\n" not in str(caught.value)
    assert list(small_disk.iterdir()) == []


def test_another_process_may_be_faster(tokenizer, tmp_path):
    def slow():
        yield from PAIRS
        store_pairs(PAIRS, tokenizer, fingerprint="f", folder=other)
        made = next(other.iterdir())
        made.rename(tmp_path / made.name)

    other = tmp_path / "other"
    pairs = store_pairs(slow(), tokenizer, fingerprint="f", folder=tmp_path)
    assert len(pairs) == 50
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([pairs.folder.name, "other"])


def test_damage_is_seen(tokenizer, tmp_path):
    folder = store_pairs(PAIRS, tokenizer, fingerprint="f", folder=tmp_path).folder
    assert len(open_stored(folder)) == 50
    ids = folder / "target.ids"
    content = ids.read_bytes()
    ids.write_bytes(content[:-2])
    with pytest.raises(RegardError, match=r"target\.ids does not have"):
        open_stored(folder)
    ids.write_bytes(content)
    facts = folder / "stored.json"
    good = json.loads(facts.read_text())
    for bad in ("[]", "{", json.dumps(good | {"dtype": "object"}), json.dumps({"pairs": 50})):
        facts.write_text(bad)
        with pytest.raises(RegardError, match="damaged stored pairs"):
            open_stored(folder)
    with pytest.raises(RegardError, match="damaged stored pairs"):
        open_stored(tmp_path / "none")


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
    with pytest.raises(RegardError, match="cannot read: No such file"):
        fingerprint_of(tmp_path / "none")
