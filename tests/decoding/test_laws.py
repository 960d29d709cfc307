"""Laws of writing, for every form of model: what is fast writes what is plain."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from regard.core.errors import RegardError
from regard.decoding import Limits, beam, forced, greedy, sample
from regard.decoding.beam import SourceBeam
from tests.decoding.writers import END, WORDS, WRITERS, make, sources

SHORT = Limits(ratio=1.0, more=3)


@pytest.mark.parametrize("name", WRITERS)
def test_steps_are_the_full_pass(name):
    """With a cache as without, for every position scheme and score: the same logits."""
    model, (source, lengths) = make(name), sources()
    target = torch.randint(1, WORDS, (5, 6))
    target[:, 0] = 0
    full = model.to_logits(model(source, lengths, target))
    writing = model.start(source, lengths)
    steps = [writing.step(target[:, i : i + 1]) for i in range(6)]
    assert_close(torch.cat(steps, 1), full, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", WRITERS)
def test_states_of_real_words_alone(name):
    """Packed or not: the same states, the same gradients."""
    model, (source, lengths) = make(name), sources()
    target, written = torch.randint(1, WORDS, (5, 6)), torch.tensor([6, 1, 3, 0, 4])
    whole = model(source, lengths, target)[torch.arange(6) < written[:, None]]
    alone = model(source, lengths, target, written)
    assert_close(alone, whole, atol=1e-12, rtol=1e-12)
    slope, of = torch.randn_like(whole), list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(alone, of, slope, allow_unused=True),
        torch.autograd.grad(whole, of, slope, allow_unused=True),
        strict=True,
    ):
        assert_close(a, b, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("name", WRITERS)
def test_rows_go_on_from_their_parents(name):
    """Two rows that share a beginning, cross over and split again, against each text alone."""
    model, (source, lengths) = make(name), sources(lengths=(4, 3))
    writing = model.start(source, lengths)
    writing.step(torch.zeros(2, 1, dtype=torch.long))
    writing.step(torch.tensor([[3, 4], [5, 6]]), torch.tensor([[0, 0], [0, 0]]))
    writing.step(torch.tensor([[7, 8, 9], [1, 2, 3]]), torch.tensor([[1, 0, 1], [0, 0, 1]]))
    found = writing.step(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 0], [1, 2]]))
    paths = [[[0, 4, 9, 1], [0, 4, 7, 2]], [[0, 5, 2, 3], [0, 6, 3, 4]]]
    for text, row in itertools.product(range(2), range(2)):
        alone = (source[text : text + 1], lengths[text : text + 1])
        states = model(*alone, torch.tensor([paths[text][row]]))
        assert_close(found[text, row], model.to_logits(states)[0, -1], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", WRITERS)
def test_no_word_looks_ahead(name):
    model, (source, lengths) = make(name), sources()
    target = torch.randint(1, WORDS, (5, 6))
    before = model(source, lengths, target)
    target[:, 4:] = 9
    assert torch.equal(model(source, lengths, target)[:, :4], before[:, :4])


@pytest.mark.parametrize("name", WRITERS)
def test_padding_changes_nothing(name):
    model, (source, lengths) = make(name), sources()
    target = torch.randint(1, WORDS, (5, 3))
    wide = torch.cat([source, torch.full((5, 4), 7)], 1)
    assert_close(model(wide, lengths, target), model(source, lengths, target))


@pytest.mark.parametrize("name", WRITERS)
def test_a_beam_of_one_is_greedy(name):
    model, (source, lengths) = make(name), sources()
    plain = greedy(model, source, lengths, end=END, limits=SHORT)
    narrow = beam(model, source, lengths, end=END, size=1, penalty=0.0, limits=SHORT)
    assert [found.tokens for (found,) in narrow] == [found.tokens for found in plain]
    for (found,), expected in zip(narrow, plain, strict=True):
        assert found.log_probability == pytest.approx(expected.log_probability)
        assert found.ended == expected.ended


@pytest.mark.parametrize(
    "name", [*WRITERS[:6], "rotary, pre", "t5-bias, post", "window", "linformer"]
)
def test_together_as_one_by_one(name):
    model, (source, lengths) = make(name), sources()
    order = torch.tensor([3, 0, 4, 2, 1])
    for search in (
        lambda *x: beam(model, *x, end=END, size=3, best=3, limits=SHORT),
        lambda *x: [[text] for text in greedy(model, *x, end=END, limits=SHORT)],
    ):
        together = search(source, lengths)
        shuffled = search(source[order], lengths[order])
        for row in range(5):
            size = int(lengths[row])
            alone = search(source[row : row + 1, :size], lengths[row : row + 1])[0]
            again = shuffled[order.tolist().index(row)]
            for texts in (alone, again):
                assert [x.tokens for x in texts] == [x.tokens for x in together[row]]
                assert [x.score for x in texts] == pytest.approx([x.score for x in together[row]])


@pytest.mark.parametrize("name", ["bahdanau", "luong dot", "sinusoidal, pre"])
def test_a_wide_beam_finds_the_best_text_there_is(name):
    """Every text of at most two words, one by one, against a beam that holds them all."""
    model, (source, lengths) = make(name), sources(lengths=(3, 2))
    limits = Limits(ratio=0, more=3)
    found = beam(model, source, lengths, end=END, size=120, penalty=1.0, limits=limits)
    words = range(1, END)
    texts = [[], *([a] for a in words), *([a, b] for a in words for b in words)]
    for row in range(2):
        alone = (source[row : row + 1].expand(len(texts), -1), lengths[row].expand(len(texts)))
        scored = forced(model, *alone, texts, end=END)
        best = max(scored, key=lambda x: x.log_probability / ((6 + len(x.tokens)) / 6))
        first = next(x for x in found[row] if x.ended)
        assert first.tokens == best.tokens
        assert first.log_probability == pytest.approx(best.log_probability)
        assert first.score == pytest.approx(best.log_probability / ((6 + len(best.tokens)) / 6))


@pytest.mark.parametrize("penalty", [-50.0, -2.0, -0.3, 0.0, 0.6, 3.0, 50.0])
def test_a_beam_that_stops_early_finds_what_one_finds_that_goes_on_to_the_limit(
    penalty, monkeypatch
):
    model, (source, lengths) = make("rotary, pre"), sources()
    with torch.no_grad():
        model.output.bias[END] += 3
    options = {"end": END, "size": 4, "best": 3, "penalty": penalty}
    found = beam(model, source, lengths, limits=Limits(ratio=0, more=12), **options)
    for texts in found:
        ended = [x for x in texts if x.ended]
        assert [x.score for x in ended] == sorted((x.score for x in ended), reverse=True)
        for text in ended:
            base = (6 + len(text.tokens)) / 6
            assert text.score == pytest.approx(text.log_probability / base**penalty)
    early = SourceBeam.done

    def late(self, sums, step):
        ended = self.ended if step < self.limit else []
        self.ended, held = ([], self.ended) if ended else (self.ended, [])
        closed = early(self, sums, step)
        self.ended = held or self.ended
        return closed

    monkeypatch.setattr(SourceBeam, "done", late)
    again = beam(model, source, lengths, limits=Limits(ratio=0, more=12), **options)
    assert [[x.tokens for x in y] for y in found] == [[x.tokens for x in y] for y in again]


class Longer:
    """Ends with probability 0.45, 0.3 after a word, and 0.98 after two."""

    training = False

    def start(self, source, lengths):
        self.chances = iter([[1e-9, 0.5, 0.05, 0.45], [1e-9, 0.7, 1e-9, 0.3]])
        return self

    def step(self, tokens, parents=None):
        chances = torch.tensor(next(self.chances, [1e-9, 0.02, 1e-9, 0.98]))
        return chances.log().repeat(*tokens.shape, 1)

    def keep(self, rows):
        pass


@pytest.mark.parametrize("penalty", [-50.0, -2.0, -0.3, 0.0])
def test_short_texts_close_no_beam_before_a_longer_one_is_better(penalty):
    source, limits = torch.ones(1, 1, dtype=torch.long), Limits(ratio=0, more=200)
    options = {"end": 3, "size": 2, "best": 2, "penalty": penalty, "limits": limits}
    (found,) = beam(Longer(), source, torch.ones(1, dtype=torch.long), **options)
    chances = {(): 0.45, (1,): 0.5 * 0.3, (1, 1): 0.5 * 0.7 * 0.98}
    scores = {x: math.log(p) / ((6 + len(x)) / 6) ** penalty for x, p in chances.items()}
    expected = sorted(scores, key=scores.__getitem__, reverse=True)[:2]
    assert [x.tokens for x in found] == expected
    assert [x.score for x in found] == pytest.approx([scores[x] for x in expected], rel=1e-6)


@pytest.mark.parametrize("penalty", [float("nan"), float("inf"), -51.0, 1e300])
def test_a_penalty_without_a_meaning_is_one_line(penalty):
    model, (source, lengths) = make("nobody"), sources()
    with pytest.raises(RegardError, match="penalty must be between -50 and 50, not"):
        beam(model, source, lengths, end=END, penalty=penalty)


def test_what_is_written_is_as_likely_as_it_says():
    model, (source, lengths) = make("rotary, pre"), sources()
    with torch.no_grad():
        model.output.bias[END] += 3
    for found in (
        greedy(model, source, lengths, end=END, limits=SHORT),
        [texts[0] for texts in beam(model, source, lengths, end=END, limits=SHORT)],
        sample(model, source, lengths, end=END, limits=SHORT, seed=3),
    ):
        ended = [row for row, text in enumerate(found) if text.ended]
        assert ended, "a test of nothing"
        texts = [list(found[row].tokens) for row in ended]
        again = forced(model, source[ended], lengths[ended], texts, end=END)
        for row, said in zip(ended, again, strict=True):
            assert found[row].log_probability == pytest.approx(said.log_probability)


def test_limits_hold():
    model, (source, lengths) = make("nobody"), sources()
    limits = Limits(ratio=0, more=4, least=4)
    for texts in beam(model, source, lengths, end=END, size=3, best=3, limits=limits):
        assert [len(text.tokens) for text in texts] == [4, 4, 4]
        assert not any(text.ended for text in texts)
    for text in greedy(model, source, lengths, end=END, limits=Limits(longest=2)):
        assert len(text.tokens) <= 2
        assert 0 not in text.tokens, "the padding is never written"


def test_more_texts_are_ordered_and_differ():
    model, (source, lengths) = make("learned, pre"), sources()
    for texts in beam(model, source, lengths, end=END, size=4, best=4, limits=SHORT):
        assert len({text.tokens for text in texts}) == len(texts) == 4
        ended = [text.score for text in texts if text.ended]
        assert ended == sorted(ended, reverse=True)
