"""Tokenizers of Hugging Face's folders: those of transformers itself, read without it."""

import json

import pytest

from regard.data.tokenizers import train_tokenizer
from regard.errors import RegardError
from regard.interop.tokenizer_files import read_tokenizer, tokenizer_files, with_ends

TEXT = "Hello, wörld! It's 42 — 東京 déjà-vu.\n  two  spaces"


def gpt2(folder):
    """A GPT-2 tokenizer's two files: bytes, and some merges."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "t"), ("Ġt", "w")]
    words = [*letters, *("".join(pair) for pair in merges), "<|endoftext|>"]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def bert(folder, **settings):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", ",", "w", "##orld", "!", "it",
             "'", "s", "4", "##2", "東", "京", "Hello"]  # fmt: skip
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_gpt2_reads_as_transformers_does(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = gpt2(tmp_path / "gpt2")
    theirs = transformers.GPT2Tokenizer.from_pretrained(folder)
    ours = read_tokenizer(folder)
    assert ours.encode(TEXT).ids == theirs(TEXT).input_ids
    assert ours.decode(ours.encode(TEXT).ids) == TEXT


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}])
def test_bert_reads_as_transformers_does(settings, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = bert(tmp_path / "bert", **settings)
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    ours = read_tokenizer(folder)
    assert ours.encode(TEXT).ids == theirs(TEXT).input_ids
    pair, said = ours.encode("hello", "it's 42"), theirs("hello", "it's 42")
    assert (pair.ids, pair.type_ids) == (said.input_ids, said.token_type_ids)


def test_signs_that_end_lines_elsewhere_are_words_of_bert(tmp_path):
    folder = bert(tmp_path / "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "\u0085", "cat", "dog"]
    (folder / "vocab.txt").write_bytes("\r\n".join(words).encode() + b"\r\n")
    assert read_tokenizer(folder).encode("cat dog").ids == [2, 7, 8, 3]


@pytest.mark.parametrize("kind", ["words", "characters", "bpe", "unigram"])
def test_regard_s_own_goes_there_with_ends(kind, tmp_path):
    mine = train_tokenizer(kind, [TEXT] * 3, vocabulary=300)
    inner = with_ends(mine, ["[MASK]", "</s>"])
    assert inner.token_to_id("[MASK]") == len(mine)
    assert inner.token_to_id("</s>") == len(mine) + 1
    for name, data in tokenizer_files(inner, length=9, roles={"eos_token": "</s>"}).items():
        (tmp_path / name).write_bytes(data)
    again = read_tokenizer(tmp_path)
    assert again.encode(TEXT).ids == mine.encode([TEXT])[0]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(TEXT).input_ids == mine.encode([TEXT])[0]
    assert theirs.eos_token_id == len(mine) + 1
    with pytest.raises(RegardError, match="'\\[UNK\\]' is already in the vocabulary"):
        with_ends(mine, ["[UNK]"])


def test_what_cannot_be_read_says_why(tmp_path):
    assert read_tokenizer(tmp_path) is None
    (tmp_path / "spiece.model").write_bytes(b"\0")
    with pytest.raises(
        RegardError, match=r"the tokenizer format of spiece.model; create tokenizer.json"
    ):
        read_tokenizer(tmp_path)
    folder = gpt2(tmp_path / "gpt2")
    with (folder / "merges.txt").open("a") as file:
        file.write("a b c\n")
    with pytest.raises(RegardError, match=r"merges.txt:7: not a pair of tokens: 'a b c'"):
        read_tokenizer(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(RegardError, match="the tokenizer is damaged"):
        read_tokenizer(folder)
    (folder / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(RegardError, match=r"tokenizer.json is not UTF-8"):
        read_tokenizer(folder)


def test_a_length_without_bound_as_transformers_writes_it(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\n")
    settings = {"model_max_length": int(1e30), "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_tokenizer(tmp_path).encode("Good").tokens == ["[CLS]", "good", "[SEP]"]
