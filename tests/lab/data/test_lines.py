"""Lines of every kind of end, in every reader."""

import io
import itertools
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.cli.predict import lines as typed
from regard.lab.data.birthplaces import read_answers
from regard.lab.data.class_files import rows
from regard.lab.data.columns import read_columns
from regard.lab.data.data_source import DataSource
from regard.lab.data.examples import Example
from regard.lab.data.files import read
from regard.lab.data.guess import guess
from regard.lab.data.lines import Lines, RawLines
from regard.lab.data.pair_files import read_pairs
from regard.lab.data.predictions import read_predictions
from regard.lab.data.tagged import read_tagged
from regard.lab.data.text_files import files_at
from regard.lab.data.text_rows import documents, text_rows
from regard.lab.data.vectors import load_vectors
from tests.lab.data.small_files import write, zipped


def test_lines_end_as_they_do_for_str_splitlines() -> None:
    for parts in itertools.product([b"a", b"", b"bc"], [b"\n", b"\r\n", b"\r"], repeat=3):
        content = b"".join(parts)
        if b"\r\r\n" not in content:
            assert list(RawLines(io.BytesIO(content))) == content.splitlines(keepends=True)
    twice = b"a\r\r\nb\r\r\n"  # \n became \r\n two times
    assert list(RawLines(io.BytesIO(twice))) == [b"a\r\r\n", b"b\r\r\n"]


def test_ends_are_found_where_a_reading_stops() -> None:
    content = b"abc\rd\r\ref\r\ng\r" + b"\r" * 5
    for limit in range(3, 12):
        lines = RawLines(io.BytesIO(content), limit)
        ahead = list(lines.ahead())
        read = list(lines)
        assert read == content.splitlines(keepends=True), limit
        assert read[: len(ahead)] == ahead
        assert len(ahead) >= 1
    with pytest.raises(RegardError, match="x:2: the line is longer than 4 bytes"):
        list(Lines(io.BytesIO(b"abc\rdefgh\rij\r"), "x", 4))


def test_files_whose_lines_end_with_a_carriage_return_alone(tmp_path: Path) -> None:
    def put(name: str, content: str) -> Path:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        return write(tmp_path / name, content.replace("\n", "\r"))

    labelled = 'text,label\ngood,pos\n"fine,\nreally",pos\nbad,neg\n'
    for name in ("a.csv", "a.csv.gz"):
        found = read(put(name, labelled)).examples
        assert [(x.text, x.source) for x in found] == [
            ("good", f"{name}:2"),
            ("fine,\rreally", f"{name}:3"),
            ("bad", f"{name}:5"),
        ]
    tabs = put("a.txt", "pos\tgood film\nneg\ta bad film\npos\tfine film\n")
    assert len(read(tabs).examples) == 3
    lines = put("a.jsonl", '{"text":"a","label":"x"}\n{"text":"b","label":"y"}\n')
    assert len(read(lines).examples) == 2
    assert guess(str(tmp_path / "a.csv")).settings == {"text": "text", "label": "label"}
    assert [*text_rows(tmp_path / "a.csv")][::2] == ["good", "bad"]
    source, target = put("p.de", "eins\nzwei\ndrei\n"), put("p.en.gz", "one\ntwo\nthree\n")
    pair = read_pairs(DataSource(source, target=target))[1]
    assert (pair.source, pair.target) == ("zwei", "two")
    archive = zipped(tmp_path / "p.zip", {"p.txt": "eins\tone\rzwei\ttwo\r"})
    assert len(read_pairs(archive)) == 2
    put("classes/pos.txt", "good\nfine\n")
    put("classes/neg.txt", "bad\nawful\n")
    found = [x.text for x in rows(tmp_path / "classes") if isinstance(x, Example)]
    assert found == ["bad", "awful", "good", "fine"]
    tagged = read_tagged(put("t.conll", "John B-PER\nruns O\n\nMary B-PER\n")).examples
    assert [(x.text, x.source) for x in tagged] == [
        ("John runs", "t.conll:1"),
        ("Mary", "t.conll:4"),
    ]
    table = "".join(f"{i}\tw{i}\t_\tNOUN\t_\t_\t{i - 1}\t_\t_\t_\n" for i in (1, 2))
    assert len(read_tagged(put("t.conllu", f"{table}\n{table}\n")).examples) == 2
    (passages,) = files_at(str(put("t.txt", "one\ntwo\n\nthree\n")))
    assert list(documents(passages)) == ["one\ntwo", "three"]
    assert list(typed(put("u.txt", "one\n\ntwo\n"))) == ["one", "", "two"]
    assert read_columns(put("n.tsv", "x\ty\n1\t2\n3\t4\n")).values.tolist() == [[1, 2], [3, 4]]
    assert len(read_predictions(put("r.csv", "label,predicted\nx,y\ny,y\n"))) == 2
    assert len(read_answers(put("q.tsv", "Who?\tme\nWhere?\there\n"))) == 2
    assert load_vectors(put("v.txt", "a 1 2\nb 3 4\n"), ["b"]).matrix.tolist() == [[3, 4]]


@pytest.mark.parametrize("content", [b"good\r\nfine\rbad\r\n", b"good\nfine\rbad", b"a\rb\nc\r"])
def test_two_kinds_of_line_end_are_refused(tmp_path: Path, content: bytes) -> None:
    says = r"2: the line ends with .*, the lines before with .*; save the file with one kind of"
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(RegardError, match=says):
        list(documents(files_at(str(tmp_path / "x.txt"))[0]))
    with pytest.raises(RegardError, match=says):
        list(typed(tmp_path / "x.txt"))
    with pytest.raises(RegardError, match=says):
        read_pairs(DataSource(tmp_path / "x.txt", target=tmp_path / "x.txt"))
    (tmp_path / "x.csv").write_bytes(b'text,label\n"a\rb",pos\nfine,pos\rbad,neg\n')
    with pytest.raises(RegardError, match=r"x\.csv:4: the line ends with \\r alone"):
        read(tmp_path / "x.csv")
