"""Files too large for the memory: the same pairs as from memory, read from the disk."""

import zipfile

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data import streamed
from regard.lab.data.data_source import DataSource, Limits, Splits
from regard.lab.data.pairs import StreamedPairs
from regard.lab.data.parallel import load_pairs
from regard.lab.data.splits import side_of
from regard.lab.data.token_store import StoredTexts
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.writing.task import Sequences
from tests.lab.data.small_files import write, zipped
from tests.lab.small_runs import finished, trained_run


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that counts as large; its tokens are stored beside it."""
    path = tmp_path / "pairs.tsv"
    rows = [f"satz {i} {'und ' * (i % 4)}ende\tsentence {i}" for i in range(400)]
    path.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(streamed, "LARGE", 1_000)
    monkeypatch.setattr(streamed, "HELD", 12)
    monkeypatch.setattr("regard.lab.data.streamed.cache", lambda: tmp_path / "cache")
    return path


def test_pairs_are_those_of_the_file_and_nowhere_twice(large):
    corpus = load_pairs(str(large))
    assert isinstance(corpus.train, StreamedPairs)
    train = list(corpus.train)
    assert len(corpus.train) == len(train)
    assert [pair.place for pair in corpus.train] == [pair.place for pair in train], "again"
    everything = [*train, *corpus.validation, *corpus.test]
    assert sorted(pair.source for pair in everything) == sorted(
        row.partition("\t")[0] for row in large.read_text().splitlines()
    )
    share = streamed.share_of(large.stat().st_size, 0.05)
    for pair in corpus.test:
        assert side_of(pair.source, test=share, validation=share) == "test"
    assert f"{len(train):,} pairs of train are streamed from the disk" in (corpus.notes)


def test_some_examples_and_a_test_file(large, tmp_path):
    held = write(tmp_path / "test.tsv", "satz 8 ende\tsentence 8\nneu\tnew\n")
    corpus = load_pairs(DataSource(large, splits=Splits(test=str(held))))
    assert [pair.source for pair in corpus.test] == ["satz 8 ende", "neu"]
    assert "satz 8 ende" not in {pair.source for pair in corpus.train}
    assert "1 pair of train dropped: source also in test" in corpus.notes
    some = load_pairs(DataSource(large, splits=Splits(seed=3), limits=Limits(examples=30)))
    chosen = [pair.place for pair in some.train]
    assert len(chosen) == len(some.train) == 30
    assert chosen != [
        pair.place
        for pair in load_pairs(
            DataSource(large, splits=Splits(seed=4), limits=Limits(examples=30))
        ).train
    ]
    assert some.fingerprint != load_pairs(str(large)).fingerprint


def test_a_file_for_validation(large, tmp_path):
    held, test = tmp_path / "dev.tsv", tmp_path / "test.tsv"
    held.write_text("Satz 8 ende\tsentence 8\nneu\tnew\n")
    test.write_text("neu\tnew\nsatz 12 ende\tsentence 12\n")
    corpus = load_pairs(DataSource(large, splits=Splits(validation=str(held), test=str(test))))
    assert [pair.source for pair in corpus.validation] == ["Satz 8 ende"]
    assert len(corpus.train) == len(list(corpus.train)) == 398
    assert "2 pairs of train dropped: source also in validation or test" in (corpus.notes)
    assert "1 pair of validation dropped: source also in test" in corpus.notes
    swapped = load_pairs(DataSource(large, splits=Splits(validation=str(test), test=str(held))))
    assert swapped.fingerprint != corpus.fingerprint


def test_what_is_dropped_for_a_test_in_two_files_is_part_of_the_fingerprint(large, tmp_path):
    def prints(source, target):
        (tmp_path / "t.de").write_text(source)
        (tmp_path / "t.en").write_text(target)
        return load_pairs(
            DataSource(large, splits=Splits(test=f"{tmp_path / 't.de'},{tmp_path / 't.en'}"))
        ).fingerprint

    one = prints("satz 8 ende\nneu\n", "sentence 8\nnew\n")
    assert prints("satz 8 ende\nneu\n", "sentence 8\nnew\n") == one
    assert prints("satz 9 und ende\nneu\n", "sentence 9\nnew\n") != one
    assert prints("satz 8 ende\nneu\n", "sentence 8\nother\n") != one


def test_what_a_test_file_leaves_out_is_told(large, tmp_path):
    held = write(tmp_path / "test.tsv", f"neu\tnew\n{'lang ' * 500}\tlong\n")
    notes = load_pairs(DataSource(large, splits=Splits(test=str(held)))).notes
    assert any("longer than 2,000 characters, first test.tsv:2" in note for note in notes)


def test_a_member_of_a_large_archive_is_streamed_too(large, tmp_path):
    archive = stored(tmp_path, inner=large.read_text())
    corpus = load_pairs(f"{archive}/inner.tsv")
    assert isinstance(corpus.train, StreamedPairs)
    assert len(list(corpus.train)) == len(corpus.train) > 300


def test_the_task_reads_tokens_from_the_disk(large):
    asked = SequencesSettings(data=str(large), minimum=1, length=18)
    task = Sequences(asked)
    split = task.split("train")
    assert isinstance(split.source, StoredTexts)
    kept = [p for p in task.corpus.train if len(p.source) <= 18 and len(p.target) <= 18]
    assert len(split) == len(kept) < len(task.corpus.train)
    assert split.lengths.tolist() == [len(p.source) + len(p.target) + 1 for p in kept]
    batch = task.batch("train", np.array([0, 7]))
    for row, pair in zip(batch.source, (kept[0], kept[7]), strict=True):
        assert task.tokenizer.decode(row[row > 0].tolist()) == pair.source
    everything = np.sort(np.concatenate(task.batches("train", tokens=200, seed=0, epoch=0)))
    assert everything.tolist() == list(range(len(split)))
    with pytest.raises(RegardError, match="all pairs have more than 1 tokens"):
        Sequences(asked.model_copy(update={"length": 1})).split("train")


def test_a_run_on_a_large_file_is_trained_and_resumed(large, tmp_path):
    from regard.lab import runs

    asked = [f"data={large}", "tokenizer=characters", "minimum=1", "width=6", "hidden=6", "steps=6",
             "judged=3", "batch_tokens=300", "beam=1", "threads=1", "save_every=2"]  # fmt: skip
    run = runs.start(tmp_path / "run", "translation", "gru", asked)
    for progress in run.train():
        if progress.step == 4:
            break
    again = finished(runs.open_or_start(tmp_path / "run", "translation", "gru", asked))
    assert again.complete
    whole = trained_run(tmp_path / "whole", "translation", "gru", asked)
    ours, theirs = (run.folder.read(run.folder.weights) for run in (again, whole))
    assert ours == theirs


def test_too_few_pairs_for_a_side(large, monkeypatch):
    monkeypatch.setattr(streamed, "HELD", 0)
    with pytest.raises(RegardError, match="no pairs for validation; set a larger fraction"):
        load_pairs(str(large))


def stored(folder, **members):
    """An archive that is as large as its members."""
    tables = {f"{name}.tsv": text for name, text in members.items()}
    return zipped(folder / "many.zip", tables, zipfile.ZIP_STORED)


def rows(first, second, count=400):
    return "".join(f"{first} {i}\t{second} {i}\n" for i in range(count))


def test_two_members_of_an_archive_are_two_data_sets(large, tmp_path):
    path = stored(tmp_path, a=rows("satz", "sentence"), b=rows("wort", "word"))
    one, other = (load_pairs(f"{path}/{name}.tsv") for name in "ab")
    assert one.fingerprint != other.fingerprint
    assert {pair.source.split()[0] for pair in other.train} == {"wort"}


@pytest.mark.deep
def test_a_small_member_of_a_large_archive_is_held_in_memory(large, tmp_path, monkeypatch):
    path = stored(tmp_path, small=rows("satz", "sentence"), other="x\ty\n" * 100_000)
    monkeypatch.setattr(streamed, "LARGE", 50_000)
    assert isinstance(load_pairs(f"{path}/small.tsv").train, list)
    with pytest.raises(RegardError, match="no pairs for validation; set a larger fraction"):
        load_pairs(
            DataSource(f"{path}/other.tsv", splits=Splits(test=str(large)))
        )  # streamed: one text again and again


def test_more_pairs_than_are_held_are_streamed_whatever_their_bytes(large, monkeypatch):
    monkeypatch.setattr(streamed, "LARGE", 10**9)
    monkeypatch.setattr("regard.lab.data.parallel.MOST", 100)
    corpus = load_pairs(str(large))
    assert isinstance(corpus.train, StreamedPairs)
    assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == 400


def test_a_text_that_is_too_long_can_be_refused_in_a_large_file(large):
    large.write_text(large.read_text() + f"{'lang ' * 500}\tlong\n")
    with pytest.raises(RegardError, match=r"pairs\.tsv:401: a text of 2,499 characters"):
        load_pairs(DataSource(large, limits=Limits(too_long="refuse")))
