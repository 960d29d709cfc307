import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.training.batches import pad, plan_batches


def lengths_of_reviews(count, seed=0):
    random = np.random.default_rng(seed)
    return np.minimum(random.lognormal(5, 0.7, count).astype(int) + 1, 400)


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_index_stands_in_one_batch(shuffle):
    lengths = lengths_of_reviews(2311)
    plan = plan_batches(lengths, tokens=1500, seed=4, epoch=2, shuffle=shuffle)
    assert sorted(np.concatenate(plan).tolist()) == list(range(2311))
    assert all(lengths[batch].max() * len(batch) <= 1500 for batch in plan)


def test_little_padding_and_full_batches():
    lengths = lengths_of_reviews(20_000)
    plan = plan_batches(lengths, tokens=4096, seed=0, epoch=0)
    padded = sum(lengths[batch].max() * len(batch) for batch in plan)
    assert padded < 1.04 * lengths.sum()
    assert len(plan) < 1.1 * lengths.sum() / 4096
    assert max(np.ptp(lengths[batch]) for batch in plan) <= 100  # windows join without a jump


def test_plan_depends_on_seed_and_epoch_and_nothing_else():
    lengths = lengths_of_reviews(300)

    def plan(**changes):
        asked = {"tokens": 900, "seed": 1, "epoch": 0} | changes
        return [batch.tolist() for batch in plan_batches(lengths, **asked)]

    first = plan()
    np.random.default_rng(5).random(7)
    assert plan() == first
    assert plan(epoch=1) != first
    assert plan(seed=2) != first
    order = [lengths[batch].max() for batch in first]
    assert order != sorted(order)


def test_without_shuffle_from_short_to_long():
    lengths = [7, 3, 9, 3, 1]
    plan = plan_batches(lengths, tokens=10, seed=0, epoch=0, shuffle=False)
    assert [batch.tolist() for batch in plan] == [[4, 1, 3], [0], [2]]


def test_empty_texts_count_as_one_token_and_no_texts_as_no_batch():
    plan = plan_batches([0, 0, 0, 0, 0], tokens=2, seed=0, epoch=0)
    assert sorted(map(len, plan)) == [1, 2, 2]
    assert plan_batches([], tokens=2, seed=0, epoch=0) == []


def test_what_cannot_be_planned():
    with pytest.raises(RegardError, match="a text of 9 tokens does not fit into batches of 8"):
        plan_batches([3, 9], tokens=8, seed=0, epoch=0)


def test_pad():
    tokens, lengths = pad([[5, 6], [], np.array([7, 8, 9], dtype=np.int32)])
    assert tokens.tolist() == [[5, 6, 0], [0, 0, 0], [7, 8, 9]]
    assert lengths.tolist() == [2, 0, 3]
    assert str(tokens.dtype) == str(lengths.dtype) == "torch.int64"
    assert pad([[]])[0].shape == (1, 1)
