"""Trees and kernels of a call hold when torch.utils.checkpoint calls it again."""

import threading

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from regard.attention import MultiHeadAttention, causal, input_positions, parsed, use
from regard.attention.carried import Carried
from regard.attention.kernels.choose import asked

TREES = [torch.tensor([2, 2, 3, -1, 6, 6, 3]), torch.tensor([-1, 0, 1, 1, 1, 0, 5])]


class Layer(nn.Module):
    """Positions along trees, before attention or in its scores, with a block around either."""

    def __init__(self, position: str) -> None:
        super().__init__()
        self.positions = input_positions(position, 8)
        self.widen = nn.Linear(8, 8)
        self.attention = MultiHeadAttention(8, 2, position=position)

    def forward(self, x: torch.Tensor, parents: torch.Tensor | None = None) -> torch.Tensor:
        if parents is not None:
            with parsed(parents):
                inner = self(x)
            return self(inner)  # by the tree around the call, if there is one
        x = self.widen(x)
        return self.attention(x if self.positions is None else self.positions(x), mask=causal())


def gradients(layer: Layer, call, *, inside: bool) -> list[torch.Tensor]:
    """Gradients of two texts with a tree each and one with none, summed up by one backward."""
    torch.manual_seed(3)
    texts, total = torch.randn(3, 2, 7, 8).requires_grad_().unbind(0), torch.zeros(())
    for x, tree in zip(texts, TREES, strict=False):
        with parsed(tree):
            total = total + call(layer, x).square().sum()
    total = total + call(layer, texts[2]).square().sum()
    leaves = list(layer.parameters())
    layer.zero_grad()
    if inside:
        with parsed(TREES[0].flip(0) * 0 - 1):
            total.backward()
    else:
        total.backward()
    return [x.grad for x in leaves]


@pytest.mark.parametrize("position", ["tree-keys", "tree-depth"])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_trees_of_a_call_hold_while_it_is_recomputed(position, reentrant, inside):
    layer = Layer(position)
    wanted = gradients(layer, lambda layer, x: layer(x), inside=inside)

    def again(layer, x):
        return checkpoint(layer, x, use_reentrant=reentrant)

    def nested(layer, x):
        return checkpoint(again, layer, x, use_reentrant=reentrant)

    def by_closure(layer, x):
        return checkpoint(lambda: layer(x), use_reentrant=False)

    for call in (again, nested, by_closure):
        assert_close(gradients(layer, call, inside=inside), wanted)
    plain = gradients(layer, lambda layer, x: layer(x + 0, -torch.ones(7).long()), inside=inside)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(plain, wanted, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_tree_that_is_given_inside_of_what_is_recomputed_holds_there(reentrant):
    layer = Layer("tree-keys")

    def twice(layer, x):
        return layer(x, TREES[1].flip(0) * 0 - 1)

    def again(layer, x):
        return checkpoint(twice, layer, x, use_reentrant=reentrant)

    wanted = gradients(layer, twice, inside=False)
    assert_close(gradients(layer, again, inside=False), wanted)


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_kernel_that_is_asked_for_holds_in_a_thread_of_the_backward_pass(reentrant):
    x, seen = torch.ones(2, requires_grad=True), []

    def look(x):
        seen.append(asked())
        return x * x

    with use("tiled"):
        y = checkpoint(look, x, use_reentrant=reentrant).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert seen == ["tiled", "tiled"]
    assert x.grad.tolist() == [2, 2]
    with use("exact"):
        assert asked() == "exact"
    assert asked() is None


def test_a_value_is_gone_after_its_block():
    value: Carried[int] = Carried("value")
    with value.set(3), value.set(4):
        assert value.get() == 4
    assert (value.get(), value.latest) == (None, None)


def test_what_was_set_last_is_that_of_a_block_that_is_open():
    """Blocks of two threads that end in the order in which they began leave nothing behind."""
    carried = Carried("example")
    first, second = carried.set("first"), carried.set("second")
    first.__enter__()
    second.__enter__()
    assert carried.latest == "second"
    first.__exit__(None, None, None)
    assert carried.latest == "second"
    second.__exit__(None, None, None)
    assert carried.latest is None
