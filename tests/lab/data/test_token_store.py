"""Shards of tokens: what is written is read, and damage is noticed."""

import json
import os

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.token_store import (
    INDEX,
    ShardWriter,
    TokenStream,
    finished_shard,
    must_have_its_hashes,
    open_index,
    write_index,
)

END = 9


def written(folder, *shards, end=END):
    found = []
    for number, documents in enumerate(shards):
        writer = ShardWriter(folder, number, f"{number}.txt", end)
        writer.add("train", documents)
        writer.add("test", [[7]])
        found.append(writer.finish())
    write_index(folder, end, found)
    return open_index(folder)


def test_documents_follow_each_other_over_all_shards(tmp_path):
    index = written(tmp_path, [[1, 2], [3]], [], [[4, 5, 6]])
    train = TokenStream(tmp_path, index, "train")
    whole = [1, 2, END, 3, END, 4, 5, 6, END]
    assert len(train) == index.total("tokens", "train") == 9
    assert index.total("documents", "train") == 3
    for start in range(10):
        for stop in range(start, 12):
            assert train[start:stop].tolist() == whole[start:stop]
    assert train[:].dtype == np.int32
    assert TokenStream(tmp_path, index, "validation")[:].tolist() == []
    assert TokenStream(tmp_path, index, "test")[:].tolist() == [7, END, 7, END, 7, END]
    assert not list(tmp_path.glob(".*")), "nothing temporary is left"


def test_there_may_be_more_shards_than_open_files(tmp_path):
    index = written(tmp_path, *([[number % END]] for number in range(40)))
    train, before = TokenStream(tmp_path, index, "train"), len(os.listdir("/proc/self/fd"))
    assert train[:].tolist()[::2] == [number % END for number in range(40)]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_shard_that_is_shortened_or_removed_meanwhile_is_told(tmp_path):
    train = TokenStream(tmp_path, written(tmp_path, [[1, 2], [3]]), "train")
    ids = tmp_path / "00000.train.ids"
    ids.write_bytes(ids.read_bytes()[:-2])
    assert train[:4].tolist() == [1, 2, END, 3]
    with pytest.raises(RegardError, match=r"00000\.train\.ids: damaged: it has become shorter"):
        train[:]
    ids.unlink()
    with pytest.raises(RegardError, match=r"00000\.train\.ids: cannot read: No such file"):
        train[:]


@pytest.mark.parametrize(("end", "bytes_each"), [(65_535, 2), (65_536, 4)])
def test_a_token_takes_two_bytes_or_four(tmp_path, end, bytes_each):
    index = written(tmp_path, [[end - 1, 0]], end=end)
    assert (tmp_path / "00000.train.ids").stat().st_size == 3 * bytes_each
    assert TokenStream(tmp_path, index, "train")[:].tolist() == [end - 1, 0, end]


def test_a_truncated_shard_is_an_error_at_once(tmp_path):
    written(tmp_path, [[1, 2], [3]])
    ids = tmp_path / "00000.train.ids"
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(RegardError, match=r"00000\.train\.ids: damaged: 8 bytes, not 10; delete"):
        open_index(tmp_path)
    assert finished_shard(tmp_path, 0, END) is None
    ids.unlink()
    with pytest.raises(RegardError, match=r"00000\.train\.ids: cannot read"):
        open_index(tmp_path)


def test_a_changed_byte_is_found_by_its_hash(tmp_path):
    index = written(tmp_path, [[1, 2], [3]])
    must_have_its_hashes(tmp_path, index)
    ids = tmp_path / "00000.train.ids"
    ids.write_bytes(b"\5" + ids.read_bytes()[1:])
    with pytest.raises(RegardError, match=r"its sha256 differs from the one in index\.json"):
        must_have_its_hashes(tmp_path, open_index(tmp_path))


def test_the_fingerprint_is_one_of_the_tokens(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    a = written(folders[0], [[1, 2]], [[3]])
    assert a.fingerprint == written(folders[1], [[1, 2]], [[3]]).fingerprint
    assert a.fingerprint != written(folders[2], [[1, 2]], [[4]]).fingerprint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"end": "object"}, "end is 'object'"),
        ({"shards": [{"number": 0}]}, "is missing"),
        ({"more": 1}, "unknown field 'more'"),
    ],
)
def test_an_index_of_another_kind_is_refused(tmp_path, change, says):
    written(tmp_path, [[1]])
    path = tmp_path / INDEX
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RegardError, match=says):
        open_index(tmp_path)


def test_an_abandoned_shard_leaves_nothing(tmp_path):
    writer = ShardWriter(tmp_path, 0, "a.txt", END)
    writer.add("train", [[1]])
    writer.close()
    assert list(tmp_path.iterdir()) == []
