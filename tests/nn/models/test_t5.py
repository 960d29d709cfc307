"""T5: one bias for all layers, and what is written step by step is what the full pass says."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention import POSITIONS
from regard.core.errors import RegardError
from regard.core.settings import build
from regard.decoding import Limits, beam, greedy
from regard.lab.tasks.models import WRITERS
from regard.nn.models.settings import T5Settings
from regard.nn.models.t5 import T5
from regard.training.checkpoints import load_weights, weights
from tests.attention.parts import shifted

WORDS, END = 13, 12
FORMS = {
    **{name: {"position": name} for name in POSITIONS if not name.startswith("tree")},
    "first": {"tie": True, "activation": "relu", "decoder_layers": 1},
    "additive": {"score": "additive"},
    "synthesizer": {"score": "synthesizer", "head_width": 5},
    "shared": {"key_value_heads": 1},
    "near": {"pattern": "window-2+global-1"},
    "mixed": {"compress": "linformer-3", "position": "rotary"},
}
SHORT = Limits(ratio=0, more=5)


def make(name: str, **more: object) -> T5:
    torch.manual_seed(1)
    given = {"width": 8, "heads": 2, "layers": 2, "feedforward": 12, "length": 20, "buckets": 4,
             "farthest": 9}  # fmt: skip
    return shifted(T5(build(T5Settings, given | FORMS[name] | more), WORDS).double().eval(), 0.4)


def texts(lengths: tuple[int, ...] = (5, 2, 7, 1, 4)) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    tokens, sizes = torch.randint(1, END, (len(lengths), max(lengths))), torch.tensor(lengths)
    return tokens.masked_fill(torch.arange(max(lengths)) >= sizes[:, None], 0), sizes


@pytest.mark.parametrize("name", FORMS)
def test_steps_are_the_full_pass_and_no_word_looks_ahead(name):
    model, (source, lengths) = make(name), texts()
    target = torch.randint(1, WORDS, (5, 6))
    target[:, 0] = 0
    full = model.to_logits(model(source, lengths, target))
    writing = model.start(source, lengths)
    steps = [writing.step(target[:, i : i + 1]) for i in range(6)]
    assert_close(torch.cat(steps, 1), full, atol=1e-12, rtol=1e-12)
    target[:, 4:] = 9
    assert torch.equal(model.to_logits(model(source, lengths, target))[:, :4], full[:, :4])
    wide = torch.cat([source, torch.full((5, 3), 7)], 1)
    assert_close(model.to_logits(model(wide, lengths, target))[:, :4], full[:, :4])


@pytest.mark.parametrize("changes", [{"position": "learned"}, {"score": "synthesizer"}])
def test_what_is_written_may_be_twice_as_long_as_what_is_read(changes):
    settings = T5Settings(width=8, heads=2, layers=1, feedforward=8, length=5, **changes)
    model = T5(settings, 11)
    source, target = torch.tensor([[4, 5, 6, 7, 8]]), torch.full((1, 11), 3)
    states = model(source, torch.tensor([5]), target)
    assert states.shape == (1, 11, 8)
    with pytest.raises(RegardError, match="11"):
        model(source, torch.tensor([5]), torch.full((1, 12), 3))


@pytest.mark.parametrize("name", ["t5-bias", "first", "rotary", "synthesizer", "near", "mixed"])
def test_searches_agree(name):
    model, (source, lengths) = make(name), texts()
    plain = greedy(model, source, lengths, end=END, limits=SHORT)
    narrow = beam(model, source, lengths, end=END, size=1, penalty=0.0, limits=SHORT)
    assert [x.tokens for (x,) in narrow] == [x.tokens for x in plain]
    wide = beam(model, source, lengths, end=END, size=3, limits=SHORT)
    for row, size in enumerate(lengths.tolist()):
        alone = source[row : row + 1, :size], lengths[row : row + 1]
        again = beam(model, *alone, end=END, size=3, limits=SHORT)[0]
        assert [x.tokens for x in again] == [x.tokens for x in wide[row]]
        path = torch.tensor([[0, *wide[row][0].tokens]])
        chances = model.to_logits(model(*alone, path))[0].float()
        chances[:, 0] = -torch.inf
        said = [*wide[row][0].tokens, *([END] if wide[row][0].ended else [])]
        total = chances.log_softmax(-1)[range(len(said)), said].sum()
        assert wide[row][0].log_probability == pytest.approx(total.item(), abs=1e-4)


def test_one_bias_for_all_layers_of_a_stack():
    model = make("t5-bias")
    stacks = [[b.attention.work.attention.score.bias for b in x]
              for x in (model.encoder, model.decoder)]  # fmt: skip
    assert stacks[0][0] is stacks[0][1]
    assert stacks[1][0] is stacks[1][1]
    assert stacks[0][0] is not stacks[1][0]
    saved = weights(model)
    assert sum("score.bias" in name for name in saved) == 2
    other = make("t5-bias", init_std=2.0)
    load_weights(other, saved)
    source, lengths = texts()
    target = torch.zeros(5, 2, dtype=torch.long)
    assert torch.equal(other(source, lengths, target), model(source, lengths, target))


def test_tied_words_are_divided_by_the_root_of_the_width():
    model = make("first")
    states = torch.randn(2, 8).double()
    assert_close(model.to_logits(states), states @ model.embedding.weight.T / 8**0.5)
    assert make("t5-bias").output.weight.shape == (WORDS, 8)


@pytest.mark.parametrize("name", ["t5-bias", "first"])
@pytest.mark.deep
def test_it_learns_to_turn_around(name):
    torch.manual_seed(3)
    given = {"width": 24, "heads": 2, "layers": 1, "feedforward": 32, "dropout": 0.0,
             "init_std": 0.1}  # fmt: skip
    model = T5(build(T5Settings, given | FORMS[name] | {"decoder_layers": 0}), 8)
    source = torch.randint(1, 7, (200, 3))
    target = torch.cat([source.flip(1), torch.full((200, 1), 7)], 1)
    given_words = torch.cat([torch.zeros(200, 1, dtype=torch.long), target[:, :-1]], 1)
    lengths = torch.full((200,), 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(140):
        logits = model.to_logits(model(source, lengths, given_words))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    said = greedy(model.eval(), source[:20], lengths[:20], end=7, limits=SHORT)
    right = sum(x.tokens == tuple(t[:3].tolist()) for x, t in zip(said, target, strict=False))
    assert right >= 18


def test_by_name_and_errors():
    assert WRITERS["t5"].configure({"tie": "true"}).tie
    with pytest.raises(RegardError, match="width=10 is not divisible by heads=4; set head_width"):
        build(T5Settings, {"width": 10, "heads": 4})
    with pytest.raises(RegardError, match="farthest=16 must exceed half of buckets=32"):
        build(T5Settings, {"farthest": 16})
    with pytest.raises(RegardError, match="so there is no distance for position=t5-bias; use rot"):
        build(T5Settings, {"compress": "linformer"})
