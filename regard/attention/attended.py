"""What attention gives: the output, and the weights for who asks."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, Self

from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.summary import Summary
from regard.errors import RegardError


class Attended:
    """What attention gives: the ``output``, and the ``weights`` for who asks.

    A copy or a pickle has the same numbers and no gradient. Errors of both: inputs or parameters
    that have changed since.
    """

    def __init__(
        self,
        output: Tensor,
        weigh: Callable[[], Tensor],
        summarize: Callable[[int], Summary],
        sources: Iterable[Tensor],
        pairs: int,
    ) -> None:
        self.output = output
        #: Queries × keys, of one head of one batch row.
        self.pairs = pairs
        self._weigh, self._summarize = weigh, summarize
        self._weights: Tensor | None = None
        # Tensors made under inference_mode keep no version.
        self._sources = [(x, x._version) for x in sources if not x.is_inference()]

    def __repr__(self) -> str:
        return f"Attended(output {tuple(self.output.shape)}, {self.pairs:,} pairs)"

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_if_changed("weights")
        sources = [tensor for tensor, _ in self._sources]
        return {**self.__dict__, "output": self.output.detach(), "_sources": sources}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sources = [(x, x._version) for x in state["_sources"] if not x.is_inference()]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied: Self = pickle.loads(pickle.dumps(self))  # noqa: S301 - written on this line
        return copied

    def _repr_html_(self) -> str:
        import regard

        return regard.html(self)

    @property
    def weights(self) -> Float[Tensor, "*batch queries keys"]:
        """The weights of each query, per head, before dropout, differentiable.

        Computed when first asked for, from the inputs and parameters of the call: a RegardError
        if those have been changed in place since.
        """
        if self._weights is None:
            self._refuse_if_changed("weights")
            self._weights = self._weigh()
        return self._weights

    def summary(self, top: int = 16) -> Summary:
        """The ``top`` keys of each query, its entropy, and the mass of each key: never n × m.

        Errors as of ``weights``; a ``top`` below 1.
        """
        if top < 1:
            raise RegardError(f"a summary names at least one key, not {top}")
        self._refuse_if_changed("summary()")
        return self._summarize(top)

    def _refuse_if_changed(self, what: str) -> None:
        if any(x._version != version for x, version in self._sources):
            raise RegardError(
                "inputs or parameters have changed since attention was computed: "
                f"read .{what} before the next step"
            )
