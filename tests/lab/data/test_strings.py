import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.strings import FIRST, Reversal, reversals


def test_a_pure_function_of_its_arguments():
    some, more = reversals(7, 5, seed=2), reversals(701, 5, seed=2)
    assert np.array_equal(more.letters[:7], some.letters)
    assert list(more)[:7] == list(some)
    assert not np.array_equal(reversals(7, 5, seed=3).letters, some.letters)
    assert not np.array_equal(reversals(7, 6, seed=2).letters[:, :5], some.letters)


def test_pairs_by_place_by_slice_and_all():
    strings = reversals(9, 6, name="x")
    pairs = list(strings)
    assert len(strings) == len(pairs) == 9
    assert [strings[i] for i in range(9)] == pairs == strings[:]
    assert strings[-1] == pairs[8]
    assert strings[2:7:2] == pairs[2:7:2]
    assert [[ord(letter) - FIRST for letter in pair.source] for pair in pairs] == [
        *map(list, strings.letters)
    ]
    assert [pair.target for pair in pairs] == [pair.source[::-1] for pair in pairs]
    assert pairs[4] == Reversal(pairs[4].source, pairs[4].source[::-1], "x:5")
    with pytest.raises(IndexError):
        strings[9]
    assert reversals(0, 3)[:] == []


def test_letters_are_drawn_alike():
    counts = np.bincount(reversals(20_000, 13, seed=1).letters.ravel(), minlength=26)
    assert len(counts) == 26
    assert abs(counts - 10_000).max() < 500  # 5 standard deviations


def test_true_alignment_is_the_anti_diagonal():
    pair = reversals(1, 7)[0]
    truth = pair.alignment()
    assert truth.shape == (7, 7)
    assert truth.sum() == 7
    for row, letter in enumerate(pair.target):
        assert truth[row].argmax() == 6 - row
        assert pair.source[6 - row] == letter


def test_impossible_strings():
    for arguments in [(-1, 5), (3, 0), (3, 5, -1)]:
        with pytest.raises(
            RegardError, match="count and seed must be 0 or more and length 1 or more, not"
        ):
            reversals(*arguments)
