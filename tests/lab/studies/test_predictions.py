"""Other programs' predictions enter the same statistics and the same report as runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.reports.comparison import write_report
from regard.lab.studies.job import read_score
from regard.lab.studies.predictions import by_arm, compare_predictions, named
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.classification.evaluation import label_evaluation
from regard.lab.tasks.classification.metrics import METRICS
from regard.lab.tasks.evaluation import Evaluation
from regard.lab.tasks.writing.metrics import judge

NAMES = ("neg", "neutral", "pos")
PREDICTED = [
    name for name in METRICS if name != "average-precision"
]  # files are not compared by it
LABELS = np.random.default_rng(9).choice(3, 80, p=[0.6, 0.1, 0.3])


def evaluation(seed: int, right: float, metric: str = "accuracy") -> Evaluation:
    """A run's answers to 80 texts by 20 authors, of which it knows a share."""
    random = np.random.default_rng(seed)
    chances = random.dirichlet(np.ones(3), 80)
    known = random.random(80) < right
    chances[known] = 0.1 * chances[known] + 0.9 * np.eye(3)[LABELS[known]]
    examples = [
        Example(f"text {i}", NAMES[k], f"few.csv:{i}", f"author {i // 4}")
        for i, k in enumerate(LABELS.tolist())
    ]
    return label_evaluation(NAMES, examples, chances, metric=metric)


def write(folder: Path, metric: str = "accuracy") -> list[Path]:
    """good and bad with seeds 0 to 2, as runs write them; the rows of bad in another order."""
    paths = []
    for arm, share in (("bad", 0.4), ("good", 0.9)):
        for seed in range(3):
            rows = evaluation(seed, share, metric).rows().splitlines()
            path = folder / f"{arm}-seed-{seed}.jsonl"
            order = reversed(rows) if arm == "bad" else rows
            path.write_bytes(b"\n".join(order) + b"\n")
            paths.append(path)
    return paths


@pytest.mark.parametrize("metric", PREDICTED)
def test_files_are_compared_as_runs_are(tmp_path: Path, metric: str) -> None:
    found = compare_predictions(write(tmp_path), metric=metric, out=tmp_path / "out")
    runs = {
        a: [evaluation(s, x, metric) for s in range(3)] for a, x in (("good", 0.9), ("bad", 0.4))
    }
    assert [(row.arm.name, row.seeds) for row in found.arms] == [("bad", 3), ("good", 3)]
    for row in found.arms:
        value = np.mean([run.value for run in runs[row.arm.name]])
        assert row.mean == pytest.approx(value, rel=1e-6)
        assert row.seconds is row.peak_mb is row.parameters is None
        assert set(row.other_metrics) == {METRICS[other] for other in PREDICTED} - {METRICS[metric]}
    (verdict,) = found.verdicts
    assert (verdict.a, verdict.b, verdict.seeds, verdict.examples) == ("good", "bad", 3, 80)
    assert verdict.mean > 0
    assert "good beats bad" in verdict.sentence or not verdict.significant
    first = runs["bad"][0].trivial or None
    assert first is None
    assert set(found.trivial) == {"majority class", "chance"}
    judged = read_score(tmp_path / "out" / "good" / "seed-2")
    assert judged is not None
    assert judged.groups is not None
    assert np.bincount(judged.groups).tolist() == [4] * 20
    record = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert record["metric"] == METRICS[metric]
    page = write_report(record, tmp_path / "out").read_text(encoding="utf-8")
    for part in ("good ranks first", "majority class", "chance", "Most confident mistakes of"):
        assert part in page, part
    for part in ("peak MB", "parameters", "Learning</h2>", "no networks"):
        assert part not in page, part


def test_the_statistics_are_those_of_right_and_wrong(tmp_path: Path) -> None:
    found = compare_predictions(write(tmp_path), reference="good", out=tmp_path / "out")
    good, bad = (np.stack([evaluation(s, x).correct for s in range(3)]) for x in (0.9, 0.4))
    expected = compare_runs(bad, good, ("bad", "good"))
    (verdict,) = found.verdicts
    assert (verdict.a, verdict.b) == ("bad", "good")
    assert verdict.mean == pytest.approx(expected.mean)
    again = compare_predictions(write(tmp_path)[1:], reference="good", out=tmp_path / "out")
    assert [row.seeds for row in again.arms] == [2, 3]
    assert again.verdicts[0].seeds == 2, "the seeds that both have"
    assert not (tmp_path / "out" / "bad" / "seed-0").exists(), "of an earlier call"


def test_a_delta_judges_files_as_equivalent(tmp_path: Path) -> None:
    files = write(tmp_path)
    verdicts = [
        compare_predictions(files, delta=delta, out=tmp_path / "out").verdicts[0]
        for delta in (None, 1.0, 99.0)
    ]
    assert [one.verdict for one in verdicts] == [None, "different", "different"]
    same = tmp_path / "same-seed-0.jsonl"
    same.write_bytes(files[0].read_bytes())
    (one,) = compare_predictions([files[0], same], delta=10, out=tmp_path / "two").verdicts
    assert (one.verdict, one.margin, one.seeds) == ("equivalent", 0.1, 1)
    (one,) = compare_predictions([files[0], same], delta=1, out=tmp_path / "two").verdicts
    assert one.verdict == "undecided"  # of 80 texts in 20 groups
    with pytest.raises(RegardError, match="--delta 0: give a number above 0"):
        compare_predictions(files, delta=0.0, out=tmp_path / "out")


def test_texts_are_compared_by_bleu(tmp_path: Path) -> None:
    wanted = [f"a man sleeps on bench {i} in the park" for i in range(20)]
    said = {"a": wanted, "b": [text[:-3] for text in wanted]}
    for arm, texts in said.items():
        rows = [{"source": f"Satz {i}", "reference": w, "predicted": s}
                for i, (w, s) in enumerate(zip(wanted, texts, strict=True))]  # fmt: skip
        (tmp_path / f"{arm}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    found = compare_predictions(files, metric="bleu", out=tmp_path / "out")
    assert (found.metric, found.trivial) == ("BLEU", {})
    assert found.arms[1].mean == pytest.approx(judge("bleu", said["b"], wanted).value / 100)
    assert found.verdicts[0].sentence.startswith("a beats b by ") or found.verdicts[0].mean < 0
    assert "Worst texts" in write_report(found.record(), tmp_path / "out").read_text()


def test_files_are_told_apart_by_name_and_folder() -> None:
    for given, arm, seed in (
        ("x/bert.jsonl", "bert", None),
        ("x/bert.2.jsonl", "bert", 2),
        ("x/bert-base.seed-3.jsonl.gz", "bert-base", 3),
        ("x/gpt-2_seed_0.csv", "gpt-2", 0),
        ("x/gpt-2.csv", "gpt-2", None),
        ("runs/c/cnn/seed-1/predictions.jsonl", "cnn", 1),
        ("runs/mine/predictions.jsonl", "mine", None),
        ("mine=x/out.4.tsv", "mine", 4),
        ("mine=x/seed-5/predictions.jsonl", "mine", 5),
    ):
        found = named(given)
        assert (found.arm, found.seed) == (arm, seed), given
    paths = by_arm(["a=x.jsonl", "a=y.jsonl", "b.3.jsonl"])
    assert {arm: list(seeds) for arm, seeds in paths.items()} == {"a": [0, 1], "b": [3]}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a.0.jsonl", "a.1.jsonl"], "at least two arms, not a; name them by NAME=FILE"),
        (["a.0.jsonl", "x/a.0.jsonl", "b.jsonl"], "a.0.jsonl and x/a.0.jsonl are both seed 0 of a"),
        (["a.0.jsonl", "a=new.jsonl", "b.jsonl"], "some file names have a seed and some do not"),
        (["a=", "b.jsonl"], "FILE or NAME=FILE"),
    ],
)
def test_unclear_names_are_refused(files: list[str], says: str) -> None:
    with pytest.raises(RegardError, match=says):
        by_arm(files)


def test_mistakes_leave_everything_as_it_was(tmp_path: Path) -> None:
    files, out = write(tmp_path), tmp_path / "out"
    bare = [json.dumps({"label": NAMES[k], "predicted": "pos"}) for k in LABELS.tolist()]
    (tmp_path / "plain.0.jsonl").write_text("\n".join(bare) + "\n")
    (tmp_path / "numbers.0.jsonl").write_text(
        "\n".join(json.dumps({"label": NAMES[k], "predicted": k}) for k in LABELS.tolist())
    )
    (tmp_path / "one.0.jsonl").write_text(bare[0])
    (tmp_path / "two.0.jsonl").write_text(bare[0])
    for given, asked, says in (
        (files, {"metric": "f1"}, "no metric is called 'f1'"),
        (files, {"reference": "best"}, "unknown reference 'best'; choose one of the arms: "),
        ([*files[1:3], files[3]], {}, "good and bad have no seed in common: 0 and 1, 2"),
        ([files[3], tmp_path / "plain.0.jsonl"], {"metric": "log-loss"},
         r"plain.0.jsonl:1: lacks 'probabilities'"),
        ([files[3], tmp_path / "numbers.0.jsonl"], {}, "no prediction is one of the labels"),
        ([tmp_path / "one.0.jsonl", tmp_path / "two.0.jsonl"], {}, "has only one prediction"),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=says):
            compare_predictions(given, out=out, **asked)
        assert not out.exists()
    out.mkdir()
    (out / "comparison.json").write_text('{"task": "classification"}')
    with pytest.raises(RegardError, match="holds another comparison; give another --out"):
        compare_predictions(files, out=out)
    with pytest.raises(RegardError, match=r"lies in .*, which is written anew"):
        compare_predictions(files, out=tmp_path)
