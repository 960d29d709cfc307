import random

import numpy as np
import pytest

from regard.lab.data import unigram
from regard.lab.data.unigram import Lattice, learn_pieces

PIECES = [*"hugspn", "ug", "hug", "hugs", "gs", "pu", "un", "pun"]
WORDS = {"hug": 10, "pug": 5, "hugs": 4, "pun": 12, "s": 1, "hugspun": 2}
CHANCES = np.linspace(0.02, 0.3, len(PIECES))


def lattice(words=WORDS):
    return Lattice.of(list(words), np.array(list(words.values()), float), PIECES)


def ways(word):
    """Every way to cut a word into pieces."""
    if not word:
        yield []
    for length in range(1, len(word) + 1):
        if word[:length] in PIECES:
            yield from ([word[:length], *rest] for rest in ways(word[length:]))


def chance(way):
    return np.prod([CHANCES[PIECES.index(piece)] for piece in way])


def test_expected_counts_are_those_over_all_ways():
    expected = np.zeros(len(PIECES))
    for word, count in WORDS.items():
        total = sum(chance(way) for way in ways(word))
        for way in ways(word):
            for piece in way:
                expected[PIECES.index(piece)] += count * chance(way) / total
    assert len(list(ways("hugspun"))) > 8
    assert lattice().expected(CHANCES) == pytest.approx(expected, rel=1e-12)


def test_best_way_is_the_likeliest():
    words = lattice()
    used, edges = words.best(np.log(CHANCES))
    for number, word in enumerate(WORDS):
        mine = sorted(edges[words.word[edges] == number], key=lambda edge: words.start[edge])
        found = [PIECES[words.piece[edge]] for edge in mine]
        assert "".join(found) == word
        assert chance(found) == pytest.approx(max(map(chance, ways(word))))
    assert used @ [len(piece) for piece in PIECES] == sum(len(w) * c for w, c in WORDS.items())


def test_other_ways_leave_the_whole_word_out():
    pieces = Lattice.of(PIECES, np.ones(len(PIECES)), PIECES).without_itself()
    _, edges = pieces.best(np.log(CHANCES))
    written = {
        number: [PIECES[pieces.piece[e]] for e in sorted(edges) if pieces.word[e] == number]
        for number in range(len(PIECES))
    }
    for number, piece in enumerate(PIECES):
        others = [way for way in ways(piece) if way != [piece]]
        best = max(others, key=chance, default=[])
        assert sorted(written[number]) == sorted(best)


def test_pieces_that_are_not_alive_are_not_used():
    alive = np.array([len(piece) != 3 for piece in PIECES])
    used, _ = lattice().only(alive).best(np.log(CHANCES))
    assert used[~alive].tolist() == [0, 0]
    assert used @ [len(piece) for piece in PIECES] == sum(len(w) * c for w, c in WORDS.items())


def test_words_written_without_spaces_are_found():
    words = (
        "喜欢 讨厌 看见 买了 写过 听说 这部 那部 电影 故事 小说 音乐 戏剧 词典 我们 他们".split()
    )
    chance = random.Random(1)
    texts = ["".join(chance.choices(words, k=8)) for _ in range(600)]
    letters = sorted(set("".join(texts)))
    pieces = learn_pieces(dict.fromkeys(texts, 1), letters, len(letters) + len(words))
    assert set(pieces) - set(letters) == set(words)
    chances = np.exp([pieces[word] for word in words])
    assert chances == pytest.approx(np.full(16, 1 / 16), rel=0.2)


def test_order_of_the_words_changes_nothing():
    chance = random.Random(3)
    words = ["".join(chance.choices("abcd", k=chance.randint(1, 9))) for _ in range(400)]
    counts = {word: words.count(word) + len(word) for word in words}
    shuffled = dict(chance.sample(sorted(counts.items()), len(counts)))
    for size in (10, 40, 300):
        first = learn_pieces(counts, "abcd", size)
        assert learn_pieces(shuffled, "dcba", size) == first
        assert set("abcd") <= set(first)
        assert len(first) <= size
    assert len(learn_pieces(counts, "abcd", 40)) == 40


def test_corners():
    assert learn_pieces({}, "", 10) == {}
    assert set(learn_pieces({"a": 1}, "a", 1)) == {"a"}
    assert set(learn_pieces({"ab": 1}, "ab", 9)) == {"a", "b"}
    assert set(learn_pieces({"ab": 9}, "ab", 2)) == {"a", "b"}  # the letters stay
    long = learn_pieces({"ab" * 5_000: 2}, "ab", 6)
    assert np.isfinite(list(long.values())).all()
    assert max(map(len, long)) <= unigram.LONGEST_PIECE


def test_only_the_most_frequent_words_are_learned_from(monkeypatch):
    monkeypatch.setattr(unigram, "WORDS", 2)
    found = learn_pieces({"cdcd": 1, "abab": 9, "ab": 8}, "abcd", 6)
    assert "ab" in found
    assert "cd" not in found


def test_words_are_learned_from_up_to_a_number_of_signs(monkeypatch):
    monkeypatch.setattr(unigram, "SIGNS", 9)
    assert list(unigram._shortened({"abcd": 9, "efgh": 8, "ij": 7, "k": 6})) == ["abcd", "efgh"]
    monkeypatch.setattr(unigram, "SIGNS", 2)
    assert list(unigram._shortened({"abcd": 9})) == ["abcd"], "one at least"
