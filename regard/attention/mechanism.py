"""What a mechanism is: the contract between models and attention."""

from typing import ClassVar, TypeAlias, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask
from regard.attention.packing import Packing

T = TypeVar("T")
#: Of the queries, and without a memory of the keys too; or a pair, of the queries and of the keys.
PerSide: TypeAlias = T | tuple[T | None, T | None] | None


class Mechanism(nn.Module):
    """A layer by which each vector of a text looks at others: what a model's blocks call.

    Made as ``Mechanism(width, heads, score=…, position=…, normalize=…, dropout=…, …)``, with the
    arguments of `MultiHeadAttention`. Every map that it computes comes out of an
    `regard.attention.Attention` inside of it, as one `Attended`, which recordings read. A new one
    is a class with ``forward`` and a row in ``MECHANISMS``.
    """

    name: ClassVar[str] = "mechanism"
    #: The last projection, which a pre-norm block begins at zero; None if there is none.
    output: nn.Linear | None

    def forward(
        self,
        queries: Float[Tensor, "*batch queries width"],
        memory: Float[Tensor, "*key_batch keys key_width"] | None = None,
        mask: Mask | Tensor | None = None,
        *,
        positions: PerSide[Int[Tensor, "... n"]] = None,
        cache: KeyValueCache | None = None,
        packing: PerSide[Packing] = None,
    ) -> Float[Tensor, "*batch queries _"]:
        """Compute what each query finds in the memory, or among the queries without one.

        ``positions`` are integers, 0, 1, 2, … by default. With ``cache`` the keys are added to
        those that it holds. With ``packing`` rows come and go without padding, (rows, width); mask
        and positions are those of the padded table.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(queries, memory, mask)")


def both_sides(given: PerSide[T], memory: Tensor | None) -> tuple[T | None, T | None]:
    """Return what is given for the queries and for the keys.

    >>> both_sides(3, None), both_sides((3, 4), None)
    ((3, 3), (3, 4))
    """
    if isinstance(given, tuple):
        return given
    return given, given if memory is None else None
