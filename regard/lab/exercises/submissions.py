"""Submissions: Python files and notebooks of a student, and the exercises that they answer."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.exercises import EXERCISES, parts_of

ENDINGS = (".py", ".ipynb")
LARGEST = 1_000_000  # bytes of a file
PYTHON_CELLS = ("time", "timeit", "capture", "prun")  # magics of cells that contain Python
SOLUTIONS = "exercises.collection"


@dataclass(frozen=True)
class Answer:
    """The code with which a student answers an exercise; `problem`: why it cannot be read."""

    exercise: str
    path: Path
    source: str
    problem: str = ""


def answers_in(place: Path, only: str = "") -> Iterator[Answer]:
    """Yield the answers in a file or folder, by exercise in the order of the course.

    A file named after an exercise answers it (``heads.py``, ``next_token.ipynb``); another file
    answers the exercises whose functions it defines. `only` is the name of an exercise.
    Raises: a place that does not exist.
    """
    texts = _texts(place)
    for exercise in [only] if only else EXERCISES:
        wanted = {part.name for part in parts_of(exercise)}
        for path, (source, problem) in texts.items():
            if _stem(path) == exercise or (
                _stem(path) not in EXERCISES and wanted & _defined(source)
            ):
                yield Answer(exercise, path, source, problem)
                break


def unreadable(place: Path) -> list[str]:
    """Return why files cannot be read whose names do not say which exercise they answer."""
    return [
        problem
        for path, (_, problem) in _texts(place).items()
        if problem and _stem(path) not in EXERCISES
    ]


def _texts(place: Path) -> dict[Path, tuple[str, str]]:
    if not place.exists():
        raise RegardError(f"{place} does not exist; give a file or a folder with answers")
    paths = sorted(place.rglob("*")) if place.is_dir() else [place]
    paths = [path for path in paths if path.suffix in ENDINGS and not _hidden(path, place)]
    return {path: _read(path) for path in paths if path.is_file() and not path.is_symlink()}


def _stem(path: Path) -> str:
    return path.stem.replace("_", "-")


def _hidden(path: Path, place: Path) -> bool:
    return any(part.startswith((".", "__")) for part in path.relative_to(place).parts)


def _read(path: Path) -> tuple[str, str]:
    """Return the code of a file and why it cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
            return "", f"{path.name} is larger than {LARGEST:,} bytes"
        text = path.read_text(encoding="utf-8-sig")
        source = code_of_notebook(text) if path.suffix == ".ipynb" else text
        ast.parse(source)
        if SOLUTIONS in source:
            return "", f"{path.name} uses {SOLUTIONS}, the course's own answers"
    except SyntaxError as error:
        return "", f"{path.name} line {error.lineno}: {error.msg}"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError):
        return "", f"{path.name} cannot be read as {'a notebook' if '.ip' in path.name else 'text'}"
    return source, ""


def code_of_notebook(text: str) -> str:
    r"""Join the code cells of a notebook; magics, cells of other languages and help are left out.

    >>> code_of_notebook('{"cells": [{"cell_type": "code", "source": ["%time\\n", "x = 1"]}]}')
    '# %time\nx = 1\n'
    """
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    sources = [cell["source"] for cell in cells]
    code = []
    for cell in (one if isinstance(one, str) else "".join(one) for one in sources):
        magic = re.match(r"\s*%%(\w+)", cell)
        foreign = magic is not None and magic[1] not in PYTHON_CELLS
        code += [f"{'# ' * (foreign or _is_magic(line))}{line}\n" for line in cell.splitlines()]
    return "".join(code)


def _is_magic(line: str) -> bool:
    return line.lstrip().startswith(("%", "!", "?")) or line.rstrip().endswith("?")


def _defined(source: str) -> set[str]:
    """Return the names of the functions that a file defines or assigns."""
    body = ast.parse(source).body
    targets = (one for node in body if isinstance(node, ast.Assign) for one in node.targets)
    names = {one.id for one in targets if isinstance(one, ast.Name)}
    return names | {node.name for node in body if isinstance(node, ast.FunctionDef)}
