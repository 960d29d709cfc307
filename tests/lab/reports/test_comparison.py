"""The report of a comparison: what stands in it, with all pieces and with some missing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
from regard.lab.reports import attended
from regard.lab.reports.answer import answer, post_hoc
from regard.lab.reports.attended import choose, entropy
from regard.lab.reports.comparison import write_report
from regard.lab.reports.evidence import arms_of, confusion_of
from regard.lab.reports.mistakes import confident_mistakes
from regard.lab.reports.page import LIMIT
from tests.lab.reports.conftest import Make


class Looking:
    """Stands in for a trained run: the first word draws all attention."""

    def __init__(self, folder: Path) -> None:
        if "nb-svm" in str(folder):
            raise RegardError("no network")

    def attention(self, text: str) -> list[LayerAttention]:
        tokens = text.split()
        weights = np.zeros((2, len(tokens), len(tokens)), np.float32)
        weights[..., 0] = 1.0
        return [LayerAttention("blocks.0.attention", tokens, weights)]

    def evaluate(self) -> None:
        raise RegardError("no predictions")


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard, "load", Looking, raising=False)


def test_the_whole_report(made: Make) -> None:
    comparison, folder = made()
    path = write_report(comparison, folder)
    text = path.read_text(encoding="utf-8")
    assert path == folder / "report.html"
    assert len(text.encode()) < LIMIT
    for part in (
        "Which?", "nb-svm ranks first", "transformer beats mean by 10.0 points", "95.0",
        "+10.0 (5.0 to 15.0)", "0.004", "Learning curves", "epochs",
        "Cost against accuracy", "Attention on test texts", "100.0% of the attention",
        "Attention entropy", "Confusion of nb-svm", "Most confident mistakes of",
        "123 texts dropped", "abc123", "regard lab sentiment", "torch 2.13", "12.3k", "it holds",
        "x += f(LN x), x += FeedForward(LN x)",
    ):  # fmt: skip
        assert part in text, part
    assert "http://www.w3.org/2000/svg" in text
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") + text.count("http-equiv")


def test_written_twice_it_is_the_same(made: Make) -> None:
    comparison, folder = made()
    first = write_report(comparison, folder).read_bytes()
    assert write_report(comparison, folder).read_bytes() == first


@pytest.mark.parametrize(
    "gone", ["metrics.jsonl", "predictions.jsonl", "config.toml", "env.json", "seed-0", "*"]
)
def test_missing_pieces_are_left_out(made: Make, gone: str) -> None:
    comparison, folder = made()
    for path in list(folder.rglob(gone)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    text = write_report(comparison, folder).read_text(encoding="utf-8")
    assert "nb-svm ranks first" in text
    assert ("Learning curves</h2>" in text) == (gone not in ("metrics.jsonl", "*"))


def test_broken_lines_and_a_failed_arm(made: Make) -> None:
    comparison, folder = made()
    for path in folder.rglob("*.jsonl"):
        path.write_text(path.read_text() + '{"text": "cut in the mid\nnot json\n[1]\n')
    comparison["arms"].append({"name": "cnn", "seeds": 0, "mean": None, "low": None, "high": None})
    comparison["errors"] = [{"arm": "cnn", "seed": 1, "says": "out of memory"}]
    text = write_report(comparison, folder).read_text(encoding="utf-8")
    assert "Failed: cnn, seed 1: out of memory" in text
    assert "Arms without a result: cnn." in text


def test_no_arm_at_all(tmp_path: Path) -> None:
    text = write_report({"task": "t", "metric": "accuracy", "arms": []}, tmp_path).read_text()
    assert "nothing to compare" in text


def test_long_texts_stay_small(made: Make) -> None:
    path = write_report(*made([f"{i} " + "a long film " * 5_000 for i in range(40)]))
    assert path.stat().st_size < 500_000
    assert "…" in path.read_text()


def test_the_answer_names_the_best_baseline_plainly(made: Make) -> None:
    comparison, folder = made()
    says = answer(comparison, arms_of(comparison, folder))
    assert says[0] == "nb-svm ranks first: accuracy 95.0 % (90.0 to 97.0)."
    assert "nb-svm 95.0 %, transformer 85.0 %" in says[1]
    assert any(s == "Evidence of a gain over mean: transformer." for s in says)
    assert any(s == "No evidence of a difference from mean: nb-svm." for s in says)


def test_the_answer_says_once_what_is_sure(made: Make) -> None:
    comparison, folder = made()
    verdict = {"a": "transformer", "b": "nb-svm", "p": 0.01, "low": -0.2, "high": -0.05}
    for gain, says in ((-0.1, "nb-svm beats transformer"), (0.1, "transformer beats nb-svm")):
        sure = [*comparison["verdicts"], {**verdict, "difference": gain, "says": says}]
        arms = arms_of(comparison, folder)
        if gain > 0:
            arms = [replace(a, row={**a.row, "mean": 0.99}) if a.name == "transformer" else a
                    for a in arms]  # fmt: skip
        best = ["attention arm, transformer, has 85.0", "baseline, nb-svm, has 95.0"][gain > 0]
        assert answer({**comparison, "verdicts": sure}, arms)[1] == f"The best {best} %: {says}."


def test_an_arm_that_was_not_trained_to_its_end_is_marked_everywhere(made: Make) -> None:
    comparison, folder = made()
    verdicts = [{**v, "untrained": ["mean"]} for v in comparison["verdicts"]]
    rows = [
        {**row, "training": "still rising (2 of 3)", "trained": False}
        if row["name"] == "mean"
        else {**row, "training": "converged", "trained": True}
        for row in comparison["arms"]
    ]
    marked = {**comparison, "verdicts": verdicts, "arms": rows}
    says = answer(marked, arms_of(marked, folder))
    assert (
        "Training did not converge, so no claim about the method against mean: transformer." in says
    )
    assert not any(sentence.startswith("Evidence of a gain") for sentence in says)
    text = write_report(marked, folder).read_text()
    assert "still rising (2 of 3)" in text
    hollow = 'fill="var(--ground)" stroke="var(--network)"'
    assert text.count(hollow) == 2  # in the intervals and in what it costs


def test_a_rung_beside_the_reference_is_named_once(made: Make) -> None:
    comparison, folder = made()
    reference = [{**verdict, "family": "reference"} for verdict in comparison["verdicts"]]
    rung = {"a": "transformer", "b": "mean", "difference": 0.1, "low": 0.05, "high": 0.15,
            "p": 0.07, "says": "no evidence", "family": "ladder"}  # fmt: skip
    says = answer({**comparison, "verdicts": [*reference, rung]}, arms_of(comparison, folder))
    assert says == answer(comparison, arms_of(comparison, folder))


def test_a_look_back_pairs_seeds_and_examples(made: Make) -> None:
    mean, transformer, svm = arms_of(*made())
    found = post_hoc(svm, mean)
    assert found is not None
    assert found.seeds == 3
    assert found.mean == pytest.approx(8 / 40)
    assert transformer.right.shape == (3, 40)
    assert (transformer.family, svm.family, mean.family) == ("attention", "baseline", "network")


def test_mistakes_come_surest_first(made: Make) -> None:
    mean = arms_of(*made())[0]
    wrong = confident_mistakes(mean.answers)
    assert [answer.index for answer in wrong] == [9, 8, 7, 6, 5, 4]
    assert wrong[0].confidence == pytest.approx(0.909)
    labels, counts = confusion_of(mean.answers)
    assert labels == ["negative", "positive"]
    assert counts == [[15, 5], [5, 15]]


def test_texts_that_divide_the_arms_are_looked_at_first(made: Make) -> None:
    chosen = choose(arms_of(*made()))
    assert {answer.index for answer in chosen[:6]} <= set(range(2, 10))


def test_entropy_is_nought_for_one_word_and_one_for_all() -> None:
    sharp = np.zeros((1, 1, 5), np.float32)
    sharp[..., 2] = 1
    assert entropy(LayerAttention("a", list("abcde"), sharp)).tolist() == [0.0]
    even = LayerAttention("a", list("abcde"), np.full((1, 1, 5), 0.2, np.float32))
    assert entropy(even).tolist() == [pytest.approx(1.0)]


def test_the_position_map_follows_the_arm(made: Make) -> None:
    comparison, folder = made()
    home = folder / "mean" / "seed-0" / "config.toml"
    home.write_text(home.read_text().replace('"none"', '"sinusoidal"'))
    parts = attended.section(arms_of(comparison, folder))
    assert any("Dot products of sinusoidal positions, width 16" in part for part in parts)


def test_a_full_disk_is_one_line(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison, folder = made()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.core.atomic_io.write_through", full)
    with pytest.raises(RegardError, match="No space left"):
        write_report(comparison, folder)
    assert json.dumps(comparison)
    assert not (folder / "report.html").exists()


def test_what_was_judged_token_by_token_is_no_answer(tmp_path: Path) -> None:
    from regard.lab.reports import evidence

    row = {"source": "piece:1", "text": "a film", "nats": [0.5, 2.0], "right": "80"}
    (tmp_path / "predictions.jsonl").write_text(json.dumps(row) + "\n")
    assert evidence._answers(tmp_path) == []


def test_a_seed_that_is_missing_is_not_paired_by_its_place(made: Make) -> None:
    comparison, folder = made()
    mean, transformer, svm = arms_of(comparison, folder)
    assert post_hoc(transformer, mean) is not None
    shutil.rmtree(transformer.folders[0])
    mean, transformer, svm = arms_of(comparison, folder)
    assert post_hoc(transformer, mean) is None
    assert post_hoc(svm, mean) is not None, "a baseline is the same for every seed"


def test_of_fewer_seeds_than_there_are_runs_the_others_are_left_out(made: Make) -> None:
    comparison, folder = made()
    (mean, *_) = arms_of({**comparison, "seeds": 2}, folder)
    assert [path.name for path in mean.folders] == ["seed-0", "seed-1"]
    assert len(mean.right) == 2


def test_where_the_loss_decides_curves_are_of_the_loss(made: Make) -> None:
    comparison, folder = made()
    path = folder / "mean" / "seed-0" / "metrics.jsonl"
    rows = [{"step": k, "epoch": k / 2, "validation": 0.5, "validation_loss": 7.25} for k in (1, 2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = write_report({**comparison, "metric": "log loss"}, folder).read_text(encoding="utf-8")
    assert "validation, loss in nats" in text
    assert "exp(−loss)" not in text
    assert "validation, accuracy, %" in write_report(comparison, folder).read_text(encoding="utf-8")
