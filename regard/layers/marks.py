"""Numbers behind a tokenizer's own: symbols that no text holds, and so no text can fake."""

from typing import Final, NamedTuple

#: Symbols of every model that is pretrained, in the order of their numbers.
NAMES: Final = ("[MASK]", "[SEP]", "[CLS]")
COUNT: Final = len(NAMES)
SENTINELS: Final = 100  # of T5, behind those


class Marks(NamedTuple):
    """The numbers of the symbols that follow the ``vocabulary`` tokens of a tokenizer.

    >>> Marks.behind(256).mask, Marks.behind(256).sentinel(0)
    (256, 259)
    """

    mask: int
    separator: int
    classify: int

    @classmethod
    def behind(cls, vocabulary: int) -> "Marks":
        """Those of a tokenizer with so many tokens."""
        return cls(vocabulary, vocabulary + 1, vocabulary + 2)

    def sentinel(self, number: int) -> int:
        """The number of T5's sentinel ``<extra_id_number>``, which stands for a span left out."""
        return self.classify + 1 + number
