"""The interface of mechanisms, which models call for attention."""

from typing import ClassVar, TypeAlias, TypeVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import KeyValueCache
from regard.attention.mask import Mask
from regard.attention.packing import Packing

T = TypeVar("T")
#: A value for the queries, and for the keys if there is no memory; or a pair (queries, keys).
PerSide: TypeAlias = T | tuple[T | None, T | None] | None


class Mechanism(nn.Module):
    """An attention layer as a model's blocks call it, the base class.

    It is built as ``Mechanism(width, heads, score=…, position=…, normalize=…, dropout=…, …)``, with
    the arguments of `MultiHeadAttention`. It computes every attention map by an
    `regard.attention.Attention` module, whose `Attended` recordings read. To add one, write a class
    with ``forward`` and a row in ``MECHANISMS``.
    """

    name: ClassVar[str] = "mechanism"
    #: Rows are read one after the other, as in a recurrence: the order of rows matters.
    ordered: ClassVar[bool] = False
    #: The last projection, which a pre-norm block initialises with zeros; None if there is none.
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
        """Attend from each query to the memory, or to the queries if there is no memory.

        Queries (*batch, n, width) and a memory (*batch, m, key_width) give (*batch, n, …).
        ``positions`` are integers, 0, 1, 2, … by default. With ``cache`` the keys are appended to
        it. With ``packing`` inputs and outputs are rows without padding, (rows, width); mask and
        positions are those of the padded table.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(queries, memory, mask)")


def both_sides(value: PerSide[T], memory: Tensor | None) -> tuple[T | None, T | None]:
    """Return the values for the queries and for the keys.

    >>> both_sides(3, None), both_sides((3, 4), None)
    ((3, 3), (3, 4))
    """
    if isinstance(value, tuple):
        return value
    return value, value if memory is None else None
