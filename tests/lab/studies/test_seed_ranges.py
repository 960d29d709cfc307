"""Comparisons that add seeds until each is decided: which runs they train, and what they say."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.cli.compare import _verdict
from regard.lab.labs import LabRequest, comparison
from regard.lab.labs.comparison import ComparisonLab, PretrainFirst
from regard.lab.reports.answer import answer
from regard.lab.reports.comparison import write_report
from regard.lab.reports.evidence import arms_of
from regard.lab.studies import compare as module
from regard.lab.studies.budget import parse_seeds
from regard.lab.studies.compare import compare
from regard.lab.studies.job import RunScore
from regard.lab.studies.launch import Event, Job, Outcome
from regard.lab.studies.result import Comparison, StoredComparison
from regard.lab.studies.stopping import anytime_p, looks
from regard.lab.studies.study import Study
from tests.lab.studies.declare import checked, declared

NOISE = (1.0, -1.0, 0.4, -0.4, 0.8, -0.8, 0.2, -0.2)
#: By arm: the accuracy of a seed. cnn is 5 points better, rnn alike, the transformer erratic.
ACCURACY: dict[str, Callable[[int], float]] = {
    "mean": lambda seed: 0.8,
    "cnn": lambda seed: 0.85 + 0.0005 * NOISE[seed],
    "rnn": lambda seed: 0.8 + 0.004 * NOISE[seed],
    "transformer": lambda seed: 0.81 + 0.05 * NOISE[seed],
    "tfidf": lambda seed: 0.79,
}


class World:
    """Runs that take no time: their scores by folder, in the order in which they were trained."""

    def __init__(self) -> None:
        self.scores: dict[Path, RunScore] = {}
        self.ran: list[tuple[str, int]] = []
        self.failing: set[tuple[str, int]] = set()
        self.stop_after = 10**6

    def launch(self, jobs: Sequence[Job], *_: Any) -> list[Outcome]:
        outcomes = []
        for job in jobs:
            if len(self.ran) == self.stop_after:
                raise KeyboardInterrupt
            self.ran.append((job.arm, job.seed))
            failed = (job.arm, job.seed) in self.failing
            if not failed:
                scores = np.full(1000, ACCURACY[job.arm](job.seed), "<f8").tobytes().hex()
                score = RunScore("accuracy", 1000, "", "a0", "", scores=scores, seconds=1.0)
                self.scores[Path(job.task.folder)] = score
            outcomes.append(Outcome(job, error="it would not learn" if failed else ""))
        return outcomes


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(module, "launch", world.launch)
    monkeypatch.setattr(module, "read_score", world.scores.get)
    monkeypatch.setattr(module, "check_compatible", lambda *_: None)
    monkeypatch.setattr(Study, "check", lambda study: None)
    monkeypatch.setattr(Study, "read_data", lambda study, arms: {"": {}})
    return world


def ranged(arms: str, out: Path, **fields: Any) -> Study:
    return declared("classification", arms, out=out, **{"least": 3, "seeds": 8} | fields)


def test_only_the_arms_of_undecided_comparisons_get_more_seeds(
    world: World, tmp_path: Path
) -> None:
    events: list[Event] = []
    study = ranged("mean,cnn,rnn,transformer", tmp_path)
    found = compare(study, on_event=events.append)
    assert world.ran[:12] == [(arm, s) for s in range(3) for arm in ACCURACY if arm != "tfidf"]
    later = {arm: [s for a, s in world.ran[12:] if a == arm] for arm in ACCURACY}
    assert later == {"cnn": [], "rnn": [3, 4], "transformer": [3, 4, 5, 6, 7],
                     "mean": [3, 4, 5, 6, 7], "tfidf": []}  # fmt: skip
    assert [(v.a, v.verdict, v.seeds) for v in found.verdicts] == [
        ("cnn", "different", 3), ("rnn", "equivalent", 5), ("transformer", "undecided", 8)
    ]  # fmt: skip
    assert {row.arm.name: row.seeds for row in found.arms} == {
        "mean": 8, "cnn": 3, "rnn": 5, "transformer": 8
    }  # fmt: skip
    extended = [event for event in events if event.kind == "extended"]
    assert [event.seed for event in extended] == [3, 4, 5, 6, 7]
    says = "up to 4 seeds, because rnn and mean are undecided: "
    assert extended[0].message.startswith(says)
    assert extended[0].total == 12 + 3
    assert "not within ±1 point; transformer and mean are undecided" in extended[0].message
    assert extended[2].message.startswith("up to 6 seeds, because transformer and mean are")


def test_only_the_arms_of_other_claims_get_more_seeds(world: World, tmp_path: Path) -> None:
    events: list[Event] = []
    asked, seeds = iter([("cnn",), ("cnn", "mean"), ()]), []

    def more_seeds(comparison: Comparison) -> tuple[str, ...]:
        seeds.append(comparison.about["seeds"])
        return next(asked)

    found = compare(
        ranged("mean,cnn,transformer", tmp_path), on_event=events.append, more_seeds=more_seeds
    )
    assert seeds == [3, 4, 5], "what is measured leaves later runs of an earlier call out"
    assert world.ran[9:] == [("cnn", 3), ("mean", 3), ("mean", 4), ("cnn", 4)]
    assert {row.arm.name: row.seeds for row in found.arms} == {
        "mean": 5, "cnn": 5, "transformer": 3
    }  # fmt: skip
    assert [(one.a, one.verdict, one.seeds) for one in found.verdicts] == [
        ("cnn", "different", 3), ("transformer", "undecided", 3)
    ], "decided by three; undecided, but no claim asks about it"  # fmt: skip
    told = [event.message for event in events if event.kind == "extended"]
    assert told == [
        "up to 4 seeds, because claims about cnn are undecided",
        "up to 5 seeds, because claims about cnn, mean are undecided",
    ]


def test_the_verdict_has_the_p_of_any_look(world: World, tmp_path: Path) -> None:
    found = compare(ranged("mean,transformer", tmp_path))
    fixed = compare(declared("classification", "mean,transformer", out=tmp_path, seeds=8))
    (one,), (plain,) = found.verdicts, fixed.verdicts
    assert plain.verdict is None
    assert one.mean == plain.mean
    assert plain.p < 0.9
    assert one.p == pytest.approx(anytime_p(plain.p, 8, looks(3, 8)))
    assert one.p > plain.p
    assert one.high - one.low > plain.high - plain.low
    assert world.ran == [(arm, seed) for seed in range(8) for arm in ("mean", "transformer")]


def test_a_lab_pretrains_the_seeds_that_it_trains(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ("cnn", "transformer")
    first = [PretrainFirst(arm, "masked-modeling", "bert") for arm in arms]
    lab = ComparisonLab(
        question="Which?", task="classification", arms=["mean", *arms],
        adapt=lambda plan: replace(plan, pretrain_first=first),
    )  # fmt: skip
    order: list[tuple[str, int]] = []

    def pretrain(jobs: Sequence[Job], *_: Any) -> None:
        assert all(Path(job.task.folder).parent.parent == tmp_path / "pretrained" for job in jobs)
        order.extend((f"before {job.arm}", job.seed) for job in jobs)
        world.ran = order  # one list for both

    monkeypatch.setattr(comparison, "pretrain", pretrain)
    plan = lab.plan(LabRequest(seeds=8, least=3))
    assert plan.first_seeds == 3
    lab.compare(plan, tmp_path, LabRequest(), lambda *_: None, lambda _: None)
    runs = [f"{arm} {seed}" for arm, seed in dict.fromkeys(order)]
    begun = {arm: [s for a, s in order if a == f"before {arm}"] for arm in arms}
    assert {*begun["cnn"]} == {0, 1, 2}  # decided
    assert {*begun["transformer"]} == {*range(8)}
    for arm in arms:
        for seed in {*begun[arm]}:
            assert runs.index(f"before {arm} {seed}") < runs.index(f"{arm} {seed}")
    assert runs.index("before transformer 3") > runs.index("transformer 2")


def test_an_interrupted_study_goes_on(world: World, tmp_path: Path) -> None:
    study = ranged("mean,cnn,rnn", tmp_path)
    whole = compare(study)
    order = list(world.ran)
    for stop in (2, 10, len(order) - 1):
        world.scores.clear()
        world.ran.clear()
        world.stop_after = stop
        with pytest.raises(KeyboardInterrupt):
            compare(study)
        world.stop_after = 10**6
        again = compare(study)
        assert world.ran == order  # nothing twice
        assert again.json() == whole.json()


def test_more_seeds_than_a_study_asks_for_are_left_out(world: World, tmp_path: Path) -> None:
    compare(declared("classification", "mean,cnn", out=tmp_path, seeds=6))
    found = compare(ranged("mean,cnn", tmp_path))
    assert [row.seeds for row in found.arms] == [3, 3]
    assert found.verdicts[0].seeds == 3


def test_an_arm_with_a_failed_run_gets_no_more_seeds(world: World, tmp_path: Path) -> None:
    world.failing = {("transformer", 1)}
    found = compare(ranged("mean,transformer", tmp_path))
    assert max(seed for _, seed in world.ran) == 2
    assert found.verdicts[0].seeds == 2
    assert found.verdicts[0].verdict == "undecided"
    assert [failure.seed for failure in found.failures] == [1]


def test_two_arms_without_seeds_are_judged_once(world: World, tmp_path: Path) -> None:
    ACCURACY["nb-svm"] = lambda seed: 0.79
    found = compare(ranged("tfidf,nb-svm", tmp_path))
    assert world.ran == [("tfidf", 0), ("nb-svm", 0)]
    assert found.verdicts[0].verdict == "equivalent"


def test_the_ladder_gets_seeds_too(world: World, tmp_path: Path) -> None:
    found = compare(ranged("cnn,mean,rnn", tmp_path, ladder=True))
    assert [(v.a, v.verdict) for v in found.verdicts] == [
        ("mean", "different"),
        ("rnn", "different"),
    ]
    assert [(v.a, v.b, v.verdict) for v in found.rungs] == [
        ("mean", "cnn", "different"), ("rnn", "mean", "equivalent")
    ]  # fmt: skip
    assert {row.arm.name: row.seeds for row in found.arms}["cnn"] == 3
    more = compare(ranged("cnn,mean,rnn,transformer", tmp_path, ladder=True))
    seeds = {row.arm.name: row.seeds for row in more.arms}
    assert (seeds["cnn"], seeds["mean"]) == (8, 5)  # each for another comparison
    assert (more.verdicts[0].a, more.verdicts[0].seeds) == ("mean", 3)


def test_a_pair_of_both_families_is_told_once(world: World, tmp_path: Path) -> None:
    events: list[Event] = []
    compare(ranged("mean,transformer", tmp_path, ladder=True), on_event=events.append)
    messages = [event.message for event in events if event.kind == "extended"]
    assert len(messages) == 5
    assert {text.count("transformer and mean are undecided") for text in messages} == {1}


def test_a_larger_delta_makes_arms_equivalent_and_a_fixed_number_of_seeds_judges_once(
    world: World, tmp_path: Path
) -> None:
    arms = "mean,rnn"
    narrow, wide = (
        compare(declared("classification", arms, out=tmp_path, seeds=4, delta=d)).verdicts[0]
        for d in (0.1, 2.0)
    )
    assert (narrow.verdict, wide.verdict) == ("undecided", "equivalent")
    assert (narrow.margin, wide.margin) == (0.001, 0.02)
    assert len(world.ran) == 8


def test_json_and_report_show_verdict_delta_and_seeds(world: World, tmp_path: Path) -> None:
    found = compare(ranged("mean,cnn,rnn", tmp_path, delta=1.5))
    cnn, rnn = found.json()["verdicts"]
    assert (cnn["verdict"], cnn["delta"], cnn["seeds"]) == ("different", 0.015, 3)
    assert rnn["verdict"] == "equivalent"
    assert rnn["p_equivalent"] == found.verdicts[1].p_equivalent < 0.05
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert StoredComparison.model_validate(record).verdicts[1].verdict == "equivalent"
    words = record["command"]
    assert words[words.index("--seeds") + 1] == "3..8"
    assert words[words.index("--delta") + 1] == "1.5"
    page = write_report(record, tmp_path).read_text()
    assert "<th>verdict (δ = 1.5 points)</th>" in page
    assert "<td>different, 3 seeds</td>" in page
    assert f"<td>equivalent, {rnn['seeds']} seeds</td>" in page
    sentences = answer(record, arms_of(record, tmp_path))
    assert "Equivalent to mean within 1.5 points: rnn." in sentences
    assert "Evidence of a gain over mean: cnn." in sentences


def test_arms_that_were_not_trained_to_the_end_are_not_called_equivalent(
    world: World, tmp_path: Path
) -> None:
    found = compare(ranged("mean,rnn", tmp_path))
    assert _verdict(found.unit, found.arms[1], found.verdicts[0])[-1] == "equivalent, 4 seeds"
    for path, score in world.scores.items():
        world.scores[path] = replace(score, trained="still rising")
    found = compare(ranged("mean,rnn", tmp_path))
    (one,) = found.verdicts
    assert one.verdict == "equivalent"  # at these steps
    assert one.sentence.endswith(
        "; not trained to the end: rnn and mean: no claim about the methods"
    )
    assert _verdict(found.unit, found.arms[1], one)[-1] == "no claim, 4 seeds"
    sentences = answer(found.record(), arms_of(found.record(), tmp_path))
    says = "Training did not converge, so no claim about the method against mean: rnn."
    assert says in sentences
    assert not any("Equivalent" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5..3", "--seeds 5..3: 5 is more than 3; write --seeds 3..5"),
        ("1..9", "--seeds 1..9: one seed decides nothing about methods; begin with 2"),
        ("3-30", "--seeds 3-30: write a number, 5, or a range, 3..30"),
        ("3..", "--seeds 3..: write a number, 5, or a range, 3..30"),
        ("0", "--seeds 0: give at least 1"),
        ("3..5000", "--seeds 3..5000: a range ends at 1,000 seeds at most"),
    ],
)
def test_mistakes_in_a_range_are_one_line(text: str, message: str) -> None:
    with pytest.raises(RegardError) as error:
        parse_seeds(text)
    assert str(error.value) == message


def test_the_usual_delta_is_in_the_unit_of_the_metric(tmp_path: Path) -> None:
    study = ranged("mean,rnn", tmp_path)
    assert [study.margin(x) for x in ("accuracy", "BLEU", "log loss", "R²")] == [0.01] * 4
    assert replace(study, delta=0.5).margin("accuracy") == 0.005
    assert replace(study, least=0).margin("accuracy") is None
    with pytest.raises(RegardError, match=r"--seeds 3\.\.8: give --delta, the difference in MAE"):
        checked("regression", "mean,rnn", overrides=["metric=mae"], out=tmp_path, least=3, seeds=8)
    with pytest.raises(RegardError, match="--delta -1: give a number above 0"):
        declared("classification", "mean,rnn", out=tmp_path, delta=-1.0)
