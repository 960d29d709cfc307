"""Read and write model folders in Hugging Face's layout: ``config.json`` and safetensors."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.reading import parse_tensors, read_bytes, read_json
from regard.interop.hub import fetch

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
LARGEST = 1 << 40  # bytes of a file of weights; memory is the actual limit
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Stored:
    """A model folder: its path, its config and its tensors by name."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]


def read(source: Path | str, *, revision: str | None = None) -> Stored:
    """Return a model from a folder, or from the hub by its name ("openai-community/gpt2").

    Only safetensors are read, one file or several: a ``.bin`` is a pickle, which can run any code
    when it is read. Raises: no such folder or name, no config, no safetensors, damaged files.
    """
    folder = locate(source, revision)
    config = read_json(folder / CONFIG)
    return Stored(folder, config, read_tensors(folder))


def locate(source: Path | str, revision: str | None = None) -> Path:
    """Return the folder of a model, downloaded if ``source`` is a name on the hub."""
    folder = Path(source)
    if folder.is_dir():
        return folder
    if isinstance(source, Path):
        raise RegardError(f"{source} is not a folder; give a model's folder or its name on the hub")
    return fetch(source, revision)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder, in order, each checked to exist.

    Raises: none; pickles only; an index that names files outside the folder or missing ones.
    """
    if (folder / WEIGHTS).exists():
        names = {WEIGHTS}
    elif (folder / INDEX).exists():
        table = read_json(folder / INDEX).get("weight_map", {})
        if not isinstance(table, dict):
            raise RegardError(f"{folder / INDEX} is damaged: weight_map is not a table of files")
        names = set(map(str, table.values()))
    else:
        pickles = sorted(path.name for kind in PICKLES for path in folder.glob(kind))
        if pickles:
            raise RegardError(
                f"{folder / pickles[0]} is a pickle, which can run any code when it is read; "
                "regard only reads safetensors: if you trust the file, convert it with "
                "from_pretrained(…).save_pretrained(…) of transformers"
            )
        raise RegardError(f"{folder} does not contain {WEIGHTS}")
    for name in sorted(names):
        if Path(name).name != name:
            raise RegardError(f"{folder / INDEX} lists {name!r}, which is not a file in the folder")
        if not (folder / name).is_file():
            raise RegardError(f"{folder / name} cannot be read: no such file")
    return [folder / name for name in sorted(names)]


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder's safetensors by name."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors |= parse_tensors(read_bytes(path, LARGEST), path)
    return tensors


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a folder's safetensors, read from their headers alone."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except Exception as error:
            raise RegardError(f"{path} cannot be read: {error}") from None
    return shapes


def digest(folder: Path) -> str:
    """Return the sha256 of the safetensors of a folder, to detect changed weights."""
    total = hashlib.sha256()
    for path in weight_files(folder):
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def write(
    folder: Path | str,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    files: Mapping[str, bytes],
) -> Path:
    """Write atomically a folder that `read` and transformers read. Raises: it already exists."""
    must_be_new(place := Path(folder))
    return write_files(place, {CONFIG: as_json(config), WEIGHTS: packed(tensors), **files})


def must_be_new(folder: Path) -> None:
    """Raise an error if a folder exists."""
    if folder.exists():
        raise RegardError(f"{folder} already exists; give another folder")


def write_files(folder: Path, contents: Mapping[str, bytes]) -> Path:
    """Write a folder of these files atomically, with the folders above it."""
    with atomic_io.one_line_errors(folder, sum(map(len, contents.values()))):
        folder.parent.mkdir(parents=True, exist_ok=True)
    atomic_io.write_folder(folder, contents)
    return folder


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    plain = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def as_json(value: Mapping[str, Any]) -> bytes:
    """Return indented JSON with sorted keys."""
    text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, indent=2, sort_keys=True)
    return (text + "\n").encode()
