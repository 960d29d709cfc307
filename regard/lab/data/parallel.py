"""Loading of text pairs by name or from files, in train, validation and test."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from regard.core.errors import RegardError, look_up
from regard.core.names import short
from regard.lab.data import dates as human_dates
from regard.lab.data import streamed
from regard.lab.data.fetch import Show, fetch, present
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA, parts_of, source_of
from regard.lab.data.pair_files import (
    LONGEST,
    MOST,
    PairStream,
    TooLong,
    TooManyError,
    bytes_of,
    called,
    collect,
    files_of,
    holding,
    iterate_pairs,
    read_pairs,
)
from regard.lab.data.pair_splits import (
    LAST_FIRST,
    Parts,
    Side,
    corpus_of,
    dropped,
    in_three,
    labels_in,
    side_of,
)
from regard.lab.data.pairs import Pair, PairCorpus
from regard.lab.data.spelling import likeness
from regard.lab.data.strings import FIRST, Reversals, reversals

__all__ = [
    "Pair",
    "PairCorpus",
    "PairStream",
    "iterate_pairs",
    "load_pairs",
    "read_pairs",
    "references",
    "side_of",
]

TEST_SHARE, VALIDATION_SHARE = 0.05, 0.05  # of the source texts in files
SHARE_OF_ENG_FRA = 0.02  # of 116,830 English sentences, for the test and for validation
DRAWN = {"reverse": 320_000, "dates": 100_000}  # training pairs; 320,000 are 5,000 batches of 64
HELD = 2_000  # generated pairs of validation and of test
TEST_OF_MULTI30K = "test_2016_flickr"
EDITION: Final = "65225fb476dc9a730b494e2f599d11c352697379351f0d8ead48ddc0ec9eae7f"  # fra-eng.zip


def load_pairs(
    data: str,
    *,
    target: str = "",
    test: str = "",
    source_name: str = "",
    target_name: str = "",
    data_dir: Path | str | None = None,
    letters: int = 10,
    locales: Sequence[str] = (),
    validation: float | str | None = None,
    seed: int = 0,
    examples: int = 0,
    longest: int = LONGEST,
    too_long: TooLong = "drop",
    show: Show | None = None,
) -> PairCorpus:
    """Return text pairs by name or from files, in train, validation and test.

    * "reverse": random strings of `letters` letters; "dates": see `regard.lab.data.dates`, of all
      `locales` or of some, tested on formats that do not occur in train. Both have `examples`
      training pairs, drawn by `seed`.
    * "multi30k": its own splits; `test` may be "test_2017_flickr". German to English, or as given
      by `source_name` and `target_name` (de, en; others if the files exist).
    * "eng-fra": English to French or, by the names (en, fr), back. Split by the English side.
    * a file, or two aligned ones (`target` is the second; see `regard.lab.data.pair_files`). `test`
      is a file of the same kind ("FILE,FILE" for two); else a twentieth is split off.

    Splits are by a hash of the source text and of `seed`, so that duplicates, and texts that differ
    only in case or whitespace, stay together; `validation` is the fraction of the rest, or for
    files a file of the same kind as `test`. A pair of train or validation whose source still
    occurs in a later split is dropped and noted. `examples` (0: all) limits the pairs of train,
    chosen by `seed`. All pairs are in memory, except that train stays on the disk for files of more
    than 200 MB (`regard.lab.data.streamed`), of which some 5,000 pairs each are split off.

    >>> corpus = load_pairs("reverse", letters=4, examples=1_000)
    >>> corpus.test[0].source, corpus.test[0].target
    ('MAVV', 'VVAM')
    """
    if examples < 0 or seed < 0:
        raise RegardError(f"examples and seed must be 0 or more, not {examples} and {seed}")
    held = validation if isinstance(validation, str) else ""
    share = None if isinstance(validation, str) else validation
    if share is not None and not 0 < share < 1:
        raise RegardError(f"validation must be a fraction between 0 and 1, not {share}")
    if held and data in (*DRAWN, "multi30k", "eng-fra"):
        raise RegardError(f"{data} has its own validation part; validation=FILE needs data=FILE")
    names = source_name, target_name
    if data in DRAWN:
        if test or target or any(names):
            raise RegardError(
                f"{data} is generated; remove target, test, source_name and target_name"
            )
        many = examples or DRAWN[data]
        if data == "reverse":
            return _reverse(letters, seed, many)
        return _dates(locales, seed, many)
    reading: Reading = partial(iterate_pairs, longest=longest, too_long=too_long)
    if data in ("multi30k", "eng-fra"):
        if target:
            raise RegardError(f"{data} has both sides; target=FILE needs data=FILE")
        load = _multi30k if data == "multi30k" else _eng_fra
        parts, notes, names = load(data_dir, names, test, show, reading)
        shares = SHARE_OF_ENG_FRA, share or SHARE_OF_ENG_FRA
    elif (given := parts_of(data, "translation", "text pairs")) is not None:
        if target or test or held:
            raise RegardError(f"{data} has all its parts; remove target, test and validation=FILE")
        parts = {side: _pairs(data, side, given[side]) for side in LAST_FIRST if side in given}
        notes = []
        shares = TEST_SHARE, share or VALIDATION_SHARE
    else:
        _must_be_pairs(data)
        size = bytes_of(data, target, *names)
        named = partial(reading, source_name=names[0], target_name=names[1])
        files: dict[Side, str] = {"validation": held, "test": test}
        loaded = _own_files(data, target, files, named) if size <= streamed.LARGE else None
        if loaded is None:
            return _streamed(data, target, files, names, size, share, seed, examples, named)
        parts, notes = loaded
        notes += labels_in(parts["train"], data)
        shares = TEST_SHARE, share or VALIDATION_SHARE
    by_target = data == "eng-fra" and names[0] == "fr"
    parts = in_three(data, parts, notes, shares, seed, by_target=by_target)
    if 0 < examples < len(parts["train"]):
        random = np.random.Generator(np.random.PCG64(seed))
        chosen = np.sort(random.permutation(len(parts["train"]))[:examples]).tolist()
        notes.append(f"{examples:,} of {len(parts['train']):,} pairs of train used, chosen by seed")
        parts["train"] = [parts["train"][i] for i in chosen]
    return corpus_of(short(data) if data in DATA else data, parts, notes, names)


def _pairs(data: str, side: str, rows: Iterable[object]) -> list[Pair]:
    return [_pair(row, f"{data}/{side}:{i}") for i, row in enumerate(rows, 1)]


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


def _must_be_pairs(data: str) -> None:
    """Raise an error for a name that is neither a file nor data with pairs."""
    path = path_of(data)
    known = [*DRAWN, "multi30k", "eng-fra"]
    if path.exists() or path.suffix or len(path.parts) != 1 or "," in data:
        return
    if any(path.parent.glob(f"{path.name}.*")):
        return  # the common prefix of two aligned files
    if data in DATA:
        used_for = DATA[data].used_for
        raise RegardError(
            f"{data} has no text pairs; it is for {used_for}. Data with pairs: {', '.join(known)}"
        )
    look_up(dict.fromkeys(known), data, "data set or file")


def _reverse(letters: int, seed: int, examples: int) -> PairCorpus:
    counts: dict[Side, int] = {"train": examples, "validation": HELD, "test": HELD}
    drawn = {
        side: reversals(count, letters, 3 * seed + part, f"reverse/{side}")
        for part, (side, count) in enumerate(counts.items())
    }
    parts: dict[Side, Reversals] = {}
    notes, digest = [], hashlib.sha256()
    later = np.zeros(0, f"S{letters}")
    for side in LAST_FIRST:
        strings = (drawn[side].letters + FIRST).view(f"S{letters}").ravel()
        fresh = ~np.isin(strings, later)
        parts[side] = Reversals(drawn[side].letters[fresh], drawn[side].name)
        if not fresh.all():
            notes.append(dropped(int((~fresh).sum()), side))
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


Reading = Callable[..., PairStream]  # `iterate_pairs` with the common options
Loaded = tuple[Parts, list[str], tuple[str, str]]


def _multi30k(
    data_dir: Path | str | None,
    names: tuple[str, str],
    test: str,
    show: Show | None,
    reading: Reading,
) -> Loaded:
    if any(names) and not all(names):
        raise RegardError(
            "set both languages of multi30k or neither: source_name=de target_name=en"
        )
    names = (names[0], names[1]) if all(names) else ("de", "en")
    if names[0] == names[1]:
        raise RegardError(f"multi30k needs two different languages, not {names[0]!r} twice")
    folder = present("multi30k", data_dir)
    test = test or TEST_OF_MULTI30K
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
        side: reading(folder / file, source_name=names[0], target_name=names[1])
        for side, file in files.items()
    }
    parts: Parts = {side: collect(stream) for side, stream in streams.items()}
    return parts, [note for stream in streams.values() for note in stream.notes], names


def _all_there(folder: Path, names: Iterable[str]) -> bool:
    return all((folder / n).is_file() or (folder / n).with_suffix("").is_file() for n in names)


def _eng_fra(
    data_dir: Path | str | None,
    names: tuple[str, str],
    test: str,
    show: Show | None,
    reading: Reading,
) -> Loaded:
    languages = {"": "", "en": "en", "eng": "en", "fr": "fr", "fra": "fr"}
    direction = tuple(languages.get(name.strip().lower(), "?") for name in names)
    if direction not in (("", ""), ("en", "fr"), ("fr", "en")):
        raise RegardError(
            f"eng-fra translates en to fr or fr to en, not {names[0]!r} to {names[1]!r}"
        )
    if test:
        raise RegardError("eng-fra is split by its English side; remove test=FILE")
    folder = present("eng-fra", data_dir)
    if folder is None:
        folder = fetch("eng-fra", data_dir, show=show)[0].parent
    archive = folder / "fra-eng.zip"
    path = archive if archive.is_file() else folder / "fra.txt"
    back = direction == ("fr", "en")
    columns = ("2", "1") if back else ("1", "2")
    stream = reading(path, source_name=columns[0], target_name=columns[1])
    pairs = collect(stream)
    notes = list(stream.notes)
    if path != archive or hashlib.sha256(path.read_bytes()).hexdigest() != EDITION:
        notes.append(
            f"{path.name} is not the edition of April 2019 that regard's published results use"
        )
    return {"train": pairs}, notes, ("fr", "en") if back else ("en", "fr")


def _own_files(
    data: str, target: str, files: Mapping[Side, str], reading: Reading
) -> tuple[Parts, list[str]] | None:
    """Return the pairs of the files, and notes; None if they do not fit into memory."""
    train = reading(data, target or None)
    try:
        parts: Parts = {"train": collect(train, MOST)}
    except TooManyError:
        return None
    notes = list(train.notes)
    for side, file in files.items():
        if file:
            stream = reading(file)
            parts[side] = collect(stream, MOST)
            notes += stream.notes
    return parts, notes


def _streamed(
    data: str,
    target: str,
    given: Mapping[Side, str],
    names: tuple[str, str],
    size: int,
    validation: float | None,
    seed: int,
    examples: int,
    reading: Reading,
) -> PairCorpus:
    """Return a corpus of files that exceed the memory; small parts are held out."""
    shares = (
        0.0 if given["test"] else streamed.share_of(size, TEST_SHARE),
        0.0 if given["validation"] else validation or streamed.share_of(size, VALIDATION_SHARE),
    )

    def side(unit: str) -> str:
        return side_of(unit, test=shares[0], validation=shares[1], seed=seed)

    held: dict[str, Sequence[Pair]] = {}
    notes: list[str] = []
    for part, file in given.items():
        if file:
            beside = reading(file)
            held[part] = collect(beside)
            notes += beside.notes
    files = [path for path in files_of(data, target, *names) if path is not None]
    stream = reading(data, target or None)
    return streamed.stream_corpus(
        data,
        stream,
        [holding(path) for path in files],
        side_of=side,
        key=likeness,
        given=held,
        examples=examples,
        seed=seed,
        notes=notes,
        says=f"{names} {shares} {stream.longest} {[called(path) for path in files]}",
        languages=names,
    )
