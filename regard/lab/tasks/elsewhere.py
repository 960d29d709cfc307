"""Models from elsewhere: a user's network, scikit-learn estimator or command as a `ModelEntry`.

The table of models finds them by their names: ``FILE.py:Name``, an object that is no `ModelEntry`;
``python:NAME``, an object of this process (`remembered`); ``command:TEXT``, a program.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, create_model

from regard.core.errors import RegardError
from regard.core.names import COMMAND, MEMORY
from regard.core.plugins import a, one_line
from regard.core.settings import Settings
from regard.core.tables import Table
from regard.lab.tasks.baseline_settings import NoSettings
from regard.lab.tasks.models import ModelEntry, made_by

#: Names of parameters that take the number of tokens, and the number of labels or tags.
VOCABULARY = "vocabulary", "vocab", "vocab_size", "vocabulary_size", "n_vocab", "num_embeddings"
LABELS = "labels", "num_labels", "n_labels", "classes", "num_classes", "n_classes", "num_outputs"
PLACES = ("{train}", "{validation}", "{test}", "{out}", "{seed}", "{minutes}")
WAYS = (
    "give a class or function build(vocabulary, labels, **settings) that returns an nn.Module, or "
    "a scikit-learn estimator, or a function without arguments that returns one"
)
#: Objects of this process by their names, "python:NAME@DIGEST".
_remembered: dict[str, Any] = {}


class AnySettings(Settings):
    """The settings of a model that another process had."""

    model_config = ConfigDict(extra="allow")


class Models(Table[ModelEntry]):
    """The table of a task's models, with those from elsewhere."""

    def __init__(self, rows: Mapping[str, ModelEntry | str]) -> None:
        super().__init__(rows, "regard.models", ModelEntry, "model")

    def __contains__(self, name: object) -> bool:
        elsewhere = isinstance(name, str) and name.startswith((COMMAND, MEMORY))
        return elsewhere or super().__contains__(name)

    def __getitem__(self, name: str) -> ModelEntry:
        """Return a row. Raises: as `Table`; an object of another process; an invalid command."""
        if name.startswith(COMMAND):
            return command_entry(name)
        if name.startswith(MEMORY):
            known = _remembered.get(name)
            return _entry(name, name, AnySettings) if known is None else entry_of(name, known)
        return super().__getitem__(name)

    def _checked(self, name: str, loaded: Any) -> ModelEntry:
        if isinstance(loaded, ModelEntry) or not (callable(loaded) or is_estimator(loaded)):
            return super()._checked(name, loaded)
        return entry_of(name, loaded)


def _entry(
    name: str, description: str, settings: type[Settings], seeded: bool = False, make: Any = None
) -> ModelEntry:
    """Return the entry of a model that is fitted and not kept."""
    return ModelEntry(
        name,
        description,
        settings,
        make or _gone(name),
        load=_gone(name),
        kept=False,
        seeded=seeded,
    )


def _gone(name: str) -> Callable[..., Any]:
    def make(*_: Any) -> Any:
        if name.startswith(COMMAND):
            raise RegardError(f"{name} is run once a run, by `regard train` or `regard compare`")
        raise RegardError(
            f"{name} is an object of the Python process that made it; call regard.Arm there again, "
            "or put the object into a file and name it FILE.py:Name"
        )

    return make


def remembered(thing: Any, label: str) -> str:
    """Keep an object for this process and return its name, which tells other objects apart.

    >>> remembered(Models, "mine").partition("@")[0]
    'python:mine'
    """
    try:
        text = inspect.getsource(thing)
    except (TypeError, OSError):
        parameters = thing.get_params() if is_estimator(thing) else thing
        text = re.sub(r" at 0x[0-9a-f]+", "", repr((type(thing).__name__, parameters)))
    name = f"{MEMORY}{label}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    _remembered[name] = thing
    return name


def file_of(thing: Any) -> str:
    """Return the ``FILE.py:Name`` from which a worker can read an object, "" if there is none.

    >>> file_of(lambda vocabulary, labels: None), file_of(3)
    ('', '')
    """
    name, module = getattr(thing, "__qualname__", ""), inspect.getmodule(thing)
    path = Path(getattr(module, "__file__", None) or "")
    top = name.isidentifier() and getattr(module, name, None) is thing
    packaged = "." in getattr(module, "__name__", "")
    alone = top and not packaged and path.suffix == ".py" and path.is_file()
    return f"{path}:{name}" if alone else ""


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
        return _estimator(name, thing)
    if not callable(thing) or (hasattr(thing, "parameters") and not isinstance(thing, type)):
        why = "is built already, not once a seed" if callable(thing) else "cannot be called"
        raise RegardError(f"{name}, {a(type(thing).__name__)}, {why}; {WAYS}")
    try:
        parameters = dict(inspect.signature(thing).parameters)
    except ValueError as error:
        raise RegardError(f"{name} has no signature ({error}); {WAYS}") from None
    needed = [key for key, one in parameters.items() if _required(one)]
    sizes = {
        size: next((key for key in parameters if key in names), "")
        for size, names in (("vocabulary", VOCABULARY), ("labels", LABELS))
    }
    if not needed and not any(sizes.values()):
        try:
            made = thing()
        except Exception as error:
            raise RegardError(f"{name}() does not run: {one_line(error)}") from error
        if is_estimator(made):
            return _estimator(name, made)
        raise RegardError(f"{name}() returns {a(type(made).__name__)}, not an estimator; {WAYS}")
    if not any(sizes.values()) and len(needed) == 2:
        sizes = dict(zip(sizes, needed, strict=True))
    if left := [key for key in needed if key not in sizes.values()]:
        raise RegardError(f"{name} needs {', '.join(left)}, which nobody gives; {WAYS}")
    fields: dict[str, Any] = {
        key: (type(one.default), one.default)
        for key, one in parameters.items()
        if key not in sizes.values() and isinstance(one.default, bool | int | float | str)
    }
    settings = create_model("OwnSettings", __base__=Settings, **fields)
    return ModelEntry(name, _described(thing, name), settings, partial(_network, thing, sizes))


def _required(one: inspect.Parameter) -> bool:
    several = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    return one.default is one.empty and not several


def _described(thing: Any, name: str) -> str:
    own = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
    return own if isinstance(thing, type) and own else f"a user's model, {name}"


def _network(
    build: Any, sizes: Mapping[str, str], settings: Settings, vocabulary: int, labels: int, _: Any
) -> Any:
    from regard.lab.tasks.called import Called

    known = {"vocabulary": vocabulary, "labels": labels}
    given = {key: known[size] for size, key in sizes.items() if key}
    return Called(build(**given, **settings.model_dump()))


def _estimator(name: str, estimator: Any) -> ModelEntry:
    unset = [
        key
        for key, value in estimator.get_params().items()
        if key.rpartition("__")[2] == "random_state" and value is None
    ]

    def make(settings: Settings, vocabulary: int, labels: int, vectors: Any) -> Any:
        return made_by("regard.lab.tasks.called:Estimator")((estimator, unset), 0, labels, None)

    described = " ".join(repr(estimator).split())[:100]
    return _entry(name, described, NoSettings, seeded=bool(unset), make=make)


@lru_cache(maxsize=256)
def command_entry(name: str) -> ModelEntry:
    """Return the entry of ``command:TEXT``; nothing is run. Raises: a command that cannot work.

    >>> command_entry("command:python mine.py {train} {test} {out} {seed}").deterministic
    False
    >>> command_entry("command:mine {train} {tset} {out}")
    Traceback (most recent call last):
    regard.core.errors.RegardError: command:mine {train} {tset} {out}: {tset} is unknown; ...
    """
    words = words_of(name)
    for place in re.findall(r"\{[a-z_]+\}", name):
        if place not in PLACES:
            raise RegardError(f"{name}: {place} is unknown; a command has {' '.join(PLACES)}")
    for place in ("{test}", "{out}"):
        if place not in name:
            raise RegardError(
                f"{name}: {place} is missing; write command:PROGRAM {{train}} {{test}} {{out}}"
            )
    return _entry(name, f"the program {words[0]}", NoSettings, seeded="{seed}" in name)


def words_of(name: str) -> list[str]:
    """Return the words of a command, split as by a shell. Raises: an open quote, no words, ``;``.

    >>> words_of("command:python 'my file.py' {test}")
    ['python', 'my file.py', '{test}']
    """
    import shlex

    try:
        words = shlex.split(name.removeprefix(COMMAND))
    except ValueError as error:
        raise RegardError(
            f"{name}: {error}; a semicolon ends an arm, and no shell reads a command: put several "
            "into a script"
        ) from None
    if not words or ";" in name:
        raise RegardError(f"{name}: give one program with its arguments, without a semicolon")
    return words
