"""GPT: what is written step by step is what the full pass says, and no word looks ahead."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention import POSITIONS, causal, documents
from regard.core.errors import RegardError
from regard.decoding import Limits, beam, greedy, sample
from regard.nn.models.gpt import GPT
from regard.nn.models.settings import GPTSettings
from tests.attention.parts import shifted

WORDS, END = 13, 12
TREES = {"tree-depth", "tree-keys"}  # given by the user
FORMS = {
    **{name: {"position": name} for name in POSITIONS if name not in TREES},
    "synthesizer": {"score": "synthesizer"},
    "factorised": {"score": "synthesizer-factorised", "position": "rotary"},
    "additive": {"score": "additive", "position": "alibi"},
    "grouped": {"key_value_heads": 1, "position": "t5-bias"},
    "sparse": {"normalize": "entmax15", "tie": False},
    "near": {"pattern": "window-2+global-1", "activation": "gated-silu"},
}
SHORT = Limits(ratio=0, more=5)


def make(name: str, **more: object) -> GPT:
    torch.manual_seed(1)
    given = {"width": 8, "heads": 2, "layers": 2, "feedforward": 12, "length": 30}
    model = GPT(GPTSettings.model_validate(given | FORMS[name] | more), WORDS)
    return shifted(model.double().eval(), 0.5)


def texts(lengths: tuple[int, ...] = (5, 2, 7, 1, 4)) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    tokens, sizes = torch.randint(1, END, (len(lengths), max(lengths))), torch.tensor(lengths)
    return tokens.masked_fill(torch.arange(max(lengths)) >= sizes[:, None], 0), sizes


@pytest.mark.parametrize("name", FORMS)
def test_steps_are_the_full_pass(name):
    """After prompts of different lengths, for every position scheme and score."""
    model, (tokens, lengths) = make(name), texts()
    more = torch.randint(1, WORDS, (5, 3))
    writing = model.start(tokens, lengths)
    found = [writing.step(torch.zeros(5, 1, dtype=torch.long))]
    found += [writing.step(more[:, i : i + 1]) for i in range(3)]
    for row, size in enumerate(lengths.tolist()):
        whole = torch.cat([tokens[row, :size], more[row]])[None]
        full = model.to_logits(model(whole))[0, size - 1 :]
        assert_close(torch.cat(found, 1)[row], full, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["learned", "rotary", "synthesizer", "near"])
def test_rows_go_on_from_their_parents(name):
    model, (tokens, lengths) = make(name), texts((4, 2))
    writing = model.start(tokens, lengths)
    writing.step(torch.zeros(2, 2, dtype=torch.long))  # all rows of the first step are the text
    writing.step(torch.tensor([[3, 4], [5, 6]]), torch.tensor([[1, 0], [0, 1]]))
    writing.step(torch.tensor([[7, 8, 9], [1, 2, 3]]), torch.tensor([[1, 0, 1], [0, 0, 1]]))
    found = writing.step(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 0], [1, 2]]))
    paths = [[[4, 9, 1], [4, 7, 2]], [[5, 2, 3], [6, 3, 4]]]
    for text, row in itertools.product(range(2), range(2)):
        path = torch.tensor(paths[text][row])
        whole = torch.cat([tokens[text, : lengths[text]], path])[None]
        expected = model.to_logits(model(whole))[0, -1]
        assert_close(found[text, row], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", FORMS)
def test_no_word_looks_ahead(name):
    """And so padding, which follows, changes nothing."""
    model, (tokens, _) = make(name), texts((7, 7, 7))
    before = model(tokens)
    tokens[:, 4:] = 9
    assert torch.equal(model(tokens)[:, :4], before[:, :4])
    assert not torch.equal(model(tokens)[:, 4:], before[:, 4:])
    assert_close(model(tokens[:, :4]), before[:, :4], atol=1e-13, rtol=1e-12)


def test_a_beginning_sees_itself_whole():
    model, (tokens, lengths) = make("rotary"), texts((6, 6))
    before = model(tokens, lengths, prefix=torch.tensor([3, 0]))
    assert_close(before[1], model(tokens)[1], atol=1e-12, rtol=1e-12)  # two masks: two kernels
    tokens[:, 2] = 7
    after = model(tokens, lengths, prefix=torch.tensor([3, 0]))
    assert not torch.isclose(after[0, 0], before[0, 0]).any()
    assert torch.equal(after[1, :2], before[1, :2])
    tokens[0, 3:] = 1
    assert torch.equal(model(tokens, lengths, prefix=torch.tensor([3, 0]))[0, :3], after[0, :3])


@pytest.mark.parametrize("name", ["learned", "rotary", "t5-bias"])
def test_texts_in_one_row_do_not_meet(name):
    model, (tokens, _) = make(name), texts((7,))
    whose = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
    packed = model(tokens, mask=documents(whose), positions=positions)
    apart = torch.cat([model(tokens[:, :4]), model(tokens[:, 4:])], 1)
    assert_close(packed, apart, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["learned", "alibi", "grouped", "sparse"])
def test_searches_agree(name):
    model, (tokens, lengths) = make(name), texts()
    plain = greedy(model, tokens, lengths, end=END, limits=SHORT)
    narrow = beam(model, tokens, lengths, end=END, size=1, penalty=0.0, limits=SHORT)
    drawn = sample(model, tokens, lengths, end=END, limits=SHORT, top_k=1)
    assert [x.tokens for (x,) in narrow] == [x.tokens for x in plain] == [x.tokens for x in drawn]
    wide = beam(model, tokens, lengths, end=END, size=3, limits=SHORT)
    for row, size in enumerate(lengths.tolist()):
        alone = tokens[row : row + 1, :size], lengths[row : row + 1]
        (found,) = greedy(model, *alone, end=END, limits=SHORT)
        assert found.tokens == plain[row].tokens
        again = beam(model, *alone, end=END, size=3, limits=SHORT)[0]
        assert [x.tokens for x in again] == [x.tokens for x in wide[row]]


def test_a_text_without_a_beginning_is_begun_by_the_symbol():
    model = make("learned")
    nothing = torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    said = model.start(*nothing).step(torch.zeros(2, 1, dtype=torch.long))
    assert_close(said, model.to_logits(model(torch.zeros(2, 1, dtype=torch.long))))


def test_the_formula_by_hand():
    """One head, one block, everything written out; a scaled dot product, tied words."""
    model = make("learned", heads=1, layers=1)
    tokens = torch.tensor([[3, 1, 4]])
    (block,), weights = model.blocks, model.embedding.weight
    x = weights[tokens[0]] + model.positions.table[:3]
    attention = block.attention.work
    inner = block.attention.norm(x) @ attention.project.weight.T + attention.project.bias
    q, k, v = inner.split(8, -1)
    scores = (q @ k.T / 8**0.5).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf)
    x = x + attention.output(scores.softmax(-1) @ v)
    maps = block.feedforward.work
    hidden = F.gelu(maps.widen(block.feedforward.norm(x)))
    x = x + hidden @ maps.narrow.weight.T + maps.narrow.bias
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    x = (x - mean) / (variance + 1e-5).sqrt() * model.norm.weight + model.norm.bias
    assert_close(model.to_logits(model(tokens))[0], x @ weights.T, atol=1e-12, rtol=1e-12)


def test_it_learns_to_count():
    torch.manual_seed(3)
    settings = GPTSettings(width=16, heads=2, layers=1, feedforward=32, dropout=0.0, length=12)
    model = GPT(settings, 8)
    text = 1 + (torch.arange(12) + torch.arange(7)[:, None]) % 7
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        logits = model.to_logits(model(text[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    said = greedy(model.eval(), torch.tensor([[3, 4]]), torch.tensor([2]), end=0, limits=SHORT)
    assert said[0].tokens == (5, 6, 7, 1, 2)


def test_errors():
    with pytest.raises(RegardError, match="positions end at length=30, but the input needs 31"):
        make("learned")(torch.ones(1, 31, dtype=torch.long))
    with pytest.raises(RegardError, match="no activation is called 'gleu'; did you mean gelu"):
        make("learned", activation="gleu")
    assert causal().kind == "causal", "what a full pass is fast by"
