import numpy as np
import pytest

from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.examples import Example
from regard.lab.data.near_copies import leak, near_copies
from regard.lab.data.sources import load_corpus
from regard.lab.data.splits import hold_out


def test_phrases_and_texts_with_a_word_changed_are_near_copies():
    train = ["One two THREE four  five six seven eight nine ten", "p q r s t", "a b c"]
    held = [
        "two three four five six",  # a phrase
        "one two three four five six seven eight nine twelve",  # 9 of 10 words
        "one two three four five six seven x y z",  # 7 of 10
        "one two three four x six seven eight nine ten",  # a run of 5, and 4 before: 5 of 10
        "seven eight nine ten p q r s t",  # 5 of 9: no run goes from text to text
        "a b c",  # too short
        "",
        "p q r s t",
    ]
    assert near_copies(train, held) == [0, 1, 7]


def test_eighty_per_cent_of_the_words():
    train = ["1 2 3 4 5 6 7 8 9 10"]
    assert near_copies(train, ["1 2 3 4 5 6 7 8 x y"]) == [0]
    assert near_copies(train, ["1 2 3 4 5 6 7 x y z"]) == []
    assert near_copies([], ["1 2 3 4 5"]) == []
    assert near_copies(train, []) == []
    assert near_copies(train, ["x"]) == []


def test_blocks_see_all_of_train(monkeypatch):
    monkeypatch.setattr("regard.lab.data.near_copies.BLOCK", 2)
    train = [f"{i} b c d e f" for i in range(7)]
    assert near_copies(train, ["6 b c d e", "7 b c d e"]) == [0]


def test_scripts_without_spaces_are_compared_by_character():
    train = ["昨天我和朋友一起在电影院看了这部电影，非常感人。", "abc"]
    held = [
        "我和朋友一起在电影院",  # a phrase of 10 characters
        "昨天我和同学一起在电影院看了这部电影，非常感人。",  # 17 of 24: a changed word at the 5th
        "昨天我和朋友一起在电影院看了这部影片，非常感人。",  # 16 of 24
        "昨天我和朋友一起在电影院看了这部电影，不太感人。",  # 19 of 24 = 79 %
        "昨天我和朋友一起在电影院看了这部电影，非常无聊。",  # 21 of 24
        "我和朋友一起在",  # 7 characters: too short
        "我 和 朋友 一起 在 电影院",  # other spaces
        "天气预报说明天会下雨，我们最好不要出门。",
    ]
    assert near_copies(train, held) == [0, 4, 6]
    thai = "เมื่อวานฉันไปดูหนังเรื่องนี้กับเพื่อน"
    assert near_copies([thai], [thai[:20], thai[::-1]]) == [0]


def test_a_few_characters_among_words_leave_a_text_with_words():
    train = ["the title 红楼 of this book is long and old"]
    assert near_copies(train, ["title 红楼 of this book", "title 红 of that book"]) == [0]


@pytest.fixture
def phrases(tmp_path):
    """A table of sentences, and of each its phrases, as SST's."""
    chance = np.random.default_rng(0)
    rows = ["sentence\ttext\tlabel"]
    for number in range(80):
        words = [f"w{i}" for i in chance.integers(1000, size=20)]
        for start in range(0, 12, 2):
            rows.append(f"{number}\t{' '.join(words[start : start + 8])}\t{number % 2}")
    path = tmp_path / "phrases.tsv"
    path.write_text("\n".join(rows))
    return path


def test_a_split_of_phrases_is_told_with_the_remedy(phrases):
    corpus = load_corpus(str(phrases))
    (note,) = [note for note in corpus.notes if "nearly contained" in note]
    assert note.endswith("set group=COLUMN to a column with their origin, or give "
                         "test=FILE")  # fmt: skip
    copies, texts = (int(note.split()[i]) for i in (0, 2))
    assert 0.2 < copies / texts < 0.5
    first = note.partition("first ")[2].partition(": ")[0]
    assert first in {example.source for example in corpus.test}
    grouped = load_corpus(DataSource(phrases, columns=Columns(group="sentence")))
    assert not [note for note in grouped.notes if "nearly contained" in note]


def test_texts_that_share_no_runs_are_not_told():
    rows = [Example(f"text {i} has words of its own {i} {i}", "a", f"x:{i}") for i in range(400)]
    assert leak(*hold_out(rows), "validation", "validation=FILE") == []
    few = [Example(f"{i} a b c d", "a", f"x:{i}") for i in range(96)]
    held = [Example("0 a b c d", "a", "y:1")] * 4
    other = [Example(f"other {i} x y z", "a", f"z:{i}") for i in range(96)]
    assert leak(few, other + held, "validation", "validation=FILE") == []  # 4 of 100
    assert leak(few, other[:95] + held + held[:1], "validation", "")[0].startswith("5 of 100 ")


def test_one_or_two_texts_are_too_few_to_be_told():
    train = [Example(f"{i} a b c d", "a", f"x:{i}") for i in range(10)]
    held = [Example("0 a b c d", "a", f"y:{i}") for i in range(3)]
    assert leak(train, held[:2], "validation", "") == []
    assert leak(train, held, "validation", "")[0].startswith("3 of 3 validation texts are nearly")


def test_large_data_is_looked_at_from_its_beginning(monkeypatch):
    monkeypatch.setattr("regard.lab.data.near_copies.SEEN", 10)
    train = [Example(f"{i} a b c d", "a", f"x:{i}") for i in range(100)]
    near = [Example(f"{i} a b c d", "a", f"y:{i}") for i in range(5)]
    far = [Example(f"{i} a b c d", "a", f"y:{i}") for i in range(50, 95)]
    (note,) = leak(train, near + far, "validation", "")
    assert note.startswith("5 of 5 validation texts")
