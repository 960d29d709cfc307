"""A transformer's blocks: attention and feed-forward, each with its residual and its norm."""

from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KeyValueCache, Mask, Mechanism, Packing
from regard.layers.dropout import drop
from regard.layers.feedforward import FeedForward

Norm = Literal["pre", "post"]
#: Makes a norm of its width: layer norm, or T5's of the root mean square.
MakeNorm = Callable[[int], nn.Module]


class Sublayer(nn.Module):
    """x + f(LayerNorm x) ("pre": Xiong et al. 2020), or LayerNorm(x + f(x)) ("post": Vaswani 2017).

    In training what is added loses entries with probability ``dropout``. In a pre-norm stack f
    begins at zero, so that the stack begins as the identity (Zhang et al. 2019, Fixup).
    """

    def __init__(
        self,
        width: int,
        work: nn.Module,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.norm, self.work, self.dropout, self.before = (
            make_norm(width),
            work,
            dropout,
            norm == "pre",
        )
        last = work.narrow if isinstance(work, FeedForward) else getattr(work, "output", None)
        if self.before and isinstance(last, nn.Linear):
            nn.init.zeros_(last.weight)
            if last.bias is not None:
                nn.init.zeros_(last.bias)

    def forward(
        self, x: Float[Tensor, "*batch width"], *given: Any, **named: Any
    ) -> Float[Tensor, "*batch width"]:
        """The next x; what else is given goes to f."""
        if self.before:
            return x + drop(self.work(self.norm(x), *given, **named), self.dropout, self.training)
        found = drop(self.work(x, *given, **named), self.dropout, self.training)
        normed: Tensor = self.norm(x + found)
        return normed


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward. Vaswani et al. 2017, section 3.1.

    With a cache and positions, a decoder's block that has no memory to look at: GPT's.
    """

    def __init__(
        self,
        width: int,
        attention: Mechanism,
        feedforward: FeedForward,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = Sublayer(width, attention, dropout, norm, make_norm)
        self.feedforward = Sublayer(width, feedforward, dropout, norm, make_norm)

    def forward(
        self,
        x: Float[Tensor, "*batch time width"],
        mask: Mask | None,
        *,
        positions: Int[Tensor, "... places"] | None = None,
        cache: KeyValueCache | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "*batch time width"]:
        """The next layer's representation; ``positions``: positions, if they are not 0, 1, 2, …

        With ``packing`` x is rows without padding, (rows, width).
        """
        x = self.attention(
            x,
            mask=mask,
            positions=positions,
            cache=cache,
            packing=packing,
        )
        seen: Tensor = self.feedforward(x)
        return seen


class DecoderBlock(nn.Module):
    """Self-attention to what is written, attention to the memory, feed-forward. Ibid."""

    def __init__(
        self,
        width: int,
        attention: Mechanism,
        memory_attention: Mechanism,
        feedforward: FeedForward,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = Sublayer(width, attention, dropout, norm, make_norm)
        self.memory_attention = Sublayer(width, memory_attention, dropout, norm, make_norm)
        self.feedforward = Sublayer(width, feedforward, dropout, norm, make_norm)

    def forward(
        self,
        x: Float[Tensor, "*batch written width"],
        memory: Float[Tensor, "*memory_batch read width"],
        mask: Mask | None,
        memory_mask: Mask,
        *,
        positions: Int[Tensor, "... places"],
        cache: KeyValueCache | None = None,
        memory_cache: KeyValueCache | None = None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Float[Tensor, "*batch written width"]:
        """The next layer's representation; the caches hold the past and the memory's keys.

        Packed, x and memory are rows without padding, (rows, width).
        """
        x = self.attention(
            x,
            mask=mask,
            positions=positions,
            cache=cache,
            packing=packing,
        )
        x = self.memory_attention(
            x,
            memory,
            mask=memory_mask,
            positions=positions,
            cache=memory_cache,
            packing=(packing, memory_packing),
        )
        seen: Tensor = self.feedforward(x)
        return seen
