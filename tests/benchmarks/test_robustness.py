"""Mutants of every kind of file are taken or refused, and what is not is counted."""

import random
import time

import pytest

from benchmarks import robustness
from benchmarks.mutants import mutate
from benchmarks.opened import TARGETS
from benchmarks.opened_data import Target
from benchmarks.robustness import attack

QUICK = {"tables", "pairs", "vectors", "imdb", "predictions", "tokenizers", "bert",
         "parquet", "saved-dataset", "run-transformer", "run-tfidf", "checkpoint"}  # fmt: skip


@pytest.mark.parametrize("target", [t for t in TARGETS if t.name in QUICK], ids=lambda t: t.name)
def test_mutants_are_taken_or_refused(target, tmp_path):
    found = attack(target, 25, tmp_path, seed=7)
    assert found.mutants == 25
    assert found.failures == 0, found.causes
    assert found.refused or target.name == "checkpoint"  # the one before is taken


def write(folder):
    (folder / "x.json").write_text('{"a": [1, 2, 3]}')


def raises(folder):
    raise KeyError("a")


def hangs(folder):
    if folder.name == "1":
        time.sleep(60)


def fills(folder):
    if folder.name != "sound":
        len(b"x" * (2 << 30))


def dies(folder):
    if folder.name not in ("sound", "0"):
        import os

        os._exit(3)


@pytest.mark.parametrize(
    ("use", "kind", "count"),
    [(raises, "tracebacks", 3), (hangs, "hangs", 1), (fills, "memory", 3), (dies, "died", 2)],
)
def test_failures_are_counted_by_kind(use, kind, count, tmp_path, monkeypatch):
    if use is hangs:
        monkeypatch.setattr(robustness, "SECONDS", 0.5)
        monkeypatch.setattr(robustness, "PATIENCE", 1.0)
    if use is raises:  # a sound folder must be taken
        monkeypatch.setattr(robustness, "_sound", lambda target, place: place)
        write(tmp_path)
    found = attack(Target("x", write, ("*",), (use,)), 3, tmp_path)
    assert (found.mutants, getattr(found, kind), found.failures) == (3, count, count)
    assert sum(often for often, _ in found.causes.values()) == count


def test_processor_time_counts_and_waiting_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(robustness, "SECONDS", 0.2)

    def works(folder):
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass

    assert robustness.used((lambda folder: time.sleep(0.5),), tmp_path).kind == "taken"
    assert robustness.used((works,), tmp_path).kind == "hangs"


def test_a_kind_whose_sound_file_is_refused_is_no_measurement(tmp_path):
    with pytest.raises(KeyError):
        attack(Target("x", write, ("*",), (raises,)), 1, tmp_path)


def test_mutants_are_the_same_for_a_seed_and_differ_from_what_was():
    data = b'{"a": [1, 2.5, "x"], "b": {"c": null}}'
    many = [mutate("x.json", data, random.Random(i)) for i in range(200)]
    assert many == [mutate("x.json", data, random.Random(i)) for i in range(200)]
    assert sum(each == data for each in many) < 20
    assert len({*many}) > 100
