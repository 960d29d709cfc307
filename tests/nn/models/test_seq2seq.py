"""Recurrent writers against their papers' equations, written out as loops over one text."""

import pytest
import torch

from regard.lab.tasks.models import WRITERS

FORMS = ["gru", "bahdanau", "lab-6", "luong-dot", "luong-general", "luong-concat"]
SOURCE, LENGTHS = torch.tensor([[4, 5, 6, 7], [7, 8, 0, 0]]), torch.tensor([4, 2])
GIVEN = torch.tensor([[0, 3, 5], [0, 4, 4]])


def built(name):
    torch.manual_seed(3)
    entry = WRITERS[name]
    settings = entry.configure({"width": 4, "hidden": 6, "dropout": 0, "init_std": 1.0})
    return entry.build(settings, vocabulary=9, labels=0).double().eval()


def cell(x, state, weights, name):
    """h' = (1 − z) n + z h. Cho et al. 2014, with the reset behind the product, as cuDNN has it."""
    given = weights[f"{name}.weight_ih_l0"] @ x + weights[f"{name}.bias_ih_l0"]
    kept = weights[f"{name}.weight_hh_l0"] @ state + weights[f"{name}.bias_hh_l0"]
    (reset, update, new), (reset_kept, update_kept, new_kept) = given.chunk(3), kept.chunk(3)
    r, z = torch.sigmoid(reset + reset_kept), torch.sigmoid(update + update_kept)
    n = torch.tanh(new + r * new_kept)
    return (1 - z) * n + z * state


def run_over(words, size, weights, name):
    """The state after each word."""
    state, states = torch.zeros(size, dtype=torch.float64), []
    for word in words:
        state = cell(word, state, weights, name)
        states.append(state)
    return states


def read(ids, weights):
    """Annotations of a source (Bahdanau et al. 2015, A.2.1), and the decoder's first state."""
    words = [weights["source.weight"][i] for i in ids]
    if "encoder.one.weight_ih_l0" in weights:
        states = run_over(words, 6, weights, "encoder.one")
        return torch.stack(states), states[-1]
    there = run_over(words, 3, weights, "encoder.both.forwards.0")
    back = run_over(words[::-1], 3, weights, "encoder.both.backwards.0")[::-1]
    first = torch.tanh(
        weights["encoder.to_state.weight"] @ back[0] + weights["encoder.to_state.bias"]
    )
    return torch.stack([torch.cat(pair) for pair in zip(there, back, strict=True)]), first


def context(query, memory, weights, name):
    """c = Σ softmax(score(query, h_j)) h_j; scores as in Luong et al. 2015, equation 8."""
    if name == "luong-dot":
        scores = [query @ key for key in memory]
    elif name in ("luong-general", "lab-6"):
        scores = [query @ weights["attention.score.weight"] @ key for key in memory]
    else:
        of_query = query @ weights["attention.score.query_weight"]
        bias = weights["attention.score.bias"][0]
        scores = [
            torch.tanh(of_query + key @ weights["attention.score.key_weight"] + bias)
            @ weights["attention.score.weight"][:, 0]
            for key in memory
        ]
    return torch.softmax(torch.stack(scores), 0) @ memory


def written(ids, given, weights, name):
    """Logits of each next word."""
    memory, state = read(ids, weights)
    found = []
    for token in given:
        start = token == 0 and name == "lab-6"  # whose start symbol is learned
        word = weights["begin"] if start else weights["target.weight"][token]
        if name in ("bahdanau", "lab-6"):
            looked = context(state, memory, weights, name)
            state = cell(torch.cat([word, looked]), state, weights, "decoder")
        else:
            state = cell(word, state, weights, "decoder")
        out = state
        if name.startswith("luong"):
            looked = context(state, memory, weights, name)
            joined = torch.cat([state, looked])
            out = torch.tanh(weights["join.weight"] @ joined + weights["join.bias"])
        elif name == "bahdanau":
            joined = torch.cat([state, word, looked])
            pieces = weights["join.weight"] @ joined + weights["join.bias"]
            out = torch.maximum(pieces[::2], pieces[1::2])
        found.append(weights["to_logits.weight"] @ out + weights["to_logits.bias"])
    return torch.stack(found)


@pytest.mark.parametrize("name", FORMS)
def test_logits_and_gradients_are_those_of_the_equations(name):
    model = built(name)
    weights = dict(model.named_parameters())
    wanted = torch.stack(
        [
            written(ids[:length].tolist(), given.tolist(), weights, name)
            for ids, length, given in zip(SOURCE, LENGTHS, GIVEN, strict=True)
        ]
    )
    upstream = torch.randn(wanted.shape, dtype=torch.float64)
    slow = torch.autograd.grad((wanted * upstream).sum(), list(weights.values()))
    found = model.to_logits(model(SOURCE, LENGTHS, GIVEN))
    torch.testing.assert_close(found, wanted)
    quick = torch.autograd.grad((found * upstream).sum(), list(weights.values()))
    for key, one, other in zip(weights, quick, slow, strict=True):
        if key in ("source.weight", "target.weight"):
            one, other = one[1:], other[1:]  # the symbol before the first word is never learned
        torch.testing.assert_close(one, other, msg=key)


@pytest.mark.parametrize("name", FORMS)
def test_word_by_word_it_is_the_same(name):
    model = built(name)
    whole = model.to_logits(model(SOURCE, LENGTHS, GIVEN))
    writing = model.start(SOURCE, LENGTHS)
    steps = [writing.step(GIVEN[:, i : i + 1]) for i in range(GIVEN.shape[1])]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
