import datetime
import re
import unicodedata

import numpy as np
import pytest
from babel import Locale
from babel.dates import format_date

from regard.core.errors import RegardError
from regard.lab.data.dates import (
    LOCALES,
    SPLITS,
    ZEROS,
    Combination,
    combinations,
    dates,
)


@pytest.fixture(scope="module")
def every():
    return (*combinations(), *combinations(held_out=True))


def test_pure_function_of_seed_split_and_number():
    first = dates(60, seed=4)
    assert dates(60, seed=4) == first
    assert dates(20, seed=4, start=40) == first[40:]
    assert dates(60, seed=5) != first
    assert [pair.place for pair in dates(2, start=7)] == ["dates:7", "dates:8"]
    far = dates(1, seed=2**40, start=2**40)[0]
    assert far.place == f"dates:{2**40}"


def test_texts_are_those_of_babel(every):
    for combination in every:
        zero = ord(ZEROS.get(Locale.parse(combination.locale).default_numbering_system, "0"))
        digits = {ord("0") + i: zero + i for i in range(10)}
        for date in (datetime.date(1987, 3, 5), datetime.date(2016, 11, 23)):
            said = format_date(date, combination.pattern, combination.locale)
            assert combination.write(date)[0] == said.translate(digits), combination


def read_back(text, span):
    return "".join(str(unicodedata.digit(c, c)) for c in text[slice(*span)])


def test_spans_are_where_the_fields_stand(every):
    named = set()
    for combination in every:
        for month in range(1, 13):
            date = datetime.date(1950 + month, month, 31 - month if month != 2 else 28)
            text, (year, moon, day) = combination.write(date)
            assert int(read_back(text, year)) == date.year
            assert int(read_back(text, day)) == date.day
            name = read_back(text, moon)
            assert name
            if name.isdecimal():
                assert int(name) == month
            else:
                named.add((combination.locale, combination.format, name, month))
    assert len({row[:3] for row in named}) == len(named) > 1_000


def test_alignment_marks_the_fields():
    for pair in dates(50, seed=1):
        truth = pair.alignment()
        assert truth.shape == (10, len(pair.source))
        assert np.array_equal(truth.any(1), [c != "-" for c in pair.target])
        year, month, day = pair.spans
        for rows, (start, stop) in zip(((0, 4), (5, 7), (8, 10)), (year, month, day), strict=True):
            for row in range(*rows):
                assert np.flatnonzero(truth[row]).tolist() == list(range(start, stop))
        digits = read_back(pair.source, day)
        assert int(digits) == int(pair.target[8:])


def test_no_string_can_be_read_as_two_dates(every):
    meaning = {}
    for number in range(366):
        date = datetime.date(2004, 1, 1) + datetime.timedelta(number)
        for combination in every:
            if combination.may_write(date):
                text = combination.write(date)[0]
                key = " ".join(unicodedata.normalize("NFC", text).casefold().split())
                assert meaning.setdefault(key, date) == date, (text, combination)
    assert len(meaning) > 95_000


def test_what_would_be_ambiguous_is_never_written(every):
    orders = {c.locale: c for c in every if c.format == "short"}
    assert orders["en_US"].pattern == "M/d/y"
    assert orders["en_GB"].pattern == "dd/MM/y"
    march = datetime.date(2005, 3, 4)
    assert not orders["en_US"].may_write(march)
    assert not orders["en_GB"].may_write(march)
    assert orders["en_US"].may_write(datetime.date(2005, 3, 13))
    assert orders["en_GB"].may_write(datetime.date(2005, 4, 4))
    assert orders["de"].may_write(march)  # dots are never month first
    listopad = {c.locale: c.barred for c in every if c.format == "full"}
    assert (listopad["pl"], listopad["hr"], listopad["cs"]) == ({11}, {10}, set())
    for split in SPLITS:
        for pair in dates(400, seed=2, split=split):
            assert pair.spans[0][1] - pair.spans[0][0] == 4  # no years of two digits
            if slashed := re.search(r"\b([0-9]+)/([0-9]+)/[0-9]{4}", pair.source):
                first, second = map(int, slashed.groups())
                assert max(first, second) > 12 or first == second


def test_splits_share_no_dates_and_formats_only_with_their_like():
    found = {split: dates(3_000, seed=3, split=split) for split in SPLITS}
    days = {split: {pair.target for pair in pairs} for split, pairs in found.items()}
    assert not days["train"] & (days["validation"] | days["test"] | days["formats"])
    assert not days["validation"] & (days["test"] | days["formats"])
    used = {s: {(p.locale, p.format) for p in pairs} for s, pairs in found.items()}
    assert not used["formats"] & (used["train"] | used["validation"] | used["test"])
    assert used["formats"] == {(c.locale, c.format) for c in combinations(held_out=True)}
    assert min(days["train"])[:2] == "19"
    assert max(days["train"])[:2] == "20"


def test_held_out_formats_have_parts_that_train_shows():
    def parts(combination, letters):
        return {
            (combination.locale, text)
            for letter, texts in combination.pieces
            if letter in letters
            for text in texts.values()
            if not text.isdecimal()
        }

    held = combinations(held_out=True)
    shown = {part for c in combinations() for part in parts(c, ("M", "E"))}
    assert len(held) > 20
    assert len({c.locale for c in held}) == len(held)
    for combination in held:
        assert parts(combination, ("M", "E")) <= shown
    letters = set("".join(pair.source for pair in dates(20_000)))
    assert set("".join(pair.source for pair in dates(3_000, split="formats"))) <= letters


def test_scripts_locales_and_formats(every):
    text = "".join(combination.write(datetime.date(2024, 9, 8))[0] for combination in every)
    assert {unicodedata.digit("٢"), *map(unicodedata.digit, "۲२২၂2")} == {2}
    for digit in "٢۲२২၂2":
        assert digit in text
    for sign in "年月日년월일":
        assert sign in text
    assert {combination.locale for combination in every} == set(LOCALES)
    assert {"short", "medium", "long", "full", "yMEd", "GyMMMd"} <= {c.format for c in every}
    writings = {
        tuple(c.write(datetime.date(2024, m, 14 - m))[0] for m in range(1, 13)) for c in every
    }
    assert len(writings) == len(every) == 300
    assert all(isinstance(c, Combination) for c in every)


def test_what_cannot_be_drawn():
    with pytest.raises(RegardError, match="no split of the dates is called 'dev'"):
        dates(1, split="dev")
    for wrong in ({"seed": -1}, {"start": -1}):
        with pytest.raises(RegardError, match="must be 0 or more"):
            dates(1, **wrong)
