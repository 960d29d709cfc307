"""Puzzles: every answer follows from the symbols, and examples are a function of the seed."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import default_rng

from regard.core.errors import RegardError
from regard.lab.data.symbols import (
    PARTS,
    UNASKED,
    Counting,
    IndirectIndexing,
    Induction,
    MaxRetrieval,
    ModularAddition,
    Permutations,
    Puzzle,
    Recall,
    Reversing,
    SelectiveCopying,
    Sizes,
    Sorting,
    Stack,
    distinct,
)


def shift_of(word: str) -> int:
    return -int(word[4:]) if word.startswith("left") else int(word[5:])


def recalled(words: list[str], at: int) -> str:
    pairs = dict(zip(words[0:6:2], words[1:6:2], strict=True))
    return pairs[words[at]]


def continued(words: list[str], at: int) -> str:
    return words[words.index(words[at]) + 1]


def copied(words: list[str], at: int) -> str:
    kept = [word for word in words if word not in ("noise", "write")]
    return kept[at - words.index("write")]


def ordered(words: list[str], at: int) -> str:
    verb = words.index("sort")
    return sorted(words[:verb], key=lambda word: int(word[1:]))[at - verb]


def turned(words: list[str], at: int) -> str:
    verb = words.index("reverse")
    return words[:verb][::-1][at - verb]


def highest(words: list[str], at: int) -> str:
    levels = [int(word.split("x")[0]) for word in words[:at]]
    assert levels.count(max(levels)) == 1
    return "x" + words[int(np.argmax(levels))].split("x")[1]


def indexed(words: list[str], at: int) -> str:
    *text, source, shift = words[: at + 1]
    return text[text.index(source) + shift_of(shift)]


def added(words: list[str], at: int) -> str:
    a, b, equals = words
    assert equals == "equals"
    return f"n{(int(a[1:]) + int(b[1:])) % 7}"


def counted(words: list[str], at: int) -> str:
    return f"n{sum(int(word[1:]) for word in words[: at + 1]) % 5}"


def permuted(words: list[str], at: int) -> str:
    things = "012"
    for word in words[: at + 1]:
        things = "".join(word[1:][int(thing)] for thing in things)
    return f"p{things}"


def popped(words: list[str], at: int) -> str:
    stack: list[str] = []
    for word in words[:at]:
        stack = stack[:-1] if word == "pop" else [*stack, word]
    return stack[-1]


Solve = Callable[[list[str], int], str]
PUZZLES: list[tuple[Puzzle, int, int, Solve]] = [  # with a length and the answers of an example
    (Recall(20, 3), 16, 3, recalled),
    (Induction(11), 15, 5, continued),
    (SelectiveCopying(5, 4), 12, 4, copied),
    (Sorting(6), 7, 7, ordered),
    (Reversing(6), 7, 7, turned),
    (MaxRetrieval(8, 3), 9, 1, highest),
    (IndirectIndexing(14, 3), 10, 1, indexed),
    (Counting(5), 8, 8, counted),
    (Permutations(3), 8, 8, permuted),
    (Stack(6), 12, 0, popped),
    (ModularAddition(7, 0.4), 3, 1, added),
]


@pytest.mark.parametrize(("puzzle", "length", "asked", "solve"), PUZZLES)
def test_every_answer_follows_from_the_symbols_before_it(
    puzzle: Puzzle, length: int, asked: int, solve: Solve
) -> None:
    rows = puzzle.draw(default_rng(0), 40, length)
    assert rows.symbols.shape == rows.targets.shape
    assert len({row.tobytes() for row in rows.symbols}) > 20, "examples differ"
    for symbols, targets in zip(rows.symbols, rows.targets, strict=True):
        words = [puzzle.words[i] for i in symbols]
        places = np.flatnonzero(targets != UNASKED)
        assert len(places) == (asked or words.count("pop"))
        for at in places:
            seen = words if not puzzle.contains_answers else words[: at + 1]
            assert puzzle.answers[targets[at]] == solve(seen, at)
            if puzzle.contains_answers and at + 1 < length:
                assert words[at + 1] == puzzle.answers[targets[at]]


@pytest.mark.parametrize(("puzzle", "length"), [row[:2] for row in PUZZLES])
def test_parts_are_a_function_of_the_seed(puzzle: Puzzle, length: int) -> None:
    sizes = Sizes(30, 8, length, length)
    once, again, other = (puzzle.parts(sizes, seed) for seed in (3, 3, 4))
    for part in PARTS:
        for a, b, c in zip(once[part], again[part], other[part], strict=True):
            assert np.array_equal(a.symbols, b.symbols)
            assert not np.array_equal(a.symbols, c.symbols)
    assert not np.array_equal(once["validation"][0].symbols, once["test"][0].symbols)


def test_lengths_are_equally_frequent_in_training_and_one_in_the_test() -> None:
    parts = Sorting(5).parts(Sizes(3_000, 50, 4, 9, shortest=2), 0)
    counts = {rows.symbols.shape[1] // 2: len(rows.symbols) for rows in parts["train"]}
    assert counts.keys() == {2, 3, 4}
    assert all(900 < count < 1_100 for count in counts.values())
    assert {rows.symbols.shape[1] for rows in parts["test"]} == {18}


def test_all_pairs_are_in_one_part_of_modular_addition() -> None:
    parts = ModularAddition(7, 0.4).parts(Sizes(0, 0, 3, 3), 0)
    pairs = [tuple(row[:2].tolist()) for part in PARTS for row in parts[part][0].symbols]
    assert len(pairs) == len({*pairs}) == 49
    assert len(parts["train"][0].symbols) == 20


def test_near_queries_are_more_frequent_in_recall() -> None:
    rows = Recall(200, 2).draw(default_rng(0), 2_000, 64)
    places = np.nonzero(rows.targets != UNASKED)[1]
    assert (places < 34).mean() > (places >= 34).mean()
    assert set(np.unique(places)) <= set(range(4, 64, 2))


def test_an_odd_number_of_symbols_is_recalled_and_no_shift_is_too_far() -> None:
    rows = Recall(20, 3).draw(default_rng(0), 50, 13)
    assert ((rows.targets != UNASKED).sum(1) == 3).all()
    puzzle = IndirectIndexing(600, 1)
    shifts = puzzle.draw(default_rng(0), 400, 512).symbols[:, -1]
    assert {puzzle.words[i] for i in shifts} == {"left1", "right1"}


def test_different_numbers_are_uniform() -> None:
    drawn = distinct(default_rng(0), 20_000, 2, 5)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25)
    assert counts[counts > 0] == pytest.approx(1_000, abs=130)
    assert np.count_nonzero(counts) == 20


@pytest.mark.parametrize(
    ("puzzle", "length", "says"),
    [
        (Recall(20, 3), 11, "pairs=3 need at least 12 symbols, not 11; set train_length"),
        (Recall(20, 12), 48, "12 different keys need symbols=26 or more, not 20"),
        (Induction(4), 12, "12 symbols of which 8 are different need symbols=8 or more, not 4"),
        (Induction(9), 2, "induction needs at least 3 symbols, not 2; set shortest=3"),
        (SelectiveCopying(5, 4), 3, "3 symbols have no room for copied=4; set train_length"),
        (IndirectIndexing(5, 2), 6, "6 different symbols are not from 2 to symbols=5"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line(puzzle: Puzzle, length: int, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        puzzle.draw(default_rng(0), 2, length)
