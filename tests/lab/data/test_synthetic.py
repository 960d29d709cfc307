import re
from collections import Counter

import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from regard.lab.data.chinese import CHINESE, reviews_zh
from regard.lab.data.data_source import DataSource, Splits
from regard.lab.data.sources import load_corpus
from regard.lab.data.synthetic import CHOICES, SENTENCES, SHARES, WORDS, reviews


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("reviews")


def accuracy(corpus, vectorizer, strength):
    train = vectorizer.fit_transform([example.text for example in corpus.train])
    test = vectorizer.transform([example.text for example in corpus.test])
    model = LogisticRegression(C=strength, max_iter=1000)
    model.fit(train, [example.label for example in corpus.train])
    return model.score(test, [example.label for example in corpus.test])


def test_a_bag_of_words_cannot_read_them_and_pairs_of_words_read_more(corpus):
    bag = accuracy(corpus, CountVectorizer(token_pattern=r"\w+|[^\w\s]"), 1.0)
    pairs = accuracy(corpus, TfidfVectorizer(ngram_range=(1, 2)), 10.0)
    assert 0.60 <= bag <= 0.75
    assert 0.80 <= pairs <= 0.92


def test_whoever_ignores_order_is_bound_by_the_shares(corpus):
    # The best possible bag of words knows the majority label of every multiset of words; of the
    # exchanged sentences both labels have the same multisets.
    for pattern in SENTENCES["exchanged"]:
        for kind in ("", "noun", "verb"):
            assert pattern.count(f"{{+{kind}}}") == pattern.count(f"{{-{kind}}}")
    assert SHARES["plain"] + SHARES["negated"] + SHARES["exchanged"] / 2 <= 0.75
    assert sum(SHARES.values()) == pytest.approx(1)


def test_who_reads_the_grammar_is_always_right(corpus):
    forms = []
    for patterns in SENTENCES.values():
        for pattern in patterns:
            form, groups = "", []
            for part in re.split(r"({\W?\w*})", pattern):
                if part.startswith("{"):
                    sign, kind = re.fullmatch(r"{(\W?)(\w*)}", part).groups()
                    groups += [(sign, kind)] if sign else []
                    words = WORDS["+" + kind] + WORDS["-" + kind] if sign else WORDS[kind]
                    choice = "|".join(map(re.escape, words))
                    form += f"({choice})" if sign else f"(?:{choice})"
                else:
                    form += re.escape(part).replace("a\\ ", "an?\\ ").replace("A\\ ", "An?\\ ")
            forms.append((re.compile(form, re.IGNORECASE), groups))
    for example in corpus.test:
        found = [(match, groups) for form, groups in forms if (match := form.search(example.text))]
        whole, groups = max(found, key=lambda one: len(one[0][0]))
        read = {
            (word in WORDS["+" + kind]) == (sign == "+")
            for word, (sign, kind) in zip(whole.groups(), groups, strict=True)
        }
        assert read == {example.label == "positive"}, example.text


def test_balanced_distinct_short_and_the_same_for_a_seed():
    first, again, other = reviews(600, 5), reviews(600, 5), reviews(600, 6)
    assert first == again
    assert first != other
    assert Counter(example.label for example in first) == {"positive": 300, "negative": 300}
    assert len({example.text for example in first}) == 600
    assert max(len(example.text.split()) for example in first) <= 30
    assert [example.source for example in first[:2]] == ["reviews:1", "reviews:2"]
    labels = [example.label for example in first]
    assert 10 < labels[:50].count("positive") < 40


def test_words_of_praise_and_blame_are_apart():
    praise = {word for kind in CHOICES if kind[0] == "+" for word in WORDS[kind]}
    blame = {word for kind in CHOICES if kind[0] == "-" for word in WORDS[kind]}
    assert not praise & blame
    assert not re.search(r"\b[Aa] [aeiou]", " ".join(e.text for e in reviews(500, 0)))


def test_corpus(corpus):
    assert (len(corpus.train), len(corpus.test)) == (4000, 1000)
    assert corpus.labels == ("negative", "positive")
    assert not {e.text for e in corpus.train} & {e.text for e in corpus.test}
    assert (
        load_corpus(DataSource("reviews", splits=Splits(seed=7))).fingerprint == corpus.fingerprint
    )


def test_chinese_reviews_are_decided_by_order_too():
    examples = reviews_zh(600, seed=1)
    assert {example.label for example in examples} == {"negative", "positive"}
    assert len({example.text for example in examples}) == 600
    assert not any(" " in example.text or "{" in example.text for example in examples)
    for pattern in CHINESE.sentences["exchanged"]:
        for kind in ("", "noun", "verb"):
            assert pattern.count(f"{{+{kind}}}") == pattern.count(f"{{-{kind}}}")
    texts = [example.text for example in load_corpus("reviews-zh").train[:1500]]
    labels = [example.label for example in load_corpus("reviews-zh").train[:1500]]
    held = load_corpus("reviews-zh").test

    def score(n):
        counts = CountVectorizer(analyzer="char", ngram_range=(1, n), binary=True)
        model = LogisticRegression(max_iter=300).fit(counts.fit_transform(texts), labels)
        return model.score(counts.transform([e.text for e in held]), [e.label for e in held])

    assert score(1) <= 0.75  # single characters: order is lost
    assert score(4) >= score(1) + 0.05


def test_the_chinese_data_set_has_a_name():
    corpus = load_corpus("reviews-zh")
    assert (len(corpus.train) + len(corpus.test), len(corpus.test)) == (5000, 1000)
    assert corpus.test[0].source.startswith("reviews-zh:")
