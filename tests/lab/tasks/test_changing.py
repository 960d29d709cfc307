"""Heads off and states of another text, in every task: the answers change, and come back."""

import pytest
import torch

from regard.analysis.interventions import (
    Head,
    blocks,
    keep_states,
    layers_with_heads,
    patched,
    without_heads,
)
from regard.core.errors import RegardError
from tests.lab.tasks.test_explaining import built, number

OTHERS = {
    "label": "a good plot and more words",
    "tags": "May saw Paris in Ada .",
    "puzzle": "s5 s2 s4 s5",
    "next word": "Bob was here",
    "masked word": "Bob was [MASK] in [MASK]",
    "span": "Bob was <extra_id_0> Ghent",
    "answer": "Where did Bob live?",
    "string": "FGHIJ",
}
SHARED = {"tags": [0, 1, 2]}  # positions of both texts, where one has more tokens


@pytest.mark.parametrize("case", OTHERS)
def test_heads_off_change_the_answers_of_every_task(case: str) -> None:
    task, network, text = built(case)
    layers = layers_with_heads(network)
    assert layers
    scalar = task.explainable(network, text).choose(None)[1]
    before, answer = number(scalar), task.predict(network, [text])[0].json()
    off = [Head(name, head) for name in layers for head in (1, 2)]
    with without_heads(network, off):
        assert abs(number(scalar) - before) > 1e-4
        task.predict(network, [text])
    assert task.predict(network, [text])[0].json() == answer


@pytest.mark.parametrize("case", OTHERS)
def test_states_of_another_text_change_the_answers_of_every_task(case: str) -> None:
    task, network, text = built(case)
    other = OTHERS[case]
    scalar, theirs = (task.explainable(network, x).choose(None)[1] for x in (text, other))
    with torch.no_grad(), keep_states(network) as own:
        before = number(scalar)
    with torch.no_grad(), keep_states(network) as states:
        number(theirs)
    for place in (next(iter(blocks(network))), Head(next(iter(layers_with_heads(network))), 2)):
        with patched(network, {place: own[place]}):
            assert number(scalar) == pytest.approx(before, abs=1e-4)
        with patched(network, {place: states[place]}, SHARED.get(case)):
            assert abs(number(scalar) - before) > 1e-4
    with keep_states(network) as states:
        task.predict(network, [other])
    answer = task.predict(network, [text])[0].json()
    for place in states:
        with patched(network, {place: states[place]}, [0]):
            task.predict(network, [text])
    assert task.predict(network, [text])[0].json() == answer


@pytest.mark.parametrize("case", ["string by Bahdanau", "label of a recurrent network"])
def test_a_network_without_heads_says_what_to_do(case: str) -> None:
    network = built(case)[1]
    for place in ("blocks.0", Head("blocks.0", 1)):
        refused = pytest.raises(RegardError, match="such as transformer, gpt or bert")
        with refused, patched(network, {place: torch.zeros(1)}):
            pass
