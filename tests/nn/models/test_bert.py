"""BERT: every word sees its text and nothing else, and the heads are the written formulas."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention import POSITIONS, documents
from regard.core.settings import build
from regard.lab.tasks.models import ENCODERS
from regard.nn.models.bert import BERT
from regard.nn.models.settings import BERTSettings
from tests.attention.parts import shifted

WORDS = 13
FORMS = {
    **{name: {"position": name} for name in POSITIONS if not name.startswith("tree")},
    "pre": {"norm": "pre", "types": 0},
    "additive": {"score": "additive", "normalize": "sparsemax"},
    "synthesizer": {"score": "synthesizer-random", "pattern": "window-2+global-1"},
    "grouped": {"key_value_heads": 1, "activation": "gelu-tanh"},
    "mixed": {"compress": "linformer-3", "position": "rotary"},
}


def make(name: str, **more: object) -> BERT:
    torch.manual_seed(1)
    given = {"width": 8, "heads": 2, "layers": 2, "feedforward": 12, "length": 20}
    model = BERT(build(BERTSettings, given | FORMS[name] | more), WORDS)
    return shifted(model.double().eval(), 0.4)


@pytest.mark.parametrize("name", FORMS)
def test_padding_and_neighbours_change_nothing(name):
    model = make(name)
    tokens, lengths = torch.randint(1, WORDS, (3, 7)), torch.tensor([7, 3, 5])
    states = model(tokens, lengths)
    for row, size in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :size])
        assert_close(states[row, :size], alone[0], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["learned", "rotary", "t5-bias"])
def test_texts_in_one_row_do_not_meet(name):
    model, tokens = make(name), torch.randint(1, WORDS, (1, 7))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
    packed = model(tokens, mask=documents(torch.tensor([[0] * 4 + [1] * 3])), positions=positions)
    apart = torch.cat([model(tokens[:, :4]), model(tokens[:, 4:])], 1)
    assert_close(packed, apart, atol=1e-12, rtol=1e-12)


def test_every_word_sees_both_sides():
    model, tokens = make("learned"), torch.randint(1, WORDS, (1, 6))
    before = model(tokens)
    tokens[0, 3] = (tokens[0, 3] + 1) % WORDS
    assert (model(tokens) != before).any(-1).all()


def test_the_input_is_words_positions_and_types():
    model = make("learned", layers=1)
    tokens, types = torch.tensor([[3, 5, 7]]), torch.tensor([[0, 1, 1]])
    seen = []
    hook = model.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(tokens, None, types)
    hook.remove()
    x = model.embedding.weight[tokens[0]] + model.positions.table[:3] + model.types.weight[types[0]]
    norm = model.embedding_norm
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-12).sqrt()
    assert_close(seen[0][0], x * norm.weight + norm.bias, atol=1e-12, rtol=1e-12)


def test_the_heads_by_hand():
    model, states = make("learned"), torch.randn(2, 3, 8).double()
    hidden = F.gelu(states @ model.head.weight.T + model.head.bias)
    hidden = F.layer_norm(hidden, (8,), model.head_norm.weight, model.head_norm.bias, 1e-12)
    expected = hidden @ model.embedding.weight.T + model.head_bias
    assert_close(model.to_logits(states), expected, atol=1e-12, rtol=1e-12)
    first = (states[:, 0] @ model.pool.weight.T + model.pool.bias).tanh()
    assert_close(model.next_sentence(states), first @ model.follows.weight.T + model.follows.bias)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_learns_what_was_hidden(norm):
    """Every text counts up; one word is hidden, and its neighbours say which."""
    torch.manual_seed(3)
    settings = BERTSettings(width=16, heads=2, layers=1, feedforward=32, dropout=0, norm=norm)
    model = BERT(settings, 9)
    text = 1 + (torch.arange(6) + torch.arange(7)[:, None]) % 7
    positions = torch.arange(7) % 6
    hidden = text.clone()
    hidden[range(7), positions] = 8
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(80):
        logits = model.to_logits(model(hidden)[range(7), positions])
        loss = F.cross_entropy(logits, text[range(7), positions])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


def test_by_name():
    settings = ENCODERS["bert"].configure({"layers": "2"})
    model = ENCODERS["bert"].build(settings, vocabulary=5, labels=0)
    assert len(model.blocks) == 2
