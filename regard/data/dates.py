"""Dates as people write them, in many languages and formats, and the same dates in ISO 8601.

``mardi 5 mars 2024 → 2024-03-05``. The formats are those of Unicode's CLDR, written by Babel: each
locale's short, medium, long and full one and what it makes of the skeletons below, in the locale's
own digits. Of combinations of locale and format that write alike only the first is kept.

No string can be read as two dates, by construction:

* Two-digit years are written with four digits.
* Where two combinations write day and month as numbers with the same signs between them but in
  another order (3/4/2024 is in March or in April), both only write dates that cannot be misread:
  the day is above 12 or equals the month. Neither weekdays nor scripts are taken for a hint.
* A month's name that means another month in another locale (lis: October in Croatian, November in
  Polish) is never written.

A pair knows its alignment, because the fields are written one by one: the target's year comes from
the source's year, its month from the month's name or number, its day from the day. The weekday is
nobody's source, and the dashes come from nowhere.

The splits: a tenth of all dates, by hash, are the test's and a twentieth the validation's, in
whatever format; "formats" is the test's dates in whole combinations of locale and format that no
other split uses. Such a combination has each of its parts (its months' names, its weekdays, the
words that always stand there) in another combination of its locale, so that it can be read by who
has learned the parts.
"""

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final
from unicodedata import category

import numpy as np
from jaxtyping import Bool

from regard.data.pairs import Pair
from regard.errors import RegardError, look_up

LOCALES: Final = (
    "en_US en_GB de fr es it pt nl sv da nb fi is pl cs sk hu ro hr sl sr et lv lt ru uk bg el tr "
    "ka hy ar_EG fa he hi mr bn ta th my vi id eu ca zh zh_Hant ja ko"
).split()
SKELETONS: Final = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd", "GyMMMd")
FORMATS: Final = ("short", "medium", "long", "full", *SKELETONS)
SPLITS: Final = ("train", "validation", "test", "formats")
FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
TEST_SHARE, VALIDATION_SHARE = 0.1, 0.05  # of the dates
HELD_OUT_SHARE = 0.5  # of the locales lend a format to the split "formats"
ZEROS: Final = {"arab": "٠", "arabext": "۰", "deva": "०", "beng": "০", "mymr": "၀"}
SPANS_OF_ISO: Final = ((0, 4), (5, 7), (8, 10))

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DatePair(Pair):
    """A date as people write it and in ISO 8601; where its year, month and day stand."""

    spans: tuple[Span, Span, Span]
    locale: str
    format: str

    def alignment(self) -> Bool[np.ndarray, "target source"]:
        """Each character of year, month and day comes from all that write this field."""
        truth = np.zeros((len(self.target), len(self.source)), dtype=bool)
        for (top, bottom), (left, right) in zip(SPANS_OF_ISO, self.spans, strict=True):
            truth[top:bottom, left:right] = True
        return truth


@dataclass(frozen=True)
class Combination:
    """A locale and a format: how a date is written, piece by piece.

    ``pieces`` are a field's letter and its texts by number, or a text that is always there.
    ``barred`` are months whose name means another one elsewhere; ``disputed`` says that day and
    month stand in the other order elsewhere.
    """

    locale: str
    format: str
    pattern: str
    pieces: tuple[tuple[str, Mapping[int, str]], ...] = field(repr=False)
    barred: frozenset[int] = frozenset()
    disputed: bool = False

    def write(self, date: datetime.date) -> tuple[str, tuple[Span, Span, Span]]:
        """The date as a string, and where in it year, month and day stand."""
        numbers = {"": 0, "y": date.year, "M": date.month, "d": date.day, "E": date.weekday()}
        text, spans = "", {}
        for letter, texts in self.pieces:
            start = len(text)
            text += texts[numbers[letter]]
            spans[letter] = (start, len(text))
        return text, (spans["y"], spans["M"], spans["d"])

    def may_write(self, date: datetime.date) -> bool:
        """Whether the string would mean this date alone."""
        clear = not self.disputed or date.day > 12 or date.day == date.month
        return clear and date.month not in self.barred


def dates(
    count: int,
    seed: int = 0,
    *,
    split: str = "train",
    start: int = 0,
    locales: Sequence[str] = (),
) -> list[DatePair]:
    """Pairs number `start` … of an endless supply: a pure function of (seed, split, number).

    Each draws a combination of locale and format (of all `LOCALES`, or of some), then a date of
    the split. The texts are those of the installed Babel.

    Errors: another split or locale; locales none of which lends a format to the split "formats".

    >>> pair = dates(1, seed=17)[0]
    >>> pair.source, pair.target, pair.locale, pair.format
    ('neděle 4. prosince 1983', '1983-12-04', 'cs', 'full')
    >>> [pair.source[a:b] for a, b in pair.spans]
    ['1983', 'prosince', '4']
    """
    look_up(dict.fromkeys(SPLITS), split, "split of the dates")
    if count < 0 or seed < 0 or start < 0:
        raise RegardError(
            f"dates are counted from 0, and so are seeds: not {count} from {start} of seed {seed}"
        )
    chosen = _of_locales(combinations(held_out=split == "formats"), locales)
    # One block of the counter is four numbers; two of them make a pair.
    random = np.random.Philox(key=[seed, SPLITS.index(split)], counter=start)
    drawn = (random.random_raw(4 * count).reshape(count, 4)[:, :2] >> np.uint64(11)) * 2.0**-53
    pairs = []
    for number, (first, second) in enumerate(drawn.tolist(), start):
        combination = chosen[int(first * len(chosen))]
        allowed = _allowed(split, combination.barred, combination.disputed)
        date = allowed[int(second * len(allowed))]
        text, spans = combination.write(date)
        place = f"dates:{number}"
        pairs.append(
            DatePair(text, date.isoformat(), place, spans, combination.locale, combination.format)
        )
    return pairs


@lru_cache(maxsize=2)
def combinations(*, held_out: bool = False) -> tuple[Combination, ...]:
    """The combinations of locale and format of the split "formats", or those of all others."""
    every = _judged([made for locale in LOCALES for made in _of_locale(locale)])
    different: dict[tuple[str, ...], Combination] = {}
    for combination in every:
        different.setdefault(tuple(_samples(combination)), combination)
    by_locale: dict[str, list[Combination]] = defaultdict(list)
    for combination in different.values():
        by_locale[combination.locale].append(combination)
    out = {id(c) for found in by_locale.values() if (c := _lent(found)) is not None}
    return tuple(c for c in different.values() if (id(c) in out) == held_out)


def _of_locales(every: tuple[Combination, ...], locales: Sequence[str]) -> tuple[Combination, ...]:
    """The combinations of some locales, or all."""
    for name in locales:
        look_up(dict.fromkeys(LOCALES), name, "locale of the dates")
    chosen = tuple(c for c in every if not locales or c.locale in locales)
    if not chosen:
        lending = sorted({c.locale for c in every})
        raise RegardError(
            f"{', '.join(locales)}: no format of these locales is kept for the test; add one of "
            f"{', '.join(lending)}"
        )
    return chosen


def _of_locale(name: str) -> Iterator[Combination]:
    """A locale's formats in the order of `FORMATS`, those that it has."""
    from babel import Locale

    locale = Locale.parse(name)
    for format_ in FORMATS:
        table = locale.datetime_skeletons if format_ in SKELETONS else locale.date_formats
        if format_ in table:
            pattern = str(table[format_].pattern).replace("yy", "y")
            yield Combination(name, format_, pattern, tuple(_pieces(name, pattern)))


def _pieces(name: str, pattern: str) -> Iterator[tuple[str, Mapping[int, str]]]:
    """The pieces of a pattern; month names and weekdays as Babel inflects them in this place."""
    from babel import Locale
    from babel.dates import tokenize_pattern

    zero = ord(ZEROS.get(Locale.parse(name).default_numbering_system, "0"))
    digits = {ord("0") + i: zero + i for i in range(10)}
    for _, value in tokenize_pattern(pattern):
        if isinstance(value, str):
            yield "", {0: value}
            continue
        spelled, width = value
        letter = {"L": "M", "c": "E"}.get(spelled, spelled)
        if letter == "G":
            yield "", {0: _names(name, letter, spelled * width)[1]}
        elif letter == "E" or (letter == "M" and width > 2):
            yield letter, _names(name, letter, spelled * width)
        else:
            numbers = {"y": range(1900, 2100), "M": range(1, 13), "d": range(1, 32)}[letter]
            yield letter, {n: f"{n:0{width}}".translate(digits) for n in numbers}


@cache
def _names(locale: str, letter: str, spelled: str) -> Mapping[int, str]:
    """What Babel writes for each month, each weekday from Monday as 0, or our era."""
    from babel import Locale
    from babel.dates import DateTimeFormat

    def name(date: datetime.date) -> str:
        return str(DateTimeFormat(date, Locale.parse(locale))[spelled])

    if letter == "E":
        return {i: name(datetime.date(2024, 1, 1 + i)) for i in range(7)}
    return {i: name(datetime.date(2024, i, 1)) for i in range(1, 13)}


def _judged(every: Sequence[Combination]) -> list[Combination]:
    """The same, with what each may not write because another would read it otherwise."""
    meanings: dict[str, set[int]] = defaultdict(set)
    orders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for combination in every:
        for number, text in _months(combination).items():
            meanings[_name(text)].add(number)
        orders[_shape(combination)].add(_order(combination))
    return [
        Combination(
            c.locale,
            c.format,
            c.pattern,
            c.pieces,
            barred=frozenset(
                number
                for number, text in _months(c).items()
                if len(meanings[_name(text)]) > 1 and not _is_number(text)
            ),
            disputed=_is_number(_months(c)[1]) and len(orders[_shape(c)]) > 1,
        )
        for c in every
    ]


def _months(combination: Combination) -> Mapping[int, str]:
    return next(texts for letter, texts in combination.pieces if letter == "M")


def _name(month: str) -> str:
    return month.casefold().strip(". ")


def _is_number(text: str) -> bool:
    return text.isdecimal()


def _shape(combination: Combination) -> tuple[str, ...]:
    """Year, numbers and the signs between them, whichever number is the day's.

    Spaces, marks of direction and the weekday tell nobody in which order they stand.
    """
    signs = {"y": "year", "M": "number", "d": "number", "E": ""}
    shape = [
        signs[letter] if letter else "".join(c for c in texts[0] if category(c) not in ("Zs", "Cf"))
        for letter, texts in combination.pieces
    ]
    places = [place for place, sign in enumerate(shape) if sign in ("year", "number")]
    return tuple(filter(None, shape[places[0] : places[-1] + 1]))


def _order(combination: Combination) -> str:
    return "".join(letter for letter, _ in combination.pieces if letter in ("d", "M"))


def _samples(combination: Combination) -> Iterator[str]:
    """Dates enough to tell whether two combinations write alike."""
    for month in range(1, 13):
        for day in (month, 13 + month):
            yield combination.write(datetime.date(2024, month, day))[0]


def _lent(found: Sequence[Combination]) -> Combination | None:
    """The combination of one locale that is held out, if this locale lends one."""
    if _hash(found[0].locale) >= HELD_OUT_SHARE:
        return None

    def parts(combination: Combination) -> set[str]:
        names = {texts[max(texts)] for letter, texts in combination.pieces if letter in ("M", "E")}
        always = {texts[0] for letter, texts in combination.pieces if not letter}
        return names | {word for text in always for word in text.split() if _has_letters(word)}

    able = [
        one
        for one in found
        if parts(one) <= {part for c in found if c is not one for part in parts(c)}
    ]
    return min(able, key=lambda c: _hash(f"{c.locale} {c.format}"), default=None)


def _has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _hash(text: str) -> float:
    """A number from 0 to 1 that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


@lru_cache(maxsize=4)
def _days(split: str) -> list[datetime.date]:
    """The dates of a split."""
    low, high = {
        "train": (TEST_SHARE + VALIDATION_SHARE, 1.0),
        "validation": (TEST_SHARE, TEST_SHARE + VALIDATION_SHARE),
        "test": (0.0, TEST_SHARE),
        "formats": (0.0, TEST_SHARE),
    }[split]
    days = range(FIRST.toordinal(), LAST.toordinal() + 1)
    return [datetime.date.fromordinal(day) for day in days if low <= _hash(f"date {day}") < high]


@lru_cache(maxsize=64)
def _allowed(split: str, barred: frozenset[int], disputed: bool) -> list[datetime.date]:
    """Those dates of a split that a combination may write."""
    judge = Combination("", "", "", (), barred, disputed)
    return [date for date in _days(split) if judge.may_write(date)]
