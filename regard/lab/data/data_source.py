"""Where data come from, as every loader takes it."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Columns:
    """Columns by title, or by number from 1; "" where they are found by common names.

    ``text`` is the input, ``label`` the answer: a label, a number, tags or the other side of a
    pair. Rows of equal ``group`` stay in one split. ``labels`` renames values of the label column:
    "neg:0,pos:1".
    """

    text: str = ""
    label: str = ""
    group: str = ""
    labels: str = ""

    @property
    def named(self) -> bool:
        """Return whether a column is given."""
        return bool(self.text or self.label or self.group)

    def filled(self, others: "Columns") -> "Columns":
        """Return these columns, with those of `others` in place of missing ones."""
        names = (field.name for field in fields(self))
        return Columns(*(getattr(self, name) or getattr(others, name) for name in names))


NAMED = Columns()  # columns with common names
