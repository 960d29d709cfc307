"""Masks and what attention gives travel: by pickle, by copy, and out of a DataLoader's workers."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import regard
from regard.attention import masks
from regard.attention.mask import Mask
from regard.attention.scores import SCORES
from regard.core.errors import RegardError

MASKS: dict[str, Callable[[], Mask]] = {
    "causal()": masks.causal,
    "lengths([3, 5])": lambda: masks.lengths([3, 5]),
    "prefix(2)": lambda: masks.prefix(2),
    "lengths_per_query([[1, 2, 3, 4, 5]])": lambda: masks.lengths_per_query([[1, 2, 3, 4, 5]]),
    "others()": masks.others,
    "window(1, 2)": lambda: masks.window(1, step=2),
    "global_tokens(1)": lambda: masks.global_tokens(1),
    "blocks([[True, False], [True, True]], 3)": lambda: masks.blocks(
        torch.tensor([[True, False], [True, True]]), 3
    ),
    "documents([0, 0, 1, 1, 1], [0, 0, 1, 1, 1])": lambda: masks.documents(
        torch.tensor([0, 0, 1, 1, 1])
    ),
    "dense([[True, False, True, True, False]])": lambda: masks.dense(
        torch.tensor([[True, False, True, True, False]])
    ),
    "dense([[[True, False, True, True, False]]], True)": lambda: masks.dense(
        torch.tensor([[[True, False, True, True, False]]]), over_heads=True
    ),
    "(~causal() | (window(1, 1) & lengths([3, 5])))": lambda: (
        ~masks.causal() | (masks.window(1) & masks.lengths([3, 5]))
    ),
}
COPIES = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.deepcopy}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", MASKS)
def test_a_copy_of_a_mask_answers_as_the_mask(name: str, how: str) -> None:
    mask = MASKS[name]()
    assert repr(mask) == name
    for one in (mask, mask.over_heads()):
        copied = COPIES[how](one)
        assert repr(copied) == name
        assert (copied.kind, copied.grain, copied.has_heads) == (one.kind, one.grain, one.has_heads)
        places = torch.arange(5)
        assert torch.equal(copied.allows(places, places), one.allows(places, places))


def test_large_tensors_are_told_apart_by_their_content() -> None:
    one, same, other = (masks.lengths(torch.arange(20) + add) for add in (0, 0, 1))
    assert repr(one) == repr(same) != repr(other)
    assert repr(one).startswith("lengths(int64 (20,) #")


def test_a_mask_keeps_what_it_was_made_of() -> None:
    allowed = torch.tensor([[True, False], [True, True]])
    mask = masks.blocks(allowed, 1)
    allowed[0, 1] = True
    assert repr(pickle.loads(pickle.dumps(mask))) == "blocks([[True, False], [True, True]], 1)"


def every_third(rows: Tensor, columns: Tensor) -> Tensor:
    return columns[..., None, :] % 3 == 0


def test_a_mask_of_ones_own_travels_if_its_function_does() -> None:
    copied = pickle.loads(pickle.dumps(Mask(every_third) & masks.causal()))
    assert repr(copied) == "(Mask(every_third) & causal())"
    places = torch.arange(4)
    assert copied.allows(places, places)[3].tolist() == [True, False, False, True]
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(Mask(lambda rows, columns: columns[..., None, :] > 0))


def collate(rows: list[Tensor]) -> tuple[Tensor, Mask]:
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return padded, masks.lengths([len(row) for row in rows]) & masks.causal()


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_mask_made_in_a_worker_comes_out_of_it(context: str) -> None:
    data = [torch.arange(n) for n in (3, 5, 2, 4)]
    loader: Any = DataLoader(
        data, batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context=context,
        timeout=60,
    )  # fmt: skip
    found = [repr(mask) for _, mask in loader]
    assert found == ["(lengths([3, 5]) & causal())", "(lengths([2, 4]) & causal())"]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("score", SCORES)
def test_a_copy_of_what_attention_gives_has_its_numbers(score: str, how: str) -> None:
    x = torch.randn(2, 5, 8, requires_grad=True) * 1  # no leaf of the graph
    given = regard.attend(x, x, x, SCORES[score](8, 8, length=5), mask=masks.lengths([3, 5]))
    copied = COPIES[how](given)
    torch.testing.assert_close(copied.output, given.output.detach())
    torch.testing.assert_close(copied.weights.detach(), given.weights.detach())
    torch.testing.assert_close(copied.summary(2).mass, given.summary(2).mass)
    assert repr(copied) == "Attended(output (2, 5, 8), weights (2, 5, 5))"
    assert not copied.output.requires_grad


def test_what_has_changed_since_is_not_copied() -> None:
    x = torch.randn(2, 5, 8)
    given = regard.attend(x, x, x, SCORES["scaled-dot"]())
    x.add_(1)
    with pytest.raises(RegardError, match="have changed since"):
        copy.deepcopy(given)
