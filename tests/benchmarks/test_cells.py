"""Every two parts of attention meet in a cell that is exact; what differs is found and said."""

from itertools import combinations, product

import pytest
import torch

from benchmarks import cells
from benchmarks.cells import Cell, judge, pairwise, row_of
from regard.attention import NORMALIZERS, SCORES
from regard.attention.normalizers import Softmax
from regard.core.errors import RegardError


@pytest.mark.parametrize("cell", pairwise(), ids=str)
def test_a_sample_where_every_two_parts_meet(cell: Cell) -> None:
    verdict = judge(cell)
    assert verdict.refused or verdict.exact, verdict.difference


@pytest.mark.parametrize("cell", pairwise(seed=1)[::6], ids=str)
def test_rows_and_columns_beyond_a_block(cell: Cell) -> None:
    verdict = judge(cell, n=133, m=141, strip=2**13)
    assert verdict.refused or verdict.exact, verdict.difference


def test_the_sample_covers_all_pairs_and_is_small() -> None:
    kinds, chosen = cells.factors(), pairwise()
    for (i, one), (j, two) in combinations(enumerate(kinds), 2):
        assert {(cell[i], cell[j]) for cell in chosen} == set(product(one, two))
    sizes = sorted(map(len, kinds))
    assert sizes[-1] * sizes[-2] <= len(chosen) <= 1.5 * sizes[-1] * sizes[-2]
    assert chosen == pairwise()
    assert chosen != pairwise(seed=1)


def test_all_cells() -> None:
    found = list(cells.every())
    assert (
        len(found)
        == len(set(found))
        == len(SCORES) * 13 * len(cells.WRAPPED) * len(NORMALIZERS) * 2
    )


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Softmax):
        def gradient(self, given):
            (found,) = super().gradient(given)
            return (found * (1 + 1e-7),)

    monkeypatch.setitem(NORMALIZERS.rows, "softmax", Wrong)
    verdict = judge(Cell("dot", "causal", "none", "softmax", 0.0))
    assert not verdict.exact
    assert 1e-9 < verdict.difference < 1e-5
    row = row_of("dot × softmax", [verdict], [])
    assert (row["cells"], row["exact"], row["reached"]) == (1, 0, False)
    assert row["failures"][0]["cell"] == "dot × causal × none × softmax × dropout 0"


def test_what_cannot_be_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(n: int, m: int) -> None:
        raise RegardError("not here")

    monkeypatch.setitem(cells.MASKS, "none", refuse)
    verdict = judge(Cell("dot", "none", "none", "softmax", 0.0))
    assert verdict.refused == "not here"
    row = row_of("dot × softmax", [verdict, verdict], [])
    assert (row["cells"], row["refused"], row["failures"]) == (0, {"not here": 2}, [])


def test_growth_is_judged() -> None:
    assert row_of("x", [], [1.0, 2.0, 4.0, 8.0])["reached"]
    assert not row_of("x", [], [1.0, 4.0, 16.0, 64.0])["reached"]
    assert cells.apart(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


def test_training_at_growing_n_is_probed() -> None:
    assert all(x < 500 for x in cells.grown("scaled-dot", "sigmoid", sizes=(128, 256)))


@pytest.mark.slow
def test_rows_come_from_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(cells.cases(quick=True, settings=["score=dot"]))
    assert [row["name"] for row in rows] == [f"dot × {name}" for name in NORMALIZERS]
    assert all(row["reached"] for row in rows)
    settings = ["score=dot", "normalize=softmax", "memory=0", "processes=1"]
    (row,) = cells.cases(settings=settings)
    assert row["exact"] == row["cells"] == 13 * len(cells.WRAPPED) * 2
    assert row["memory_exponent"] is None
    with pytest.raises(RegardError, match="no score is called"):
        cells.cases(settings=["score=dott"])


@pytest.mark.parametrize("score", list(SCORES))
def test_the_memory_of_every_score_can_be_measured(score: str) -> None:
    assert cells.training(score, "softmax", 64).total_mb > 0
