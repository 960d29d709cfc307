import json
import sys
from datetime import date, datetime
from decimal import Decimal

import pyarrow
import pytest
from pyarrow import parquet

from regard.lab.data.data_source import Columns
from regard.lab.data.examples import BadRow
from regard.lab.data.files import read, read_examples, scan
from tests.lab.data.small_files import refused

TABLE = {"id": [1, 2, 3], "text": ["dull", "fine", None], "label": [0, 1, 1], "by": ["a", "b", "c"]}


def saved(folder, names=("data-00000-of-00001.arrow",)):
    folder.mkdir()
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    return folder


def written(path, kind, table):
    """The table as a Parquet file or as a saved data set."""
    if kind == "file":
        path = path.with_suffix(".parquet")
        parquet.write_table(table, path)
        return path
    stream(saved(path) / "data-00000-of-00001.arrow", table)
    return path


def stream(path, *tables):
    with (
        pyarrow.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_stream(file, tables[0].schema) as writer,
    ):
        for table in tables:
            writer.write(table)


def described(labels, label, name="label"):
    """A table as datasets writes it, whose labels are numbers of classes."""
    features = {"text": {"dtype": "string", "_type": "Value"}, name: label}
    table = pyarrow.table({"text": [f"text {i}" for i in range(len(labels))], name: labels})
    says = json.dumps({"info": {"features": features}})
    return table.replace_schema_metadata({"huggingface": says})


def classes(*names):
    return {"names": list(names), "_type": "ClassLabel"}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = saved(tmp_path / "saved") if kind == "folder" else tmp_path / "r.parquet"
    if kind == "file":
        path.write_bytes(b"PAR1")
    assert refused(path).startswith(
        f"{path}: reading it requires pyarrow, which is not installed ("
    )
    assert refused(path).endswith(
        "pip install -c constraints.txt '.[data]', or save the data as .csv or .jsonl"
    )


def test_what_is_not_there_needs_no_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refused(tmp_path / "none.parquet").endswith("no such file")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_rows_by_name_and_by_number(tmp_path, kind):
    table = pyarrow.table({**TABLE, "text": ["dull", "fine", "good"]})
    path = written(tmp_path / "r", kind, table)
    found = read_examples(path, Columns(group="by"))
    assert [(e.text, e.label, e.source, e.group) for e in found] == [
        ("dull", "0", f"{path.name}:1", "a"),
        ("fine", "1", f"{path.name}:2", "b"),
        ("good", "1", f"{path.name}:3", "c"),
    ]
    assert read_examples(path, Columns("2", "1"))[1].label == "2"
    assert read(path, Columns("2", "3", features="by")).remarks == []
    (remark,) = read(path, Columns("2", "3")).remarks
    assert remark.startswith("columns that are not read: 'by'; features=")
    assert f"{path.name}: unknown column 'x'" in refused(path, text="x")


def test_empty_texts_damage_and_limits(tmp_path, monkeypatch):
    path = tmp_path / "r.parquet"
    parquet.write_table(pyarrow.table(TABLE), path)
    assert "r.parquet:3: the text is empty" in refused(path)
    monkeypatch.setattr("regard.lab.data.arrow.FILE_LIMIT", 10)
    assert "exceed the limit of 10" in refused(path)
    monkeypatch.undo()
    path.write_bytes(b"PAR1 and no more")
    assert "damaged or in another format" in refused(path)


def test_names_and_links_that_lead_out_of_a_saved_folder(tmp_path):
    (tmp_path / "secret.arrow").write_bytes(b"x")
    assert "which is not in the folder" in refused(saved(tmp_path / "a", ["../secret.arrow"]))
    linked = saved(tmp_path / "b", ["c.arrow"])
    (linked / "c.arrow").symlink_to(tmp_path / "secret.arrow")
    assert "c.arrow: links out of" in refused(linked)


def test_the_splits_of_a_saved_data_set_are_to_be_named(tmp_path):
    saved(tmp_path / "train"), saved(tmp_path / "test")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert refused(tmp_path).endswith(
        f"name them: data={tmp_path / 'train'} test={tmp_path / 'test'}"
    )


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_labels_are_the_names_that_datasets_wrote(tmp_path, kind):
    path = written(tmp_path / "r", kind, described([1, 0, -1, None], classes("neg", "pos")))
    rows = [row.why if isinstance(row, BadRow) else row.label for row in scan(path)]
    assert rows == ["pos", "neg", "the label is empty", "the label is empty"]
    other = described([1, 0], classes("neg", "pos"), "stars")  # of a column that is not asked for
    other = other.append_column("label", [[4, 5]])
    assert [e.label for e in read_examples(written(tmp_path / "o", kind, other))] == ["4", "5"]


@pytest.mark.parametrize(
    ("labels", "label", "says"),
    [
        ([0, 2], classes("a", "b"), ":2: label 2 is not one of the 2 classes, numbered from 0"),
        ([0, -2], classes("a", "b"), ":2: label -2 is not"),
        ([True, False], classes("a", "b"), ":1: label True is not"),
        (["a", "b"], classes("a", "b"), ":1: label 'a' is not"),
        ([0], classes("a", 5), ": class names must be strings, not ['a', 5]"),
        ([0], {"_type": "ClassLabel"}, ": class names must be strings, not None"),
        ([0], classes("a", "b", "a"), ": 2 classes have the same name, 'a'"),
    ],
)
def test_numbers_and_names_of_classes_that_do_not_fit(tmp_path, labels, label, says):
    path = written(tmp_path / "r", "file", described(labels, label))
    assert says in refused(path)


def test_a_description_that_is_no_json_or_without_end(tmp_path, monkeypatch):
    table = pyarrow.table({"text": ["a"], "label": [0]})
    bad = written(tmp_path / "b", "file", table.replace_schema_metadata({"huggingface": "{"}))
    assert "its datasets metadata is not valid JSON" in refused(bad)
    odd = written(tmp_path / "o", "file", table.replace_schema_metadata({"huggingface": "[[]]"}))
    assert read_examples(odd)[0].label == "0"
    monkeypatch.setattr("regard.lab.data.arrow.METADATA_LIMIT", 1)
    assert "the column description exceeds 1 bytes" in refused(odd)


def test_files_of_a_folder_may_order_their_columns_differently(tmp_path):
    path = saved(tmp_path / "r", ["a.arrow", "b.arrow"])
    stream(path / "a.arrow", pyarrow.table({"text": ["one"], "label": ["x"]}))
    stream(path / "b.arrow", pyarrow.table({"label": ["y"], "id": [1], "text": ["two"]}))
    assert [(e.text, e.label) for e in read_examples(path)] == [("one", "x"), ("two", "y")]


def test_damage_inside_a_batch_is_refused_before_it_is_read(tmp_path):
    path = saved(tmp_path / "r", ["a.arrow"])
    stream(path / "a.arrow", pyarrow.table({"text": ["abcdefgh"], "label": ["x"]}))
    data = (path / "a.arrow").read_bytes()
    end = data.rindex(b"\x08\0\0\0", 0, data.index(b"abcdefgh"))  # where the text is said to end
    (path / "a.arrow").write_bytes(data[:end] + b"\xff\xff\xff\x7f" + data[end + 4 :])
    assert "damaged or in another format (" in refused(path)


def test_rows_of_nothing_come_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.lab.data.arrow.FILE_LIMIT", 1_000_000)
    path = saved(tmp_path / "r", ["a.arrow"])
    nothing = pyarrow.Array.from_buffers(pyarrow.null(), 1 << 30, [None])
    stream(path / "a.arrow", pyarrow.table({"text": nothing, "label": nothing}))
    assert "exceed the limit of 1,000,000" in refused(path)


def test_typed_columns_are_read_as_they_are_written(tmp_path):
    typed = {
        "text": ["dull", "fine"],
        "label": [date(2021, 1, 2), date(2021, 1, 3)],
        "price": [Decimal("90.50"), None],
        "at": [datetime(2021, 1, 2, 3, 4), datetime(2021, 1, 2)],
        "new": [True, False],
        "share": [0.5, float("nan")],
    }
    path = written(tmp_path / "r", "file", pyarrow.table(typed))
    first, second = read_examples(path, Columns(features="price,at,new,share"))
    assert [first.label, second.label] == ["2021-01-02", "2021-01-03"]
    at = "2021-01-02 03:04:00"
    assert first.text.columns == {"price": "90.50", "at": at, "new": "true", "share": "0.5"}
    assert (second.text.columns["price"], second.text.columns["share"]) == ("", "")
    parquet.write_table(pyarrow.table({"text": [b"dull"], "label": [1]}), path)
    assert "r.parquet:1: the text must be a string, not" in refused(path)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_arrow_and_feather_files(tmp_path, compression):
    from pyarrow import feather

    table = pyarrow.table({**TABLE, "text": ["dull", "fine", "good"]})
    stream(tmp_path / "stream.arrow", table)
    with (
        pyarrow.OSFile(str(tmp_path / "file.arrow"), "wb") as file,
        pyarrow.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write(table)
    feather.write_feather(table, tmp_path / "table.feather", compression=compression)
    for name in ("stream.arrow", "file.arrow", "table.feather"):
        rows = read_examples(tmp_path / name)
        assert [(row.text, row.label) for row in rows] == [
            ("dull", "0"),
            ("fine", "1"),
            ("good", "1"),
        ]
        assert rows[2].source == f"{name}:3"
    whole = (tmp_path / "file.arrow").read_bytes()
    for damaged in (b"", b"ARROW1", whole[: len(whole) // 2], b"text,label\n"):
        (tmp_path / "bad.arrow").write_bytes(damaged)
        assert "bad.arrow" in refused(tmp_path / "bad.arrow")


def test_a_data_set_that_datasets_saved_itself(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    parts = {
        name: datasets.Dataset.from_dict(
            {"text": [f"{name} {i}" for i in range(4)], "label": [0, 1, 1, 0]}, features=features
        )
        for name in ("train", "test")
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "both"))
    rows = read_examples(tmp_path / "both" / "train")
    assert [(row.text, row.label) for row in rows][:2] == [("train 0", "bad"), ("train 1", "good")]
    both = tmp_path / "both"
    assert f"data={both / 'train'} test={both / 'test'}" in refused(both)
