"""Parsed sentences in CoNLL-U: a word a line, with the number of the word that it hangs on.

https://universaldependencies.org/format.html: ten columns between tabs, of which ID, FORM and HEAD
are read; an empty line behind each sentence; comments ``# key = value`` before it. Lines of
multiword tokens (``4-5``) and of empty nodes (``4.1``) are no words of the tree and are skipped.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.titles import listed
from regard.data.tokenizers import UNKNOWN, Tokenizer, of_counts, pipeline
from regard.errors import RegardError

FIELDS = 10
ID, FORM, HEAD = 0, 1, 6
#: Comments that hold for the sentences after them too, until the next of their kind.
LASTING = ("newdoc", "newpar", "meta::")
NO_WORD = re.compile(r"\d+(-|\.)\d+")  # a multiword token or an empty node
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence's words, the word that each hangs on (from 0; −1: a root), and its comments.

    ``line``: where it begins in its file. ``tags``: of a column that was asked for.

    No word holds a space: one in a FORM is a no-break space
    here, so that ``" ".join(words)`` can be taken apart again.
    """

    words: tuple[str, ...]
    parents: tuple[int, ...]
    comments: Mapping[str, str]
    line: int
    tags: tuple[str, ...] = ()

    def comment(self, key: str) -> str | None:
        """Return a comment by its key, or by ``KEY:SIGN`` its beginning up to a sign; else None.

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
    """A line of a sentence that is no CoNLL-U, or no tree, and why."""

    line: int
    why: str
    empty: bool = False


def is_conllu(path: Path | str) -> bool:
    """Whether a file's name says CoNLL-U, plain or .gz.

    >>> is_conllu("en_ewt-ud-dev.conllu.gz"), is_conllu("reviews.csv")
    (True, False)
    """
    return str(path).lower().removesuffix(".gz").endswith(".conllu")


def sentences(lines: Iterable[str], tags: int | None = None) -> Iterator[Sentence | BadSentence]:
    """Yield the sentences of a file's lines, good or bad, in their order.

    ``tags``: the place of a column, from 0, that is to be read beside the words and their heads.

    >>> table = [f"{i}\\t{word}" + "\\t_" * 4 + f"\\t{head}" + "\\t_" * 3
    ...          for i, word, head in [(1, "She", 2), (2, "sleeps", 0), (3, "well", 2)]]
    >>> (found,) = sentences(["# label = calm", *table, ""])
    >>> found.words, found.parents, found.comment("label")
    (('She', 'sleeps', 'well'), (1, -1, 1), 'calm')
    """
    lasting: dict[str, str] = {}
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if line.strip():
            block.append((number, line))
        elif block:
            yield _sentence(block, lasting, tags)
            block = []
    if block:
        yield _sentence(block, lasting, tags)


def _sentence(
    block: Sequence[tuple[int, str]], lasting: dict[str, str], column: int | None
) -> Sentence | BadSentence:
    """The sentence of some lines; what of its comments lasts is kept in ``lasting``."""
    own: dict[str, str] = {}
    for _, line in block:
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            _remember(key.strip(), value.strip(), own, lasting)
    rows = [(number, line.split("\t")) for number, line in block if not line.startswith("#")]
    words: list[str] = []
    tags: list[str] = []
    heads: list[tuple[int, int]] = []  # of each word the line it stands on, and its HEAD
    for number, fields in rows:
        if len(fields) != FIELDS:
            why = f"has {len(fields)} fields between tabs, and CoNLL-U has {FIELDS}"
            return BadSentence(number, why)
        if NO_WORD.fullmatch(fields[ID]):
            continue
        if fields[ID] != str(len(words) + 1):
            return BadSentence(number, f"the ID is {fields[ID]!r:.40}, and not {len(words) + 1}")
        if not fields[FORM].strip():
            return BadSentence(number, "the FORM, a word, is empty")
        if not (fields[HEAD].isascii() and fields[HEAD].isdecimal()):
            why = f"the HEAD is {fields[HEAD]!r:.40}, and not the number of a word, or 0 for a root"
            return BadSentence(number, why)
        words.append(fields[FORM].strip().replace(" ", NO_BREAK))
        heads.append((number, int(fields[HEAD])))
        if column is not None:
            tags.append(fields[column].strip() or "_")
    if not words:
        return BadSentence(block[0][0], "the sentence has no words", empty=True)
    parents = tuple(head - 1 for _, head in heads)
    return _no_tree(heads) or Sentence(
        tuple(words), parents, {**lasting, **own}, block[0][0], tuple(tags)
    )


def _remember(key: str, value: str, own: dict[str, str], lasting: dict[str, str]) -> None:
    kind = next((kind for kind in LASTING if key.startswith(kind)), "")
    if kind in ("newdoc", "newpar") and not any(k.startswith(kind) for k in own):
        for old in [k for k in lasting if kind == "newdoc" or k.startswith(kind)]:
            del lasting[old]
    if kind:
        lasting[key] = value
    own[key] = value


def _no_tree(heads: Sequence[tuple[int, int]]) -> BadSentence | None:
    """What is wrong with the heads of a sentence's words, if anything is."""
    for line, head in heads:
        if head > len(heads):
            return BadSentence(line, f"the HEAD is {head}, and the sentence has {len(heads)} words")
    known = {0}  # numbers of words from which the way up ends at a root
    for word in range(1, len(heads) + 1):
        way: dict[int, None] = {}
        while word not in known:
            if word in way:
                line = heads[word - 1][0]
                return BadSentence(line, f"word {word} hangs on itself, by its HEADs: a circle")
            way[word] = None
            word = heads[word - 1][1]
        known |= way.keys()
    return None


def no_comment(found: Sentence, here: str, what: str, key: str) -> RegardError:
    """Return the error for a ``label`` or ``group`` that a file's first sentence does not have."""
    return RegardError(
        f"{here}: no comment '# {key} = …'; there are {listed(list(found.comments))}; name one by "
        f"{what}=KEY, or {what}=KEY:SIGN for its beginning up to a sign, as {what}=sent_id:-"
    )


def kept_tree(parents: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Return the tree of the words ``kept``: each hangs on the nearest word above it that is kept.

    A word with none above it is a root.

    >>> kept_tree([1, -1, 1, 2], [0, 3])
    [-1, -1]
    >>> kept_tree([1, -1, 1, 2], [1, 3])
    [-1, 0]
    """
    place = {word: i for i, word in enumerate(kept)}
    found = []
    for word in kept:
        above = parents[word]
        while above >= 0 and above not in place:
            above = parents[above]
        found.append(place.get(above, -1))
    return found


def train_on_words(
    texts: Iterable[Sequence[str]], *, vocabulary: int = 30_000, minimum: int = 2
) -> Tokenizer:
    """Return a tokenizer of words that were cut by others: each is one token, in lower case.

    >>> train_on_words([["U.S.", "e-mail"], ["e-mail"]], minimum=1).vocabulary[2:]
    ['e-mail', 'u.s.']
    """
    lower = pipeline("words").normalizer.normalize_str
    counts = Counter(lower(word) for words in texts for word in words)
    return of_counts("words", counts, vocabulary, minimum)


def word_ids(tokenizer: Tokenizer, words: Iterable[str]) -> list[int]:
    """Return the id of each word, one for one, whatever stands in it. Errors: no words' tokenizer.

    A tree has a node for every word, so that none may be cut.
    """
    if tokenizer.kind != "words":
        raise RegardError(
            f"tokenizer={tokenizer.kind} splits words, but a CoNLL-U tree has one node per word; "
            "use tokenizer=words"
        )
    inner = tokenizer.inner
    found = (inner.token_to_id(inner.normalizer.normalize_str(word)) for word in words)
    return [UNKNOWN if number is None else number for number in found]
