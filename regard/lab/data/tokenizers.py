"""Tokenizers of words, characters, byte pairs and Unigram pieces, based on `tokenizers`.

A tokenizer is trained once, stored as ``tokenizer.json`` in Hugging Face's format and hashed.
It has no added tokens: ``[PAD]`` inside a text is text.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError, UntrainableError, look_up
from regard.interop.tokenizer_files import FILE_LIMIT, panics

PAD: Final = 0
UNKNOWN: Final = 1
SPECIAL = ("[PAD]", "[UNK]")
REMEMBERED = 100_000  # text chunks whose ids are cached: some 25 MB
SHORT = 32  # maximum characters of a cached chunk

# Like GloVe: punctuation is split off, "don't" = "do n't", "it's" = "it 's". Numbers keep their
# points. Scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao,
# Khmer, Burmese, Tibetan) are split by character, each with its combining marks.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
WORD = (
    rf"[{UNSPACED}]\p{{M}}*"
    r"|\w+?(?=n't(?!\w))|n't(?!\w)|'(?:s|m|d|re|ve|ll)(?!\w)"
    rf"|\d+(?:[.,]\d+)+|[\w&&[^{UNSPACED}]]+|\.{{2,}}|[^\w\s]"
)
LINE_BREAK = r"<br */?>"
# Pre-tokenization of byte pairs (Radford et al. 2019, GPT-2), also used for Unigram.
PIECES = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# The same scripts and their punctuation, for `re`: Thai to Burmese, Khmer, Chinese and Japanese.
NO_SPACE = "[\u0e00-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_needless_space = re.compile(f"(?<={NO_SPACE}) (?={NO_SPACE})")
_line_break = re.compile(LINE_BREAK)
_between_words = re.compile("(?<=[!-~])(?= )")


def _by_spaces(text: str) -> list[str]:
    return _line_break.sub(" ", text).split(" ")


def _before_spaces(text: str) -> list[str]:
    return _between_words.split(text)


#: The kinds, each with a function that splits a text where no token depends on both sides, so that
#: the ids of a text are the concatenated ids of its chunks. Chunks repeat, and caching them is 3
#: times as fast.
TOKENIZERS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    # Lower case, composed (NFC), punctuation split off, contractions as in GloVe; characters of
    # scripts without spaces.
    "words": _by_spaces,
    "characters": _before_spaces,  # every Unicode character
    "bpe": _before_spaces,  # byte pairs, lossless for any text. Sennrich et al. 2016
    "unigram": _before_spaces,  # the likeliest pieces, rare characters as bytes. Kudo 2018
}
WHOLE = {"bpe", "unigram"}  # lossless kinds, with bytes as fallback
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # as in Unigram vocabularies
COVERAGE = 0.9995  # share of characters in Unigram's alphabet, as in SentencePiece
DECIMALS = 6  # of a Unigram score
LEARN = "use minimum=1 or tokenizer=characters; with init=, texts like those of that run"


PARTS = "₁₂₃₄₅₆₇₈"
UNFIT = "\ufffd"  # the replacement of undecodable bytes
Item = TypeVar("Item")


class Stored:
    """A tokenizer that is stored as ``tokenizer.json``, in Hugging Face's format."""

    inner: Any

    def to_bytes(self) -> bytes:
        """Return the content of ``tokenizer.json``."""
        return str(self.inner.to_str(pretty=True)).encode()

    @property
    def sha256(self) -> str:
        """Return the sha256 of ``tokenizer.json``."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @staticmethod
    def read(path: Path) -> Any:
        """Return the ``tokenizers.Tokenizer`` of a file. Raises: no such file, not a tokenizer."""
        import tokenizers

        try:
            if path.stat().st_size > FILE_LIMIT:
                raise RegardError(f"{path}: larger than {FILE_LIMIT:,} bytes")
            content = path.read_bytes().decode()
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise RegardError(f"{path}: not a tokenizer: not UTF-8") from None
        with panics(f"{path}: not a valid tokenizer"):
            return tokenizers.Tokenizer.from_str(content)


class Tokenizer(Stored):
    """A mapping of texts to ids; 0 is padding, 1 a token unknown from the training texts."""

    unknown: int | None = UNKNOWN
    #: Special symbols around a text: none.
    special_tokens: None = None
    #: Ids between two texts: padding, which no text contains.
    between: tuple[int, ...] = (PAD,)

    def __init__(self, kind: str, inner: Any) -> None:
        self.kind = kind
        self.inner = inner
        ids: dict[str, int] = inner.get_vocab(with_added_tokens=False)
        self.vocabulary = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in self.vocabulary] != list(range(len(ids))):
            raise RegardError("the tokenizer's ids are not 0, 1, 2, …")
        if tuple(self.vocabulary[:2]) != SPECIAL:
            raise RegardError(f"the tokenizer's first tokens are not {SPECIAL[0]} and {SPECIAL[1]}")
        self._chunks = look_up(TOKENIZERS, kind, "tokenizer")
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of every text; an empty text has none."""
        encoded = []
        for text in texts:
            chunks = self._chunks(text)
            try:
                parts = [self._known[chunk] for chunk in chunks]
            except KeyError:
                ids_of = self._learn(chunks)
                parts = [ids_of[chunk] for chunk in chunks]
            encoded.append([token for part in parts for token in part])
        return encoded

    def arrays(self, texts: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        """Yield the ids of one text after another as int32, without keeping them in memory."""
        for text in texts:
            yield np.array(self.encode([text])[0], dtype=np.int32)

    def _learn(self, chunks: list[str]) -> dict[str, list[int]]:
        """Return the ids of all chunks. Long chunks rarely repeat and are not cached."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        cached = {chunk: self._known.get(chunk) for chunk in chunks}
        new = [chunk for chunk, ids in cached.items() if ids is None]
        with panics("cannot tokenize a text"):
            encodings = self.inner.encode_batch_fast(sound(new), add_special_tokens=False)
        learned = dict(zip(new, (encoding.ids for encoding in encodings), strict=True))
        self._known.update({chunk: ids for chunk, ids in learned.items() if len(chunk) <= SHORT})
        return {chunk: learned[chunk] if ids is None else ids for chunk, ids in cached.items()}

    def split(self, text: str) -> list[str]:
        """Return the substrings of one text that its ids stand for, one per id."""
        if self.kind in WHOLE:
            return self.tokens(self.encode([text])[0])
        (text,) = sound([text])
        return _pieces(self.inner, text)

    def unknown_in(self, text: str) -> tuple[str, ...]:
        """Return the words or characters of a text that are unknown, each once.

        Byte pairs and Unigram can encode any text; here a character is unknown if they only know
        its bytes, since it was rare or missing in training.

        >>> train_tokenizer("words", ["a bad film"], minimum=1).unknown_in("A good good film?")
        ('good', '?')
        >>> train_tokenizer("bpe", ["très très"], vocabulary=400).unknown_in("très à 字")
        ('à', '字')
        """
        if self.kind in WHOLE:
            signs = dict.fromkeys("".join(sound([text])[0].split()))
            return tuple(sign for sign in signs if sign not in self._characters)
        return unknown_pieces(self, text, UNKNOWN)

    @cached_property
    def _characters(self) -> set[str]:
        """Return the characters of all tokens except bytes; byte pairs include all of ASCII."""
        names = [name for name in self.vocabulary[len(SPECIAL) :] if name not in BYTES]
        return {sign for name in names for sign in _readable(self.inner, name)}

    def tokens(self, ids: Iterable[int], symbol: Callable[[int], str] = "<{}>".format) -> list[str]:
        """Return the readable token of each id; see `whole_characters` for bytes of a character.

        ``symbol`` names ids beyond the vocabulary, which models add.
        """
        tokens: list[str] = []
        for known, run in groupby(map(int, ids), key=lambda i: i < len(self)):
            names = [self.vocabulary[i] if known else symbol(i) for i in run]
            if known and self.kind in WHOLE:
                names = whole_characters(names, lambda part: _readable(self.inner, *part))
            tokens += names
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids: exact for byte pairs and Unigram; words are joined by spaces.

        Scripts without spaces, such as Chinese, get none.
        """
        names = [self.vocabulary[i] for i in ids if i != PAD]
        if self.kind in WHOLE:
            return _readable(self.inner, *names)
        if self.kind != "words":
            return "".join(names)
        return _needless_space.sub("", " ".join(names))

    def save(self, path: Path | str) -> None:
        """Write ``tokenizer.json`` atomically."""
        write_bytes(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """Read a file written by `save`. Raises: no such file, not JSON, not regard's, damaged."""
        _one_thread()
        path = Path(path)
        inner = cls.read(path)
        cuts = _how_it_cuts(inner)
        for kind in TOKENIZERS:
            if _how_it_cuts(pipeline(kind)) == cuts:
                try:
                    return cls(kind, inner)
                except RegardError as error:
                    raise RegardError(f"{path}: {error}") from None
        raise RegardError(f"{path}: a tokenizer, but not one made by this version of regard")


def unknown_pieces(tokenizer: Any, text: str, unknown: int) -> tuple[str, ...]:
    """Return the pieces of a text that have the id of an unknown token, each once."""
    (ids,) = tokenizer.encode([text])
    if unknown not in ids:
        return ()
    pieces = zip(tokenizer.split(text), ids, strict=True)
    return tuple(dict.fromkeys(piece for piece, number in pieces if number == unknown))


def whole_characters(tokens: Sequence[Item], decode: Callable[[Sequence[Item]], str]) -> list[str]:
    """Return each token as text; the tokens of one character all show it, with their number.

    Single bytes may not be decodable. Tokens are joined until they decode without a replacement
    character.

    >>> def decode(part):
    ...     return bytes(part).decode(errors="replace")
    >>> whole_characters([*"a你".encode(), 0xE4], decode)
    ['a', '你₁', '你₂', '你₃', '�']
    """
    names: list[str] = []
    while len(names) < len(tokens):
        start = len(names)
        alone = decode(tokens[start : start + 1])
        stops = range(start + 2, min(start + len(PARTS), len(tokens)) + 1 if UNFIT in alone else 0)
        joined = ((stop, decode(tokens[start:stop])) for stop in stops)
        stop, whole = next(((stop, text) for stop, text in joined if UNFIT not in text), (0, ""))
        names += [f"{whole}{part}" for part in PARTS[: stop - start]] if stop else [alone]
    return names


def must_be_known(
    texts: Iterable[NDArray[np.integer]], remedy: str = LEARN, unknown: int = UNKNOWN
) -> None:
    """Raise an error if more than two of three tokens of these texts are unknown.

    A model would learn to predict "unknown" and be rewarded for it.
    """
    total = missed = 0
    for ids in texts:
        total, missed = total + len(ids), missed + int((ids == unknown).sum())
    if missed > 2 / 3 * total:
        raise UntrainableError(
            f"{missed / total:.0%} of the tokens of these texts are unknown to the tokenizer; "
            f"{remedy}"
        )


def train_tokenizer(
    kind: str, texts: Iterable[str], *, vocabulary: int = 30_000, minimum: int = 2
) -> Tokenizer:
    """Return a tokenizer of at most `vocabulary` tokens that occur `minimum` times in the texts.

    Words and characters are ordered by frequency, then alphabetically; byte pairs in the order of
    their merges, after the 256 bytes (which are always included); Unigram pieces by probability,
    after the 256 bytes, which encode the rarest characters (those that occur less than `minimum`
    times, and 0.05 % of a text). The same texts give the same tokenizer.

    >>> words = train_tokenizer("words", ["It isn't bad", "it's bad!"], minimum=1)
    >>> words.vocabulary
    ['[PAD]', '[UNK]', 'bad', 'it', '!', "'s", 'is', "n't"]
    >>> words.encode(["Is it good?"])
    [[6, 3, 1, 1]]
    """
    _one_thread()
    look_up(TOKENIZERS, kind, "tokenizer")
    least = len(SPECIAL) + (256 if kind in WHOLE else 1)
    if vocabulary < least:
        raise RegardError(
            f"vocabulary must be at least {least} for tokenizer={kind}, not {vocabulary}"
        )
    inner = pipeline(kind)
    if kind not in WHOLE:
        return of_counts(kind, _count(kind, inner, texts), vocabulary, minimum)
    learner = _byte_pairs if kind == "bpe" else _unigram
    inner.model = learner(texts, vocabulary, minimum)
    return Tokenizer(kind, inner)


def of_counts(kind: str, counts: Counter[str], vocabulary: int, minimum: int) -> Tokenizer:
    """Return a tokenizer of the most frequent tokens. Raises: none occurs ``minimum`` times."""
    from tokenizers import models

    _one_thread()
    frequent = [token for token, count in counts.items() if count >= minimum]
    if not frequent:
        raise UntrainableError(
            f"no token occurs {minimum} times; use more text or a smaller minimum"
        )
    frequent.sort(key=lambda token: (-counts[token], token))
    chosen = (*SPECIAL, *frequent[: vocabulary - len(SPECIAL)])
    inner = pipeline(kind)
    inner.model = models.WordLevel({token: i for i, token in enumerate(chosen)}, SPECIAL[1])
    return Tokenizer(kind, inner)


def pipeline(kind: str) -> Any:
    """Return an untrained tokenizer of a kind."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if kind == "bpe":
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        inner.decoder = decoders.ByteLevel()
        return inner
    if kind == "unigram":
        inner = Tokenizer(models.Unigram())
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
        inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        return inner
    inner = Tokenizer(models.WordLevel(unk_token=SPECIAL[1]))
    if kind == "characters":
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        return inner
    inner.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"\p{Default_Ignorable_Code_Point}+"), ""),
            normalizers.NFC(),
            normalizers.Replace(Regex(LINE_BREAK), " "),
            normalizers.Replace("’", "'"),
            normalizers.Lowercase(),
        ]
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    return inner


def _how_it_cuts(inner: Any) -> tuple[Any, ...]:
    """Return the parts of a tokenizer that identify its kind, and regard's own tokenizers."""
    content = json.loads(inner.to_str())
    parts = [content[part] for part in ("normalizer", "pre_tokenizer", "added_tokens")]
    return (*parts, content["model"]["type"])


def _count(kind: str, inner: Any, texts: Iterable[str]) -> Counter[str]:
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(TOKENIZERS[kind](text))
    counts: Counter[str] = Counter()
    with panics("cannot tokenize the texts"):
        for chunk, count in zip(sound(list(chunks)), chunks.values(), strict=True):
            for piece in _pieces(inner, chunk):
                counts[piece] += count
    return counts


def _byte_pairs(texts: Iterable[str], vocabulary: int, minimum: int) -> Any:
    """Learn merges; return a model without added tokens."""
    from tokenizers import models, pre_tokenizers, trainers

    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=minimum,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    teacher = pipeline("bpe")  # training adds special tokens to it, so only its model is used
    with panics("cannot learn byte pairs"):
        teacher.train_from_iterator(_sound_each(texts), trainer)
    learned = json.loads(teacher.to_str())["model"]
    return models.BPE(learned["vocab"], [tuple(pair) for pair in learned["merges"]])


def _unigram(texts: Iterable[str], vocabulary: int, minimum: int) -> Any:
    """Learn the likeliest pieces; return a model that encodes the rest as bytes."""
    from tokenizers import models

    from regard.lab.data.unigram import learn_pieces

    certain = [(token, 0.0) for token in (*SPECIAL, *BYTES)]
    room = vocabulary - len(certain)
    chunks = Counter(chunk for text in _sound_each(texts) for chunk in _before_spaces(text))
    alphabet = _alphabet(chunks, minimum, most=room)
    words = _words(chunks, alphabet)
    scores = {p: round(score, DECIMALS) for p, score in learn_pieces(words, alphabet, room).items()}
    pieces = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return models.Unigram([*certain, *pieces], unk_id=UNKNOWN, byte_fallback=True)


def _alphabet(chunks: Counter[str], minimum: int, most: int) -> set[str]:
    """Return the characters of pieces: the frequent ones, which cover nearly all texts."""
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for character in chunk:
            counts[character] += count
    alphabet: set[str] = set()
    left = (1 - COVERAGE) * counts.total()
    uncovered = counts.total()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count < minimum or uncovered <= left or len(alphabet) >= most:
            break
        alphabet.add(character)
        uncovered -= count
    return alphabet


def _words(chunks: Counter[str], alphabet: set[str]) -> Counter[str]:
    """Return the words to learn pieces from: chunks split by `PIECES` and unknown characters."""
    inner = pipeline("unigram")
    words: Counter[str] = Counter()
    with panics("cannot split the texts into words"):
        for chunk, count in chunks.items():
            known = "".join(c if c in alphabet else "\n" for c in chunk)
            for piece in _pieces(inner, known):
                for word in piece.split("\n"):
                    words[word] += count
    del words[""]
    return words


def _pieces(inner: Any, text: str) -> list[str]:
    with panics("cannot split a text into pieces"):
        if inner.normalizer is not None:
            text = inner.normalizer.normalize_str(text)
        return [piece for piece, _ in inner.pre_tokenizer.pre_tokenize_str(text)]


def _readable(inner: Any, *names: str) -> str:
    with panics("cannot decode tokens"):
        return str(inner.decoder.decode(list(names)))


def sound(texts: list[str]) -> list[str]:
    """Replace unpaired surrogates, which are not valid UTF-8 but may be in command lines."""
    return [text if text.isascii() else text.encode(errors="replace").decode() for text in texts]


def _sound_each(texts: Iterable[str]) -> Iterator[str]:
    return (sound([text])[0] for text in texts)


def _one_thread() -> None:
    """Disable Rust threads unless the user configured them: they may hang after a fork."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
