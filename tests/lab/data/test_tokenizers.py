import json
import random
import subprocess
import sys
from collections import Counter

import pytest
import tokenizers

from benchmarks.parity import strings
from regard.core.errors import RegardError
from regard.lab.data.tokenizers import (
    BYTES,
    PAD,
    TOKENIZERS,
    UNKNOWN,
    WHOLE,
    Tokenizer,
    train_tokenizer,
)
from tests.lab.data.small_files import refusal

TEXTS = [
    "It isn't as bad as I had feared: the END was wonderful!",
    "I don't like it. It's dull,<br /><br />and the film's end is bad...",
    "They'll say it's 9.5/10; 我喜欢这部电影 — café.",
] * 3


def trained(kind, texts=TEXTS, **settings):
    return train_tokenizer(kind, texts, **settings)


def test_words_are_cut_as_in_glove():
    words = trained("words")
    cut = words.split(
        "It’s not <br/>DON'T won't can't they'll 'tis dogs' o'clock well-made 1,000.50"
    )
    assert " ".join(cut) == (
        "it 's not do n't wo n't ca n't they 'll ' tis dogs ' o ' clock well - made 1,000.50"
    )
    assert words.split('"Why?!" 3.5 a.b... 电影x_y') == [
        *('"', "why", "?", "!", '"', "3.5", "a", ".", "b", "...", "电", "影", "x_y")
    ]


def test_words_are_numbered_by_count_then_alphabet():
    words = trained("words", ["b c a b", "C b d e e"], minimum=1)
    assert words.vocabulary == ["[PAD]", "[UNK]", "b", "c", "e", "a", "d"]
    assert trained("words", ["b c a b", "C b d e e"], minimum=2).vocabulary[2:] == ["b", "c", "e"]
    assert trained("words", ["b c a b"], minimum=1, vocabulary=4).vocabulary[2:] == ["b", "a"]
    assert words.encode(["E zebra B", ""]) == [[4, UNKNOWN, 2], []]
    assert words.tokens([4, UNKNOWN, PAD]) == ["e", "[UNK]", "[PAD]"]
    assert len(words) == 7


def test_characters():
    characters = trained("characters", ["abba\n", "ab é"], minimum=1)
    assert characters.vocabulary == ["[PAD]", "[UNK]", "a", "b", "\n", " ", "é"]
    text = "b a\n é"
    assert characters.decode(characters.encode([text])[0]) == text
    assert characters.split("a 电") == ["a", " ", "电"]
    assert characters.encode(["a电"]) == [[2, UNKNOWN]]


def random_texts(count, seed):
    chance = random.Random(seed)
    ranges = [(0, 0x7F), (0, 0x24F), (0x20, 0x7E), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF)]

    def character():
        low, high = chance.choice(ranges)
        return chance.choice([" ", "\n", "'t", "é", chr(chance.randint(low, high))])

    return ["".join(character() for _ in range(chance.randint(0, 40))) for _ in range(count)]


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_pieces_of_bytes_give_every_text_back(kind):
    pieces = trained(kind, vocabulary=400)
    texts = [*strings(10_000), *random_texts(2000, 1)]
    texts += ["[PAD] [UNK]", "", " ", "  two  spaces \n\n\t end ", "Ġ Ċ ▁ \0", "ﬁ e\u0301 é"]
    encoded = pieces.encode(texts)
    assert [pieces.decode(ids) for ids in encoded] == texts
    assert not {PAD, UNKNOWN} & {i for ids in encoded for i in ids}
    assert "".join(pieces.split("It isn't bad")) == "It isn't bad"
    assert pieces.tokens(pieces.encode(["the the"])[0])[-1] == " the"
    assert len(pieces.split("It isn't bad")) < len("It isn't bad")


def test_chinese_without_spaces_is_cut_into_words():
    words = (
        "喜欢 讨厌 看见 买了 写过 听说 这部 那部 电影 故事 小说 音乐 戏剧 词典 我们 他们".split()
    )
    chance = random.Random(1)
    texts = ["".join(chance.choices(words, k=8)) + "。" for _ in range(600)]
    unigram = trained("unigram", texts, vocabulary=258 + 17 + len(set("".join(texts))))
    assert unigram.split("他们喜欢那部小说。") == ["他们", "喜欢", "那部", "小说", "。"]
    assert unigram.split("鲁") == ["鲁₁", "鲁₂", "鲁₃"]
    for kind in WHOLE:
        pieces = trained(kind, texts, vocabulary=310)
        for text in ("我们喜欢那部小说。", "他们看故事，鲁迅"):
            assert pieces.decode(pieces.encode([text])[0]) == text


def test_unigram_takes_the_likeliest_pieces():
    unigram = trained("unigram", ["hug pug pun bun hugs"] * 10, vocabulary=270)
    scores = dict(json.loads(unigram.to_bytes())["model"]["vocab"])
    learned = list(scores.items())[258:]
    assert learned == sorted(learned, key=lambda item: (-item[1], item[0]))
    assert all(score == round(score, 6) < 0 for _, score in learned)

    def ways(word):
        yield from ([word[:i], *rest] for i in range(1, len(word)) for rest in ways(word[i:]))
        yield [word]

    def likelihood(pieces):
        return sum(scores.get(piece, -1e9) for piece in pieces)

    for word in ("hug", "hugs", "pugs", "bunhug"):
        best = max(map(likelihood, ways(word)))
        assert likelihood(unigram.split(word)) == pytest.approx(best, abs=1e-9)


def test_unigram_writes_rare_characters_by_bytes():
    texts = ["abab ab abc"] * 9 + ["é"]
    unigram = trained("unigram", texts, vocabulary=270)
    assert unigram.vocabulary[2:258] == BYTES
    assert unigram.tokens(unigram.encode(["abé"])[0]) == ["ab", "é₁", "é₂"]
    assert "é" in trained("unigram", texts, vocabulary=270, minimum=1).vocabulary
    rare = "".join(map(chr, range(0x4E00, 0x4E64))) * 2
    frequent = trained("unigram", ["a" * 500_000, rare], vocabulary=400).vocabulary[258:]
    assert "a" in frequent
    assert not set(frequent) & set(rare)
    assert len(trained("unigram", texts, vocabulary=258)) == 258
    text = "<0x41> <0xC3><0xA9> é"
    assert unigram.decode(unigram.encode([text])[0]) == text


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_remembered_chunks_give_what_hugging_face_gives(kind):
    tokenizer = trained(kind, [*TEXTS, *random_texts(200, 3)], vocabulary=500)
    texts = [*TEXTS, *random_texts(1000, 2), "a \n b  c <br /> d<br/>e \u2028 f\x1c g !\x1c h"]
    direct = [encoding.ids for encoding in tokenizer.inner.encode_batch(texts)]
    assert tokenizer.encode(texts) == direct
    assert tokenizer.encode(texts) == direct
    arrays = list(tokenizer.arrays(iter(texts)))
    assert [ids.tolist() for ids in arrays] == direct
    assert {ids.dtype.name for ids in arrays} == {"int32"}
    assert [len(tokenizer.split(text)) for text in texts] == [len(ids) for ids in direct]


def test_long_pieces_are_not_kept():
    text = "我们明天早上坐火车去北京看望我们的老朋友和他的家人然后一起吃饭喝茶聊天"
    texts = [text + chr(0x4E00 + i) for i in range(9)]
    tokenizer = trained("bpe", [*texts, "we go home"], vocabulary=300)
    assert tokenizer.encode(texts) == [e.ids for e in tokenizer.inner.encode_batch(texts)]
    tokenizer.encode(["we go home"])
    assert max(map(len, tokenizer._known)) <= 32
    assert "we" in tokenizer._known


def test_forgetting_changes_nothing(monkeypatch):
    words = trained("words")
    before = words.encode(TEXTS)
    monkeypatch.setattr("regard.lab.data.tokenizers.REMEMBERED", 0)
    assert words.encode(["something new", *TEXTS, "a b"])[1:-1] == before
    assert sorted(words._known) == ["a", "b"]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_saved_and_loaded_alike(kind, tmp_path):
    tokenizer = trained(kind, vocabulary=300)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.kind, again.sha256, again.vocabulary) == (
        kind,
        tokenizer.sha256,
        tokenizer.vocabulary,
    )
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [encoding.ids for encoding in peer.encode_batch(TEXTS)] == tokenizer.encode(TEXTS)


def test_training_is_the_same_in_every_process():
    program = (
        "from regard.lab.data.tokenizers import TOKENIZERS, train_tokenizer\n"
        "from regard.lab.data.synthetic import reviews\n"
        "texts = [e.text for e in reviews(300)]\n"
        "print([train_tokenizer(k, texts, vocabulary=600).sha256 for k in TOKENIZERS])\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        for seed in (1, 2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(set(json.loads(runs[0].stdout.replace("'", '"')))) == len(TOKENIZERS)
    assert runs[0].stderr == ""


def test_counts_agree_with_a_plain_count():
    words = trained("words", minimum=1)
    counts = Counter(piece for text in TEXTS for piece in words.split(text))
    assert words.vocabulary[2:] == sorted(counts, key=lambda word: (-counts[word], word))


def test_half_surrogates_do_not_stop_it():
    for kind in TOKENIZERS:
        tokenizer = trained(kind, vocabulary=300)
        assert len(tokenizer.encode(["bad\udcff"])[0]) == len(tokenizer.split("bad\udcff")) > 1


def test_what_cannot_be_trained():
    assert "did you mean words" in refusal(trained, "word")
    assert "no token occurs 2 times" in refusal(trained, "words", ["one two three"])
    assert "at least 258 for tokenizer=bpe, not 100" in refusal(trained, "bpe", vocabulary=100)
    with pytest.raises(RegardError, match="at least 258 for tokenizer=unigram, not 200"):
        trained("unigram", vocabulary=200)
    assert len(trained("unigram", ["", ""])) == 258


def change(content, **parts):
    return json.dumps(json.loads(content) | parts).encode()


BAD = {
    "not UTF-8": lambda content: b"\xff\xfe",
    "a valid tokenizer": lambda content: content[:-20],
    "not a valid tokenizer": lambda content: b"{}",
    "not one made by this version": lambda content: change(content, normalizer=None),
    "are not 0, 1, 2": lambda content: content.replace(b'"the": 6', b'"the": 600'),
    "first tokens are not": lambda content: content.replace(b'"[PAD]": 0', b'"[pad]": 0'),
}


@pytest.mark.parametrize("says", BAD)
def test_what_cannot_be_loaded(tmp_path, says):
    path = tmp_path / "tokenizer.json"
    content = trained("words", ["a a b b the the of of ' '"], minimum=1).to_bytes()
    path.write_bytes(BAD[says](content))
    assert path.read_bytes() != content
    with pytest.raises(RegardError, match=says) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    assert "cannot read: No such file" in refusal(Tokenizer.load, tmp_path / "none.json")


def test_panics_of_rust_are_errors_of_one_line():
    class Panic(BaseException):
        pass

    class Inner:
        def __getattr__(self, name):
            return getattr(words.inner, name)

        def encode_batch_fast(self, texts, add_special_tokens):
            raise Panic("index\nout of range")

    words = trained("words")
    broken = Tokenizer("words", Inner())
    assert "cannot tokenize a text: index out of range" in refusal(broken.encode, ["new"])


@pytest.mark.parametrize(
    ("text", "tokens", "decoded"),
    [
        ("这部电影很好看，good！", "这 部 电 影 很 好 看 ， good ！", "这部电影很好看， good ！"),
        ("これはペンです。", "こ れ は ペ ン で す 。", "これはペンです。"),
        ("หนังสนุก", "ห นั ง ส นุ ก", "หนังสนุก"),
        ("ភាសាខ្មែរ", "ភា សា ខ្ មែ រ", "ភាសាខ្មែរ"),
        ("한국어 문장", "한국어 문장", "한국어 문장"),
    ],
)
def test_scripts_without_spaces_are_no_single_unknown_word(
    text: str, tokens: str, decoded: str
) -> None:
    tokenizer = train_tokenizer("words", [text], minimum=1)
    assert tokenizer.split(text) == tokens.split()
    ids = tokenizer.encode([text])[0]
    assert UNKNOWN not in ids
    assert tokenizer.decode(ids) == decoded


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_the_bytes_of_a_character_show_it_whole(kind: str) -> None:
    words = trained(kind, ["plain English words, and no others"] * 3, vocabulary=290)
    (ids,) = words.encode(["no 你好!"])
    shown = words.tokens(ids)
    assert shown[-7:] == ["你₁", "你₂", "你₃", "好₁", "好₂", "好₃", "!"]
    assert not any("\ufffd" in name for name in shown)
    assert words.split("no 你好!") == shown
    symbol = len(words) + 1
    begun = [*ids[:-2], symbol, *ids[-1:]]  # a character that is not written to its end
    assert words.tokens(begun, lambda i: f"<{i}>")[-4:] == ["\ufffd", "\ufffd", f"<{symbol}>", "!"]
