"""The section of a report that tells of a search."""

from typing import Any

import pytest

from regard.lab.reports.comparison import write_report
from regard.lab.reports.search import Scale, _series, best_settings, search_table, section
from tests.lab.reports.conftest import Make


def trial(share: float | None, says: str = "", **settings: str) -> dict[str, Any]:
    state = "complete" if share is not None else "failed"
    kept = {"validation": share, "loss": 1.0, "steps": 3, "seconds": 2.5, "says": says}
    return {"settings": settings, "state": state, **kept}


def tuning(sampler: str = "random") -> dict[str, Any]:
    network = {
        "space": {"dropout": "0 to 0.6", "learning_rate": "0.0001 to 0.01, logarithmic"},
        "default": {"dropout": "0.2", "learning_rate": "0.001"},
        "settings": {"dropout": "0.41", "learning_rate": "0.00345"},
        "trials": [
            trial(0.51),
            trial(0.75, dropout="0.41", learning_rate="0.00345"),
            trial(None, "the loss is <not> finite", dropout="0.11", learning_rate="0.01"),
        ],
        "seconds": 7.5, "best": 1, "gain": 0.24,
        "expected": [[0.51, 0.0], [0.63, 0.12], [0.69, 0.1]],
    }  # fmt: skip
    baseline = {
        "space": {"ngrams": "1, 2 or 3"}, "default": {"ngrams": "2"}, "settings": {"ngrams": "2"},
        "trials": [trial(0.8), trial(0.7, ngrams="1"), trial(0.8, ngrams="3")],
        "seconds": 0.75, "best": 0, "gain": 0.0,
        "expected": [[0.8, 0.0], [0.8, 0.0], [0.8, 0.0]],
    }  # fmt: skip
    cut = {"space": {"dropout": "0 to 0.6"}, "default": {"dropout": "0.3"}, "trials": [],
           "seconds": 0.0}  # fmt: skip
    arms = {"transformer": network, "nb-svm": baseline, "rnn": cut}
    return {"trials": 3, "sampler": sampler, "seed": 7, "metric": "accuracy", "arms": arms}


def test_the_report_tells_of_the_search(made: Make) -> None:
    comparison, folder = made()
    comparison["tuning"] = tuning()
    text = write_report(comparison, folder).read_text(encoding="utf-8")
    for part in (
        ">Hyperparameter search</h2>", "3 trials", "sampler random, seed 7", "no trial read",
        "Dodge et al. 2019",
        "0.0001 to 0.01, logarithmic", "0.00345", "24.0", "1 of 3", "best validation accuracy, %",
        "the loss is &lt;not&gt; finite", "dropout=0.11 learning_rate=0.01",
    ):  # fmt: skip
        assert part in text, part
    del comparison["tuning"]
    assert ">Hyperparameter search</h2>" not in write_report(comparison, folder).read_text(
        encoding="utf-8"
    )


def test_the_table_has_a_row_for_every_arm() -> None:
    rows = search_table(tuning()).rows
    assert [list(row) for row in rows] == [
        ["transformer", "51.0", "75.0", "24.0", "1 of 3", "7.5 s"],
        ["nb-svm", "80.0", "80.0", "0.0", "0 of 3", "0.75 s"],
        ["rnn", "–", "–", "–", "0 of 0", "0 s"],
    ]
    assert best_settings(tuning()) == {
        "transformer": "dropout=0.41 learning_rate=0.00345",
        "nb-svm": "ngrams=2",
    }


def test_of_tpe_no_expectation_is_claimed() -> None:
    text = "".join(map(str, section(tuning("tpe"))))
    assert "Dodge" not in text
    assert "in the order of the search" in text


def test_a_grid_is_told_in_its_order() -> None:
    assert "then the grid in order" in "".join(map(str, section(tuning("grid"))))


def test_a_search_without_any_result_has_its_space() -> None:
    found = tuning()
    found["arms"] = {"rnn": found["arms"]["rnn"]}
    text = "".join(map(str, section(found)))
    assert "0 to 0.6" in text
    assert "<svg" not in text


@pytest.mark.parametrize(
    ("metric", "first", "best", "gain", "heading"),
    [
        ("accuracy", "50.0", "75.0", "25.0", "validation accuracy, %"),
        ("BLEU", "50.0", "75.0", "25.0", "validation BLEU"),
        ("log loss", "0.693", "0.288", "0.405", "validation log loss, nats"),
        ("likelihood", "0.693", "0.288", "0.405", "validation loss, nats"),
    ],
)
def test_scores_are_written_in_the_unit_of_their_metric(
    metric: str, first: str, best: str, gain: str, heading: str
) -> None:
    found = tuning()
    found["metric"] = metric
    arm = found["arms"]["transformer"]
    arm["trials"][0]["validation"] = arm["expected"][0][0] = 0.5
    table = search_table(found)
    assert list(table.rows[0])[1:4] == [first, best, gain]
    assert heading in table.note
    text = "".join(map(str, section(found)))
    assert f"best {heading}" in text


def test_a_curve_of_a_loss_falls_as_its_likelihood_rises() -> None:
    scale = Scale.of({"metric": "log loss"})
    line = _series("arm", [[0.5, 0.0], [0.8, 0.08]], scale)
    assert line.y == pytest.approx([0.6931, 0.2231], abs=1e-4)
    assert line.low is not None
    assert line.low[1] == pytest.approx(0.1231, abs=1e-4)
