"""The simulated comparisons in small; `python -m regard.benchmarks.false_differences` is all."""

import json
from pathlib import Path

import numpy as np
import pytest

from regard.benchmarks.false_differences import (
    ACCURACY,
    SEED_SD,
    UNCERTAIN,
    WORLDS,
    Bootstrap,
    Case,
    answers,
    main,
    promises,
    simulate,
)

SIMULATIONS = 1000


def test_the_simulated_world_is_what_it_says() -> None:
    rng = np.random.default_rng(0)
    for world, across in zip(WORLDS[:2], (0.08, 0.145), strict=True):
        first, second = answers(world, 4, 100_000, 0.0, rng)
        assert first.mean() == pytest.approx(ACCURACY, abs=0.003)
        assert second.mean() == pytest.approx(ACCURACY, abs=0.003)
        assert (first[0] != first[1]).mean() == pytest.approx(2 * UNCERTAIN, abs=0.003)
        assert (first[0] != second[0]).mean() == pytest.approx(across, abs=0.004)
    worse, better = answers(WORLDS[2], 4, 200_000, 0.0, rng)
    assert better.mean() - worse.mean() == pytest.approx(0.01, abs=0.001)
    lucky = answers(WORLDS[0], 400, 20_000, SEED_SD, rng)[0].mean(axis=1)
    assert lucky.std() == pytest.approx((SEED_SD**2 + UNCERTAIN / 20_000) ** 0.5, rel=0.15)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("world", WORLDS[:2], ids=lambda world: world.name)
def test_what_is_not_there_is_rarely_found(world: object, seeds: int) -> None:
    case = simulate(
        world,  # type: ignore[arg-type]
        seeds=seeds,
        examples=2_000,
        simulations=SIMULATIONS,
        bootstrapped=0,
    )
    chance = 3 * (0.05 * 0.95 / SIMULATIONS) ** 0.5  # three standard errors: 2.1 %
    assert abs(case.found - 0.05) <= chance
    assert abs(case.covered - 0.95) <= chance
    assert abs(case.arm_covered - 0.95) <= chance


def test_a_point_more_is_found_at_ten_seeds() -> None:
    case = simulate(WORLDS[2], seeds=10, examples=2_000, simulations=150, bootstrapped=0)
    assert case.found >= 0.82
    assert case.covered >= 0.9


def test_the_bootstrap_over_seeds_and_examples_finds_too_much() -> None:
    case = simulate(WORLDS[0], seeds=3, examples=8_000, simulations=100)
    assert case.bootstrap_found >= 0.08
    assert case.found <= 0.11


def test_the_bootstrap_draws_means_of_resamples() -> None:
    draws = Bootstrap(4, 50, np.random.default_rng(1))
    np.testing.assert_allclose(draws.seeds.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(draws.examples.sum(axis=0), 1, rtol=1e-5)
    same = np.ones((4, 50), bool)
    assert not draws.found(same, same)
    assert draws.found(same, ~same)


def made(world: int, seeds: int, found: float, covered: float) -> Case:
    return Case(
        WORLDS[world].name, WORLDS[world].difference, 2_000, seeds, 10, found, covered, 1, 0, 0
    )


def test_promises_are_judged() -> None:
    good = [made(0, 3, 0.06, 0.94), made(1, 3, 0.036, 0.964), made(2, 10, 0.81, 0.95)]
    assert [holds for _, holds in promises(good)] == [True, True, True]
    assert [holds for _, holds in promises([*good, made(0, 5, 0.07, 0.95)])] == [False, True, True]
    assert [holds for _, holds in promises([*good, made(0, 5, 0.03, 0.97)])] == [False, False, True]
    assert [holds for _, holds in promises([*good, made(2, 10, 0.79, 0.95)])] == [True, True, False]
    assert promises([*good, made(2, 3, 0.2, 0.95)]) == promises(good)


def test_the_command_writes_its_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.json"
    asked = {"simulations": 4, "seeds": 3, "examples": 100, "json": path}
    flags = [str(part) for name, value in asked.items() for part in (f"--{name}", value)]
    status = main([*flags, "--no-bootstrap"])
    written = json.loads(path.read_text())
    assert [case["world"] for case in written["cases"]] == [world.name for world in WORLDS]
    assert status == (0 if all(claim["holds"] for claim in written["claims"]) else 1)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 + len(WORLDS) + 3 + 1
    assert "FAILS: one point more is found" in printed  # nobody simulated 10 seeds
