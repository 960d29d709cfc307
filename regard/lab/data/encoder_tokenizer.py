"""The unmodified tokenizer of a pretrained encoder: BERT's, RoBERTa's, DistilBERT's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.interop.tokenizer_files import panics
from regard.lab.data.tokenizers import Stored, sound, unknown_pieces
from regard.nn.layers.special_tokens import SpecialTokens

#: Names of the symbols before and after a text, and of the mask symbol.
NAMES = (("[CLS]", "[SEP]", "[MASK]"), ("<s>", "</s>", "<mask>"))
PROBE = "a"
LARGEST = 10_000_000  # largest token id
KEPT = 1_024  # texts


class EncoderTokenizer(Stored):
    """A tokenizer that maps texts to the ids of a pretrained encoder, without special symbols.

    A symbol spelt out in a text, such as "[SEP]", is split like any other word, so that no text
    can fake one. ``special_tokens`` are the ids of the symbols that the encoder expects before
    (``classify``) and after (``separator``) a text; the model adds them. They are None for the
    tokenizer of a table of vectors without such symbols. ``between`` are the ids between two texts,
    "[SEP]" or "</s></s>". ``unknown`` is the id of an unknown token, None where any text can be
    encoded (by bytes).
    """

    kind = "pretrained"

    def __init__(self, inner: Any, source: str) -> None:
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True
        self.inner = inner
        self._last: dict[str, list[int]] = {}
        ids: dict[str, int] = inner.get_vocab(with_added_tokens=True)
        if not ids:
            raise RegardError(f"the tokenizer of {source} has no tokens")
        if max(ids.values()) > LARGEST:
            raise RegardError(
                f"the tokenizer of {source} has token id {max(ids.values()):,}, over {LARGEST:,}"
            )
        self.vocabulary = [""] * (max(ids.values()) + 1)
        for token, number in ids.items():
            self.vocabulary[number] = token
        self.special_tokens = _special_tokens(inner, source)
        self.between = _between(inner, source, self.special_tokens)
        name = getattr(inner.model, "unk_token", None)
        self.unknown: int | None = ids.get(str(name)) if name else None

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text; an empty text has none.

        The last ones are kept: an answer, its cut and its unknown words need them.
        """
        if any(text not in self._last for text in texts):
            with panics("cannot tokenize a text"):
                encoded = self.inner.encode_batch_fast(sound(list(texts)), add_special_tokens=False)
            ids = [encoding.ids for encoding in encoded]
            if len(texts) > KEPT:
                return ids
            self._last = dict(zip(texts, ids, strict=True))
        return [self._last[text] for text in texts]

    def split(self, text: str) -> list[str]:
        """Return the substrings of one text that its ids stand for, one per id."""
        (text,) = sound([text])
        with panics("cannot tokenize a text"):
            encoding = self.inner.encode(text, add_special_tokens=False)
        pieces = (text[start:end].strip() for start, end in encoding.offsets)
        named = zip(pieces, encoding.ids, strict=True)
        return [piece or self._written(number) for piece, number in named]

    def unknown_in(self, text: str) -> tuple[str, ...]:
        """Return the words of a text that are unknown, each once; none if bytes encode any."""
        return () if self.unknown is None else unknown_pieces(self, text, self.unknown)

    def _written(self, number: int) -> str:
        """Return a token as text, or its name if it has no text."""
        text: str = self.inner.decode([number], skip_special_tokens=False)
        return text or self.vocabulary[number]

    def framed(self, pieces: Sequence[str]) -> list[str]:
        """Return pieces between the names of the symbols that the model adds."""
        assert self.special_tokens is not None
        first, last = (
            self.vocabulary[i]
            for i in (self.special_tokens.classify, self.special_tokens.separator)
        )
        return [first, *pieces, last]

    @classmethod
    def load(cls, path: Path | str) -> "EncoderTokenizer":
        """Read a file written from `to_bytes`. Raises: no such file, not a tokenizer."""
        return cls(cls.read(Path(path)), str(path))


def _special_tokens(inner: Any, source: str) -> SpecialTokens | None:
    """Return the symbols around a text, as the tokenizer adds them, or by name; None without."""
    with panics(f"the tokenizer of {source} cannot tokenize a text"):
        encoding = inner.encode(PROBE)
    marks = encoding.special_tokens_mask
    specials = [i for i, special in zip(encoding.ids, marks, strict=True) if special]
    masks = [inner.token_to_id(name) for *_, name in NAMES]
    mask = next((number for number in masks if number is not None), 0)
    if len(specials) == 2 and marks[0] == marks[-1] == 1:
        return SpecialTokens(mask, separator=specials[1], classify=specials[0])
    for first, last, _ in NAMES:
        numbers = inner.token_to_id(first), inner.token_to_id(last)
        if None not in numbers:
            return SpecialTokens(mask, separator=numbers[1], classify=numbers[0])
    return None


def _between(inner: Any, source: str, symbols: SpecialTokens | None) -> tuple[int, ...]:
    """Return the special ids that the tokenizer puts between two texts; none without symbols."""
    if symbols is None:
        return ()
    with panics(f"the tokenizer of {source} cannot tokenize two texts"):
        encoding = inner.encode(PROBE, PROBE)
    sides, found = encoding.sequence_ids, ()
    if 0 in sides and 1 in sides:
        found = tuple(encoding.ids[len(sides) - sides[::-1].index(0) : sides.index(1)])
    return found or (symbols.separator,)
