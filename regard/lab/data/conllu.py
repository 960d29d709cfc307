"""Parsed sentences in CoNLL-U: one word per line, with the number of its head.

https://universaldependencies.org/format.html: ten tab-separated columns, of which ID, FORM and HEAD
are read; an empty line after each sentence; comments ``# key = value`` before it. Multiword tokens
(``4-5``) and empty nodes (``4.1``) are not part of the tree and are skipped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.data.lines import Lines
from regard.lab.data.titles import listed
from regard.lab.data.tokenizers import UNKNOWN, Tokenizer, of_counts, pipeline

FIELDS = 10
ID, FORM, HEAD = 0, 1, 6
#: Comments that also apply to the following sentences, until the next of their kind.
LASTING = ("newdoc", "newpar", "meta::")
NO_WORD = re.compile(r"\d+(-|\.)\d+")  # a multiword token or an empty node
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence's words, the head of each word (from 0; −1: a root), and its comments.

    ``parents``: None if no word has a head (``_``). ``line``: its first line in the file.
    ``tags``: the values of a requested column.

    No word contains a space: a space in a FORM becomes a no-break space, so that
    ``" ".join(words)`` can be split again.
    """

    words: tuple[str, ...]
    parents: tuple[int, ...] | None
    comments: Mapping[str, str]
    line: int
    tags: tuple[str, ...] = ()

    def comment(self, key: str) -> str | None:
        """Return a comment by key, or its beginning up to a sign by ``KEY:SIGN``; else None.

        >>> Sentence((), (), {"sent_id": "weblog-1-7"}, 1).comment("sent_id:-")
        'weblog'
        """
        if key in self.comments:
            return self.comments[key]
        name, _, sign = key.rpartition(":")
        if sign and name in self.comments:
            return self.comments[name].partition(sign)[0]
        return None


@dataclass(frozen=True, slots=True)
class BadSentence:
    """A sentence that is not valid CoNLL-U or not a tree: its line and the reason."""

    line: int
    why: str
    empty: bool = False


def is_conllu(path: Path | str) -> bool:
    """Return whether a file name ends in .conllu, plain or .gz.

    >>> is_conllu("en_ewt-ud-dev.conllu.gz"), is_conllu("reviews.csv")
    (True, False)
    """
    return str(path).lower().removesuffix(".gz").endswith(".conllu")


def sentences(lines: Iterable[str], tags: int | None = None) -> Iterator[Sentence | BadSentence]:
    """Yield the sentences of a file's lines, valid or not, in order.

    ``tags``: the index of a column, from 0, to read as tags. Then heads may be missing; such a
    sentence has no ``parents``.

    >>> table = [f"{i}\\t{word}" + "\\t_" * 4 + f"\\t{head}" + "\\t_" * 3
    ...          for i, word, head in [(1, "She", 2), (2, "sleeps", 0), (3, "well", 2)]]
    >>> (sentence,) = sentences(["# label = calm", *table, ""])
    >>> sentence.words, sentence.parents, sentence.comment("label")
    (('She', 'sleeps', 'well'), (1, -1, 1), 'calm')
    """
    lasting: dict[str, str] = {}
    block: list[tuple[int, str]] = []
    for number, line in enumerate(chain(lines, [""]), 1):
        line = line.rstrip("\r\n")
        if line.strip():
            block.append((number, line))
        elif block:
            yield _sentence(block, lasting, tags)
            block = []


def read_sentences(
    lines: Lines, tags: int | None = None
) -> Iterator[tuple[str, Sentence | BadSentence]]:
    """Yield the sentences of a file by file:line; one with a line in error is bad."""
    for sentence in sentences(lines, tags):
        if problem := lines.complaint():
            sentence = BadSentence(sentence.line, problem)
        yield f"{lines.name}:{sentence.line}", sentence


def _sentence(
    block: Sequence[tuple[int, str]], lasting: dict[str, str], column: int | None
) -> Sentence | BadSentence:
    """Return the sentence of some lines; lasting comments are added to ``lasting``."""
    own: dict[str, str] = {}
    for _, line in block:
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            _remember(key.strip(), value.strip(), own, lasting)
    rows = [(number, line.split("\t")) for number, line in block if not line.startswith("#")]
    words: list[str] = []
    tags: list[str] = []
    heads: list[tuple[int, str]] = []  # the line of each word, and its HEAD
    for number, fields in rows:
        if len(fields) != FIELDS:
            why = f"{len(fields)} tab-separated fields, but CoNLL-U has {FIELDS}"
            return BadSentence(number, why)
        if NO_WORD.fullmatch(fields[ID]):
            continue
        if fields[ID] != str(len(words) + 1):
            return BadSentence(number, f"ID must be {len(words) + 1}, not {fields[ID]!r:.40}")
        if not (word := fields[FORM].strip(" ")):
            return BadSentence(number, "the FORM (word) is empty")
        words.append(word.replace(" ", NO_BREAK))
        heads.append((number, fields[HEAD]))
        if column is not None:
            tags.append(fields[column].strip(" ") or "_")
    if not words:
        return BadSentence(block[0][0], "the sentence has no words", empty=True)
    unknown = [head == "_" for _, head in heads]
    parents = None if all(unknown) or (any(unknown) and column is not None) else _tree(heads)
    if isinstance(parents, BadSentence):
        return parents
    return Sentence(tuple(words), parents, {**lasting, **own}, block[0][0], tuple(tags))


def _remember(key: str, value: str, own: dict[str, str], lasting: dict[str, str]) -> None:
    kind = next((kind for kind in LASTING if key.startswith(kind)), "")
    if kind in ("newdoc", "newpar") and not any(k.startswith(kind) for k in own):
        for old in [k for k in lasting if kind == "newdoc" or k.startswith(kind)]:
            del lasting[old]
    if kind:
        lasting[key] = value
    own[key] = value


def _tree(written: Sequence[tuple[int, str]]) -> tuple[int, ...] | BadSentence:
    """Return the parent of each word, or the first error in the heads of a sentence."""
    for line, number in written:
        if not (number.isascii() and number.isdecimal()):
            why = f"HEAD must be the number of a word, or 0 for a root, not {number!r:.40}"
            return BadSentence(line, why)
    heads = [(line, int(number)) for line, number in written]
    for line, head in heads:
        if head > len(heads):
            return BadSentence(line, f"HEAD is {head}, but the sentence has {len(heads)} words")
    known = {0}  # numbers of words whose path of heads ends at a root
    for word in range(1, len(heads) + 1):
        way: dict[int, None] = {}
        while word not in known:
            if word in way:
                line = heads[word - 1][0]
                return BadSentence(line, f"the HEADs of word {word} form a cycle")
            way[word] = None
            word = heads[word - 1][1]
        known |= way.keys()
    return tuple(head - 1 for _, head in heads)


def no_comment(sentence: Sentence, here: str, what: str, key: str) -> RegardError:
    """Return the error for a ``label`` or ``group`` that the first sentence of a file lacks."""
    return RegardError(
        f"{here}: no comment '# {key} = …'; comments: {listed(list(sentence.comments))}; set "
        f"{what}=KEY, or {what}=KEY:SIGN for its beginning up to a sign, e.g. {what}=sent_id:-"
    )


def kept_tree(parents: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the new heads of the words ``kept``: the nearest ancestor that is kept.

    A word without such an ancestor is a root.

    >>> kept_tree([1, -1, 1, 2], [0, 3])
    [-1, -1]
    >>> kept_tree([1, -1, 1, 2], [1, 3])
    [-1, 0]
    """
    place = {word: i for i, word in enumerate(kept)}
    heads = []
    for word in kept:
        above = parents[word]
        while above >= 0 and above not in place:
            above = parents[above]
        heads.append(place.get(above, -1))
    return heads


def train_on_words(
    texts: Iterable[Sequence[str]], *, vocabulary: int = 30_000, minimum: int = 2
) -> Tokenizer:
    """Return a tokenizer of pre-split words: each is one token, in lower case.

    >>> train_on_words([["U.S.", "e-mail"], ["e-mail"]], minimum=1).vocabulary[2:]
    ['e-mail', 'u.s.']
    """
    lower = pipeline("words").normalizer.normalize_str
    counts = Counter(lower(word) for words in texts for word in words)
    return of_counts("words", counts, vocabulary, minimum)


def word_ids(tokenizer: Tokenizer, words: Iterable[str]) -> list[int]:
    """Return exactly one id per word. Raises: a tokenizer of another kind than words.

    A tree has one node per word, so that no word may be split.
    """
    if tokenizer.kind != "words":
        raise RegardError(
            f"tokenizer={tokenizer.kind} splits words, but a CoNLL-U tree has one node per word; "
            "use tokenizer=words"
        )
    inner = tokenizer.inner
    ids = (inner.token_to_id(inner.normalizer.normalize_str(word)) for word in words)
    return [UNKNOWN if number is None else number for number in ids]
