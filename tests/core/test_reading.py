"""What comes from a file: within a limit, of a known kind, or refused in one line."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch

from regard.core.errors import RegardError
from regard.core.reading import (
    DEEPEST,
    checked,
    parse_json,
    parse_rows,
    parse_tensors,
    read_bytes,
    read_json,
)


@dataclass
class Row:
    name: str
    count: int
    share: float | None = None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[NaN]", "NaN is not a finite number"),
        ("[-Infinity]", "-Infinity is not a finite number"),
        ("[1e999]", "1e999 is not a finite number"),
        ("[" + "9" * 19 + "]", "larger than 64 bits"),
        ("[" + "9" * 5_000 + "]", "larger than 64 bits"),
        ("[" * 100_000, "not valid JSON"),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), f"deeper than {DEEPEST}"),
        ('{"a": }', "Expecting value at character 7"),
        (b"\xff", "not valid JSON"),
    ],
)
def test_unsound_json_is_refused(text, says):
    with pytest.raises(RegardError, match=says) as error:
        parse_json(text, "x.json")
    assert str(error.value).startswith("x.json is not valid JSON: ")
    assert len(str(error.value)) < 300


def test_sound_json_is_as_json_reads_it():
    values = {"a": [1, -2.5, None, True, "ü", {}], "b": -(2**63), "c": 2**63 - 1, "d": 1e-320}
    assert parse_json(json.dumps(values), "x") == values
    deep = json.loads("[" * DEEPEST + "]" * DEEPEST)
    assert parse_json(json.dumps(deep), "x") == deep


def test_rows_are_objects_told_by_line():
    assert list(parse_rows(b'{"a": 1}\n\n{"a": 2}\n', "x")) == [{"a": 1}, {"a": 2}]
    with pytest.raises(RegardError, match=r"x:2 is not a JSON object"):
        list(parse_rows(b"{}\n[]\n", "x"))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"name": "a"}, "count is missing"),
        ({"name": "a", "count": "x"}, "count is 'x': must be a whole number"),
        ({"name": "a", "count": 1, "other": 2}, "unknown field 'other'"),
        ([], "it is"),
    ],
)
def test_what_is_no_row_is_refused_by_its_field(value, says):
    with pytest.raises(RegardError, match=says):
        checked(Row, value, "x.json")
    assert checked(Row, {"name": "a", "count": 1}, "x.json") == Row("a", 1)


def test_files_that_are_none_and_files_too_large(tmp_path: Path):
    with pytest.raises(RegardError, match="No such file"):
        read_bytes(tmp_path / "none")
    with pytest.raises(RegardError, match="it is not a file"):
        read_bytes(tmp_path)
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(RegardError, match="larger than 2 bytes"):
        read_bytes(tmp_path / "x.json", 2)
    with pytest.raises(RegardError, match="not a JSON object"):
        read_json(tmp_path / "x.json")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(RegardError, match="it is not a file"):
            read_bytes(tmp_path / "pipe")


def test_damaged_tensors_are_refused():
    data = safetensors.torch.save({"a": torch.arange(3.0)})
    assert parse_tensors(data, "x")["a"].tolist() == [0.0, 1.0, 2.0]
    for damaged in (data[:-1], b"", data.replace(b"F32", b"F99"), b"\xff" * 40):
        with pytest.raises(RegardError, match="x is not a valid safetensors file"):
            parse_tensors(damaged, "x")
