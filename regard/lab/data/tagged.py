"""Sentences with a tag per word: CoNLL columns, CoNLL-U, and spans encoded in tags.

* ``.conllu``: one word per line, ten tab-separated columns; the tag is UPOS by default.
* Others: one word per line, with columns separated by tabs or spaces; an empty line, or one that
begins with ``-DOCSTART-``, ends a sentence. The first column is the word and the last the tag, as
in CoNLL-2003 and WNUT 2017. A line that begins with ``#`` is a comment, unless it has as many
columns as other lines and one of their tags.

Files may be .gz. An example's text has space-separated words, and its label as many
space-separated tags.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.core.errors import RegardError, look_up
from regard.core.names import short
from regard.lab.data import arrow
from regard.lab.data.conllu import (
    FIELDS,
    NO_BREAK,
    BadSentence,
    is_conllu,
    no_comment,
    read_sentences,
)
from regard.lab.data.data_source import NAMED, Columns, DataSource, refuse
from regard.lab.data.examples import Example
from regard.lab.data.files import TOLERATED, Read
from regard.lab.data.lines import Lines, open_binary, path_of
from regard.lab.data.named import examples_of, must_be_found
from regard.lab.data.sources import Corpus, corpus_of, read_parts, split_off_test
from regard.lab.data.spelling import label_of

__all__ = ["CONLLU", "Span", "load_tagged", "mark_spans", "read_tagged", "spans", "words_of"]

#: Columns of CoNLL-U that can be tags, and their indexes.
CONLLU = {"lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "deprel": 7, "misc": 9}
OTHERS = (".csv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather")
REASON = "regard train tagging needs one word and tag per line (.conll, .txt, .tsv), or .conllu"
OUTSIDE = ("O", "_", "")
_marked = re.compile(r"[BIESLU]-.+")
_number = re.compile(r"\d+(?:[-.]\d+)?")
# URLs, mentions and hashtags, words with contractions split off, punctuation.
_word = re.compile(
    r"https?://\S+|[@#]\w+|\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\d+(?:[.,:]\d+)+"
    r"|\w+(?:-\w+)*|\.{2,}|[^\w\s]"
)


class Span(NamedTuple):
    """A span of a ``kind``: words ``first`` (inclusive) to ``last`` (exclusive) of a sentence."""

    first: int
    last: int
    kind: str


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans that tags B-, I-, E-, S- (or L-, U-) encode, as conlleval reads them.

    A span begins at B, S or U, and at any other mark after O or a different kind; it ends at E, S,
    L or U, and before a tag that does not continue it. Tjong Kim Sang & De Meulder 2003.

    >>> spans(["B-place", "I-place", "O", "I-person", "B-person"])
    [Span(first=0, last=2, kind='place'), Span(first=3, last=4, kind='person'), \
Span(first=4, last=5, kind='person')]
    """
    spans_found: list[Span] = []
    first, kind = -1, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        inside = tag not in OUTSIDE
        if first >= 0 and (not inside or mark in "BSU" or name != kind):
            spans_found.append(Span(first, place, kind))
            first = -1
        if inside and first < 0:
            first, kind = place, name
        if inside and mark in "ESLU":
            spans_found.append(Span(first, place + 1, kind))
            first = -1
    return spans_found


def mark_spans(tags: Iterable[str]) -> bool:
    """Return whether tags encode spans: all are O or B-, I-, E-, S-, L- or U- with a kind.

    >>> mark_spans(["O", "B-place", "I-place"]), mark_spans(["NOUN", "VERB"])
    (True, False)
    """
    named = [tag for tag in tags if tag not in OUTSIDE]
    return bool(named) and all(_marked.fullmatch(tag) for tag in named)


def words_of(text: str) -> list[str]:
    """Return the words of a plain text, with punctuation and contractions split off.

    >>> words_of("She isn't in New York.")
    ['She', 'is', "n't", 'in', 'New', 'York', '.']
    """
    return _word.findall(text)


def read_tagged(path: Path | str, columns: Columns = NAMED) -> Read:
    """Return the tagged sentences of a file; see the module.

    Words and tags are the columns ``text`` and ``label``, by number from 1; in CoNLL-U the tag is a
    name (upos, xpos, deprel, …) and the group a key of its comments. Sentences without words are
    skipped.

    Raises: by file:line, a row with another number of columns than the first, a line that is not
    UTF-8, invalid CoNLL-U, a tag with a space; no sentences; another kind of file.
    """
    place = path_of(path)
    name = place.name.lower().removesuffix(".gz")
    if name.endswith(OTHERS) or (place.is_dir() and arrow.is_arrow(place)):
        raise RegardError(f"{place}: {REASON}")
    notes: list[str] = []
    with open_binary(place) as file:
        lines = Lines(file, place.name)
        if is_conllu(place):
            rows = list(_parsed(lines, columns))
        elif columns.group:
            raise RegardError(
                f"group={columns.group} needs the comments of a .conllu file, not {place.name}; "
                "remove it"
            )
        else:
            table = _Table(lines, columns)
            rows, notes = list(table.sentences()), table.notes()
    examples = [row for row in rows if isinstance(row, Example)]
    bad = [row for row in rows if isinstance(row, str)]
    if bad and len(bad) > TOLERATED * len(rows):
        raise RegardError(bad[0] + (f"; {len(bad) - 1:,} more like it" if bad[1:] else ""))
    if not examples:
        raise RegardError(f"{place}: contains no tagged sentences")
    skipped = f"{len(bad):,} sentence{'s' * (len(bad) > 1)} skipped, first {bad[0]}" if bad else ""
    return Read(examples, [], [*notes, *([skipped] if skipped else [])])


def _parsed(lines: Lines, columns: Columns) -> Iterator[Example | str]:
    """Yield the sentences of CoNLL-U, or the error of one that may be skipped."""
    group = columns.group
    if columns.text:
        raise RegardError(
            f"text={columns.text}: a .conllu file has its words in the FORM column; remove it"
        )
    column = look_up(CONLLU, (columns.label or "upos").lower(), "column of CoNLL-U")
    first = True
    for here, sentence in read_sentences(lines, column):
        if isinstance(sentence, BadSentence):
            if not sentence.empty:
                raise RegardError(f"{here}: {sentence.why}")
            yield f"{here}: {sentence.why}"
            continue
        value = sentence.comment(group) if group else ""
        if first and value is None:
            raise no_comment(sentence, here, "group", group)
        first = False
        tags = " ".join(label_of(each).replace(" ", NO_BREAK) for each in sentence.tags)
        group_name = label_of(value or "")
        yield Example(" ".join(sentence.words), tags, here, group_name, sentence.parents)


class _Table:
    """The words of a file of columns, and comments, which may have as many columns.

    ``known`` has the values of each column in lines that do not begin with #.
    """

    def __init__(self, lines: Lines, columns: Columns) -> None:
        self.name = lines.name
        self.rows = list(_numbered(lines))
        self.comments: list[tuple[int, str]] = []  # with as many columns as words
        filled = [(number, line) for number, line in self.rows if line]
        plain = [(number, line) for number, line in filled if not line.startswith("#")]
        plain = plain or [(number, line) for number, line in filled if _cells(line)[0] != "#"]
        if not plain:
            raise RegardError(f"{self.name}: contains no tagged sentences")
        first, line = plain[0]
        self.here, self.width, self.tabs = f"{self.name}:{first}", len(_cells(line)), "\t" in line
        if self.width < 2:
            raise RegardError(f"{self.here}: only one column; {REASON}")
        self.word = _place(columns.text or "1", self.width, self.here)
        self.tag = _place(columns.label or str(self.width), self.width, self.here)
        whole = (cells for _, line in plain if len(cells := _cells(line)) == self.width)
        self.known = [{*column} for column in zip(*whole, strict=True)]
        self.marks = mark_spans(self.known[self.tag])
        self.by_default = not columns.text

    def sentences(self) -> Iterator[Example]:
        """Yield the sentences. Raises: by file:line, an invalid row; words that are numbers."""
        numbered = self.by_default
        words: list[str] = []
        tags: list[str] = []
        begin = 0
        for number, line in chain(self.rows, [(0, "")]):
            if not line:
                if words:
                    numbered = numbered and _are_numbers(words)
                    yield Example(" ".join(words), " ".join(tags), f"{self.name}:{begin}")
                words, tags = [], []
                continue
            if line.startswith("#") and self._is_comment(number, line, inside=bool(words)):
                continue
            here, cells = f"{self.name}:{number}", _cells(line)
            if len(cells) != self.width:
                raise RegardError(
                    f"{here}: {len(cells)} columns, but the rows before have {self.width}"
                )
            spelt, name = cells[self.word].replace(" ", NO_BREAK), label_of(cells[self.tag])
            if not spelt or not name or " " in name:
                what = (
                    f"the tag {name!r:.40} contains a space" if " " in name else "empty word or tag"
                )
                raise RegardError(f"{here}: {what}")
            begin = begin if words else number
            words.append(spelt)
            tags.append(name)
        if numbered:
            raise RegardError(
                f"{self.here}: the first column numbers the words; set text=2 (--text 2 for data "
                "check)" + (", or name the file .conllu" if self.width == FIELDS else "")
            )

    def notes(self) -> list[str]:
        """Return a note on the comments that have as many columns as words."""
        if not self.comments:
            return []
        number, line = self.comments[0]
        return [
            f"lines with # read as comments, though they have {self.width} columns as words do: "
            f"{len(self.comments):,}, first {self.name}:{number}: {line!r:.60}"
        ]

    def _is_comment(self, number: int, line: str, *, inside: bool) -> bool:
        """Return whether a line that begins with # is a comment.

        ``inside``: it follows a word of the same sentence, where comments are unusual.
        """
        cells = _cells(line if self.tabs else line.replace("\t", " "))
        if len(cells) != self.width or (self.tabs and "\t" not in line):
            return True
        others = [i for i in range(1, self.width) if i not in (self.word, self.tag)]
        tag = cells[self.tag]
        is_word = self.word == 0 and (
            tag in self.known[self.tag]
            or (mark_spans([tag, "B-any"]) if self.marks else tag == "#")  # its tag in the PTB
        )
        if cells[0] == "#":  # as before "sent_id = 1"
            alike = all(cells[i] in self.known[i] or cells[i] in "#_-" for i in others)
            is_word = is_word and (alike or (inside and "=" not in cells))
        if not is_word:
            self.comments.append((number, line))
        return not is_word


def _are_numbers(words: Sequence[str]) -> bool:
    """Return whether "words" are the numbers of the words of a sentence: 1, 2-3, 2, 3, ..."""
    return words[0].partition("-")[0] in ("0", "1") and all(map(_number.fullmatch, words))


def _numbered(lines: Lines) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; lines that end a sentence become empty."""
    for line in lines.sound():
        ends = not line.strip() or _cells(line)[0] == "-DOCSTART-"
        yield lines.number, "" if ends else line


def _cells(line: str) -> list[str]:
    """Return the columns of a line. Only tabs and spaces divide them: a word may have U+00A0."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.split("\t")]
    return [cell for cell in line.split(" ") if cell]


def _place(given: str, width: int, here: str) -> int:
    """Return the index of a column given by its number."""
    if not (given.isascii() and given.isdecimal()) or not 1 <= int(given) <= width:
        raise RegardError(
            f"{here}: {given!r:.20} is not one of the {width} columns; give a number from 1: "
            "text=1 label=2"
        )
    return int(given) - 1


def load_tagged(source: DataSource | Path | str) -> Corpus:
    """Return tagged sentences by name ("entities") or from files, with a test part.

    Without a test file a fifth is split off by a hash of each sentence, or of its group. Sentences
    in two parts are dropped from the earlier unless ``duplicates`` is "keep".
    Raises: as `read_tagged`; a single tag; an unknown name.

    >>> corpus = load_tagged("entities")
    >>> len(corpus.train), len(corpus.test)
    (2400, 600)
    """
    source = DataSource.of(source)
    data, columns, splits = source.name, source.columns, source.splits
    path = path_of(data)
    notes: list[str] = []
    parts = examples_of(data, "tagging", "tags")
    name = path.name if parts is None else short(data)
    if parts is not None:
        refuse(data, "has all its parts", **splits.files, **vars(columns))
        for example in chain.from_iterable(parts.values()):
            words, tags = (len(side.split(" ")) for side in (example.text, example.label))
            if words != tags:
                raise RegardError(
                    f"{example.source}: {words} words and {tags} tags; give one for each"
                )
    else:
        must_be_found(data, "tagging", "tags")
        parts, notes = read_parts(source, read_tagged)
    counts = Counter(name for example in parts["train"] for name in example.label.split(" "))
    if len(counts) < 2:
        only, times = next(iter(counts.items()))
        raise RegardError(f"{path}: all {times:,} words have the tag {only}; two tags are needed")
    by = columns.group or "sentence"
    notes += split_off_test(data, parts, {}, splits.seed, by, "sentences")
    return corpus_of(name, parts, notes, splits.duplicates, numbers=True)


def tags_by_name(path: Path | str) -> bool:
    """Return whether a file name is that of tagged words only, plain or .gz.

    >>> tags_by_name("wnut17-dev.conll.gz"), tags_by_name("notes.txt"), tags_by_name("a.conllu")
    (True, False, False)
    """
    return str(path).lower().removesuffix(".gz").endswith((".conll", ".iob", ".iob2", ".bio"))
