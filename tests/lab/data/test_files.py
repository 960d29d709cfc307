import gzip
import json

import pytest

from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import BadRow, Example
from regard.lab.data.files import read, read_examples, scan
from regard.lab.data.lines import LINE_LIMIT
from tests.lab.data.small_files import refused, write

GOOD = {
    "a.csv": "id,Review,SENTIMENT\n1,a great film,pos\n2,dull,neg\n",
    "b.csv.gz": "label,text\npos,a great film\nneg,dull\n",
    "c.csv": "\ufefftext,label\r\na great film,pos\r\n\r\ndull,neg\r\n",
    "d.csv": "text;label\na great film;pos\ndull;neg\n",
    "e.tsv": "text\tlabel\na great film\tpos\ndull\tneg",
    "f.TSV": 'sentence\tstars\n"a great film"\tpos\ndull\tneg\n',
    "g.jsonl": '{"text": "a great film", "label": "pos"}\n\n{"label": "neg", "text": "dull"}\n',
    "h.ndjson.gz": '{"Text": "a great film", "x": 1, "target": "pos"}\n'
    '{"target": "neg", "Text": "dull"}\n',
}


@pytest.mark.parametrize("name", GOOD)
def test_usual_files_give_their_rows(tmp_path, name):
    examples = read_examples(write(tmp_path / name, GOOD[name]))
    assert [(e.text, e.label) for e in examples] == [("a great film", "pos"), ("dull", "neg")]


def test_source_is_the_line_where_the_row_begins(tmp_path):
    path = write(tmp_path / "r.csv", 'text,label\n"one\ntwo ""deep""\n",a\n\nthree,b\n"four",c\n')
    assert read_examples(path) == [
        Example('one\ntwo "deep"\n', "a", "r.csv:2"),
        Example("three", "b", "r.csv:6"),
        Example("four", "c", "r.csv:7"),
    ]


def test_columns_by_name_and_by_number(tmp_path):
    path = write(tmp_path / "r.csv", "title,Body,score\nx,good one,5\ny,bad one,1\n")
    assert [e.label for e in read_examples(path, Columns(label="SCORE"))] == ["5", "1"]
    assert read_examples(path, Columns("title", "3"))[0].text == "x"
    bare = write(tmp_path / "bare.tsv", "good one\t5\nbad one\t1\n")
    assert read_examples(bare, Columns("1", "2")) == [
        Example("good one", "5", "bare.tsv:1"),
        Example("bad one", "1", "bare.tsv:2"),
    ]
    titled = write(tmp_path / "titled.tsv", "text\tlabel\ngood one\t5\nbad one\t1\n")
    assert len(read_examples(titled, Columns("1", "2"))) == 2
    ones = write(tmp_path / "ones.csv", "good,1\nbad,0\n")
    assert [x.label for x in read_examples(ones, Columns("1", "2"))] == ["1", "0"]
    for columns in ({"text": "text", "label": "2"}, {"text": "1", "label": "2", "group": "who"}):
        mixed = write(tmp_path / "mixed.csv", "text,y,who\ngood one,5,a\nbad one,1,b\n")
        assert [x.label for x in read_examples(mixed, Columns(**columns))] == ["5", "1"]
    pandas = write(tmp_path / "pandas.csv", "0,1\npos,good\nneg,bad\n")
    assert [x.text for x in read_examples(pandas, Columns("1", "0"))] == ["good", "bad"]


def test_usual_name_that_comes_first_in_the_list_wins(tmp_path):
    path = write(tmp_path / "r.csv", "rating,review,label,text\n9,no,pos,yes\n")
    assert read_examples(path) == [Example("yes", "pos", "r.csv:2")]


def test_labels_that_are_not_strings_are_written_as_json(tmp_path):
    lines = [json.dumps({"text": "x", "label": label}) for label in (1, True, 2.5, " a ")]
    path = write(tmp_path / "r.jsonl", "\n".join(lines))
    assert [e.label for e in read_examples(path)] == ["1", "true", "2.5", "a"]


def test_quotes_inside_tab_separated_fields_are_text(tmp_path):
    path = write(tmp_path / "r.tsv", 'text\tlabel\n"The" end"\t1\nsaid "so\t0\n"it ""is"""\t1\n')
    assert [e.text for e in read_examples(path)] == ['"The" end"', 'said "so', 'it "is"']


BAD = {
    "empty.csv": (b"", "is empty"),
    "header.csv": ("text,label\n", "no row has a text and a label"),
    "blank.csv": ("\n\n", "contains no rows"),
    "blank.jsonl": (" \n\n", "contains no rows"),
    "fields.csv": (
        "text,label\na,1\nb,c,1\n",
        "fields.csv:3: 3 fields, but the first row has 2",
    ),
    "columns.csv": ("title,stars\na,1\n", "columns.csv:1: cannot find the text column"),
    "bare.tsv": ("a great film\t1\n", "or numbers from 1: text=2 label=1"),
    "latin.csv": (
        "text,label\nfine,1\ncaf\xe9,1\n".encode("latin-1"),
        "latin.csv:3: not UTF-8 (byte 0xe9 at 4); save the file as UTF-8 (if it is Latin-1 or "
        "Windows-1252: iconv -f cp1252 -t utf-8 FILE > NEW)",
    ),
    "latin.tsv": ("text\tlabel\ncaf\xe9\t1\n".encode("latin-1"), "byte 0xe9 at 4"),
    "latin.jsonl": ('{"text":"caf\xe9","label":1}'.encode("latin-1"), "latin.jsonl:1: not UTF-8"),
    "wide.csv": (
        "text,label\nfine,1\n".encode("utf-16"),
        "wide.csv:1: UTF-16, not UTF-8; save the file as UTF-8 (iconv -f utf-16 -t utf-8",
    ),
    "long.csv": (b"text,label\n" + b"x" * 10_000_000 + b",1\n", "long.csv:2: the line is longer"),
    "long.jsonl.gz": (b'{"text": "' + b"x" * 10_000_000, "long.jsonl.gz:1: the line is longer"),
    "open.csv": ('text,label\nx,1\n"never closed,1\ny,2\n', "open.csv:3: unclosed quote"),
    "after.csv": ('text,label\n"so" he said,1\n', "after.csv:2: text after a closing quote"),
    "json.jsonl": (
        '{"text": "a", "label": 1}\n{"text": "b", \n',
        "json.jsonl:2: not JSON: Expecting property name enclosed",
    ),
    "deep.jsonl": ("[" * 100_000, "deep.jsonl:1: not JSON"),
    "list.jsonl": ('["a", 1]\n', "list.jsonl:1: not a JSON object"),
    "key.jsonl": ('{"text": "a", "label": 1}\n{"text": "b"}\n', "key.jsonl:2: missing key 'label'"),
    "nested.jsonl": (
        '{"text": {"en": "so"}, "label": 1}\n',
        'the text must be a string, not {"en": "so"}; write it as a separate field',
    ),
    "type.jsonl": ('{"text": 5, "label": 1}\n', "type.jsonl:1: the text must be a string, not 5"),
    "object.jsonl": ('{"text": "a", "label": {"a": 1}}\n', "a string, a number or a list of them"),
    "lists.jsonl": ('{"text": "a", "label": [[1]]}\n', "a string, a number or a list of them"),
    "half.jsonl": ('{"text": "a\\ud800", "label": 1}\n', "half.jsonl:1: unpaired surrogate"),
    "reviews.pdf": ("PK", "use a .csv, .tsv, .jsonl, .txt or .parquet file"),
    "reviews.xlsx": ("PK", "unsupported file type; save the sheet as CSV UTF-8"),
    "reviews.json": ("[{}]", "object per line: jq -c '.[]' FILE > NEW.jsonl"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, name):
    content, says = BAD[name]
    assert says in refused(write(tmp_path / name, content))


def test_wrong_columns_are_named_beside_those_there_are(tmp_path):
    path = write(tmp_path / "r.csv", "title,stars\na,1\n")
    assert refused(path, text="summary") == (
        "r.csv:1: unknown column 'summary'; columns: 'title', 'stars'; set text=NAME "
        "and label=NAME (--text, --label for data check and evaluate), or numbers from 1: "
        "text=2 label=1"
    )
    assert "2 columns, so no column 3" in refused(path, text="1", label="3")
    table = write(tmp_path / "g.csv", "text,label,customer\na,1,ann\n")
    assert refused(table, group="custmer") == (
        "g.csv:1: unknown column 'custmer'; did you mean 'customer'? Columns: 'text', 'label', "
        "'customer'; set group=NAME (--group for data check), or numbers from 1: group=3"
    )
    lines = write(tmp_path / "g.jsonl", '{"text": "a", "label": 1, "by": "ann"}\n')
    assert refused(lines, group="author").endswith(
        "unknown column 'author'; columns: 'text', 'label', 'by'; set group=NAME (--group for "
        "data check)"
    )
    assert "the same column, 'title'" in refused(path, text="title", label="1")


def test_what_is_no_file(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in refused(tmp_path / "folder.csv")
    assert "no such file" in refused(tmp_path / "none.csv")


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(b"text,label\n" + b"good film,pos\nbad film,neg\n" * 5000)
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-50])
    assert "truncated" in refused(tmp_path / "cut.csv.gz")
    (tmp_path / "plain.csv.gz").write_bytes(b"text,label\n")
    assert "damaged or not a gzip file" in refused(tmp_path / "plain.csv.gz")
    changed = bytearray(whole)
    changed[-6] ^= 255  # the checksum
    (tmp_path / "changed.csv.gz").write_bytes(changed)
    assert "damaged or not a gzip file" in refused(tmp_path / "changed.csv.gz")


def test_few_empty_rows_are_skipped_and_many_refused(tmp_path):
    rows = [f"film {i},{i % 2}" for i in range(299)]
    path = write(tmp_path / "few.csv", "\n".join(["text,label", *rows, " ,1"]))
    examples, empty, _ = read(path)
    assert len(examples) == 299
    assert empty == [BadRow("few.csv:301", "the text is empty", empty=True)]
    path = write(tmp_path / "many.csv", "\n".join(["text,label", "x,", *rows[:20]]))
    assert "many.csv:2: the label is empty; 1 of 21 rows are empty, more than 1%" in refused(path)


def test_scan_goes_on_after_bad_rows(tmp_path):
    content = b'text,label\na,1\nb\n"c"d,1\n\xff,1\n,1\ne,0\n'
    rows = list(scan(write(tmp_path / "r.csv", content)))
    assert [row.source for row in rows] == [f"r.csv:{line}" for line in range(2, 8)]
    assert [isinstance(row, Example) for row in rows] == [True, *[False] * 4, True]
    assert [row.empty for row in rows[1:-1]] == [False, False, False, True]


def test_line_at_the_limit_is_read(tmp_path):
    text = "x" * (LINE_LIMIT - len(",1\n"))
    path = write(tmp_path / "r.csv", f"text,label\n{text},1\n")
    assert read_examples(path) == [Example(text, "1", "r.csv:2")]


def test_a_group_that_is_null_is_none(tmp_path):
    rows = [{"text": "a", "label": 1, "by": None}, {"text": "b", "label": 0, "by": 7}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [example.group for example in read_examples(path, Columns(group="by"))] == ["", "7"]


def test_a_group_is_read_where_it_is_named(tmp_path):
    table = write(tmp_path / "r.tsv", "user\ttext\tlabel\nann\tgood\t1\nbob\tbad\t0\n")
    rows = '{"text": "good", "label": 1, "user": 7}\n{"text": "bad", "label": 0}\n'
    lines = write(tmp_path / "r.jsonl", rows)
    assert [e.group for e in read_examples(table, Columns(group="user"))] == ["ann", "bob"]
    assert [e.group for e in read_examples(table)] == ["", ""]
    assert "r.jsonl:2: missing key 'user'" in refused(lines, group="user")


@pytest.mark.parametrize("field", ["text", "label"])
def test_half_a_surrogate_pair_is_told_by_its_field(tmp_path, field):
    row = {"text": "fine", "label": "pos", field: "\ud800"}
    path = write(tmp_path / "r.jsonl", json.dumps(row) + '\n{"text": "good", "label": "neg"}\n')
    with pytest.raises(RegardError, match=f"r.jsonl:1: unpaired surrogate .* of the {field}"):
        read_examples(path)


def test_a_missing_key_counts_as_empty_as_null_does(tmp_path):
    rows = [f'{{"text": "film {i}", "label": "{i % 2}"}}' for i in range(200)]
    rows += ['{"text": "no label"}', '{"text": "none", "label": null}']
    path = write(tmp_path / "r.jsonl", "\n".join(rows).encode())
    found = read(path)
    assert len(found.examples) == 200
    assert [row.source for row in found.bad] == ["r.jsonl:201", "r.jsonl:202"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label,Split\na,x,train\nb,y,test\n"),
        ("a.jsonl", '{"text": "a", "label": "x", "Split": "train"}\n'),
    ],
)
def test_a_column_of_parts_is_not_ignored_without_a_word(tmp_path, name, content):
    path = write(tmp_path / name, content)
    (remark,) = read(path).remarks
    assert remark.startswith("the column 'Split' is not read; if it separates train and test")
    assert not read(write(tmp_path / name, content.replace("Split", "id"))).remarks
