import gzip
import io
import json
import zipfile

import pytest

from regard.core.errors import RegardError
from regard.lab.data import pair_files, pair_rows
from regard.lab.data.data_source import Columns, DataSource, Limits
from regard.lab.data.pair_files import PairStream, iterate_pairs, read_pairs
from regard.lab.data.pairs import Pair
from tests.lab.data.small_files import refusal, write, zipped

TEXTS = [("Ein Hund.", "A dog."), ("Zwei Hunde.", "Two dogs.")]


def texts(pairs):
    return [(pair.source, pair.target) for pair in pairs]


def refused(source):
    return refusal(lambda: list(iterate_pairs(source)))


GOOD = {
    "bare.tsv": "Ein Hund.\tA dog.\nZwei Hunde.\tTwo dogs.",
    "thirds.txt": "Ein Hund.\tA dog.\tCC-BY (x)\nZwei Hunde.\tTwo dogs.\tCC-BY (y)\n",
    "titled.tab.gz": "de\ten\r\nEin Hund.\tA dog.\r\n\r\n Zwei Hunde. \tTwo dogs.\r\n",
    "usual.csv": "\ufeffid,Target,Source\n1,A dog.,Ein Hund.\n2,Two dogs.,Zwei Hunde.\n",
    "languages.csv.gz": "id,de,en\n1,Ein Hund.,A dog.\n2,Zwei Hunde.,Two dogs.\n",
    "short.jsonl": '{"tgt": "A dog.", "src": "Ein Hund."}\n'
    '{"src": "Zwei Hunde.", "tgt": "Two dogs.", "x": 1}\n',
    "inside.ndjson.gz": '{"translation": {"de": "Ein Hund.", "en": "A dog."}}\n\n'
    '{"translation": {"en": "Two dogs.", "de": "Zwei Hunde."}}\n',
}


@pytest.mark.parametrize("name", GOOD)
def test_usual_files_give_their_pairs(tmp_path, name):
    assert texts(read_pairs(write(tmp_path / name, GOOD[name]))) == TEXTS


def test_two_files_side_by_side(tmp_path):
    write(tmp_path / "a.de", "Ein Hund.\nZwei Hunde.\u2028\n")
    beside = write(tmp_path / "a.en.gz", "A dog.\r\nTwo dogs.\n\n")
    expected = [Pair("Ein Hund.", "A dog.", "a.de:1"), Pair("Zwei Hunde.", "Two dogs.", "a.de:2")]
    assert read_pairs(DataSource(tmp_path / "a.de", target=beside)) == expected
    assert read_pairs(f"{tmp_path / 'a.de'},{beside}") == expected
    assert read_pairs(DataSource(tmp_path / "a", columns=Columns("de", "en"))) == expected
    back = read_pairs(DataSource(tmp_path / "a", columns=Columns("en", "de")))
    assert texts(back) == [pair[::-1] for pair in TEXTS]
    assert back[1].place == "a.en.gz:2"


def test_columns_by_name_and_by_number(tmp_path):
    path = write(tmp_path / "x.csv", "Frage,antwort,de\nWer?,Ich.,x\n")
    assert texts(read_pairs(DataSource(path, columns=Columns("antwort", "FRAGE")))) == [
        ("Ich.", "Wer?")
    ]
    bare = write(tmp_path / "x.tsv", "A dog.\tEin Hund.\n")
    assert texts(read_pairs(DataSource(bare, columns=Columns("2", "1")))) == TEXTS[:1]
    lines = write(tmp_path / "x.jsonl", '{"one": "A", "two": "B"}\n')
    assert texts(read_pairs(DataSource(lines, columns=Columns("two", "one")))) == [("B", "A")]


def test_first_pair_is_no_line_of_names(tmp_path):
    path = write(tmp_path / "x.tsv", "Hi\tJa\nNo\tIt\n")
    assert texts(read_pairs(path)) == [("Hi", "Ja"), ("No", "It")]
    path = write(tmp_path / "x.csv", "DE,EN\nHund,dog\n")
    assert texts(read_pairs(path)) == [("Hund", "dog")]


def test_quotes_in_tab_separated_texts_are_text(tmp_path):
    path = write(tmp_path / "x.tsv", '"Hallo", sagte er.\t"Hello," he said.\n"Geh!"\t"Go!"\n')
    assert texts(read_pairs(path))[1] == ('"Geh!"', '"Go!"')
    path = write(tmp_path / "x.csv", 'src,tgt\n"""Geh"", sagte\ner.",Go\n')
    assert texts(read_pairs(path)) == [('"Geh", sagte\ner.', "Go")]


def test_zip_members_are_streamed(tmp_path):
    table = "Ein Hund.\tA dog.\nZwei Hunde.\tTwo dogs.\n"
    path = zipped(
        tmp_path / "x.zip", {"d/_about.txt": "who?", "README.txt": "what?", "d/x.txt": table}
    )
    found = read_pairs(path)
    assert texts(found) == TEXTS
    assert found[0].place == "x.txt:1"
    assert texts(read_pairs(tmp_path / "x.zip" / "d" / "x.txt")) == TEXTS
    assert [item.name for item in tmp_path.iterdir()] == ["x.zip"]
    two = {"B.de-en.de": "Ein Hund.\nZwei Hunde.\n", "B.de-en.en": "A dog.\nTwo dogs.\n"}
    sides = zipped(tmp_path / "y.zip", two)
    assert texts(read_pairs(DataSource(sides, columns=Columns("de", "en")))) == TEXTS
    zipped(tmp_path / "z.zip", {"a.tsv": table, "b.jsonl": "{}"})
    says = refused(tmp_path / "z.zip")
    assert "cannot tell which member contains the pairs" in says
    assert "'a.tsv', 'b.jsonl'" in says
    assert "no member 'c.tsv'" in refused(tmp_path / "z.zip" / "c.tsv")
    whole = path.read_bytes()
    for end in (10, len(whole) // 2):
        write(tmp_path / "cut.zip", whole[:end])
        assert "cut.zip: truncated or not a zip archive" in refused(tmp_path / "cut.zip")
    place = whole.index(b"d/x.txt") + 12
    write(tmp_path / "bad.zip", whole[:place] + b"\xff\xff" + whole[place + 2 :])
    assert "bad.zip: truncated or not a zip archive" in refused(tmp_path / "bad.zip")


def test_zip_that_holds_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pair_files, "FILE_LIMIT", 5_000)
    path = zipped(tmp_path / "x.zip", {"x.tsv": "ja\tyes\n" * 1_000})
    assert "x.tsv:715: the file is larger than 5,000 bytes" in refused(path)


BAD = {
    "latin.tsv": ("gut\tgood\ncaf\xe9\tcoffee\n".encode("latin-1"), "latin.tsv:2: not UTF-8"),
    "latin.jsonl": ('{"de":"\xe9","en":"a"}'.encode("latin-1"), "latin.jsonl:1: not UTF-8"),
    "latin.csv": ("de,en\ngut,good\ncaf\xe9,x\n".encode("latin-1"), "iconv -f cp1252 -t utf-8"),
    "wide.tsv": ("gut\tgood\n".encode("utf-16"), "wide.tsv:1: UTF-16, not UTF-8"),
    "one.txt": ("only one side\n", "one.txt:1: no tab, so no second text"),
    "more.tsv": ("a\tb\nc\td\te\n", "more.tsv:2: 3 fields, but the first row has 2"),
    "fewer.tsv": ("a\tb\nc\n", "fewer.tsv:2: 1 fields, but the first row has 2"),
    "names.csv": (
        "id,note\n1,a\n",
        "names.csv:1: cannot tell source and target among the columns 'id'",
    ),
    "blank.tsv": ("\n\n", "blank.tsv: contains no rows"),
    "title.csv": ("source,target\n", "title.csv: contains no text pairs"),
    "number.jsonl": ('{"src": 3, "tgt": "x"}', "number.jsonl:1: a text must be a string, not 3"),
    "list.jsonl": ("[1]", "list.jsonl:1: not a JSON object"),
    "half.jsonl": (
        '{"src": "\\ud800", "tgt": "x"}',
        "half.jsonl:1: a text contains an unpaired surrogate",
    ),
    "keys.jsonl": (
        '{"src": "a", "tgt": "b"}\n{"src": "a"}\n',
        "keys.jsonl:2: missing key 'tgt'; keys: 'src'",
    ),
    "quote.csv": ('src,tgt\n"a,b\n', "quote.csv:2: unclosed quote"),
    "empty.tsv": ("", "is empty"),
    "what.pdf": ("x", "unsupported file type; use a .tsv"),
    "long.tsv": (b"a\t" + b"x" * 2_000_000, "long.tsv:1: the line is longer"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_errors_with_their_place(tmp_path, name):
    content, says = BAD[name]
    said = refused(write(tmp_path / name, content))
    assert says in said
    assert said.count("save the file") <= 1


def test_files_of_unequal_length(tmp_path):
    left = write(tmp_path / "a.de", "eins\nzwei\n")
    right = write(tmp_path / "a.en", "one\ntwo\nthree\nfour\n")
    says = "a.en:3: line without a counterpart: a.de has 2 lines, a.en 4"
    assert says in refused(DataSource(left, target=right))
    assert says in refused(DataSource(right, target=left))
    write(tmp_path / "a.de", "eins\nzwei\n\n\n\n\n\n")
    write(tmp_path / "a.en", "one\ntwo\n\n")
    assert len(read_pairs(DataSource(left, target=right))) == 2


def test_side_that_is_not_utf8(tmp_path):
    left = write(tmp_path / "a.de", "eins\nzw\xf6lf\n".encode("latin-1"))
    right = write(tmp_path / "a.en", "one\ntwelve\n")
    assert "a.de:2: not UTF-8 (byte 0xf6 at 3); save the file as UTF-8 (" in refused(
        DataSource(left, target=right)
    )


def test_files_that_are_not_there(tmp_path):
    write(tmp_path / "a.de", "eins\n")
    assert "no such file" in refused(tmp_path / "b.tsv")
    assert "a.en: no such file next to" in refused(
        DataSource(tmp_path / "a", columns=Columns("de", "en"))
    )
    assert "nor b.de and b.en" in refused(DataSource(tmp_path / "b", columns=Columns("de", "en")))
    assert "unknown column 'fr'" in refused(
        DataSource(write(tmp_path / "x.csv", "de,en\na,b\n"), columns=Columns("de", "fr"))
    )
    assert "not only 'de'" in refused(DataSource(tmp_path / "x.csv", columns=Columns("de")))
    assert "are the same column" in refused(
        DataSource(tmp_path / "x.csv", columns=Columns("de", "de"))
    )
    assert "2 columns, so no column 5" in refused(
        DataSource(tmp_path / "x.csv", columns=Columns("1", "5"))
    )


def test_empty_sides_are_noted_while_they_are_rare(tmp_path):
    rows = [f"Satz {i}\tsentence {i}" for i in range(300)]
    rows[7], rows[9], rows[11] = "Satz\t ", "\tsentence", "\t"
    stream = iterate_pairs(write(tmp_path / "x.tsv", "\n".join(rows)))
    assert len(list(stream)) == 297
    assert stream.notes == ("2 pairs skipped, with an empty side, first x.tsv:8",)
    rows[20:23] = ["Satz\t"] * 3
    says = refused(write(tmp_path / "x.tsv", "\n".join(rows)))
    assert "x.tsv:8: the target is empty; 5 of 299 pairs are incomplete, more than 1%" in says


def test_lines_without_end_are_dropped_or_refused(tmp_path):
    rows = ["Satz\tsentence", "viel " * 10_000 + "\tmuch", "Wort\t" + "word " * 500]
    path = write(tmp_path / "x.tsv", "\n".join(rows))
    stream = iterate_pairs(path)
    assert texts(stream) == [("Satz", "sentence")]
    assert stream.notes == ("2 pairs skipped, longer than 2,000 characters, first x.tsv:2",)
    assert (
        len(list(iterate_pairs(DataSource(path, limits=Limits(longest=0)))))
        == len(read_pairs(path))
        == 3
    )
    path = write(tmp_path / "x.tsv", "a\tb\nc\td\n" + rows[2])
    says = "x.tsv:3: a text of 2,499 characters exceeds the limit of 2,498"
    assert says in refused(DataSource(path, limits=Limits(longest=2_498, too_long="refuse")))
    assert (
        len(list(iterate_pairs(DataSource(path, limits=Limits(longest=2_499, too_long="refuse")))))
        == 3
    )
    path = write(tmp_path / "y.tsv", rows[1])
    assert "contains no text pairs: all 1 are longer than 2,000" in refused(path)


def test_a_stream_is_read_anew_each_time_and_held_nowhere(tmp_path):
    path = write(tmp_path / "x.tsv.gz", "".join(f"{i}\t{i + 1}\n" for i in range(1, 3_000)))
    stream = iterate_pairs(path)
    assert isinstance(stream, PairStream)
    first = iter(stream)
    assert next(first) == Pair("1", "2", "x.tsv.gz:1")
    first.close()
    assert sum(1 for _ in stream) == sum(1 for _ in stream) == 2_999
    assert "x.tsv.gz: more than 100 pairs do not fit" in refusal(read_pairs, path, most=100)


def test_what_is_streamed_may_be_larger_than_what_is_kept(monkeypatch):
    monkeypatch.setattr(pair_rows, "STREAMED", 10)
    sides = [io.BytesIO(b"a\n" * 6) for _ in range(2)]
    with pytest.raises(RegardError, match="a:6: the file is larger than 10 bytes"):
        list(pair_rows.side_by_side(sides[0], "a", sides[1], "b"))


def test_json_round_trip_keeps_every_character(tmp_path):
    odd = ["a\tb", "line\u2028break", "\u00a0x\u202f?", "“quoted” 电影 🎬", "back\\slash"]
    rows = [json.dumps({"source": text, "target": text[::-1]}) for text in odd]
    path = write(tmp_path / "x.jsonl", "\n".join(rows))
    assert [pair.source for pair in read_pairs(path)] == [text.strip() for text in odd]


def test_the_lone_line_that_is_named_is_the_first_with_a_text(tmp_path):
    write(tmp_path / "a.de", "eins\nzwei\n")
    write(tmp_path / "a.en", "one\ntwo\n\n\nthree\n\n")
    message = refused(DataSource(tmp_path / "a", columns=Columns("de", "en")))
    assert "a.en:5: line without a counterpart: a.de has 2 lines, a.en 6" in message


def test_what_else_stands_in_a_zip_is_no_pair(tmp_path):
    lines = {"B.de": "Ein Hund.\nZwei Hunde.\n", "B.en": "A dog.\nTwo dogs.\n"}
    beside = {"__MACOSX/._B.de": "x", "deep/._B.en": "y"}
    path = zipped(tmp_path / "a.zip", {**lines, **beside})
    assert texts(read_pairs(DataSource(path, columns=Columns("de", "en")))) == TEXTS
    packed = zipped(tmp_path / "b.zip", {"x.tsv.gz": gzip.compress(b"a\tb\n")})
    assert "'x.tsv.gz' is compressed twice; unpack it first" in refused(packed)


def test_a_damaged_member_is_an_error_in_a_line(tmp_path):
    path = zipped(tmp_path / "l.zip", {"x.tsv": "ein Hund\ta dog\n" * 2_000})
    whole = bytearray(path.read_bytes())
    whole[60:90] = bytes(30)
    path.write_bytes(whole)
    assert "truncated or not a zip archive" in refused(path)


@pytest.mark.deep
def test_what_grows_without_measure_is_refused_before_it_is_read(tmp_path):
    rows = b"ein Hund\ta dog\n" * 400_000
    packed = write(tmp_path / "x.tsv.gz", rows)
    assert "x.tsv.gz: the compression ratio exceeds 100" in refused(packed)
    assert "y.zip: the compression ratio exceeds 100" in refused(
        zipped(tmp_path / "y.zip", {"x.tsv": rows.decode()})
    )


def test_bzip2_in_a_zip_is_refused_for_it_is_unpacked_without_a_limit(tmp_path):
    path = zipped(tmp_path / "x.zip", {"x.tsv": "ein Hund\ta dog\n"}, zipfile.ZIP_BZIP2)
    assert "'x.tsv' uses compression method 12" in refused(path)


def test_names_of_members_stay_in_one_line(tmp_path):
    for name in ("a\nb.tsv", "a" * 300 + ".tsv"):
        says = refused(zipped(tmp_path / "x.zip", {name: "a\tb\n"}))
        assert says.startswith(f"{tmp_path / 'x.zip'}: member name ")
        assert len(says) < 300


def test_a_zip_with_a_directory_without_measure(tmp_path, monkeypatch):
    path = zipped(tmp_path / "x.zip", {f"{i}.bin": "" for i in range(50)})
    monkeypatch.setattr("regard.lab.data.archives.DIRECTORY", 1_000)
    assert "the zip directory exceeds 1,000 bytes" in refused(path)


def test_names_with_commas_and_columns_by_large_numbers(tmp_path):
    folder = tmp_path / "x,y"
    folder.mkdir()
    write(folder / "t.de", "Ein Hund.\nZwei Hunde.\n")
    write(folder / "t.en", "A dog.\nTwo dogs.\n")
    assert texts(read_pairs(DataSource(folder / "t", columns=Columns("de", "en")))) == TEXTS
    two = write(tmp_path / "two.tsv", "a\tb\n")
    assert "2 columns, so no column 10" in refused(DataSource(two, columns=Columns("10", "9")))


def test_marks_and_line_ends_of_other_systems(tmp_path):
    joined = write(tmp_path / "j.tsv", "Ein Hund.\tA dog.\n\ufeffZwei Hunde.\tTwo dogs.\n")
    assert texts(read_pairs(joined)) == TEXTS
    old = write(tmp_path / "old.tsv", "Ein Hund.\tA dog.\rZwei Hunde.\tTwo dogs.\r")
    assert texts(read_pairs(old)) == TEXTS
    blank = write(tmp_path / "b.csv", "\n\nde;en\nEin Hund.;A dog.\nZwei Hunde.;Two dogs.\n")
    assert texts(read_pairs(blank)) == TEXTS
