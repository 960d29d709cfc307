"""Tables of parts by name: from regard, from installed packages and from a user's files."""

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from regard.core.errors import RegardError, look_up
from regard.core.names import is_part, located, options_of, row_of
from regard.core.plugins import a, load_object, one_line
from regard.core.trusted import must_be_trusted

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Table(Mapping[str, T], Generic[T]):
    """Rows by name, in order; other names are looked up in packages and files.

    A row written "module:NAME" is imported on first use. A name ``FILE.py:NAME`` is an object in a
    user's file, which runs only if it is trusted (`regard.core.trusted`). Any other name may be an
    entry point of an installed package in the ``group``, such as "regard.models". Entry points are
    listed after the rows, and are read only for a list or an unknown name. A loaded object must be
    an instance of ``kind``, or with ``classes`` a subclass; errors call it ``what`` and show
    ``example`` as the way to write one.

    >>> table = Table({"one": 1, "pi": "math:pi"}, "regard.numbers", (int, float), "number")
    >>> table["one"], table["pi"] > 3, "two" in table, list(table)
    (1, True, False, ['one', 'pi'])
    """

    def __init__(
        self,
        rows: Mapping[str, T | str],
        group: str,
        kind: type | tuple[type, ...],
        what: str,
        *,
        classes: bool = False,
        example: str = "",
    ) -> None:
        self.rows, self.group, self.what = dict(rows), group, what
        self.kinds = kind if isinstance(kind, tuple) else (kind,)
        self.classes, self.example = classes, example

    @cached_property
    def _points(self) -> "dict[str, EntryPoint]":
        """Return the group's entry points whose names are not rows."""
        from importlib.metadata import entry_points

        points = {point.name: point for point in entry_points(group=self.group)}
        return {name: point for name, point in points.items() if name not in self.rows}

    def __getitem__(self, name: str) -> T:
        """Return a row. Raises: an untrusted or failing file; another kind of object."""
        if name in self.rows:
            row = self.rows[name]
            if isinstance(row, str):
                row = self.rows[name] = self._checked(name, load(row, self.what))
            return row
        if is_part(name):
            return self._checked(name, load(name, self.what))
        if name not in self._points:
            raise KeyError(name)
        try:
            loaded = self._points[name].load()
        except Exception as error:  # whatever an installed package raises
            raise RegardError(
                f"the {self.what} {name!r} of {self._points[name].value} cannot be loaded: "
                f"{one_line(error)}"
            ) from error
        row = self.rows[name] = self._checked(name, loaded)
        return row

    def named(self, name: str) -> tuple[T, dict[str, Any]]:
        """Return the row of a name and the options behind it, which the row's ``options`` declare.

        Raises: an unknown name; options that the row does not take.

        >>> from regard.attention.normalizers import NORMALIZERS
        >>> NORMALIZERS.named("top-k-8")[1]
        {'k': 8}
        """
        row_name, words = self.split(name)
        row = look_up(self, row_name, self.what)
        return row, options_of(name, words, getattr(row, "options", {}))

    def is_row(self, name: str) -> bool:
        """Return whether a name is a row, with or without options; ``FILE.py:Name`` is none.

        >>> table = Table({"top-k": 1}, "regard.numbers", int, "number")
        >>> table.is_row("top-k-8"), table.is_row("top")
        (True, False)
        """
        return not is_part(name) and self.split(name)[0] in self

    def split(self, name: str) -> tuple[str, list[str]]:
        """Return the row of a name and the words behind it, as `regard.core.names.row_of`.

        Packages are searched only for a name that begins with no row of the table.
        """
        row, words = row_of(name, self.rows)
        return (row, words) if row in self.rows or is_part(name) else row_of(name, self)

    def _checked(self, name: str, loaded: Any) -> T:
        if isinstance(loaded, self.kinds) and not self.classes:
            return cast("T", loaded)
        if self.classes and isinstance(loaded, type) and issubclass(loaded, self.kinds):
            return cast("T", loaded)
        kind, of = self.kinds[0], a(type(loaded).__name__)
        if not self.classes:
            remedy = (
                f"write {located(name)[1]} = {self.example}"
                if self.example
                else f"name {a(kind.__name__)}"
            )
            raise RegardError(f"{name} is {of}, not {a(self.what)}: {remedy}")
        if not isinstance(loaded, type):
            raise RegardError(f"{name} is {of}, not a class: name the {self.what} class")
        base = f"{kind.__module__.rpartition('.')[0]}.{kind.__name__}"
        raise RegardError(f"{name} is not {a(self.what)}: write `class {loaded.__name__}({base}):`")

    def __repr__(self) -> str:
        """Return a line per row with its name and a description, without importing it.

        >>> print(Table({"pi": "math:pi", "int": int}, "regard.numbers", (int, type), "number"))
        2 of the kind number:
          pi   math:pi
          int  int([x]) -> integer
        """
        wide = max(map(len, self), default=0)
        rows = [f"  {name:<{wide}}  {_line(self.rows.get(name, self.group))}" for name in self]
        return "\n".join([f"{len(self)} of the kind {self.what}:", *rows])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.rows or is_part(name) or name in self._points
        )

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.rows, *self._points])

    def __len__(self) -> int:
        return len({*self.rows, *self._points})


def _line(row: object) -> str:
    """Describe a row in one line: its place, its description, or the first line of its text."""
    if isinstance(row, str):
        return row
    words = getattr(row, "description", "") or getattr(row, "question", "") or row.__doc__ or ""
    return words.strip().partition("\n")[0] or repr(row)


def load(spec: str, what: str) -> Any:
    """Return the object that "module:NAME" or ``FILE.py:NAME`` names.

    Raises: a file that is not trusted or does not run; an unknown name.

    >>> load("math:tau", "number") > 6
    True
    """
    if is_part(spec):
        must_be_trusted({what: spec}, Path(f"the {what}"))
        return load_object(spec)
    module, name = located(spec)
    return getattr(importlib.import_module(module), name)
