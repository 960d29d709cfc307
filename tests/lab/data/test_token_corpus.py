"""Texts on the disk as tokens: written once by any number of processes, and found again."""

import gzip
import json
import random
from dataclasses import replace
from itertools import chain

import pytest

from regard.core.errors import RegardError
from regard.lab.data import token_corpus, tokenizing
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.texts import load_texts
from regard.lab.data.token_corpus import Learned, load_tokens
from regard.lab.data.tokenizing import is_on_disk
from tests.lab.data.small_files import write

WORDS = [f"w{i}" for i in range(50)]


LEARNED = Learned("words", minimum=1)


def text_of(number):
    return " ".join(random.Random(number).choices(WORDS, k=12))


def lines(first, last):
    return "".join(json.dumps({"id": i, "text": text_of(i)}) + "\n" for i in range(first, last))


@pytest.fixture
def texts(tmp_path):
    """Four files of 60 documents, of three formats."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "0.jsonl.gz").write_bytes(gzip.compress(lines(0, 60).encode()))
    (folder / "1.jsonl").write_text(lines(60, 120))
    (folder / "2.csv").write_text("text\n" + "".join(f"{text_of(i)}\n" for i in range(120, 180)))
    (folder / "3.csv").write_text("text\n" + "".join(f"{text_of(i)}\n" for i in range(180, 240)))
    splits = Splits(validation=0.1)
    return DataSource(f"{folder}/*", data_dir=str(tmp_path / "mine"), splits=splits)


def said(corpus, split):
    """The documents of a split, read back from its tokens."""
    end = tokenizing.end_of(corpus.tokenizer)
    found, ids = [], []
    for token in corpus.streams[split][:].tolist():
        if token == end:
            found.append(corpus.tokenizer.decode(ids))
            ids = []
        else:
            ids.append(token)
    assert not ids, "every document is followed by an end token"
    return found


def test_every_document_is_in_one_split_in_order(texts):
    corpus = load_tokens(texts, LEARNED, processes=1)
    parts = {split: said(corpus, split) for split in corpus.streams}
    assert sorted(chain(*parts.values())) == sorted(map(text_of, range(240)))
    order = [next(i for i in range(240) if text_of(i) == text) for text in parts["train"]]
    assert order == sorted(order)
    assert 5 < len(parts["validation"]) < 50
    assert corpus.notes[0].endswith("documents are read from the disk, in 4 shards")


def test_the_split_is_that_of_texts_in_memory(texts):
    corpus = load_tokens(texts, LEARNED, processes=1)
    other = load_texts(DataSource(texts.data, splits=Splits(validation=0.1)))
    for split in corpus.streams:
        assert said(corpus, split) == list(getattr(other, split))


def test_two_processes_write_the_same(texts, tmp_path):
    one = load_tokens(texts, LEARNED, processes=1)
    two = load_tokens(replace(texts, data_dir=tmp_path / "theirs"), LEARNED, processes=2)
    assert one.folder.name == two.folder.name
    assert one.fingerprint == two.fingerprint
    assert one.tokenizer.sha256 == two.tokenizer.sha256
    for path in one.folder.glob("*.ids"):
        assert path.read_bytes() == (two.folder / path.name).read_bytes()


def test_tokens_that_are_there_are_not_written_again(texts, monkeypatch):
    first = load_tokens(texts, LEARNED, processes=1)
    monkeypatch.setattr(token_corpus, "_write", None)
    again = load_tokens(texts, LEARNED)
    assert again.fingerprint == first.fingerprint
    again.verify()


def test_the_same_command_goes_on_where_it_was_stopped(texts, monkeypatch):
    whole = load_tokens(texts, LEARNED, processes=1)
    for path in whole.folder.iterdir():
        path.unlink()
    write, done = tokenizing.Tokenising.write, []

    def stopped(self, number, report):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(number)
        return write(self, number, report)

    monkeypatch.setattr(tokenizing.Tokenising, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        load_tokens(texts, LEARNED, processes=1)
    assert not (whole.folder / "index.json").exists()
    begun = list(done)
    done.clear()
    monkeypatch.setattr(token_corpus, "learn", None)  # nor is the tokenizer learned again
    again = load_tokens(texts, LEARNED, processes=1)
    assert sorted(begun + done) == [0, 1, 2, 3]
    assert again.fingerprint == whole.fingerprint


def test_a_shard_that_is_not_whole_is_written_again(texts):
    whole = load_tokens(texts, LEARNED, processes=1)
    (whole.folder / "index.json").unlink()
    ids = whole.folder / "00002.train.ids"
    ids.write_bytes(ids.read_bytes()[:-2])
    again = load_tokens(texts, LEARNED, processes=1)
    again.verify()
    assert again.fingerprint == whole.fingerprint


def test_damaged_shards_are_an_error(texts):
    corpus = load_tokens(texts, LEARNED, processes=1)
    ids = corpus.folder / "00002.train.ids"
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(RegardError, match=r"00002\.train\.ids: damaged: .* bytes, not .*; delete"):
        load_tokens(texts, LEARNED)


def test_a_changed_source_is_tokenised_again(texts):
    before = load_tokens(texts, LEARNED, processes=1)
    with open(texts.data.replace("*", "1.jsonl"), "a") as file:
        file.write(lines(300, 310))
    after = load_tokens(texts, LEARNED, processes=1)
    assert after.folder != before.folder
    assert sum(len(said(after, split)) for split in after.streams) == 250


def test_a_source_that_changes_while_it_is_read_is_an_error(texts, monkeypatch):
    path = texts.data.replace("*", "1.jsonl")
    encode = tokenizing.Tokenizer.encode

    def slow(self, some):
        with open(path, "a") as file:
            file.write("\n")
        return encode(self, some)

    monkeypatch.setattr(tokenizing.Tokenizer, "encode", slow)
    with pytest.raises(RegardError, match=r"1\.jsonl: changed while it was read"):
        load_tokens(texts, LEARNED, processes=1)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_row_is_named_by_file_and_line_and_leaves_the_others(texts, processes):
    with open(texts.data.replace("*", "1.jsonl"), "a") as file:
        file.write("no json\n")
    with pytest.raises(RegardError, match=r"^1\.jsonl:61: not JSON"):
        load_tokens(texts, LEARNED, processes=processes)
    (folder,) = (tokenizing.place_of(texts.data_dir)).iterdir()
    assert not list(folder.glob("00001.*"))
    assert not (folder / "index.json").exists()


def test_a_given_tokenizer_is_used(texts):
    own = load_tokens(texts, LEARNED, processes=1).tokenizer
    corpus = load_tokens(texts, own, processes=1)
    assert corpus.tokenizer.sha256 == own.sha256


def test_the_tokenizer_is_learned_from_a_bounded_sample(texts, monkeypatch):
    recipe = tokenizing.recipe_of(token_corpus.files_at(texts.data), texts)
    train = set(map(text_of, range(240)))
    whole = list(recipe.sample())
    assert set(whole) < train, "held-out documents are not in it"
    monkeypatch.setattr(tokenizing, "SAMPLE", 1_200)
    some = list(recipe.sample())
    size = sum(map(len, some))
    assert 1_200 <= size < 1_200 + 4 * max(map(len, train))
    assert some == list(recipe.sample())
    assert some != list(replace(recipe, seed=1).sample())


def test_excluded_texts_are_left_out(texts, tmp_path):
    other = write(tmp_path / "tested.jsonl", lines(10, 20))
    corpus = load_tokens(replace(texts, without=DataSource(other)), LEARNED, processes=1)
    found = {text for split in corpus.streams for text in said(corpus, split)}
    assert found == {text_of(i) for i in range(240) if not 10 <= i < 20}


def test_empty_files_among_others_are_skipped(texts):
    open(texts.data.replace("*", "4.jsonl"), "w").close()
    corpus = load_tokens(texts, LEARNED, processes=1)
    assert corpus.notes[-1] == "1 empty files skipped"
    with pytest.raises(RegardError, match="the file is empty"):
        load_tokens(texts.at(texts.data.replace("*", "4.*")))


def test_of_large_data_less_is_held_out(monkeypatch):
    files = [tokenizing.TextFile("a.txt", 10**9, "")]
    recipe = tokenizing.recipe_of(files, DataSource("a.txt"))
    assert (recipe.test, recipe.validation) == (0.001, 0.001)


@pytest.mark.parametrize(
    ("changes", "tokenizer", "says"),
    [
        ({"splits": Splits(0.0)}, LEARNED, "validation=0 evaluates on all training texts"),
        ({"columns": Columns("body")}, LEARNED, "unknown column 'body'"),
        ({"data": "nowhere/*.jsonl"}, LEARNED, "no file matches"),
        ({}, Learned("words", vocabulary=1), "vocabulary must be at least 3"),
        ({}, Learned("words", minimum=100_000), "no token occurs 100000 times"),
    ],
)
def test_what_cannot_be_is_said(texts, changes, tokenizer, says):
    with pytest.raises(RegardError, match=says):
        load_tokens(replace(texts, **changes), tokenizer, processes=1)


def test_too_few_documents_are_an_error(texts, tmp_path):
    (tmp_path / "few.jsonl").write_text(lines(0, 2))
    with pytest.raises(RegardError, match="2 documents are too few to hold some out for"):
        load_tokens(texts.at(tmp_path / "*.jsonl"), LEARNED, processes=1)


def test_what_is_on_the_disk(tmp_path, monkeypatch):
    small = write(tmp_path / "a.txt", "text\n")
    assert not is_on_disk(str(small))
    assert not is_on_disk("pydoc")
    assert is_on_disk(str(tmp_path / "*.txt"))
    assert is_on_disk("s3://bucket/a.txt")
    monkeypatch.setattr(tokenizing, "LARGE", 4)
    assert is_on_disk(str(small))


def test_a_full_disk_is_an_error_of_one_line(texts, small_disk):
    big = "".join(json.dumps({"text": text_of(i) * 20}) + "\n" for i in range(3_000))
    with open(texts.data.replace("*", "1.jsonl"), "w") as file:
        file.write(big)
    with pytest.raises(RegardError, match=r"cannot write .*No space left on device; it needs"):
        load_tokens(replace(texts, data_dir=small_disk), LEARNED, processes=1)


def test_an_s3_server_is_read_like_a_disk(texts, tmp_path, monkeypatch):
    """A real server on loopback: the tokens are those of the same files on the disk."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server_of = pytest.importorskip("moto.server", reason="moto is not installed")
    import pyarrow
    import pyarrow.parquet
    import s3fs

    table = pyarrow.table({"id": list(range(60)), "text": [text_of(i) for i in range(180, 240)]})
    local = tmp_path / "texts"
    pyarrow.parquet.write_table(table, local / "3.parquet")
    (local / "3.csv").unlink()
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        store = s3fs.S3FileSystem()
        store.mkdir("texts")
        for path in local.iterdir():
            store.put(str(path), f"texts/all/{path.name}")
        remote = load_tokens(texts.at("s3://texts/all/*"), LEARNED, processes=1)
        here = load_tokens(texts, LEARNED, processes=1)
        assert remote.fingerprint == here.fingerprint
        assert remote.index.shards[3].source == "s3://texts/all/3.parquet"
        with pytest.raises(RegardError, match=r"s3://absent/a\.jsonl: no such file"):
            load_tokens(texts.at("s3://absent/a.jsonl"))
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
