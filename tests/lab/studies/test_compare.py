"""A comparison from end to end, on tiny arms: numbers, resumption, failures, mistakes."""

import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.reports.comparison import write_report
from regard.lab.runs.convergence import TRIVIAL
from regard.lab.studies import compare as module
from regard.lab.studies.arms import Arm
from regard.lab.studies.compare import compare
from regard.lab.studies.job import RunScore, RunTask, read_score, score_path, train_and_score
from regard.lab.studies.launch import Event, Job, Outcome
from regard.lab.studies.processes import Local
from regard.lab.studies.statistics import compare_runs, holm
from regard.lab.studies.study import Study
from regard.lab.tasks.classification.metrics import METRICS
from regard.lab.tasks.estimates import arm_interval
from regard.lab.tasks.evaluation import Evaluation
from tests.lab.small_runs import stop_after
from tests.lab.studies.declare import checked, declared

TINY = ["width=8", "steps=4", "examples=200", "length=30", "batch_tokens=600"]
SMALL_TRANSFORMER = "transformer:layers=1,heads=2,feedforward=8"
SCHEMA = {"task", "metric", "arms", "trivial", "verdicts", "claims", "report"}
ARM_KEYS = {"name", "seeds", "mean", "low", "high", "seconds", "peak_mb", "parameters"}
ARM_KEYS |= {"training", "trained"}
VERDICT_KEYS = {"a", "b", "difference", "low", "high", "p", "smallest", "says", "untrained"}


class Inline:
    """A launcher without processes: what the real one promises, minus what takes seconds."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.failing: set[str] = set()

    def __call__(
        self,
        jobs: Sequence[Job],
        work: Callable[[Any, Any], Any],
        launcher: Any,
        on_event: Callable[[Event], None],
    ) -> list[Outcome]:
        outcomes = []
        for job in jobs:
            self.ran.append((job.arm, job.seed))
            if job.arm in self.failing:
                outcomes.append(Outcome(job, None, "it would not learn"))
                continue
            value = work(job.task, lambda *said, job=job: self.tell(on_event, job, *said))
            outcomes.append(Outcome(job, value, "", 1.0))
        return outcomes

    def tell(
        self,
        on_event: Callable[[Event], None],
        job: Job,
        done: float,
        says: str,
        warning: str = "",
        most: float = 0.0,
    ) -> None:
        if warning:
            on_event(Event("warning", job.arm, job.seed, done, warning))
        on_event(Event("progress", job.arm, job.seed, done, says))


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    launcher = Inline()
    monkeypatch.setattr(module, "launch", launcher)
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    return launcher


def tiny(
    arms: str | Sequence[str],
    out: Path,
    *,
    seeds: int = 1,
    overrides: Sequence[str] = TINY,
    **fields: Any,
) -> Study:
    """A comparison of classifiers that are hardly trained."""
    return declared("classification", arms, out=out, seeds=seeds, overrides=overrides, **fields)


def answers(folder: Path) -> np.ndarray:
    """Right and wrong of one run, from its own predictions."""
    rows = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    return np.array([row["label"] == row["predicted"] for row in rows])


def test_every_number_comes_from_the_runs_predictions(inline: Inline, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arms = ["mean", SMALL_TRANSFORMER, "tfidf"]
    found = compare(tiny(arms, out, seeds=2, reference="tfidf"))
    assert inline.ran == [("mean", 0), (SMALL_TRANSFORMER, 0), ("tfidf", 0), ("mean", 1),
                          (SMALL_TRANSFORMER, 1)]  # fmt: skip
    result = found.json()
    assert set(result) == SCHEMA
    assert all(set(row) == ARM_KEYS for row in result["arms"])
    assert all(set(row) == VERDICT_KEYS for row in result["verdicts"])
    json.dumps(result, allow_nan=False)

    tables = {
        arm.name: np.stack([answers(out / arm.folder / f"seed-{seed}") for seed in range(2)])
        for arm in (row.arm for row in found.arms)
        if not arm.deterministic
    }
    fixed = answers(out / "tfidf" / "seed-0")
    for row in result["arms"]:
        table = tables.get(row["name"], fixed[None])
        assert (row["mean"], row["low"], row["high"]) == arm_interval(table)
        assert row["seeds"] == len(table)
    expected = [compare_runs(tables[name], np.stack([fixed, fixed])) for name in arms[:2]]
    adjusted = holm([difference.p for difference in expected])
    for verdict, name, difference, p in zip(
        result["verdicts"], arms, expected, adjusted, strict=False
    ):
        assert (verdict["a"], verdict["b"]) == (name, "tfidf")
        assert verdict["difference"] == pytest.approx(difference.mean)
        assert (verdict["low"], verdict["high"]) == (difference.low, difference.high)
        assert verdict["p"] == p
        assert ", Holm over 2" in verdict["says"]
        assert verdict["smallest"] == pytest.approx(difference.estimate.smallest(2))


def test_an_arm_that_was_not_trained_to_its_end_is_marked(inline: Inline, tmp_path: Path) -> None:
    found = compare(tiny("tfidf,mean", tmp_path, seeds=2))
    words, mean = found.json()["arms"]
    assert (words["training"], words["trained"]) == ("converged", True)
    assert not mean["trained"]  # four steps
    assert set(found.arms[1].ended) <= {"too short to tell", "one label only"}
    (verdict,) = found.verdicts
    assert verdict.untrained == ("mean",)
    assert (
        "no claim about the method" in verdict.sentence
        or "not trained to the end" in verdict.sentence
    )
    assert found.table().splitlines()[2].endswith(found.arms[1].training())


def test_what_ended_a_training_is_in_its_result(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["width=32", "filters=8", "examples=600", "learning_rate=0.01", "evaluate_every=10"]
    found = compare(tiny("tfidf,cnn", tmp_path, overrides=given))
    run = runs.load(tmp_path / "cnn" / "seed-0")
    assert [row["ended"] for row in run.metrics()][-1] == "patience"
    assert run.convergence == read_score(run.folder.path).trained == "converged"
    assert found.arms[1].trained
    # A plateau at the score of a guess is no end of a training, and no claim is made of it.
    monkeypatch.setattr(Evaluation, "learned", False)
    assert run.convergence == TRIVIAL
    monkeypatch.setattr(module, "read_score", lambda path: stuck_at(path))
    arms = tiny("tfidf,cnn", tmp_path, overrides=given)
    (verdict,) = compare(arms).verdicts
    assert (verdict.stuck, verdict.steps.keys()) == (("cnn",), {"cnn"})
    assert "cnn never left the trivial answer" in replace(verdict, p=0.01).sentence


def stuck_at(path: Path) -> RunScore | None:
    """A stored score, as of a run that never left the trivial answer if it is of a network."""
    score = read_score(path)
    return replace(score, trained=TRIVIAL) if score and score.steps else score


def test_rows_of_one_group_count_as_one(inline: Inline, tmp_path: Path) -> None:
    words = ["good film", "bad film", "fine and good", "dull and bad"]
    rows = [
        f"{film},{words[film % 4]} {film}{row},{'pn'[film % 2]}"
        for film in range(40)
        for row in "abc"
    ]
    data = tmp_path / "films.csv"
    data.write_text("\n".join(["film,text,label", *rows]) + "\n")
    settings = [f"data={data}", "group=film"]
    found = compare(tiny("tfidf,nb-svm", tmp_path / "out", overrides=settings))
    judged = read_score(tmp_path / "out" / "tfidf" / "seed-0")
    assert judged is not None
    assert judged.groups is not None
    assert np.unique(judged.groups, return_counts=True)[1].tolist() == [3] * (judged.examples // 3)
    assert found.verdicts[0].estimate.examples_freedom == pytest.approx(judged.examples / 3 - 1)


def test_costs_and_the_record_on_disk(inline: Inline, tmp_path: Path) -> None:
    found = compare(tiny("mean,tfidf", tmp_path))
    mean, tfidf = found.arms
    run = runs.load(tmp_path / "mean" / "seed-0")
    assert mean.parameters == sum(p.numel() for p in run.network.parameters())
    assert mean.seconds == run.metrics()[-1]["seconds"] > 0
    assert 10 < mean.peak_mb < 20_000
    assert mean.flops is not None
    assert mean.flops > 0
    assert tfidf.flops is None
    assert tfidf.parameters == sum(
        array.size for array in runs.load(tmp_path / "tfidf/seed-0").baseline.arrays.values()
    )
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert record == found.record()
    assert record["reference"] == "mean"
    assert [row["folder"] for row in record["arms"]] == ["mean", "tfidf"]
    assert [row["flops"] for row in record["arms"]] == [mean.flops, None]
    assert record["data"] == "reviews"
    assert record["fingerprint"]
    words = "regard compare classification --arms mean;tfidf --seeds 1 --reference mean".split()
    assert record["command"] == [*words, *TINY, "--out", str(tmp_path)]
    assert "two models, not two methods" in found.verdicts[0].sentence
    assert found.table().splitlines()[1].startswith("mean ")


def test_the_same_call_repeats_nothing_and_more_seeds_add(inline: Inline, tmp_path: Path) -> None:
    first = compare(tiny("mean,tfidf", tmp_path))
    inline.ran.clear()
    events: list[Event] = []
    again = compare(tiny("mean,tfidf", tmp_path), on_event=events.append)
    assert inline.ran == []
    assert again == first
    assert [(e.kind, e.arm, e.done, e.total) for e in events] == [
        ("kept", "mean", 1.0, 2),
        ("kept", "tfidf", 1.0, 2),
    ]
    more = compare(tiny("mean,tfidf", tmp_path, seeds=3))
    assert inline.ran == [("mean", 1), ("mean", 2)]
    assert [row.seeds for row in more.arms] == [3, 1]


def test_a_lost_or_outdated_result_is_judged_anew(inline: Inline, tmp_path: Path) -> None:
    first = compare(tiny("mean,tfidf", tmp_path))
    folder = tmp_path / "mean" / "seed-0"
    weights = (folder / "model.safetensors").stat().st_mtime_ns
    score_path(folder).unlink()
    assert read_score(folder) is None
    again = compare(tiny("mean,tfidf", tmp_path))
    assert inline.ran[2:] == [("mean", 0)]
    assert (folder / "model.safetensors").stat().st_mtime_ns == weights  # not trained again
    assert again.arms[0].mean == first.arms[0].mean
    (folder / "MANIFEST.json").write_text("{}")
    assert read_score(folder) is None


def test_a_run_that_was_ended_early_is_not_compared(tmp_path: Path) -> None:
    settings = [*TINY, "threads=1", "save_every=1"]
    folder = tmp_path / "mean" / "seed-0"
    run = runs.start(folder, "classification", "mean", settings)
    stop_after(run, 3)
    list(run.train(end=True))
    asked = RunTask(str(folder), "classification", "mean", tuple(settings))
    with pytest.raises(RegardError, match=r"seed-0: the training was ended by --end after \d+% of"):
        train_and_score(asked, lambda *said: None)


def test_runs_of_other_data_or_other_code_are_not_compared(inline: Inline, tmp_path: Path) -> None:
    data, own = tmp_path / "own.csv", tmp_path / "own.py"
    rows = [f"film {i} is {word},{label}" for i in range(99)
            for word, label in (("good", "pos"), ("bad", "neg"))]  # fmt: skip
    data.write_text("\n".join(["text,label", *rows]))
    own.write_text("from regard.attention import SCORES\nclass Mine(SCORES['dot']):\n    pass\n")
    arms = ["mean", f"transformer:score={own}:Mine,layers=1,heads=2,feedforward=8"]
    given = [*TINY[:2], "batch_tokens=600", f"data={data}"]
    compare(tiny(arms, tmp_path / "c", overrides=given))
    own.write_text(
        "from regard.attention import SCORES\nclass Mine(SCORES['dot']):\n    twice = 2\n"
    )
    with pytest.raises(RegardError, match=r"Mine changed since .*seed-0 was trained; give another"):
        compare(tiny(arms, tmp_path / "c", seeds=2, overrides=given))
    first = runs.load(next((tmp_path / "c").glob("transformer*/seed-0")))
    with pytest.raises(
        RegardError, match=r"Mine has changed since .* was trained with it; restore it"
    ):
        first.predict("a film")
    own.write_text("from regard.attention import SCORES\nclass Mine(SCORES['dot']):\n    pass\n")
    data.write_text(data.read_text().replace("film 3 is good,pos", "film 3 is good,neg"))
    with pytest.raises(RegardError, match=r"the data changed since .* was trained; give another"):
        compare(tiny(arms, tmp_path / "c", seeds=2, overrides=given))


def test_arms_may_differ_in_how_they_learn_of_the_same_texts(
    inline: Inline, tmp_path: Path
) -> None:
    rows = [f"ein Satz {i}\ta sentence {i}" for i in range(300)]
    (tmp_path / "p.tsv").write_text("\n".join(rows) + "\n")
    given = [f"data={tmp_path / 'p.tsv'}", "width=4", "hidden=4", "steps=1", "threads=1"]
    given += ["batch_tokens=300", "judged=3"]
    arms = "gru;gru:validation=0.2;gru:smoothing=0.1;gru:examples=50;gru:beam=2"
    for seeds in (1, 2):  # the second time the first seed's runs are kept
        found = compare(declared("dates", arms, seeds=seeds, out=tmp_path / "c", overrides=given))
        assert [row.seeds for row in found.arms] == [seeds] * 5
    with pytest.raises(RegardError, match="arms need the same test examples: split_seed is 0"):
        compare(
            declared("dates", "gru;gru:split_seed=1", seeds=1, out=tmp_path / "d", overrides=given)
        )


def skewed(path: Path) -> Path:
    """Sixty texts of three labels, most of them "a"; four texts come from each author."""
    rows = ["text,label,author"]
    for i in range(120):
        label = "c" if i % 10 == 0 else "b" if i % 3 == 0 else "a"
        rows.append(f"{label * 2} text number {i},{label},author {i // 4}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("metric", ["macro-f1", "log-loss"])
def test_another_metric_decides(inline: Inline, tmp_path: Path, metric: str) -> None:
    data = skewed(tmp_path / "few.csv")
    given = [f"data={data}", "group=author", f"metric={metric}", "ngrams=1", *TINY]
    arms = "tfidf;tfidf:class_weights=balanced;tfidf:inverse_penalty=0.001;mean"
    found = compare(tiny(arms, tmp_path / "out", overrides=given))
    runs_of = {row.arm.name: tmp_path / "out" / row.arm.folder / "seed-0" for row in found.arms}
    title = METRICS[metric]
    assert found.metric == title
    for row in found.arms:
        judged, evaluation = read_score(runs_of[row.arm.name]), runs.load(runs_of[row.arm.name])
        expected = evaluation.evaluate().summary["scores"]
        assert row.mean == pytest.approx(expected[title], rel=1e-6)
        assert row.low <= row.mean <= row.high + 1e-12
        assert row.other_metrics == pytest.approx({k: v for k, v in expected.items() if k != title})
        assert judged is not None
        assert judged.groups is not None
        authors = [example.group for example in evaluation.evaluate().examples]
        assert len(set(judged.groups.tolist())) == len(set(authors)) < judged.examples
    means = {row.arm.name: row.mean for row in found.arms}
    for verdict in found.verdicts:
        gain = means[verdict.a] - means["tfidf"]
        assert verdict.mean == pytest.approx(-gain if metric == "log-loss" else gain, abs=1e-6)
    vague = next(v for v in found.verdicts if "0.001" in v.a)
    assert vague.mean < 0, "a model that hardly learned is worse"
    test = [example.label for example in runs.load(runs_of["tfidf"]).evaluate().examples]
    if metric == "log-loss":
        assert found.trivial["chance"] == pytest.approx(np.log(3))
        assert vague.unit == "nats"
        assert "nats" in vague.sentence
        assert "tfidf beats" in vague.sentence or not vague.significant
    else:
        share = test.count("a") / len(test)
        assert found.trivial["majority class"] == pytest.approx(2 * share / (1 + share) / 3)
    lines = found.table().splitlines()
    assert lines[0].split()[1:3] == (title + found.unit.sign).split()[:2]
    assert [line.split()[0] for line in lines[5:7]] == ["majority", "chance"]
    assert any("'c', " in note for note in found.about["notes"])


def test_an_arm_that_fails_leaves_the_others_be(inline: Inline, tmp_path: Path) -> None:
    inline.failing = {"cnn"}
    found = compare(tiny("mean,cnn,tfidf", tmp_path))
    assert [row.arm.name for row in found.arms] == ["mean", "tfidf"]
    assert [(f.arm, f.seed, f.says) for f in found.failures] == [("cnn", 0, "it would not learn")]
    assert [(v.a, v.b, v.family) for v in found.verdicts] == [("tfidf", "mean", 1)]
    (error,) = found.record()["errors"]
    assert error == {"arm": "cnn", "seed": 0, "says": "it would not learn", "what": "seed"}
    assert "cnn, seed 0: it would not learn" in found.table()


def test_failed_seeds_are_counted_beside_those_that_ended(inline: Inline, tmp_path: Path) -> None:
    compare(tiny("mean,tfidf", tmp_path))
    inline.failing = {"mean"}
    found = compare(tiny("mean,tfidf", tmp_path, seeds=3))
    ended = found.arms[0].ended
    assert ended.total() == 3
    assert ended["failed"] == 2


def test_without_its_reference_there_is_no_verdict(inline: Inline, tmp_path: Path) -> None:
    inline.failing = {"cnn"}
    found = compare(tiny("cnn,mean", tmp_path))
    assert found.verdicts == ()
    inline.failing = {"cnn", "mean"}
    with pytest.raises(RegardError, match="it would not learn"):
        compare(tiny("cnn,mean", tmp_path / "2"))


def test_a_ladder_is_a_family_of_its_own(inline: Inline, tmp_path: Path) -> None:
    arms = "mean,attention-pool,tfidf,cnn:filters=4"
    found = compare(tiny(arms, tmp_path, ladder=True))
    assert [(v.a, v.b, v.family) for v in found.rungs] == [
        ("attention-pool", "mean", 2),
        ("cnn:filters=4", "attention-pool", 2),
    ]
    assert [v.family for v in found.verdicts] == [3, 3, 3]
    families = [row["family"] for row in found.record()["verdicts"]]
    assert families == ["reference"] * 3 + ["ladder"] * 2
    chosen = (("cnn:filters=4", "mean"),)
    found = compare(tiny(arms, tmp_path, ladder=chosen))
    assert [(v.a, v.b, v.family) for v in found.rungs] == [("cnn:filters=4", "mean", 1)]


def plan(arms: str | Sequence[str | Arm] = "mean,tfidf", **given: Any) -> Study:
    return checked("classification", arms, **{"out": "nowhere", **given})


def test_settings_go_to_the_arms_that_have_them() -> None:
    study = plan("mean,tfidf,rnn:width=9", overrides=["width=8", "ngrams=1", "length=50"],
                 budget="2 epochs", seeds=2)  # fmt: skip
    given = {(job.arm, job.seed): job.task.overrides for job in study.jobs()}
    assert given == {
        ("mean", 0): ("width=8", "length=50", "epochs=2", "seed=0"),
        ("mean", 1): ("width=8", "length=50", "epochs=2", "seed=1"),
        ("tfidf", 0): ("ngrams=1", "length=50", "epochs=2", "seed=0"),
        ("rnn:width=9", 0): ("length=50", "epochs=2", "width=9", "seed=0"),
        ("rnn:width=9", 1): ("length=50", "epochs=2", "width=9", "seed=1"),
    }


def test_fresh_seeds_count_from_the_given_one() -> None:
    fresh = declared("classification", "mean,cnn", seeds=2, overrides=["width=8", "seed=40"])
    runs = {(job.arm, job.seed): job.task for job in fresh.jobs()}
    assert runs["cnn", 1].overrides == ("width=8", "seed=41")
    assert runs["mean", 0].overrides == ("width=8", "seed=40")
    assert runs["mean", 0].folder.endswith("mean/seed-0")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reference": "cnn"}, "unknown reference 'cnn'; choose one of the arms: mean, tfidf"),
        ({"seeds": 0}, "seeds=0"),
        ({"budget": "soon"}, "budget 'soon'"),
        ({"budget": "5 steps", "overrides": ["epochs=2"]}, "arm mean: only one budget is allowed"),
        ({"overrides": ["widht=8"]}, "did you mean width"),
        ({"overrides": ["width"]}, "key=value, not 'width'"),
        ({"overrides": ["width=8", "width=9"]}, "arm mean: width is set twice"),
        ({"overrides": ["seed=soon"]}, "seed=soon: give a whole number, the first seed"),
        ({"overrides": ["seed=-3"]}, "seed=-3: give 0 or a larger number"),
        ({"arms": "mean:seed=3,tfidf"}, "seed=3: all arms have the same seeds; leave it out"),
        ({"arms": "mean:width=wide,tfidf"}, "arm mean:width=wide: width='wide'"),
        ({"arms": "mean:filters=3,cnn"}, "arm mean:filters=3: no setting is called 'filters'"),
        ({"arms": "mean,tfidf:data=imdb"}, "data is 'reviews' in mean and 'imdb' in tfidf"),
        ({"arms": [Arm("a", "mean"), Arm("a", "cnn")]}, "two arms are named 'a'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RegardError) as caught:
        plan(**given)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rungs_must_be_arms_and_tasks_must_exist(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="a rung must be one of the arms"):
        plan(ladder=(("mean", "cnn"),))
    with pytest.raises(RegardError, match="did you mean classification"):
        checked("clasification", "mean,cnn", out=tmp_path)


def test_another_run_in_the_folder_is_not_touched(inline: Inline, tmp_path: Path) -> None:
    compare(tiny("mean,tfidf", tmp_path))
    with pytest.raises(RegardError, match="contains another run: width is 8 there and 9 here"):
        compare(tiny("mean,tfidf", tmp_path, overrides=["width=9", *TINY[1:]]))


def test_bad_data_are_one_error_not_one_for_each_arm(inline: Inline, tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\n" + "fine,yes\n" * 30)
    with pytest.raises(RegardError, match="all 30 rows have the label"):
        compare(tiny("mean,cnn", tmp_path / "out", overrides=[f"data={path}"]))
    assert inline.ran == []


def test_with_processes_the_run_of_a_killed_worker_goes_on(tmp_path: Path) -> None:
    killed: list[str] = []
    told: list[str] = []

    def kill_once(event: Event) -> None:
        told.append(event.kind)
        if event.kind == "progress" and not killed:
            killed.append(event.arm)
            (worker,) = multiprocessing.active_children()
            worker.kill()

    steps = ["steps=300", "evaluate_every=100"]
    asked: dict[str, Any] = {"seeds": 1, "out": tmp_path, "overrides": [TINY[0], *TINY[2:], *steps]}
    comparison = compare(
        declared("classification", "mean,tfidf", **asked), Local(1), on_event=kill_once
    )
    assert killed == ["mean"]
    assert told.count("restarted") == 1
    assert comparison.failures == ()
    assert [row.arm.name for row in comparison.arms] == ["mean", "tfidf"]
    assert runs.load(tmp_path / "mean" / "seed-0").folder.environment()["threads"] == 1


@pytest.mark.parametrize("wrong", ["score=adtive", "normalize=sofmax", "pattern=windw-8"])
def test_a_misspelt_part_is_named_before_anything_trains(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(RegardError, match=r"arm transformer:.*: no .* is called"):
        compare(tiny(["mean", f"transformer:{wrong}"], tmp_path / "out", seeds=2, overrides=()))
    assert not (tmp_path / "out").exists()


@pytest.mark.deep
def test_a_budget_in_minutes_is_told_in_steps_beside_the_command(
    inline: Inline, tmp_path: Path
) -> None:
    arms, out = ["mean", "cnn:filters=4", "tfidf"], tmp_path / "out"
    shared = [pair for pair in TINY if not pair.startswith("steps")]
    found = compare(tiny(arms, out, seeds=2, overrides=shared, budget="0.3s", reference="mean"))
    record = json.loads((out / "comparison.json").read_text())
    last = {
        name: [runs.load(out / folder / f"seed-{seed}").metrics()[-1]["steps"] for seed in (0, 1)]
        for name, folder in (("mean", "mean"), ("cnn", Arm("cnn:filters=4", "cnn").folder))
    }
    assert [row["steps"] for row in record["arms"]] == [last["mean"], last["cnn"], []]
    means = {name: round(sum(steps) / 2) for name, steps in last.items()}
    assert record["command"][-2:] == ["--out", str(out)]
    assert "--budget" in record["command"]
    assert record["repeat"] == [
        *("regard", "compare", "classification", "--arms"),
        f"mean:steps={means['mean']};cnn:filters=4,steps={means['cnn']};tfidf",
        *("--seeds", "2", "--reference", f"mean:steps={means['mean']}", *shared),
        *("--out", f"{out}-again"),
    ]
    checked("classification", record["repeat"][4], out=tmp_path / "again", overrides=shared)
    assert f"steps={means['mean']}" in write_report(found.record(), out).read_text()


def test_a_budget_in_steps_needs_no_other_command(inline: Inline, tmp_path: Path) -> None:
    found = compare(tiny("mean,tfidf", tmp_path / "out"))
    assert "repeat" not in found.record()
    assert [row["steps"] for row in found.record()["arms"]] == [[4], []]
