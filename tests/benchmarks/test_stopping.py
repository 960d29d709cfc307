"""The simulated studies in small; `python -m benchmarks.stopping` is all."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import stopping
from benchmarks.stopping import (
    FAMILIES,
    LOOKS,
    WORLDS,
    Case,
    FamilyCase,
    both_p,
    decide_family,
    decisions,
    draw,
    family,
    family_table,
    main,
    simulate,
    table,
)
from benchmarks.stopping_rules import judge, p_of, rules, sequence
from regard.lab.studies.statistics import compare_runs
from regard.lab.studies.stopping import decide


def test_the_decisions_are_those_of_real_studies() -> None:
    world = WORLDS[-1]
    tables = draw(world, 0.5, 12, np.random.default_rng(3))
    different, equivalent, _ = decisions(tables)
    for study in range(len(tables)):
        for look, seeds in enumerate(LOOKS):
            gains = tables[study, :seeds]
            one = compare_runs(gains, np.zeros_like(gains), unit="nats")
            found = decide([one], 1.0, [(seeds, LOOKS)])[0]
            assert (found.p < 0.05) == different[study, look]
            assert (found.p_equivalent < 0.05) == equivalent[study, look]
    assert different.any()
    assert equivalent.any()


def test_the_decisions_of_a_family_are_those_of_real_studies() -> None:
    tables = [draw(WORLDS[-1], true, 12, np.random.default_rng([9, k]))
              for k, true in enumerate(FAMILIES[-1])]  # fmt: skip
    p = np.array([[both_p(table, n) for n in LOOKS] for table in tables])
    seen = set()
    for study in range(12):
        stops, claims = [0] * 4, [*range(4)]
        for count in LOOKS:
            for pair in claims:
                stops[pair] = count
            gains = [table[study, :stop] for table, stop in zip(tables, stops, strict=True)]
            found = decide(
                [compare_runs(one, np.zeros_like(one), unit="nats") for one in gains],
                1.0,
                [(stop, LOOKS) for stop in stops],
            )
            claims = [pair for pair in claims if found[pair].verdict == "undecided"]
            if not claims:
                break
        assert decide_family(p[..., study]) == ([one.verdict for one in found], stops)
        seen |= {one.verdict for one in found}
    assert seen == {"different", "equivalent", "undecided"}


def test_few_families_err_in_any_of_their_pairs() -> None:
    world = WORLDS[1]
    none, edge, mixed = (family(world, true, 300, seed=1) for true in FAMILIES[::2])
    assert none.false_different is not None
    assert none.false_different <= 0.06
    assert none.false_equivalent is edge.false_different is None
    assert edge.false_equivalent is not None
    assert edge.false_equivalent <= 0.06
    assert none.equivalent > 0.9
    assert edge.different > 0.8
    assert mixed.wrong <= 0.06
    assert 0.25 < mixed.different < 0.75  # 2δ always, 0 never
    assert simulate(world, 0.0, 300, seed=1).seeds < none.seeds < 22


def test_few_studies_err_though_they_look_at_every_stop() -> None:
    world = WORLDS[1]  # 600 studies: ± 0.9 points of 5 %
    none, edge = (simulate(world, true, 600, seed=1) for true in (0.0, 1.0))
    assert none.different <= 0.06
    assert edge.equivalent <= 0.06
    assert none.naive > 0.15  # what happens without the rule
    assert none.equivalent > 0.9
    assert 8 < none.seeds < 16
    assert edge.different > 0.9


def test_the_draws_have_the_spread_that_they_claim() -> None:
    rng = np.random.default_rng(5)
    for world in WORLDS:
        tables = draw(world, 0.5, 400, rng)
        assert tables.mean() == pytest.approx(0.5, abs=0.1)
        if not world.examples:
            assert tables.std() == pytest.approx(world.scale, rel=0.15)
    shared = draw(WORLDS[-1], 0.0, 400, rng).mean((1, 2)).std()
    assert shared == pytest.approx((0.3**2 + 1 / 30) ** 0.5, rel=0.15)


def test_a_broken_promise_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Case(WORLDS[0].name, 1.0, 0.0, 0.07, 0.93, 9.5, 0.2)
    assert bad.wrong == 0.07
    monkeypatch.setattr(stopping, "TRUE", (1.0,))
    monkeypatch.setattr(stopping, "simulate", lambda world, *_: bad)
    worse = FamilyCase(WORLDS[0].name, (0.0, 2.0), 0.08, 0.01, 0.1, 0.2, 0.7, 9.5)
    assert worse.wrong == 0.08
    monkeypatch.setattr(stopping, "FAMILIES", ((0.0, 2.0),))
    monkeypatch.setattr(stopping, "family", lambda world, *_: worse)
    assert main(["--studies", "1", "--json", str(tmp_path / "x.json")]) == 2 * len(WORLDS)
    out = capsys.readouterr().out
    assert "1.0 δ: 7.0 % are wrong" in out
    assert "(0.0, 2.0) δ: 8.0 % are wrong" in out
    stored = json.loads((tmp_path / "x.json").read_text())
    assert stored["broken"] == 2 * len(WORLDS)
    assert stored["families"][0]["true"] == [0.0, 2.0]
    assert "| 0, 2 | 8.0 | 1.0 | 10.0 | 20.0 | 70.0 | 9.5 |" in family_table([worse])
    alike = FamilyCase(WORLDS[0].name, (1.0, 1.0), None, 0.01, 0.1, 0.2, 0.7, 9.5)
    assert "| 1, all | – | 1.0 | 10.0 |" in family_table([alike])
    assert "| 1 δ | 0.0 | 7.0 | 93.0 | 9.5 | 20.0 |" in table([bad])


def test_every_rule_keeps_the_error_rate_over_the_looks() -> None:
    null = p_of(np.random.default_rng(7).standard_normal((20_000, LOOKS[-1])))
    rates = {name: (null < levels[0]).any(1).mean() for name, levels in rules().items()}
    assert len(rates) == 6
    assert max(rates.values()) < 0.056
    exact = [rate for name, rate in rates.items() if "divided" not in name and "Lai" not in name]
    assert min(exact) > 0.045


def test_the_p_of_the_rules_are_those_of_scipy() -> None:
    gains = np.random.default_rng(8).standard_normal((1, LOOKS[-1]))
    first = gains[0, :3]
    assert p_of(gains)[0, 0] == pytest.approx(stats.ttest_1samp(first, 0).pvalue)
    upper = stats.ttest_1samp(first, 1, alternative="less").pvalue
    assert p_of(gains, 1.0, -1)[0, 0] == pytest.approx(min(1.0, 2 * upper))
    assert sequence(0.05, 0.05)[0] < sequence(0.05, 0.05)[-1] < 0.05
    steady = np.full((1, LOOKS[-1]), 5.0) + 0.01 * gains
    different, equivalent, seeds = judge(steady, next(iter(rules().values())))
    assert (different, equivalent, seeds) == (1.0, 0.0, 3.0)
