"""What was written beside what was wanted: several references, alignment, Chinese."""

import json
from dataclasses import replace

import numpy as np
import pytest

from regard.lab.data.dates import dates
from regard.lab.data.pairs import Pair
from regard.lab.tasks.evaluation import read_rows
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.writing.alignment import align
from regard.lab.tasks.writing.evaluation import Text, text_evaluation
from regard.lab.tasks.writing.metrics import Aligned, bleu, judge
from regard.lab.tasks.writing.task import Sequences
from tests.lab.small_runs import trained_run

GO = [
    Pair("Go.", "Va !", "a:1"),
    Pair("Go.", "Marche donc un peu !", "a:2"),
    Pair("Hi.", "Salut à vous tous !", "a:3"),
]
EXAMPLES = [pair.example for pair in GO]
SAID = [Text("Marche donc un peu !", -1.0, True), Text("Marche donc un peu !", -1.0, True),
        Text("Salut à vous tous !", -0.5, True)]  # fmt: skip


def test_a_source_with_several_targets_is_judged_by_all_of_them() -> None:
    found = text_evaluation("BLEU", EXAMPLES, SAID)
    many = found.summary["all_references"]
    assert many["n"] == 2
    assert many["bleu"] == pytest.approx(1)
    first, second, third = (pair.target for pair in GO)
    assert 100 * many["bleu"] == bleu([second, third], [[first, second], [third]])
    assert found.summary["bleu"] < 1, "the metric itself has one reference for each pair"
    assert found.json()["all_references"]["n"] == 2
    assert "nrefs:var" in dict(found.words())["all references"]
    alone = text_evaluation("BLEU", EXAMPLES[1:], SAID[1:])
    assert "all_references" not in alone.json()


def test_the_corpus_is_there_where_bleu_decides() -> None:
    found = text_evaluation("BLEU", EXAMPLES, SAID)
    assert found.corpus is not None
    assert found.corpus.value / 100 == found.value
    assert set(found.other_metrics) == {"chrF", "exact match"}
    exact = text_evaluation("exact match", EXAMPLES, SAID)
    assert exact.corpus is None
    assert set(exact.other_metrics) == {"chrF"}


def test_alignment_is_kept_with_the_rows() -> None:
    looked = (Aligned(0.25, 0.5, 0.1, 4), None, Aligned(0.0, 1.0, 0.2, 2))
    texts = [replace(text, aligned=counts) for text, counts in zip(SAID, looked, strict=True)]
    found = text_evaluation("exact match", EXAMPLES, texts)
    examples, answers = read_rows(found.rows(), "x", Text.of_row)
    assert (examples, answers) == (EXAMPLES, texts)
    expected = {"error": 1 / 6, "mass": 4 / 6, "guess": 0.8 / 6, "positions": 6}
    assert found.summary["alignment"] == pytest.approx(expected)
    assert found.other_metrics["alignment error"] == pytest.approx(1 / 6)
    assert "alignment error 16.7%" in found.line()
    assert "of 6 target tokens" in dict(found.words())["alignment error"]
    assert "aligned" not in json.loads(found.rows().splitlines()[1])


def test_chinese_is_judged_by_characters() -> None:
    pairs = [Pair("We go.", "我们去北京。", "a:1"), Pair("I read.", "我看书。", "a:2")]
    said = [Text("我们去上海。", -1.0, True), Text("我看书。", -1.0, True)]
    found = text_evaluation("BLEU", [pair.example for pair in pairs], said)
    assert "tok:zh" in found.summary["signature"]
    assert found.summary["bleu"] == judge("bleu", [t.text for t in said], [p.target for p in pairs],
                               language="zh").value / 100  # fmt: skip
    named = text_evaluation("BLEU", EXAMPLES, SAID, language="fr")
    assert "tok:13a" in named.summary["signature"]


def test_chinese_is_validated_as_it_is_judged(tmp_path) -> None:
    rows = [f"We go {i}.\t我们第{i}次去北京看书。" for i in range(300)]
    (tmp_path / "a.tsv").write_text("\n".join(rows))
    task = Sequences(SequencesSettings(data=str(tmp_path / "a.tsv"), metric="bleu"))
    wanted = [pair.target for pair in task.corpus.test]
    said = [text.replace("北京", "上海") for text in wanted]
    examples = [pair.example for pair in task.corpus.test]
    judged = text_evaluation("BLEU", examples, [Text(x, -1.0, True) for x in said])
    assert task._measure(said, wanted) == pytest.approx(judged.summary["bleu"])
    assert judged.summary["bleu"] > 0.2


FEW = ["locales=en_US", "examples=60", "width=6", "hidden=6", "steps=2", "judged=3",
       "batch_tokens=300", "length=24", "threads=1", "precision=fp32"]  # fmt: skip


@pytest.mark.parametrize("model", ["luong-dot", "gru"])
def test_a_run_on_dates_tells_its_alignment_error(tmp_path, model, monkeypatch) -> None:
    monkeypatch.setattr("regard.lab.data.parallel.HELD", 40)
    run = trained_run(tmp_path / "r", "dates", model, FEW)
    found = run.evaluate()
    if model == "gru":
        assert "alignment" not in found.summary
        return
    assert 0 <= found.summary["alignment"]["error"] <= 1
    known = sum(text.aligned is not None for text in found.answers)
    assert found.summary["alignment"]["positions"] == 8 * known
    pairs = dates(5, split="formats", locales=["en_US"])
    aligned = align(run.task, run.network, pairs)
    for one, pair in zip(aligned, pairs, strict=True):
        assert one is not None
        assert one.guess == pytest.approx(np.mean(pair.alignment()[[0, 1, 2, 3, 5, 6, 8, 9]]))
    mixed = align(run.task, run.network, [GO[0], *pairs, Pair("x", "y", "z")])
    assert [one is None for one in mixed] == [True, *[False] * 5, True]
    assert mixed[1:-1] == [
        Aligned(*(pytest.approx(value, abs=1e-5) for value in vars(one).values()))
        for one in aligned
    ]


def test_heads_are_compared_where_the_alignment_is_known_and_nowhere_else(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from regard.lab.labs.translation.looks import head_table

    monkeypatch.setattr("regard.lab.data.parallel.HELD", 40)
    given = ["locales=en_US", "examples=64", "width=8", "heads=2", "layers=2", "feedforward=8"]
    given += ["steps=2", "threads=1"]
    for name, tokenizer in (("signs", "characters"), ("words", "words")):
        trained_run(tmp_path / name, "dates", "transformer", [*given, f"tokenizer={tokenizer}"])
        arm = SimpleNamespace(name=name, family="attention", folders=[tmp_path / name])
        found = head_table([arm])
        if name == "words":
            assert found is None
            continue
        (_, rows), guess = found
        assert 0 < guess < 1
        assert [row[1] for row in rows] == [
            "all",
            *(f"{layer}, head {head}" for layer in ("layer 1", "layer 2") for head in (1, 2)),
        ]
        assert all(0 <= row[2] <= 100 for row in rows)
