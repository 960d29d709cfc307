"""Puzzles of symbols: their answers are right, and their streams stay."""

import torch

from regard.data.puzzles import Examples, recall, sorting


def test_the_value_beside_the_key_is_the_answer() -> None:
    found = recall(50, seed=3, pairs=4, symbols=6)
    assert found.tokens.shape == (50, 9)
    for row, answer in zip(found.tokens.tolist(), found.targets[:, 0].tolist(), strict=True):
        keys, values = row[:8:2], row[1:8:2]
        assert len(set(keys)) == len(set(values)) == 4
        assert all(1 <= key <= 6 for key in keys)
        assert all(7 <= value <= 12 for value in values)
        assert values[keys.index(row[8])] == 7 + answer
    asked = found.tokens[:, :8:2].eq(found.tokens[:, 8:]).int().argmax(-1)
    assert asked.bincount(minlength=4).min() >= 4  # no pair is asked for alone


def test_targets_are_sorted() -> None:
    found = sorting(20, seed=0, length=5, symbols=3)
    for row, targets in zip(found.tokens.tolist(), found.targets.tolist(), strict=True):
        assert targets == sorted(symbol - 1 for symbol in row)
    assert found.tokens.unique().tolist() == [1, 2, 3]


def test_a_seed_is_a_stream() -> None:
    for make in (recall, sorting):
        assert torch.equal(make(9, 4).tokens, make(9, 4).tokens)
        assert not torch.equal(make(9, 4).tokens, make(9, 5).tokens)


def test_some_of_the_examples() -> None:
    x = torch.arange(6).view(3, 2)
    some = Examples(x, x[:, :1], torch.tensor([2, 1, 2]))[1:]
    assert (some.tokens.tolist(), some.targets.tolist()) == ([[2, 3], [4, 5]], [[2], [4]])
    assert some.lengths is not None
    assert (some.lengths.tolist(), len(some)) == ([1, 2], 2)
