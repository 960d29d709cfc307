"""What arms of writers are worth: BLEU of the whole test, by seeds, or by texts with one seed."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.studies import scoring
from regard.lab.studies.compatibility import check_paired
from regard.lab.studies.job import RunScore, clusters_of, scores_of
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.classification.evaluation import label_evaluation
from regard.lab.tasks.classification.metrics import METRICS
from regard.lab.tasks.estimates import arm_interval
from regard.lab.tasks.evaluation import wilson
from regard.lab.tasks.pretraining.evaluation import TokenLosses, token_evaluation
from regard.lab.tasks.writing.metrics import judge

WORDS = "a dog cat runs sleeps on the green grass bench while it rains again today".split()


def texts(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(5, 12))) for _ in range(count)]


def spoiled(wanted: list[str], share: float, seed: int) -> list[str]:
    """The same with a share of the words replaced."""
    random = np.random.default_rng(seed)
    return [
        " ".join(
            str(random.choice(WORDS)) if random.random() < share else word for word in text.split()
        )
        for text in wanted
    ]


def run(said: list[str], wanted: list[str]) -> RunScore:
    found = judge("bleu", said, wanted)
    right = np.array([a == b for a, b in zip(said, wanted, strict=True)])
    return RunScore(
        metric="BLEU",
        examples=len(wanted),
        right=np.packbits(right).tobytes().hex(),
        asked="",
        run="",
        seconds=1.0,
        peak_mb=1.0,
        parameters=1,
        flops=None,
        measure="bleu",
        signature=found.signature,
        statistics=found.statistics.astype("<i4").tobytes().hex(),
        scores=scores_of(found.pseudo_values() / 100, right),
    )


WANTED = texts(80, 0)
GOOD = [run(spoiled(WANTED, 0.2, seed), WANTED) for seed in range(3)]
BAD = [run(spoiled(WANTED, 0.5, seed), WANTED) for seed in (7, 8, 9)]


def test_runs_that_were_judged_by_other_measures_are_not_compared() -> None:
    check_paired({"good": dict(enumerate(GOOD)), "bad": dict(enumerate(BAD))})
    other = replace(BAD[1], signature=BAD[1].signature.replace("13a", "intl"))
    assert other.signature != BAD[1].signature
    with pytest.raises(RegardError, match=r"good and bad have different metrics: \S*13a"):
        check_paired({"good": dict(enumerate(GOOD)), "bad": {1: other}})


def test_a_run_keeps_its_corpus_score() -> None:
    said = spoiled(WANTED, 0.2, 0)
    assert GOOD[0].value == pytest.approx(judge("bleu", said, WANTED).value / 100)
    again = RunScore(**json.loads(json.dumps(asdict(GOOD[0]))))
    assert again.value == GOOD[0].value
    assert GOOD[0].per_example.mean() == pytest.approx(GOOD[0].value)
    assert GOOD[0].per_example.dtype == np.float64


def test_pseudo_values_spread_as_other_texts_would() -> None:
    found = judge("bleu", spoiled(WANTED, 0.2, 0), WANTED)
    by_jackknife = found.pseudo_values().std(ddof=1) / len(found) ** 0.5
    random = np.random.default_rng(0)
    drawn = [found.score(random.integers(0, len(found), len(found))) for _ in range(400)]
    assert by_jackknife == pytest.approx(np.std(drawn), rel=0.12)


def test_with_seeds_their_differences_decide() -> None:
    found = scoring.difference(GOOD, BAD, ("good", "bad"))
    gains = [a.value - b.value for a, b in zip(GOOD, BAD, strict=True)]
    assert found.mean == pytest.approx(np.mean(gains))
    assert found == compare_runs(
        scoring.table(GOOD), scoring.table(BAD), ("good", "bad"), unit="BLEU"
    )
    assert found.seeds == 3
    assert found.sentence.startswith(f"good beats bad by {100 * found.mean:.1f} BLEU (")
    mean, low, high = scoring.interval(GOOD)
    assert mean == pytest.approx(np.mean([one.value for one in GOOD]))
    assert low < mean < high


def test_with_one_seed_the_texts_decide() -> None:
    found = scoring.difference(GOOD[:1], BAD[:1], ("good", "bad"))
    ours, theirs = (runs[0].corpus for runs in (GOOD, BAD))
    assert ours is not None
    assert theirs is not None
    assert found.mean == pytest.approx((ours.value - theirs.value) / 100)
    # Koehn's paired bootstrap (2004, section 4): both on the same 1,000 draws of the texts.
    draws = np.random.default_rng(12_345).integers(0, len(ours), (1_000, len(ours)))
    drawn = [(ours.score(rows) - theirs.score(rows)) / 100 for rows in draws]
    ends = np.quantile(drawn, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=0.15 * np.ptp(ends))
    assert found.sentence.endswith("one seed: two models, not two methods")
    low, high = ours.interval()
    mean, lower, upper = scoring.interval(GOOD[:1])
    assert mean == pytest.approx(GOOD[0].value)
    assert (lower, upper) == pytest.approx((low / 100, high / 100), abs=0.15 * (high - low) / 100)


def test_groups_of_the_test_examples_are_what_was_drawn() -> None:
    numbers = np.arange(80) // 10
    clusters = clusters_of([f"film {number}" for number in numbers])
    good, bad = ([replace(one, clusters=clusters) for one in runs] for runs in (GOOD, BAD))
    assert good[0].groups is not None
    assert good[0].groups.tolist() == numbers.tolist()
    found = scoring.difference(good, bad, ("good", "bad"))
    tables = scoring.table(GOOD), scoring.table(BAD)
    assert found == compare_runs(*tables, ("good", "bad"), unit="BLEU", groups=numbers)
    assert found.estimate.examples_freedom == 7
    assert scoring.interval(good) == arm_interval(scoring.table(GOOD), numbers)
    assert GOOD[0].groups is None


def test_the_tokens_of_a_chunk_are_one_group() -> None:
    """40 chunks of 50 tokens that are alike tell as much as 40 tokens."""
    known = np.random.default_rng(0).random(40) < 0.5
    chunks = [TokenLosses(np.zeros(50), np.full(50, each)) for each in known]
    examples = [Example("a text", "", f"piece:{i}") for i in range(40)]
    found = token_evaluation(examples, chunks)
    clusters = clusters_of(found.groups)
    bits = np.packbits(found.correct).tobytes().hex()
    score = RunScore(found.compared, found.n, bits, "", "", clusters=clusters)
    assert len(clusters) == 40 * 16, "a number and a size for each chunk, not for each token"
    assert score.groups is not None
    assert score.groups.tolist() == np.repeat(np.arange(40), 50).tolist()
    mean, low, high = scoring.interval([score])
    assert (low, high) == pytest.approx(wilson(int(known.sum()), 40), abs=0.02)
    assert mean == pytest.approx(known.mean())
    alone = token_evaluation(examples[:1], [TokenLosses(np.zeros(50), np.arange(50) < 30)])
    assert clusters_of(alone.groups) == "", "no other chunk says how much chunks differ"


def test_groups_that_are_not_those_of_the_examples_are_refused() -> None:
    score = replace(GOOD[0], clusters=clusters_of(["a"] * 79))
    with pytest.raises(RegardError, match="groups of 79 examples do not fit 80"):
        _ = score.groups


def labelled(metric: str, seed: int, right: float) -> RunScore:
    """A run over 60 texts of three labels, of which it knows a share."""
    random = np.random.default_rng(seed)
    labels = np.random.default_rng(99).choice(3, 60, p=[0.7, 0.2, 0.1])
    chances = random.dirichlet(np.ones(3), 60)
    known = random.random(60) < right
    chances[known] = 0.1 * chances[known] + 0.9 * np.eye(3)[labels[known]]
    names = ("a", "b", "c")
    examples = [Example(f"text {i}", names[k], f"f:{i}") for i, k in enumerate(labels.tolist())]
    found = label_evaluation(names, examples, chances, metric=metric, trained=(70, 20, 10))
    bits = np.packbits(found.correct).tobytes().hex()
    kept = scores_of(found.per_example, found.correct)
    return RunScore(found.compared, 60, bits, "", "", also=found.other_metrics, scores=kept)


@pytest.mark.parametrize("metric", list(METRICS))
def test_every_metric_of_labels_enters_the_same_statistics(metric: str) -> None:
    good, bad = ([labelled(metric, s, share) for s in range(3)] for share in (0.9, 0.4))
    again = RunScore(**json.loads(json.dumps(asdict(good[0]))))
    assert again.value == good[0].value
    sign = -1 if metric == "log-loss" else 1
    assert good[0].per_example.mean() == pytest.approx(sign * good[0].value)
    found = scoring.difference(good, bad, ("good", "bad"))
    gains = [sign * (a.value - b.value) for a, b in zip(good, bad, strict=True)]
    assert found.mean == pytest.approx(np.mean(gains))
    assert found.mean > 0.1
    unit = "nats" if metric == "log-loss" else "points"
    size = f"{found.mean:.3g}" if metric == "log-loss" else f"{100 * found.mean:.1f}"
    assert found.sentence.startswith(f"good beats bad by {size} {unit} (")
    mean, low, high = scoring.interval(good)
    assert low < mean < high
    assert mean == pytest.approx(np.mean([run.value for run in good]))


def test_the_same_system_twice_is_no_difference() -> None:
    for runs in (GOOD, GOOD[:1]):
        found = scoring.difference(runs, runs, ("a", "b"))
        assert (found.mean, found.p, found.significant) == (0.0, 1.0, False)


def test_other_texts_are_no_pair() -> None:
    fewer = run(WANTED[:9], WANTED[:9])
    with pytest.raises(RegardError, match="pairs seeds and test examples"):
        scoring.difference(GOOD[:1], [fewer], ("a", "b"))
