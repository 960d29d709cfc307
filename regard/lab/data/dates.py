"""Dates in many languages and formats, and the same dates in ISO 8601.

``mardi 5 mars 2024 → 2024-03-05``. The formats are those of Unicode's CLDR, written by Babel: each
locale's short, medium, long and full format and those of the skeletons below, in the locale's own
digits. Among combinations of locale and format with equal output, only the first is kept.

No string is ambiguous, by construction:

* Two-digit years are written with four digits.
* Where two combinations write day and month as numbers with the same separators but in a different
  order (3/4/2024 is in March or in April), both only write unambiguous dates: the day is above 12
  or equals the month. Weekdays and scripts do not count as disambiguation.
* A month name that means another month in another locale (lis: October in Croatian, November in
  Polish) is never written.

The alignment of a pair is known, because fields are written one by one: the target's year comes
from the source's year, its month from the month's name or number, its day from the day. Nothing
comes from the weekday, and the dashes come from nothing.

The splits: a tenth of all dates, by hash, are for test and a twentieth for validation, in any
format; "formats" has the test dates in combinations of locale and format that no other split uses.
Each component of such a combination (month names, weekdays, fixed words) occurs in another
combination of its locale, so that a model can compose it from known components.
"""

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final
from unicodedata import category

import numpy as np
from jaxtyping import Bool

from regard.core.errors import RegardError, look_up
from regard.lab.data.pairs import Pair

LOCALES: Final = (
    "en_US en_GB de fr es it pt nl sv da nb fi is pl cs sk hu ro hr sl sr et lv lt ru uk bg el tr "
    "ka hy ar_EG fa he hi mr bn ta th my vi id eu ca zh zh_Hant ja ko"
).split()
SKELETONS: Final = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd", "GyMMMd")
FORMATS: Final = ("short", "medium", "long", "full", *SKELETONS)
SPLITS: Final = ("train", "validation", "test", "formats")
FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
TEST_SHARE, VALIDATION_SHARE = 0.1, 0.05  # of the dates
HELD_OUT_SHARE = 0.5  # fraction of locales with a format in the split "formats"
ZEROS: Final = {"arab": "٠", "arabext": "۰", "deva": "०", "beng": "০", "mymr": "၀"}
SPANS_OF_ISO: Final = ((0, 4), (5, 7), (8, 10))

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DatePair(Pair):
    """A date as written in a locale and in ISO 8601, with the spans of year, month and day."""

    spans: tuple[Span, Span, Span]
    locale: str
    format: str

    def alignment(self) -> Bool[np.ndarray, "target source"]:
        """Return the alignment: each character of a field comes from the whole source field."""
        truth = np.zeros((len(self.target), len(self.source)), dtype=bool)
        for (top, bottom), (left, right) in zip(SPANS_OF_ISO, self.spans, strict=True):
            truth[top:bottom, left:right] = True
        return truth


@dataclass(frozen=True)
class Combination:
    """A locale and a format: how a date is written, field by field.

    ``pieces`` are a field's letter and its texts by number, or a fixed text. ``barred`` are months
    whose name means another month in another locale; ``disputed`` means that another locale
    writes day and month in the other order.
    """

    locale: str
    format: str
    pattern: str
    pieces: tuple[tuple[str, Mapping[int, str]], ...] = field(repr=False)
    barred: frozenset[int] = frozenset()
    disputed: bool = False

    def write(self, date: datetime.date) -> tuple[str, tuple[Span, Span, Span]]:
        """Return the date as a string, and the spans of year, month and day."""
        numbers = {"": 0, "y": date.year, "M": date.month, "d": date.day, "E": date.weekday()}
        text, spans = "", {}
        for letter, texts in self.pieces:
            start = len(text)
            text += texts[numbers[letter]]
            spans[letter] = (start, len(text))
        return text, (spans["y"], spans["M"], spans["d"])

    def may_write(self, date: datetime.date) -> bool:
        """Return whether the string is unambiguous."""
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
    """Return pairs from number `start` of an endless sequence, given by (seed, split, number).

    Each draws a combination of locale and format (of all `LOCALES`, or of some), then a date of
    the split. The texts are those of the installed Babel.

    Raises: an unknown split or locale; locales without a format in the split "formats".

    >>> pair = dates(1, seed=17)[0]
    >>> pair.source, pair.target, pair.locale, pair.format
    ('neděle 4. prosince 1983', '1983-12-04', 'cs', 'full')
    >>> [pair.source[a:b] for a, b in pair.spans]
    ['1983', 'prosince', '4']
    """
    look_up(dict.fromkeys(SPLITS), split, "split of the dates")
    if count < 0 or seed < 0 or start < 0:
        raise RegardError(
            f"count, start and seed must be 0 or more, not {count}, {start} and {seed}"
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
    """Return the combinations of the split "formats", or those of all other splits."""
    every = _judged([made for locale in LOCALES for made in _of_locale(locale)])
    different: dict[tuple[str, ...], Combination] = {}
    for combination in every:
        different.setdefault(tuple(_samples(combination)), combination)
    by_locale: dict[str, list[Combination]] = defaultdict(list)
    for combination in different.values():
        by_locale[combination.locale].append(combination)
    out = {id(c) for combinations in by_locale.values() if (c := _lent(combinations)) is not None}
    return tuple(c for c in different.values() if (id(c) in out) == held_out)


def _of_locales(every: tuple[Combination, ...], locales: Sequence[str]) -> tuple[Combination, ...]:
    """Return the combinations of some locales, or all."""
    for name in locales:
        look_up(dict.fromkeys(LOCALES), name, "locale of the dates")
    chosen = tuple(c for c in every if not locales or c.locale in locales)
    if not chosen:
        lending = sorted({c.locale for c in every})
        raise RegardError(
            f"{', '.join(locales)}: none of these locales has a test format; add one of "
            f"{', '.join(lending)}"
        )
    return chosen


def _of_locale(name: str) -> Iterator[Combination]:
    """Yield the formats that a locale has, in the order of `FORMATS`."""
    from babel import Locale

    locale = Locale.parse(name)
    for format_ in FORMATS:
        table = locale.datetime_skeletons if format_ in SKELETONS else locale.date_formats
        if format_ in table:
            pattern = str(table[format_].pattern).replace("yy", "y")
            yield Combination(name, format_, pattern, tuple(_pieces(name, pattern)))


def _pieces(name: str, pattern: str) -> Iterator[tuple[str, Mapping[int, str]]]:
    """Yield the pieces of a pattern, with month names and weekdays as Babel inflects them."""
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
    """Return Babel's text of each month, of each weekday from Monday as 0, or of the era."""
    from babel import Locale
    from babel.dates import DateTimeFormat

    def name(date: datetime.date) -> str:
        return str(DateTimeFormat(date, Locale.parse(locale))[spelled])

    if letter == "E":
        return {i: name(datetime.date(2024, 1, 1 + i)) for i in range(7)}
    return {i: name(datetime.date(2024, i, 1)) for i in range(1, 13)}


def _judged(every: Sequence[Combination]) -> list[Combination]:
    """Return the combinations with the dates that each may not write because of ambiguity."""
    meanings: dict[str, set[int]] = defaultdict(set)
    orders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for combination in every:
        for number, text in _months(combination).items():
            meanings[_name(text)].add(number)
        orders[_shape(combination)].add(_order(combination))
    return [
        replace(
            c,
            barred=frozenset(
                number
                for number, text in _months(c).items()
                if len(meanings[_name(text)]) > 1 and not text.isdecimal()
            ),
            disputed=_months(c)[1].isdecimal() and len(orders[_shape(c)]) > 1,
        )
        for c in every
    ]


def _months(combination: Combination) -> Mapping[int, str]:
    return next(texts for letter, texts in combination.pieces if letter == "M")


def _name(month: str) -> str:
    return month.casefold().strip(". ")


def _shape(combination: Combination) -> tuple[str, ...]:
    """Return the order of year, numbers and separators, where day and month are both numbers.

    Spaces, direction marks and the weekday do not reveal the order.
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
    """Yield enough dates to detect whether two combinations have equal output."""
    for month in range(1, 13):
        for day in (month, 13 + month):
            yield combination.write(datetime.date(2024, month, day))[0]


def _lent(candidates: Sequence[Combination]) -> Combination | None:
    """Return the combination of one locale that is held out, if there is one."""
    if _hash(candidates[0].locale) >= HELD_OUT_SHARE:
        return None

    def parts(combination: Combination) -> set[str]:
        names = {texts[max(texts)] for letter, texts in combination.pieces if letter in ("M", "E")}
        always = {texts[0] for letter, texts in combination.pieces if not letter}
        return names | {
            word for text in always for word in text.split() if any(map(str.isalpha, word))
        }

    able = [
        one
        for one in candidates
        if parts(one) <= {part for c in candidates if c is not one for part in parts(c)}
    ]
    return min(able, key=lambda c: _hash(f"{c.locale} {c.format}"), default=None)


def _hash(text: str) -> float:
    """Return a number from 0 to 1 that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


@lru_cache(maxsize=4)
def _days(split: str) -> list[datetime.date]:
    """Return the dates of a split."""
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
    """Return the dates of a split that a combination may write."""
    judge = Combination("", "", "", (), barred, disputed)
    return [date for date in _days(split) if judge.may_write(date)]
