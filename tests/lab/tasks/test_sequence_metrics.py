import math
import random
import warnings

import numpy as np
import pytest
import sacrebleu

from regard.core.errors import RegardError
from regard.lab.data.dates import dates
from regard.lab.data.strings import reversals
from regard.lab.tasks.evaluation import wilson
from regard.lab.tasks.writing.metrics import (
    MEASURES,
    Aligned,
    alignment_error,
    bleu,
    chrf,
    exact_match,
    judge,
)

WORDS = "a the man woman dog sits runs on in bench park , and looks at two red".split()


def corpus(count=60, seed=0, harm=0.2):
    """References, and what a system that mistakes some words says."""
    chance = random.Random(seed)
    wanted, said = [], []
    for _ in range(count):
        text = [chance.choice(WORDS) for _ in range(chance.randint(3, 14))]
        wrong = [chance.choice(WORDS) if chance.random() < harm else word for word in text]
        wanted.append(" ".join(text).capitalize() + ".")
        said.append(" ".join(wrong[: None if chance.random() < 0.8 else -1]).capitalize() + ".")
    return said, wanted


def test_scores_and_signatures_are_those_of_sacrebleu():
    said, wanted = corpus()
    version = sacrebleu.__version__
    found = judge("bleu", said, wanted)
    assert found.value == sacrebleu.corpus_bleu(said, [wanted]).score == bleu(said, wanted)
    assert found.signature == (f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}")
    found = judge("chrf", said, wanted)
    assert found.value == sacrebleu.corpus_chrf(said, [wanted]).score == chrf(said, wanted)
    assert found.signature == (f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}")
    assert bleu(wanted, wanted) == pytest.approx(100)
    assert bleu([text.lower() for text in wanted], wanted) < 95  # cased


def test_bleu_by_hand():
    said, wanted = ["the cat sat on a mat"], ["the cat sat on the mat today"]
    precisions = 5 / 6, 3 / 5, 2 / 4, 1 / 3
    by_hand = math.exp(1 - 7 / 6) * math.prod(precisions) ** 0.25
    assert bleu(said, wanted) == pytest.approx(100 * by_hand, abs=1e-12)


def test_several_references_of_differing_number():
    said, wanted = corpus(20)
    others = corpus(20, seed=5)[1]
    references = [
        [a, b] if i % 3 else [a] for i, (a, b) in enumerate(zip(wanted, others, strict=True))
    ]
    streams = [wanted, [b if i % 3 else None for i, b in enumerate(others)]]
    for measure, peer in (("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf)):
        found = judge(measure, said, references)
        assert found.value == peer(said, streams).score
        assert found.signature.startswith("nrefs:var|")
    assert exact_match([others[1], others[0]], [references[1], references[0]]) == 0.5


def test_languages_without_spaces():
    said, wanted = ["我喜欢这部电影"], ["我喜欢那部电影"]
    assert bleu(said, wanted) < 1e-6 + 100 / 2**4
    found = judge("bleu", said, wanted, language="zh")
    assert "tok:zh" in found.signature
    assert found.value == sacrebleu.corpus_bleu(said, [wanted], tokenize="zh").score > 30
    assert "tok:char" in judge("bleu", said, wanted, language="ja").signature
    assert "tok:zh" in judge("bleu", said, wanted, language="zh_Hant").signature


@pytest.mark.parametrize("measure", MEASURES)
def test_a_drawn_corpus_scores_as_its_texts_do(measure):
    said, wanted = corpus()
    found = judge(measure, said, wanted)
    random = np.random.default_rng(1)
    for _ in range(20):
        drawn = random.integers(0, 60, 60)
        texts = [said[i] for i in drawn], [wanted[i] for i in drawn]
        assert found.score(drawn) == judge(measure, *texts).value
        if measure == "bleu":
            assert found.score(drawn) == sacrebleu.corpus_bleu(texts[0], [texts[1]]).score
        if measure == "chrf":
            assert found.score(drawn) == sacrebleu.corpus_chrf(texts[0], [texts[1]]).score


def test_each_text_alone():
    said, wanted = corpus()
    alone = judge("bleu", said, wanted).by_text()
    for i in (0, 7, 59):
        assert alone[i] == sacrebleu.sentence_bleu(said[i], [wanted[i]]).score
    assert judge("exact", said, wanted).by_text().tolist() == [
        float(a == b) for a, b in zip(said, wanted, strict=True)
    ]
    assert judge("chrf", said, wanted).by_text()[3] == pytest.approx(
        sacrebleu.sentence_chrf(said[3], [wanted[3]]).score
    )


def test_exact_match_has_wilsons_interval():
    found = judge("exact", ["a", "b ", "C", "d"], ["a", "b", "c", "d"])
    assert found.value == 0.5
    assert found.interval() == wilson(2, 4)
    assert found.signature == ""


def test_interval_covers_the_score_and_narrows_with_texts():
    few, many = (judge("bleu", *corpus(count, harm=0.3)) for count in (40, 640))
    widths = []
    for found in (few, many):
        low, high = found.interval()
        assert low < found.value < high
        assert found.interval() == (low, high)
        assert found.interval(seed=1) != (low, high)
        assert found.interval(0.5)[1] - found.interval(0.5)[0] < high - low
        widths.append(high - low)
    assert 2.5 < widths[0] / widths[1] < 6.5  # the root of 16 is 4


def test_what_cannot_be_judged():
    with pytest.raises(RegardError, match="2 texts for 1 references"):
        judge("bleu", ["a", "b"], ["a"])
    with pytest.raises(RegardError, match="0 texts for 0 references"):
        judge("exact", [], [])
    with pytest.raises(RegardError, match="text 2 has no reference"):
        judge("bleu", ["a", "b"], [["a"], []])
    with pytest.raises(RegardError, match="did you mean bleu"):
        judge("blue", ["a"], ["a"])


def test_odd_texts_are_judged_in_silence(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bleu(["", "a b c d ."] * 100, ["x", "a b c d."] * 100) > 50
        assert bleu([""], ["x"]) == chrf([""], ["x"]) == 0
        assert bleu(["x"], [""]) == 0
    assert capfd.readouterr() == ("", "")


def test_alignment_error_by_hand():
    truth = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]], bool)
    weights = np.array([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [1, 0, 0], [0.2, 0.2, 0.6]])
    found = alignment_error(weights, truth)
    assert found == Aligned(pytest.approx(1 / 3), pytest.approx(1.7 / 3), pytest.approx(4 / 9), 3)
    other = alignment_error(weights[:1, :2], np.array([[False, True]]))
    assert Aligned.joined([found, other]) == Aligned(
        pytest.approx(0.5), pytest.approx(2.0 / 4), pytest.approx((4 / 3 + 0.5) / 4), 4
    )


def test_alignment_of_reversed_strings_and_dates():
    pairs = [*reversals(5, 6, seed=1), *dates(5)]
    truths = [pair.alignment() for pair in pairs]
    perfect = [truth / np.maximum(truth.sum(1, keepdims=True), 1) for truth in truths]
    found = Aligned.joined([*map(alignment_error, perfect, truths)])
    assert (found.error, found.positions) == (0, 5 * 6 + 5 * 8)
    assert found.mass == pytest.approx(1)
    even = [np.full(truth.shape, 1 / truth.shape[1]) for truth in truths]
    blind = Aligned.joined([*map(alignment_error, even, truths)])
    assert blind.mass == pytest.approx(blind.guess)
    assert blind.error > 0.5


def test_weights_that_do_not_fit():
    truth = np.eye(3, dtype=bool)
    with pytest.raises(RegardError, match=r"the weights have shape \(3, 4\)"):
        alignment_error(np.ones((3, 4)), truth)
    with pytest.raises(RegardError, match="a weight is not finite"):
        alignment_error(np.full((3, 3), np.nan), truth)
    with pytest.raises(RegardError, match="no target position has a true source"):
        alignment_error(np.eye(3), np.zeros((3, 3), bool))
