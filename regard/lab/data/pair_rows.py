"""Parsing of text pairs from two aligned files, tables or JSON lines."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import zip_longest

from regard.core.errors import RegardError
from regard.lab.data.examples import BadRow, Remark
from regard.lab.data.lines import Binary, Lines
from regard.lab.data.pairs import Pair
from regard.lab.data.records import Record, records, selected
from regard.lab.data.titles import (
    LABEL_NAMES,
    TEXT_NAMES,
    Chosen,
    listed,
    must_be_distinct,
    place_of,
)

PAIRED = (
    *(("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output")),
    *(("from", "to"), ("question", "answer"), ("text", "translation")),
)
LANGUAGES = frozenset(
    "ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl gu he hi hr hu hy is it ja ka kk km "
    "kn ko lt lv mk ml mn mr ms my nb ne nl nn no pa pl pt ro ru sk sl sq sr sv sw ta te th tr uk "
    "ur uz vi zh ara deu eng fra ita jpn kor nld pol por rus spa zho".split()
)
STREAMED = 1_000_000_000_000  # byte limit of files that are streamed

Row = Pair | BadRow


def side_by_side(left: Binary, left_name: str, right: Binary, right_name: str) -> Iterator[Row]:
    """Yield line i of one file with line i of the other; two empty lines are skipped."""
    sides = Lines(left, left_name, most=STREAMED), Lines(right, right_name, most=STREAMED)
    alone = 0  # the first line that is not empty and has no counterpart
    for source, target in zip_longest(*sides):
        if source is None or target is None:
            if not alone and (source or target or "").strip():
                alone = max(lines.number for lines in sides)
            continue
        for lines in sides:
            if problem := lines.complaint():
                raise RegardError(f"{lines.here}: {problem}")
        if source.strip() or target.strip():
            yield _pair(source, target, sides[0].here)
    if alone:
        shorter, longer = sorted(sides, key=lambda lines: lines.number)
        raise RegardError(
            f"{longer.name}:{alone}: line without a counterpart: {shorter.name} has "
            f"{shorter.number:,} lines, {longer.name} {longer.number:,}; line i of one file must "
            "belong to line i of the other"
        )


def rows_of(file: Binary, name: str, kind: str, names: tuple[str, str], most: int) -> Iterator[Row]:
    """Yield the rows of a table or of JSON lines; `kind` is tsv, csv or jsonl."""

    rows = records(Lines(file, name, most=most), kind, quotes=False)
    for row in selected(_filled(rows), partial(_columns, kind=kind, asked=names)):
        if isinstance(row, BadRow):
            yield row
        elif not isinstance(row, Remark):
            here, values = row
            texts = ["" if value is None else value for value in values]
            if wrong := [text for text in texts if not isinstance(text, str)]:
                yield BadRow(here, f"a text must be a string, not {json.dumps(wrong[0])[:40]}")
            elif any(not text.isascii() and _halves(text) for text in texts):
                yield BadRow(here, "a text contains an unpaired surrogate")
            else:
                yield _pair(texts[0], texts[1], here)


def _filled(rows: Iterator[Record]) -> Iterator[Record]:
    """Yield the rows that are not empty, with what an object has inside "translation"."""
    for here, row in rows:
        if isinstance(row, dict):
            inside = row.get("translation")
            yield here, inside if isinstance(inside, dict) else row
        elif any(map(str.strip, row)):
            yield here, row


def _halves(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _columns(here: str, header: Sequence[str], *, kind: str, asked: tuple[str, str]) -> Chosen:
    """Return the columns of source and target."""
    names = [name.strip().casefold() for name in header]
    wanted = [name.strip().casefold() for name in asked]
    if all(wanted):
        named = [place_of(here, header, name) for name in asked]
        places = [place for place in named if place is not None]
        titled = len(places) == 2
        if titled:
            must_be_distinct(here, header)
        elif kind != "jsonl" and all(name.isdecimal() for name in wanted):
            places = [int(name) - 1 for name in wanted]
            titled = _usual_titles(header, kind) is not None
            if not all(0 <= place < len(names) for place in places):
                raise RegardError(
                    f"{here}: {len(names)} columns, so no column {max(map(int, wanted))}"
                )
        else:
            missing = asked[named.index(None)]
            raise RegardError(f"{here}: unknown column {missing!r}; columns: {listed(header)}")
        if places[0] == places[1]:
            raise RegardError(f"{here}: source and target are the same column, {asked[0]!r}")
        return Chosen(places, titled)
    if any(wanted):
        raise RegardError(f"{here}: name both sides or none, not only {asked[0] or asked[1]!r}")
    if usual := usual_sides(here, header, kind):
        must_be_distinct(here, header)
        return Chosen([*usual], True)
    if set(names) & set(TEXT_NAMES) and set(names) & set(LABEL_NAMES) - {"target"}:
        raise RegardError(
            f"{here}: the columns {listed(header)} look like texts with labels; use regard train "
            "classification, or for pairs set source_name=NAME target_name=NAME"
        )
    if kind == "tsv" and len(names) in (2, 3) and not {*header} <= LANGUAGES:
        return Chosen([0, 1], False)
    if kind == "tsv" and len(names) == 1:
        raise RegardError(f"{here}: no tab, so no second text; give two aligned files as FILE,FILE")
    raise RegardError(
        f"{here}: cannot tell source and target among the columns {listed(header)}; set "
        "source_name=NAME and target_name=NAME"
    )


def usual_sides(here: str, header: Sequence[str], kind: str) -> tuple[int, int] | None:
    """Return the columns of both sides if they have common names. Raises: as `place_of`."""
    places = [place_of(here, header, title) for title in _usual_titles(header, kind) or ()]
    sides = [place for place in places if place is not None]
    return (sides[0], sides[1]) if sides else None


def _usual_titles(header: Sequence[str], kind: str) -> tuple[str, str] | None:
    """Return the titles of source and target if they are common.

    In a tab-separated table, which may have no header, Hi and Ja are words, hi and ja languages.
    """
    names = [name.strip().casefold() for name in header]
    for sides in PAIRED:
        if {*sides} <= {*names}:
            return sides
    spelled = names if kind != "tsv" else [name.strip() for name in header]
    languages = [header[place] for place, name in enumerate(spelled) if name in LANGUAGES]
    return (languages[0], languages[1]) if len(languages) == 2 else None


def _pair(source: str, target: str, here: str) -> Row:
    source, target = (text.replace("\ufeff", "").strip() for text in (source, target))
    if source and target:
        return Pair(source, target, here)
    empty = "source" if target else "target" if source else "pair"
    return BadRow(here, f"the {empty} is empty", empty=True)
