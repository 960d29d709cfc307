"""Errors that a caller can fix, in one line."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from regard.core.usual import nearest

T = TypeVar("T")


class RegardError(Exception):
    """An error that the caller can fix: what is wrong, the value, the remedy.

    One line in the terminal (exit code 2), status 400 on the web.
    """


class UntrainableError(RegardError):
    """A training that fails because of its settings: divergence, or no training data.

    A search counts it as a failed trial; other errors (data, disk) end the search.
    """


class OccupiedError(RegardError):
    """The output folder holds another run, comparison or report."""


class LockedError(RegardError):
    """Another process is writing to the folder of a run."""


class ArgumentError(RegardError, ValueError):
    """An error of an estimator's parameters, X or y; scikit-learn's users catch ValueError."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise an error of settings or data as an `ArgumentError`; also a decorator of methods."""
    try:
        yield
    except RegardError as error:
        if type(error) in (RegardError, UntrainableError):
            raise ArgumentError(str(error)) from error
        raise


@contextmanager
def importing(missing: str, extra: str) -> Iterator[None]:
    """Convert a failed import within the context into an error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        install = f"pip install -c constraints.txt '.[{extra}]'"
        raise RegardError(f"{missing} ({error}): {install}") from None


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the row of a table by its name, or raise an error that suggests similar names.

    >>> look_up({"dot": 1, "additive": 2}, "dot", "score")
    1
    >>> look_up({"dot": 1, "additive": 2}, "aditive", "score")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no score is called ...
    """
    if name in table:
        return table[name]
    raise RegardError(no_such(name, table, what))


def no_such(name: str, known: Iterable[str], what: str) -> str:
    """Return the error message for an unknown name, with similar and available names."""
    names = list(known)
    near = nearest(name, names)
    hint = f"did you mean {' or '.join(near)}? There" if near else "there"
    return f"no {what} is called {name!r}; {hint} are: {', '.join(names)}"
