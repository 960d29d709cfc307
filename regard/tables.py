"""Tables of parts by name: regard's own rows, those of installed packages, and a user's files."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from regard.errors import RegardError
from regard.plugins import a, load_object, one_line
from regard.trusted import must_be_trusted

T = TypeVar("T")


class Table(Mapping[str, T], Generic[T]):
    """Rows by name, in order; a name that is no row is looked for elsewhere.

    ``FILE.py:NAME`` is an object in a user's own file, which runs only if it is trusted
    (`regard.trusted`). Any other name may be an entry point of an installed package, in the
    ``group`` "regard.models", say; those come behind the rows where names are listed. What is found
    must be a ``kind``, called ``what`` in errors.

    >>> table = Table({"one": 1}, "regard.numbers", int, "number")
    >>> table["one"], "two" in table, list(table)
    (1, False, ['one'])
    """

    def __init__(self, rows: Mapping[str, T], group: str, kind: type[T], what: str) -> None:
        self.rows, self.group, self.kind, self.what = dict(rows), group, kind, what

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """The entry points of the group that take no row's name."""
        found = {point.name: point for point in entry_points(group=self.group)}
        return {name: point for name, point in found.items() if name not in self.rows}

    def __getitem__(self, name: str) -> T:
        """Return a row. Errors: a file that is not trusted, does not run, or holds another kind."""
        if name in self.rows:
            return self.rows[name]
        if _in_a_file(name):
            must_be_trusted({self.what: name}, Path(f"the {self.what}"))
            return self._checked(name, load_object(name))
        if name not in self._points:
            raise KeyError(name)
        try:
            found = self._points[name].load()
        except Exception as error:  # whatever an installed package raises
            raise RegardError(
                f"the {self.what} {name!r} of {self._points[name].value} cannot be loaded: "
                f"{one_line(error)}"
            ) from error
        self.rows[name] = self._checked(name, found)
        return self.rows[name]

    def _checked(self, name: str, found: Any) -> T:
        if not isinstance(found, self.kind):
            raise RegardError(
                f"{name} is {a(type(found).__name__)} and no {self.what}: name "
                f"{a(self.kind.__name__)}"
            )
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.rows or _in_a_file(name) or name in self._points
        )

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.rows, *self._points])

    def __len__(self) -> int:
        return len({*self.rows, *self._points})


def _in_a_file(name: str) -> bool:
    """Whether a name is ``FILE.py:NAME``."""
    return name.rpartition(":")[0].endswith(".py")
