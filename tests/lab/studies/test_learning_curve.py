"""The forecast of a learning curve: laws with known answers, and intervals that hold."""

from dataclasses import replace

import numpy as np
import pytest

from regard.lab.studies.learning_curve import LearningCurve, measured

SIZES = [25, 50, 100, 200]


def curve(errors: list[float], deviation: float = 0.01) -> LearningCurve:
    return LearningCurve(SIZES, errors, np.diag([deviation**2] * len(errors)).tolist(), 0.5)


def test_a_law_is_continued() -> None:
    errors = [0.1 + 0.3 * (n / 25) ** -0.3 for n in SIZES]
    forecasts = [curve(errors, 0.002).forecast(n) for n in (200, 400)]
    for n, forecast in zip((200, 400), forecasts, strict=True):
        true = 0.1 + 0.3 * (n / 25) ** -0.3
        assert forecast.error == pytest.approx(true, abs=0.01)
        assert forecast.low < true < forecast.high


def test_the_interval_widens_with_the_distance_and_the_noise() -> None:
    errors = [0.4, 0.35, 0.31, 0.28]

    def width(one: LearningCurve, rows: int) -> float:
        forecast = one.forecast(rows)
        return forecast.high - forecast.low

    assert width(curve(errors), 200) < width(curve(errors), 800) < width(curve(errors), 6_400)
    assert width(curve(errors, 0.005), 200) < width(curve(errors, 0.03), 200)


def test_no_forecast_is_worse_than_a_guess_or_negative() -> None:
    for errors in ([0.5, 0.5, 0.5, 0.5], [0.03, 0.01, 0.004, 0.001]):
        forecast = curve(errors).forecast(1_000)
        assert 0 <= forecast.low <= forecast.error <= 0.5


def test_no_accuracy_is_negative() -> None:
    few = replace(curve([0.97, 0.96, 0.97, 0.96], 0.08), highest=0.98)
    assert few.forecast(200).high > 1
    assert replace(few, most=1.0).forecast(200).high == 1


def test_the_covariance_is_that_of_the_texts_and_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    easy = rng.random(400)  # the same texts are hard at both sizes
    losses = [(rng.random((5, 400)) < p * easy).astype(float) for p in (0.9, 0.7)]
    losses[0][0, :200] = np.nan
    found = measured([100, 200], losses, 0.5)
    assert found.errors == pytest.approx([np.nanmean(x) for x in losses])
    cov = np.asarray(found.covariance)
    assert cov[0, 1] > 0
    # 400 texts, 5 draws: variance over texts / 400 · 1.5, and (0.6 · error)² / rows / draws
    texts = np.stack([np.nanmean(x, 0) for x in losses])
    expected = 1.5 * texts[1].var(ddof=1) / 400 + (0.6 * found.errors[1]) ** 2 / 200 / 5
    expected += 1 / 400**2  # a text
    assert cov[1, 1] == pytest.approx(expected)
    assert found.deviations[1] == pytest.approx(np.sqrt(expected))


@pytest.mark.slow
def test_intervals_hold_for_laws_drawn_at_random() -> None:
    rng = np.random.default_rng(1)
    held = []
    for _ in range(60):
        last, rest, c = rng.uniform(0.1, 0.4), rng.random(), 0.15 * np.exp(0.6 * rng.normal())
        law = [last * (rest + (1 - rest) * (n / 200) ** -c) for n in (*SIZES, 400)]
        noisy = [error + 0.02 * rng.normal() for error in law[:-1]]
        forecast = curve(noisy, 0.02).forecast(400)
        held.append(forecast.low <= law[-1] <= forecast.high)
    assert sum(held) >= 54
