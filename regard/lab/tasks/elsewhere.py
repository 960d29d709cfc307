"""Models from elsewhere: a user's network, scikit-learn estimator or command as a `ModelEntry`.

The table of models finds them by their names: ``FILE.py:Name``, an object that is no `ModelEntry`;
``python:NAME``, an object of this process (`remembered`); ``command:TEXT``, a program.
"""

import hashlib
import inspect
import re
import shlex
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import create_model

from regard.core.errors import RegardError
from regard.core.names import COMMAND, MEMORY
from regard.core.plugins import a, one_line
from regard.core.settings import Settings
from regard.core.spellings import SETTINGS
from regard.core.tables import Table
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.models import ModelEntry

PLACES = ("{train}", "{validation}", "{test}", "{out}", "{seed}", "{minutes}")
WAYS = (
    "name a ModelEntry, a class or function build(vocabulary, labels, **settings) that returns an "
    "nn.Module, a scikit-learn estimator, or a function without arguments that returns one"
)
_remembered: dict[str, Any] = {}


class Models(Table[ModelEntry]):
    """The table of a task's models, with those from elsewhere."""

    def __init__(self, rows: Mapping[str, ModelEntry | str]) -> None:
        super().__init__(rows, "regard.models", ModelEntry, "model")

    def __contains__(self, name: object) -> bool:
        elsewhere = isinstance(name, str) and name.startswith((COMMAND, MEMORY))
        return elsewhere or super().__contains__(name)

    def __getitem__(self, name: str) -> ModelEntry:
        """Return a row. Raises: as `Table`; an invalid command."""
        if name.startswith(COMMAND):
            words_of(name)
            return _fitted(name, "a program", "{seed}" in name)
        if name.startswith(MEMORY):
            if name not in _remembered:
                return _fitted(name, "a model of another process")
            return entry_of(name, _remembered[name])
        return super().__getitem__(name)

    def _checked(self, name: str, loaded: Any) -> ModelEntry:
        if isinstance(loaded, ModelEntry) or not (callable(loaded) or is_estimator(loaded)):
            return super()._checked(name, loaded)
        return entry_of(name, loaded)


def _fitted(name: str, about: str, seeded: bool = False, make: Any = None) -> ModelEntry:
    """Return the entry of a model that is fitted and not kept."""

    def absent(*_: Any) -> Any:
        raise RegardError(
            f"{name} cannot be built here: a command runs in `regard train` and `regard compare`, "
            "an object of Python in the process that made it; or name it FILE.py:Name"
        )

    return ModelEntry(
        name, about, NoSettings, make or absent, load=absent, kept=False, seeded=seeded
    )


def remembered(thing: Any, label: str, settings: Mapping[str, Any]) -> str:
    """Keep an object for this process; return a name that differs with its content and settings.

    >>> remembered(lambda vocabulary, labels: None, "mine", {}).partition("@")[0]
    'python:mine'
    """
    try:
        text = inspect.getsource(thing)
    except (TypeError, OSError):
        text = repr((type(thing), thing.get_params() if is_estimator(thing) else thing))
    text = re.sub(r" at 0x[0-9a-f]+", "", f"{text} {settings}")
    name = f"{MEMORY}{label}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    _remembered[name] = partial(thing, **settings) if settings else deepcopy(thing)
    return name


def file_of(thing: Any) -> str:
    """Return the ``FILE.py:Name`` from which a worker can read an object, "" if there is none."""
    name, module = getattr(thing, "__qualname__", ""), inspect.getmodule(thing)
    path = Path(getattr(module, "__file__", None) or "")
    top = getattr(module, name, None) is thing and "." not in getattr(module, "__name__", ".")
    return f"{path}:{name}" if top and path.suffix == ".py" and path.is_file() else ""


def is_estimator(thing: Any) -> bool:
    """Return whether an object is an estimator of scikit-learn's kind, not its class."""
    needs = ("fit", "predict", "get_params", "set_params")
    return not isinstance(thing, type) and all(callable(getattr(thing, x, None)) for x in needs)


@lru_cache(maxsize=256)  # equal settings are of one class
def entry_of(name: str, thing: Any) -> ModelEntry:
    """Return the entry of a user's object: a factory of networks, or an estimator.

    Raises: an object of another kind, or parameters that nobody can fill.
    """
    if is_estimator(thing):
        from regard.lab.tasks.called import Estimator, unset

        make = partial(Estimator, thing)
        return _fitted(name, " ".join(repr(thing).split())[:100], bool(unset(thing)), make)
    if not callable(thing) or (hasattr(thing, "parameters") and not isinstance(thing, type)):
        why = "is built already, not once a seed" if callable(thing) else "cannot be called"
        raise RegardError(f"{name}, {a(type(thing).__name__)}, {why}; {WAYS}")
    parameters = inspect.signature(thing).parameters.values()
    usual = {one.name: one.default for one in parameters if one.default is not one.empty}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one.name for one in parameters if one.name not in usual and one.kind not in several]
    sizes = [
        next((one.name for one in parameters if one.name in names), "")
        for names in (SETTINGS["vocabulary"], SETTINGS["labels"])
    ]
    if not needed and not any(sizes):
        try:
            made = thing()
        except Exception as error:
            raise RegardError(f"{name}() does not run: {one_line(error)}") from error
        if is_estimator(made):
            return entry_of(name, made)
        raise RegardError(f"{name}() returns {a(type(made).__name__)}, not an estimator; {WAYS}")
    sizes = needed if not any(sizes) and len(needed) == 2 else sizes
    if left := [key for key in needed if key not in sizes]:
        raise RegardError(f"{name} needs {', '.join(left)}, which has no default; {WAYS}")
    plain = {key: x for key, x in usual.items() if isinstance(x, bool | int | float | str)}
    fields: dict[str, Any] = {key: (type(x), x) for key, x in plain.items() if key not in sizes}
    own = {} if name.startswith(MEMORY) else fields  # another process does not know them
    settings = create_model("OwnSettings", __base__=Settings, **own)
    return ModelEntry(name, f"a user's network, {name}", settings, partial(_network, thing, sizes))


def _network(build: Any, sizes: list[str], settings: Settings, *counts: Any) -> Any:
    from regard.lab.tasks.called import Called

    given = {key: count for key, count in zip(sizes, counts, strict=False) if key}
    return Called(build(**given, **settings.model_dump()))


def words_of(name: str) -> list[str]:
    """Return the words of ``command:TEXT``, split as by a shell. Raises: it cannot work.

    >>> words_of("command:python 'my file.py' {test} {out}")
    ['python', 'my file.py', '{test}', '{out}']
    """
    try:
        words = shlex.split(name.removeprefix(COMMAND))
    except ValueError as error:
        raise RegardError(
            f"{name}: {error}; a semicolon ends an arm: put it into a script"
        ) from None
    if unknown := sorted({*re.findall(r"\{[a-z_]+\}", name)} - {*PLACES}):
        raise RegardError(f"{name}: {unknown[0]} is unknown; a command has {' '.join(PLACES)}")
    if lacks := [place for place in ("{test}", "{out}") if place not in name]:
        raise RegardError(
            f"{name}: {lacks[0]} is missing; write command:PROGRAM {{train}} {{test}} {{out}}"
        )
    if ";" in name:
        raise RegardError(f"{name}: a semicolon ends an arm; put the commands into a script")
    return words
