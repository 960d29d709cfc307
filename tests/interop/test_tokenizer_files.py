"""Tokenizers of Hugging Face's folders: those of transformers itself, read without it."""

import json

import pytest

from regard.core.errors import RegardError
from regard.interop.config_keys import UnknownKeyWarning
from regard.interop.tokenizer_files import read_tokenizer, tokenizer_files, with_ends
from regard.lab.data.tokenizers import train_tokenizer

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


def test_what_cuts_and_pads_is_switched_off(tmp_path):
    """transformers cuts and pads only when its caller says so."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1, "b": 2}, "[PAD]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.enable_truncation(2)
    inner.enable_padding(length=5)
    inner.save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(tmp_path).encode("a b a").ids == [1, 2, 1]


NEW = {"content": "<new>", "lstrip": True, "normalized": False, "special": True}


@pytest.mark.parametrize(
    ("file", "content", "ids"),
    [
        ("added_tokens.json", {"<new>": 18}, [2, 5, 18, 10, 3]),
        ("tokenizer_config.json", {"added_tokens_decoder": {"18": NEW}}, [2, 5, 18, 10, 3]),
        ("tokenizer_config.json", {"pad_token": "<new>"}, [2, 5, 18, 10, 3]),
        ("special_tokens_map.json", {"mask_token": NEW}, [2, 5, 18, 10, 3]),
        ("tokenizer_config.json", {"cls_token": "<new>"}, [18, 5, 18, 10, 3]),
    ],
)
def test_tokens_beside_the_vocabulary_are_added(file, content, ids, tmp_path):
    folder = bert(tmp_path / "bert")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / file).write_text(json.dumps(content))
    assert read_tokenizer(folder).encode("hello <new>it").ids == ids
    transformers = pytest.importorskip("transformers")
    assert transformers.AutoTokenizer.from_pretrained(folder)("hello <new>it").input_ids == ids


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, ["<s>", "h", "e", "l", "l", "o", "<mask>", "Ġ", "t", "w", "o", "</s>"]),
        (
            {"add_prefix_space": True, "sep_token": "<mask>"},
            ["<s>", "Ġ", "h", "e", "l", "l", "o", "<mask>", "Ġ", "t", "w", "o", "<mask>"],
        ),
    ],
)
def test_byte_pairs_have_their_symbols(settings, tokens, tmp_path):
    """RoBERTa's, whose files of byte pairs do not name them."""
    folder = gpt2(tmp_path / "roberta")
    letters = [x for x in json.loads((folder / "vocab.json").read_text()) if len(x) == 1]
    words = ["<s>", "<pad>", "</s>", "<unk>", *letters, "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_tokenizer(folder).encode("hello<mask> two").tokens == tokens
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs.convert_ids_to_tokens(theirs("hello<mask> two").input_ids) == tokens


def test_gpt2_begins_and_ends_a_text_where_it_is_told_to(tmp_path):
    folder = gpt2(tmp_path / "gpt2")
    (folder / "tokenizer_config.json").write_text('{"add_bos_token": true, "add_eos_token": true}')
    end = "<|endoftext|>"
    assert read_tokenizer(folder).encode("ll").tokens == [end, "ll", end]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokenizer_class": "BertweetTokenizer"}, "tokenizer_class='BertweetTokenizer' is not"),
        ({"auto_map": {"AutoTokenizer": ["own.Own", None]}}, "auto_map=.* is not supported"),
        ({"do_lower_case": "yes"}, "do_lower_case='yes' is not true or false"),
        ({"added_tokens_decoder": {"30": NEW}}, "'<new>' has the number 30, but .* gives it 18"),
        ({"cls_token": None}, "needs a cls_token and a sep_token, not null"),
    ],
)
def test_settings_that_are_refused(settings, says, tmp_path):
    with pytest.raises(RegardError, match=says):
        read_tokenizer(bert(tmp_path / "bert", **settings))


def test_settings_that_contradict_tokenizer_json_are_honoured_or_refused(tmp_path):
    folder = bert(tmp_path / "bert")
    read_tokenizer(folder).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = read_tokenizer(folder)
    assert cased.encode("Hello").tokens == ["[CLS]", "Hello", "[SEP]"]
    cased.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(RegardError, match=r"has lowercase=False, but BertTokenizer .* takes do_lo"):
        read_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert read_tokenizer(folder).encode("Hello").tokens == ["[CLS]", "Hello", "[SEP]"]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    with pytest.raises(RegardError, match=r"which has no ByteLevel; set tokenizer_class to PreTr"):
        read_tokenizer(folder)


def test_keys_of_nobody_are_warned_of(tmp_path):
    with pytest.warns(UnknownKeyWarning, match="regard does not know shuffles, so it ignores it"):
        read_tokenizer(bert(tmp_path / "bert", shuffles=True))
