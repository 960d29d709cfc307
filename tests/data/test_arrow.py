import json
import sys

import pytest

from regard.data.files import read, read_examples
from regard.errors import RegardError

TABLE = {"id": [1, 2, 3], "text": ["dull", "fine", None], "label": [0, 1, 1], "by": ["a", "b", "c"]}


def refused(path, **columns):
    with pytest.raises(RegardError) as caught:
        read_examples(path, **columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def saved(folder, names=("data-00000-of-00001.arrow",)):
    folder.mkdir()
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    return folder


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = saved(tmp_path / "saved") if kind == "folder" else tmp_path / "r.parquet"
    if kind == "file":
        path.write_bytes(b"PAR1")
    assert refused(path).startswith(f"{path}: is read by pyarrow, which is not here (")
    assert refused(path).endswith("pip install pyarrow, or save it as .csv or .jsonl")


def test_what_is_not_there_needs_no_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refused(tmp_path / "none.parquet").endswith("there is no such file")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_rows_by_name_and_by_number(tmp_path, kind):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({**TABLE, "text": ["dull", "fine", "good"]})
    if kind == "file":
        path = tmp_path / "r.parquet"
        parquet.write_table(table, path)
    else:
        path = saved(tmp_path / "r")
        with (
            pyarrow.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as file,
            pyarrow.ipc.new_stream(file, table.schema) as writer,
        ):
            writer.write_table(table)
    found = read_examples(path, group="by")
    assert [(e.text, e.label, e.source, e.group) for e in found] == [
        ("dull", "0", f"{path.name}:1", "a"),
        ("fine", "1", f"{path.name}:2", "b"),
        ("good", "1", f"{path.name}:3", "c"),
    ]
    assert read_examples(path, text="2", label="1")[1].label == "2"
    assert read(path, text="2", label="3").remarks == []
    assert f"{path.name}: no column 'x'" in refused(path, text="x")


def test_empty_texts_damage_and_limits(tmp_path, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "r.parquet"
    parquet.write_table(pyarrow.table(TABLE), path)
    assert "r.parquet:3: the text is empty" in refused(path)
    monkeypatch.setattr("regard.data.arrow.FILE_LIMIT", 10)
    assert "more than 10" in refused(path)
    monkeypatch.undo()
    path.write_bytes(b"PAR1 and no more")
    assert "is damaged or of another kind" in refused(path)


def test_names_and_links_that_lead_out_of_a_saved_folder(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "secret.arrow").write_bytes(b"x")
    assert "which is no file of the folder" in refused(saved(tmp_path / "a", ["../secret.arrow"]))
    linked = saved(tmp_path / "b", ["c.arrow"])
    (linked / "c.arrow").symlink_to(tmp_path / "secret.arrow")
    assert "c.arrow: is a link out of" in refused(linked)


def test_the_splits_of_a_saved_data_set_are_to_be_named(tmp_path):
    saved(tmp_path / "train"), saved(tmp_path / "test")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert refused(tmp_path).endswith(
        f"say which is which: data={tmp_path / 'train'} test={tmp_path / 'test'}"
    )
