"""Positions in a tree: by hand, through every model, and a chain as the sequence itself."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import (
    SCORES,
    KeyValueCache,
    MultiHeadAttention,
    attend,
    causal,
    input_positions,
    make_score,
    parsed,
    sinusoidal,
    use,
)
from regard.attention.positions.trees import DEEP, TreeKeys, nodes, way
from regard.attention.scores.wrapper import DistanceKeys
from regard.core.errors import RegardError
from regard.lab.tasks.models import MODELS
from tests.attention.parts import redrawn

# "the old man ate a warm soup": ate is the root, man and soup below it, the rest below those
SENTENCE = [2, 2, 3, -1, 6, 6, 3]
DEPTHS = [2, 2, 1, 0, 2, 2, 1]


def random_tree(words: int, seed: int) -> list[int]:
    """A tree whose words hang on earlier and later ones."""
    chance = torch.Generator().manual_seed(seed)
    order = torch.randperm(words, generator=chance).tolist()
    parents = [-1] * words
    for i in range(1, words):
        parents[order[i]] = order[int(torch.randint(i, (1,), generator=chance))]
    return parents


def by_the_paper(parents: list[int], i: int, j: int) -> int:
    """The relative structural position of j as i sees it, by walking up from both."""

    def above(word: int) -> list[int]:
        path = [word]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        return path

    up, across = above(i), above(j)
    depth, other = len(up) - 1, len(across) - 1
    if i in across or j in up:
        return other - depth
    return (depth + other) * (1 if j > i else -1)


def test_nodes_by_hand():
    found = nodes(torch.tensor(SENTENCE))
    assert found[:, 0].tolist() == DEPTHS
    assert found[:, 1:].tolist() == [[2, 3], [3, 4], [1, 4], [0, 7], [5, 6], [6, 7], [4, 7]]
    two = nodes(torch.tensor([[1, -1, -1], [-1, 0, 1]]))  # padded by a root of its own; a chain
    assert two[..., 0].tolist() == [[1, 0, 0], [0, 1, 2]]
    assert nodes(torch.zeros(0, dtype=torch.long)).shape == (0, 3)
    assert nodes(torch.full((2, 0), -1)).shape == (2, 0, 3)


def test_ways_by_the_paper():
    for seed in range(4):
        parents, at = random_tree(11, seed), torch.arange(11)
        found = nodes(torch.tensor(parents))
        expected = [[by_the_paper(parents, i, j) for j in range(11)] for i in range(11)]
        assert way(found, found, at - at[:, None]).tolist() == expected


def test_a_deep_tree_needs_no_recursion():
    assert nodes(torch.arange(-1, 4_999))[:, 0].tolist() == list(range(5_000))


@pytest.mark.parametrize(
    ("parents", "says"),
    [
        ([-1, 2], "word 1 has parent 2, but there are 2 words"),
        ([-2, 0], "word 0 has parent -2"),
        ([-1, 2, 1], "word 1 is part of a cycle"),
        ([0], "word 0 is part of a cycle"),
    ],
)
def test_what_is_no_tree_is_refused(parents, says):
    with pytest.raises(RegardError, match=says), parsed(torch.tensor(parents)):
        pass


def test_depths_are_added():
    module, x = input_positions("tree-depth", 6), torch.randn(2, 7, 6, dtype=torch.float64)
    with parsed(torch.tensor(SENTENCE)):
        added = sinusoidal(torch.tensor(DEPTHS), 6, torch.float64)
        assert_close(module(x), x + added)
        assert_close(module(x[:, 2:4], torch.tensor([3, 0])), x[:, 2:4] + added[[3, 0]])
    assert_close(module(x), x + sinusoidal(torch.arange(7), 6, torch.float64))
    with parsed(torch.tensor([SENTENCE, list(range(-1, 6))])):
        both = module(x)
    assert_close(both[0], x[0] + added)
    assert_close(both[1], x[1] + sinusoidal(torch.arange(7), 6, torch.float64))


@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("inner", ["scaled-dot", "additive"])
def test_tree_keys_by_the_formula(inner, heads):
    score = TreeKeys(SCORES[inner](4, 4, heads=heads), farthest=2).double()
    shape = (3, 2) if heads else (3,)
    q, k = (torch.randn(*shape, 7, 4, dtype=torch.float64) for _ in range(2))
    trees = [SENTENCE, random_tree(7, 5), random_tree(7, 6)]
    plain = attend(q, k, k, score.inner)
    with parsed(torch.tensor(trees)):
        weights = attend(q, k, k, score).weights
    for text, parents in enumerate(trees):
        for i in range(7):
            picked = [max(-2, min(2, by_the_paper(parents, i, j))) + 2 for j in range(7)]
            added = q[text, ..., i, :] @ score.distance_keys[picked].T / 2
            expected = torch.softmax(plain.weights[text, ..., i, :].log() + added, -1)
            assert_close(weights[text, ..., i, :], expected)


@pytest.mark.parametrize("position", ["tree-depth", "tree-keys"])
def test_a_text_without_a_tree_is_a_chain(position):
    alike = {"tree-depth": "sinusoidal", "tree-keys": "relative-keys"}[position]
    x = torch.randn(2, 9, 8)

    def through(name):
        torch.manual_seed(1)
        module, layer = input_positions(name, 8), MultiHeadAttention(8, 2, position=name)
        return layer(x if module is None else module(x), mask=causal())

    expected = through(alike)
    assert_close(through(position), expected)
    with parsed(torch.arange(-1, 8)):
        assert_close(through(position), expected)


def test_the_backward_pass_needs_no_tree():
    score = TreeKeys(SCORES["additive"](4, 4, heads=2)).double()
    given = [torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    found = []
    for kernel in ("exact", "tiled"):
        with use(kernel), parsed(torch.tensor(SENTENCE)):
            output = attend(*given, score).output
        found.append(torch.autograd.grad(output.square().sum(), [*given, score.distance_keys]))
    assert_close(found[1], found[0])
    assert found[0][3].abs().sum() > 0


def test_decoding_with_a_tree_is_the_whole_at_once():
    layer = MultiHeadAttention(8, 2, position="tree-keys").double()
    x, cache = torch.randn(2, 7, 8, dtype=torch.float64), KeyValueCache()
    with parsed(torch.tensor([SENTENCE, random_tree(7, 3)])):
        whole = layer(x, mask=causal())
        steps = [layer(x[:, i : i + 1], mask=causal(), cache=cache) for i in range(7)]
    assert_close(torch.cat(steps, 1), whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["self-attention", "+cls", "transformer"])
@pytest.mark.parametrize("position", ["tree-depth", "tree-keys"])
def test_models_read_the_tree(name, position):
    settings = MODELS[name].configure(
        {"position": position, "width": 8, "heads": 2, "layers": 1, "init_std": 1.0, "dropout": 0}
    )
    model = redrawn(MODELS[name].build(settings, vocabulary=20, labels=2).eval())
    tokens, sizes = torch.randint(2, 20, (2, 7)), torch.tensor([7, 5])
    trees = torch.tensor([SENTENCE, [1, -1, 1, 2, 2, -1, -1]])
    other = torch.tensor([random_tree(7, 1), [1, -1, 0, 0, 0, -1, -1]])
    if name == "+cls":
        refused = pytest.raises(RegardError, match="7 words, but the input has position 7")
        with parsed(trees), refused:
            model(tokens, sizes)
        trees, other = (torch.nn.functional.pad(x + 1, (1, 0), value=-1) for x in (trees, other))
    with parsed(trees):
        once, again = model(tokens, sizes), model(tokens, sizes)
    with parsed(other):
        moved = model(tokens, sizes)
    assert torch.equal(once, again)
    assert ((moved - once).abs().amax(1) > 1e-4).all()
    padded = trees.clone()
    padded[1, -2:] = 0  # what hangs where in the padding
    with parsed(padded):
        assert_close(model(tokens, sizes), once)


def test_trees_that_do_not_fit_the_texts():
    layer, x = MultiHeadAttention(8, 2, position="tree-keys"), torch.randn(3, 7, 8)
    with parsed(torch.tensor([SENTENCE] * 2)):
        with pytest.raises(RegardError, match="2 trees for 3 texts"):
            layer(x)
        with pytest.raises(RegardError, match="more batch axes than the texts"):
            input_positions("tree-depth", 8)(x[0])
    refused, far = (
        pytest.raises(RegardError, match="the input has position 20"),
        torch.arange(14, 21),
    )
    with parsed(torch.tensor(SENTENCE)), refused:
        layer(x, positions=far)
    with pytest.raises(RegardError, match="'tree-keys' has parameters; give its score"):
        make_score("dot", "tree-keys")


def test_the_tree_is_gone_after_an_error():
    module, x = input_positions("tree-depth", 4), torch.zeros(2, 4)
    with pytest.raises(ZeroDivisionError), parsed(torch.tensor([-1, 0])):
        1 / 0  # noqa: B018
    assert_close(module(x + 1, torch.tensor([5, 6])), 1 + sinusoidal(torch.tensor([5, 6]), 4))
    assert DEEP > 2**40
    assert issubclass(TreeKeys, DistanceKeys)
