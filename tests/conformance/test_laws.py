"""Each law finds what breaks it, and says what it measured."""

import json
from datetime import date

import pytest
import torch
from torch import nn

from regard.attention import SCORES, MultiHeadAttention, window
from regard.attention.masks.patterns import Pattern
from regard.conformance import LAWS, conform, find, kind_of, subject_of
from regard.conformance.law import Verdict
from regard.core.errors import RegardError
from tests.conformance import broken, planted
from tests.conformance.bugs import failures
from tests.conformance.right import RIGHT

TODAY = date.today().toordinal()  # turns which right parts are checked


def verdict_of(law, thing):
    """The verdict of one law."""
    subject = subject_of(thing)
    return LAWS[kind_of(subject)][law].judge(law, subject)


@pytest.mark.parametrize("score", broken.SCORES, ids=lambda kind: kind.__name__)
def test_scores(score):
    law, words = broken.SCORES[score]
    found = verdict_of(law, score)
    assert (found.law, found.outcome) == (law, "fails")
    assert words in found.message
    assert "\n" not in found.message


@pytest.mark.parametrize("bug", planted.PLANTED, ids=lambda kind: kind.__name__)
def test_planted_bugs(bug):
    assert verdict_of(planted.PLANTED[bug], bug).outcome == "fails"


@pytest.mark.parametrize("part", RIGHT[TODAY % 5 :: 5], ids=lambda part: part.__name__)
def test_right_parts(part):
    assert failures(part) == {}


@pytest.mark.deep
def test_a_score_across_rows_is_found_wherever_it_matters():
    assert set(failures(broken.Normed)) >= {"tiles", "padding", "future", "cache"}
    assert set(failures(broken.AcrossColumns)) >= {"tiles"}


def test_a_right_score_breaks_nothing():
    assert failures(broken.Dot) == {}


def test_what_does_not_run_is_one_failure():
    verdicts = conform(broken.Raises)
    assert [v.outcome for v in verdicts] == ["fails"] + ["does not apply"] * (len(verdicts) - 1)
    assert verdicts[1].message == "not checked, because 'made' fails"


def test_the_numbers_are_those_of_the_words():
    padding = verdict_of("padding", broken.CountsPadding)
    assert padding.numbers["difference"] > 1e-3
    assert f"by {padding.numbers['difference']:.2g} (at most" in padding.message


@pytest.mark.parametrize("normalizer", broken.NORMALIZERS, ids=lambda kind: kind.__name__)
def test_normalizers(normalizer):
    law, words = broken.NORMALIZERS[normalizer]
    assert words in verdict_of(law, normalizer).message


def test_shift_invariance_may_be_declared_where_it_holds():

    class Whole(broken.PlainSoftmax):
        def forward(self, scores):
            return broken.Softmax.forward(self, scores)

    assert failures(Whole) == {}
    assert "shift_invariant = True could be declared" in verdict_of("shift", Whole).message


@pytest.mark.parametrize("name", broken.MASKS)
def test_masks(name):
    make, law, words = broken.MASKS[name]
    assert words in failures(make())[law]


def test_layers():
    found = failures(broken.Means())
    assert "changed an earlier output by" in found["future"]
    assert "1e3 in padding changed the output of a token by" in found["padding 1e3"]
    assert "order" not in found
    assert {"future", "padding 1e3"} <= set(failures(broken.Unmasked))


def test_mechanisms():
    """A class is built as models build it: with a width and heads."""

    class WithoutCache(MultiHeadAttention):
        def forward(self, queries, memory=None, mask=None, *, cache=None, **more):
            return super().forward(queries, memory, mask, **more)

    class Same(MultiHeadAttention):
        pass

    class TakesNoDropout(MultiHeadAttention):
        def __init__(self, width, heads):
            super().__init__(width, heads)

    assert failures(Same) == {}
    assert failures(WithoutCache).keys() >= {"cache", "long cache", "positions"}
    with pytest.raises(RegardError, match=r"as models do: TypeError: .*dropout"):
        conform(TakesNoDropout)


def test_a_pattern_is_checked_in_a_network():
    with pytest.raises(RegardError, match=r"classification:transformer pattern=my\.py:near-4$"):
        conform(Pattern(("near-4",), lambda length, size: window(size)), name="my.py:near-4")


def test_the_same_seed_gives_the_same_verdicts_and_leaves_the_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert conform(broken.Positive) == conform(broken.Positive)
    assert torch.equal(torch.get_rng_state(), before)


def test_there_are_no_laws_for_a_number():
    with pytest.raises(RegardError, match="no laws for an int; pass a Score"):
        conform(3)
    with pytest.raises(RegardError, match=r"subclass of Score, Mask, Normalizer or nn\.Module"):
        conform(int)
    with pytest.raises(
        RegardError, match=r"Linear\(.*cannot be built as.*name an instance instead"
    ):
        conform(nn.Linear)


def test_names():
    for name in ("rotary", "sink", "causal", "scaled-dot", "torch.nn.MultiheadAttention"):
        assert name in find(name).name
    for name in ("multi-head+exclusive", "retention+gate-heads", "gate"):
        assert kind_of(find(name)) == "layer"
    with pytest.raises(RegardError, match=r"a pattern is checked in a network: .*pattern=window-3"):
        find("window-3")
    with pytest.raises(RegardError, match="did you mean rotary"):
        find("rotry")
    subject = subject_of(SCORES["dot"])
    assert subject_of(subject) is subject


def test_verdicts_as_json():
    verdict = Verdict("future", "fails", "by inf", {"difference": float("inf"), "limit": 0.5})
    assert verdict.json() == {
        "law": "future",
        "outcome": "fails",
        "says": "by inf",
        "numbers": {"difference": "inf", "limit": 0.5},
    }
    for laws in LAWS.values():
        assert all(law.description and "\n" not in law.description for law in laws.values())
    json.dumps([v.json() for v in conform(broken.Raises)], allow_nan=False)
