"""Ids of the special tokens, after the tokenizer's ids, so that no text can contain them."""

from typing import Final, NamedTuple

#: Special tokens of every pretrained model, in the order of their ids.
NAMES: Final = ("[MASK]", "[SEP]", "[CLS]")
COUNT: Final = len(NAMES)
SENTINELS: Final = 100  # number of T5's sentinels, whose ids follow


class SpecialTokens(NamedTuple):
    """Ids of the special tokens.

    >>> SpecialTokens.after(256).mask, SpecialTokens.after(256).sentinel(0)
    (256, 259)
    """

    mask: int
    separator: int
    classify: int

    @classmethod
    def after(cls, vocabulary: int) -> "SpecialTokens":
        """Return the ids that follow those of a tokenizer with ``vocabulary`` tokens."""
        return cls(vocabulary, vocabulary + 1, vocabulary + 2)

    def sentinel(self, number: int) -> int:
        """Return the id of T5's sentinel ``<extra_id_number>``, which replaces a span."""
        return self.classify + 1 + number
