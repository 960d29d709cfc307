"""The tasks of the positions lab: what is asked, of whom, and that it can be learned."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.attention.positions.trees import nodes
from regard.lab.labs.positions import tasks as position_tasks
from regard.lab.labs.positions.tasks import (
    Experiment,
    draw,
    experiment,
    further,
    moved,
    random_trees,
    to_copy,
)

SMALL = Experiment("moved", "none", 0, 2, 12, 24, 1, words=9, width=8, heads=2)


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_moved_text_is_asked_about_at_every_place() -> None:
    of = dataclasses.replace(SMALL, position="tree-keys")
    texts = draw(of, 24, chance(), held_out=True)
    assert texts.labels[texts.asked].tolist() == 2 * list(range(12))
    assert torch.equal(texts.tokens[0], texts.tokens[11])
    assert not torch.equal(texts.tokens[0], texts.tokens[12])
    assert texts.where[5].tolist() == list(range(5, 17))
    assert texts.parents is not None
    depths = nodes(texts.parents)[..., 0].gather(1, texts.where)
    assert torch.equal(depths[0], depths[11])


def test_distances_are_asked_for_evenly() -> None:
    texts = draw(dataclasses.replace(SMALL, task="distance"), 3, chance())
    rows, columns = texts.asked[0].nonzero().T
    assert torch.equal(texts.labels[0][texts.asked[0]], columns - rows + 4)
    assert torch.bincount(texts.labels[texts.asked]).tolist() == [3 * 4] * 9
    on = further(texts, SMALL)
    assert torch.equal(on.where, texts.where + 12)
    assert torch.equal(on.labels, texts.labels)


def test_begin_words_masks_and_copies() -> None:
    texts = draw(dataclasses.replace(SMALL, task="begin, causal"), 4, chance())
    assert texts.tokens[:, 0].tolist() == [9] * 4
    assert (texts.tokens[:, 1:] < 9).all()
    assert texts.mask is not None
    assert texts.labels[2].tolist() == list(range(12))
    assert draw(dataclasses.replace(SMALL, task="begin"), 4, chance()).mask is None
    copies = to_copy(dataclasses.replace(SMALL, back=3), 2, 7, chance())
    assert torch.equal(copies.labels[copies.asked], copies.tokens[:, :4].flatten())


def test_random_trees_are_trees() -> None:
    parents = random_trees(50, 9, chance())
    found = nodes(parents)  # which refuses circles
    assert ((parents == -1).sum(1) == 1).all()
    assert len({tuple(row) for row in parents.tolist()}) > 40
    assert (parents > torch.arange(9)).any(), "words hang on later ones too"
    where = torch.arange(9) + torch.arange(50)[:, None] % 4
    there = moved(parents, where, 13)
    assert there is not None
    assert torch.equal(nodes(there)[..., 0].gather(1, where), found[..., 0])


def test_the_same_seed_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_tasks, "HELD_OUT", 48)
    of = dataclasses.replace(SMALL, task="copy", position="rotary", steps=3)
    before = torch.random.get_rng_state()
    one = experiment(of)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(123)
    two, other = experiment(of), experiment(dataclasses.replace(of, seed=1))
    assert np.array_equal(one.looks, two.looks)
    assert np.array_equal(one.right, two.right)
    assert not np.array_equal(one.looks, other.looks)
    assert one.right.shape == (16, 23)
    assert one.mass.shape == (23,)
    assert one.looks.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("position", "least", "most"), [("rotary", 0.9, 1), ("alibi", 0.3, 0.7)])
def test_distances_are_learned(
    position: str, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_tasks, "HELD_OUT", 96)
    of = Experiment("distance", position, 0, 100, 12, 24, 1, words=9, width=16, heads=4)
    found = experiment(of)
    assert least <= found.right.mean() <= most
    assert abs(found.elsewhere.mean() - found.right.mean()) < 0.05
    assert found.said.sum() == 96 * 4 * 9
