"""Position encodings: modules added to the input, and scores wrapped around another score."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.biases import Alibi, Fire, Kerple, RelativeBias, SignedAlibi
from regard.attention.disentangled import Disentangled
from regard.attention.naming import is_row, named_part
from regard.attention.prepared import Positions, Prepared
from regard.attention.rotary import Pope, Rotary, XPos
from regard.attention.score import Score
from regard.attention.score_wrappers import SCORE_WRAPPERS
from regard.attention.scores import SCORES
from regard.attention.sines import Sinusoidal
from regard.attention.tracing import readable
from regard.attention.trees import TreeDepth, TreeKeys
from regard.attention.wrapper import DistanceKeys, Wrapper, distance
from regard.errors import RegardError, look_up
from regard.plugins import layers_of, one_line, parts_of
from regard.tables import Table


class Learned(nn.Module):
    """x + P[i], with a learned row for each position i below ``length``. Gehring et al. 2017.

    x and the result are (\\*batch, n, width), P is (length, width). Raise a RegardError without a
    length, and for a position outside 0 … length − 1.

    >>> Learned(4, length=9)(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, width: int, *, length: int | None = None) -> None:
        super().__init__()
        if not length:
            raise RegardError("learned positions need length=, the maximum input length")
        self.table = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(
        self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"] | None = None
    ) -> Float[Tensor, "*batch n width"]:
        """Return x + P[i] for i = 0 … n − 1, or for these positions."""
        length, n = len(self.table), x.shape[-2]
        if positions is None:
            beyond = n > length
        else:
            beyond = readable(positions) and bool(((positions < 0) | (positions >= length)).any())
        if beyond:
            longest = n if positions is None else int(positions.max()) + 1
            raise RegardError(
                f"learned positions end at length={length}, but the input needs {longest}; use "
                "a larger length="
            )
        return x + (self.table[:n] if positions is None else self.table[positions])


class RelativeKeys(DistanceKeys):
    """score(q, k) + scale · q·a[clip(j − i)], a learned key for each distance up to ``farthest``.

    Shaw et al. 2018, equation 5, for a scaled dot product; for a score that is not an inner product
    the scale is 1/√width. Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); a is
    (2 · farthest + 1, width), shared by the heads as in the paper. Raise a RegardError if the inner
    score has no ``query_width``.

    >>> RelativeKeys(make_score("scaled-dot", "none", 4, 4), farthest=2).distance_keys.shape
    torch.Size([5, 4])
    """

    name = "relative-keys"

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        return self.by_distance(queries, distance(positions))


#: A name means a module that is added to the input, or a Score that wraps another.
POSITIONS: Table[type[nn.Module] | None] = Table(
    {
        "none": None,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "rotary": Rotary,
        "xpos": XPos,
        "pope": Pope,
        "alibi": Alibi,
        "alibi-signed": SignedAlibi,
        "kerple": Kerple,
        "fire": Fire,
        "t5-bias": RelativeBias,
        "relative-keys": RelativeKeys,
        "disentangled": Disentangled,
        "tree-depth": TreeDepth,
        "tree-keys": TreeKeys,
    },
    "regard.positions",
    (Wrapper, nn.Module),
    "position",
    classes=True,
)


def input_positions(
    name: str, width: int, *, length: int | None = None, sines: float = 1.0
) -> nn.Module | None:
    """Return the module that adds these positions to the input, or None if the score applies them.

    ``sines`` is the factor of sinusoidal positions, to match the size of the input vectors. Names
    of several layers (``rotary/none``) are positions of scores. Raise a RegardError for an unknown
    name, and for several names of which one is added to the input.
    """
    layers = [*dict.fromkeys(layers_of(name))]
    if len(layers) > 1:
        for layer in layers:
            if input_positions(layer, width, length=length or 1) is not None:
                raise RegardError(
                    f"{layer} positions are added to the input, before all layers; use "
                    f"position={layer} alone, not {name}"
                )
        return None
    (name,) = layers
    kind, _ = named_part(POSITIONS, name)
    if kind is None or issubclass(kind, Score):
        return None
    if kind is Sinusoidal:
        return Sinusoidal(width, length=length, scale=sines)
    with built_as(name, f"{kind.__name__}(width, length=…)"):
        return kind(width, length=length)


def make_score(
    score: str | type[Score],
    position: str = "none",
    query_width: int | None = None,
    key_width: int | None = None,
    *,
    heads: int | None = None,
    length: int | None = None,
) -> Score:
    """Return a score by name, wrapped in the named positions if those are part of the score.

    Changes of a score follow its name: ``additive+soft-cap-30``; without a name they change
    scaled-dot. They are applied around the positions. A user's own part is ``FILE.py:Name``, a
    score also the class itself. Raise a RegardError for an unknown name and for a class with
    another constructor.

    >>> make_score("scaled-dot", "rotary", 8, 8)
    Rotary(
      query_width=8, key_width=8
      (inner): ScaledDot(query_width=8, key_width=8)
    )
    """
    name, *changes = parts_of(score) if isinstance(score, str) else (score.__name__,)
    if isinstance(score, str) and is_row(SCORE_WRAPPERS, name):
        name, changes = "scaled-dot", [name, *changes]
    kind = look_up(SCORES, name, "score") if isinstance(score, str) else score
    arguments = "(query_width, key_width, heads=…, length=…)"
    with built_as(name, f"{kind.__name__}{arguments}"):
        built = kind(query_width, key_width, heads=heads, length=length)
    around, options = named_part(POSITIONS, position)
    if around is not None and issubclass(around, Score):
        if not issubclass(around, Wrapper):
            raise RegardError(
                f"{position} is a score and no position: write "
                f"`class {around.__name__}(regard.attention.Wrapper):`"
            )
        with built_as(position, f"{around.__name__}(score)"):
            built = around(built, **options)
    for change in changes:
        wrapper, options = named_part(SCORE_WRAPPERS, change)
        with built_as(change, f"{wrapper.__name__}(score)"):
            built = wrapper(built, **options)
    return built


@contextmanager
def built_as(name: str, call: str) -> Iterator[None]:
    """Raise an error with the part's name if its class has another constructor."""
    try:
        yield
    except TypeError as error:
        raise RegardError(f"{name} cannot be built as {call}: {one_line(error)}") from error
