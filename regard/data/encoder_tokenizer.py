"""The tokenizer of a pretrained encoder, used as it came: BERT's, RoBERTa's, DistilBERT's."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.tokenizers import panics, sound
from regard.errors import RegardError
from regard.layers.marks import Marks

#: What the symbols before and behind a text, and the one for a hidden word, are called.
NAMES = (("[CLS]", "[SEP]", "[MASK]"), ("<s>", "</s>", "<mask>"))
PROBE = "a"
LARGEST = 10_000_000  # number of a token


class EncoderTokenizer:
    """Turns texts into the ids that a pretrained encoder knows, without symbols about them.

    A symbol that is spelt out in a text, as "[SEP]", is cut like any other word, so that no text
    can fake one. ``marks`` are the numbers of the symbols that the encoder expects before
    (``classify``) and behind (``separator``) a text; the model puts them there. ``unknown`` is the
    number of a piece that is not known, None where any text can be written (by bytes).

    Errors: `RegardError`: a tokenizer that has no such symbols.
    """

    kind = "pretrained"

    def __init__(self, inner: Any, source: str) -> None:
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True
        self.inner = inner
        ids: dict[str, int] = inner.get_vocab(with_added_tokens=True)
        if not ids:
            raise RegardError(f"the tokenizer of {source} knows no token")
        if max(ids.values()) > LARGEST:
            raise RegardError(f"the tokenizer of {source} numbers a token {max(ids.values()):,}")
        self.vocabulary = [""] * (max(ids.values()) + 1)
        for token, number in ids.items():
            self.vocabulary[number] = token
        self.marks = _marks(inner, source)
        name = getattr(inner.model, "unk_token", None)
        self.unknown: int | None = ids.get(str(name)) if name else None

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text; an empty text has none."""
        with panics("a text could not be cut into tokens"):
            found = self.inner.encode_batch_fast(sound(list(texts)), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def split(self, text: str) -> list[str]:
        """Return the pieces of one text as its writer would recognise them, one for each id."""
        (text,) = sound([text])
        with panics("a text could not be cut into tokens"):
            encoding = self.inner.encode(text, add_special_tokens=False)
        pieces = (text[start:end].strip() for start, end in encoding.offsets)
        named = zip(pieces, encoding.ids, strict=True)
        return [piece or self._written(number) for piece, number in named]

    def _written(self, number: int) -> str:
        """Return a token as text, or its name where it stands for none."""
        text: str = self.inner.decode([number], skip_special_tokens=False)
        return text or self.vocabulary[number]

    def framed(self, pieces: Sequence[str]) -> list[str]:
        """Return pieces with the names of the symbols that the model puts about them."""
        first, last = (self.vocabulary[i] for i in (self.marks.classify, self.marks.separator))
        return [first, *pieces, last]

    def to_bytes(self) -> bytes:
        """Return the content of ``tokenizer.json``, in Hugging Face's format."""
        return str(self.inner.to_str(pretty=True)).encode()

    @property
    def sha256(self) -> str:
        """The hash of ``tokenizer.json``."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def load(cls, path: Path | str) -> "EncoderTokenizer":
        """Read what a run has kept of `to_bytes`. Errors: no such file, not a tokenizer."""
        import tokenizers

        path = Path(path)
        try:
            content = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RegardError(f"{path}: cannot be read: {error}") from None
        with panics(f"{path}: is no sound tokenizer"):
            inner = tokenizers.Tokenizer.from_str(content)
        return cls(inner, str(path))


def _marks(inner: Any, source: str) -> Marks:
    """Return the symbols about a text, as the tokenizer itself sets them, or by their names."""
    with panics(f"the tokenizer of {source} cannot cut a text"):
        found = inner.encode(PROBE)
    specials = [
        i for i, special in zip(found.ids, found.special_tokens_mask, strict=True) if special
    ]
    masks = [inner.token_to_id(name) for *_, name in NAMES]
    mask = next((number for number in masks if number is not None), 0)
    ends = [found.special_tokens_mask[0], found.special_tokens_mask[-1]] if found.ids else []
    if len(specials) == 2 and ends == [1, 1]:
        return Marks(mask, separator=specials[1], classify=specials[0])
    for first, last, _ in NAMES:
        numbers = inner.token_to_id(first), inner.token_to_id(last)
        if None not in numbers:
            return Marks(mask, separator=numbers[1], classify=numbers[0])
    raise RegardError(
        f"the tokenizer of {source} has no symbols to put about a text ([CLS] and [SEP], or <s> "
        "and </s>); save the model's own tokenizer beside it: "
        "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) of transformers"
    )
