"""Parsed sentences: what is read of CoNLL-U, what is refused, and what of a tree is kept."""

from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data.conllu import (
    BadSentence,
    kept_tree,
    sentences,
    train_on_words,
    word_ids,
)
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import BadRow
from regard.lab.data.files import read_examples, scan
from regard.lab.data.sources import load_corpus
from regard.lab.data.tokenizers import Tokenizer, train_tokenizer
from tests.lab.data.small_files import refusal, write


def row(number: object, word: str, head: object) -> str:
    """A line of CoNLL-U, with nothing in the columns that are not read."""
    return f"{number}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_"


def sentence(*words: tuple[str, object], **comments: str) -> str:
    """A sentence of words and their HEADs, with comments and an empty line."""
    told = [f"# {key} = {value}" for key, value in comments.items()]
    return "\n".join([*told, *(row(i, *word) for i, word in enumerate(words, 1)), "", ""])


SHE = (("She", 2), ("sleeps", 0), ("well", 2))


def written(folder: Path, text: str, name: str = "s.conllu") -> Path:
    return write(folder / name, text)


@pytest.mark.parametrize("name", ["s.conllu", "S.CoNLLu.gz"])
def test_words_heads_labels_and_groups(tmp_path, name):
    text = sentence(*SHE, sent_id="web-1-1", label=" calm ") + sentence(
        ("10 000", 2), ("U.S.", 0), sent_id="mail-2", label="loud"
    )
    path = written(tmp_path, text.rstrip("\n"), name)
    one, two = read_examples(path, Columns(group="sent_id:-"))
    assert (one.text, one.label, one.source, one.group) == (
        *("She sleeps well", "calm", f"{name}:1", "web"),
    )
    assert one.words == ["She", "sleeps", "well"]
    assert one.parents == (1, -1, 1)
    assert (two.words, two.parents) == (["10\u00a0000", "U.S."], (1, -1))
    assert (two.source, two.group) == (f"{name}:7", "mail")
    assert [x.label for x in read_examples(path, Columns(label="sent_id:-"))] == ["web", "mail"]
    assert [x.label for x in read_examples(path, Columns(label="sent_id"))] == ["web-1-1", "mail-2"]


def test_multiword_tokens_and_empty_nodes_are_no_words():
    lines = [row("1-2", "don't", "_"), row(1, "do", 0), row(2, "n't", 1), row("2.1", "x", "_")]
    (found,) = sentences(lines)
    assert (found.words, found.parents) == (("do", "n't"), (-1, 0))


def test_comments_of_a_document_hold_until_the_next():
    text = (
        "# newdoc id = a\n# meta::genre = news\n# newpar id = a1\n# label = x\n"
        + sentence(("one", 0))
        + sentence(("two", 0))
        + "# newpar id = a2\n"
        + sentence(("three", 0))
        + "# newdoc id = b\n"
        + sentence(("four", 0))
    )
    found = list(sentences(text.splitlines()))
    keys = ("newdoc id", "meta::genre", "newpar id", "label")
    assert [[x.comment(key) for key in keys] for x in found] == [
        ["a", "news", "a1", "x"],
        ["a", "news", "a1", None],
        ["a", "news", "a2", None],
        ["b", None, None, None],
    ]


@pytest.mark.parametrize(
    ("rows", "line", "why"),
    [
        ([row(1, "a", 0), "2\tb\t1"], 2, "3 tab-separated fields, but CoNLL-U has 10"),
        ([row(1, "a", 0), row(3, "b", 1)], 2, "ID must be 2, not '3'"),
        ([row(1, " ", 0)], 1, "the FORM (word) is empty"),
        (
            [row(1, "a", 0), row(2, "b", "_")],
            2,
            "HEAD must be the number of a word, or 0 for a root, not '_'",
        ),
        ([row(1, "a", -1)], 1, "HEAD must be the number of a word, or 0 for a root, not '-1'"),
        ([row(1, "a", "²")], 1, "HEAD must be the number of a word, or 0 for a root, not '²'"),
        ([row(1, "a", 0), row(2, "b", 3)], 2, "HEAD is 3, but the sentence has 2 words"),
        ([row(1, "a", 0), row(2, "b", 3), row(3, "c", 2)], 2, "the HEADs of word 2 form a cycle"),
        ([row(1, "a", 1)], 1, "the HEADs of word 1 form a cycle"),
        (["# text = nothing"], 1, "the sentence has no words"),
    ],
)
def test_what_is_no_tree_is_told_by_its_line(tmp_path, rows, line, why):
    (found,) = sentences(rows)
    assert isinstance(found, BadSentence)
    assert (found.line, found.why[: len(why)]) == (line, why)
    text = sentence(*SHE, label="a") + "\n".join(["# label = b", *rows, "", ""])
    start = 7 if found.empty else 6 + line
    told = refusal(read_examples, written(tmp_path, text))
    assert told.startswith(f"s.conllu:{start - found.empty}: {why}")


def test_sentences_without_heads_are_texts_and_have_tags(tmp_path):
    bare = sentence(("ein", "_"), ("Haus\u00a0", "_"), label="a")
    (found,) = sentences(bare.splitlines())
    assert (found.words, found.parents) == (("ein", "Haus\u00a0"), None)
    path = written(tmp_path, bare + bare.replace("# label = a", "# label = b"))
    assert [(x.text, x.label, x.parents) for x in read_examples(path)] == [
        ("ein Haus\u00a0", "a", None),
        ("ein Haus\u00a0", "b", None),
    ]
    some = sentence(("ein", 2), ("Haus", "_"))
    (found,) = sentences(some.splitlines(), tags=1)
    assert (found.tags, found.parents) == (("ein", "Haus"), None)
    path = written(tmp_path, bare + sentence(*SHE, label="b"))
    assert "s.conllu:5: the sentence has heads, unlike the sent" in refusal(read_examples, path)


def test_mistakes_in_what_is_asked_for(tmp_path):
    path = written(tmp_path, sentence(*SHE, sent_id="a-1") + sentence(*SHE, sent_id="b-1"))
    for given, says in (
        ({}, r"s\.conllu:1: no comment '# label = …'; comments: 'sent_id'; set label=KEY"),
        ({"label": "sent_id", "group": "doc"}, "no comment '# doc = …'.*group=KEY, or group=KEY:S"),
        ({"text": "body"}, "CoNLL-U takes the words from its FORM column; remove text=body"),
    ):
        with pytest.raises(RegardError, match=says):
            read_examples(path, Columns(**given))
    spoiled = write(tmp_path / "t.conllu", sentence(("Gr\u00fcn", 0), label="a").encode("latin-1"))
    assert "t.conllu:1: not UTF-8" in refusal(read_examples, spoiled)
    text = sentence(*SHE, label="a") + sentence(*SHE, other="b")
    kinds = list(scan(written(tmp_path, text)))
    assert isinstance(kinds[1], BadRow)
    assert kinds[1].why == "the label is empty"


def test_what_is_kept_hangs_on_the_nearest_word_above():
    parents = [1, 4, 1, 2, -1, 4]
    assert kept_tree(parents, range(6)) == parents
    assert kept_tree(parents, [0, 1, 2, 3]) == [1, -1, 1, 2]
    assert kept_tree(parents, [3, 4, 5]) == [1, -1, 1]
    assert kept_tree(parents, [0, 2, 3]) == [-1, -1, 1]
    assert kept_tree(parents, []) == []


def test_a_word_is_a_token_whatever_stands_in_it(tmp_path):
    texts = [["a.b@c.de", "Don't", "stop", "!!!"], ["don't", "e-mail"]]
    words = train_on_words(texts, minimum=1)
    assert words.vocabulary[2:] == ["don't", "!!!", "a.b@c.de", "e-mail", "stop"]
    assert word_ids(words, texts[0]) == [4, 2, 6, 3]
    assert word_ids(words, ["DON’T", "unseen words", ""]) == [2, 1, 1]
    words.save(tmp_path / "tokenizer.json")
    assert word_ids(Tokenizer.load(tmp_path / "tokenizer.json"), texts[1]) == [2, 5]
    assert "no token occurs 3 times" in refusal(train_on_words, texts, minimum=3)
    with pytest.raises(RegardError, match="tokenizer=characters splits words"):
        word_ids(train_tokenizer("characters", ["abc"], minimum=1), ["abc"])


def test_other_heads_are_other_data(tmp_path):
    found = []
    for head in (0, 1):
        text = "".join(
            sentence(("one", 2), (f"w{i}", 0), ("three", head), label="ab"[i % 2])
            for i in range(40)
        )
        found.append(load_corpus(str(written(tmp_path, text, f"{head}.conllu"))))
    assert [x.text for x in found[0].train] == [x.text for x in found[1].train]
    assert found[0].fingerprint != found[1].fingerprint


def test_real_sentences(real):
    path = real / "tagging" / "en_ewt-ud-dev.conllu.gz"
    if not path.is_file():
        pytest.skip("tagging is not here")
    found = read_examples(path, Columns(label="sent_id:-", group="newdoc id"))
    assert len(found) == 2001
    assert sorted({x.label for x in found}) == [
        "answers",
        "email",
        "newsgroup",
        "reviews",
        "weblog",
    ]
    assert len({x.group for x in found}) == 318
    assert all(len(x.words) == len(x.parents) for x in found)
    first = found[0]
    assert first.text == "From the AP comes this story :"
    assert first.parents == (2, 2, 3, -1, 5, 3, 3)
