"""The simulated comparisons in small; `python -m benchmarks.false_differences` is all."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.false_differences import (
    Case,
    cases,
    drawn,
    judge,
    main,
    promises,
    simulate,
    table,
)
from benchmarks.simulated_runs import (
    LUCK,
    SHARES,
    WORLDS,
    Design,
    answers,
    bleu_pseudo_values,
    pseudo_values,
    texts,
    truth,
)
from regard.lab.studies.statistics import compare_runs
from regard.lab.tasks.classification.metrics import METRICS as METRICS_OF_LABELS
from regard.lab.tasks.classification.metrics import per_example
from regard.lab.tasks.estimates import arm_interval
from regard.lab.tasks.writing.metrics import judge as judge_texts
from regard.lab.tasks.writing.metrics import restored

METRICS = ("accuracy", "macro-F1", "balanced accuracy", "BLEU")


def test_the_simulated_world_is_what_it_says() -> None:
    for world, across in zip(WORLDS, (0.092, 0.165), strict=True):
        labels, said = answers(world, Design(20, 2, 2, 2_000), 0.0, np.random.default_rng(0))
        right = said == labels[:, None, None]
        assert np.bincount(labels.ravel()) / labels.size == pytest.approx(SHARES, abs=0.005)
        assert right.mean() == pytest.approx(0.844, abs=0.005)
        assert truth("accuracy", world) == pytest.approx(0.844, abs=0.002)
        assert (said[:, 0, 0] != said[:, 0, 1]).mean() == pytest.approx(0.092, abs=0.005)
        assert (right[:, 0, 0] != right[:, 1, 0]).mean() == pytest.approx(across, abs=0.01)
    gain = truth("accuracy", WORLDS[1], 0.01) - truth("accuracy", WORLDS[1])
    assert gain == pytest.approx(0.01, abs=2e-4)


def test_seeds_vary_by_their_luck() -> None:
    labels, said = answers(WORLDS[0], Design(1, 1, 150, 40_000), 0.0, np.random.default_rng(1))
    right = said[0, 0] == labels
    spread = right.mean(-1).std()
    assert spread == pytest.approx((((SHARES * LUCK) ** 2).sum() + 0.044 / 40_000) ** 0.5, rel=0.2)


def test_groups_err_together() -> None:
    design = Design(10, 2, 1, 2_000, grouped=True)
    labels, said = answers(WORLDS[1], design, 0.0, np.random.default_rng(2))
    right = (said == labels[:, None, None]).astype(float)
    difference = (right[:, 1] - right[:, 0])[:, 0].reshape(10, 100, 20)
    assert difference.mean(-1).var() > 3 * difference.var() / 20
    assert right.mean() == pytest.approx(0.844, abs=0.02)


@pytest.mark.parametrize("metric", ["macro-F1", "balanced accuracy"])
def test_pseudo_values_are_those_of_real_comparisons(metric: str) -> None:
    labels, said = answers(WORLDS[0], Design(2, 1, 2, 60), 0.0, np.random.default_rng(3))
    found = pseudo_values(metric, labels, said)
    name = {label: key for key, label in METRICS_OF_LABELS.items()}[metric]
    for study, seed in np.ndindex(2, 2):
        expected = per_example(name, said[study, 0, seed], labels[study], 3)
        np.testing.assert_allclose(found[study, 0, seed], expected, atol=1e-5)


def test_pseudo_values_of_bleu_are_those_of_real_comparisons() -> None:
    rows = texts(WORLDS[1], Design(2, 2, 1, 80), 0.0, np.random.default_rng(4))
    signature = judge_texts("bleu", [""], [""]).signature
    found = bleu_pseudo_values(rows)
    for at in np.ndindex(2, 2):
        statistics = rows[:, at[0], at[1], 0].T.astype(np.int64)
        judged = restored("bleu", statistics, signature)
        np.testing.assert_allclose(found[at][0], judged.pseudo_values() / 100, atol=1e-3)


@pytest.mark.parametrize("grouped", [False, True])
def test_studies_are_judged_as_real_comparisons_are(grouped: bool) -> None:
    design = Design(6, 3, 3, 200, grouped)
    for metric, scores in drawn(WORLDS[1], design, 0.3, np.random.default_rng(5), METRICS):
        study = judge(metric, scores, design, WORLDS[1], 0.3)
        base = truth(metric, WORLDS[1])
        gain = truth(metric, WORLDS[1], 0.3) - base
        for at in range(6):
            for other in (1, 2):
                tables = (scores[at, other], scores[at, 0])
                real = compare_runs(*tables, groups=design.groups)
                assert study.p[at, other - 1] == pytest.approx(real.p, rel=1e-3, abs=1e-9)
                held = real.low <= (gain if other == 1 else 0) <= real.high
                assert study.covered[at, other - 1] == held
            _, low, high = arm_interval(scores[at, 0], design.groups)
            assert study.arm_covered[at] == (low <= base <= high)
            alone = compare_runs(scores[at, 1], scores[at, 0])
            assert study.naive[at] == pytest.approx(alone.p, rel=0.03, abs=1e-9)


def test_what_is_not_there_is_rarely_found() -> None:
    found = simulate(
        WORLDS[1], grouped=False, arms=5, seeds=(3,), examples=300, simulations=400,
        metrics=("accuracy",),
    )["accuracy", 3]  # fmt: skip
    assert (found.p.min(1) < 0.05 / 4).mean() <= 0.08
    assert found.covered.mean() == pytest.approx(0.957, abs=0.02)
    assert found.arm_covered.mean() == pytest.approx(0.957, abs=0.035)


def test_groups_that_are_ignored_find_too_much() -> None:
    found = simulate(
        WORLDS[1], grouped=True, arms=2, seeds=(5,), examples=1_000, simulations=300,
        metrics=("accuracy",),
    )["accuracy", 5]  # fmt: skip
    assert (found.naive < 0.05).mean() > 0.25
    assert (found.p < 0.05).mean() < 0.1


def test_a_planted_difference_is_found() -> None:
    case = cases(
        WORLDS[0], False, 60, seeds=(10,), examples=1_000, metrics=("accuracy",)
    )[0]  # fmt: skip
    assert case.power[0] > 0.5
    assert case.power[0] > case.power[2]
    assert 0.7 * 0.0112 < case.smallest < 1.3 * 0.0112
    assert case.planted_covered > 0.85


CASE = Case(
    metric="accuracy", world="one method", grouped=False, seeds=3, simulations=10,
    found=(0.05, 0.06, 0.04), tail=0.0, covered=0.95, arm_covered=0.95, planted_covered=0.95,
    power=(0.5, 0.4, 0.3), half_width=0.02, smallest=0.03, naive=0.05,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, [True, True, True]),
        ({"found": (0.05, 0.07, 0.04)}, [False, True, True]),
        ({"covered": 0.97}, [True, False, True]),
        ({"covered": 0.97, "seeds": 2}, [True, True, True]),
        ({"arm_covered": 0.93, "seeds": 2}, [True, True, False]),
        ({"planted_covered": 0.93}, [True, False, False]),
    ],
)
def test_promises_are_judged(change: dict[str, object], kept: list[bool]) -> None:
    other = replace(CASE, **change)  # type: ignore[arg-type]
    assert [holds for _, holds in promises([CASE, other])] == kept


def test_the_table_is_in_per_cent_and_points() -> None:
    head, _, row = table([CASE]).splitlines()
    assert len(head.split("|")) == len(row.split("|"))
    assert row.startswith("| accuracy | 3 | 5.0 | 6.0 | 4.0 | 0.00 | 95.0 |")
    assert "| 2.00 | 3.0 | 50.0 |" in row
    assert table([replace(CASE, grouped=True)]).splitlines()[2].endswith("| 5.0 |")


def test_the_command_writes_its_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.json"
    asked = {"simulations": 3, "seeds": 3, "examples": 100, "metrics": "accuracy", "json": path}
    flags = [str(part) for name, value in asked.items() for part in (f"--{name}", value)]
    status = main(flags)
    written = json.loads(path.read_text())
    assert [(c["world"], c["grouped"]) for c in written["cases"]] == [
        (world.name, grouped) for world in WORLDS for grouped in (False, True)
    ]
    assert status == (0 if all(claim["holds"] for claim in written["claims"]) else 1)
    assert "several methods, groups of 20" in capsys.readouterr().out
