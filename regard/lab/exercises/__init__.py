"""Exercises: functions with blanks, and checks that name the first fault in one sentence.

An exercise is a file in `collection` and a page in each language, whose last section has the
hints. The table is cheap to import: torch is imported when an exercise is opened.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError, look_up

if TYPE_CHECKING:
    from regard.lab.exercises.part import Part

FOLDER = Path(__file__).parent / "collection"
#: The exercises in the order of the course, with the course's document that each is from.
EXERCISES = {
    "kernel-regression": "003",
    "nearest-neighbours": "003",
    "masked-softmax": "002",
    "scores": "003",
    "context-vector": "001",
    "next-token": "001",
    "heads": "002",
    "positions": "000",
    "causal-mask": "002",
    "residual": "000",
    "cls": "000",
    "span-corruption": "004",
    "synthesizer": "004",
    "rotary": "002",
    "head-variance": "004",
    "linformer": "004",
}
HINTS = re.compile(r"^## (?:Hints|提示)\n", re.M)


def parts_of(name: str) -> "list[Part]":
    """Return the functions that an exercise asks for. Raises: an unknown name."""
    look_up(EXERCISES, name, "exercise")
    module = importlib.import_module(f"{__name__}.collection.{name.replace('-', '_')}")
    parts: list[Part] = module.PARTS
    return parts


def page(name: str, lang: str = "en") -> tuple[str, list[str]]:
    """Return the page of an exercise without its hints, and the hints.

    Raises: an unknown name or language.

    >>> text, hints = page("masked-softmax")
    >>> text.splitlines()[0], len(hints) > 1
    ('# Softmax over the words that are there', True)
    """
    look_up(EXERCISES, name, "exercise")
    stem = name.replace("-", "_")
    path = FOLDER / (f"{stem}.md" if lang == "en" else f"{stem}.{lang}.md")
    if not path.is_file():
        known = ["en", *sorted(one.suffixes[0][1:] for one in FOLDER.glob(f"{stem}.*.md"))]
        raise RegardError(f"{name} has no page in {lang!r}; its languages are: {', '.join(known)}")
    text, hints = HINTS.split(path.read_text(encoding="utf-8"))
    numbered = re.split(r"^\d+\. ", hints, flags=re.M)[1:]
    return f"{text.rstrip()}\n", [one.strip() for one in numbered]


def title(name: str, lang: str = "en") -> str:
    """Return the title of an exercise."""
    return page(name, lang)[0].splitlines()[0].removeprefix("# ")


def starter(name: str) -> str:
    """Return the starter file: the functions with their shapes, and a blank in place of the code.

    >>> print(starter("nearest-neighbours").splitlines()[-1].strip())
    raise NotImplementedError("your turn")
    """
    lines: list[str] = []
    for part in parts_of(name):
        signature, words, _ = inspect.getsource(part.reference).split('"""')
        signature = re.sub(r"\(\n +(.*)\n\)", r"(\1)", signature)  # in one line
        lines += ["", "", f'{signature}"""{words}"""', '    raise NotImplementedError("your turn")']
    command = f"regard exercise check {name.replace('-', '_')}.py"
    head = [f'"""{title(name)}.\n\nFill in the blanks, then run: {command}\n"""', ""]
    if any("Callable[" in line for line in lines):
        head += ["from collections.abc import Callable", ""]
    return "\n".join([*head, "import torch", "from torch import Tensor, nn", *lines, ""])


def check(name: str, answers: Mapping[str, Any] | Callable[..., Any] | Iterable[Any]) -> bool:
    """Check functions in this process, for notebooks; print a line for each.

    `answers`: ``globals()`` of the notebook, a function or several functions.
    Return whether all are right.

    >>> check("nearest-neighbours", {})
    ✗ nearest: there is no function of this name
    False
    """
    from regard.lab.exercises.faults import judge
    from regard.lab.exercises.observing import observe_all

    several: Iterable[Any] = [answers] if callable(answers) else answers
    found = answers if isinstance(answers, Mapping) else {one.__name__: one for one in several}
    parts = parts_of(name)
    faults = {part.name: judge(part, observe_all(part, found.get(part.name))) for part in parts}
    for function, fault in faults.items():
        print(verdict_line(function, fault))
    return not any(faults.values())


def verdict_line(function: str, fault: str) -> str:
    """Return the verdict about a function in one line."""
    return f"✗ {function}: {fault}" if fault else f"✓ {function}"
