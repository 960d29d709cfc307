"""Networks side by side: each is what it would be alone."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention import NORMALIZERS, SCORES, make_score
from regard.errors import RegardError
from regard.models.stacked import StackedEncoder, rows_of, stack

SIZES: dict[str, Any] = {"symbols": 9, "answers": 4, "length": 7, "width": 6}
SEEDS = [5, 2, 5]


def tokens_and_lengths() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 8, (3, 8), generator=draw)
    tokens = torch.randint(1, 9, (3, 8, 7), generator=draw)
    return tokens * (torch.arange(7) < lengths[..., None]), lengths


@pytest.mark.parametrize(
    ("score", "normalize"),
    [*((score, "softmax") for score in SCORES), *(("scaled-dot", name) for name in NORMALIZERS)],
)
def test_each_network_is_what_it_is_alone(score: str, normalize: str) -> None:
    tokens, lengths = tokens_and_lengths()
    kind = NORMALIZERS[normalize]

    def made(seeds: list[int]) -> StackedEncoder:
        return StackedEncoder(seeds, **SIZES, score=score, normalize=kind, reads="mean")

    together = made(SEEDS)
    logits = together(tokens, lengths)
    logits.square().sum().backward()
    for i, seed in enumerate(SEEDS):
        alone = made([seed])
        one = alone(tokens[i : i + 1], lengths[i : i + 1])
        assert_close(logits[i : i + 1], one)
        one.square().sum().backward()
        for theirs, ours in zip(together.parameters(), alone.parameters(), strict=True):
            grads = [0 * p if p.grad is None else p.grad for p in (theirs, ours)]
            assert_close(grads[0][i : i + 1], grads[1], atol=1e-4, rtol=1e-4)


def test_padding_has_no_say() -> None:
    tokens, lengths = tokens_and_lengths()
    network = StackedEncoder(SEEDS, **SIZES, reads="mean")
    before = network(tokens, lengths)
    beyond = torch.arange(7) >= lengths[..., None]
    assert_close(network(torch.where(beyond, 3, tokens), lengths), before)


def test_the_last_position_answers_what_it_answers_among_all() -> None:
    tokens, _ = tokens_and_lengths()
    each, last = (StackedEncoder(SEEDS, **SIZES, reads=reads) for reads in ("each", "last"))
    assert_close(last(tokens), each(tokens)[..., -1:, :])


def test_a_seed_gives_the_same_numbers_outside_score_and_normaliser() -> None:
    one = dict(StackedEncoder([4], **SIZES).named_parameters())
    other = dict(StackedEncoder([1, 4], **SIZES, score="additive").named_parameters())
    for name, parameter in one.items():
        assert torch.equal(parameter[0], other[name][1])
    assert not torch.equal(other["symbols"][0], other["symbols"][1])


def test_the_symbol_before_is_read() -> None:
    network = StackedEncoder([0], **SIZES, sines=0.0)
    network.out.data.zero_()  # no attention: each position for itself
    pair = torch.tensor([[[1, 2, 3, 3], [2, 1, 3, 3]]])
    first, second = network(pair)[0]
    assert not torch.allclose(first[2], second[2])
    assert_close(first[3], second[3])


def test_rows_are_of_the_networks_own_table() -> None:
    table = torch.arange(12.0).view(2, 3, 2)
    assert rows_of(table, torch.tensor([[2], [0]])).tolist() == [[[4.0, 5.0]], [[6.0, 7.0]]]


def test_shared_parameters_are_refused() -> None:
    with pytest.raises(RegardError, match=r"Linear\.weight is shared by its heads"):
        stack(lambda heads: nn.Linear(2, 2), [0, 1])
    score = stack(lambda heads: make_score("general", "none", 2, 3, heads=heads), [3, 3, 4])
    (weight,) = score.parameters()
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])


def test_the_numbers_of_one_network() -> None:
    network = StackedEncoder([0, 1], **SIZES)
    assert network.numbers == 2 * 9 * 6 + 4 * 36 + 2 * 72 + 12 + 6 + 24 + 4
