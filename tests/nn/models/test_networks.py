import pytest
import torch
from torch.testing import assert_close

from regard.attention import POSITIONS, SCORES
from tests.attention.parts import FLAT, LATER, QUERYLESS, fits
from tests.nn.models.tiny import (
    BLIND,
    LABELS,
    NETWORKS,
    PRETRAINED,
    SELF_ATTENTION,
    VOCABULARY,
    learn,
    make,
    stir,
)

LENGTHS = torch.tensor([7, 2, 0, 5])


def texts(count: int = 4, time: int = 7) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (count, time), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_never_changes_an_output(name: str) -> None:
    model = stir(make(name)).double().eval()
    tokens = texts()
    logits = model(tokens, LENGTHS)
    assert logits.shape == (4, LABELS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens[row : row + 1, : max(length, 1)], LENGTHS[row : row + 1])
        assert_close(logits[row : row + 1], alone, atol=1e-9, rtol=1e-9)
        tokens[row, length:] = 9
    assert_close(model(tokens, LENGTHS), logits, atol=1e-9, rtol=1e-9)
    wider = torch.cat([tokens, torch.zeros(4, 6, dtype=torch.long)], 1)
    assert_close(model(wider, LENGTHS), logits, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_empty_texts_have_answers_and_gradients(name: str) -> None:
    model = make(name)
    logits = model(torch.zeros(2, 1, dtype=torch.long), torch.tensor([0, 0]))
    assert logits.isfinite().all()
    logits.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", NETWORKS)
def test_word_order(name: str) -> None:
    model = stir(make(name)).double().eval()
    tokens = texts(5, 9)
    lengths = torch.full((5,), 9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    moved = (model(tokens, lengths) - model(tokens[:, order], lengths)).abs().max()
    if name in BLIND:
        assert moved < 1e-12
    else:
        assert moved > 1e-5


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in PRETRAINED])
def test_learns_which_word_stands_there(name: str) -> None:
    chance = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, VOCABULARY, (240, 6), generator=chance)
    labels = torch.randint(LABELS, (240,), generator=chance)
    place = torch.randint(6, (240, 1), generator=chance)
    tokens.scatter_(1, place, labels[:, None] + 2)
    model = make(name, init_std=0.5, dropout=0, word_dropout=0)
    assert learn(model, tokens, labels, steps=60, rate=0.03) > 0.95


@pytest.mark.parametrize("name", [x for x in NETWORKS if x not in [*BLIND, *PRETRAINED]])
@pytest.mark.deep
def test_learns_which_word_comes_first(name: str) -> None:
    chance = torch.Generator().manual_seed(2)
    tokens = torch.randint(5, VOCABULARY, (480, 5), generator=chance)
    labels = torch.randint(2, (480,), generator=chance)
    place = torch.randint(4, (480, 1), generator=chance)
    tokens.scatter_(1, place, labels[:, None] + 2)  # 2 then 3, or 3 then 2
    tokens.scatter_(1, place + 1, 3 - labels[:, None])
    model = make(name, labels=2, width=16, init_std=0.3, dropout=0, word_dropout=0)
    assert learn(model, tokens, labels, steps=100, rate=0.01) > 0.9


def test_a_filter_reads_past_both_ends_of_a_text() -> None:
    """Its largest answer is over all windows with a word of the text: ends included, padding not.

    Wanted: over the same text between zero vectors, cut out by hand (Kim 2014's wide windows).
    """
    model = make("cnn", widths="3", dropout=0, word_dropout=0).double().eval()
    tokens = torch.tensor([[4, 7, 5, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    lengths = torch.tensor([3, 1])
    features = []
    for row, length in zip(tokens, lengths, strict=True):
        words = model.embedding.weight[row[:length]]
        zeros = words.new_zeros(2, words.shape[1])
        windows = torch.cat([zeros, words, zeros]).unfold(0, 3, 1)  # begins, width, 3
        answers = torch.einsum("bwk,fwk->bf", windows, model.filters[0].weight)
        features.append((answers + model.filters[0].bias).amax(0).relu())
    torch.testing.assert_close(model(tokens, lengths), model.to_labels(torch.stack(features)))


@pytest.mark.parametrize(
    ("score", "position"),
    [
        (score, position)
        for score in SCORES
        for position in POSITIONS
        if fits(score, position) and (position not in LATER or score == "scaled-dot")
    ],
)
@pytest.mark.parametrize("name", SELF_ATTENTION)
def test_every_arm_takes_every_score_and_position(name: str, score: str, position: str) -> None:
    model = stir(make(name, score=score, position=position, length=7, layers=2, heads=2))
    logits = model(texts(), LENGTHS)
    assert logits.isfinite().all()
    logits.square().sum().backward()
    for what, parameter in model.named_parameters():
        if score in FLAT and parameter.grad is None:
            assert "attention" in what or "distance_keys" in what or "bias" in what, what
            continue
        assert parameter.grad is not None, what
        assert parameter.grad.isfinite().all(), what


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", ["attention-pool", "query-from-mean", "transformer"])
def test_pools_take_every_score(name: str, score: str) -> None:
    model = make(name, pool_score=score)
    logits = model(texts(), LENGTHS)
    logits.square().sum().backward()
    unread = ("pool.query", "pool.to_query") if score in (*QUERYLESS, *FLAT) else ()
    unread += ("pool.attention.score",) if score in FLAT else ()
    for key, parameter in model.named_parameters():
        found = parameter.grad
        assert key.startswith(unread) if found is None else found.isfinite().all()


@pytest.mark.parametrize("name", NETWORKS)
def test_state_round_trip(name: str) -> None:
    one, two = make(name, seed=0).eval(), make(name, seed=1).eval()
    before = one(texts(), LENGTHS)
    assert not torch.allclose(two(texts(), LENGTHS), before)
    two.load_state_dict(one.state_dict())
    assert torch.equal(two(texts(), LENGTHS), before)


@pytest.mark.parametrize("name", NETWORKS)
def test_same_seed_same_model(name: str) -> None:
    one, two = make(name, seed=4), make(name, seed=4)
    for first, second in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(first, second)
