"""Objectives: each a pure function, each with the laws that its description states."""

import numpy as np
import pytest

from regard.lab.tasks.pretraining.corruption import (
    draw_spans,
    generator,
    halves,
    masked,
    single_span,
    spans,
)

BLOCK = 128


def drawn(lengths, seed=0, epoch=0):
    return draw_spans(lengths, BLOCK, generator(seed, epoch, "train").random((len(lengths), 4)))


def test_numbers_depend_on_seed_epoch_split_and_index_alone():
    def first(*of):
        return generator(*of).random()

    assert first(1, 2, "train", 3) == first(1, 2, "train", 3)
    others = [(0, 2, "train", 3), (1, 0, "train", 3), (1, 2, "test", 3), (1, 2, "train", 4)]
    assert len({first(1, 2, "train", 3), *(first(*of) for of in others)}) == 5


def test_a_document_is_cut_to_every_length_from_4_to_seven_eighths_of_the_block():
    found = drawn(np.full(60_000, 500))
    counts = np.bincount(found.kept, minlength=BLOCK)
    assert (found.kept.min(), found.kept.max()) == (4, 112)
    assert counts[4:113].min() > 0.75 * 60_000 / 109, "evenly"


def test_a_hidden_span_is_a_quarter_on_average_of_every_length():
    found = drawn(np.full(300_000, 500))
    width = found.stop - found.start
    for kept in (4, 5, 7, 30, 112):
        here = width[found.kept == kept]
        assert here.mean() == pytest.approx(kept / 4, rel=0.04)
        assert here.min() < kept / 4 < here.max(), "more or less than a quarter"
        assert here.max() <= kept / 2 + 1


def test_a_span_may_stand_anywhere():
    found = drawn(np.full(300_000, 500))
    here = found.kept == 12
    assert found.start[here].min() == 0
    assert found.stop[here].max() == 12
    starts = np.bincount(found.start[here & (found.stop - found.start == 3)], minlength=10)
    assert starts.min() > 0.6 * starts.mean(), "evenly"


def test_short_documents_are_not_cut_below_their_length():
    lengths = np.array([1, 2, 3, 4, 5, 40])
    for epoch in range(200):
        kept, start, stop = drawn(lengths, epoch=epoch)
        assert (kept <= lengths).all()
        assert (kept >= np.minimum(lengths, 4)).all()
        assert ((start >= 0) & (start <= stop) & (stop <= kept)).all()
    often = np.mean([drawn(np.array([40]), epoch=epoch).kept[0] == 40 for epoch in range(600)])
    assert often == pytest.approx((112 - 40 + 1) / 109, abs=0.06), "whole where no cut is shorter"


#: The examples that assignment 5 prints: what is kept of a document, what of it is hidden, the row.
PRINTED = [
    (
        "Khatchig Mouradian. Khatchig Mouradian is a journalist, writer and tran",
        "nalist, writer ",
        "Khatchig Mouradian. Khatchig Mouradian is a jour⁇and tran⁇nalist, writer ⁇",
    ),
    ("Jacob Henry ", "b H", "Jaco⁇enry ⁇b H⁇"),
    (
        "John Stephen. Born in Glasgow, Stephen became a welder's apprentice on",
        "en became a we",
        "John Stephen. Born in Glasgow, Steph⁇lder's apprentice on⁇en became a we⁇",
    ),
]


@pytest.mark.parametrize(("kept", "hidden", "row"), PRINTED)
def test_assignment_5_printed_examples(kept, hidden, row):
    ids = np.array([ord(c) for c in kept])
    start = kept.index(hidden)
    found = single_span(ids, start, start + len(hidden), mask=ord("⁇"))
    assert "".join(map(chr, found)) == row
    bare = single_span(ids, start, start + len(hidden), mask=ord("⁇"), closed=False)
    assert "".join(map(chr, bare)) == row[:-1], "as the handout's text has it"


def test_masked_words_are_hidden_80_10_10():
    ids = np.arange(1_000, 21_000)
    found = masked(ids, generator(0, 0, "train"), mask=7, words=(2, 1_000), share=0.15)
    assert found.selected.sum() == pytest.approx(3_000, abs=1)
    there, now = ids[found.selected], found.read[found.selected]
    assert (now == 7).mean() == pytest.approx(0.8, abs=0.02)
    assert (now == there).mean() == pytest.approx(0.1, abs=0.02)
    other = now[(now != 7) & (now != there)]
    assert len(other) / 3_000 == pytest.approx(0.1, abs=0.02)
    assert other.min() < 50
    assert other.max() > 950
    assert (found.read[~found.selected] == ids[~found.selected]).all()


def test_special_tokens_are_never_asked_and_something_always_is():
    ids = np.array([90, 5, 91, 6, 91])
    for index in range(100):
        random = generator(0, 0, "train", index)
        found = masked(ids, random, mask=92, words=(2, 90), share=0.15, special=ids >= 90)
        assert found.selected.sum() == 1
        assert not found.selected[[0, 2, 4]].any()
        assert found.read[[0, 2, 4]].tolist() == [90, 91, 91]


def rebuilt(source, target, sentinel):
    """The text that a source and a target came from."""
    parts, key = {}, None
    for token in target.tolist():
        if token >= sentinel:
            key, parts[token] = token, []
        else:
            parts[key].append(token)
    return [x for token in source.tolist() for x in parts.get(token, [token])]


def test_spans_and_what_is_left_make_the_text_again():
    for index in range(200):
        random = generator(0, 0, "train", index)
        ids = np.arange(2, 2 + int(random.integers(2, 90)))
        source, target = spans(ids, random, sentinel=1_000, sentinels=100)
        assert rebuilt(source, target, 1_000) == ids.tolist()
        symbols = source[source >= 1_000].tolist()
        assert symbols == list(range(1_000, 1_000 + len(symbols))), "in order"
        assert target[target >= 1_000].tolist() == symbols


def test_spans_are_15_percent_in_spans_of_three():
    ids = np.arange(200)
    rows = [spans(ids, generator(0, 0, "train", i), sentinel=999, sentinels=100) for i in range(50)]
    assert {int((row.target < 999).sum()) for row in rows} == {30}
    assert {int((row.target >= 999).sum()) for row in rows} == {10}
    assert len({tuple(row.source.tolist()) for row in rows}) == 50


def test_few_sentinels_make_longer_spans():
    source, target = spans(np.arange(200), generator(0, 0, "train"), sentinel=999, sentinels=4)
    assert (source >= 999).sum() == 4
    assert (target < 999).sum() == 30


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_texts(length):
    ids = np.arange(5, 5 + length)
    source, target = spans(ids, generator(0, 0, "train"), sentinel=99, sentinels=9)
    assert rebuilt(source, target, 99) == ids.tolist()
    cut = halves(ids, generator(0, 0, "train"))
    assert [*cut.source, *cut.target] == ids.tolist()


def test_halves_are_cut_everywhere_and_never_empty():
    ids = np.arange(6)
    cuts = {len(halves(ids, generator(0, 0, "train", index)).source) for index in range(200)}
    assert cuts == {1, 2, 3, 4, 5}
