"""Positions in a tree: how deep a word hangs, and how two words lie to each other.

Wang et al. 2019, "Self-Attention with Structural Position Representations" (arXiv 1909.00383). The
tree (a dependency parse, a program, a nested list) is data: ``with parsed(parents):`` gives it to
all layers of a model. A text without a tree is a chain, each word below the one before: depth is
then position, the way between two words is j − i, and "tree-depth" is "sinusoidal", "tree-keys" is
"relative-keys".
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.carried import Carried
from regard.attention.prepared import Positions, Prepared, alone, as_tuple, per_positions
from regard.attention.sines import sinusoidal
from regard.attention.tracing import readable, without_numbers
from regard.attention.wrapper import DistanceKeys, distance
from regard.errors import RegardError

DEEP = 2**62  # behind every word of a chain
_given: Carried["Int[Tensor, '*batch words 3']"] = Carried("tree")


@contextmanager
def parsed(parents: Int[Tensor, "*batch words"]) -> Iterator[None]:
    """Inside, word i of a text hangs on word ``parents[i]``, or is a root where that is −1.

    Words are counted as the model counts its positions: where it puts a CLS in front, that is word
    0, and ``torch.nn.functional.pad(parents + 1, (1, 0), value=-1)`` hangs the roots on it.
    Padding is −1, or anything else that is no circle. The first axes of what is attended to are
    the batch axes here. The backward pass needs no block around it, with torch.utils.checkpoint
    neither. Errors: a parent that is no word, words in a circle, a position beyond the tree.

    >>> layer = TreeDepth(2)
    >>> with parsed(torch.tensor([1, -1, 1])):  # she sleeps well
    ...     layer(torch.zeros(3, 2))[:, 0].tolist()
    [0.841..., 0.0, 0.841...]
    """
    with _given.set(nodes(parents)):
        yield


def nodes(parents: Int[Tensor, "*batch words"]) -> Int[Tensor, "*batch words 3"]:
    """Of each word its depth, and the first and the last place of what hangs below it, plus one.

    Places are those of a walk through the tree that sees a word before what hangs below it: word
    j hangs below word i, near or far, when first[i] < first[j] < last[i].

    >>> nodes(torch.tensor([1, -1, 1])).tolist()
    [[1, 1, 2], [0, 0, 3], [1, 2, 3]]
    """
    if not without_numbers(parents):
        return _nodes(parents)
    found: Tensor = _nodes_in_graph(parents)
    return found


def _nodes(parents: Tensor) -> Tensor:
    texts = parents.reshape(parents.shape[:-1].numel(), parents.shape[-1]).tolist()
    found = torch.tensor([_walk(text) for text in texts], dtype=torch.long, device=parents.device)
    return found.reshape(*parents.shape, 3)


@torch.library.custom_op("regard::tree_nodes", mutates_args=())
def _nodes_in_graph(parents: Tensor) -> Tensor:
    # Not what an eager call takes: an operator's first call has torch load its compiler, a second.
    return _nodes(parents)


@_nodes_in_graph.register_fake
def _(parents: Tensor) -> Tensor:
    return parents.new_empty(*parents.shape, 3, dtype=torch.long)


def _walk(parents: Sequence[int]) -> list[tuple[int, int, int]]:
    below: list[list[int]] = [[] for _ in parents]
    ways: list[tuple[int, int]] = []  # a word to be seen, and its depth
    for word, parent in enumerate(parents):
        if not -1 <= parent < len(parents):
            raise RegardError(
                f"word {word} hangs on word {parent}, of {len(parents)}: a parent is a word's "
                "number from 0, or −1 for a root"
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
        raise RegardError(f"word {lost} hangs in a circle: above every word there must be a root")
    size = [1] * len(parents)
    for word in reversed(order):
        if parents[word] >= 0:
            size[parents[word]] += size[word]
    return [(d, f, f + s) for d, f, s in zip(depths, first, size, strict=True)]


def places(positions: Int[Tensor, "... n"], axes: int) -> Int[Tensor, "... n 3"]:
    """`nodes` of the words at these positions, as many axes as what stands there has.

    Of the tree given by `parsed`, or of a chain.
    """
    given = _given.get()
    positions = positions.reshape(*[1] * (axes - 1 - positions.ndim), *positions.shape)
    if given is None:
        return torch.stack([positions, positions, torch.full_like(positions, DEEP)], -1)
    words, trees = given.shape[-2], given.shape[:-2]
    if len(trees) > axes - 2:
        raise RegardError(f"trees of shape {tuple(trees)} were given to texts with fewer axes")
    known = readable(positions) and positions.numel() > 0
    if known and (int(positions.min()) < 0 or int(positions.max()) >= words):
        raise RegardError(
            f"the trees have {words} words, and position {int(positions.max())} was asked for: "
            "give every position a parent, −1 on padding (a CLS in front is word 0)"
        )
    given = given.to(positions.device).reshape(*trees, *[1] * (axes - 2 - len(trees)), words, 3)
    batch = torch.broadcast_shapes(given.shape[:-2], positions.shape[:-1])
    at = positions.expand(*batch, -1)[..., None].expand(*batch, -1, 3)
    return given.expand(*batch, words, 3).gather(-2, at)


def fit(found: Tensor, batch: Sequence[int]) -> Tensor:
    """`places` of this batch; a RegardError if there are trees for another."""
    if any(a not in (1, b) for a, b in zip(found.shape[:-2], batch, strict=True)):
        raise RegardError(
            f"trees for {found.shape[0]} texts were given to {batch[0]}: one for each, or one for "
            "all"
        )
    return found


class TreeDepth(nn.Module):
    """x + p[depth], p the sine positions: the paper's absolute structural position.

    Words of one depth are alike to it: the paper adds sequential positions too.
    """

    def __init__(self, width: int, *, length: int | None = None) -> None:
        super().__init__()
        self.width = width

    def forward(
        self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"] | None = None
    ) -> Float[Tensor, "*batch n width"]:
        """x with the depths of its words added: of those at 0 … n − 1, or at ``positions``."""
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        depths = fit(places(positions, x.ndim), x.shape[:-2])[..., 0]
        return x + sinusoidal(depths, self.width, x.dtype)


class TreeKeys(DistanceKeys):
    """score(q, k) + scale · q·a[clip(way from i to j)], Shaw's keys along the tree.

    The way between a word and one above or below it is the difference of their depths; between any
    two others it leads over the root, the sum of their depths, positive if j stands behind i in
    the text (the paper's relative structural position).
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
        products, found, *rest = queries
        return (products, found), alone(rest)

    def split_keys(self, keys: Prepared) -> tuple[Prepared, Prepared]:
        *rest, found = keys
        return found, alone(rest)

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(keys, Tensor)
        products, found = queries
        return self.by_distance(products, way(found, keys, distance(positions)))


def way(
    rows: Int[Tensor, "... queries 3"],
    columns: Int[Tensor, "... keys 3"],
    apart: Int[Tensor, "... queries keys"],
) -> Int[Tensor, "... queries keys"]:
    """How each query's word lies to each key's: see `TreeKeys`; ``apart`` is j − i.

    >>> tree, at = nodes(torch.tensor([1, -1, 1])), torch.arange(3)
    >>> way(tree, tree, at - at[:, None]).tolist()
    [[0, -1, 2], [1, 0, 1], [-2, -1, 0]]
    """
    depth, first, last = (x[..., :, None] for x in rows.unbind(-1))
    depths, firsts, lasts = (x[..., None, :] for x in columns.unbind(-1))
    below = (first <= firsts) & (firsts < last)
    above = (firsts <= first) & (first < lasts)
    return torch.where(below | above, depths - depth, apart.sign() * (depth + depths))
