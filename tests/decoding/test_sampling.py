"""Drawn words come as often as they should, and from a seed."""

import pytest
import torch

from regard.core.errors import RegardError
from regard.decoding import Limits, beam, forced, greedy, sample
from regard.decoding.sampling import nucleus, pick
from tests.decoding.writers import END, make, sources


def test_the_first_word_is_drawn_by_its_probability():
    model, (source, lengths) = make("nobody"), sources(lengths=(3,))
    logits = model.start(source, lengths).step(torch.zeros(1, 1, dtype=torch.long))[0, 0]
    logits[0] = -torch.inf
    shares = (logits / 0.7).softmax(-1)
    many = source.expand(4000, -1), lengths.expand(4000)
    found = sample(model, *many, end=END, limits=Limits(ratio=0, more=1), temperature=0.7, seed=5)
    first = torch.tensor([text.tokens[0] if text.tokens else END for text in found])
    counts = torch.bincount(first, minlength=11) / 4000
    assert (counts - shares).abs().max() < 4 * 0.5 / 4000**0.5


def test_a_seed_decides_and_the_batch_does_not():
    model, (source, lengths) = make("rotary, pre"), sources()
    once = sample(model, source, lengths, end=END, seed=1)
    assert once == sample(model, source, lengths, end=END, seed=1)
    assert once != sample(model, source, lengths, end=END, seed=2)
    assert sample(model, source[:2], lengths[:2], end=END, seed=1) == once[:2]


def test_of_no_texts_nothing_is_written():
    model, (source, lengths) = make("rotary, pre"), sources()
    none = source[:0], lengths[:0]
    assert sample(model, *none, end=END) == greedy(model, *none, end=END) == []
    assert forced(model, *none, [], end=END) == []


def test_one_word_to_choose_from_is_greedy():
    model, (source, lengths) = make("luong dot"), sources()
    best = beam(model, source, lengths, end=END, size=1, penalty=0.0)
    for how in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        found = sample(model, source, lengths, end=END, seed=4, **how)
        assert [text.tokens for text in found] == [texts[0].tokens for texts in best]


def test_the_nucleus_by_hand():
    chances = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    shares, words = nucleus(chances, 1.0, 3, 0.6)
    assert words[0, 0] == 0
    assert shares[0].tolist() == pytest.approx([0.5 / 0.9 / (0.7 / 0.9), 0.2 / 0.7, 0])
    assert pick(shares, torch.tensor([[0.0]]).double()).item() == 0
    assert pick(shares, torch.tensor([[0.72]]).double()).item() == 1
    assert pick(shares, torch.tensor([[1.0]]).double()).item() == 1


def test_errors():
    model, (source, lengths) = make("nobody"), sources()
    for how, says in (
        ({"temperature": 0.0}, "above 0, not 0; use greedy search"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.5}, "at most 1, not 1.5"),
        ({"top_k": -1}, "top_k must be 0"),
    ):
        with pytest.raises(RegardError, match=says):
            sample(model, source, lengths, end=END, **how)
    with pytest.raises(RegardError, match="beam size must be 1 or more, not 0"):
        beam(model, source, lengths, end=END, size=0)
    with pytest.raises(RegardError, match="best must be between 1 and the beam size of 2, not 3"):
        beam(model, source, lengths, end=END, size=2, best=3)
    for odd in ({"ratio": -1.5}, {"more": -1}, {"longest": 0}, {"least": -1}):
        with pytest.raises(RegardError, match="must be 0 or more"):
            Limits(**odd)
