"""Pairs that differ in word order alone, and what is made of answers to them."""

from regard.lab.data.examples import Example
from regard.lab.data.sources import load_corpus
from regard.lab.labs.sentiment import word_order


def test_pairs_have_the_same_words_and_opposite_labels() -> None:
    known = load_corpus("reviews").train
    found = word_order.pairs(known)
    assert len(found) == word_order.PAIRS
    texts = {example.text for example in known}
    for negative, positive in found:
        assert word_order.words(negative.text) == word_order.words(positive.text)
        assert negative.text != positive.text
        assert (negative.label, positive.label) == ("negative", "positive")
        assert not {negative.text, positive.text} & texts


def test_a_bag_of_words_is_right_about_one_of_two() -> None:
    found = word_order.pairs(count=20)
    truth = {example.text: example.label for pair in found for example in pair}

    def bag(texts: list[str]) -> list[str]:
        praise = ("loved", "joy", "funny", "superb")
        return [
            "positive" if set(praise) & set(word_order.words(text)) else "negative"
            for text in texts
        ]

    told = word_order.judge(
        found, {"bag": bag, "reader": lambda texts: [truth[text] for text in texts]}
    )
    assert told["pairs"] == 20
    assert told["arms"] == {"bag": {"both": 0.0, "same": 1.0}, "reader": {"both": 1.0, "same": 0.0}}
    assert [len(pair["texts"]) for pair in told["shown"]] == [2, 2]
    assert told["shown"][0]["said"]["reader"] == ["negative", "positive"]


def test_half_right_counts_as_such() -> None:
    first, second = Example("a b", "negative", ""), Example("b a", "positive", "")
    told = word_order.judge([(first, second)], {"wrong": lambda _: ["positive", "negative"]})
    assert told["arms"]["wrong"] == {"both": 0.0, "same": 0.0}
