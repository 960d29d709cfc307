"""Checks of labelled texts before training: errors, oddities and truncation costs."""

import math
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.data import imdb
from regard.lab.data.balance import ADVICE, imbalance
from regard.lab.data.class_files import name_of
from regard.lab.data.data_source import DataSource
from regard.lab.data.examples import BadRow, Example
from regard.lab.data.fetch import Show
from regard.lab.data.files import collect, is_folder
from regard.lab.data.guess import guess
from regard.lab.data.label_lists import labels_in, looks_like_lists, separator_of
from regard.lab.data.labels import (
    advice,
    hardly_repeat,
    look_over,
    number_of,
    parse_labels,
    rename,
    spelt,
    why_no_number,
)
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA, is_own
from regard.lab.data.near_copies import leak
from regard.lab.data.sources import (
    Corpus,
    load_corpus,
    must_be_classes,
    separated,
    split_test,
)
from regard.lab.data.spelling import aligned, counted, likeness, meaningless
from regard.lab.data.splits import hold_out
from regard.lab.data.tagged import load_tagged, read_tagged, tags_by_name
from regard.lab.data.titles import OtherFileError, listed
from regard.lab.data.tokenizers import train_tokenizer

QUANTILES = {"shortest": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "longest": 1.0}
SIZES = {"shortest": "least", "longest": "largest"}  # titles of these quantiles for numbers
LENGTHS = (100, 200, 400, 800)  # words; reported truncation lengths, besides the requested one
LABELS_SHOWN = 12
BLOCK, LONG = 1_000, 10_000  # texts between progress reports; fewer texts than LONG need none
EXAMPLES = 10  # missing labels that are listed for a part
SHOWN = 20  # locations in the text report; the JSON has all

# Control and private-use characters, the replacement character, and UTF-8 decoded as
# Windows-1252 ("Ã©", "â€™").
_odd = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd]|Ã[\x80-¿]|â€")


@dataclass(frozen=True)
class Cut:
    """The cost of keeping only the first `length` words of each text."""

    length: int
    texts: float  # fraction of texts that lose words
    words: float  # fraction of all words that is lost


@dataclass(frozen=True)
class Part:
    """Statistics of one split."""

    name: str
    rows: int
    labels: dict[str, int]
    words: dict[str, int]  # quantiles of the texts' lengths
    cuts: list[Cut]
    copies: int  # rows whose text occurred in an earlier row
    bad: list[BadRow]
    groups: int  # number of distinct groups; 0 without a group column
    numbers: dict[str, float]  # quantiles of number labels; `labels` is then empty


@dataclass(frozen=True)
class Pair:
    """One text in two places, with its label in each."""

    first: str
    second: str
    labels: tuple[str, str]


@dataclass(frozen=True)
class Findings:
    """The result of `check`. `problems` are sentences, none for clean data."""

    name: str
    length: int  # words kept per text
    parts: list[Part]
    shared: list[Pair]  # texts in two parts
    conflicts: list[Pair]  # texts with two labels
    odd: dict[str, list[str]]  # suspicious characters, and the rows that contain them
    problems: list[str]
    groups: dict[str, list[str]]  # groups in two parts, and their first row in each
    uneven: list[str]  # sentences about rare or dominant labels
    remarks: list[str]  # how ambiguous files were read
    separator: str = ""  # between the labels of a row, if it has several
    task: str = "classification"  # that learns such labels

    def json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return a text report: a table, the problems, then their locations."""
        titles = ["", *(part.name for part in self.parts)]
        body = [f"{self.name}", "", *aligned([titles, *self._rows()]), ""]
        body += [f"! {problem}" for problem in self.problems] or ["no problems found"]
        body += [f"note: {sentence}" for sentence in (*self.remarks, *self.uneven)]
        body += [f"      {ADVICE}"] if self.uneven else []
        places = [f"{row.source}: {row.why}" for part in self.parts for row in part.bad]
        places += [f"{p.second}: same text as {p.first}" for p in self.shared]
        places += [
            f"{p.second}: label {p.labels[1]!r}; same text at {p.first}: label {p.labels[0]!r}"
            for p in self.conflicts
        ]
        places += [f"{b}: same group as {a}, {g!r}" for g, (a, b) in self.groups.items()]
        if places:
            body += ["", *places[:SHOWN]]
        if len(places) > SHOWN:
            body.append(f"… and {len(places) - SHOWN:,} more; --json lists all")
        return body

    def _share(self, part: Part, label: str) -> str:
        count = part.labels.get(label, 0)
        whole = part.rows if self.separator else sum(part.labels.values())
        return f"{count:,} ({count / max(1, whole):.1%})"

    def _rows(self) -> list[list[str]]:
        parts = self.parts
        labels = list(dict.fromkeys(label for part in parts for label in part.labels))
        rows = [["rows", *(f"{part.rows:,}" for part in parts)]]
        for label in labels[:LABELS_SHOWN]:
            rows.append([f"label {label[:30]}", *(self._share(part, label) for part in parts)])
        if len(labels) > LABELS_SHOWN:
            rows.append([f"… and {len(labels) - LABELS_SHOWN} more labels", *("" for _ in parts)])
        if parts[0].numbers:
            for name in QUANTILES:
                title = f"number, {SIZES.get(name, name)}"
                rows.append([title, *(f"{part.numbers.get(name, math.nan):g}" for part in parts)])
        if any(part.groups for part in parts):
            rows.append(["groups", *(f"{part.groups:,}" for part in parts)])
        for name in QUANTILES:
            rows.append([f"words, {name}", *(f"{part.words[name]:,}" for part in parts)])
        for place, cut in enumerate(parts[0].cuts):
            title = f"truncated to {cut.length} words: texts cut, words lost"
            if cut.length != self.length and not any(part.cuts[place].texts for part in parts):
                continue
            costs = (part.cuts[place] for part in parts)
            rows.append([title, *(f"{cost.texts:.1%}, {cost.words:.1%}" for cost in costs)])
        rows.append(["duplicate texts", *(f"{part.copies:,}" for part in parts)])
        rows.append(["rows without text or label", *(f"{_empty(p.bad):,}" for p in parts)])
        rows.append(["other bad rows", *(f"{len(p.bad) - _empty(p.bad):,}" for p in parts)])
        return rows


def check(
    data: Corpus | DataSource | Path | str,
    *,
    length: int = 400,
    numbers: bool = False,
    tags: bool = False,
    show: Show | None = None,
) -> Findings:
    """Check labelled texts: named data, a file (with test and validation files), or a corpus.

    Validation and test are files, and labels are renamed in all of them. Bad rows are
    collected, not raised; an error that makes a file unreadable is raised. Words are those of the
    tokenizer "words". Named data is checked before anything is dropped from train. With a `group`
    column, a group in two parts is a leak. Without `validation` a tenth is held out as in training,
    to detect near copies (`regard.lab.data.near_copies`). ``numbers``: the labels are regression
    targets (`regard train regression`), which is also assumed where they are numbers that hardly
    repeat. ``tags``: sentences with a tag per word (`regard train tagging`), also recognised by
    the file name. With a separator in the columns, or values that look like several labels, each
    row has several labels (`regard train multilabel`).
    """
    if length < 1:
        raise RegardError(f"length must be at least 1 word, not {length}")
    parts_read: list[Found]
    remarks: list[str] = []
    source = DataSource("") if isinstance(data, Corpus) else DataSource.of(data)
    named, files = source.name, source.splits.files
    own = bool(named) and is_own(named)
    used_for = DATA[named].used_for if named in DATA else ""
    numbers = numbers or used_for == "regression"
    tags = tags or used_for == "tagging" or (own and not used_for and tags_by_name(named))
    if used_for == "multilabel" and not source.columns.several:
        source = _with_separator(source, "any")
    if isinstance(data, Corpus):
        name, parts_read = data.name, [("train", data.train, []), ("test", data.test, [])]
    else:
        try:
            name, parts_read = _gather(source, remarks, numbers=numbers, tags=tags)
        except OtherFileError as error:
            raise RegardError(f"{error}; {_advice(named)}") from None
    rows, separator = parts_read[0][1], source.columns.separator
    if not tags and not numbers and not separator:
        sign = separator_of(example.label for example in rows)
        if sign and own and not isinstance(data, Corpus):  # again, since labels may be empty
            remark = (
                f"{looks_like_lists(rows, sign)}: checked as such; use regard train multilabel "
                f"separator={shlex.quote(sign)}, or --separator none to check each combination as "
                "one label"
            )
            again = check(_with_separator(source, sign), length=length, show=show)
            return replace(again, remarks=[remark, *again.remarks])
    several = source.columns.several and not numbers and not tags
    if several and own:
        told, separator = separated(name, [x for _, x, _ in parts_read], separator)
        parts_read = [(title, x, bad) for x, (title, _, bad) in zip(told, parts_read, strict=True)]
    classes = not numbers and not tags and not several
    if classes and hardly_repeat([example.label for example in rows]):
        numbers, classes = True, False
        remarks.append("the labels are numbers that hardly repeat; use regard train regression")
    if numbers:
        parts_read = [(part, *_with_numbers(examples, bad)) for part, examples, bad in parts_read]
    every = [(title, example) for title, examples, _ in parts_read for example in examples]
    lengths = _lengths([example.text for _, example in every], show)
    parts = []
    for title, examples, bad in parts_read:
        each = labels_in if several else str.split if tags else _only
        row = Counter(x for y in examples for x in each(y.label)) if not numbers else Counter()
        parts.append(_part(title, examples, bad, lengths[: len(examples)], length, numbers, row))
        lengths = lengths[len(examples) :]
    shared: list[Pair] = []
    conflicts: list[Pair] = []
    seen: dict[str, tuple[str, Example]] = {}
    reported: set[tuple[str, str]] = set()
    odd: dict[str, list[str]] = {}
    for title, example in every:
        key = likeness(example.text)
        where, first = seen.setdefault(key, (title, example))
        pair = Pair(first.source, example.source, (first.label, example.label))
        if where != title and (key, title) not in reported:
            reported.add((key, title))
            shared.append(pair)
        alike = numbers and number_of(first.label) == number_of(example.label)
        if first.label != example.label and not alike:
            conflicts.append(pair)
        strange = [*_odd.findall(example.text), *meaningless.findall(example.text)]
        for character in dict.fromkeys(strange):
            odd.setdefault(character, []).append(example.source)
    remarks += _decomposed([example for _, example in every])
    groups = _shared_groups(every)
    examples = parts_read[0][1]
    later_parts = parts_read[1:] if classes else []
    strange = [_strange_labels(examples, later, part) for part, later, _ in later_parts]
    problems = _problems(parts, filter(None, strange), shared, conflicts, odd, groups)
    if classes:
        try:
            problems += look_over(examples)
            if own and len(counts_of := Counter(x.label for x in examples)) > 1:
                must_be_classes(name, examples)
                if "test" not in files:
                    split_test(name, examples, counts_of)
        except RegardError as refusal:  # the error that training would raise
            problems.append(str(refusal))
    if own and "validation" not in files:
        problems += leak(*hold_out(examples), "validation", "validation=FILE")
    counts = {part.name: part.labels for part in parts}
    uneven = imbalance(parts[0].labels, counts.get("test")) if classes else []
    return Findings(
        name, length, parts, shared, conflicts, odd, problems, groups, uneven, remarks,
        separator if several else "",
        "regression" if numbers else "tagging" if tags else "multilabel" if several
        else "classification",
    )  # fmt: skip


def _with_separator(source: DataSource, separator: str) -> DataSource:
    return replace(source, columns=replace(source.columns, separator=separator))


def _only(label: str) -> list[str]:
    return [label]


Lengths = NDArray[np.int64]
Found = tuple[str, list[Example], list[BadRow]]


def _advice(data: str) -> str:
    """Return the remedy for a file whose columns were not found: options with likely columns."""
    try:
        guessed = guess(data)
    except RegardError:
        guessed = None
    if guessed and guessed.task == "classification" and guessed.settings:
        columns = (f"--{key} {shlex.quote(name)}" for key, name in guessed.settings.items())
        return f"they seem to be {' '.join(columns)}"
    return (
        "regard data check only reads texts with labels; text pairs and texts without labels are "
        "checked when regard train reads them"
    )


def _gather(
    source: DataSource, remarks: list[str], *, numbers: bool, tags: bool
) -> tuple[str, list[Found]]:
    data, columns, files = source.name, source.columns, source.splits.files
    path, read = path_of(data), read_tagged if tags else collect
    if tags and columns.labels:
        raise RegardError("--labels does not rename tags; remove --labels")
    labelled = not tags and (imdb.find(path) or not (path.is_file() or is_folder(path)))
    if data in DATA or labelled:
        whole = replace(source, splits=replace(source.splits, duplicates="keep"))
        corpus = load_tagged(whole) if tags else load_corpus(whole, numbers=numbers)
        return data, [("train", corpus.train, []), ("test", corpus.test, [])]
    names, parts = parse_labels(columns.labels), []
    for part, place in {"train" if files else "rows": data, **files}.items():
        rows = read(path_of(place), columns)
        parts.append((part, rows.examples, rows.bad))
        remarks += rows.remarks
    rename([example for _, examples, _ in parts for example in examples], names)  # errors
    return name_of(path), [
        (part, rename(examples, names, must_occur=False), bad) for part, examples, bad in parts
    ]


def _with_numbers(examples: list[Example], bad: list[BadRow]) -> tuple[list[Example], list[BadRow]]:
    """Return the rows whose label is a number, and the others as bad rows."""
    odd = [example for example in examples if number_of(example.label) is None]
    why = [BadRow(x.source, f"the label {why_no_number(x.label)}") for x in odd]
    return [example for example in examples if number_of(example.label) is not None], [*bad, *why]


def _part(
    name: str,
    examples: list[Example],
    bad: list[BadRow],
    lengths: Lengths,
    length: int,
    numbers: bool,
    labels: Counter[str],
) -> Part:
    quantiles = np.quantile(lengths, list(QUANTILES.values())) if examples else np.zeros(5)
    sizes = [number_of(example.label) or 0.0 for example in examples if numbers]
    spread = np.quantile(sizes, list(QUANTILES.values())).tolist() if sizes else []
    return Part(
        name,
        rows=len(examples) + len(bad),
        labels=dict(sorted(labels.items())),
        words={name: int(words) for name, words in zip(QUANTILES, quantiles, strict=True)},
        cuts=[_cut(lengths, at) for at in sorted({length, *LENGTHS})],
        copies=len(examples) - len({likeness(example.text) for example in examples}),
        bad=bad,
        groups=len({example.group for example in examples} - {""}),
        numbers=dict(zip(QUANTILES, spread, strict=False)),
    )


def _decomposed(examples: Sequence[Example]) -> list[str]:
    """Return a remark on texts with letters and accents apart (NFD), as file names of macOS."""
    apart = [x.source for x in examples if not unicodedata.is_normalized("NFC", x.text)]
    if not apart:
        return []
    return [
        f"{counted(len(apart), 'text')} not in Unicode's composed form (NFC), first {apart[0]}; "
        "tokenizer=words composes them, others read them as they are"
    ]


def _shared_groups(examples: Iterable[tuple[str, Example]]) -> dict[str, list[str]]:
    """Return the groups that occur in several parts, with their first row in each."""
    firsts: dict[str, dict[str, str]] = {}
    for part, example in examples:
        firsts.setdefault(example.group, {}).setdefault(part, example.source)
    return {g: list(rows.values()) for g, rows in firsts.items() if g and len(rows) > 1}


def _lengths(texts: Sequence[str], show: Show | None) -> Lengths:
    cutter = train_tokenizer("words", ["any word"], minimum=1)  # unknown words also count
    lengths: list[int] = []
    for start in range(0, len(texts), BLOCK):
        lengths += map(len, cutter.encode(texts[start : start + BLOCK]))
        if show is not None and len(texts) > LONG:
            show(len(lengths), len(texts), "texts")
    return np.array(lengths, dtype=np.int64)


def _cut(lengths: Lengths, length: int) -> Cut:
    lost = np.maximum(lengths - length, 0)
    return Cut(
        length,
        texts=float((lost > 0).mean()) if len(lengths) else 0.0,
        words=float(lost.sum() / max(1, lengths.sum())),
    )


def _problems(
    parts: Sequence[Part],
    strange: Iterable[str],
    shared: Sequence[Pair],
    conflicts: Sequence[Pair],
    odd: dict[str, list[str]],
    groups: dict[str, list[str]],
) -> list[str]:
    problems = []
    for part in parts:
        if empty := _empty(part.bad):
            problems.append(f"{part.name}: {counted(empty, 'row')} without text or label")
        if bad := len(part.bad) - empty:
            problems.append(f"{part.name}: {counted(bad, 'unreadable row')}")
        if part.copies:
            problems.append(f"{part.name}: {counted(part.copies, 'row')} with a duplicate text")
        if not part.labels and not part.numbers:
            problems.append(f"{part.name}: no row with a text and a label")
        if len(part.labels) == 1:
            problems.append(f"{part.name}: the only label is {next(iter(part.labels))!r}")
    problems += strange
    two = "both train and " + parts[1].name if len(parts) == 2 else "two parts"
    first = "train" if len(parts) == 2 else "the earlier one"
    if shared:
        problems.append(
            f"{counted(len(shared), 'text')} in {two}; training drops them from {first}"
        )
    if groups:
        problems.append(f"{counted(len(groups), 'group')} in {two}; training keeps them in both")
    if conflicts:
        problems.append(f"{counted(len(conflicts), 'row')} with a different label than a duplicate")
    for kind, rows_by_code in _odd_kinds(odd).items():
        rows = list(dict.fromkeys(source for c in rows_by_code for source in odd[c]))
        codes = ", ".join(" ".join(f"U+{ord(c):04X}" for c in pair) for pair in rows_by_code[:5])
        more = f" and {len(rows_by_code) - 5} more" if len(rows_by_code) > 5 else ""
        problems.append(f"{kind} in {counted(len(rows), 'text')}, first {rows[0]}: {codes}{more}")
    return problems


def _strange_labels(train: Sequence[Example], later: Sequence[Example], part: str) -> str:
    """Return a sentence on labels that only a later part has, with a likely cause."""
    known = {example.label for example in train}
    new = sorted({example.label for example in later} - known)
    if not new:
        return ""
    cause = _cause(known, new, [example.text for example in later], part)
    return f"labels in {part} only: {listed(new, EXAMPLES)}" + (f"; {cause}" if cause else "")


def _cause(known: set[str], new: Sequence[str], texts: Sequence[str], part: str) -> str:
    """Return why a part may have other labels than train, and the remedy; "" if unknown."""
    if not known:
        return ""
    if sum(text in known for text in texts) > len(texts) / 2:
        return (
            f"texts and labels seem to be swapped: the texts of {part} are labels of train; use "
            "the same column order in both files, or set --text and --label"
        )
    alike = {spelt(label): label for label in sorted(known)}
    if all(spelt(label) in alike for label in new):
        return (
            f"they differ from train only in case, whitespace or number format ({new[0]!r:.40} "
            f"is {alike[spelt(new[0])]!r:.40} in train); "
            f"{advice(new[0], alike[spelt(new[0])])}"
        )
    numbers = [all(number_of(x) is not None for x in labels) for labels in (new, known)]
    if numbers[0] != numbers[1]:
        first, second = ("numbers", "names") if numbers[0] else ("names", "numbers")
        return f"{part} has {first} where train has {second}; use the same labels in both files"
    return ""


def _odd_kinds(odd: dict[str, list[str]]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for character in sorted(odd, key=lambda character: -len(odd[character])):
        if character == "\ufffd":
            kind = "replacement characters (decoding errors)"
        elif meaningless.match(character):
            kind = "invisible characters"
        else:
            kind = (
                "unprintable characters" if len(character) == 1 else "UTF-8 decoded as Windows-1252"
            )
        kinds.setdefault(kind, []).append(character)
    return kinds


def _empty(bad: Iterable[BadRow]) -> int:
    return sum(row.empty for row in bad)
