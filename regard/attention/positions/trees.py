"""Positions in a tree: the depth of a word, and the signed distance between two words.

Wang et al. 2019, "Self-Attention with Structural Position Representations" (arXiv 1909.00383). The
tree (a dependency parse, a program, a nested list) is data: ``with parsed(parents):`` passes it to
all layers of a model. A text without a tree is a chain, each word a child of the one before: then
depth is position, the distance of two words is j − i, "tree-depth" equals "sinusoidal", and
"tree-keys" equals "relative-keys".
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.carried import Carried
from regard.attention.kernels.distances import picked
from regard.attention.positions.sines import sinusoidal
from regard.attention.prepared import Positions, Prepared, alone, as_tuple, distance, per_positions
from regard.attention.scores.wrapper import DistanceKeys
from regard.attention.tracing import readable, without_numbers
from regard.core.errors import RegardError

DEEP = 2**62  # the end of every subtree of a chain
_given: Carried["Int[Tensor, '*batch words 3']"] = Carried("tree")


@contextmanager
def parsed(parents: Int[Tensor, "*batch words"]) -> Iterator[None]:
    """Set the tree of the texts inside the block: word ``parents[i]`` is the parent of word i.

    A root has −1. Words are numbered like the model's positions: a CLS in front is word 0, and
    ``torch.nn.functional.pad(parents + 1, (1, 0), value=-1)`` makes it the parent of the roots.
    Padding is −1, or anything else without a cycle. The batch axes are the first axes of the
    attended tensors. The backward pass needs no such block, nor does torch.utils.checkpoint. Raise
    a RegardError for a parent that is not a word, a cycle, or a position beyond the tree.

    >>> layer = TreeDepth(2)
    >>> with parsed(torch.tensor([1, -1, 1])):  # she sleeps well
    ...     layer(torch.zeros(3, 2))[:, 0].tolist()
    [0.841..., 0.0, 0.841...]
    """
    with _given.set(nodes(parents)):
        yield


def nodes(parents: Int[Tensor, "*batch words"]) -> Int[Tensor, "*batch words 3"]:
    """Return the depth of each word, and the start and end of its subtree in pre-order.

    The subtree of a word is first, …, last − 1 in an order of the tree in which a word comes before
    its children: word j is a descendant of word i if first[i] < first[j] < last[i].

    >>> nodes(torch.tensor([1, -1, 1])).tolist()
    [[1, 1, 2], [0, 0, 3], [1, 2, 3]]
    """
    if not without_numbers(parents):
        return _nodes(parents)
    result: Tensor = _nodes_in_graph(parents)
    return result


def _nodes(parents: Tensor) -> Tensor:
    texts = parents.reshape(parents.shape[:-1].numel(), parents.shape[-1]).tolist()
    result = torch.tensor([_walk(text) for text in texts], dtype=torch.long, device=parents.device)
    return result.reshape(*parents.shape, 3)


@torch.library.custom_op("regard::tree_nodes", mutates_args=())
def _nodes_in_graph(parents: Tensor) -> Tensor:
    # Not for eager calls: the first call of an operator loads torch's compiler, which takes 1 s.
    return _nodes(parents)


@_nodes_in_graph.register_fake
def _(parents: Tensor) -> Tensor:
    return parents.new_empty(*parents.shape, 3, dtype=torch.long)


def _walk(parents: Sequence[int]) -> list[tuple[int, int, int]]:
    below: list[list[int]] = [[] for _ in parents]
    ways: list[tuple[int, int]] = []  # words to visit, with their depths
    for word, parent in enumerate(parents):
        if not -1 <= parent < len(parents):
            raise RegardError(
                f"word {word} has parent {parent}, but there are {len(parents)} words; a parent is "
                "a word's number from 0, or −1 for a root"
            )
        if parent == -1:
            ways.append((word, 0))
        else:
            below[parent].append(word)
    ways.reverse()
    depths, first = [-1] * len(parents), [0] * len(parents)
    order: list[int] = []
    while ways:
        word, depths[word] = ways.pop()
        first[word] = len(order)
        order.append(word)
        ways += [(child, depths[word] + 1) for child in reversed(below[word])]
    if len(order) < len(parents):
        lost = next(word for word, depth in enumerate(depths) if depth < 0)
        raise RegardError(f"word {lost} is part of a cycle; every word must have a root above it")
    size = [1] * len(parents)
    for word in reversed(order):
        if parents[word] >= 0:
            size[parents[word]] += size[word]
    return [(d, f, f + s) for d, f, s in zip(depths, first, size, strict=True)]


def places(positions: Int[Tensor, "... n"], axes: int) -> Int[Tensor, "... n 3"]:
    """Return `nodes` of the words at these positions, with this many axes.

    The tree is that of `parsed`, or a chain. Raise a RegardError for a position beyond the tree.
    """
    tree = _given.get()
    positions = positions.reshape(*[1] * (axes - 1 - positions.ndim), *positions.shape)
    if tree is None:
        return torch.stack([positions, positions, torch.full_like(positions, DEEP)], -1)
    words, trees = tree.shape[-2], tree.shape[:-2]
    if len(trees) > axes - 2:
        raise RegardError(f"trees of shape {tuple(trees)} have more batch axes than the texts")
    known = readable(positions) and positions.numel() > 0
    if known and (int(positions.min()) < 0 or int(positions.max()) >= words):
        raise RegardError(
            f"the trees have {words} words, but the input has position {int(positions.max())}; "
            "give every position a parent, −1 for padding (a CLS in front is word 0)"
        )
    tree = tree.to(positions.device).reshape(*trees, *[1] * (axes - 2 - len(trees)), words, 3)
    batch = torch.broadcast_shapes(tree.shape[:-2], positions.shape[:-1])
    at = positions.expand(*batch, -1)[..., None].expand(*batch, -1, 3)
    return tree.expand(*batch, words, 3).gather(-2, at)


def fit(tree: Tensor, batch: Sequence[int]) -> Tensor:
    """Return the tree; raise a RegardError if its batch is not that of the texts."""
    if any(a not in (1, b) for a, b in zip(tree.shape[:-2], batch, strict=True)):
        raise RegardError(
            f"there are {tree.shape[0]} trees for {batch[0]} texts; give one for each text, or one "
            "for all"
        )
    return tree


class TreeDepth(nn.Module):
    """x + p[depth], p the sinusoidal positions: the paper's absolute structural position.

    x and the result are (*batch, n, width). Words of equal depth get the same vector; the paper
    adds sequential positions too.
    """

    def __init__(self, width: int, *, length: int | None = None) -> None:
        super().__init__()
        self.width = width

    def forward(
        self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"] | None = None
    ) -> Float[Tensor, "*batch n width"]:
        """Return x + p[depth] of the words at 0 … n − 1, or at these positions."""
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        depths = fit(places(positions, x.ndim), x.shape[:-2])[..., 0]
        return x + sinusoidal(depths, self.width, x.dtype)


class TreeKeys(DistanceKeys):
    """score(q, k) + scale · q·a[clip(distance from i to j in the tree)], after Shaw's keys.

    The distance of a word to an ancestor or descendant is the difference of their depths; of any
    other two words it is the sum of their depths, positive if j comes after i in the text (the
    paper's relative structural position). Queries (…, n, width) and keys (…, m, width) give scores
    (…, n, m).
    """

    name = "tree-keys"
    reads_keys = True

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        queries = per_positions(queries, positions)
        products, *inner = as_tuple(super().prepare_queries(queries, positions))
        return products, fit(places(positions, queries.ndim), queries.shape[:-2]), *inner

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        keys = per_positions(keys, positions)
        inner = as_tuple(self.inner.prepare_keys(keys, positions))
        return *inner, fit(places(positions, keys.ndim), keys.shape[:-2])

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        products, tree, *rest = queries
        return (products, tree), alone(rest)

    def split_keys(self, keys: Prepared) -> tuple[Prepared, Prepared]:
        *rest, tree = keys
        return tree, alone(rest)

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(keys, Tensor)
        products, tree = queries
        return picked(products, way(tree, keys, distance(positions)), -2)


def way(
    rows: Int[Tensor, "... queries 3"],
    columns: Int[Tensor, "... keys 3"],
    apart: Int[Tensor, "... queries keys"],
) -> Int[Tensor, "... queries keys"]:
    """Return the signed distance of each query's word to each key's in the tree, as in `TreeKeys`.

    ``apart`` is j − i.

    >>> tree, at = nodes(torch.tensor([1, -1, 1])), torch.arange(3)
    >>> way(tree, tree, at - at[:, None]).tolist()
    [[0, -1, 2], [1, 0, 1], [-2, -1, 0]]
    """
    depth, first, last = (x[..., :, None] for x in rows.unbind(-1))
    depths, firsts, lasts = (x[..., None, :] for x in columns.unbind(-1))
    below = (first <= firsts) & (firsts < last)
    above = (firsts <= first) & (first < lasts)
    return torch.where(below | above, depths - depth, apart.sign() * (depth + depths))
