"""What a caller can fix, said in one line."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from regard.usual import nearest

T = TypeVar("T")


class RegardError(Exception):
    """A mistake that the caller can fix: what was asked, what came, what to do.

    One line in the terminal (exit code 2), status 400 on the web.
    """


class UntrainableError(RegardError):
    """A training that its own settings end: the loss diverges, or nothing is left to learn from.

    A search counts it as a trial that failed; other errors (data, disk) end the search.
    """


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """The row of a table by its name, or an error that offers what is probably meant.

    >>> look_up({"dot": 1, "additive": 2}, "dot", "score")
    1
    >>> look_up({"dot": 1, "additive": 2}, "aditive", "score")
    Traceback (most recent call last):
    regard.errors.RegardError: no score is called ...
    """
    if name in table:
        return table[name]
    raise RegardError(no_such(name, table, what))


def no_such(name: str, known: Iterable[str], what: str) -> str:
    """Return the sentence for a name that does not exist."""
    names = list(known)
    near = nearest(name, names)
    hint = f"did you mean {' or '.join(near)}? There" if near else "there"
    return f"no {what} is called {name!r}; {hint} are: {', '.join(names)}"
