import gzip
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from regard.core.errors import RegardError
from regard.lab.data import parallel
from regard.lab.data.data_source import Columns, DataSource, Limits, Splits
from regard.lab.data.named import RemoteFile, source_of
from regard.lab.data.pairs import Pair
from regard.lab.data.parallel import load_pairs, references
from regard.lab.data.sources import load_corpus
from regard.lab.data.splits import side_of
from tests.lab.data.small_files import refusal, write, zipped


def table(path, rows):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return str(path)


def sentences(count, extra=""):
    return [(f"Satz Nummer {i}{extra}", f"sentence number {i}") for i in range(count)]


refused = partial(refusal, load_pairs)


def sources(pairs):
    return {" ".join(pair.source.casefold().split()) for pair in pairs}


def test_no_source_text_stands_on_two_sides(tmp_path):
    rows = sentences(800)
    copies = [(f"  SATZ nummer {i} ", f"another sentence {i}") for i in range(400)]
    given = DataSource(table(tmp_path / "x.tsv", rows + copies), splits=Splits(validation=0.1))
    corpus = load_pairs(given)
    parts = corpus.train, corpus.validation, corpus.test
    assert sum(map(len, parts)) == 1200
    assert 30 < len(corpus.test) < 100
    assert 75 < len(corpus.validation) < 165
    assert len(set.union(*map(sources, parts))) == sum(len(sources(part)) for part in parts) == 800
    assert corpus.notes == (
        f"{len(corpus.validation)} pairs split off as validation, by a hash of the source",
        f"{len(corpus.test)} pairs split off as test, by a hash of the source",
    )
    assert load_pairs(DataSource(tmp_path / "x.tsv", splits=Splits(validation=0.1))) == corpus
    assert load_pairs(replace(given, splits=Splits(seed=1))).fingerprint != corpus.fingerprint
    fewer = load_pairs(given.at(table(tmp_path / "y.tsv", rows[::2])))
    assert sources(fewer.test) <= sources(corpus.test)


def test_composed_and_decomposed_letters_are_the_same_text():
    both = ["Caf\u00e9 {}", "Cafe\u0301 {}"]
    for i in range(200):
        one, two = (side_of(text.format(i), test=0.3, validation=0.3) for text in both)
        assert one == two


def test_own_test_file_takes_its_sources_from_train(tmp_path):
    rows = sentences(300)
    train = table(tmp_path / "train.tsv", [*rows, ("satz  nummer 7", "again")])
    test = table(tmp_path / "test.tsv", [rows[7], ("Neu.", "New.")])
    corpus = load_pairs(DataSource(train, splits=Splits(test=test)))
    assert [pair.target for pair in corpus.test] == ["sentence number 7", "New."]
    assert "satz nummer 7" not in sources(corpus.train) | sources(corpus.validation)
    assert len(corpus.train) + len(corpus.validation) == 299
    assert corpus.notes[-1].endswith("dropped: source also in validation or test")
    assert corpus.notes[-1].startswith("2 pairs of train")


def test_two_files_and_what_was_skipped(tmp_path):
    rows = sentences(300)
    (tmp_path / "x.de").write_text("\n".join([a for a, _ in rows] + ["zu lang " * 999, " \n"]))
    (tmp_path / "x.en").write_text("\n".join([b for _, b in rows] + ["too long", "alone"]))
    by_name = load_pairs(DataSource(tmp_path / "x", columns=Columns("de", "en")))
    assert by_name.notes[:2] == (
        "1 pair skipped, with an empty side, first x.de:302",
        "1 pair skipped, longer than 2,000 characters, first x.de:301",
    )
    by_file = load_pairs(DataSource(tmp_path / "x.de", target=str(tmp_path / "x.en")))
    assert by_file.fingerprint == by_name.fingerprint
    assert by_name.languages == ("de", "en")
    back = load_pairs(DataSource(tmp_path / "x", columns=Columns("en", "de")))
    assert back.fingerprint != by_name.fingerprint
    strict = Limits(too_long="refuse")
    sides = DataSource(str(tmp_path / "x.de"), target=str(tmp_path / "x.en"), limits=strict)
    assert "x.de:301: a text of" in refused(sides)


def test_examples_are_chosen_by_seed(tmp_path):
    path = table(tmp_path / "x.tsv", sentences(500))
    whole, some = load_pairs(path), load_pairs(DataSource(path, limits=Limits(examples=50)))
    assert len(some.train) == 50
    assert set(some.train) < set(whole.train)
    assert some.train != whole.train[:50]
    assert [pair.place for pair in some.train] == sorted(
        (pair.place for pair in some.train), key=lambda place: int(place.split(":")[1])
    )
    assert (some.test, some.validation) == (whole.test, whole.validation)
    assert f"50 of {len(whole.train)} pairs of train used, chosen by seed" in some.notes


def test_fingerprint_sees_texts_and_order(tmp_path):
    def fingerprint(*rows):
        test = table(tmp_path / "test.tsv", [("t", "t")])
        path = table(tmp_path / "x.tsv", [*sentences(100), *rows])
        return load_pairs(DataSource(path, splits=Splits(test=test))).fingerprint

    first = fingerprint(("x", "y"), ("z", "w"))
    assert first == fingerprint(("x", "y"), ("z", "w"))
    others = [("x", "yz"), ("w", "w")], [("z", "w"), ("x", "y")], [("x", "w"), ("z", "y")]
    assert len({first, *(fingerprint(*rows) for rows in others)}) == 4


def test_what_is_no_data(tmp_path):
    assert "did you mean multi30k?" in refused("multi30")
    assert "imdb has no text pairs; it is for classification" in refused("imdb")
    assert "reviews has no text pairs; it is for classification" in refused("reviews")
    assert "no such file" in refused(str(tmp_path / "none.tsv"))
    assert "no pairs for" in refused(table(tmp_path / "few.tsv", sentences(3)))
    same = table(tmp_path / "x.tsv", sentences(30))
    assert "no pairs for" in refused(DataSource(same, splits=Splits(test=same)))
    assert "reverse is generated; remove" in refused(
        DataSource("reverse", splits=Splits(test="x.tsv"))
    )
    assert "has both sides" in refused(DataSource("multi30k", target="x.de"))
    assert "a fraction between 0 and 1, not 1.5" in refusal(Splits, validation=1.5)
    assert "seed must be 0 or more, not -1" in refusal(Splits, seed=-1)
    assert "examples must be 0 or more, not -1" in refusal(Limits, examples=-1)


def test_pairs_are_no_labelled_texts():
    assert "dates has no texts with labels; it is for translat" in refusal(load_corpus, "dates")
    assert "multi30k has no texts with labels" in refusal(load_corpus, "multi30k")


def test_references_are_gathered_by_source():
    pairs = [Pair("Go.", "Va !", ""), Pair("Hi.", "Salut !", ""), Pair("Go.", "Marche.", "")]
    assert references(pairs) == (["Go.", "Hi."], [["Va !", "Marche."], ["Salut !"]])


def test_reverse():
    def drawn(seed):
        limits = Limits(examples=5_000)
        return load_pairs(DataSource("reverse", splits=Splits(seed=seed), limits=limits), letters=7)

    corpus = drawn(3)
    sizes = [len(part) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sizes == [5_000, 2_000, 2_000]
    assert corpus.test[3].target == corpus.test[3].source[::-1]
    assert corpus.test[3].place == "reverse/test:4"
    assert drawn(3).fingerprint == corpus.fingerprint
    assert drawn(4).test[0] != corpus.test[0]
    short = load_pairs(DataSource("reverse", limits=Limits(examples=9_000)), letters=3)
    parts = [{pair.source for pair in part} for part in (short.train, short.validation, short.test)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert short.notes[1] == (
        f"{9_000 - len(short.train):,} pairs of train dropped: source also in validation or test"
    )
    assert "letters=1 gives only 26 strings, too few" in refused("reverse", letters=1)


def test_dates():
    corpus = load_pairs(DataSource("dates", limits=Limits(examples=500)))
    assert len(corpus.train) == 500
    trained = {(pair.locale, pair.format) for pair in corpus.train}
    assert not trained & {(pair.locale, pair.format) for pair in corpus.test}
    assert not {p.target for p in corpus.train} & {p.target for p in corpus.test}
    assert corpus.languages == ("", "iso")
    assert "no date is in two splits" in corpus.notes[0]


def fake_multi30k(folder, names=("de", "en")):
    folder.mkdir(parents=True, exist_ok=True)
    splits = {"train": 40, "val": 5, "test_2016_flickr": 6, "test_2017_flickr": 7}
    for split, count in splits.items():
        for name in names:
            lines = [f"{name} {split} {i}\n" for i in range(count)]
            if split == "train":
                lines[3] = f"{name} test_2016_flickr 2\n"
            (folder / f"{split}.{name}").write_text("".join(lines))


def test_multi30k_has_its_own_splits(tmp_path):
    fake_multi30k(tmp_path / "multi30k", ("de", "en", "fr"))
    plain = tmp_path / "multi30k" / "train.en"
    plain.with_name("train.en.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    given = DataSource("multi30k", data_dir=tmp_path)
    corpus = load_pairs(given)
    sizes = [len(part) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sizes == [39, 5, 6]
    assert corpus.notes == ("1 pair of train dropped: source also in validation or test",)
    assert (corpus.languages, corpus.test[1].source) == (("de", "en"), "de test_2016_flickr 1")
    short = load_pairs(replace(given, limits=Limits(longest=len("de test_2016_flickr 2"))))
    assert len(short.train) == 39
    shorter = replace(given, limits=Limits(longest=len("de train 9")))
    assert "no text pairs" in refused(shorter)
    test = Splits(test="test_2017_flickr")
    other = load_pairs(replace(given, columns=Columns("en", "fr"), splits=test))
    assert (len(other.train), len(other.test)) == (40, 7)
    assert other.test[0].target == "fr test_2017_flickr 0"
    says = refused(replace(given, columns=Columns("de", "cs")))
    assert "needs train.de.gz, train.cs.gz" in says
    assert "not 'de' twice" in refused(replace(given, columns=Columns("de", "de")))


def test_multi30k_is_fetched_where_it_is_not(tmp_path, monkeypatch):
    asked = []

    def bring(name, data_dir, show=None):
        asked.append((name, data_dir))
        fake_multi30k(tmp_path / "cache")
        return [tmp_path / "cache" / "train.en.gz"]

    monkeypatch.setattr(parallel, "fetch", bring)
    assert len(load_pairs(DataSource("multi30k", data_dir=tmp_path)).train) == 39
    assert asked == [("multi30k", tmp_path)]
    names = {file.name for file in source_of("multi30k").files}
    assert {"test_2017_flickr.de.gz", "val.en.gz"} < names
    assert all(
        isinstance(f, RemoteFile) and len(f.sha256) == 64 for f in source_of("multi30k").files
    )


def test_eng_fra_is_split_by_its_english_side(tmp_path):
    rows = [(f"Sentence {i}.", f"Phrase {i} {k} !", "CC-BY") for i in range(900) for k in (1, 2)]
    rows += [("Only here.", "Phrase 5 1 !", "CC-BY")]
    (tmp_path / "eng-fra").mkdir()
    members = {"_about.txt": "Tab-delimited", "fra.txt": "".join("\t".join(x) + "\n" for x in rows)}
    zipped(tmp_path / "eng-fra" / "fra-eng.zip", members)
    given = DataSource("eng-fra", data_dir=tmp_path, splits=Splits(validation=0.1))
    there = load_pairs(given)
    back = load_pairs(replace(given, columns=Columns("fr", "en")))
    assert there.languages == back.languages[::-1] == ("en", "fr")
    assert len(there.train) + len(there.validation) + len(there.test) == 1801
    assert "not the edition of April 2019" in there.notes[0]
    english = [
        *({p.source for p in part} for part in (there.train, there.validation, there.test)),
        *({p.target for p in part} for part in (back.train, back.validation, back.test)),
    ]
    assert english[2] == english[5]
    assert not english[0] & english[1] | english[0] & english[2] | english[1] & english[2]
    assert not english[3] & english[4] | english[3] & english[5]
    assert not sources(back.train) & sources(back.test)
    assert not sources(back.train) & sources(back.validation)
    assert Counter(Counter(p.source for p in there.test).values()).keys() == {2}
    assert "en to fr or fr to en" in refused(replace(given, columns=Columns("en", "de")))


def test_eng_fra_that_is_not_there_says_where_to_get_it(tmp_path):
    says = refused(DataSource("eng-fra", data_dir=tmp_path))
    assert "download https://www.manythings.org/anki/fra-eng.zip manually" in says
    assert str(tmp_path / "eng-fra") in says


@pytest.mark.deep
def test_real_multi30k(real):
    if not (real / "multi30k" / "train.en.gz").is_file():
        pytest.skip("no Multi30k here")
    corpus = load_pairs(DataSource("multi30k", data_dir=real))
    sizes = [len(part) for part in (corpus.train, corpus.validation, corpus.test)]
    assert sizes == [28_999, 1_014, 1_000]
    assert corpus.test[0].target == "A man in an orange hat starring at something."
    assert corpus.train[0].place == "train.de.gz:1"
    assert not sources(corpus.train) & (sources(corpus.test) | sources(corpus.validation))


@pytest.mark.deep
def test_real_eng_fra(real):
    if not (real / "eng-fra" / "fra-eng.zip").is_file():
        pytest.skip("no English-French pairs here")
    corpus = load_pairs(DataSource("eng-fra", data_dir=real))
    parts = corpus.train, corpus.validation, corpus.test
    assert [len(part) for part in parts] == [160_807, 3_140, 3_183]
    assert corpus.train[0] == Pair("Go.", "Va !", "fra.txt:1")
    assert not any("edition" in note for note in corpus.notes)
    texts, wanted = references(corpus.test)
    assert len(texts) == 2_294
    assert max(map(len, wanted)) > 5


def test_a_file_for_validation(tmp_path):
    train = table(tmp_path / "train.tsv", [(f"s{i}", f"t{i}") for i in range(9)])
    held = table(tmp_path / "dev.tsv", [("S1", "t1"), ("x", "y"), ("z", "z")])
    test = table(tmp_path / "test.tsv", [("s2", "t2"), ("Z", "z")])
    corpus = load_pairs(DataSource(train, splits=Splits(validation=held, test=test)))
    assert [pair.source for pair in corpus.validation] == ["S1", "x"]
    assert [pair.source for pair in corpus.test] == ["s2", "Z"]
    assert [pair.source for pair in corpus.train] == ["s0", *(f"s{i}" for i in range(3, 9))]
    assert corpus.notes == (
        "1 pair of validation dropped: source also in test",
        "2 pairs of train dropped: source also in validation or test",
    )
    nowhere = Splits(validation=str(tmp_path / "none.tsv"), test=test)
    assert "none.tsv: no such file" in refusal(load_pairs, DataSource(train, splits=nowhere))
    with pytest.raises(RegardError, match="multi30k has its own validation part"):
        load_pairs(DataSource("multi30k", splits=Splits(validation=held)))


def test_labelled_texts_given_as_pairs(tmp_path):
    rows = [(f"film number {i}", "neg" if i % 2 else "pos") for i in range(400)]
    path = table(tmp_path / "r.tsv", rows)
    assert load_pairs(path).notes[0] == (
        "400 pairs have only 2 distinct target texts ('pos', 'neg', first r.tsv:1); for texts with "
        f"labels use regard train classification --data {path}"
    )
    pairs = table(tmp_path / "p.tsv", [(text, f"Film {text[-3:]}") for text, _ in rows])
    assert not any("labels" in note for note in load_pairs(pairs).notes)
    titled = write(
        tmp_path / "t.tsv", "text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows)
    )
    with pytest.raises(
        RegardError, match=r"t\.tsv:1: the columns 'text', 'label' look like texts w"
    ):
        load_pairs(str(titled))
    assert load_pairs(DataSource(titled, columns=Columns("text", "label"))).notes[0] == (
        f"400 pairs have only 2 distinct target texts ('pos', 'neg', first t.tsv:2); for texts "
        f"with labels use regard train classification --data {titled}"
    )
