"""Loading of text pairs by name or from files, in train, validation and test."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from regard.core.errors import RegardError
from regard.core.names import short
from regard.lab.data import dates as human_dates
from regard.lab.data import streamed
from regard.lab.data.data_source import Columns, DataSource, refuse
from regard.lab.data.fetch import Show, fetch, present
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA, must_be_found, parts_of, source_of
from regard.lab.data.pair_files import (
    MOST,
    TooManyError,
    bytes_of,
    collect,
    iterate_pairs,
)
from regard.lab.data.pairs import Pair, PairCorpus
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import SIDES, Side, chosen, fingerprint, in_three, moved, without_later
from regard.lab.data.strings import FIRST, Reversals, reversals
from regard.lab.data.titles import listed

TEST_SHARE, VALIDATION_SHARE = 0.05, 0.05  # of the source texts in files
SHARE_OF_ENG_FRA = 0.02  # of 116,830 English sentences, for the test and for validation
FEW = 20  # minimum pairs per distinct text of a side that looks like labels
DRAWN = {"reverse": 320_000, "dates": 100_000}  # training pairs; 320,000 are 5,000 batches of 64
HELD = 2_000  # generated pairs of validation and of test
TEST_OF_MULTI30K = "test_2016_flickr"
EDITION: Final = "65225fb476dc9a730b494e2f599d11c352697379351f0d8ead48ddc0ec9eae7f"  # fra-eng.zip


Parts = Mapping[Side, Sequence[Pair]]


def load_pairs(
    source: DataSource | Path | str,
    *,
    letters: int = 10,
    locales: Sequence[str] = (),
    show: Show | None = None,
) -> PairCorpus:
    """Return text pairs by name or from files, in train, validation and test.

    * "reverse": random strings of `letters` letters; "dates": see `regard.lab.data.dates`, of all
      `locales` or of some, tested on formats that do not occur in train. The limit of examples is
      the number of training pairs, drawn by the seed.
    * "multi30k": its own splits; test may be "test_2017_flickr". German to English, or as given
      by the columns text and label (de, en; others if the files exist).
    * "eng-fra": English to French or, by the columns (en, fr), back. Split by the English side.
    * a file, or two aligned ones (see `regard.lab.data.pair_files`). Files of validation and test
      are of the same kind ("FILE,FILE" for two); else a twentieth is split off.

    Splits are by a hash of the source text and of the seed, so that duplicates, and texts that
    differ only in case or whitespace, stay together. A pair of train or validation whose source
    still occurs in a later split is dropped and noted. All pairs are in memory, except that train
    stays on the disk for files of more than 200 MB (`regard.lab.data.streamed`), of which some
    5,000 pairs each are split off.

    >>> from regard.lab.data.data_source import Limits
    >>> corpus = load_pairs(DataSource("reverse", limits=Limits(1_000)), letters=4)
    >>> corpus.test[0].source, corpus.test[0].target
    ('MAVV', 'VVAM')
    """
    source = DataSource.of(source)
    data, splits, examples = source.name, source.splits, source.limits.examples
    names = source.columns.text, source.columns.label
    files = {"target": source.target, **splits.files}
    if data in DRAWN:
        refuse(data, "is generated", **files, source_name=names[0], target_name=names[1])
        many = examples or DRAWN[data]
        if data == "reverse":
            return _reverse(letters, splits.seed, many)
        return _dates(locales, splits.seed, many)
    usual = VALIDATION_SHARE
    if data in ("multi30k", "eng-fra"):
        refuse(data, "has both sides", target=source.target)
        refuse(data, "has its own validation part", **{**splits.files, "test": ""})
        load, usual = (_multi30k if data == "multi30k" else _eng_fra), SHARE_OF_ENG_FRA
        parts, notes, names = load(source, show)
    elif (given := parts_of(data, "translation", "text pairs")) is not None:
        refuse(data, "has all its parts", **files)
        parts = {
            side: [_pair(row, f"{data}/{side}:{i}") for i, row in enumerate(rows, 1)]
            for side, rows in given.items()
        }
        notes = []
    else:
        path = path_of(data)
        if not any(path.parent.glob(f"{path.name}.*")):  # the common prefix of two aligned files
            must_be_found(data, "translation", "text pairs")
        size = bytes_of(source)
        loaded = _own_files(source) if size <= streamed.LARGE else None
        if loaded is None:
            return streamed.stream_corpus(source, size)
        parts, notes = loaded
        notes += labels_in(parts["train"], data)
    back = data == "eng-fra" and names[0] == "fr"
    parts, more = _split(data, parts, splits.share or usual, usual, splits.seed, by_target=back)
    notes += more
    order = chosen(examples, len(parts["train"]), splits.seed)
    if order is not None:
        notes.append(f"{examples:,} of {len(parts['train']):,} pairs of train used, chosen by seed")
        parts = {**parts, "train": [parts["train"][i] for i in order]}
    return corpus_of(short(data) if data in DATA else data, parts, notes, names)


def _split(
    data: str, parts: Parts, validation: float, test: float, seed: int, *, by_target: bool
) -> tuple[Parts, list[str]]:
    """Split off missing parts, then drop pairs whose source occurs in a later split."""
    what = "target" if by_target else "source"
    shares = {"validation": validation, "test": test}
    shares = {side: 0.0 if side in parts else share for side, share in shares.items()}
    split = in_three(parts["train"], lambda pair: getattr(pair, what), seed=seed, **shares)
    notes = [
        f"{len(split[side]):,} pairs split off as {side}, by a hash of the {what}"
        for side in SIDES[1:]
        if side not in parts and split[side]
    ]
    whole = {**split, **{side: parts[side] for side in SIDES[1:] if side in parts}}
    kept, more = without_later(whole, lambda pair: pair.source, row="pair", what="source")
    if empty := [side for side, pairs in kept.items() if not pairs]:
        raise RegardError(
            f"{data}: no pairs for {empty[0]}; {len(parts['train']):,} are too few to split, or "
            "all occur in a later split; add pairs, or give a test file with test=FILE"
        )
    return kept, [*notes, *more]


def labels_in(pairs: Sequence[Pair], name: str) -> list[str]:
    """Return a warning if one side of many pairs has few distinct texts, like labels."""
    sides = {likeness(pair.source): pair for pair in pairs}, {likeness(x.target): x for x in pairs}
    few, many = sorted(sides, key=len)
    if len(many) < FEW or FEW * len(few) > len(many):
        return []
    which = "target" if few is sides[1] else "source"
    shown = [getattr(pair, which) for pair in islice(few.values(), 3)]
    return [
        f"{len(pairs):,} pairs have only {len(few):,} distinct {which} texts ({listed(shown)}, "
        f"first {pairs[0].place}); for texts with labels use "
        f"regard train classification --data {name}"
    ]


def corpus_of(name: str, parts: Parts, notes: list[str], names: tuple[str, str]) -> PairCorpus:
    """Return the splits as a corpus, with a digest of all texts."""
    texts = ([(pair.source, pair.target, "") for pair in parts[side]] for side in SIDES)
    train, validation, test = (parts[side] for side in SIDES)
    return PairCorpus(name, train, validation, test, fingerprint(*texts), tuple(notes), names)


def _pair(row: object, place: str) -> Pair:
    if isinstance(row, Pair):
        return row
    if isinstance(row, tuple | list) and len(row) == 2:
        source, target = row
        if isinstance(source, str) and isinstance(target, str):
            return Pair(source, target, place)
    raise RegardError(f"{place}: {row!r:.80} is not a pair such as ('a source', 'a target')")


def references(pairs: Iterable[Pair]) -> tuple[list[str], list[list[str]]]:
    """Return each distinct source text, in order of appearance, and all its targets.

    >>> texts = [("Go.", "Va !"), ("Hi.", "Salut !"), ("Go.", "Marche.")]
    >>> references(Pair(source, target, "") for source, target in texts)
    (['Go.', 'Hi.'], [['Va !', 'Marche.'], ['Salut !']])
    """
    targets: dict[str, list[str]] = {}
    for pair in pairs:
        targets.setdefault(pair.source, []).append(pair.target)
    return list(targets), list(targets.values())


def _reverse(letters: int, seed: int, examples: int) -> PairCorpus:
    counts: dict[Side, int] = {"train": examples, "validation": HELD, "test": HELD}
    drawn = {
        side: reversals(count, letters, 3 * seed + part, f"reverse/{side}")
        for part, (side, count) in enumerate(counts.items())
    }
    parts: dict[Side, Reversals] = {}
    notes, digest = [], hashlib.sha256()
    later = np.zeros(0, f"S{letters}")
    for side in SIDES[::-1]:
        strings = (drawn[side].letters + FIRST).view(f"S{letters}").ravel()
        fresh = ~np.isin(strings, later)
        parts[side] = Reversals(drawn[side].letters[fresh], drawn[side].name)
        if not fresh.all():
            notes.append(moved(int((~fresh).sum()), side, [*parts][:-1], "pair", "source"))
        if not fresh.any():
            raise RegardError(
                f"letters={letters} gives only {26**letters:,} strings, too few for three splits; "
                "use letters=4 or more"
            )
        later = np.concatenate([later, strings])
        digest.update(parts[side].letters.tobytes())
    return PairCorpus(
        "reverse",
        parts["train"],
        parts["validation"],
        parts["test"],
        digest.hexdigest(),
        tuple(notes),
    )


def _dates(locales: Sequence[str], seed: int, examples: int) -> PairCorpus:
    parts: Parts = {
        "train": human_dates.dates(examples, seed, locales=locales),
        "validation": human_dates.dates(HELD, seed, split="validation", locales=locales),
        "test": human_dates.dates(HELD, seed, split="formats", locales=locales),
    }
    used, held = (
        len({(c.locale, c.format) for c in human_dates.combinations(held_out=out)
             if not locales or c.locale in locales})
        for out in (False, True)
    )  # fmt: skip
    notes = [
        f"train and validation use {used} date formats of "
        f"{len(locales or human_dates.LOCALES)} locales, test {held} other formats; no date is in "
        "two splits"
    ]
    return corpus_of("dates", parts, notes, ("", "iso"))


Loaded = tuple[Parts, list[str], tuple[str, str]]


def _multi30k(source: DataSource, show: Show | None) -> Loaded:
    names = source.columns.text, source.columns.label
    data_dir = source.data_dir or None
    if any(names) and not all(names):
        raise RegardError(
            "set both languages of multi30k or neither: source_name=de target_name=en"
        )
    names = (names[0], names[1]) if all(names) else ("de", "en")
    if names[0] == names[1]:
        raise RegardError(f"multi30k needs two different languages, not {names[0]!r} twice")
    folder = present("multi30k", data_dir)
    test = source.splits.test or TEST_OF_MULTI30K
    files: dict[Side, str] = {"train": "train", "validation": "val", "test": test}
    wanted = [f"{file}.{name}.gz" for file in files.values() for name in names]
    fetched = {file.name for file in source_of("multi30k").files}
    if (folder is None or not _all_there(folder, wanted)) and set(wanted) <= fetched:
        folder = fetch("multi30k", data_dir, show=show)[0].parent
    if folder is None or not _all_there(folder, wanted):
        there = sorted(path.name for path in folder.glob("*.gz")) if folder else sorted(fetched)
        raise RegardError(
            f"multi30k from {names[0]} to {names[1]}, tested on {test}, needs "
            f"{', '.join(wanted)}; available: {', '.join(there)}"
        )
    streams = {
        side: iterate_pairs(replace(source, data=folder / file, columns=Columns(*names)))
        for side, file in files.items()
    }
    parts: Parts = {side: collect(stream) for side, stream in streams.items()}
    return parts, [note for stream in streams.values() for note in stream.notes], names


def _all_there(folder: Path, names: Iterable[str]) -> bool:
    return all((folder / n).is_file() or (folder / n).with_suffix("").is_file() for n in names)


def _eng_fra(source: DataSource, show: Show | None) -> Loaded:
    names = source.columns.text, source.columns.label
    data_dir = source.data_dir or None
    languages = {"": "", "en": "en", "eng": "en", "fr": "fr", "fra": "fr"}
    direction = tuple(languages.get(name.strip().lower(), "?") for name in names)
    if direction not in (("", ""), ("en", "fr"), ("fr", "en")):
        raise RegardError(
            f"eng-fra translates en to fr or fr to en, not {names[0]!r} to {names[1]!r}"
        )
    if source.splits.test:
        raise RegardError("eng-fra is split by its English side; remove test=FILE")
    folder = present("eng-fra", data_dir)
    if folder is None:
        folder = fetch("eng-fra", data_dir, show=show)[0].parent
    archive = folder / "fra-eng.zip"
    path = archive if archive.is_file() else folder / "fra.txt"
    back = direction == ("fr", "en")
    columns = Columns("2", "1") if back else Columns("1", "2")
    stream = iterate_pairs(replace(source, data=path, columns=columns))
    pairs = collect(stream)
    notes = list(stream.notes)
    if path != archive or hashlib.sha256(path.read_bytes()).hexdigest() != EDITION:
        notes.append(
            f"{path.name} is not the edition of April 2019 that regard's published results use"
        )
    return {"train": pairs}, notes, ("fr", "en") if back else ("en", "fr")


def _own_files(source: DataSource) -> tuple[Parts, list[str]] | None:
    """Return the pairs of the files, and notes; None if they do not fit into memory."""
    train = iterate_pairs(source)
    try:
        parts: dict[Side, Sequence[Pair]] = {"train": collect(train, MOST)}
    except TooManyError:
        return None
    held, notes = streamed.held_pairs(source)
    return {**parts, **held}, [*train.notes, *notes]
