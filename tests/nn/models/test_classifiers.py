"""Pretrained models that label: what they read."""

import pytest
import torch

from regard.lab.tasks.models import MODELS
from regard.nn.layers import special_tokens

SIZES = {"width": 16, "heads": 2, "layers": 2, "feedforward": 24, "length": 12, "dropout": 0}


def model(name):
    torch.manual_seed(0)
    entry = MODELS[name]
    return entry.build(entry.configure(SIZES), vocabulary=9, labels=3).eval()


@pytest.mark.parametrize("name", ["gpt", "bert", "t5"])
def test_the_longest_text_and_an_empty_one_are_answered(name):
    network, most = model(name), SIZES["length"] - MODELS[name].symbols
    assert len(network.framed(["a"] * most)) == SIZES["length"]
    long = torch.randint(2, 9, (1, most))
    found = network(long, torch.tensor([most]))
    assert found.isfinite().all()
    assert network(torch.zeros(1, 1, dtype=torch.long), torch.tensor([0])).isfinite().all()


def test_a_tree_hangs_on_cls() -> None:
    parents = torch.tensor([[-1, 0, 1]])  # of a, b, c
    assert model("bert").framed_tree(parents).tolist() == [[-1, 0, 1, 2, 0]]


def test_symbols_stand_where_they_are_said_to():
    assert model("gpt").framed(["a", "b"]) == ["a", "b", "[CLS]"]
    assert model("bert").framed(["a", "b"]) == ["[CLS]", "a", "b", "[SEP]"]
    assert model("t5").framed(["a", "b"]) == ["a", "b"]
    assert (
        model("t5").body.embedding.weight.shape[0]
        == 9 + special_tokens.COUNT + special_tokens.SENTINELS
    )


def test_gpt_looks_at_the_state_behind_the_last_word():
    network = model("gpt")
    tokens, lengths = torch.tensor([[3, 4, 0]]), torch.tensor([2])
    read = torch.tensor([[3, 4, network.special_tokens.classify]])
    assert torch.allclose(network.vector(tokens, lengths), network.body(read)[:, -1], atol=1e-6)


def test_bert_means_over_words_and_symbols():
    network = model("bert")
    mark = network.special_tokens
    read = torch.tensor([[mark.classify, 3, 4, mark.separator]])
    mean = network.body(read).mean(1)
    found = network.vector(torch.tensor([[3, 4, 7]]), torch.tensor([2]))
    assert torch.allclose(found, mean, atol=1e-6)


def test_bert_loses_words_behind_its_mask_in_training_only():
    network = MODELS["bert"].build(
        MODELS["bert"].configure({**SIZES, "word_dropout": 0.25}), vocabulary=9, labels=3
    )
    read = []
    network.body.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    tokens, lengths = torch.full((200, 10), 5), torch.full((200,), 9)
    network.train()(tokens, lengths)
    network.eval()(tokens, lengths)
    lost = read[0][:, 1:10] == network.special_tokens.mask
    assert lost.float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert (read[0][:, 1:10][~lost] == 5).all()
    assert (read[0][:, 0] == network.special_tokens.classify).all()
    assert (read[0][:, 10] == network.special_tokens.separator).all()
    assert (read[1][:, 1:10] == 5).all()
