"""The result of attention: the output, and the weights on request."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.kernels.summary import Summary
from regard.attention.tracing import readable
from regard.core.errors import RegardError
from regard.core.shown import shown


class Attended:
    """The result of attention: the ``output``, and the ``weights``, computed on request.

    ``output`` is (*batch, n, value_width), ``weights`` (*batch, n, m). A copy or a pickle has
    the same numbers and no gradient to the original; both raise a RegardError if inputs or
    parameters have changed before the weights were read.

    >>> from regard import attend
    >>> x = torch.zeros(2, 4)
    >>> attend(x, x, x)
    Attended(output (2, 4), weights (2, 2))
    """

    def __init__(
        self,
        output: Tensor,
        weigh: Callable[[], Tensor],
        summarize: Callable[[int], Summary],
        sources: Iterable[Tensor],
        shape: torch.Size,
        heads: int | None = None,
    ) -> None:
        self.output = output
        #: The shape of ``weights``, known before they are computed: (*batch, queries, keys).
        self.shape = shape
        #: The number of heads, at axis −3; None if there is no head axis.
        self.heads = heads
        self._weigh, self._summarize = weigh, summarize
        self._weights: Tensor | None = None
        self._with_gradient = True  # whether the weights were computed with gradients enabled
        self._sources = [Source.of(tensor) for tensor in sources]

    def __repr__(self) -> str:
        heads = "" if self.heads is None else f", {self.heads} head{'s' * (self.heads != 1)}"
        return f"Attended(output {tuple(self.output.shape)}, weights {tuple(self.shape)}{heads})"

    def __getstate__(self) -> dict[str, Any]:
        if self._weights is None:
            self._refuse_if_changed("weights")
        return {
            **self.__dict__,
            "output": self.output.detach(),
            "_weights": None if self._weights is None else self._weights.detach(),
            "_sources": [source.tensor for source in self._sources],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sources = [Source.of(tensor) for tensor in state["_sources"]]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied: Self = pickle.loads(pickle.dumps(self))  # noqa: S301 - written on this line
        return copied

    _repr_html_ = shown

    @property
    def weights(self) -> Float[Tensor, "*batch queries keys"]:
        """The weights of each query and head, before dropout, differentiable.

        They are computed on first access from the inputs and parameters of the call. Raise a
        RegardError if those have been changed in place since.
        """
        if self._weights is None or (torch.is_grad_enabled() and not self._with_gradient):
            self._refuse_if_changed("weights")
            self._weights, self._with_gradient = self._weigh(), torch.is_grad_enabled()
        return self._weights

    def summary(self, top: int = 16) -> Summary:
        """Return the ``top`` keys of each query, its entropy, and each key's mass, in O(n) memory.

        Raise a RegardError for a ``top`` below 1, and where ``weights`` does.
        """
        if top < 1:
            raise RegardError(f"summary: top must be at least 1, not {top}")
        self._refuse_if_changed("summary()")
        return self._summarize(top)

    def _refuse_if_changed(self, name: str) -> None:
        if any(source.changed() for source in self._sources):
            raise RegardError(
                "inputs or parameters have changed since attention was computed; "
                f"read .{name} before the next step"
            )


WIDE = 4096  # numbers


class Source(NamedTuple):
    """A tensor that the weights depend on, with its state when attention was computed.

    ``bits`` is a checksum of a parameter, because fused optimizers do not increase its version.
    It is None for inputs, which are large: a checksum of them takes longer than short attention.

    >>> x = torch.nn.Parameter(torch.ones(2))
    >>> source = Source.of(x)
    >>> _ = x.data.mul_(2)  # .data counts versions of its own
    >>> source.changed()
    True
    """

    tensor: Tensor
    version: int
    bits: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Record the current state of a tensor."""
        stepped = isinstance(tensor, nn.Parameter) and tensor.requires_grad
        return cls(tensor, version_of(tensor), bits_of(tensor) if stepped else None)

    def changed(self) -> bool:
        """Return whether the numbers of the tensor have changed since."""
        if version_of(self.tensor) != self.version:
            return True
        return self.bits is not None and not torch.equal(bits_of(self.tensor), self.bits)


def sources_of(*inputs: Tensor | nn.Module) -> list[Tensor]:
    """Return the tensors and those of the modules; none if their numbers cannot be read."""
    if any(isinstance(x, Tensor) and not readable(x) for x in inputs):
        return []
    of_each = ([x] if isinstance(x, Tensor) else [*x.parameters(), *x.buffers()] for x in inputs)
    return [tensor for tensors in of_each for tensor in tensors]


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was written to; 0 for one created under inference_mode."""
    return 0 if tensor.is_inference() else tensor._version


def bits_of(tensor: Tensor) -> Tensor:
    """Return Σ (2 i + 1) bᵢ over a tensor's numbers read as integers bᵢ, modulo 2 to their bits.

    Integers wrap around, so that the sum is exact in any order. A large tensor is first replaced
    by the sums of rows and columns of `WIDE` numbers.

    >>> x = torch.tensor([1.5, 1.5])
    >>> bool(bits_of(x) == bits_of(x + torch.tensor([0.25, -0.25])))
    False
    """
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size(), torch.uint8)
    bits = tensor.detach().contiguous().view(whole).flatten()
    if len(bits) > 2 * WIDE:
        table = bits[: len(bits) // WIDE * WIDE].view(-1, WIDE)
        sums = table.sum(0, dtype=whole), table.sum(1, dtype=whole)
        bits = torch.cat([*sums, bits[table.numel() :]])
    odd = torch.arange(1, 2 * len(bits), 2, device=bits.device).to(whole)
    return (bits * odd).sum(dtype=whole)  # a GPU has no dot product of integers
