"""Position encodings: modules added to the input, and scores wrapped around another score."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from regard.attention.positions.biases import Alibi, Fire, Kerple, RelativeBias, SignedAlibi
from regard.attention.positions.disentangled import Disentangled
from regard.attention.positions.learned import Learned, RelativeKeys
from regard.attention.positions.rotary import Pope, Rotary, XPos
from regard.attention.positions.sines import Sinusoidal
from regard.attention.positions.trees import TreeDepth, TreeKeys
from regard.attention.score import Score
from regard.attention.scores import SCORES
from regard.attention.scores.wrapper import Wrapper
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.core.errors import RegardError, look_up
from regard.core.names import layers_of, parts_of
from regard.core.plugins import one_line
from regard.core.tables import Table

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
    kind, _ = POSITIONS.named(name)
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
    if isinstance(score, str) and SCORE_WRAPPERS.is_row(name):
        name, changes = "scaled-dot", [name, *changes]
    kind = look_up(SCORES, name, "score") if isinstance(score, str) else score
    arguments = "(query_width, key_width, heads=…, length=…)"
    with built_as(name, f"{kind.__name__}{arguments}"):
        built = kind(query_width, key_width, heads=heads, length=length)
    around, options = POSITIONS.named(position)
    if around is not None and issubclass(around, Score):
        if not issubclass(around, Wrapper):
            raise RegardError(
                f"{position} is a score and no position: write "
                f"`class {around.__name__}(regard.attention.Wrapper):`"
            )
        with built_as(position, f"{around.__name__}(score)"):
            built = around(built, **options)
    for change in changes:
        wrapper, options = SCORE_WRAPPERS.named(change)
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
