"""The order of windows: a permutation without a table, and batches that ranks divide."""

from itertools import chain

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.window_order import Shuffled, WindowPlan


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65, 1_000, 4_097])
def test_every_window_has_one_place(count):
    for key in ((0, 0), (0, 1), (5, 3)):
        assert np.array_equal(np.sort(Shuffled(count, key).at(np.arange(count))), np.arange(count))


def test_any_window_comes_at_any_place_as_often():
    count, keys = 7, 3_000
    often = np.zeros((count, count))
    for key in range(keys):
        often[np.arange(count), Shuffled(count, (key, 0)).at(np.arange(count))] += 1
    expected = keys / count
    chi = ((often - expected) ** 2 / expected).sum()
    assert chi < 70, "χ² with 36 degrees of freedom: 68 is exceeded once in a thousand"


def test_neighbours_are_not_neighbours_in_the_order():
    order = Shuffled(100_000, (1, 0)).at(np.arange(100_000))
    assert (np.abs(np.diff(order)) == 1).mean() < 1e-3
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02


def test_the_order_depends_on_seed_and_epoch():
    first, *others = (Shuffled(999, key).at(np.arange(999)) for key in ((0, 0), (0, 1), (1, 0)))
    assert all((first == other).mean() < 0.02 for other in others)


def test_a_place_of_ten_billion_windows_takes_no_table():
    far = 10**10
    values = Shuffled(far, (0, 0)).at(np.array([0, far - 1, 123_456_789]))
    assert ((values >= 0) & (values < far)).all()
    assert len(set(values.tolist())) == 3


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_divide_the_batches_of_an_epoch(world):
    plan = WindowPlan(1_003, 16, seed=3, epoch=2)
    whole = [batch.tolist() for batch in plan]
    assert sorted(chain(*whole)) == list(range(1_003))
    by_batch = [plan[rank::world] for rank in range(world)]
    seen = [window for part in by_batch for batch in part for window in batch.tolist()]
    assert sorted(seen) == list(range(1_003)), "whole batches, divided among ranks"
    by_row = [[batch[rank::world] for batch in plan] for rank in range(world)]
    for step, batch in enumerate(whole):
        rows = np.concatenate([part[step] for part in by_row]).tolist()
        assert sorted(rows) == sorted(batch), "the rows of each batch, divided among ranks"


def test_a_plan_goes_on_at_any_step():
    plan = WindowPlan(500, 8, seed=0, epoch=4)
    all_at_once = [batch.tolist() for batch in plan]
    for step in (0, 1, 40, 62, 63):
        assert [batch.tolist() for batch in plan[step:]] == all_at_once[step:]
    assert plan[1:][1::2][0].tolist() == all_at_once[2], "slices of slices"
    with pytest.raises(IndexError):
        plan[63]


def test_no_windows_have_no_order():
    with pytest.raises(RegardError, match="at least one window, not 0"):
        WindowPlan(0, 8, seed=0, epoch=0)
