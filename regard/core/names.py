"""The grammar of names, by which settings and commands name parts.

    names = sum ["*" COUNT] {"/" names}     of consecutive layers       `layers_of`
    sum   = name {"+" name}                 of parts that are joined    `parts_of`
    name  = row {"-" option}                                            `row_of`, `options_of`
    row   = ROW | FILE.py:Name              of a table, or a file       `is_part`, `located`

For example ``rotary-base-500000*3/none`` or ``window-64+own.py:near-2``. A name that more follows,
such as settings, ends at a colon (`leading_name`). ``command:TEXT`` and ``python:NAME``, models
from elsewhere, are one name each: nothing in them is split.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError

NUMBER = re.compile(r"\d+(\.\d+)?(e\d+)?")
COMMAND = "command:"  # a program that reads examples and writes predictions
MEMORY = "python:"  # an object of this process, which no file names


def is_part(spec: str) -> bool:
    """Return whether a name is ``FILE.py:Name`` and not a row of a table.

    >>> is_part("examples/my_score.py:Laplacian"), is_part("scaled-dot")
    (True, False)
    """
    return (".py:" in spec or spec.endswith(".py")) and not is_elsewhere(spec)


def is_elsewhere(spec: str) -> bool:
    """Return whether a name is a command or an object in memory.

    >>> is_elsewhere("command:python mine.py"), is_elsewhere("mine.py:Net")
    (True, False)
    """
    return spec.strip().startswith((COMMAND, MEMORY))


def located(spec: str) -> tuple[str, str]:
    """Return the file or module of ``FILE.py:Name`` or ``module:Name``, and the name in it.

    >>> located("own/score.py:Mine"), located("own.py")
    (('own/score.py', 'Mine'), ('own.py', ''))
    """
    place, colon, name = spec.rpartition(":")
    return (place, name) if colon else (spec, "")


def leading_name(text: str) -> tuple[str, str, str]:
    """Return the name before the first colon, this colon, and what follows it.

    >>> leading_name("own.py:bag:heads=2"), leading_name("rnn")
    (('own.py:bag', ':', 'heads=2'), ('rnn', '', ''))
    """
    if is_elsewhere(text):
        return text.strip(), "", ""
    name, colon, rest = text.partition(":")
    if colon and is_part(name.strip()):
        part, colon, rest = rest.partition(":")
        name = f"{name}:{part}"
    return name.strip(), colon, rest


def row_of(name: str, known: Container[str]) -> tuple[str, list[str]]:
    """Return the longest known name that a name begins with, and the words behind it.

    ``FILE.py:Name`` is known. Without a known name it is the whole name.

    >>> row_of("top-k-8", ["top", "top-k"]), row_of("my-own.py:near-2", [])
    (('top-k', ['8']), ('my-own.py:near', ['2']))
    """
    if is_part(name):
        file, inside = located(name)
        row, *words = inside.split("-")
        return (f"{file}:{row}" if inside else name), words
    words = name.split("-")
    for end in range(len(words), 0, -1):
        if (row := "-".join(words[:end])) in known:
            return row, words[end:]
    return name, []


def options_of(name: str, words: Sequence[str], takes: Mapping[str, int]) -> dict[str, Any]:
    """Return the options that the words behind a row give: ``base-500000-part-0.25``.

    ``takes`` has the count of numbers of each option; the name of a row's only option may be left
    out. One number is itself, more are a tuple. Raises: an unknown option, another count of
    numbers.

    >>> options_of("top-k-8", ["8"], {"k": 1})
    {'k': 8}
    """
    options: dict[str, list[float]] = {}
    key = next(iter(takes)) if len(takes) == 1 else ""  # of numbers right behind the name
    for word in words:
        if NUMBER.fullmatch(word):
            options.setdefault(key, []).append(float(word) if "." in word else int(float(word)))
        else:
            key = word
            options[key] = []
    if any(takes.get(key) != len(numbers) for key, numbers in options.items()):
        ways = [f"-{key}" + "-NUMBER" * count for key, count in takes.items()]
        usage = f"it may be followed by {', '.join(ways)}" if ways else "it takes none"
        raise RegardError(f"{name!r} has other numbers than its part takes: {usage}")
    return {
        key: numbers[0] if len(numbers) == 1 else tuple(numbers) for key, numbers in options.items()
    }


def parts_of(spec: str) -> list[str]:
    """Return the names that ``+`` joins, as in pattern=window-64+FILE.py:NAME.

    A file whose path has a ``+`` is one name.

    >>> parts_of("window-64+own.py:near"), parts_of("dot")
    (['window-64', 'own.py:near'], ['dot'])
    """
    whole = "+" not in spec or is_elsewhere(spec) or (is_part(spec) and _file(spec).exists())
    return [spec.strip()] if whole else [part.strip() for part in spec.split("+")]


def layers_of(names: str) -> list[str]:
    """Return the names of consecutive layers, which ``/`` separates and ``*`` repeats.

    Raises: a repetition that is not a number. ``FILE.py:NAME`` is one name.

    >>> layers_of("window-512*2/none"), layers_of("rotary")
    (['window-512', 'window-512', 'none'], ['rotary'])
    """
    if is_part(names):
        return [names]
    layers: list[str] = []
    for part in names.split("/"):
        name, star, count = part.partition("*")
        if star and not (count.isdecimal() and int(count)):
            raise RegardError(
                f"{part!r} of {names!r} must be a name and a number of layers, as in NAME*3"
            )
        layers += [name.strip()] * int(count or 1)
    return layers


def at_layer(names: str, layer: int) -> str:
    """Return the name of a layer, from 0; the names are repeated over the stack.

    >>> [at_layer("rotary*3/none", layer) for layer in range(5)]
    ['rotary', 'rotary', 'rotary', 'none', 'rotary']
    """
    layers = layers_of(names)
    return layers[layer % len(layers)]


def reads_trees(position: str) -> bool:
    """Return whether positions in some layer are those of words in a tree.

    >>> reads_trees("none/tree-keys"), reads_trees("rotary")
    (True, False)
    """
    return any(name.startswith("tree-") for name in layers_of(position))


def files_of(values: Iterable[object]) -> dict[str, Path]:
    """Return the file of each value that is ``FILE.py:Name``, by that name.

    >>> {name: str(path) for name, path in files_of(["dot", 8, "own/score.py:Mine"]).items()}
    {'own/score.py:Mine': 'own/score.py'}
    """
    named = [part for value in values if isinstance(value, str) for part in parts_of(value)]
    return {part: _file(part) for part in named if is_part(part)}


def absolute(name: str) -> str:
    """Return a name with the absolute path of its file if it is ``FILE.py:NAME``.

    A run stores it, so that it opens from every folder.

    >>> absolute("window-64"), absolute("own.py:near") == f"{Path.cwd() / 'own.py'}:near"
    ('window-64', True)
    """
    parts = parts_of(name)
    return "+".join(_absolute(part) for part in parts) if any(map(is_part, parts)) else name


def _absolute(part: str) -> str:
    file, name = located(part)
    return f"{Path(file).resolve()}:{name}" if is_part(part) and name else part


def _file(spec: str) -> Path:
    return Path(located(spec)[0])


def short(name: str) -> str:
    """Return a name as a part of a folder's: of ``FILE.py:NAME`` the NAME.

    >>> short("examples/my_model.py:bag"), short("rnn"), short("command:python mine.py")
    ('bag', 'rnn', 'command')
    """
    if is_elsewhere(name):
        return name.partition(":")[0]
    return located(name)[1] or name if is_part(name) else name
